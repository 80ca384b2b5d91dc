//! Batches that are validated: they read, write, and commit only if nothing that they read has
//! changed (decision 006).

use pando_format::{Lsn, TreeId};
use pando_sync::Arc;
use pando_tree::{Tree, ValueReader};

use crate::api::db::Db;
use crate::api::table::Table;
use crate::commit::check::Check;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::scratch::CommitScratch;
use crate::commit::second_look::{SecondLook, Seen};
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::event_loop::polled::{Pending, Polled, polled};
use crate::event_loop::reactor::Reactor;
use crate::pages::fetcher::OwnReads;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::jobs::{Job, JobEnd};
use crate::writes::read_log::{Played, ReadLog};
use crate::writes::set::{Own, TableChange, WriteSet};
use crate::writes::stripes::{Stamp, StripeIndex, StripeUse};

/// After this many conflicts of a transaction, its commit takes a second look (decision 059).
const CONFLICTS_MAX: u32 = 3;
/// A batch that reads its own writes and commits only if nothing that it read has changed.
#[derive(Debug)]
pub struct ValidatedBatch {
    pub(crate) engine: Shared,
    pub(crate) set: WriteSet,
    /// Has to be reset whenever `set` changes.
    pub(crate) scratch: CommitScratch,
    /// Of all commits since the last reset.
    locks: CommitLocks,
    pub(crate) reader: ValueReader,
    /// What its runs have read, played back to the next run.
    pub(crate) log: ReadLog,
    /// The commit, while an engine thread has it: that of a batch that changes tables.
    job: Option<Arc<Job>>,
    /// Conflicts since the last reset.
    pub(crate) conflicts: u32,
    /// After a second look that found a difference: the number of reads that the log has as of that
    /// moment.
    pub(crate) refreshed: Option<usize>,
}

/// The state of a key when [`ValidatedBatch::watch`] was called.
#[derive(Debug, Clone)]
pub struct Watch {
    state: Arc<TableState>,
    tree: Option<Tree>,
    stamp: Stamp,
}

/// The place that a watch observes. A change of any key of the place is a change to all watches of
/// the place, so the oldest of them can stand for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchPlace {
    /// Address of the table's state, which the watch keeps alive.
    table: usize,
    tree: Option<TreeId>,
    stripe: StripeIndex,
}

impl Watch {
    /// Returns the place that it observes.
    pub fn place(&self) -> WatchPlace {
        WatchPlace {
            table: std::ptr::from_ref::<TableState>(&self.state).addr(),
            tree: self.tree.map(|tree| tree.id),
            stripe: self.stamp.stripe,
        }
    }
}

impl ValidatedBatch {
    /// Makes an empty batch.
    pub fn new(db: &Db) -> Self {
        Self {
            engine: db.engine().clone(),
            set: WriteSet::default(),
            scratch: CommitScratch::default(),
            locks: CommitLocks::default(),
            reader: ValueReader::new(),
            log: ReadLog::default(),
            job: None,
            conflicts: 0,
            refreshed: None,
        }
    }

    /// Forgets reads and writes, and keeps the memory. A pending commit
    /// ([`ValidatedBatch::is_committing`]) still happens, and nobody learns its result.
    pub fn reset(&mut self) {
        self.job = None;
        self.set.clear();
        self.log.clear();
        self.scratch.begin_anew();
        self.locks.end();
        self.conflicts = 0;
        self.refreshed = None;
    }

    /// Prepares another run from the beginning after a conflict: forgets reads and writes. But
    /// after a few conflicts, a commit compares the values themselves that were read, and if some
    /// differ, the next run is answered with the values that the commit found. So transactions
    /// finish even while others keep writing; those that write nothing always do.
    pub fn begin_again(&mut self) {
        if self.refreshed.is_some() {
            self.rewind();
            return;
        }
        let conflicts = self.conflicts;
        self.reset();
        self.conflicts = conflicts;
    }

    /// Forgets the writes, for another run from the beginning after a pending read: reads that were
    /// done are answered as before, so each run gets further.
    pub fn rewind(&mut self) {
        assert!(self.job.is_none(), "a pending commit does not run again");
        self.set.forget_writes();
        self.log.rewind();
        self.scratch.reset();
    }

    /// Returns true after a [`ValidatedBatch::try_commit`] that has handed the batch to an engine
    /// thread, until a call of it returns the result: until then call only that.
    pub fn is_committing(&self) -> bool {
        self.job.is_some()
    }

    /// Number of reads that the next run need not wait for.
    pub fn reads_done(&self) -> usize {
        self.log.len()
    }

    /// Returns true if nothing was written.
    pub fn is_read_only(&self) -> bool {
        self.set.is_read_only()
    }

    /// Returns the LSN that must be durable before what was read may be shown: see
    /// [`Table::try_get`]. A commit has a larger one.
    pub fn shown_from(&self) -> Option<Lsn> {
        self.set.debt.lsn()
    }

