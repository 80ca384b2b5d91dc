//! Why an engine step did not go on: it has to wait for something, or it failed for good.
//!
//! A step that has to wait holds nothing. Blocking calls park on the reason, event loops register
//! their waker for it; both start the step again from its beginning.

use pando_format::Lsn;
use pando_pool::{Resource, Restart};
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::error::Error;
use crate::pages::store::ticker_of;
use crate::profile::Wait;
use crate::writes::jobs::Job;
use crate::writes::stripes::{StripeIndex, StripeUse};

/// What a step waits for.
#[derive(Debug, Clone)]
pub(crate) enum WaitReason {
    /// A page, a frame, an image buffer, or just another try.
    Restart(Restart),
    /// The apply gate.
    Gate,
    /// A stripe that somebody else holds, and what it is wanted for.
    Stripe(StripeIndex, StripeUse),
    /// Room for so many bytes in the log.
    LogSpace(usize),
    /// Reservation for so many blocks.
    Blocks(u64),
    /// So many free blocks in a row, though enough are free.
    Run(u32),
    /// The checkpoint of this number, which makes room for deletes, or its waiting for room.
    Checkpoint(u64),
    /// The value lies in chunks: read it in another way. Never waited for.
    Chunks,
    /// Fewer dirty frames: until [`crate::pages::store::Store::is_dirty_high`] ends.
    Dirty,
    /// So many frames of the pin budget.
    Pins(u64),
    /// All batches up to the LSN to be applied.
    Applied(Lsn),
    /// The record of the LSN to be durable.
    Durable(Lsn),
    /// A job of an engine thread.
    Job(Arc<Job>),
}

/// Why a step did not come to its end.
#[derive(Debug)]
pub(crate) enum Unfinished {
    /// It has to wait.
    Wait(WaitReason),
    /// It failed for good.
    Error(Error),
}

/// Result of a step.
pub(crate) type Step<T> = Result<T, Unfinished>;

impl From<WaitReason> for Unfinished {
    fn from(reason: WaitReason) -> Self {
        Self::Wait(reason)
    }
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Restart> for Unfinished {
    fn from(restart: Restart) -> Self {
        match restart {
            Restart::Damaged(page, what) => Self::Error(Error::CorruptPage {
                page,
                extent: None,
                what: what.to_owned(),
            }),
            restart => Self::Wait(WaitReason::Restart(restart)),
        }
    }
}

impl WaitReason {
    /// What counts the steps that wait for this; faults are counted where pages are claimed.
    pub(crate) fn ticker(&self) -> Option<Ticker> {
        Some(match self {
            Self::Restart(Restart::Fault(_) | Restart::Damaged(..)) => return None,
            Self::Restart(Restart::Wait(resource)) => ticker_of(*resource),
            Self::Restart(_) => Ticker::RestartsConflict,
            Self::Gate => Ticker::RestartsGate,
            Self::Stripe(..) => Ticker::RestartsStripe,
            Self::LogSpace(_) => Ticker::RestartsLog,
            Self::Blocks(_) | Self::Run(_) | Self::Checkpoint(_) => Ticker::RestartsBlocks,
            Self::Chunks | Self::Durable(_) => return None,
            Self::Dirty => Ticker::RestartsDirty,
            Self::Pins(_) => Ticker::RestartsPins,
            Self::Applied(_) => Ticker::RestartsApplied,
            Self::Job(_) => Ticker::RestartsJob,
        })
    }

    /// What a profile counts the wait as.
    pub(crate) fn wait(&self) -> Wait {
        match self {
            Self::Restart(Restart::Fault(_)) => Wait::Page,
            Self::Restart(Restart::Wait(Resource::Frames | Resource::Images)) => Wait::Frames,
            Self::Restart(_) | Self::Chunks => Wait::Conflict,
            Self::Gate => Wait::Gate,
            Self::Stripe(..) => Wait::Stripe,
            Self::LogSpace(_) => Wait::LogSpace,
            Self::Blocks(_) | Self::Run(_) | Self::Checkpoint(_) => Wait::Blocks,
            Self::Dirty => Wait::Dirty,
            Self::Pins(_) => Wait::Pins,
            Self::Applied(_) => Wait::Applied,
            Self::Job(_) => Wait::Job,
            Self::Durable(_) => Wait::Durable,
        }
    }
}
