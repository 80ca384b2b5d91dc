//! A command that has begun.

use pando_sync::time::Instant;
use pandodb::nonblocking::ValidatedBatch;

use crate::connection::reservation::Reservation;
use crate::context::Command;
use crate::notifications::release::Announcement;

/// State of a command until it finishes.
pub(crate) struct Running {
    /// Its number in the index of commands.
    pub(crate) id: usize,
    /// The command or subcommand with that number.
    pub(crate) command: &'static Command,
    /// It waits for the end of a pause, and runs from its beginning then.
    pub(crate) is_held: bool,
    /// When it began; its duration counts from here.
    pub(crate) began: Instant,
    /// Number of input bytes that it takes.
    pub(crate) consumed: usize,
    /// Its run has finished, its commit has not.
    pub(crate) committing: bool,
    /// It has requested a page that it reads.
    pub(crate) missed: bool,
    /// It reads more than one row, although commands of its kind usually read one.
    pub(crate) reads_many: bool,
    /// Its last run ended where it had to wait for a read.
    pub(crate) waited: bool,
    /// Its last run has played back what the one before it had read.
    pub(crate) replayed: bool,
    /// Number of its runs since it last got further: see [`Running::count_wait`].
    pub(crate) stalls: u32,
    /// When it last waited for a page: number of its reads that were done, and of those that were
    /// repeated.
    pub(crate) reads: (usize, u64),
    /// It was parked at least once: its waits are recorded in the buffers.
    pub(crate) parked: bool,
    /// Its reads and uncommitted writes; `None` if it needs no transaction.
    pub(crate) batch: Option<Box<ValidatedBatch>>,
    /// Number of conflicts of its commits so far.
    pub(crate) conflicts: u32,
    /// The key that only it writes, since it has met many conflicts.
    pub(crate) reservation: Option<Box<Reservation>>,
    /// Its commit, which an engine thread carries out, was announced.
    pub(crate) announcement: Option<Box<Announcement>>,
    /// Monitors have seen it.
    pub(crate) is_shown: bool,
    /// It has read at a snapshot, which was ended for lack of memory.
    pub(crate) lost_snapshot: bool,
}

/// Number of runs that repeated a read, and waited for a page before a further one, after which a
/// command is given up.
const STALLS_MAX: u32 = 300;

impl Running {
    /// Counts a wait for a page. Returns true if the command will never end: it has read more long
    /// strings than it may keep, reads them again in each run, and the frames cannot hold them
    /// together. One long string takes a few dozen waits.
    pub(crate) fn count_wait(&mut self) -> bool {
        let Some(batch) = &self.batch else {
            return false;
        };
        let (done, repeated) = (batch.reads_done(), batch.reads_repeated());
        if done != self.reads.0 {
            self.stalls = 0;
        } else if repeated > self.reads.1 {
            self.stalls += 1;
        }
        self.reads = (done, repeated);
        self.stalls > STALLS_MAX
    }
}
