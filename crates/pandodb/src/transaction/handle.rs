//! A transaction: its snapshot, its writes and what it has read.

use std::collections::BTreeSet;

use pando_format::Lsn;
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::api::db::Db;
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::commit::buffers::TakenBuffer;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::state_check::StateCheck;
use crate::error::{ConflictKind, Error, Result};
use crate::locks::{LockOwner, OwnerId};
use crate::state::transaction_memory::CountedMemory;
use crate::transaction::commit::{CommitParts, check_committed, check_of};
use crate::transaction::options::{Isolation, TransactionOptions};
use crate::writes::keys::Mark;
use crate::writes::read_set::ReadSet;
use crate::writes::set::{Own, WriteSet};

/// Bytes that a write takes besides its key and value, about.
const WRITE_BYTES: usize = 128;

/// Number of the next savepoint of any transaction.
static NEXT_SAVEPOINT: AtomicU64 = AtomicU64::new(0);

/// Reads and writes that are committed together, or not at all. Reads see the transaction's own
/// writes; nobody else sees them before the commit. Dropping it rolls it back.
///
/// The moment that it reads is that of its first read. While it is open, the store keeps in memory
/// what it reads, as for a [`Snapshot`]. When that memory is short, a transaction that is older
/// than a second goes on on disk: its commit may then meet conflicts that are none. Another one may
/// be ended: its reads return [`Error::SnapshotEnded`], and it has to be run again: so says its
/// commit, too, once a read has. [`Db::transact`] does that, and also runs it again after a
/// conflict. The writes, and which keys
/// it has read, are in memory until the commit ([`crate::MemoryReport::transactions`]); the commit
/// fails with [`Error::BatchTooLarge`] for too many writes, as that of a [`crate::Batch`] does.
///
/// ```
/// # fn main() -> Result<(), pandodb::Error> {
/// # let db = pandodb::Db::builder().open_in_memory()?;
/// let accounts = db.table("accounts")?;
/// accounts.put(b"alice", b"10")?;
/// let mut transaction = db.begin(pandodb::TransactionOptions::default())?;
/// let alice = transaction.get(&accounts, b"alice")?;
/// transaction.put(&accounts, b"bob", &alice.unwrap_or_default())?;
/// transaction.delete(&accounts, b"alice")?;
/// transaction.commit()?;
/// assert_eq!(accounts.get(b"bob")?.as_deref(), Some(&b"10"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Transaction {
    pub(crate) db: Db,
    pub(crate) options: TransactionOptions,
    /// Taken by the first read, unless each read sees a moment of its own.
    pub(crate) snapshot: Option<Snapshot>,
    /// The snapshot, if there is to be one, may be read.
    pub(crate) may_read: bool,
    pub(crate) set: TakenBuffer<WriteSet>,
    pub(crate) reads: TakenBuffer<ReadSet>,
    /// The keys that it writes, by table: of the writes before `ordered`. Used by ranges.
    pub(crate) own_keys: BTreeSet<(usize, Vec<u8>)>,
    pub(crate) ordered: usize,
    pub(crate) locks: CommitLocks,
    /// How old its locks are, if it is run again.
    pub(crate) age: Option<OwnerId>,
    /// Why it has to be run again.
    pub(crate) lost: Option<Error>,
    /// What it takes of the memory of transactions.
    pub(crate) counted: CountedMemory,
    /// The savepoints to which it can go back, with their numbers, ascending.
    savepoints: Vec<(u64, Mark)>,
}

/// A state of a transaction's writes: see [`Transaction::savepoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    number: u64,
}

impl Db {
    /// Begins a transaction. Reads nothing, and takes no snapshot yet.
    ///
    /// # Errors
    /// [`Error::Closed`]; [`Error::Io`] in a process that was forked from the one with the store.
    pub fn begin(&self, options: TransactionOptions) -> Result<Transaction> {
        self.begin_as(options, None, None)
    }

