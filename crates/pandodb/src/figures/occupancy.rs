//! Resources of a store that are in use by operations: all 0 at rest.

use pando_stats::Ticker;

use crate::api::db::Db;
use crate::engine::Engine;

/// Everything that operations take and return. At rest, with no operation between two attempts,
/// each count is 0; but a reactor keeps a few pages pinned as long as it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Pages that were claimed and whose read has not ended.
    pub reads: u64,
    /// Pages that were requested from the read thread.
    pub read_requests: u64,
    /// Operations of futures and streams that a helper has taken over.
    pub helped: u64,
    /// Channels that blocking calls have borrowed.
    pub channels: u64,
    /// Frames of the pin budget that operations have shares of.
    pub pin_frames: u64,
    /// Registered readers of values in chunks.
    pub chunk_readers: u64,
    /// Locks that transactions hold, or that somebody waits for.
    pub locks: u64,
}

impl Engine {
    /// As [`Db::occupancy`].
    pub(crate) fn occupancy(&self) -> Occupancy {
        let counters = self.store.statistics.totals();
        let ended = counters.get(Ticker::PageReads) + counters.get(Ticker::FaultsFailed);
        let (channels, idle_reads) = self.fetchers.occupancy();
        assert_eq!(idle_reads, 0, "a channel that nobody has reads");
        Occupancy {
            reads: counters.get(Ticker::Faults).saturating_sub(ended),
            read_requests: self.reads.pending() as u64,
            helped: (self.helper.pending() + self.streams.pending()) as u64,
            channels: channels as u64,
            pin_frames: self.pin_budget.taken(),
            chunk_readers: self.store.registry.readers(),
            locks: self.locks.len() as u64,
        }
    }
}

impl Db {
    /// Returns what operations have taken and not returned yet.
    pub fn occupancy(&self) -> Occupancy {
        self.engine().occupancy()
    }
}