    /// Reads `key` into `out`, its own writes first; true if it exists.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<bool>> {
        let index = self.set.table(&table.state);
        out.clear();
        match self.set.own(index, key) {
            Own::Value(value) => {
                out.extend_from_slice(value);
                return Ok(Polled::Ready(true));
            }
            Own::Large(_) => return Err(Error::InChunks),
            Own::Gone => return Ok(Polled::Ready(false)),
            Own::Unknown => {}
        }
        let is_new = match self.log.play(index, key, out) {
            Played::Read(found) => return Ok(Polled::Ready(found)),
            Played::Unknown { is_new } => is_new,
        };
        let step = self.read(&table.state, key, out);
        if let Ok(found) = step {
            let (read, value) = (self.set.reads.len() - 1, found.then_some(&out[..]));
            match is_new {
                true => self.log.note(read, index, key, value),
                false => self.log.pass(),
            }
        }
        polled(step, &mut self.reader.wanted)
    }

    /// Reads `key` from the tree, and notes its stamp.
    fn read(&mut self, state: &TableState, key: &[u8], out: &mut Vec<u8>) -> Step<bool> {
        let (_, stamp) = self.engine.stamp_of(state, key)?;
        let (found, debt) = self.engine.try_get(state, key, &mut self.reader, out)?;
        self.set.reads.push(stamp);
        self.set.debt.add(debt);
        Ok(found)
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine.check_key(key)?;
        let limit = self.engine.plain_bytes_max();
        if value.len() > limit {
            return Err(Error::ValueTooLong {
                bytes: value.len(),
                limit,
            });
        }
        let index = self.set.table(&table.state);
        self.set.write(index, key, Some(value));
        self.scratch.reset();
        Ok(())
    }

    /// Removes `key`, whether it exists or not.
    pub fn delete(&mut self, table: &Table, key: &[u8]) {
        let index = self.set.table(&table.state);
        self.set.write(index, key, None);
        self.scratch.reset();
    }

    /// Empties a table.
    pub fn clear_table(&mut self, table: &Table) {
        let index = self.set.table(&table.state);
        self.set.change_table(index, TableChange::Clear);
        self.scratch.reset();
    }

    /// Takes the state of `key` as it is now, for [`ValidatedBatch::expect`].
    pub fn watch(&mut self, table: &Table, key: &[u8]) -> Polled<Watch> {
        let tree = table.state.tree();
        let stripe = self
            .engine
            .stripes
            .of(tree.map(|tree| tree.id).unwrap_or_default(), key);
        match self.engine.stripes.stamp(stripe) {
            Some(stamp) => Polled::Ready(Watch {
                state: table.state.clone(),
                tree,
                stamp,
            }),
            None => Polled::Pending(Pending {
                reason: WaitReason::Stripe(stripe, StripeUse::Read),
                wanted: Vec::new(),
            }),
        }
    }

    /// Makes the commit depend on the watched key: it succeeds only if the key was not written
    /// since, and its table not emptied.
    pub fn expect(&mut self, watch: &Watch) {
        self.set
            .watched
            .push((watch.state.clone(), watch.tree, watch.stamp));
    }

    /// Commits, or returns that something has changed. To wait for durability, use
    /// [`Db::when_durable`].
    ///
    /// # Errors
    /// As [`Db::write`]. A batch that changes tables and was handed to an engine thread is empty
    /// after its end, whatever that was: run it again from the beginning.
    pub fn try_commit(&mut self, reactor: &mut Reactor) -> Result<Polled<Outcome>> {
        let _own = OwnReads::of(&reactor.fetcher);
        if self.job.is_none() && !self.set.table_changes.is_empty() {
            self.engine.check_writable()?;
            let job = Arc::new(Job::new(std::mem::take(&mut self.set)));
            if let Err(error) = self.engine.jobs.push(job.clone()) {
                let work = job.take().expect("nobody else has the job");
                self.set = work.set;
                return Err(error);
            }
            self.job = Some(job);
        }
        if let Some(job) = &self.job {
            let Some(result) = job.result() else {
                let reason = WaitReason::Job(job.clone());
                return Ok(Polled::Pending(Pending {
                    reason,
                    wanted: Vec::new(),
                }));
            };
            self.job = None;
            // The stamps of the reads went with the job, however it ended. A run that were answered
            // from the log now would not be validated.
            self.log.clear();
            self.refreshed = None;
            return Ok(Polled::Ready(match result? {
                JobEnd::Committed(lsn) => Outcome::Committed(Some(lsn)),
                JobEnd::Conflict { watched } => Outcome::Conflict { watched },
            }));
        }
        self.commit_writes()
    }

    /// Commits a batch that changes no table as a whole.
    fn commit_writes(&mut self) -> Result<Polled<Outcome>> {
        let reads = self.set.reads.len();
        let is_read_only = self.set.is_read_only() && self.set.watched.is_empty();
        if is_read_only && self.refreshed == Some(reads) {
            // All its reads are of the moment of the second look.
            return Ok(Polled::Ready(Outcome::Committed(None)));
        }
        let Self {
            engine,
            set,
            scratch,
            locks,
            reader,
            log,
            ..
        } = self;
        let mut look = SecondLook::new(log, reader);
        let looks = self.conflicts >= CONFLICTS_MAX;
        let check = match looks {
            true => Check::Look(&mut look),
            false => Check::Stamps,
        };
        let step = engine.try_commit(set, (scratch, locks), None, check);
        let looked = look.end();
        set.debt.add(looked.debt);
        for (place, stamp) in looked.fresh {
            let read = &mut set.reads[place];
            assert_eq!(read.stripe, stamp.stripe, "the stamp of another read");
            assert!(stamp.lsn() >= read.lsn(), "stamps only grow");
            *read = stamp;
        }
        scratch.wanted.extend(looked.wanted);
        if let Ok(Outcome::Conflict { watched: false }) = step {
            self.conflicts += 1;
            self.refreshed = (looked.seen == Seen::Different).then_some(reads);
        }
        polled(step, &mut self.scratch.wanted)
    }
}
