//! Puts of values of any length, and changes of a part of a value: of a value in chunks, only the
//! chunks that change are written.

use std::io::Read;
use std::ops::Range;

use pando_format::cast::usize_of;
use pando_tree::ValueReader;

use crate::api::batch::Batch;
use crate::api::table::Table;
use crate::blobs::value::LargeValue;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
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

/// The current value of a key that is going to be changed.
struct Old {
    /// Its head, if it is in chunks; otherwise empty.
    head: Vec<u8>,
    bytes: OldBytes,
    /// Of the key, from before the value was read.
    stamp: Stamp,
}

impl Old {
    /// Bytes of the whole value.
    fn len(&self) -> u64 {
        self.head.len() as u64 + self.bytes.len()
    }
}

impl Engine {
    /// Opens the value of `key` for a change; a key without a value counts as an empty one. Blocks.
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

    /// Reads the whole value of `key`, which was found to be in chunks, for a change that depends
    /// on it: adds its stamp to `set`. Blocks.
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

    /// Writes values that are too long for pages to chunks, before step 1 of a commit. Blocks.
    ///
    /// # Errors
    /// [`Error::OtherStore`], or the reason why they cannot be written.
    #[inline]
    pub(crate) fn spill(engine: &Shared, set: &mut WriteSet) -> Result<()> {
        match set.first_longer(engine.plain_bytes_max()) {
            None => Ok(()),
            Some(_) => Self::spill_some(engine, set),
        }
    }

    /// As [`Engine::spill`], of a set that has such values.
    fn spill_some(engine: &Shared, set: &mut WriteSet) -> Result<()> {
        // The chunks would be those of the wrong store.
        set.check_store(&engine.store.tables)?;
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
    /// Sets `key` to a value that was handed over before. A value can be put for one key only, and
    /// a value that keeps chunks of an old one only for the key that has those. A commit of a batch
    /// that puts it for another key, or into another store, fails with [`Error::InvalidValue`].
    pub fn put_large(&mut self, table: &Table, key: &[u8], value: LargeValue) {
        let table = self.set.table(&table.state);
        self.set.write_large(table, key, value);
    }
}

impl Table {
    /// Sets `key` to the next `bytes` bytes of `source`; one piece of it is in memory at a time.
    /// Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`]; [`Error::InvalidValue`] if `source` fails or ends too early.
    pub fn put_streamed(&self, key: &[u8], bytes: u64, source: impl Read) -> Result<()> {
        self.put_streamed_with(key, bytes, source, WriteOptions::default())
    }

    /// As [`Table::put_streamed`], as durable as `options` ask.
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
            let mut value = vec![0; usize_of(bytes)];
            source.read_exact(&mut value).map_err(failed)?;
            return self.put_with(key, &value, options);
        }
        let mut writer = ValueWriter::new(engine, bytes)?;
        let mut piece = vec![0; PIECE_BYTES];
        while writer.missing() > 0 {
            let count = usize_of(writer.missing().min(PIECE_BYTES as u64));
            source.read_exact(&mut piece[..count]).map_err(failed)?;
            writer.write(&piece[..count])?;
        }
        let mut batch = Batch::new();
        batch.put_large(self, key, writer.finish()?);
        self.db.write(&mut batch, options)
    }

    /// Overwrites the value of `key` from `offset` on. A value that is too short grows, with zeros
    /// in between; a missing one is made. Returns the new length. Atomic. Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn put_range(&self, key: &[u8], offset: u64, bytes: &[u8]) -> Result<u64> {
        self.edit(key, bytes, WriteOptions::default(), |_| offset)
    }

    /// Appends to the value of `key`, or makes it. Returns the new length. Atomic. Blocks.
    ///
    /// # Errors
    /// As [`crate::Db::write`].
    pub fn append(&self, key: &[u8], bytes: &[u8]) -> Result<u64> {
        self.edit(key, bytes, WriteOptions::default(), |len| len)
    }

    /// Overwrites the value from the offset that `offset_of` returns for its length. Returns the
    /// new length.
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
        let mut locks = CommitLocks::default();
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
            if let Outcome::Committed(_) =
                self.db.commit_once(&mut locks, &mut set, options, None)?
            {
                return Ok(len);
            }
        }
    }
}

/// A changed value.
enum Changed {
    Value(Vec<u8>),
    Chunks(LargeValue),
}

/// Makes the value of `len` bytes that `old` becomes with `bytes` at `offset`. Blocks.
fn changed(engine: &Shared, old: Old, offset: u64, bytes: &[u8], len: u64) -> Result<Changed> {
    let Old {
        mut head,
        bytes: old,
        ..
    } = old;
    if let OldBytes::Value(mut value) = old {
        if len <= engine.plain_bytes_max() as u64 {
            value.resize(usize_of(len), 0);
            let at = usize_of(offset);
            value[at..at + bytes.len()].copy_from_slice(bytes);
            return Ok(Changed::Value(value));
        }
        let old = OldBytes::Value(value);
        let made = edited(engine, &old, offset, bytes.len() as u64, |to| {
            to.write(bytes)
        })?;
        return Ok(Changed::Chunks(made));
    }
    // The bytes that fall into the head are changed there.
    let head_bytes = head.len() as u64;
    let in_head = usize_of(head_bytes.saturating_sub(offset).min(bytes.len() as u64));
    if in_head > 0 {
        let at = usize_of(offset);
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

/// Makes a value in chunks: `old`, with the `bytes` bytes that `pour` writes at `offset`. Blocks.
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

/// Writes the bytes of `value` at `range`. Blocks.
///
/// # Errors
/// [`Error::InvalidValue`] if it has not as many; else why they cannot be read or written.
fn write_part(
    engine: &Shared,
    value: &LargeValue,
    range: &Range<u64>,
    writer: &mut ValueWriter,
) -> Result<()> {
    if range.start > range.end || range.end > value.len() {
        return Err(Error::InvalidValue {
            what: format!("the bytes {range:?} of a value that has {}", value.len()),
        });
    }
    let mut start = 0;
    let mut write = |bytes: &[u8]| {
        let within = |at: u64| usize_of(at.saturating_sub(start).min(bytes.len() as u64));
        let part = within(range.start)..within(range.end);
        start += bytes.len() as u64;
        writer.write(&bytes[part])
    };
    write(&value.head)?;
    let mut buffer = engine.store.chunk_buffer(value.staged.shape);
    for index in 0..value.staged.parts.len() {
        engine.store.read_part(&value.staged, index, &mut buffer)?;
        write(&buffer)?;
    }
    Ok(())
}

/// The new bytes of a change.
#[derive(Debug)]
pub enum NewBytes {
    /// In memory.
    Bytes(Vec<u8>),
    /// A value that was handed over; its bytes are copied, and then it is dropped.
    Large(LargeValue),
    /// The bytes at a range of such a value, its head counted.
    Part(LargeValue, Range<u64>),
}

impl NewBytes {
    /// Number of bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Large(value) => value.len(),
            Self::Part(_, range) => range.end.saturating_sub(range.start),
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a value in chunks: `old`, with these bytes at `offset`. Blocks.
    pub(crate) fn put_into(
        self,
        engine: &Shared,
        old: &OldBytes,
        offset: u64,
    ) -> Result<LargeValue> {
        edited(engine, old, offset, self.len(), |writer| match &self {
            Self::Bytes(bytes) => writer.write(bytes),
            Self::Large(value) => write_part(engine, value, &(0..value.len()), writer),
            Self::Part(value, range) => write_part(engine, value, range, writer),
        })
    }
}
