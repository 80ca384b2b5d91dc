//! The commit of a transaction as a step, and apart from the transaction's handle, so that any
//! thread may carry it on: whoever has no handle of the store does not close it.

use pando_format::Lsn;
use pando_stats::Ticker;
use pando_sync::Arc;

use crate::commit::buffers::TakenBuffer;
use crate::commit::check::Check;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::scratch::CommitScratch;
use crate::commit::state_check::StateCheck;
use crate::engine::Engine;
use crate::error::Result;
use crate::kept::young::Young;
use crate::state::transaction_memory::CountedMemory;
use crate::transaction::options::Isolation;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::read_set::ReadSet;
use crate::writes::set::WriteSet;

/// What the commit of a transaction works on.
pub(crate) struct CommitParts<'t> {
    pub(crate) engine: &'t Engine,
    /// None if it depends on nothing.
    pub(crate) check: Option<StateCheck<'t>>,
    pub(crate) set: &'t mut WriteSet,
    pub(crate) locks: &'t mut CommitLocks,
}

/// Returns the check that the commit of a transaction makes, if it has a snapshot.
pub(crate) fn check_of<'t>(
    isolation: Isolation,
    snapshot: Option<&'t Young>,
    reads: &'t ReadSet,
) -> Option<StateCheck<'t>> {
    snapshot.map(|snapshot| match isolation {
        Isolation::Serializable => StateCheck::of_reads(snapshot, reads),
        Isolation::Snapshot | Isolation::ReadCommitted => StateCheck::of_writes(snapshot),
    })
}

/// Checks what holds after a commit of a transaction that has read at `read_at`.
pub(crate) fn check_committed(lsn: Option<Lsn>, read_at: Option<Lsn>, locks: &CommitLocks) {
    assert!(lsn.is_some(), "a transaction that writes has a record");
    assert!(
        lsn > read_at,
        "a transaction is committed before what it has read: {lsn:?}, {read_at:?}"
    );
    assert!(locks.owner.is_none(), "locks outlast their transaction");
}

/// Makes one attempt to commit; `lent` as in [`Engine::try_commit`].
pub(crate) fn try_commit(
    parts: CommitParts<'_>,
    scratch: &mut CommitScratch,
    lent: Option<u64>,
) -> Step<Option<Lsn>> {
    let CommitParts {
        engine,
        mut check,
        set,
        locks,
    } = parts;
    if let Some(check) = &mut check {
        let is_lost =
            check.is_doomed() || check.closes_gate() && check.finds_conflict(engine, set)?;
        if let Some(conflict) = check.take_conflict().filter(|_| is_lost) {
            engine.store.statistics.tick(Ticker::CommitConflicts, 1);
            return Err(conflict.into());
        }
        check.share_stripes(engine, set);
    }
    let read_at = check.as_ref().map(|check| check.snapshot().lsn());
    loop {
        let by = check.as_mut().map_or(Check::Stamps, Check::State);
        match engine.try_commit(set, (scratch, locks), lent, by)? {
            Outcome::Committed(lsn) => {
                check_committed(lsn, read_at, locks);
                return Ok(lsn);
            }
            Outcome::Conflict { .. } => set.check_flag()?,
        }
        if let Some(conflict) = check.as_mut().and_then(StateCheck::take_conflict) {
            return Err(conflict.into());
        }
        // A table that it writes to was emptied: what it has not read does not matter.
        set.refresh_trees()?;
        scratch.reset();
    }
}

/// A transaction on its way to its commit.
#[derive(Debug)]
pub(crate) struct PendingCommit {
    pub(crate) isolation: Isolation,
    pub(crate) snapshot: Option<Arc<Young>>,
    pub(crate) reads: TakenBuffer<ReadSet>,
    pub(crate) set: TakenBuffer<WriteSet>,
    pub(crate) locks: CommitLocks,
    pub(crate) scratch: CommitScratch,
    /// Given back at its end.
    #[expect(dead_code, reason = "it counts the memory of the other fields")]
    pub(crate) counted: CountedMemory,
}

/// How far a commit has come that a helper has run.
#[derive(Debug)]
pub(crate) enum CommitRun {
    Ended(Option<Lsn>),
    /// It has to wait for a lock, which nobody does in the helper's thread.
    Waits(Box<PendingCommit>),
}

impl PendingCommit {
    /// Makes one attempt; `lent` as in [`Engine::try_commit`].
    pub(crate) fn step(&mut self, engine: &Engine, lent: Option<u64>) -> Step<Option<Lsn>> {
        let parts = CommitParts {
            engine,
            check: check_of(self.isolation, self.snapshot.as_deref(), &self.reads),
            set: &mut self.set,
            locks: &mut self.locks,
        };
        try_commit(parts, &mut self.scratch, lent)
    }

    /// Runs it to its end, or until it has to wait for a lock. Blocks.
    pub(crate) fn run(mut self: Box<Self>, engine: &Engine) -> Result<CommitRun> {
        let end = engine.block(|blocked| {
            let lent = blocked.lend(self.set.len().max(1));
            let end = self.step(engine, lent);
            blocked.wanted.append(&mut self.scratch.wanted);
            match end {
                Err(Unfinished::Wait(WaitReason::Lock(_))) => Ok(None),
                other => other.map(Some),
            }
        })?;
        Ok(match end {
            Some(lsn) => CommitRun::Ended(lsn),
            None => CommitRun::Waits(self),
        })
    }
}
