//! Reads and writes as futures, for any executor (decision 012).
//!
//! A future *is* its pending operation: there is no table of operations, nothing is boxed, and a
//! get allocates nothing. Between two polls it holds no page, no frame, no lock and no reservation,
//! only its key and handles of the store: ten thousand futures that are polled once and forgotten
//! cost nobody anything but their own memory. What a future waits for is done by engine threads,
//! which wake it: the thread that polled it may sleep, block or end meanwhile. A future may be
//! dropped at any time, and may outlive table and [`crate::Db`]; once the store is closed it ends
//! with [`crate::Error::Closed`], if it needs what is not in memory.
//!
//! An operation whose pages leave again and again before it is polled goes to the helper, an
//! engine thread that runs it as a blocking one, with a pin share: so it ends, and
//! no future ever keeps such a share.

mod get;
mod key;
mod write;

pub use get::{GetAsync, GetIntoAsync, GetWithAsync};
pub use write::{DeleteAsync, WriteAsync};

use std::task::Waker;

use pando_format::PageId;
use pando_pool::Restart;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::wait::reason::WaitReason;

/// Faults of one operation after which the helper takes it over.
const FAULTS_MAX: u32 = 16;
/// Attempts in one poll, before others get their turn.
const TURNS_MAX: u32 = 64;

/// What a future waits for, and how often it has.
#[derive(Debug, Default)]
struct Waits {
    /// Why the last attempt stopped; nobody was told yet.
    reason: Option<WaitReason>,
    /// The page that was asked for, and how many reads had failed before.
    awaited: Option<(PageId, u64)>,
    faults: u32,
}

/// What a future does next.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Another attempt.
    Try,
    /// Nothing: it will be woken.
    Wait,
    /// It leaves the rest to the helper.
    AskForHelp,
}

impl Waits {
    /// The error of the read that the future waited for.
    fn failure(&mut self, engine: &Engine) -> Option<Error> {
        let (page, before) = self.awaited.take()?;
        engine.store.failed_reads.since(page, before)
    }

    /// Arranges the wake-up for the last reason, if there was one. Never blocks.
    fn arrange(&mut self, engine: &Engine, waker: &Waker) -> Result<Next> {
        let Some(reason) = self.reason.take() else {
            return Ok(Next::Try);
        };
        if matches!(reason, WaitReason::Chunks) {
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
