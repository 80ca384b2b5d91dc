//! Operations for event loops: every call returns at once, with a result or with what it waits for.
//!
//! A loop owns a [`Reactor`]. An operation that cannot go on returns [`Attempt::Pending`]; the loop
//! hands that to [`Reactor::park`] with the waker of whoever wanted it, and tries again from the
//! beginning when the waker is woken. An operation holds nothing in between.

use std::ops::Bound;

use pando_format::{Lsn, PageId, TreeId};
use pando_pool::Restart;
use pando_sync::Arc;
use pando_tree::{Direction, LeafCopy, ScanValue, Tree, ValueReader};

pub use crate::chunks::{
    EditOld, Fingerprint, NewBytes, Opened, PendingEdit, ValueSink, ValueSource,
};
use crate::commit::CommitScratch;
pub use crate::commit::Outcome;
use crate::db::Db;
use crate::engine::{Shared, no_such_table, on_tree};
use crate::error::{Error, Result};
use crate::fetcher::OwnReads;
use crate::halt::{Halt, Step, Stop};
use crate::jobs::{Job, JobEnd};
use crate::profile::Wait;
pub use crate::reactor::{Prefetched, Reactor};
pub use crate::read_group::GroupValues;
use crate::read_log::{Played, ReadLog};
use crate::stripes::{Stamp, StripeIndex, StripeUse};
use crate::table::{Table, with_reader};
use crate::tables::TableState;
use crate::write_set::{Own, TableChange, WriteSet};

/// Result of an operation that does not block.
#[derive(Debug)]
#[must_use = "a pending operation has to be parked and tried again"]
pub enum Attempt<T> {
    /// It is done.
    Ready(T),
    /// It has to wait; try again after this.
    Pending(Pending),
}

/// What a pending operation waits for. Opaque: give it to [`Reactor::park`].
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
        Wait::of(&self.stop)
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

/// A batch that reads its own writes and commits only if nothing that it read has changed.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) engine: Shared,
    pub(crate) set: WriteSet,
    pub(crate) scratch: CommitScratch,
    pub(crate) reader: ValueReader,
    pub(crate) log: ReadLog,
    /// The commit, once an engine thread has it.
    job: Option<Arc<Job>>,
    /// Conflicts since it was empty.
    pub(crate) conflicts: u32,
    /// After a second look that found something changed: how many reads the log has as they were
    /// at that moment.
    pub(crate) refreshed: Option<usize>,
}

/// A key as it was when [`Transaction::watch`] looked.
#[derive(Debug, Clone)]
pub struct Watch {
    state: Arc<TableState>,
    tree: Option<Tree>,
    stamp: Stamp,
}

/// Where a watch looks. A change of one of its keys is a change to all watches of the place, so the
/// oldest of them stands for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WatchPlace {
    /// Address of the table's state, which the watch keeps.
    table: usize,
    tree: Option<TreeId>,
    stripe: StripeIndex,
}

impl Watch {
    /// Where it looks.
    pub fn place(&self) -> WatchPlace {
        WatchPlace {
            table: std::ptr::from_ref::<TableState>(&self.state).addr(),
            tree: self.tree.map(|tree| tree.id),
            stripe: self.stamp.stripe,
        }
    }
}

impl Transaction {
    /// An empty transaction.
    pub fn new(db: &Db) -> Self {
        Self {
            engine: db.engine().clone(),
            set: WriteSet::default(),
            scratch: CommitScratch::default(),
            reader: ValueReader::new(),
            log: ReadLog::default(),
            job: None,
            conflicts: 0,
            refreshed: None,
        }
    }

    /// Forgets reads and writes, and keeps the memory. A commit that is pending
    /// ([`Transaction::is_committing`]) happens all the same, and nobody learns of it.
    pub fn reset(&mut self) {
        self.job = None;
        self.set.clear();
        self.log.clear();
        self.scratch.begin_anew();
        self.conflicts = 0;
        self.refreshed = None;
    }

    /// Forgets reads and writes, for another run from its beginning after a conflict. After a few
    /// of them a commit compares the values themselves that were read, and reads that it found
    /// changed are answered with what it found: so the runs come to an end also beside writers that
    /// never rest, those of a transaction that writes nothing in any case.
    pub fn begin_again(&mut self) {
        if self.refreshed.is_some() {
            self.rewind();
            return;
        }
        let conflicts = self.conflicts;
        self.reset();
        self.conflicts = conflicts;
    }

    /// Forgets the writes, for another run from its beginning after a read was pending: reads that
    /// were done are answered as before, so that each run gets further.
    pub fn rewind(&mut self) {
        assert!(self.job.is_none(), "what is being committed runs no more");
        self.set.forget_writes();
        self.log.rewind();
        self.scratch.reset();
    }

    /// True between a [`Transaction::try_commit`] that has handed the batch to an engine thread and
    /// the one that learns the result: call that again, and nothing else.
    pub fn is_committing(&self) -> bool {
        self.job.is_some()
    }

    /// Reads that the next run has not to wait for.
    pub fn reads_done(&self) -> usize {
        self.log.len()
    }

    /// True if nothing was written.
    pub fn is_read_only(&self) -> bool {
        self.set.is_read_only()
    }

    /// LSN that must be durable before what was read may be shown: see [`Table::try_get`]. A commit
    /// has a larger one.
    pub fn shown_from(&self) -> Option<Lsn> {
        self.set.debt.lsn()
    }

