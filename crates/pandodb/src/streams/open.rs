//! Opens values of any length, and begins long ones.

use crate::api::db::Db;
use crate::api::table::Table;
use crate::error::Result;
use crate::streams::look::Found;
use crate::streams::stream::ValueStream;
use crate::streams::writer::ValueWriter;

impl Table {
    /// Opens the value of `key`, if it exists, for reading it piece by piece. The reader sees the
    /// value as it is now, whatever is put or deleted in the meantime. Blocks.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_reader(&self, key: &[u8]) -> Result<Option<ValueStream>> {
        let engine = self.db.engine();
        let mut value = Vec::new();
        Ok(match engine.look(&self.state, key, &mut value)? {
            Found::Nothing => None,
            Found::Value => Some(ValueStream::of_value(engine, value)),
            Found::Chunks(blob, registration) => {
                Some(ValueStream::of_chunks(engine, blob, registration))
            }
        })
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

impl Db {
    /// Begins a value of `bytes` bytes that is handed over piece by piece; one chunk of it is in
    /// memory at a time.
    ///
    /// # Errors
    /// [`crate::Error::ValueTooLong`] for 0 bytes or more than 512 MiB,
    /// [`crate::Error::Poisoned`], [`crate::Error::Closed`].
    pub fn value_writer(&self, bytes: u64) -> Result<ValueWriter> {
        ValueWriter::new(self.engine(), bytes)
    }
}
