//! Putting values of any length, and changing a part of one: of a value in chunks only the chunks
//! are written in which something changes.

use std::io::Read;

use pando_tree::ValueReader;

use crate::api::batch::Batch;
use crate::api::table::Table;
use crate::blobs::value::LargeValue;
use crate::commit::steps::Outcome;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::options::WriteOptions;
use crate::streams::look::Found;
use crate::streams::old_bytes::OldBytes;
use crate::streams::writer::ValueWriter;
use crate::tables::state::TableState;
use crate::writes::set::{Value, WriteSet};
use crate::writes::stripes::Stamp;

/// Bytes that are taken from a reader at a time.
const PIECE_BYTES: usize = 64 << 10;

/// A value that is going to be changed.
struct Old {
    /// Its first bytes, if it lies in chunks.
    head: Vec<u8>,
    bytes: OldBytes,
    stamp: Stamp,
}

impl Old {
    fn len(&self) -> u64 {
        self.head.len() as u64 + self.bytes.len()
    }
}

impl Engine {
    /// Opens `key` for a change. Blocks.
    fn old_value(&self, state: &TableState, key: &[u8]) -> Result<Old> {
        let mut reader = ValueReader::new();
        let mut value = Vec::new();
        let (found, debt, stamp) = self.block(|blocked| {
            let found = self.try_look_stamped(state, key, &mut reader, &mut value);
            blocked.wanted.append(&mut reader.wanted);
            found
        })?;
        self.pay(debt)?;
        let (head, bytes) = match found {
            Found::Nothing => (Vec::new(), OldBytes::Value(Vec::new())),
            Found::Value => (Vec::new(), OldBytes::Value(value)),
            Found::Chunks(mut blob, registration) => {
                let head = std::mem::take(&mut blob.head);
                (head, OldBytes::Chunks(blob, registration))
            }
        };
        Ok(Old { head, bytes, stamp })
    }

    /// Reads the whole value of `key`, which was found to lie in chunks, for a change that follows
    /// from it: `set` gets the stamp. Blocks.
    pub(crate) fn read_whole_stamped(
        &self,
        state: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
        set: &mut WriteSet,
    ) -> Result<bool> {
        let mut reader = ValueReader::new();
        let (found, debt, stamp) = self.block(|blocked| {
            let found = self.try_look_stamped(state, key, &mut reader, out);
            blocked.wanted.append(&mut reader.wanted);
            found
        })?;
        set.reads.push(stamp);
        set.debt.add(debt);
        match found {
            Found::Nothing => Ok(false),
            Found::Value => Ok(true),
            Found::Chunks(blob, _registration) => {
                self.store.read_blob(&blob, out)?;
                Ok(true)
            }
        }
    }

    /// Writes what is too long for pages to chunks, before step 1 of a commit. Blocks.
    pub(crate) fn spill(engine: &Shared, set: &mut WriteSet) -> Result<()> {
        let limit = engine.plain_bytes_max();
        while let Some(at) = set.first_longer(limit) {
            let (_, _, value) = set.write_at(at);
            let Some(Value::Bytes(bytes)) = value else {
                unreachable!("it was found to have bytes");
            };
            let written = bytes.len() as u64;
            let mut writer = ValueWriter::new(engine, written)?;
            writer.write(bytes)?;
            let value = writer.finish()?;
            assert_eq!(value.len(), written, "all of it went to chunks");
            set.replace_value(at, value);
        }
        Ok(())
    }
}

impl Batch {
    /// Sets `key` to a value that was handed over before. Each value has one key, and a value that
    /// keeps chunks of another is for the key that has them: the commit of a batch that gives it to
    /// another one, or to another store, ends with [`Error::InvalidValue`].
    pub fn put_large(&mut self, table: &Table, key: &[u8], value: LargeValue) {
        let table = self.set.table(&table.state);
        self.set.write_large(table, key, value);
    }
}

impl Table {
    /// Sets `key` to the next `bytes` bytes of `source`, of which a part at a time is in memory.
    /// Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`]; [`Error::InvalidValue`] when `source` fails or ends too early.
    pub fn put_streamed(&self, key: &[u8], bytes: u64, source: impl Read) -> Result<()> {
        self.put_streamed_with(key, bytes, source, WriteOptions::default())
    }

    /// As [`Table::put_streamed`], as durable as `options` say.
    ///
    /// # Errors
    /// As [`Table::put_streamed`].
    pub fn put_streamed_with(
        &self,
        key: &[u8],
        bytes: u64,
        mut source: impl Read,
        options: WriteOptions,
    ) -> Result<()> {
        let engine = self.db.engine();
        engine.check_key(key)?;
        let failed = |error: std::io::Error| Error::InvalidValue {
            what: format!("reading it: {error}"),
        };
        if bytes <= u64::from(engine.chunk_bytes()).min(engine.plain_bytes_max() as u64) {
            let mut value = vec![0; bytes as usize];
            source.read_exact(&mut value).map_err(failed)?;
            return self.put_with(key, &value, options);
        }
        let mut writer = ValueWriter::new(engine, bytes)?;
        let mut piece = vec![0; PIECE_BYTES];
        while writer.missing() > 0 {
            let count = writer.missing().min(PIECE_BYTES as u64) as usize;
            source.read_exact(&mut piece[..count]).map_err(failed)?;
            writer.write(&piece[..count])?;
        }
        let mut batch = Batch::new();
        batch.put_large(self, key, writer.finish()?);
        self.db.write(&mut batch, options)
    }

