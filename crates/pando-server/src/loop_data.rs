//! What one loop needs of the engine, and lends to the connection whose turn it is.

use pando_stats::Ticker;
use pando_sync::Arc;
use pando_sync::time::Instant;
use pandodb::nonblocking::{Reactor, Transaction};
use std::task::Waker;

use crate::burst::Burst;
use crate::context::Scratch;
use crate::engine::Engine;
use crate::lookahead::Prefetch;
use crate::loop_handle::LoopHandle;
use crate::shared::Shared;

/// Transactions that are kept for the next command.
const SPARE_TRANSACTIONS: usize = 64;
/// Scratch buffers beyond this go back to the system after a turn.
const SCRATCH_BYTES_KEPT: usize = 256 * 1024;

/// Transactions that no command uses now.
/// Boxed: a command that begins moves a pointer and allocates nothing.
type SpareTransactions = Vec<Box<Transaction>>;

/// The engine's side of a loop.
pub(crate) struct LoopData {
    pub(crate) engine: Arc<Engine>,
    pub(crate) reactor: Reactor,
    pub(crate) scratch: Scratch,
    pub(crate) prefetch: Prefetch,
    pub(crate) burst: Burst,
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
            burst: Burst::default(),
            spare: Vec::new(),
        })
    }

    /// An empty transaction.
    #[inline]
    pub(crate) fn transaction(&mut self) -> Box<Transaction> {
        match self.spare.pop() {
            Some(transaction) => transaction,
            None => Box::new(Transaction::new(&self.engine.db)),
        }
    }

    /// Takes a transaction back that is no longer needed, whatever is in it.
    #[inline]
    pub(crate) fn give_back(&mut self, mut transaction: Box<Transaction>) {
        if self.spare.len() < SPARE_TRANSACTIONS {
            transaction.reset();
            self.spare.push(transaction);
        }
    }

    /// Gives unusually much memory back.
    pub(crate) fn trim(&mut self) {
        self.scratch.trim(SCRATCH_BYTES_KEPT);
        self.prefetch.trim(SCRATCH_BYTES_KEPT);
        self.burst.trim(SCRATCH_BYTES_KEPT);
    }
}

/// What a connection is lent for its turn.
pub(crate) struct Turn<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) handle: &'a Arc<LoopHandle>,
    /// `None` until the engine is open.
    pub(crate) data: Option<&'a mut LoopData>,
    pub(crate) read_buffer: &'a mut [u8],
    /// When the current command began, or the last one ended.
    pub(crate) clock: Instant,
    /// Time by which deadlines are judged: that of the turn's beginning.
    pub(crate) now_ms: u64,
    /// Nothing new begins.
    pub(crate) stopping: bool,
}

impl Turn<'_> {
    /// Counts an error reply with the code `code`.
    #[cold]
    pub(crate) fn count_error(&self, code: &[u8]) {
        self.shared.statistics.tick(Ticker::CommandErrors, 1);
        self.handle.errors.add(code);
    }
}
