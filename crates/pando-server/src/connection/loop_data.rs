//! What one loop needs of the engine, and lends to the connection whose turn it is.

use pando_stats::{IS_OFF, Ticker};
use pando_sync::Arc;
use pando_sync::time::{Instant, now};
use pandodb::nonblocking::{Reactor, ValidatedBatch};
use std::task::Waker;

use crate::connection::lookahead::Prefetch;
use crate::connection::pipeline_run::PipelineRun;
use crate::context::CommandIndex;
use crate::context::Scratch;
use crate::data::engine::Engine;
use crate::loop_handle::LoopHandle;
use crate::shared::Shared;

/// Transactions that are kept for the next command.
const SPARE_TRANSACTIONS: usize = 64;
/// Scratch buffers beyond this go back to the system after a turn.
const SCRATCH_BYTES_KEPT: usize = 256 * 1024;

/// Transactions that no command uses now.
/// Boxed: a command that begins moves a pointer and allocates nothing.
type SpareTransactions = Vec<Box<ValidatedBatch>>;

/// The engine's side of a loop.
pub(crate) struct LoopData {
    pub(crate) engine: Arc<Engine>,
    pub(crate) reactor: Reactor,
    pub(crate) scratch: Scratch,
    pub(crate) prefetch: Prefetch,
    pub(crate) pipeline_run: PipelineRun,
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
            spare: Vec::new(),
        })
    }

    /// An empty batch.
    #[inline]
    pub(crate) fn batch(&mut self) -> Box<ValidatedBatch> {
        match self.spare.pop() {
            Some(batch) => batch,
            None => Box::new(ValidatedBatch::new(&self.engine.db)),
        }
    }

    /// Takes a transaction back that is no longer needed, whatever is in it.
    #[inline]
    pub(crate) fn give_back(&mut self, mut batch: Box<ValidatedBatch>) {
        if self.spare.len() < SPARE_TRANSACTIONS {
            batch.reset();
            self.spare.push(batch);
        }
    }

    /// Gives unusually much memory back.
    pub(crate) fn trim(&mut self) {
        self.scratch.trim(SCRATCH_BYTES_KEPT);
        self.prefetch.trim(SCRATCH_BYTES_KEPT);
        self.pipeline_run.trim(SCRATCH_BYTES_KEPT);
    }
}

/// What the turns of a round count, ticked once: before replies are sent, and before a command runs
/// that may show counts.
#[derive(Default)]
pub(crate) struct RoundCounts {
    input_bytes: u64,
    commands: u64,
    commands_together: u64,
    hits: u64,
    misses: u64,
}

impl RoundCounts {
    /// Bytes have come in.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        if !IS_OFF {
            self.input_bytes += bytes as u64;
        }
    }

    /// Commands have ended that found `hits` keys, and `misses` keys not.
    #[inline]
    pub(crate) fn ended(&mut self, commands: u64, hits: u64, misses: u64) {
        if !IS_OFF {
            self.commands += commands;
            self.hits += hits;
            self.misses += misses;
        }
    }

    /// Commands have ended in a pipeline run; they are commands, too.
    #[inline]
    pub(crate) fn ended_together(&mut self, commands: u64) {
        if !IS_OFF {
            self.commands_together += commands;
        }
    }
}

/// What a connection is lent for its turn.
pub(crate) struct Turn<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) commands: &'a CommandIndex,
    pub(crate) handle: &'a Arc<LoopHandle>,
    /// `None` until the engine is open.
    pub(crate) data: Option<&'a mut LoopData>,
    pub(crate) read_buffer: &'a mut [u8],
    /// When the current command began, or the last one ended.
    pub(crate) clock: Instant,
    /// Nothing has run since `clock` was read.
    pub(crate) is_clock_new: bool,
    /// Time by which deadlines are judged: that of the turn's beginning.
    pub(crate) now_ms: u64,
    pub(crate) counts: RoundCounts,
    /// Nothing new begins.
    pub(crate) stopping: bool,
}

impl Turn<'_> {
    /// A command has ended: the clock is read, for the time that it took and for nothing else.
    #[inline]
    pub(crate) fn read_clock(&mut self) {
        if !IS_OFF {
            self.clock = now();
            self.is_clock_new = true;
        }
    }

    /// The counts of the round so far are there for all to see.
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
