//! The handle of a table: reads, writes, read-modify-writes.

use pando_format::Lsn;
use pando_sync::Arc;
use pando_tree::ValueReader;

use crate::api::db::Db;
use crate::commit::buffers::TakenBuffer;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::error::Result;
use crate::options::WriteOptions;
use crate::read::buffers::{OfThread, ReadBuffers, with_buffers};
use crate::tables::state::TableState;
use crate::wait::reason::{Unfinished, WaitReason};
use crate::writes::set::WriteSet;

/// A named table: an ordered map from byte keys to byte values. Clones are handles of the same
/// table.
#[derive(Debug, Clone)]
pub struct Table {
    /// The store stays open while this handle exists, unless it is closed.
    pub(crate) db: Db,
    /// Its tree is read anew for each operation: other handles may replace or drop it.
    pub(crate) state: Arc<TableState>,
}

impl Table {
    /// Name of the table.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// The store that the table belongs to.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Number of entries; known without counting them.
    pub fn len(&self) -> u64 {
        self.state.count()
    }

    /// LSN of the last swap of the table ([`Db::swap_tables`]) since the store was opened; 0 if
    /// there was none. If it is the same before and after some reads, all of them were of one
    /// content, and, if they were of several tables that are swapped together only, of contents
    /// that belong together.
    pub fn last_swap(&self) -> Lsn {
        self.state.swapped()
    }

    /// True if the table has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads `key` into `out`, which is cleared first; returns true if the key exists. Allocates
    /// nothing if `out` has room. Blocks for pages that are not in memory, and until what it has
    /// found is durable ([`crate::Builder::durable_reads`]).
    ///
    /// # Errors
    /// [`crate::Error::CorruptPage`] for a damaged page, [`crate::Error::NoSuchTable`].
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.db.engine().read(&self.state, key, out, OfThread)
    }

    /// Returns the value of `key`, if it exists.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Calls `f` with a copy of the value of `key`, if it exists. Allocates nothing.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        with_buffers(|buffers| match buffers {
            Some(ReadBuffers { reader, value }) => {
                let found = self.db.engine().read(&self.state, key, value, reader)?;
                Ok(found.then(|| f(value)))
            }
            // This call is nested in the closure of another one.
            None => Ok(self.get(key)?.map(|value| f(&value))),
        })
    }

    /// True if `key` exists.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.get_with(key, |_| ()).map(|found| found.is_some())
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, WriteOptions::default())
    }

    /// Sets `key` to `value`, with the durability of `options`.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put_with(&self, key: &[u8], value: &[u8], options: WriteOptions) -> Result<()> {
        if value.len() > self.db.engine().plain_bytes_max() {
            return self.put_streamed_with(key, value.len() as u64, value, options);
        }
        let engine = self.db.engine();
        let acknowledge = engine.acknowledge(options.durability);
        if let Some(put) = engine.try_put(&self.state, (key, value), acknowledge)? {
            return self.db.end_put(&put, acknowledge);
        }
        let mut set = TakenBuffer::<WriteSet>::take();
        let table = set.table(&self.state);
        set.write(table, key, Some(value));
        self.db.commit(&mut set, options)
    }

    /// Removes `key`; returns true if it existed.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.delete_with(key, WriteOptions::default())
    }

    /// Removes `key`, with the durability of `options`; returns true if it existed.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_with(&self, key: &[u8], options: WriteOptions) -> Result<bool> {
        let engine = self.db.engine();
        let mut set = TakenBuffer::<WriteSet>::take();
        let mut locks = CommitLocks::default();
        loop {
            if !engine.block(|_| engine.try_contains_stamped(&self.state, key, &mut set))? {
                engine.pay(set.debt)?;
                return Ok(false);
            }
            let table = set.table(&self.state);
            set.write(table, key, None);
            if let Outcome::Committed(_) =
                self.db.commit_once(&mut locks, &mut set, options, None)?
            {
                return Ok(true);
            }
        }
    }

    /// Replaces the value of `key` by the result of `f` for the old value: `Some` puts, `None`
    /// deletes. Atomic. `f` runs while no lock is held, and may run several times. Returns the new
    /// value.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn update(
        &self,
        key: &[u8],
        mut f: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let mut new = None;
        self.modify(key, WriteOptions::default(), |old| {
            new = f(old);
            match &new {
                Some(value) => Updated::Put(value.clone()),
                None => Updated::Delete,
            }
        })?;
        Ok(new)
    }

    /// Sets `key` to `new` (None: removes it) if its value is `expected` (None: it does not exist).
    /// Returns true if it was.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn compare_and_put(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let mut equal = false;
        self.modify(key, WriteOptions::default(), |old| {
            equal = old == expected;
            match (equal, new) {
                (false, _) => Updated::Keep,
                (true, Some(value)) => Updated::Put(value.to_vec()),
                (true, None) => Updated::Delete,
            }
        })?;
        Ok(equal)
    }

    /// Reads the value and its stamp, runs `f`, locks, compares stamps and commits; starts again if
    /// the key changed in between.
    fn modify(
        &self,
        key: &[u8],
        options: WriteOptions,
        mut f: impl FnMut(Option<&[u8]>) -> Updated,
    ) -> Result<()> {
        let engine = self.db.engine();
        let mut value = Vec::new();
        let mut reader = ValueReader::new();
        let mut set = TakenBuffer::<WriteSet>::take();
        let mut locks = CommitLocks::default();
        loop {
            let found = engine.block(|blocked| {
                let set = &mut *set;
                let found = engine.try_read_stamped(&self.state, key, &mut reader, &mut value, set);
                blocked.wanted.append(&mut reader.wanted);
                match found {
                    Err(Unfinished::Wait(WaitReason::Chunks)) => Ok(None),
                    other => other.map(Some),
                }
            })?;
            let found = match found {
                Some(found) => found,
                None => engine.read_whole_stamped(&self.state, key, &mut value, &mut set)?,
            };
            let table = set.table(&self.state);
            match f(found.then_some(&value[..])) {
                Updated::Keep => return engine.pay(set.debt),
                Updated::Put(new) => set.write(table, key, Some(&new)),
                Updated::Delete => set.write(table, key, None),
            }
            if let Outcome::Committed(_) =
                self.db.commit_once(&mut locks, &mut set, options, None)?
            {
                return Ok(());
            }
        }
    }
}

enum Updated {
    Keep,
    Put(Vec<u8>),
    Delete,
}