    /// As [`Db::begin`], with the locks of `owner`, or locks as old as `age` says.
    pub(crate) fn begin_as(
        &self,
        options: TransactionOptions,
        owner: Option<Box<LockOwner>>,
        age: Option<OwnerId>,
    ) -> Result<Transaction> {
        self.engine().store.check_process()?;
        if self.engine().store.life.is_closing() {
            return Err(Error::Closed);
        }
        let mut reads = TakenBuffer::<ReadSet>::take();
        reads.begin(options.read_set_bytes);
        Ok(Transaction {
            db: self.clone(),
            options,
            snapshot: None,
            may_read: options.isolation == Isolation::ReadCommitted,
            set: TakenBuffer::take(),
            reads,
            own_keys: BTreeSet::new(),
            ordered: 0,
            locks: CommitLocks::of_transaction(owner, options.lock_timeout),
            age,
            lost: None,
            counted: CountedMemory::default(),
            savepoints: Vec::new(),
        })
    }
}

impl Transaction {
    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.options.isolation
    }

    /// The LSN of the moment that it reads; None before the first read, and at
    /// [`Isolation::ReadCommitted`].
    pub fn snapshot_lsn(&self) -> Option<Lsn> {
        self.snapshot.as_ref().map(Snapshot::lsn)
    }

    /// Returns whether the store has ended its snapshot.
    pub(crate) fn is_ended(&self) -> bool {
        let snapshot = self.snapshot.as_ref();
        snapshot.is_some_and(Snapshot::is_ended)
    }

    /// Returns whether its snapshot goes on on disk.
    pub(crate) fn is_settled(&self) -> bool {
        self.snapshot.as_ref().is_some_and(Snapshot::is_settled)
    }

    /// Returns the error of a read of `table` that has ended with `error`: a conflict if that says
    /// that the table did not exist, and it does now: it was made after the moment that the
    /// transaction reads. Remembers that the snapshot was ended: the transaction has to be run
    /// again.
    pub(crate) fn of_failed_read(&self, table: &Table, error: Error) -> Error {
        match error {
            Error::NoSuchTable { name } if table.state.tree().is_some() => Error::Conflict {
                table: name,
                key: None,
                kind: ConflictKind::Table,
            },
            Error::SnapshotEnded => {
                if let Some(snapshot) = &self.snapshot {
                    snapshot.of_transaction().note_failed();
                }
                error
            }
            other => other,
        }
    }

    /// Returns whether it remembers what it reads.
    pub(crate) fn remembers_reads(&self) -> bool {
        self.options.isolation == Isolation::Serializable
    }

    /// Takes the snapshot, if this is the first read. Blocks as [`Db::snapshot`].
    pub(crate) fn take_snapshot(&mut self) -> Result<()> {
        if !self.may_read {
            self.snapshot = Some(self.db.snapshot_of_transaction()?);
            self.may_read = true;
        }
        Ok(())
    }

    /// Checks that `table` is of this store.
    pub(crate) fn check_store(&self, table: &Table) -> Result<()> {
        self.db.check_store(table)
    }

    /// Reads `key` of `table` into `out`, if the transaction itself has written or deleted it; then
    /// returns whether it exists.
    ///
    /// # Errors
    /// [`Error::InChunks`] for a large value, and why the transaction cannot read.
    pub(crate) fn get_own(
        &mut self,
        table: &Table,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>> {
        self.check_store(table)?;
        self.check_usable()?;
        let index = self.set.table(&table.state);
        Ok(match self.set.own(index, key) {
            Own::Value(value) => {
                value.clone_into(out);
                Some(true)
            }
            Own::Gone => {
                out.clear();
                Some(false)
            }
            Own::Large(_) => return Err(Error::InChunks),
            Own::Unknown => None,
        })
    }

    /// Reads `key` of `table` into `out`, which is cleared first; returns true if it exists. Blocks
    /// as [`Snapshot::get_into`].
    ///
    /// # Errors
    /// As [`Snapshot::get_into`]; [`Error::Conflict`] for a table that was made after the moment
    /// that the transaction reads. What an error says was not read, and the transaction goes on;
    /// after [`Error::SnapshotEnded`] it has to be run again, and every further call says so.
    pub fn get_into(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        if let Some(found) = self.get_own(table, key, out)? {
            return Ok(found);
        }
        self.take_snapshot()?;
        let Some(snapshot) = &self.snapshot else {
            return table.get_into(key, out);
        };
        let found = snapshot
            .get_into(table, key, out)
            .map_err(|error| self.of_failed_read(table, error))?;
        self.note_read(table, key)?;
        Ok(found)
    }

    /// Returns the value of `key` of `table`, if it exists.
    ///
    /// # Errors
    /// As [`Transaction::get_into`].
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(table, key, &mut value)?.then_some(value))
    }

    /// True if `key` of `table` exists.
    ///
    /// # Errors
    /// As [`Transaction::get_into`].
    pub fn contains(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.get_into(table, key, &mut Vec::new())
    }

    /// Returns the values of `keys` of `table`, in their order. Pages that are not in memory are
    /// read at the same time.
    ///
    /// # Errors
    /// As [`Transaction::get_into`].
    pub fn get_many(&mut self, table: &Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        let others = self.get_own_many(table, keys, &mut values)?;
        if others.is_empty() {
            return Ok(values);
        }
        self.take_snapshot()?;
        let left: Vec<&[u8]> = others.iter().map(|at| keys[*at]).collect();
        let keep = |at: usize, value: Option<&[u8]>| {
            values[others[at]] = value.map(<[u8]>::to_vec);
        };
        let Some(snapshot) = &self.snapshot else {
            table.get_many_with(&left, keep)?;
            return Ok(values);
        };
        snapshot
            .get_many_with(table, &left, keep)
            .map_err(|error| self.of_failed_read(table, error))?;
        for key in left {
            self.note_read(table, key)?;
        }
        Ok(values)
    }

    /// Puts the values of the keys that the transaction has written itself where their keys are,
    /// and returns the places of the others.
    ///
    /// # Errors
    /// As [`Transaction::get_own`].
    pub(crate) fn get_own_many(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
        values: &mut [Option<Vec<u8>>],
    ) -> Result<Vec<usize>> {
        let (mut others, mut value) = (Vec::new(), Vec::new());
        for (at, key) in keys.iter().enumerate() {
            match self.get_own(table, key, &mut value)? {
                Some(found) => values[at] = found.then(|| value.clone()),
                None => others.push(at),
            }
        }
        Ok(others)
    }

    /// Sets `key` of `table` to `value`.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::OtherStore`]; [`Error::Full`] if other open transactions
    /// take an eighth of `max_memory`.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, Some(value))
    }

    /// Removes `key` of `table`, whether it exists or not.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.write(table, key, None)
    }

    fn write(&mut self, table: &Table, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.check_store(table)?;
        self.check_usable()?;
        self.db.engine().check_key(key)?;
        self.count_memory(WRITE_BYTES + key.len() + value.map_or(0, <[u8]>::len))?;
        let index = self.set.table(&table.state);
        self.set.write(index, key, value);
        Ok(())
    }

    /// Counts what it takes, and `more` bytes that it is about to take.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn count_memory(&mut self, more: usize) -> Result<()> {
        let bytes = self.memory() + self.reads.memory() + more;
        let all = &self.db.engine().transaction_memory;
        self.counted.count(all, bytes)
    }

    /// Bytes that its writes, its savepoints and its locks take, about.
    pub(crate) fn memory(&self) -> usize {
        let savepoints = size_of_val(&self.savepoints[..]);
        let locks = self.locks.owner.as_ref().map_or(0, |owner| owner.memory());
        let ordered = self.ordered * size_of::<(usize, Vec<u8>)>();
        self.set.memory() + ordered + savepoints + locks
    }

    /// Number of keys that it writes.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// True if it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.set.is_read_only()
    }

    /// Returns a savepoint: [`Transaction::rollback_to`] makes the writes what they are now.
    pub fn savepoint(&mut self) -> Savepoint {
        // Relaxed: only that it is another number each time matters.
        let number = NEXT_SAVEPOINT.fetch_add(1, Ordering::Relaxed);
        assert!(
            self.savepoints
                .last()
                .is_none_or(|(last, _)| *last < number),
            "savepoints ascend"
        );
        self.savepoints.push((number, self.set.mark()));
        Savepoint { number }
    }

    /// Forgets the savepoint that was made last.
    pub(crate) fn release(&mut self, savepoint: Savepoint) {
        let last = self.savepoints.pop();
        assert_eq!(last.map(|(number, _)| number), Some(savepoint.number));
    }

    /// Forgets the writes since `savepoint`, and the later savepoints. It may be gone back to
    /// again. What was read since counts as read.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let known = self
            .savepoints
            .binary_search_by_key(&savepoint.number, |(number, _)| *number);
        let place = known.map_err(|_| Error::NoSuchSavepoint)?;
        self.savepoints.truncate(place + 1);
        self.set.go_back(self.savepoints[place].1);
        if self.set.len() < self.ordered {
            self.own_keys.clear();
            self.ordered = 0;
        }
        assert!(
            self.own_keys.len() <= self.ordered && self.ordered <= self.set.len(),
            "a write that was forgotten is in its ranges"
        );
        Ok(())
    }

    /// Forgets all writes, as dropping it does.
    pub fn rollback(self) {}

    /// Commits the writes, and gives back all locks. Returns the LSN of the commit; None if there
    /// was nothing to write. Blocks as [`Db::write`].
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::SnapshotEnded`], [`Error::Deadlock`]: run the transaction
    /// again. Otherwise as
    /// [`Db::write`]. Nothing was written, except as said there.
    pub fn commit(mut self) -> Result<Option<Lsn>> {
        self.commit_in_place()
    }

    /// Prepares the commit: nothing more is read.
    pub(crate) fn end_reads(&mut self) {
        self.reads.settle();
        if self.remembers_reads() && self.reads.is_empty() {
            // It depends on nothing. Else the commit would save for it what it replaces.
            self.snapshot = None;
        }
    }

    /// Returns what its commit works on.
    pub(crate) fn parts_of_commit(&mut self) -> CommitParts<'_> {
        let snapshot = self.snapshot.as_ref().map(Snapshot::of_transaction);
        CommitParts {
            engine: self.db.engine(),
            check: check_of(
                self.options.isolation,
                snapshot.map(|young| &**young),
                &self.reads,
            ),
            set: &mut self.set,
            locks: &mut self.locks,
        }
    }

    /// As [`Transaction::commit`], and leaves what it has read and written, except after a commit.
    pub(crate) fn commit_in_place(&mut self) -> Result<Option<Lsn>> {
        self.check_usable()?;
        if self.set.is_read_only() {
            return Ok(None);
        }
        self.end_reads();
        let options = self.options.write;
        let (db, engine) = (&self.db, self.db.engine());
        let snapshot = self.snapshot.as_ref();
        let read_at = snapshot.map(Snapshot::lsn);
        let young = snapshot.map(|snapshot| &**snapshot.of_transaction());
        let mut check = check_of(self.options.isolation, young, &self.reads);
        let (set, locks) = (&mut self.set, &mut self.locks);
        if let Some(check) = &mut check {
            if check.closes_gate() {
                // Without the gate: most conflicts are found here, and hold up nobody else.
                engine.block(|_| check.finds_conflict(engine, set))?;
                if let Some(conflict) = check.take_conflict() {
                    engine.store.statistics.tick(Ticker::CommitConflicts, 1);
                    return Err(conflict);
                }
            }
            check.share_stripes(engine, set);
        }
        if let Some(owner) = &mut locks.owner {
            owner.begin_call();
        }
        loop {
            let outcome = db.commit_once(locks, set, options, check.as_mut())?;
            match outcome {
                Outcome::Committed(lsn) => {
                    check_committed(lsn, read_at, locks);
                    return Ok(lsn);
                }
                Outcome::Conflict { .. } => {
                    if let Some(conflict) = check.as_mut().and_then(StateCheck::take_conflict) {
                        return Err(conflict);
                    }
                    // A table that it writes to was emptied: what it has not read does not matter.
                    set.refresh_trees()?;
                }
            }
        }
    }
}
