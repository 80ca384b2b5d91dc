//! Why an engine step did not finish: it has to wait for something, or it failed for good.
//!
//! A step that has to wait holds nothing. Blocking calls park on the reason, event loops register
//! their waker for it; both then start the step again from its beginning (decision 009).

use pando_format::Lsn;
use pando_pool::{Resource, Restart};
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::error::Error;
use crate::locks::LockWait;
use crate::pages::store::ticker_of;
use crate::profile::Wait;
use crate::space::id_turns::IdNeed;
use crate::state::helper::AnswerEnd;
use crate::writes::jobs::Job;
use crate::writes::stripes::{StripeIndex, StripeUse};

/// What a step waits for.
#[derive(Debug, Clone)]
pub(crate) enum WaitReason {
    /// A page, a frame, an image buffer, or just another try.
    Restart(Restart),
    /// The apply gate.
    Gate,
    /// A stripe that somebody else holds, and what it is needed for.
    Stripe(StripeIndex, StripeUse),
    /// Room for a record with this many payload bytes in the log: until there is some, or the
    /// checkpoint that would make it waits for room on the disk.
    LogSpace(usize),
    /// A reservation for this many blocks.
    Blocks(u64),
    /// Page ids that others have reserved, perhaps more than they use.
    PageIds(IdNeed),
    /// This many free blocks in a row: enough blocks are free, but not in a row.
    Run(u32),
    /// The checkpoint with this number, which makes room for deletes, or frees page ids: until it
    /// finishes, or itself waits for room.
    Checkpoint(u64),
    /// Not a wait: the value is in chunks, and has to be read in another way.
    Chunks,
    /// Not a wait: the snapshot of the transaction goes on on disk, and has to be read in another
    /// way.
    Settled,
    /// What a helper reads.
    Answer(Arc<AnswerEnd>),
    /// Fewer dirty frames: until [`crate::pages::store::Store::is_dirty_high`] is false, or pages
    /// cannot be written for lack of room.
    Dirty,
    /// This many frames of the pin budget.
    Pins(u64),
    /// Until all batches up to the LSN are applied.
    Applied(Lsn),
    /// Until the record of the LSN is durable.
    Durable(Lsn),
    /// Room for the versions of a batch: this many frames.
    Versions(u64),
    /// A lock of a key or a table that somebody else holds.
    Lock(Arc<LockWait>),
    /// The end of a job of an engine thread.
    Job(Arc<Job>),
}

/// Why a step did not finish.
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
    /// Returns the ticker for steps that wait for this; faults are counted where pages are claimed.
    pub(crate) fn ticker(&self) -> Option<Ticker> {
        Some(match self {
            Self::Restart(Restart::Fault(_) | Restart::Damaged(..)) => return None,
            Self::Restart(Restart::Wait(resource)) => ticker_of(*resource),
            Self::Restart(_) => Ticker::RestartsConflict,
            Self::Gate => Ticker::RestartsGate,
            Self::Stripe(..) => Ticker::RestartsStripe,
            Self::LogSpace(_) => Ticker::RestartsLog,
            Self::Blocks(_) | Self::Run(_) | Self::Checkpoint(_) => Ticker::RestartsBlocks,
            Self::PageIds(_) => Ticker::RestartsPageIds,
            Self::Chunks | Self::Settled | Self::Answer(_) | Self::Durable(_) => return None,
            Self::Dirty => Ticker::RestartsDirty,
            Self::Pins(_) => Ticker::RestartsPins,
            Self::Applied(_) => Ticker::RestartsApplied,
            Self::Versions(_) => Ticker::RestartsVersions,
            Self::Lock(_) => Ticker::RestartsLock,
            Self::Job(_) => Ticker::RestartsJob,
        })
    }

    /// Returns what a profile counts the wait as.
    pub(crate) fn wait(&self) -> Wait {
        match self {
            Self::Restart(Restart::Fault(_)) | Self::Answer(_) => Wait::Page,
            Self::Restart(Restart::Wait(Resource::Frames | Resource::Images)) => Wait::Frames,
            Self::Restart(_) | Self::Chunks | Self::Settled => Wait::Conflict,
            Self::Gate => Wait::Gate,
            Self::Stripe(..) => Wait::Stripe,
            Self::LogSpace(_) => Wait::LogSpace,
            Self::Blocks(_) | Self::Run(_) | Self::Checkpoint(_) | Self::PageIds(_) => Wait::Blocks,
            Self::Dirty => Wait::Dirty,
            Self::Pins(_) => Wait::Pins,
            Self::Applied(_) => Wait::Applied,
            Self::Versions(_) => Wait::Versions,
            Self::Lock(_) => Wait::Lock,
            Self::Job(_) => Wait::Job,
            Self::Durable(_) => Wait::Durable,
        }
    }
}
