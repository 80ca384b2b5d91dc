//! The result of an operation that does not block (decision 009).

use pando_format::PageId;
use pando_pool::Restart;

use crate::error::{Error, Result};
use crate::profile::Wait;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// Result of an operation that does not block.
#[derive(Debug)]
#[must_use = "a pending operation has to be parked and tried again"]
pub enum Polled<T> {
    /// It is done.
    Ready(T),
    /// It has to wait: park it, and try again once woken.
    Pending(Pending),
}

impl<T> Polled<T> {
    /// Converts the value of an operation that is done.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Polled<U> {
        match self {
            Self::Ready(value) => Polled::Ready(f(value)),
            Self::Pending(pending) => Polled::Pending(pending),
        }
    }
}

/// What a pending operation waits for. Opaque: give it to [`crate::nonblocking::Reactor::park`].
#[derive(Debug)]
#[must_use = "park it, or nobody fetches what the operation waits for"]
pub struct Pending {
    /// Why it cannot continue; parking and fetching follow from it.
    pub(crate) reason: WaitReason,
    /// Further pages that the operation will need.
    pub(crate) wanted: Vec<PageId>,
}

impl Pending {
    /// Returns true if it waits for a page from the device, or for what a helper reads.
    pub fn is_for_page(&self) -> bool {
        matches!(
            self.reason,
            WaitReason::Restart(Restart::Fault(_)) | WaitReason::Answer(_)
        )
    }

    /// Has the page that `other` waits for read at the same time, if both wait for pages. Returns
    /// false if nothing is to be read for it: the page is the one that was added last, or that
    /// `self` waits for.
    pub fn beside(&mut self, other: Self) -> bool {
        let (WaitReason::Restart(Restart::Fault(own)), WaitReason::Restart(Restart::Fault(page))) =
            (&self.reason, &other.reason)
        else {
            return false;
        };
        if self.wanted.last().unwrap_or(own) == page {
            return false;
        }
        self.wanted.push(*page);
        self.wanted.extend(other.wanted);
        true
    }

    /// Returns what it waits for.
    pub fn wait(&self) -> Wait {
        self.reason.wait()
    }
}

/// Converts the result of a step. `wanted` are further pages that the step needs; they are taken if
/// it is pending.
pub(crate) fn polled<T>(step: Step<T>, wanted: &mut Vec<PageId>) -> Result<Polled<T>> {
    match step {
        Ok(value) => Ok(Polled::Ready(value)),
        Err(Unfinished::Wait(WaitReason::Chunks)) => Err(Error::InChunks),
        Err(Unfinished::Wait(reason)) => Ok(Polled::Pending(Pending {
            reason,
            wanted: std::mem::take(wanted),
        })),
        Err(Unfinished::Error(error)) => Err(error),
    }
}
