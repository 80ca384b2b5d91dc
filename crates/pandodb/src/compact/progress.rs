//! Progress and report of a compaction.

use pando_sync::time::Duration;

/// Phase of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactPhase {
    /// Space of dropped tables and deleted large values is freed.
    Garbage,
    /// Records of underfull leaves move to neighbours.
    Pack,
    /// All pages are written again, with the compression of this opening.
    Rewrite,
    /// Pages and chunks at the end of the data file move to its front.
    Move,
    /// Checkpoints are written, and the files are cut.
    Cut,
}

impl CompactPhase {
    /// Name for people and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::Pack => "pack",
            Self::Rewrite => "rewrite",
            Self::Move => "move",
            Self::Cut => "cut",
        }
    }
}

/// Progress of a compaction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompactProgress {
    /// The current phase.
    pub phase: CompactPhase,
    /// The fraction that is done, from 0 to 1: an estimate that never falls.
    pub share: f64,
}

/// Result of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompactReport {
    /// True if it was not told to stop.
    pub finished: bool,
    /// Bytes of the data file before.
    pub data_bytes_before: u64,
    /// Bytes of the data file after.
    pub data_bytes_after: u64,
    /// Bytes of the data file that nothing uses after the compaction.
    pub data_free_bytes: u64,
    /// Leaves and inner nodes that were merged into a neighbour.
    pub pages_merged: u64,
    /// Leaves and inner nodes that took records of a neighbour that still exists.
    pub pages_packed: u64,
    /// Pages that were written again, nearer to the front or with another compression.
    pub pages_moved: u64,
    /// Chunks of large values that were copied nearer to the front.
    pub chunks_moved: u64,
    /// Leaked pages and chunks that were freed: what named them could not be read.
    pub reclaimed: u64,
    /// Bytes of the files of the log that were cut off or removed.
    pub log_bytes_given_back: u64,
    /// Time that it took.
    pub elapsed: Duration,
}
