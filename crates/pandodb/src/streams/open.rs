//! Opens values of any length, and begins long ones.

use pando_sync::Arc;

use crate::api::db::Db;
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::blobs::value::LargeValue;
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::streams::look::{Found, FoundThen};
use crate::streams::stream::ValueStream;
use crate::streams::writer::ValueWriter;
use crate::transaction::handle::Transaction;
use crate::writes::set::Own;

impl ValueStream {
    /// Makes a stream of what a key was found to have; `value` was copied, if it is in pages.
    fn of_found(engine: &Shared, found: FoundThen, value: Vec<u8>) -> Option<Self> {
        Some(match found {
            FoundThen::Here(Found::Nothing) => return None,
            FoundThen::Here(Found::Value) => Self::of_value(engine, value),
            FoundThen::Here(Found::Chunks(blob, registration)) => {
                Self::of_chunks(engine, blob, registration)
            }
            FoundThen::Kept(kept) => Self::of_kept(engine, kept),
        })
    }
}

impl Table {
    /// Opens the value of `key`, if it exists, for reading it piece by piece. The reader sees the
    /// value as it is now, whatever is put or deleted in the meantime. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_reader(&self, key: &[u8]) -> Result<Option<ValueStream>> {
        let engine = self.db.engine();
        let mut value = Vec::new();
        let found = engine.look(&self.state, key, &mut value)?;
        Ok(ValueStream::of_found(engine, found.into(), value))
    }

    /// Copies bytes of the value of `key` from `offset` on into `buffer`. Returns how many there
    /// were, if the key exists. Of a value in chunks it reads only the chunks that contain these
    /// bytes. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_range(&self, key: &[u8], offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        let stream = self.get_reader(key)?;
        stream
            .map(|mut stream| stream.read_at(offset, buffer))
            .transpose()
    }

    /// Returns the number of bytes of the value of `key`, if it exists. Reads no chunks. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn value_len(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.get_reader(key)?.map(|stream| stream.len()))
    }
}

impl Snapshot {
    /// Opens the value that `key` of `table` has at this moment, for reading it piece by piece.
    /// Blocks. The reader needs the snapshot no longer.
    ///
    /// # Errors
    /// As [`Snapshot::get_into`].
    pub fn get_reader(&self, table: &Table, key: &[u8]) -> Result<Option<ValueStream>> {
        let engine = self.engine_of(table)?;
        let mut value = Vec::new();
        if let Some(young) = self.young() {
            let (then, state) = (young.registration(), &table.state);
            if let Some(found) = engine.read_cached_at(then, state, key, &mut value) {
                return Ok(found.then(|| ValueStream::of_value(engine, value)));
            }
            match engine.look_then(then, state, key, &mut value) {
                // It may have been settled meanwhile.
                Err(Error::SnapshotEnded) => {}
                found => return Ok(ValueStream::of_found(engine, found?.into(), value)),
            }
        }
        let settled = self.settled().ok_or(Error::SnapshotEnded)?;
        let found = settled.open(self.tree_of(table)?, key, &mut value)?;
        engine.count_get();
        Ok(ValueStream::of_found(engine, found.into(), value))
    }
}

impl Transaction {
    /// Opens the value of `key` of `table` as the transaction sees it, for reading it piece by
    /// piece. Blocks. The reader needs the transaction no longer.
    ///
    /// # Errors
    /// As [`Transaction::get_into`].
    pub fn get_reader(&mut self, table: &Table, key: &[u8]) -> Result<Option<ValueStream>> {
        self.check_store(table)?;
        self.check_usable()?;
        let engine = table.db.engine();
        let index = self.set.table(&table.state);
        match self.set.own(index, key) {
            Own::Value(value) => return Ok(Some(ValueStream::of_value(engine, value.to_vec()))),
            Own::Large(value) => return Ok(Some(ValueStream::of_handed(engine, value))),
            Own::Gone => return Ok(None),
            Own::Unknown => {}
        }
        self.take_snapshot()?;
        let Some(snapshot) = &self.snapshot else {
            return table.get_reader(key);
        };
        let found = snapshot.get_reader(table, key);
        let found = found.map_err(|error| self.of_failed_read(table, error))?;
        self.note_read(table, key)?;
        Ok(found)
    }
}

impl Db {
    /// Begins a value of `bytes` bytes that is handed over piece by piece; one chunk of it is in
    /// memory at a time.
    ///
    /// # Errors
    /// [`crate::Error::ValueTooLong`] for more than 512 MiB, [`crate::Error::InvalidValue`] for 0
    /// bytes, [`crate::Error::Poisoned`], [`crate::Error::Closed`].
    pub fn value_writer(&self, bytes: u64) -> Result<ValueWriter> {
        ValueWriter::new(self.engine(), bytes)
    }

    /// Opens a value that was handed over and that no key has yet. Whoever puts it and replaces it
    /// later leaves its chunks to the stream. No other thread may put it meanwhile.
    ///
    /// # Errors
    /// [`crate::Error::OtherStore`] if it was handed over to another store;
    /// [`crate::Error::InvalidValue`] if a key has it: that is to be read.
    pub fn value_reader(&self, value: &LargeValue) -> Result<ValueStream> {
        let engine = self.engine();
        if !Arc::ptr_eq(value.staged.space(), &engine.store.space) {
            return Err(Error::OtherStore);
        }
        // It registers its chunks by their place, which keeps them if no record names them yet.
        let stream = ValueStream::of_handed(engine, value);
        match value.staged.is_named() {
            true => Err(Error::InvalidValue {
                what: "to be opened: a key has had it".to_owned(),
            }),
            false => Ok(stream),
        }
    }
}
