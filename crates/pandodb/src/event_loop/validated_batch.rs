//! Batches that are validated: they read, write, and commit only if nothing that they read has
//! changed (decision 006).

use pando_format::Lsn;
use pando_sync::Arc;
use pando_sync::atomic::AtomicBool;
use pando_sync::time::Duration;
use pando_tree::ValueReader;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::commit::check::Check;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::scratch::CommitScratch;
use crate::commit::second_look::{SecondLook, Seen};
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::event_loop::foreseen::Foreseen;
use crate::event_loop::polled::{Pending, Polled, polled};
use crate::event_loop::reactor::Reactor;
use crate::event_loop::transaction::Transaction;
use crate::pages::fetcher::OwnReads;
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::jobs::{Job, JobEnd};
use crate::writes::keys::{Mark, Told};
use crate::writes::read_log::{LogMark, Played, ReadLog, WHOLE};
use crate::writes::read_places::Unwritten;
use crate::writes::set::{Own, TableChange, WriteSet};

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
    pub(crate) foreseen: Foreseen,
    /// The transaction that it is a step of.
    pub(crate) within: Option<Box<Transaction>>,
    /// Its commit is also that of the transaction.
    ends: bool,
    /// The commit, while an engine thread has it: that of a batch that changes tables.
    job: Option<Arc<Job>>,
    /// Conflicts since the last reset.
    pub(crate) conflicts: u32,
    /// After a second look that found a difference: the number of reads that the log has as of that
    /// moment.
    pub(crate) refreshed: Option<usize>,
    /// Since the last conflict a run has read something that is not validated, and so is not of the
    /// moment of a second look. A later run may use what an earlier one has read.
    pub(crate) reads_beside: bool,
    /// The entry of the log of what the last commit found changed, if it knows.
    changed: Option<usize>,
    /// The run was given a table of another store in a call that tells no errors: its commit does.
    is_misled: bool,
}

/// A place between two reads of a run: see [`ValidatedBatch::place`].
#[derive(Debug, Clone, Copy)]
pub struct BatchPlace {
    log: LogMark,
    write_calls: u64,
}

