//! Checks on apply sections: whether one finished its changes, and whether it dirtied more pages
//! than it had reserved blocks for.
//!
//! A panic in the middle of a change leaves a tree that must not get into a checkpoint, so it
//! poisons the engine. Without the second check, a reservation that is too small would only show
//! much later, when a page cannot be written on a full disk.
//!
//! The pool counts the dirty frames of all apply sections together. But when a section is alone in
//! the gate, nobody else adds to the count, and the cleaner only subtracts from it. So a section
//! that was alone from beginning to end is checked, and the others are not. Debug builds only: the
//! counters are on cache lines that all cores share.

use std::cell::Cell;

use pando_format::Epoch;
use pando_sync::atomic::Ordering;

use crate::engine::Engine;
use crate::space::reservations::IdReservation;

/// One apply section, from [`Engine::begin_section`] to its drop.
pub(crate) struct ApplySection<'a> {
    engine: &'a Engine,
    number: u64,
    /// No other section was in the gate when it began.
    is_alone: bool,
    epoch: Epoch,
    /// Number of dirty pages when it began.
    dirty: u64,
    /// Number of writes put aside before it began: the pages that such writes dirty are not
    /// reserved.
    aside: u32,
    /// Pages are being changed: a panic now would leave them half changed.
    is_changing: Cell<bool>,
}

impl Engine {
    /// Begins an apply section: the caller is in the gate, and leaves it after dropping the
    /// section.
    pub(crate) fn begin_section(&self) -> ApplySection<'_> {
        if !cfg!(debug_assertions) {
            return ApplySection {
                engine: self,
                number: 0,
                is_alone: false,
                epoch: Epoch(0),
                dirty: 0,
                aside: 0,
                is_changing: Cell::new(false),
            };
        }
        let (number, is_alone) = self.apply_sections.begin();
        let epoch = self.store.pool.epochs().current();
        ApplySection {
            engine: self,
            number,
            is_alone,
            epoch,
            dirty: self.store.pool.epochs().dirty(epoch),
            // Relaxed, as below: a section that is alone sees its own increments.
            aside: self.store.aside_number.load(Ordering::Relaxed),
            is_changing: Cell::new(false),
        }
    }
}

impl ApplySection<'_> {
    /// Marks that pages are changed from here on.
    pub(crate) fn begin_changes(&self) {
        self.is_changing.set(true);
    }

    /// Marks that all changes were made, or none was started. Blocks for `pages` pages were
    /// reserved.
    pub(crate) fn end_changes(&self, pages: u64) {
        self.check(pages);
        self.is_changing.set(false);
    }

    /// Asserts that no more than `pages` pages became dirty, if the section was alone.
    fn check(&self, pages: u64) {
        if !cfg!(debug_assertions) {
            return;
        }
        let now = self.engine.store.pool.epochs().dirty(self.epoch);
        // Checked after `dirty` was read, so no other section began before that.
        let is_alone = self.is_alone && self.engine.apply_sections.is_last(self.number);
        let aside = self.engine.store.aside_number.load(Ordering::Relaxed);
        if is_alone && aside == self.aside {
            let spent = now.saturating_sub(self.dirty);
            assert!(
                spent <= pages,
                "{spent} pages became dirty, and {pages} were reserved"
            );
        }
    }
}

impl ApplySection<'_> {
    /// Checks that each new chunk of the applied batch has taken its id.
    pub(crate) fn check_ids(&self, ids: &IdReservation<'_>) {
        let is_known = self.engine.store.aside_number.load(Ordering::Relaxed) == self.aside;
        debug_assert!(!is_known || ids.left() == 0, "a chunk without an id");
    }
}

