//! Locks of a transaction: whoever locks a key before it is read meets no conflict on it.

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::commit::state_check::StateCheck;
use crate::error::{Error, Result};
use crate::locks::OwnerKind;
use crate::transaction::handle::Transaction;
use crate::wait::reason::{Step, Unfinished};

/// Bytes that a lock takes besides its key, about.
const LOCK_BYTES: usize = 150;

impl Transaction {
    /// Locks `keys` of `table`, whether they exist or not, until the end of the transaction: until
    /// then commits of others that write one of them wait, and so does whoever else wants to lock
    /// it. Reads never wait. A key that was locked before the first read of the transaction is
    /// never the reason of a conflict. The keys are locked in their order, which keeps transactions
    /// that lock the same keys in one call out of each other's way.
    ///
    /// Blocks while others hold one of the locks, in turn with others that wait for it. A write of
    /// the same key by the same thread outside of the transaction waits in vain.
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let jobs = db.table("jobs")?;
    /// # jobs.put(b"job/1", b"sweep")?;
    /// // Takes the first job: two who do that wait for each other, and never conflict.
    /// let mut transaction = db.begin(pandodb::TransactionOptions::default())?;
    /// transaction.lock(&jobs, &[b"head"])?;
    /// let job = transaction.range(&jobs, &b"job/"[..]..).next().transpose()?;
    /// if let Some((key, _)) = &job {
    ///     transaction.delete(&jobs, key)?;
    /// }
    /// transaction.commit()?;
    /// # assert_eq!(job.unwrap().1, b"sweep");
    /// # assert_eq!(jobs.len(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LockTimeout`]: the locks that it had are still held, and the transaction may go on.
    /// [`Error::Deadlock`], and [`Error::Conflict`] for a key that was written after the moment
    /// which the transaction reads: it has to be run again, and every further call says so.
    /// [`Error::NoSuchTable`], [`Error::KeyTooLong`], [`Error::OtherStore`], [`Error::Closed`].
    pub fn lock(&mut self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        let engine = table.db.engine();
        for key in self.begin_lock(table, keys)? {
            engine.block(|_| self.try_lock_key(table, key))?;
        }
        Ok(())
    }

    /// Begins a call that locks `keys` of `table`. Returns them in the order in which they are
    /// locked, each once.
    pub(crate) fn begin_lock<'k>(
        &mut self,
        table: &Table,
        keys: &[&'k [u8]],
    ) -> Result<Vec<&'k [u8]>> {
        self.check_store(table)?;
        self.check_usable()?;
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        if let Some(owner) = &mut self.locks.owner {
            owner.begin_call();
        }
        Ok(keys)
    }

    /// Locks `key` of `table` as [`Transaction::lock`] does, and returns its value, if it exists.
    /// At [`crate::Isolation::ReadCommitted`] that is the newest one, and stays it until the end of
    /// the transaction.
    ///
    /// # Errors
    /// As [`Transaction::lock`] and [`Transaction::get`].
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.lock(table, &[key])?;
        self.get(table, key)
    }

    /// Makes one attempt to lock `key` of `table`, which is of this store.
    pub(crate) fn try_lock_key(&mut self, table: &Table, key: &[u8]) -> Step<()> {
        let engine = self.db.engine();
        engine.check_key(key)?;
        self.count_memory(LOCK_BYTES + 2 * key.len())?;
        let engine = self.db.engine();
        let (timeout, age) = (self.options.lock_timeout, self.age);
        let owner = self.locks.owner.get_or_insert_with(|| {
            let kind = OwnerKind::Transaction;
            Box::new(engine.lock_owner(kind, timeout, age))
        });
        let locked = engine.try_lock_key(owner, &table.state, key, None);
        let checked = locked.and_then(|tree| match &self.snapshot {
            Some(snapshot) => {
                let mut check = StateCheck::of_writes(snapshot.of_transaction());
                check.check_key(engine, &table.state, (tree, key))
            }
            None => Ok(()),
        });
        if let Err(Unfinished::Error(error)) = &checked {
            engine.count_lock_error(error);
            self.end_if_lost(error);
        }
        checked
    }

    /// Remembers an error after which the transaction has to be run again, and gives back its
    /// locks.
    fn end_if_lost(&mut self, error: &Error) {
        if error.is_conflict() {
            self.end_lost(error);
        }
    }

    /// Ends it: every further call returns `error`.
    pub(crate) fn end_lost(&mut self, error: &Error) {
        self.lost.get_or_insert_with(|| error.clone());
        self.locks.end();
    }

    /// Checks that it has not lost already, and that no read has failed since its snapshot was
    /// ended.
    ///
    /// # Errors
    /// Why it has.
    pub(crate) fn check_usable(&self) -> Result<()> {
        let has_failed = |snapshot: &Snapshot| snapshot.of_transaction().has_failed();
        match (&self.lost, &self.snapshot) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(snapshot)) if has_failed(snapshot) => Err(Error::SnapshotEnded),
            (None, _) => Ok(()),
        }
    }
}
