//! A command that has begun.

use pando_sync::time::Instant;
use pandodb::nonblocking::ValidatedBatch;

use crate::context::Command;

/// What is known of it until it ends.
pub(crate) struct Running {
    /// Number in the index of commands.
    pub(crate) id: usize,
    pub(crate) command: &'static Command,
    pub(crate) began: Instant,
    /// Bytes of input it takes.
    pub(crate) consumed: usize,
    /// Its run is over, its commit is not.
    pub(crate) committing: bool,
    /// A page that it reads was asked for.
    pub(crate) missed: bool,
    /// Its last run ended where it had to wait for a read.
    pub(crate) waited: bool,
    /// It was parked once: its waits are in the buffers.
    pub(crate) parked: bool,
    pub(crate) batch: Option<Box<ValidatedBatch>>,
    pub(crate) conflicts: u32,
}
