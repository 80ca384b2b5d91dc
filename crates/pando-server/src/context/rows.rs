//! Reading and writing rows: the only place where commands touch the tables of keys.

use pando_resp::Writer;
use pandodb::nonblocking::Attempt;

use super::{Context, Halt, Run};
use crate::keyspace::{Expiry, Row, RowError, encode, entry_key};

/// What is at a key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// The value that lives; its payload is in the scratch until the next read.
    pub(crate) row: Option<Row>,
    /// The expiry entry of the row, of one that has ended too.
    pub(crate) entry: Option<u64>,
}

impl Found {
    /// When the value ends.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.row
            .and_then(|row| row.expiry)
            .map(|expiry| expiry.deadline)
    }
}

impl Context<'_> {
    /// Reads the row of `key`: in the transaction if the command has one, else as it is now.
    pub(crate) fn find(&mut self, key: &[u8]) -> Result<Found, Halt> {
        let now_ms = self.now_ms;
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        scratch.value.clear();
        let attempt = match data.transaction.as_deref_mut() {
            Some(transaction) => {
                transaction.get(&database.keys, &scratch.stored, &mut scratch.value)?
            }
            None => database.keys.try_get(&scratch.stored, &mut scratch.value)?,
        };
        match attempt {
            Attempt::Pending(pending) => return Err(Halt::Pending(pending)),
            Attempt::Ready(false) => return Ok(Found::default()),
            Attempt::Ready(true) => {}
        }
        let row = Row::decode(&scratch.stored, &scratch.value)?;
        if row.user_key(&scratch.stored, &scratch.value) != key {
            return Err(Halt::Row(RowError::OtherKey));
        }
        Ok(Found {
            row: (!row.is_over(now_ms)).then_some(row),
            entry: row.expiry.map(|expiry| expiry.entry),
        })
    }

    /// As [`Context::find`] for a command that only reads: counts hits and misses.
    #[inline]
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Option<Row>, Halt> {
        let found = self.find(key)?;
        match found.row {
            Some(_) => self.progress.hits += 1,
            None => self.progress.misses += 1,
        }
        Ok(found.row)
    }

    /// The string of the row that was read last.
    #[inline]
    pub(crate) fn payload(&mut self, row: Row) -> &[u8] {
        &self.data().scratch.value[row.payload..]
    }

    /// Replies the string of the row that was read last, or no value.
    #[inline]
    pub(crate) fn reply_row(&mut self, row: Option<Row>) -> Run {
        let version = self.session.version;
        let data = self.data.as_ref();
        let scratch = &*data.expect("a row was read").scratch;
        let mut writer = Writer::new(self.out, version);
        match row {
            Some(row) => writer.bulk(&scratch.value[row.payload..]),
            None => writer.null(),
        }
        self.check_reply()
    }

    /// Writes a string; `entry` is the expiry entry that the key has now.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        payload: &[u8],
        deadline: Option<u64>,
        entry: Option<u64>,
    ) -> Run {
        let expiry = self.move_entry(key, deadline, entry)?;
        let scratch = &mut *self.data().scratch;
        let mut encoded = std::mem::take(&mut scratch.encoded);
        let whole_key = self.engine().folder.folds(key).then_some(key);
        encode(&mut encoded, whole_key, expiry, payload);
        let result = self.put_encoded(key, &encoded);
        self.data().scratch.encoded = encoded;
        result
    }

    /// Gives the value that was read last another deadline.
    pub(crate) fn put_deadline(&mut self, key: &[u8], found: Found, deadline: Option<u64>) -> Run {
        let row = found.row.expect("only a value that lives gets a deadline");
        let value = std::mem::take(&mut self.data().scratch.value);
        let result = self.put(key, &value[row.payload..], deadline, found.entry);
        self.data().scratch.value = value;
        result
    }

    fn put_encoded(&mut self, key: &[u8], encoded: &[u8]) -> Run {
        let number = self.session.database;
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let transaction = data.transaction.as_deref_mut();
        let transaction = transaction.expect("commands that write have a transaction");
        transaction.put(&database.keys, &scratch.stored, encoded)?;
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.put(number, &scratch.stored, key);
        }
        Ok(())
    }

    /// Deletes the row that `found` found at `key`, and its expiry entry.
    pub(crate) fn remove(&mut self, key: &[u8], found: Found) -> Run {
        let number = self.session.database;
        let database = self.database();
        self.move_entry(key, None, found.entry)?;
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let transaction = data.transaction.as_deref_mut();
        let transaction = transaction.expect("commands that write have a transaction");
        transaction.delete(&database.keys, &scratch.stored);
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.delete(number, &scratch.stored);
        }
        Ok(())
    }

    /// Sees to it that the key's one expiry entry is not later than `deadline`.
    fn move_entry(
        &mut self,
        key: &[u8],
        deadline: Option<u64>,
        entry: Option<u64>,
    ) -> Result<Option<Expiry>, Halt> {
        if let (Some(deadline), Some(entry)) = (deadline, entry)
            && entry <= deadline
        {
            return Ok(Some(Expiry { deadline, entry }));
        }
        if deadline.is_none() && entry.is_none() {
            return Ok(None);
        }
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let transaction = data.transaction.as_deref_mut();
        let transaction = transaction.expect("commands that write have a transaction");
        if let Some(entry) = entry {
            entry_key(&mut scratch.encoded, entry, &scratch.stored);
            transaction.delete(&database.elements, &scratch.encoded);
        }
        let Some(deadline) = deadline else {
            return Ok(None);
        };
        entry_key(&mut scratch.encoded, deadline, &scratch.stored);
        transaction.put(&database.elements, &scratch.encoded, b"")?;
        let entry = deadline;
        Ok(Some(Expiry { deadline, entry }))
    }

    /// True if a string of `bytes` can be stored at `key`.
    pub(crate) fn fits(&self, key: &[u8], bytes: usize) -> bool {
        let engine = self.engine();
        let whole_key = if engine.folder.folds(key) {
            key.len()
        } else {
            0
        };
        bytes.saturating_add(whole_key) <= engine.string_bytes_max
    }
}
