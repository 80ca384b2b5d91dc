//! A command that has begun.

use pando_sync::time::Instant;
use pandodb::nonblocking::ValidatedBatch;

use crate::context::Command;

/// State of a command until it finishes.
pub(crate) struct Running {
    /// Its number in the index of commands.
    pub(crate) id: usize,
    /// The command or subcommand with that number.
    pub(crate) command: &'static Command,
    /// When it began; its duration counts from here.
    pub(crate) began: Instant,
    /// Number of input bytes that it takes.
    pub(crate) consumed: usize,
    /// Its run has finished, its commit has not.
    pub(crate) committing: bool,
    /// It has requested a page that it reads.
    pub(crate) missed: bool,
    /// Its last run ended where it had to wait for a read.
    pub(crate) waited: bool,
    /// It was parked at least once: its waits are recorded in the buffers.
    pub(crate) parked: bool,
    /// Its reads and uncommitted writes; `None` if it needs no transaction.
    pub(crate) batch: Option<Box<ValidatedBatch>>,
    /// Number of conflicts of its commits so far.
    pub(crate) conflicts: u32,
    /// It has read at a snapshot, which was ended for lack of memory.
    pub(crate) lost_snapshot: bool,
}