    /// Reads `key` into `out`, its own writes first; true if it exists.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Attempt<bool>> {
        let index = self.set.table(&table.state);
        out.clear();
        match self.set.own(index, key) {
            Own::Value(value) => {
                out.extend_from_slice(value);
                return Ok(Attempt::Ready(true));
            }
            Own::Large(_) => return Err(Error::InChunks),
            Own::Gone => return Ok(Attempt::Ready(false)),
            Own::Unknown => {}
        }
        let is_new = match self.log.play(index, key, out) {
            Played::Read(found) => return Ok(Attempt::Ready(found)),
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
        attempt(step, &mut self.reader.wanted)
    }

    fn read(&mut self, state: &TableState, key: &[u8], out: &mut Vec<u8>) -> Step<bool> {
        let Some(tree) = state.tree() else {
            return Err(no_such_table(state));
        };
        let stripe = self.engine.stripes.of(tree.id, key);
        let Some(stamp) = self.engine.stripes.stamp(stripe) else {
            return Err(Stop::Stripe(stripe, StripeUse::Read).into());
        };
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

    /// Notes `key` as it is now, for [`Transaction::expect`].
    pub fn watch(&mut self, table: &Table, key: &[u8]) -> Attempt<Watch> {
        let tree = table.state.tree();
        let stripe = self
            .engine
            .stripes
            .of(tree.map(|tree| tree.id).unwrap_or_default(), key);
        match self.engine.stripes.stamp(stripe) {
            Some(stamp) => Attempt::Ready(Watch {
                state: table.state.clone(),
                tree,
                stamp,
            }),
            None => Attempt::Pending(Pending {
                stop: Stop::Stripe(stripe, StripeUse::Read),
                wanted: Vec::new(),
            }),
        }
    }

    /// The commit succeeds only if the watched key was not written since, nor its table emptied.
    pub fn expect(&mut self, watch: &Watch) {
        self.set
            .watched
            .push((watch.state.clone(), watch.tree, watch.stamp));
    }

    /// Commits, or says that something has changed. Durability is waited for with
    /// [`Db::when_durable`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn try_commit(&mut self, reactor: &mut Reactor) -> Result<Attempt<Outcome>> {
        let _own = OwnReads::of(&reactor.fetcher);
        if self.job.is_none() && !self.set.table_changes.is_empty() {
            let job = Arc::new(Job::new(std::mem::take(&mut self.set)));
            self.engine.check_writable()?;
            self.engine.jobs.push(job.clone())?;
            self.job = Some(job);
        }
        if let Some(job) = &self.job {
            let Some(result) = job.result() else {
                let stop = Stop::Job(job.clone());
                return Ok(Attempt::Pending(Pending {
                    stop,
                    wanted: Vec::new(),
                }));
            };
            self.job = None;
            return Ok(Attempt::Ready(match result? {
                JobEnd::Committed(lsn) => Outcome::Committed(Some(lsn)),
                JobEnd::Conflict { watched } => Outcome::Conflict { watched },
            }));
        }
        self.commit_writes()
    }
}

impl Table {
    /// Reads `key` into `out`; true if it exists. Linearizable; remembers nothing. Raises
    /// `shown_from` to the LSN that must be durable before what was found may be shown, if that is
    /// to be waited for ([`crate::Builder::durable_reads`]): ask [`Db::when_durable`].
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn try_get(
        &self,
        key: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Attempt<bool>> {
        with_reader(|reader| {
            let step = self.db.engine().try_get(&self.state, key, reader, out);
            let step = step.map(|(found, debt)| {
                *shown_from = (*shown_from).max(debt.lsn());
                found
            });
            attempt(step, &mut reader.wanted)
        })
    }

    /// As [`Table::try_get`], to find out what is missing: it does not count as a get.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn try_prefetch(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Attempt<()>> {
        with_reader(|reader| {
            let step = self.db.engine().look_up(&self.state, key, reader, out);
            let step = match step {
                // The list is there; chunks are read when they are asked for.
                Err(Halt::Stop(Stop::Chunks)) => Ok(()),
                other => other.map(drop),
            };
            attempt(step, &mut reader.wanted)
        })
    }

    /// Copies the entries of one leaf, from `from` on, into `page`.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn try_scan(&self, from: Bound<&[u8]>, page: &mut ScanPage) -> Result<Attempt<()>> {
        let engine = self.db.engine();
        let mut step = || -> Step<()> {
            let Some(tree) = self.state.tree() else {
                return Err(no_such_table(&self.state));
            };
            let forward = Direction::Forward;
            let leaf = tree.try_scan_leaf(&engine.pool, from, forward, &mut page.leaf);
            on_tree(&self.state, tree, leaf)?;
            let debt = engine.check_marks(page.leaf.marks(), None)?;
            page.shown_from = debt.lsn();
            Ok(())
        };
        let done = attempt(step(), &mut Vec::new())?;
        page.next = match page.leaf.next_bound() {
            Some(Bound::Included(key)) => Some(key.to_vec()),
            Some(Bound::Excluded(key)) => Some([key, &[0]].concat()),
            Some(Bound::Unbounded) | None => None,
        };
        Ok(done)
    }
}

/// Entries of one leaf, copied.
#[derive(Debug, Default)]
pub struct ScanPage {
    leaf: LeafCopy,
    /// Where to go on (this key included); None at the end.
    pub next: Option<Vec<u8>>,
    /// LSN that must be durable before the entries may be shown: see [`Table::try_get`].
    pub shown_from: Option<Lsn>,
}

impl ScanPage {
    /// Keys with their values; None for a value that is too long to lie in the leaf.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.leaf.iter().map(|(key, value)| match value {
            ScanValue::Inline(value) => (key, Some(value)),
            ScanValue::Long => (key, None),
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.leaf.len()
    }

    /// True if the leaf had no entries from there on; there may be more in the next.
    pub fn is_empty(&self) -> bool {
        self.leaf.is_empty()
    }
}
