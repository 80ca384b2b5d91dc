//! How a store uses its memory.

use pando_sync::atomic::Ordering;

use crate::api::db::Db;
use crate::memory_share::MemoryShare;

/// The parts of `max_memory`. The rest is for lists of free pages, operations in flight,
/// statistics, and the program around the store: see [`MemoryReport::rest_budget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryReport {
    /// The memory budget.
    pub max_memory: u64,
    /// Frames of the pool; those with a page are used.
    pub frames: MemoryShare,
    /// The table from page ids to frames; the part for existing pages is used.
    pub page_table: MemoryShare,
    /// Buffers of the log; all of them are allocated at opening.
    pub log_buffers: MemoryShare,
    /// Buffers for images of pages; all of them are allocated at opening.
    pub images: MemoryShare,
    /// Buffers of large values that are written or read, one chunk each. Those of blocking calls
    /// are counted, but not limited.
    pub chunk_buffers: MemoryShare,
    /// What is kept in memory about tables: names, trees and numbers of entries, half a KiB each.
    pub tables: MemoryShare,
    /// Values that snapshots still read and commits have replaced; a part of the rest.
    pub old_versions: MemoryShare,
    /// What open transactions have written, read and locked, those of a few keys excepted; a part
    /// of the rest. While others take more than this, a transaction does not go on growing.
    pub transactions: MemoryShare,
    /// Upper bound of the bytes of counters and histograms; unused ones take no memory.
    pub statistics_bytes: u64,
}

impl MemoryReport {
    fn shares(&self) -> [MemoryShare; 6] {
        [
            self.frames,
            self.page_table,
            self.log_buffers,
            self.images,
            self.chunk_buffers,
            self.tables,
        ]
    }

    /// Bytes that the parts have taken, without statistics.
    pub fn used_bytes(&self) -> u64 {
        let shares: u64 = self.shares().iter().map(|share| share.used_bytes).sum();
        shares + self.old_versions.used_bytes + self.transactions.used_bytes
    }

    /// Bytes of the budget that are left to everything else.
    pub fn rest_budget(&self) -> u64 {
        let taken: u64 = self.shares().iter().map(|share| share.budget_bytes).sum();
        self.max_memory.saturating_sub(taken)
    }
}

impl Db {
    /// Returns the current use of memory.
    pub fn memory(&self) -> MemoryReport {
        let engine = self.engine();
        let pool = &engine.store.pool;
        let page = pool.page_size().bytes() as u64;
        let frame = page + 64;
        let unused = pool.free_count() + pool.parked_count();
        let used_frames = pool.frames().saturating_sub(unused) as u64;
        let pages = u64::from(pool.page_ids().high_water());
        MemoryReport {
            max_memory: engine.max_memory.load(Ordering::Relaxed),
            frames: MemoryShare {
                budget_bytes: pool.frames_in_use_max() as u64 * frame,
                used_bytes: used_frames * frame,
            },
            page_table: MemoryShare {
                budget_bytes: engine.budget.page_ids_max as u64 * 8,
                used_bytes: pages * 8,
            },
            log_buffers: MemoryShare::full(2 * engine.budget.log_buffer_bytes as u64),
            images: MemoryShare::full(engine.budget.images as u64 * page),
            chunk_buffers: MemoryShare {
                budget_bytes: engine.incoming.bytes_max() + engine.outgoing.bytes_max(),
                used_bytes: engine.incoming.used_bytes() + engine.outgoing.used_bytes(),
            },
            tables: engine.store.tables.memory(),
            old_versions: engine.old_versions.memory(),
            transactions: engine.transaction_memory.share(),
            statistics_bytes: engine.store.statistics.bytes_max() as u64,
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use crate::Db;

    #[test]
    fn the_parts_are_within_the_budget_and_grow_with_the_data() {
        const MAX: u64 = 32 << 20;
        let db = Db::builder().max_memory(MAX).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let before = db.memory();
        assert_eq!(before.max_memory, MAX);
        assert!(before.rest_budget() >= MAX / 16 && before.rest_budget() < MAX / 4);
        assert!(before.statistics_bytes > 0);
        for number in 0..2000_u32 {
            table.put(&number.to_be_bytes(), &[7; 1000]).unwrap();
        }
        let after = db.memory();
        let grown = after.frames.used_bytes - before.frames.used_bytes;
        assert!((2_000_000..5_000_000).contains(&grown), "{grown}");
        assert!(after.page_table.used_bytes > before.page_table.used_bytes);
        assert_eq!(after.used_bytes(), db.report().memory_used);
        assert!(after.frames.used_bytes <= after.frames.budget_bytes);
    }
}
