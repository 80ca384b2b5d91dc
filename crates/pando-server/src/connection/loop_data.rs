//! What one loop needs of the engine, and what it lends to the connection whose turn it is.

use pando_stats::{IS_OFF, Ticker};
use pando_sync::Arc;
use pando_sync::time::{Instant, now};
use pandodb::nonblocking::{Reactor, ValidatedBatch};
use std::collections::VecDeque;
use std::task::Waker;

use crate::connection::joining::Joining;
use crate::connection::lookahead::Prefetch;
use crate::connection::pipeline_run::PipelineRun;
use crate::context::CommandIndex;
use crate::context::patience::{Leaves, Patience};
use crate::context::{Data, Scratch};
use crate::data::engine::Engine;
use crate::loop_handle::LoopHandle;
use crate::shared::Shared;
use crate::sleeper::Sleeper;
use crate::tracking::session::LeftTold;

/// Maximum number of transactions that are kept for later commands.
const SPARE_TRANSACTIONS: usize = 64;
/// Scratch buffers that are larger than this are freed after a turn.
const SCRATCH_BYTES_KEPT: usize = 256 * 1024;

/// Transactions that no command uses at the moment. Boxed, so that a command that begins moves a
/// pointer and allocates nothing.
type SpareTransactions = Vec<Box<ValidatedBatch>>;

/// The engine's side of a loop.
pub(crate) struct LoopData {
    pub(crate) engine: Arc<Engine>,
    /// Reads pages for this loop, and wakes what is parked; used by the loop's thread only.
    pub(crate) reactor: Reactor,
    /// For the command that runs now.
    pub(crate) scratch: Scratch,
    /// For the lookahead of the connection that has its turn.
    pub(crate) prefetch: Prefetch,
    /// For the pipeline run of the connection that has its turn.
    pub(crate) pipeline_run: PipelineRun,
    /// Commands of several connections that run together.
    pub(crate) joining: Joining,
    /// Of a script thread.
    pub(crate) sleeper: Option<Sleeper>,
    /// Keys that commands have written, and that are still to be told.
    pub(crate) left_told: VecDeque<LeftTold>,
    spare: SpareTransactions,
}

impl LoopData {
    /// # Errors
    /// Those of the engine.
    pub(crate) fn new(engine: Arc<Engine>, notify: Waker) -> pandodb::Result<Self> {
        let reactor = Reactor::new(&engine.db, notify)?;
        Ok(Self {
            engine,
            reactor,
            scratch: Scratch::default(),
            prefetch: Prefetch::default(),
            pipeline_run: PipelineRun::default(),
            joining: Joining::default(),
            sleeper: None,
            left_told: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Lends it to a command with this transaction, whose scripts leave the loop as `leaves` says.
    #[inline]
    pub(crate) fn lend<'a>(
        &'a mut self,
        batch: Option<&'a mut ValidatedBatch>,
        leaves: Leaves,
    ) -> Data<'a> {
        let reactor = &mut self.reactor;
        let sleeper = self.sleeper.as_mut();
        Data {
            engine: &self.engine,
            batch,
            scratch: &mut self.scratch,
            overlay: None,
            leaves,
            patience: sleeper.map(|sleeper| Patience { sleeper, reactor }),
        }
    }

    /// Tells the next keys of a command that has written many. Returns false if there are none.
    pub(crate) fn tell_left(&mut self, shared: &Shared) -> bool {
        let Some(first) = self.left_told.front_mut() else {
            return false;
        };
        let count = first.tell(&shared.tracking, &shared.channels);
        first.from += count;
        if count == 0 {
            self.left_told.pop_front();
        }
        true
    }

    /// Returns an empty transaction.
    #[inline]
    pub(crate) fn batch(&mut self) -> Box<ValidatedBatch> {
        match self.spare.pop() {
            Some(batch) => batch,
            None => {
                let mut batch = Box::new(ValidatedBatch::new(&self.engine.db));
                // What a command reads as a whole is part of its reply, or of what it writes.
                batch.keep_long_values(self.engine.reply_bytes_max);
                batch
            }
        }
    }

    /// Takes a transaction back that is no longer needed; drops what it contains. On a script
    /// thread it goes: commands that come there have theirs, and that of a long script may be
    /// large.
    #[inline]
    pub(crate) fn give_back(&mut self, mut batch: Box<ValidatedBatch>) {
        if self.spare.len() < SPARE_TRANSACTIONS && self.sleeper.is_none() {
            batch.reset();
            self.spare.push(batch);
        }
    }

    /// Frees the memory of unusually large buffers.
    pub(crate) fn trim(&mut self) {
        self.scratch.trim(SCRATCH_BYTES_KEPT);
        self.prefetch.trim(SCRATCH_BYTES_KEPT);
        self.pipeline_run.trim(SCRATCH_BYTES_KEPT);
    }
}

/// Counts of the turns of a round. They are added to the statistics at once, before replies are
/// sent and before a command runs that may show them.
#[derive(Default)]
pub(crate) struct RoundCounts {
    input_bytes: u64,
    commands: u64,
    commands_together: u64,
    hits: u64,
    misses: u64,
}

impl RoundCounts {
    /// Counts bytes that were received.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        if !IS_OFF {
            self.input_bytes += bytes as u64;
        }
    }

    /// Counts commands that have finished, with `hits` keys that they found and `misses` that they
    /// did not.
    #[inline]
    pub(crate) fn ended(&mut self, commands: u64, hits: u64, misses: u64) {
        if !IS_OFF {
            self.commands += commands;
            self.hits += hits;
            self.misses += misses;
        }
    }

    /// Counts commands that have finished in a pipeline run. [`RoundCounts::ended`] counts them,
    /// too.
    #[inline]
    pub(crate) fn ended_together(&mut self, commands: u64) {
        if !IS_OFF {
            self.commands_together += commands;
        }
    }
}

