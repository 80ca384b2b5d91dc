//! Whether the wait of a client can be ended from outside: CLIENT UNBLOCK.
//!
//! ```text
//!            begin_wait              unblock
//!   (free) ------------> (waits) ----------------> (timeout) or (error)
//!     ^ ^     end_wait      |                              |
//!     | '-------------------'                              |
//!     '----------------------------------------------------'  clear, when the command has ended
//! ```
//!
//! The loop of the client moves it along all arrows but one; any other thread along `unblock`. Who
//! leaves `waits` does so by compare and exchange, so one of the two wins: either the command ends
//! its wait, and UNBLOCK has found nobody who waits, or UNBLOCK was first, and the command takes
//! nothing.
//!
//! All accesses are relaxed: it protects nothing but itself. The message behind it makes the loop
//! look, and its lock orders the two.

use pando_sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const WAITS: u8 = 1;
const TIMEOUT: u8 = 2;
const ERROR: u8 = 3;

/// How a wait was ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unblocked {
    /// As if its time was over.
    Timeout,
    /// With an error.
    Error,
}

/// The state at the top of this file.
#[derive(Debug, Default)]
pub(crate) struct Unblocking(AtomicU8);

impl Unblocking {
    fn exchange(&self, from: u8, to: u8) -> Result<u8, u8> {
        (self.0).compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// The command waits from now on, unless it was unblocked already.
    pub(crate) fn begin_wait(&self) {
        let _: Result<u8, u8> = self.exchange(FREE, WAITS);
    }

    /// The command waits no longer, and nobody can unblock it. Returns false if somebody already
    /// has.
    #[must_use]
    pub(crate) fn end_wait(&self) -> bool {
        matches!(self.exchange(WAITS, FREE), Ok(_) | Err(FREE))
    }

    /// The command has ended.
    pub(crate) fn clear(&self) {
        self.0.store(FREE, Ordering::Relaxed);
    }

    /// Returns how the command was unblocked, if it was.
    pub(crate) fn unblocked(&self) -> Option<Unblocked> {
        match self.0.load(Ordering::Relaxed) {
            TIMEOUT => Some(Unblocked::Timeout),
            ERROR => Some(Unblocked::Error),
            _ => None,
        }
    }

    /// Ends the wait of the command. Returns false if it does not wait.
    #[must_use]
    pub(crate) fn unblock(&self, how: Unblocked) -> bool {
        let to = match how {
            Unblocked::Timeout => TIMEOUT,
            Unblocked::Error => ERROR,
        };
        self.exchange(WAITS, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_ended_once() {
        let state = Unblocking::default();
        assert!(!state.unblock(Unblocked::Timeout));
        assert!(state.end_wait());
        state.begin_wait();
        assert_eq!(state.unblocked(), None);
        assert!(state.end_wait());
        assert!(!state.unblock(Unblocked::Error));
        state.begin_wait();
        assert!(state.unblock(Unblocked::Error));
        assert!(!state.unblock(Unblocked::Timeout) && !state.end_wait());
        state.begin_wait();
        assert_eq!(state.unblocked(), Some(Unblocked::Error));
        state.clear();
        assert_eq!(state.unblocked(), None);
    }
}
