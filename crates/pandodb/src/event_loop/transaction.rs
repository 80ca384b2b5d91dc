//! Interactive transactions of event loops.

use pando_format::{Lsn, PageId};
use pando_pool::Restart;
use pando_sync::{Arc, Mutex};
use pando_tree::Tree;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::commit::scratch::CommitScratch;
use crate::error::{Error, Result};
use crate::event_loop::aside::Aside;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::reactor::Reactor;
use crate::kept::settled::{KeptFound, Settled};
use crate::pages::fetcher::{Fetcher, OwnReads};
use crate::read::at::ReadAt;
use crate::state::read_bounds::Debt;
use crate::transaction::handle::{self, Savepoint};
use crate::transaction::options::{Isolation, TransactionOptions};
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::set::{Value, WriteSet};

/// As [`crate::Transaction`], with calls that return at once. A call that is pending is made again
/// with the same arguments until it has ended; no other call is made in between. Dropping it rolls
/// it back.
///
/// Calls may block for moments: the first read, if there was no snapshot for a while, and the
/// commit, if ranges or many keys were read, wait for commits that are being applied.
///
/// A [`crate::nonblocking::ValidatedBatch`] can be a step of it, whose reads and writes count
/// together: see [`crate::nonblocking::ValidatedBatch::enter`].
#[derive(Debug)]
pub struct Transaction {
    pub(crate) inner: handle::Transaction,
    /// The reads of the loop.
    fetcher: Arc<Mutex<Fetcher>>,
    pub(crate) work: ReadAt,
    /// Its reads once its snapshot goes on on disk.
    pub(crate) aside: Aside,
    scratch: CommitScratch,
    /// What its own reads owe.
    debt: Debt,
    /// A call that takes locks, or the commit, is pending.
    is_calling: bool,
    /// Number of keys that the pending call has locked.
    locked: usize,
    /// What the pending call has read: of each key whether it was read, and its value.
    gathered: Vec<Option<Option<Vec<u8>>>>,
}

/// Most keys of one call whose pages are read at the same time.
const TOGETHER_MAX: usize = 64;

impl Transaction {
    /// Begins a transaction for the loop of `reactor`, as [`Db::begin`].
    ///
    /// # Errors
    /// As [`Db::begin`].
    pub fn begin(db: &Db, options: TransactionOptions, reactor: &Reactor) -> Result<Self> {
        Ok(Self {
            inner: db.begin(options)?,
            fetcher: reactor.fetcher.clone(),
            work: ReadAt::default(),
            aside: Aside::default(),
            scratch: CommitScratch::default(),
            debt: Debt::NONE,
            is_calling: false,
            locked: 0,
            gathered: Vec::new(),
        })
    }

    /// Has it go on in the loop of `reactor`, which may be that of another thread.
    pub fn go_on_in(&mut self, reactor: &Reactor) {
        if !Arc::ptr_eq(&self.fetcher, &reactor.fetcher) {
            self.fetcher = reactor.fetcher.clone();
        }
    }

    /// The isolation level.
    pub fn isolation(&self) -> Isolation {
        self.inner.isolation()
    }

    /// Number of keys that it writes.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// True if it writes nothing.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Number of locks that it holds.
    pub fn locks(&self) -> usize {
        let owner = self.inner.locks.owner.as_ref();
        owner.map_or(0, |owner| owner.len())
    }

    /// Bytes of memory that its writes, its savepoints and its locks take, about.
    pub fn memory(&self) -> usize {
        self.inner.memory()
    }

    /// Returns the LSN that must be durable before what [`Transaction::get`] has read may be shown:
    /// see [`crate::nonblocking::Reads::get`].
    pub fn shown_from(&self) -> Option<Lsn> {
        self.debt.lsn()
    }

    /// Notes what a read of its own owes.
    pub(crate) fn owe(&mut self, debt: Debt) {
        self.debt.add(debt);
    }

    /// While this exists, the thread publishes its own reads whenever it waits for others.
    pub(crate) fn own_reads(&self) -> OwnReads {
        OwnReads::of(&self.fetcher)
    }