/// What a connection is lent for its turn.
pub(crate) struct Turn<'a> {
    /// Number of the loop.
    pub(crate) index: usize,
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) commands: &'a CommandIndex,
    /// What other threads see of the loop.
    pub(crate) handle: &'a Arc<LoopHandle>,
    /// `None` until the engine is open.
    pub(crate) data: Option<&'a mut LoopData>,
    /// For one read from a socket; has no meaning between two turns.
    pub(crate) read_buffer: &'a mut [u8],
    /// Since when the loop may have had turns with contended keys.
    pub(crate) turns_since: Instant,
    /// When the current command began, or the last one finished.
    pub(crate) clock: Instant,
    /// Nothing has run since `clock` was read.
    pub(crate) is_clock_new: bool,
    /// Unix time of the beginning of the turn, in milliseconds; expiry is decided by it.
    pub(crate) now_ms: u64,
    /// Counted since they were last added to the statistics.
    pub(crate) counts: RoundCounts,
    /// Whether scripts leave the loop.
    pub(crate) leaves: Leaves,
    /// The server stops: nothing new begins.
    pub(crate) stopping: bool,
}

impl Turn<'_> {
    /// Reads the clock after a command has finished, to measure its time and for nothing else.
    #[inline]
    pub(crate) fn read_clock(&mut self) {
        if !IS_OFF {
            self.clock = now();
            self.is_clock_new = true;
        }
    }

    /// Reads the clock between two turns. Returns true if it is `until` or later.
    pub(crate) fn is_over(&mut self, until: Instant) -> bool {
        if !self.is_clock_new {
            self.clock = now();
            self.is_clock_new = true;
        }
        self.clock >= until
    }

    /// Adds the counts of the round so far to the statistics.
    pub(crate) fn tick(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        let tick = |ticker, count: u64| {
            if count > 0 {
                self.shared.statistics.tick(ticker, count);
            }
        };
        tick(Ticker::InputBytes, counts.input_bytes);
        tick(Ticker::Commands, counts.commands);
        tick(Ticker::CommandsTogether, counts.commands_together);
        tick(Ticker::KeyspaceHits, counts.hits);
        tick(Ticker::KeyspaceMisses, counts.misses);
    }

    /// Counts an error reply with the code `code`.
    #[cold]
    pub(crate) fn count_error(&self, code: &[u8]) {
        self.shared.statistics.tick(Ticker::CommandErrors, 1);
        self.handle.errors.add(code);
    }
}