/// A state of a batch: see [`ValidatedBatch::savepoint`].
#[derive(Debug, Clone, Copy)]
pub struct BatchSavepoint {
    writes: Mark,
    /// Number of stamps.
    reads: usize,
    log: LogMark,
    debt: Debt,
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
            foreseen: Foreseen::default(),
            within: None,
            ends: false,
            job: None,
            conflicts: 0,
            refreshed: None,
            reads_beside: false,
            changed: None,
            is_misled: false,
        }
    }

    /// Sets how long its commits wait for keys that others have locked, if not as long as
    /// [`crate::Builder::lock_timeout`] says.
    pub fn lock_timeout(&mut self, timeout: Duration) {
        self.locks = CommitLocks::of_transaction(None, Some(timeout));
    }

    /// Makes it a step of `transaction`, until [`ValidatedBatch::leave`]: what it reads is what the
    /// transaction reads, with its own writes on top, and its commit makes its writes those of the
    /// transaction. Until then they can be forgotten, and the step can be run again. It neither
    /// watches nor changes tables meanwhile. What it has read and written before is forgotten:
    /// that was of another moment.
    ///
    /// # Panics
    /// If it is a step already.
    pub fn enter(&mut self, transaction: Box<Transaction>) {
        assert!(self.within.is_none(), "it is a step already");
        assert!(self.job.is_none(), "its own commit is pending");
        self.reset();
        self.within = Some(transaction);
        self.ends = false;
    }

    /// Gives back the transaction that it is a step of, if it is one. To be reset before it reads
    /// again.
    pub fn leave(&mut self) -> Option<Box<Transaction>> {
        let mut transaction = self.within.take();
        if let Some(transaction) = &mut transaction {
            transaction.aside.clear();
        }
        transaction
    }

    /// The transaction that it is a step of.
    pub fn transaction(&mut self) -> Option<&mut Transaction> {
        self.within.as_deref_mut()
    }

    /// Has the next commit commit the transaction, too, that it is a step of.
    ///
    /// # Panics
    /// If it is no step.
    pub fn end_transaction(&mut self) {
        assert!(self.within.is_some(), "it is no step of a transaction");
        self.ends = true;
    }

    /// Forgets reads and writes, and keeps the memory, and the transaction that it is a step of. A
    /// pending commit ([`ValidatedBatch::is_committing`]) still happens, and nobody learns its
    /// result.
    pub fn reset(&mut self) {
        self.job = None;
        self.set.clear();
        self.log.clear();
        self.foreseen.clear();
        self.scratch.begin_anew();
        self.locks.end();
        self.conflicts = 0;
        self.refreshed = None;
        self.reads_beside = false;
        self.changed = None;
        self.is_misled = false;
    }

    /// Prepares another run from the beginning after a conflict: forgets reads and writes. But
    /// after a few conflicts, a commit compares the values themselves that were read, and if some
    /// differ, the next run is answered with the values that the commit found. So transactions
    /// finish even while others keep writing; those that write nothing always do, unless they scan
    /// or count: what they find so is of a later moment.
    pub fn begin_again(&mut self) {
        if self.refreshed.is_some() {
            self.rewind();
            return;
        }
        let conflicts = self.conflicts;
        self.reset();
        self.conflicts = conflicts;
    }

    /// Has the next run that [`ValidatedBatch::begin_again`] prepares read what is there then, and
    /// not what the commit of an earlier one has found. For a run that has found a contradiction in
    /// its reads: some were answered as of an earlier moment, and it would find the same again.
    pub fn forget_refreshed(&mut self) {
        self.refreshed = None;
    }

    /// Forgets the writes, for another run from the beginning after a pending read: reads that were
    /// done are answered as before, so each run gets further.
    pub fn rewind(&mut self) {
        assert!(self.job.is_none(), "a pending commit does not run again");
        self.set.forget_writes();
        self.log.rewind();
        self.scratch.reset();
        self.changed = None;
        self.is_misled = false;
    }

    /// Has this run and those that [`ValidatedBatch::rewind`] prepares ask for what was read in any
    /// order, until the batch is reset or a conflict forgets its reads. Without it, a run that asks
    /// for another key than the one before it, at the same place, reads all that follows again. For
    /// runs that read many keys in the order of a table first, and then in their own. It takes a
    /// table of all keys that were read.
    pub fn answer_in_any_order(&mut self) {
        self.log.answer_in_any_order();
    }

    /// Returns true after [`ValidatedBatch::answer_in_any_order`], while it holds.
    pub fn answers_in_any_order(&self) -> bool {
        self.log.answers_in_any_order()
    }

    /// After a commit that met a conflict, until the batch is run again: returns the key of `table`
    /// that it has read and that has changed since. After a few conflicts that is certain; before,
    /// it may be another key that shares a stripe with it. None if what has changed is of another
    /// table or not a key that was read by itself, or if nobody knows.
    pub fn changed_key(&self, table: &Table) -> Option<&[u8]> {
        let (of, key) = self.log.key_of(self.changed?);
        Arc::ptr_eq(&self.set.tables[of].state, &table.state).then_some(key)
    }

    /// Returns the place that the present run has reached, for [`ValidatedBatch::go_on_from`].
    pub fn place(&self) -> BatchPlace {
        BatchPlace {
            log: self.log.mark(),
            write_calls: self.set.write_calls,
        }
    }

    /// As [`ValidatedBatch::rewind`], for a run that goes on at `place`, which it has passed, and
    /// not at its beginning. Returns false, and does nothing, if it has written anything since:
    /// then it has to begin again.
    pub fn go_on_from(&mut self, place: BatchPlace) -> bool {
        assert!(self.job.is_none(), "a pending commit does not run again");
        let has_written = self.set.write_calls != place.write_calls;
        if !has_written {
            self.log.play_from(place.log);
        }
        !has_written
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

    /// Number of reads that had to be repeated, over all runs: see
    /// [`ValidatedBatch::keep_long_values`].
    pub fn reads_repeated(&self) -> u64 {
        self.log.repeated()
    }

    /// Returns the present state, to go back to until the batch is reset or run again.
    pub fn savepoint(&mut self) -> BatchSavepoint {
        BatchSavepoint {
            writes: self.set.mark(),
            reads: self.set.reads.len(),
            log: self.log.mark(),
            debt: self.set.debt,
        }
    }

    /// Forgets what was written and read since `savepoint`, which must not be later than one that
    /// it went back to before: the commit does not depend on it. A batch with savepoints changes
    /// no tables.
    ///
    /// # Panics
    /// If it is a step of a transaction, or if its commit is pending.
    pub fn rollback_to(&mut self, savepoint: BatchSavepoint) {
        assert!(self.within.is_none(), "a step is forgotten as a whole");
        assert!(self.job.is_none(), "a pending commit does not go back");
        self.set.go_back(savepoint.writes);
        self.set.reads.truncate(savepoint.reads);
        self.set.debt = savepoint.debt;
        self.log.go_back(savepoint.log);
        self.scratch.reset();
    }

    /// Number of writes that it was asked for, those of keys that it had written before among them.
    pub fn write_calls(&self) -> u64 {
        self.set.write_calls
    }

    /// Bytes that its writes take, about.
    pub fn written_bytes(&self) -> usize {
        self.set.memory()
    }

    /// Bytes that what it has read takes, about.
    pub fn read_bytes(&self) -> usize {
        self.log.memory() + size_of_val(&self.set.reads[..])
    }

    /// Returns the index of a table, adding it if it is new to the batch.
    ///
    /// # Errors
    /// [`Error::OtherStore`].
    #[inline]
    pub(crate) fn index_of(&mut self, table: &Table) -> Result<usize> {
        match self.set.index_of(&table.state) {
            Some(index) => Ok(index),
            None if Arc::ptr_eq(table.db.engine(), &self.engine) => {
                Ok(self.set.table(&table.state))
            }
            None => Err(Error::OtherStore),
        }
    }

    /// As [`ValidatedBatch::index_of`], for a call that tells no errors: None if the commit will
    /// fail.
    fn index_or_fail(&mut self, table: &Table) -> Option<usize> {
        let index = self.index_of(table).ok();
        if index.is_none() {
            self.mislead();
        }
        index
    }

    /// Notes that it was given a table of another store, or what was read there.
    pub(crate) fn mislead(&mut self) {
        // It was asked to write: it does not go on behind this.
        self.set.write_calls += 1;
        self.is_misled = true;
    }

    /// Returns true if this batch may have read or written something in `table`.
    pub fn touches(&self, table: &Table) -> bool {
        let mut tables = self.set.tables.iter();
        tables.any(|known| Arc::ptr_eq(&known.state, &table.state))
    }

    /// Returns true if nothing was written.
    pub fn is_read_only(&self) -> bool {
        self.set.is_read_only()
    }

    /// Returns the LSN that must be durable before what was read may be shown: see
    /// [`crate::nonblocking::Reads::get`]. A commit has a larger one.
    pub fn shown_from(&self) -> Option<Lsn> {
        self.set.debt.lsn()
    }

    /// Sets how many bytes of values of more than 64 KiB each it keeps for its next run; 16 MiB
    /// unless set. What it reads beyond that is read again by each run, so if the frames cannot
    /// hold that together, it does not get further.
    pub fn keep_long_values(&mut self, bytes: usize) {
        self.log.long_bytes_max = bytes;
    }

    /// Reads `key` into `out`, its own writes first; true if it exists.
    ///
    /// # Errors
    /// As [`Table::get_into`]; [`Error::OtherStore`].
    pub fn get(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<bool>> {
        let found = self.get_head(table, key, WHOLE, out)?;
        Ok(found.map(|len| len.is_some()))
    }

    /// As [`ValidatedBatch::get`], for no more than the beginning of a long value: `out` has at
    /// least its first `bytes_max` bytes, or all of it. Returns the length of the whole value, if
    /// the key exists. A change of the rest may go unnoticed if the length stays the same.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_head(
        &mut self,
        table: &Table,
        key: &[u8],
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Result<Polled<Option<usize>>> {
        let index = self.index_of(table)?;
        out.clear();
        let (own, unwritten) = self.set.own_noted(index, key);
        match own {
            Own::Value(value) => {
                out.extend_from_slice(value);
                return Ok(Polled::Ready(Some(value.len())));
            }
            Own::Large(_) => return Err(Error::InChunks),
            Own::Gone => return Ok(Polled::Ready(None)),
            Own::Unknown => {}
        }
        let is_new = match self.log.play(index, (key, bytes_max), out) {
            Played::Read(found) => return Ok(Polled::Ready(found)),
            Played::Unknown { is_new } => is_new,
        };
        let step = match &mut self.within {
            Some(transaction) => {
                let read = transaction.try_get(table, key, out);
                transaction.move_wanted(&mut self.reader.wanted);
                read.map(|(found, debt)| {
                    self.set.debt.add(debt);
                    let len = out.len();
                    out.truncate(bytes_max);
                    found.then_some(len)
                })
            }
            None => self.read((index, &table.state), (key, bytes_max, unwritten), out),
        };
        if let Ok(found) = step {
            let (read, value) = (self.last_read(), found.map(|len| (&out[..], len)));
            match is_new {
                true => self.log.note(read, index, key, value),
                false => self.log.pass(true),
            }
        }
        polled(step, &mut self.reader.wanted)
    }

    /// Returns the position of the stamp of the last read. The reads of a transaction have none,
    /// and are counted.
    pub(crate) fn last_read(&self) -> usize {
        match &self.within {
            Some(_) => self.log.len(),
            None => self.set.reads.len() - 1,
        }
    }

    /// Goes on behind a large value that a run before this one has read, and that was looked at
    /// again just now. If it may be another one, what was read behind it may not belong to it:
    /// whoever keeps by the value what he finds there must not be given the old state. The commit
    /// meets a conflict, as the stamp of then is still among the reads.
    pub(crate) fn pass_long(&mut self) {
        let noted = self.log.next_stamp();
        let is_same = self.within.is_some() || self.set.reads.get(noted) == self.set.reads.last();
        self.log.pass(is_same);
    }

    /// Reads the first `bytes_max` bytes of `key` from the tree, and notes its stamp.
    fn read(
        &mut self,
        (index, state): (usize, &TableState),
        (key, bytes_max, unwritten): (&[u8], usize, Unwritten),
        out: &mut Vec<u8>,
    ) -> Step<Option<usize>> {
        let Self { engine, reader, .. } = self;
        let (tree, stamp) = engine.stamp_of(state, key)?;
        let foreseen = self.foreseen.take((state, tree), key);
        let read = match &foreseen {
            Some(place) => engine.get_at(state, (key, bytes_max, place), reader, out)?,
            None => None,
        };
        let (found, debt, place) = match (read, foreseen) {
            (Some((found, debt)), Some(place)) => (found, debt, place),
            // A head without bound, in fewer instructions.
            _ if bytes_max == WHOLE => {
                let (found, debt, place) = engine.try_get_placed(state, key, reader, out)?;
                (found.then_some(out.len()), debt, place)
            }
            _ => engine.try_get_head(state, (key, bytes_max), reader, out)?,
        };
        let stripe = Some((tree.id, stamp.stripe));
        self.set
            .note_read(index, key, (Told { place, stripe }, unwritten));
        self.set.reads.push(stamp);
        self.set.debt.add(debt);
        Ok(found)
    }

    /// Maximum number of keys of [`ValidatedBatch::foresee`].
    pub const FORESEEN_MAX: usize = Foreseen::KEYS_MAX;

    /// Looks for `keys`, which it is about to read from `table`, in this order: their reads need
    /// not look for them one after the other. Those that were foreseen before are forgotten. What
    /// is not in memory is left to the reads. Never waits. Does nothing in a step of a transaction.
    ///
    /// # Panics
    /// When there are more than [`ValidatedBatch::FORESEEN_MAX`] keys.
    pub fn foresee(&mut self, table: &Table, keys: &[&[u8]]) {
        self.foreseen.clear();
        // A table of another store is found out when it is read.
        if let (Ok(_), None) = (self.index_of(table), &self.within)
            && let Some(tree) = table.state.tree()
        {
            let pool = &self.engine.store.pool;
            self.foreseen.look(pool, (&table.state, tree), keys);
        }
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::ValueTooLong`], [`Error::OtherStore`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_joined(table, key, (value, &[]))
    }

    /// As [`ValidatedBatch::put`], for a value of two parts, one after the other: they need not be
    /// joined before.
    ///
    /// # Errors
    /// As [`ValidatedBatch::put`].
    pub fn put_joined(
        &mut self,
        table: &Table,
        key: &[u8],
        (head, rest): (&[u8], &[u8]),
    ) -> Result<()> {
        self.put_marked(table, key, (head, rest), false)
    }

    /// As [`ValidatedBatch::put_joined`], for a value that belongs to the removal of something
    /// larger, such as a note of what is to be removed: on a full disk a batch of nothing but
    /// deletes and such puts may use what is kept for deletes.
    ///
    /// The value must be small, or replace one that is larger.
    ///
    /// # Errors
    /// As [`ValidatedBatch::put`].
    pub fn put_freeing(&mut self, table: &Table, key: &[u8], value: (&[u8], &[u8])) -> Result<()> {
        self.put_marked(table, key, value, true)
    }

    #[inline]
    fn put_marked(
        &mut self,
        table: &Table,
        key: &[u8],
        (head, rest): (&[u8], &[u8]),
        frees_room: bool,
    ) -> Result<()> {
        self.engine.check_key(key)?;
        let (bytes, limit) = (head.len() + rest.len(), self.engine.plain_bytes_max());
        if bytes > limit {
            return Err(Error::ValueTooLong { bytes, limit });
        }
        let index = self.index_of(table)?;
        self.set.put_marked(index, key, (head, rest), frees_room);
        self.scratch.reset();
        Ok(())
    }

    /// Removes `key`, whether it exists or not. If `table` is of another store, the commit fails.
    pub fn delete(&mut self, table: &Table, key: &[u8]) {
        let Some(index) = self.index_or_fail(table) else {
            return;
        };
        self.set.write(index, key, None);
        self.scratch.reset();
    }

    /// Tells that no snapshot of `lsn` or a later moment reads what the batch replaces, since
    /// nothing leads to it any more: the rows of a collection whose head is gone, for instance.
    /// Then nothing is kept for such snapshots (decision 132). [`Reads::last_write`] of the row
    /// that says so has the LSN.
    ///
    /// [`Reads::last_write`]: crate::nonblocking::Reads::last_write
    pub fn unread_since(&mut self, lsn: Lsn) {
        self.set.unread_since = Some(lsn);
    }

    /// Empties a table. If it is of another store, the commit fails.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn clear_table(&mut self, table: &Table) {
        assert!(self.within.is_none(), "a transaction changes no tables");
        let Some(index) = self.index_or_fail(table) else {
            return;
        };
        self.set.change_table(index, TableChange::Clear);
        self.scratch.reset();
    }

    /// Has the commit meet a conflict if there is a table called `name` by then. For a batch that
    /// empties tables, and would empty this one, too.
    ///
    /// # Panics
    /// If it is a step of a transaction. The commit does, unless the batch changes tables.
    pub fn expect_no_table(&mut self, name: &str) {
        assert!(self.within.is_none(), "a transaction changes no tables");
        self.set.absent.push(name.into());
    }

    /// Has the commit meet a conflict if `flag` is set by then: for a write that need not read its
    /// key as long as something is not so. Whoever sets the flag (at least with Release) before he
    /// writes a key is seen by every batch that writes the key after him. Returns false, and
    /// expects nothing, if it expects that of another flag already.
    ///
    /// # Panics
    /// If it is a step of a transaction.
    pub fn expect_unset(&mut self, flag: &Arc<AtomicBool>) -> bool {
        assert!(self.within.is_none(), "its commit is not that of the step");
        self.set.expect_unset(flag)
    }

    /// Swaps the contents of two tables: see [`Db::swap_tables`]. A batch that swaps tables writes
    /// nothing else, and reads nothing of these tables afterwards. If one is of another store, the
    /// commit fails.
    ///
    /// # Panics
    /// If it does, if a table is there twice, or if it is a step of a transaction.
    pub fn swap_tables(&mut self, first: &Table, second: &Table) {
        assert!(self.within.is_none(), "a transaction changes no tables");
        let (Some(first), Some(second)) = (self.index_or_fail(first), self.index_or_fail(second))
        else {
            return;
        };
        self.set.swap_tables(first, second);
        self.scratch.reset();
    }

    /// Commits, or returns that something has changed. To wait for durability, use
    /// [`Db::when_durable`]. A step of a transaction meets no conflict, and has no LSN, unless it
    /// ends the transaction.
    ///
    /// # Errors
    /// As [`Db::write`]; of a step as [`Transaction::try_commit`]. [`Error::OtherStore`] if a call
    /// that tells no errors was given a table of another store, until the batch is run again. One
    /// that changes tables and was handed to an engine thread is empty after its end, whatever that
    /// was: run it again from the beginning.
    pub fn try_commit(&mut self, reactor: &mut Reactor) -> Result<Polled<Outcome>> {
        if self.is_misled {
            return Err(Error::OtherStore);
        }
        if let Some(transaction) = &mut self.within {
            return commit_step(transaction, &mut self.set, self.ends);
        }
        let _own = OwnReads::of(&reactor.fetcher);
        self.changed = None;
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
        assert!(self.set.absent.is_empty(), "it changes tables");
        let reads = self.set.reads.len();
        let is_read_only = self.set.is_read_only() && self.set.watched.is_empty();
        if is_read_only && self.refreshed == Some(reads) && !self.reads_beside {
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
            self.reads_beside = false;
            self.refreshed = (looked.seen == Seen::Different).then_some(reads);
            self.changed = looked.different.or_else(|| {
                let mut reads = self.set.reads.iter();
                let place = reads.position(|stamp| !self.engine.stripes.unchanged(*stamp))?;
                self.log.find(place)
            });
        }
        polled(step, &mut self.scratch.wanted)
    }
}

/// Commits a step of `transaction`, whose writes are those of `set`; if it `ends` that, also the
/// transaction.
fn commit_step(
    transaction: &mut Transaction,
    set: &mut WriteSet,
    ends: bool,
) -> Result<Polled<Outcome>> {
    assert!(
        set.table_changes.is_empty() && set.watched.is_empty(),
        "a step neither changes tables nor watches keys"
    );
    transaction.take_over(set)?;
    set.forget_writes();
    if !ends {
        return Ok(Polled::Ready(Outcome::Committed(None)));
    }
    Ok(transaction.try_commit()?.map(Outcome::Committed))
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::Waker;

    use pando_sync::thread;

    use super::*;
    use crate::writes::stripes::Wanted;

    fn outcome_of(batch: &mut ValidatedBatch, reactor: &mut Reactor) -> Outcome {
        loop {
            match batch.try_commit(reactor).expect("nothing fails") {
                Polled::Ready(outcome) => return outcome,
                Polled::Pending(_) => thread::yield_now(),
            }
        }
    }

    /// A commit takes its stripes outside of the gate. While that is closed, the commit has changed
    /// nothing, and cannot.
    #[test]
    fn a_stripe_that_another_commit_holds_is_no_change_for_who_empties_a_table() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let (read, emptied) = (db.table("read").unwrap(), db.table("emptied").unwrap());
        read.put(b"key", b"value").unwrap();
        emptied.put(b"key", b"value").unwrap();
        let mut reactor = Reactor::new(&db, Waker::noop().clone()).unwrap();
        let mut batch = ValidatedBatch::new(&db);
        let Polled::Ready(watch) = batch.watch(&read, b"key") else {
            panic!("nobody writes the key");
        };
        let mut out = Vec::new();
        batch.expect(&watch);
        let found = batch.get(&read, b"key", &mut out).unwrap();
        assert!(matches!(found, Polled::Ready(true)), "{found:?}");
        batch.clear_table(&emptied);
        let held = [Wanted::write(watch.stamp.stripe)];
        let engine = db.engine();
        let locked = engine.stripes.try_lock_all(&held, &mut 0).unwrap();
        let outcome = outcome_of(&mut batch, &mut reactor);
        assert!(
            matches!(outcome, Outcome::Committed(Some(_))),
            "{outcome:?}"
        );
        assert_eq!((read.len(), emptied.len()), (1, 0));
        drop(locked);
        // What the commit changes once it is inside is a change.
        read.put(b"key", b"other").unwrap();
        batch.reset();
        batch.expect(&watch);
        batch.clear_table(&read);
        let outcome = outcome_of(&mut batch, &mut reactor);
        assert_eq!(outcome, Outcome::Conflict { watched: true });
        assert_eq!(read.len(), 1);
    }

    /// Batches that change tables take no stripes, and write while the gate is closed.
    #[test]
    fn a_second_look_waits_until_the_gate_is_open() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"key", b"old").unwrap();
        let mut reactor = Reactor::new(&db, Waker::noop().clone()).unwrap();
        let mut batch = ValidatedBatch::new(&db);
        batch.conflicts = CONFLICTS_MAX;
        let mut out = Vec::new();
        assert!(matches!(
            batch.get(&table, b"key", &mut out),
            Ok(Polled::Ready(true))
        ));
        table.put(b"key", b"new").unwrap();
        let closed = db.engine().store.pool.gate().close();
        let Ok(Polled::Pending(pending)) = batch.try_commit(&mut reactor) else {
            panic!("somebody may be changing what it looks at");
        };
        assert!(matches!(pending.reason, WaitReason::Gate));
        drop(closed);
        let outcome = outcome_of(&mut batch, &mut reactor);
        assert_eq!(outcome, Outcome::Conflict { watched: false });
    }
}
