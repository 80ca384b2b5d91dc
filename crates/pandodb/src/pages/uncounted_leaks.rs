//! Leaks that could not be counted when they came about: the row that counts them could not be
//! read. Without it, nobody would know that a compaction has something to find, and `verify` would
//! take the pages for damage. They are counted once the row can be read, at the latest when the
//! store is closed; a crash before that forgets them.

use std::collections::BTreeMap;

use pando_format::TreeId;
use pando_sync::Mutex;
use pando_sync::atomic::{AtomicBool, Ordering};

/// The leaks of each tree that are not counted.
#[derive(Debug, Default)]
pub(crate) struct UncountedLeaks {
    by_tree: Mutex<BTreeMap<TreeId, u64>>,
    are_there: AtomicBool,
}

impl UncountedLeaks {
    /// Adds leaks of `tree`.
    pub(crate) fn add(&self, tree: TreeId, leaks: u64) {
        let mut by_tree = self.by_tree.lock();
        *by_tree.entry(tree).or_default() += leaks;
        // Relaxed, as below: who looks too early looks again.
        self.are_there.store(true, Ordering::Relaxed);
    }

    /// Takes all of them.
    pub(crate) fn take(&self) -> BTreeMap<TreeId, u64> {
        if !self.are_there.load(Ordering::Relaxed) {
            return BTreeMap::new();
        }
        let mut by_tree = self.by_tree.lock();
        self.are_there.store(false, Ordering::Relaxed);
        std::mem::take(&mut by_tree)
    }
}

#[cfg(test)]
mod tests {
    use pando_device::AnyDevice;
    use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
    use pando_stats::Ticker;

    use crate::{Db, Durability, VerifyReport, WriteOptions};

    /// A value in overflow pages is replaced beside a snapshot while the garbage table, where its
    /// pages are to be noted, cannot be read.
    #[test]
    fn what_leaks_while_its_row_cannot_be_read_is_counted_later() {
        let device = FaultyDevice::new(1);
        let any = AnyDevice::from(device.clone());
        let options = Db::builder()
            .max_memory(8 << 20)
            .durability(Durability::None);
        let db = Db::open_device(options, any.clone()).unwrap();
        let (engine, table) = (db.engine().clone(), db.table("t").unwrap());
        let (long, pool) = (vec![7; 3 * pool_page(&db)], &engine.store.pool);
        let snapshot = db.snapshot().unwrap();
        let leaks = || engine.store.statistics.get(Ticker::Leaks);
        let mut number = 0_u32;
        while leaks() == 0 {
            number += 1;
            assert!(number < 200, "the garbage table was always in memory");
            let key = number.to_be_bytes();
            table.put(&key, &long).unwrap();
            db.checkpoint().unwrap();
            for _ in 0..10 {
                pool.sweep(pool.frames(), pool.frames(), &mut Vec::new());
            }
            assert_eq!(table.get(&key).unwrap().unwrap(), long);
            let fault = FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io);
            device.fail(fault);
            // It may be refused, for a page that it needs itself.
            let _ = table.put_with(&key, b"short", WriteOptions::default());
            device.clear_faults();
        }
        drop((snapshot, table, engine));
        db.close().unwrap();
        let report = VerifyReport::of_device(&any).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        assert!(report.leaked > 0, "nobody could find them");
    }

    fn pool_page(db: &Db) -> usize {
        db.engine().store.pool.page_size().bytes()
    }
}
