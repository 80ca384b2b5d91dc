//! Loads of sorted entries: they write each page once, and nothing to the log (decision 051).
//!
//! ```text
//! entries -> leaf in private memory -> run of sealed pages -> device      (loader, stream)
//!                                                           `-> attached to a hidden tree (tree)
//! finish: checkpoint -> one record: the table takes the tree
//! ```
//! The hidden tree has a row in the garbage table from its first page on, and every checkpoint
//! contains all of it: after a crash it is freed like a dropped tree. No checkpoint contains pages
//! that are not attached yet.
//!
//! Reading order: [`stream`], [`tree`], [`loader`].

mod loader;
mod stream;
pub(crate) mod tree;

pub use loader::Loader;

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_device::faulty::{CrashMode, FaultyDevice};
    use pando_device::{Device, File, IoBuf, OpenOptions};
    use pando_sync::thread;

    use crate::Db;
    use crate::files::names::DATA;

    /// Covers the ids of pages in flight, of pages that were never attached, and of chunks.
    #[test]
    fn page_ids_of_a_load_that_comes_to_nothing_are_free_again() {
        let options = Db::builder().max_memory(16 << 20).chunk_size(4096);
        let db = options.chunk_values_over(40_000).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let left_after_load = || {
            let mut loader = table.loader().unwrap();
            for number in 0..3000_u32 {
                // The leaf of the last values is not full, so their overflow pages wait for it.
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
            db.engine().store.pool.page_ids().available()
        };
        assert_eq!(left_after_load(), left_after_load());
    }

    /// A table whose root cannot be read does not affect others, even if the log gives the table
    /// this tree.
    #[test]
    fn recovery_does_not_need_the_root_of_what_was_loaded() {
        let device = FaultyDevice::new(1);
        let options = || Db::builder().max_memory(16 << 20);
        let db = Db::open_device(options(), device.clone().into()).unwrap();
        let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
        other.put(b"a", b"b").unwrap();
        table.load_sorted([(b"k", b"v")]).unwrap();
        let root = table.state.tree().unwrap().root;
        let place = db.engine().store.pool.stored_extent(root).unwrap().block;
        device.crash_now();
        let after = device.after_crash(1, CrashMode::AllLost);
        let file = after.open(DATA, OpenOptions::write()).unwrap();
        let zeros = IoBuf::new(db.engine().store.space.block_bytes() as usize);
        let offset = u64::from(place) * db.engine().store.space.block_bytes();
        file.write_at(&zeros, offset).unwrap();
        let db = Db::open_device(options(), after.into()).unwrap();
        let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
        assert_eq!(
            (table.len(), other.get(b"a").unwrap()),
            (1, Some(b"b".to_vec()))
        );
        assert!(table.get(b"k").unwrap_err().is_corruption());
        other.put(b"c", b"d").unwrap();
        drop((table, other));
        db.close().unwrap();
    }
}
