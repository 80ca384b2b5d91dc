//! Figures of snapshots.

use pando_sync::time::Duration;

use crate::api::db::Db;

/// What open snapshots take ([`Db::snapshot`], [`Db::snapshot_settled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotStat {
    /// Number of checkpoints that are kept for settled snapshots.
    pub settled: u64,
    /// Bytes of the data file that only settled snapshots still use, without what was written for
    /// them when they were settled.
    pub held_bytes: u64,
    /// Bytes of memory that settled snapshots may take.
    pub settled_memory_bytes: u64,
    /// How long the oldest settled snapshot has been open.
    pub oldest_settled: Option<Duration>,
}

impl Db {
    /// Returns what open snapshots take.
    pub fn snapshot_stat(&self) -> SnapshotStat {
        let engine = self.engine();
        let kept = engine.kept.figures();
        let blocks = engine.store.held_blocks.blocks();
        SnapshotStat {
            settled: kept.number,
            held_bytes: blocks * engine.store.space.block_bytes(),
            settled_memory_bytes: kept.bytes,
            oldest_settled: kept.age,
        }
    }
}
