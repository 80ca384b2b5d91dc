//! Loads of sorted entries, which write each page once and nothing to the log.
//!
//! ```text
//! entries -> leaf in private memory -> run of sealed pages -> device      (loader, stream)
//!                                                               `-> hung into a hidden tree (tree)
//! finish: checkpoint -> one record: the table takes the tree
//! ```
//! The hidden tree has a row in the garbage table from its first page on, and is a whole tree in
//! every checkpoint: what a crash leaves of it is freed like a dropped one. What is not hung yet no
//! checkpoint knows.
//!
//! Reading order: [`stream`], [`tree`], [`loader`].

mod loader;
mod stream;
pub(crate) mod tree;

pub use loader::Loader;

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_sync::thread;

    use crate::Db;

    /// Those of pages that are in flight or hang nowhere, and those of chunks.
    #[test]
    fn page_ids_of_a_load_that_comes_to_nothing_are_free_again() {
        let options = Db::builder().max_memory(16 << 20).chunk_size(4096);
        let db = options.chunk_values_over(40_000).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let left_after_load = || {
            let mut loader = table.loader().unwrap();
            for number in 0..3000_u32 {
                // The leaf of the last ones is not full: their pages wait for it.
                let bytes = match number {
                    _ if number % 100 == 99 => 50_000,
                    2985.. => 30_000,
                    _ => 100,
                };
                let value = vec![7; bytes];
                loader.put(&number.to_be_bytes(), &value).unwrap();
            }
            drop(loader);
            while db.garbage_left() {
                thread::yield_now();
            }
            db.checkpoint().unwrap();
            db.engine().pool.page_ids().available()
        };
        assert_eq!(left_after_load(), left_after_load());
    }
}
