//! The result of an operation that does not block (decision 009).

use pando_format::PageId;
use pando_pool::Restart;

use crate::error::{Error, Result};
use crate::profile::Wait;
use crate::wait::reason::{Halt, Step, Stop};

/// Result of an operation that does not block.
#[derive(Debug)]
#[must_use = "a pending operation has to be parked and tried again"]
pub enum Attempt<T> {
    /// It is done.
    Ready(T),
    /// It has to wait; try again after this.
    Pending(Pending),
}

/// What a pending operation waits for. Opaque: give it to [`crate::nonblocking::Reactor::park`].
#[derive(Debug)]
#[must_use = "park it, or nobody fetches what the operation waits for"]
pub struct Pending {
    pub(crate) stop: Stop,
    /// Further pages that the operation is going to need.
    pub(crate) wanted: Vec<PageId>,
}

impl Pending {
    /// True if it waits for a page from the device.
    pub fn is_for_page(&self) -> bool {
        matches!(self.stop, Stop::Restart(Restart::Fault(_)))
    }

    /// What it waits for.
    pub fn wait(&self) -> Wait {
        self.stop.wait()
    }
}

pub(crate) fn attempt<T>(step: Step<T>, wanted: &mut Vec<PageId>) -> Result<Attempt<T>> {
    match step {
        Ok(value) => Ok(Attempt::Ready(value)),
        Err(Halt::Stop(Stop::Chunks)) => Err(Error::InChunks),
        Err(Halt::Stop(stop)) => Ok(Attempt::Pending(Pending {
            stop,
            wanted: std::mem::take(wanted),
        })),
        Err(Halt::Error(error)) => Err(error),
    }
}