    /// Reads `key` of `table` into `out`, which is cleared first; true if it exists.
    ///
    /// # Errors
    /// As [`crate::Transaction::get_into`]; [`Error::InChunks`] for a large value.
    pub fn get(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<bool>> {
        let step = self.try_get(table, key, out);
        let step = step.map(|(found, debt)| {
            self.debt.add(debt);
            found
        });
        polled(step, &mut self.work.reader.wanted)
    }

    /// Reads `keys` of `table`, and replaces `values` by their values, in their order, once all are
    /// there. Pages that are not in memory are read at the same time.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn get_many(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
        values: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<Polled<()>> {
        let mut wanted = Vec::new();
        let step = self.try_get_many(table, keys, &mut wanted);
        let polled = polled(step, &mut wanted);
        if !matches!(polled, Ok(Polled::Pending(_))) {
            // The call has ended, and the next one may ask for other keys.
            let gathered = std::mem::take(&mut self.gathered);
            if polled.is_ok() {
                values.clear();
                values.extend(gathered.into_iter().flatten());
            }
        }
        polled
    }

    /// Reads those of `keys` that the attempts before have not read, as far as nothing is in the
    /// way. Waits for the first that is not read; `wanted` are pages of others.
    fn try_get_many(
        &mut self,
        table: &Table,
        keys: &[&[u8]],
        wanted: &mut Vec<PageId>,
    ) -> Step<()> {
        self.gathered.resize(keys.len(), None);
        let mut stopped = None;
        let mut out = Vec::new();
        let mut waiting = 0;
        for (at, key) in keys.iter().enumerate() {
            if self.gathered[at].is_some() {
                continue;
            }
            let reason = match self.try_get(table, key, &mut out) {
                Ok((found, debt)) => {
                    self.debt.add(debt);
                    self.gathered[at] = Some(found.then(|| out.clone()));
                    continue;
                }
                Err(Unfinished::Wait(WaitReason::Chunks)) => return Err(WaitReason::Chunks.into()),
                Err(Unfinished::Wait(reason)) => reason,
                Err(error) => return Err(error),
            };
            wanted.append(&mut self.work.reader.wanted);
            match (&stopped, &reason) {
                (None, _) => stopped = Some(reason),
                (Some(_), WaitReason::Restart(Restart::Fault(page))) => wanted.push(*page),
                _ => {}
            }
            waiting += 1;
            if waiting == TOGETHER_MAX {
                break;
            }
        }
        stopped.map_or(Ok(()), |reason| Err(reason.into()))
    }

    pub(crate) fn try_get(
        &mut self,
        table: &Table,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<(bool, Debt)> {
        let _own = self.own_reads();
        let read = self.inner.try_get(table, key, &mut self.work, out);
        if !matches!(read, Err(Unfinished::Wait(WaitReason::Settled))) {
            return read;
        }
        let found = match self.open_on_disk(table, key, out)? {
            KeptFound::Nothing => false,
            KeptFound::Copied => true,
            KeptFound::Chunks(_) => return Err(WaitReason::Chunks.into()),
        };
        table.db.engine().count_get();
        Ok((found, Debt::NONE))
    }

    /// Opens the value of `key` at its snapshot, which goes on on disk.
    pub(crate) fn open_on_disk(
        &mut self,
        table: &Table,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<KeptFound> {
        let engine = table.db.engine();
        let (settled, tree) = self.on_disk(table)?;
        let found = self.aside.open(engine, (settled, tree), key, out);
        let found = found.map_err(|stopped| self.inner.why_not_read(table, stopped))?;
        self.inner.note_read(table, key)?;
        Ok(found)
    }

    /// Returns what its snapshot reads on disk, and the tree that `table` has there.
    pub(crate) fn on_disk(&self, table: &Table) -> Result<(Arc<Settled>, Tree)> {
        let snapshot = self.inner.snapshot.as_ref();
        let snapshot = snapshot.expect("it was found to be settled");
        let failed = |error| self.inner.of_failed_read(table, error);
        let settled = snapshot.settled().ok_or(Error::SnapshotEnded);
        let settled = settled.map_err(failed)?;
        let tree = snapshot.tree_of(table).map_err(failed)?;
        Ok((settled, tree))
    }

    /// Moves the further pages that a read has asked for.
    pub(crate) fn move_wanted(&mut self, to: &mut Vec<PageId>) {
        to.append(&mut self.work.reader.wanted);
    }

    /// Sets `key` of `table` to `value`.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`]; [`Error::ValueTooLong`] for more than
    /// [`Db::plain_bytes_max`] bytes.
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let limit = table.db.engine().plain_bytes_max();
        if value.len() > limit {
            return Err(Error::ValueTooLong {
                bytes: value.len(),
                limit,
            });
        }
        self.inner.put(table, key, value)
    }

    /// Removes `key` of `table`, whether it exists or not.
    ///
    /// # Errors
    /// As [`crate::Transaction::delete`].
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.inner.delete(table, key)
    }

    /// Takes over the writes of a batch, which are those of this store.
    pub(crate) fn take_over(&mut self, set: &WriteSet) -> Result<()> {
        self.inner.check_usable()?;
        if !set.is_read_only() {
            self.inner.count_memory(set.memory())?;
        }
        for (table, key, value) in set.writes() {
            let own = self.inner.set.table(&set.tables[table].state);
            match value {
                Some(Value::Bytes(bytes)) => self.inner.set.write(own, key, Some(bytes)),
                Some(Value::Chunks(value)) => self.inner.set.write_large(own, key, value.clone()),
                None => self.inner.set.write(own, key, None),
            }
        }
        Ok(())
    }

    /// Locks `keys` of `table`, which ascend, each once: as [`crate::Transaction::lock`].
    ///
    /// # Errors
    /// As [`crate::Transaction::lock`].
    pub fn lock(&mut self, table: &Table, keys: &[&[u8]]) -> Result<Polled<()>> {
        let step = self.try_lock(table, keys);
        self.is_calling = matches!(step, Err(Unfinished::Wait(_)));
        if !self.is_calling {
            self.locked = 0;
        }
        polled(step, &mut Vec::new())
    }

    fn try_lock(&mut self, table: &Table, keys: &[&[u8]]) -> Step<()> {
        self.inner.check_store(table)?;
        self.inner.check_usable()?;
        self.begin_call();
        assert!(keys.is_sorted(), "locks are taken in ascending order");
        assert!(
            self.locked <= keys.len(),
            "a pending call is made again with fewer keys"
        );
        while let Some(key) = keys.get(self.locked) {
            self.inner.try_lock_key(table, key)?;
            self.locked += 1;
        }
        Ok(())
    }

    /// Begins a call, unless it is pending.
    fn begin_call(&mut self) {
        if !self.is_calling {
            self.locked = 0;
            self.scratch.begin_anew();
            if let Some(owner) = &mut self.inner.locks.owner {
                owner.begin_call();
            }
        }
    }

    /// Returns a savepoint: see [`crate::Transaction::savepoint`].
    pub fn savepoint(&mut self) -> Savepoint {
        self.inner.savepoint()
    }

    /// Forgets the writes since `savepoint`: see [`crate::Transaction::rollback_to`].
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`].
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.inner.rollback_to(savepoint)
    }

    /// Commits the writes, and gives back all locks. Returns the LSN of the commit; None if there
    /// was nothing to write. To wait for durability, use [`Db::when_durable`]. After an error,
    /// which the next call of any kind repeats, nothing was written, except as said there.
    ///
    /// # Errors
    /// As [`crate::Transaction::commit`].
    pub fn try_commit(&mut self) -> Result<Polled<Option<Lsn>>> {
        let _own = self.own_reads();
        self.begin_call();
        let step = self.inner.try_commit(&mut self.scratch);
        self.is_calling = matches!(step, Err(Unfinished::Wait(_)));
        if let Err(Unfinished::Error(error)) = &step {
            self.inner.end_lost(error);
        }
        polled(step, &mut self.scratch.wanted)
    }
}
