//! Reads and writes as futures, for any executor (decision 012).
//!
//! A future *is* its pending operation: there is no table of operations, nothing is boxed, and a
//! get allocates nothing. Between two polls it holds no page, frame, lock or reservation, only its
//! key and handles of the store: ten thousand futures that are polled once and forgotten cost
//! nothing but their own memory. Engine threads do the work that a future waits for, and wake it:
//! the thread that polled it may sleep, block or end in the meantime. A future may be dropped at
//! any time, and may outlive its table and [`crate::Db`]; once the store is closed, a future that
//! needs what is not in memory ends with [`crate::Error::Closed`].
//!
//! Wakers are called, and may be dropped, on threads of the store: they must not wait, nor call
//! what blocks. If the last handle of the store goes there, another thread closes it.
//!
//! An operation whose pages are evicted again and again before it is polled is handed to the
//! helper, an engine thread that runs it as a blocking one, with a pin share. So every operation
//! ends, and no future ever keeps a pin share.

mod counted;
mod drive;
mod get;
mod given_up;
mod key;
mod many;
mod scan;
mod snapshot;
mod transaction;
mod write;

pub use get::{GetAsync, GetIntoAsync, GetWithAsync};
pub use write::{DeleteAsync, WriteAsync};

use std::task::Waker;

use pando_format::PageId;
use pando_pool::Restart;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::wait::reason::WaitReason;

/// After this many faults of one operation, the helper takes it over.
const FAULTS_MAX: u32 = 16;
/// Attempts in one poll, before other tasks get their turn.
const TURNS_MAX: u32 = 64;

/// What a future waits for, and how often it has faulted.
#[derive(Debug, Default)]
struct Waits {
    /// Why the last attempt stopped, if its wake-up is not arranged yet.
    reason: Option<WaitReason>,
    /// The page that the future waits for, and the number of failed reads before it was asked for.
    awaited: Option<(PageId, u64)>,
    faults: u32,
}

/// What a future does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Make another attempt.
    Try,
    /// Return: the future will be woken.
    Wait,
    /// Leave the rest to the helper.
    AskForHelp,
}

impl Waits {
    /// Returns the error of the read that the future waited for, if it failed.
    fn failure(&mut self, engine: &Engine) -> Option<Error> {
        let (page, before) = self.awaited.take()?;
        engine.store.failed_reads.since(page, before)
    }

    /// Arranges the wake-up for the last reason, if there is one. Never blocks.
    fn arrange(&mut self, engine: &Engine, waker: &Waker) -> Result<Next> {
        let Some(reason) = self.reason.take() else {
            return Ok(Next::Try);
        };
        if matches!(reason, WaitReason::Chunks | WaitReason::Settled) {
            return Ok(Next::AskForHelp);
        }
        let at_once = if let WaitReason::Restart(Restart::Fault(page)) = reason {
            self.faults += 1;
            if self.faults > FAULTS_MAX {
                return Ok(Next::AskForHelp);
            }
            self.awaited = Some((page, engine.store.failed_reads.now()));
            engine.request_page(page, waker)?
        } else {
            engine.register(&reason, waker)?
        };
        Ok(if at_once { Next::Try } else { Next::Wait })
    }
}