    /// Overwrites the value of `key` from `offset` on; where it is shorter, it grows, with zeros in
    /// between, and where there is none, one is made. Returns how long it is then. Atomic. Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put_range(&self, key: &[u8], offset: u64, bytes: &[u8]) -> Result<u64> {
        self.edit(key, bytes, WriteOptions::default(), |_| offset)
    }

    /// Appends to the value of `key`, or makes it. Returns how long it is then. Atomic. Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn append(&self, key: &[u8], bytes: &[u8]) -> Result<u64> {
        self.edit(key, bytes, WriteOptions::default(), |len| len)
    }

    /// Overwrites the value from where `offset_of` its length says.
    fn edit(
        &self,
        key: &[u8],
        bytes: &[u8],
        options: WriteOptions,
        offset_of: impl Fn(u64) -> u64,
    ) -> Result<u64> {
        let engine = self.db.engine();
        engine.check_key(key)?;
        let mut set = WriteSet::default();
        loop {
            let state = &self.state;
            set.clear();
            let table = set.table(state);
            let old = engine.old_value(state, key)?;
            let offset = offset_of(old.len());
            let end = offset.saturating_add(bytes.len() as u64);
            let len = old.len().max(end);
            if len == old.len() && bytes.is_empty() {
                return Ok(len);
            }
            set.reads.push(old.stamp);
            match changed(engine, old, offset, bytes, len)? {
                Changed::Value(value) => set.write(table, key, Some(&value)),
                Changed::Chunks(value) => set.write_large(table, key, value),
            }
            if let Outcome::Committed(_) = self.db.commit_once(&mut set, options)? {
                return Ok(len);
            }
        }
    }
}

enum Changed {
    Value(Vec<u8>),
    Chunks(LargeValue),
}

/// The value of `len` bytes that `old` becomes with `bytes` at `offset`. Blocks.
fn changed(engine: &Shared, old: Old, offset: u64, bytes: &[u8], len: u64) -> Result<Changed> {
    let Old {
        mut head,
        bytes: old,
        ..
    } = old;
    if let OldBytes::Value(mut value) = old {
        if len <= engine.plain_bytes_max() as u64 {
            value.resize(len as usize, 0);
            let at = offset as usize;
            value[at..at + bytes.len()].copy_from_slice(bytes);
            return Ok(Changed::Value(value));
        }
        let old = OldBytes::Value(value);
        let made = edited(engine, &old, offset, bytes.len() as u64, |to| {
            to.write(bytes)
        })?;
        return Ok(Changed::Chunks(made));
    }
    // What falls into the head is changed there.
    let head_bytes = head.len() as u64;
    let in_head = head_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
    if in_head > 0 {
        let at = offset as usize;
        head[at..at + in_head].copy_from_slice(&bytes[..in_head]);
    }
    let bytes = &bytes[in_head..];
    let offset = offset.saturating_sub(head_bytes);
    let made = edited(engine, &old, offset, bytes.len() as u64, |to| {
        to.write(bytes)
    })?;
    let made = made.with_head(head)?;
    assert_eq!(made.len(), len, "head and chunks add up to the value");
    Ok(Changed::Chunks(made))
}

/// A value in chunks: `old`, with what `pour` writes, `bytes` bytes, at `offset`. Blocks.
fn edited(
    engine: &Shared,
    old: &OldBytes,
    offset: u64,
    bytes: u64,
    pour: impl FnOnce(&mut ValueWriter) -> Result<()>,
) -> Result<LargeValue> {
    let end = offset.saturating_add(bytes);
    let len = old.len().max(end);
    let mut writer = match old.chunk_bytes() {
        None => ValueWriter::new(engine, len)?,
        Some(chunk_bytes) => ValueWriter::with_chunk_bytes(engine, len, chunk_bytes)?,
    };
    writer.copy_old(old, offset)?;
    assert_eq!(writer.missing(), len - offset, "what is new begins there");
    pour(&mut writer)?;
    assert_eq!(writer.missing(), len - end, "what is new ends there");
    writer.copy_old(old, len)?;
    let made = writer.finish()?;
    assert_eq!(made.len(), len, "its chunks add up to the value");
    Ok(made)
}

/// Bytes that come into a value.
#[derive(Debug)]
pub enum NewBytes {
    /// In memory.
    Bytes(Vec<u8>),
    /// Handed over before; they are copied, and the value is dropped then.
    Large(LargeValue),
}

impl NewBytes {
    /// How many they are.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Large(value) => value.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a value in chunks of `old` with these bytes at `offset`. Blocks.
    pub(crate) fn put_into(
        self,
        engine: &Shared,
        old: &OldBytes,
        offset: u64,
    ) -> Result<LargeValue> {
        edited(engine, old, offset, self.len(), |writer| match &self {
            Self::Bytes(bytes) => writer.write(bytes),
            Self::Large(value) => {
                writer.write(&value.head)?;
                let mut buffer = engine.store.chunk_buffer(value.staged.shape);
                for index in 0..value.staged.parts.len() {
                    engine.store.read_part(&value.staged, index, &mut buffer)?;
                    writer.write(&buffer)?;
                }
                Ok(())
            }
        })
    }
}
