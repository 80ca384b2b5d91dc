//! What a compaction says while it runs and at its end.

use pando_sync::time::Duration;

/// What a compaction is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactPhase {
    /// Space of dropped tables and of large values that are gone is freed.
    Garbage,
    /// Records of underfull leaves go to their neighbours.
    Pack,
    /// Pages and chunks at the end of the data file go to its front.
    Move,
    /// Checkpoints are written and the files cut.
    Cut,
}

impl CompactPhase {
    /// Its name for people and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Pack => "pack",
            Self::Move => "move",
            Self::Cut => "cut",
        }
    }
}

/// How far a compaction is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactProgress {
    /// What it is doing.
    pub phase: CompactPhase,
    /// How much of it all is done, from 0 to 1: an estimate that never falls.
    pub share: f64,
}

/// What a compaction has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactReport {
    /// It was not told to stop.
    pub finished: bool,
    /// Bytes of the data file before.
    pub data_bytes_before: u64,
    /// Bytes of the data file after.
    pub data_bytes_after: u64,
    /// Bytes of it that nothing uses.
    pub data_free_bytes: u64,
    /// Leaves and inner nodes that went into their neighbour.
    pub pages_merged: u64,
    /// Leaves and inner nodes that took records of a neighbour which stayed.
    pub pages_packed: u64,
    /// Pages that were written again to lie further to the front.
    pub pages_moved: u64,
    /// Chunks of large values that were written again for it.
    pub chunks_moved: u64,
    /// Pages and chunks of which nobody knew any more, since what named them could not be read.
    pub reclaimed: u64,
    /// Bytes that the log gave back at most; 0 where the file system cannot take them.
    pub log_bytes_given_back: u64,
    /// How long it took.
    pub elapsed: Duration,
}
