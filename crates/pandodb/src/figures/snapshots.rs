//! Figures of snapshots.

use pando_sync::time::Duration;

use crate::api::db::Db;

/// What open snapshots take ([`Db::snapshot`], [`Db::snapshot_settled`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SnapshotStat {
    /// Number of snapshots that read old versions in memory, those of transactions among them.
    pub in_memory: u64,
    /// How long the oldest of these has been open.
    pub oldest_in_memory: Option<Duration>,
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
        let (in_memory, oldest_in_memory) = engine.kept.figures_of_young();
        SnapshotStat {
            in_memory,
            oldest_in_memory,
            settled: kept.number,
            held_bytes: blocks * engine.store.space.block_bytes(),
            settled_memory_bytes: kept.bytes,
            oldest_settled: kept.age,
        }
    }
}
