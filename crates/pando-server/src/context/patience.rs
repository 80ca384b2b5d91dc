//! Where a command runs, as far as its scripts care (decision 095): on an event loop, which they
//! leave if they take long, or on a script thread, where they may wait in the middle of a run.

use pando_sync::time::Duration;
#[cfg(feature = "scripts")]
use pandodb::nonblocking::Pending;
use pandodb::nonblocking::Reactor;

use crate::sleeper::Sleeper;

/// Time of its runs after which a script leaves its loop. A run that is ended for that is repeated,
/// so it costs a script that takes longer no more than this.
pub(crate) const STAY_MAX: Duration = Duration::from_millis(2);
/// Number of runs, each of which waited for a page, after which a script leaves its loop, if a
/// thread has nothing to do: each is as long as all before it together, and one page longer.
#[cfg(feature = "scripts")]
pub(crate) const RUNS_MAX: u32 = 8;

/// Whether the scripts of a command leave the loop that runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// They stay until they end: it is a script thread, or there is none.
    Never,
    /// After [`STAY_MAX`]: all script threads have something to do.
    Late,
    /// After [`STAY_MAX`] or [`RUNS_MAX`].
    Early,
}

/// Lets a command wait in the middle of a run. Only script threads have it.
pub(crate) struct Patience<'a> {
    pub(crate) sleeper: &'a mut Sleeper,
    pub(crate) reactor: &'a mut Reactor,
}

impl Patience<'_> {
    /// Lends it to a nested command.
    pub(crate) fn lend(&mut self) -> Patience<'_> {
        Patience {
            sleeper: self.sleeper,
            reactor: self.reactor,
        }
    }

    /// As [`Sleeper::wait_for`].
    #[cfg(feature = "scripts")]
    pub(crate) fn wait_for(
        &mut self,
        pending: Pending,
        gives_up: &dyn Fn() -> bool,
    ) -> pandodb::Result<bool> {
        self.sleeper.wait_for((self.reactor, pending), gives_up)
    }
}