impl Drop for ApplySection<'_> {
    fn drop(&mut self) {
        if self.is_changing.get() {
            // A half-made change must not become part of a checkpoint.
            self.engine
                .poison("a change of pages was cut off by a panic");
        }
        if cfg!(debug_assertions) {
            self.engine.apply_sections.end();
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::{Wake, Waker};

    use pando_format::Lsn;
    use pando_pool::Attempt;
    use pando_sync::Arc;
    use pando_sync::atomic::{AtomicU32, Ordering};

    use crate::{Batch, Db, WriteOptions};

    /// Returns keys in ascending order. Neighbours differ only at their ends, so separators are
    /// long, and few keys share a prefix that nodes could leave out.
    fn key(number: u32, bytes: usize) -> Vec<u8> {
        let mut key = vec![b'k'; bytes];
        key[..4].copy_from_slice(&(number / 16).to_be_bytes());
        key[bytes - 4..].copy_from_slice(&number.to_be_bytes());
        key
    }

    /// A half-changed tree must not become part of a checkpoint.
    #[test]
    fn a_panic_in_the_middle_of_a_change_poisons() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let options = Db::builder().max_memory(8 << 20);
        let engine = crate::recovery::open::open(device.into(), options).unwrap();
        engine.in_gate(0, |_, _| Ok(())).unwrap();
        engine.store.check_poison().unwrap();
        let change = || engine.in_gate(0, |_, _| -> Attempt<()> { panic!("a test") });
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(change)).unwrap_err();
        engine.store.check_poison().unwrap_err();
        engine.checkpoint_once().unwrap_err();
    }

    /// Whoever passes the gate behind a commit that was cut off finds a store that takes no writes.
    #[test]
    fn a_commit_that_panics_poisons_before_it_leaves_the_gate() {
        struct Look(Db, AtomicU32);
        impl Wake for Look {
            fn wake(self: Arc<Self>) {
                let store = &self.0.engine().store;
                assert!(store.life.is_poisoned(), "that is what wakes");
                let inside = store.pool.gate().is_entered();
                self.1.store(1 + u32::from(inside), Ordering::SeqCst);
            }
        }
        let options = Db::builder().max_memory(8 << 20);
        let db = options.open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"k", b"v").unwrap();
        let look = Arc::new(Look(db.clone(), AtomicU32::new(0)));
        let waiters = db.engine().store.pool.frame_waiters();
        waiters.register(&Waker::from(look.clone()));
        // Stands for a bug: the stripe has a stamp of the future, and stamps grow.
        let stripes = &db.engine().stripes;
        let stripe = stripes.of(table.state.tree().unwrap().id, b"x");
        let locked = stripes.try_lock_one(stripe).unwrap();
        locked.stamp_with(Lsn(1 << 40));
        drop(locked);
        let mut batch = Batch::new();
        batch.put(&table, b"x", b"w");
        let commit = || db.write(&mut batch, WriteOptions::default());
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(commit)).unwrap_err();
        let seen = look.1.load(Ordering::SeqCst);
        assert_eq!(seen, 2, "0: nobody was woken; 1: it had left the gate");
        assert!(!db.engine().store.pool.gate().is_entered());
        assert_eq!(table.get(b"k").unwrap().unwrap(), b"v");
    }

    /// After a load, leaves and inner nodes are full. So each write of a batch with distant keys
    /// splits a leaf and a node on each level above it.
    #[test]
    fn writes_that_split_a_node_on_each_level_are_within_their_reservation() {
        let mut most = 0;
        for (key_bytes, value, step) in [
            (200, 10, 61),
            (200, 10, 200),
            (200, 700, 31),
            (200, 900, 97),
            (1000, 10, 23),
            (1000, 900, 23),
            (1000, 10, 5),
            (1000, 900, 9),
        ] {
            let options = Db::builder().max_memory(64 << 20).page_size(4096);
            let db = options.open_in_memory().unwrap();
            let table = db.table("t").unwrap();
            let entries = (0..5_000).map(|number| (key(2 * number, key_bytes), vec![7; value]));
            table.load_sorted(entries).unwrap();
            let mut batch = Batch::new();
            for number in (0..5_000).step_by(step) {
                batch.put(&table, &key(2 * number + 1, key_bytes), &vec![8; value]);
            }
            let engine = db.engine();
            db.checkpoint().unwrap();
            let dirty = || engine.store.pool.epochs().dirty_total();
            let before = dirty();
            let reserved = engine.pages_of(&batch.set, 0, None);
            let writes = batch.len() as u64;
            db.write(&mut batch, WriteOptions::default()).unwrap();
            let spent = dirty() - before;
            assert!(
                spent <= reserved,
                "{spent} pages, and {reserved} were reserved"
            );
            most = most.max(spent * 100 / writes);
        }
        assert!(
            most > 300,
            "three pages for each write are not enough: {most} %"
        );
    }
}
