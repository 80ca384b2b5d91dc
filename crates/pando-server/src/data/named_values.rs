//! Strings, and fields of hashes, by the names of their keys, as of one moment (decision 131).
//!
//! Whoever reads them may wait for the disk: these are not for event loops.

use std::ops::{Bound, Range};

use pandodb::{Error, FetchedLeaves, Snapshot, Table, ValueStream};

use super::deadlines;
use super::elements::{self, ElementKeys};
use super::keyspace::{KeyFolder, Row, RowError, ValueType, has_ended};
use super::piece_head::{HEAD_BYTES, PieceHead};
use super::shown_rows::{Broken, value_at};
use super::tree_head::TreeHead;

/// Bytes of a string in chunks that are read at a time, at most.
const PART_BYTES: u64 = 1 << 20;

/// The keys of a database, at one moment.
#[derive(Debug)]
pub(crate) struct NamedValues {
    pub(crate) snapshot: Snapshot,
    pub(crate) keys: Table,
    pub(crate) members: Table,
    pub(crate) element_keys: ElementKeys,
    pub(crate) folder: KeyFolder,
    /// What has expired then is not there.
    pub(crate) now_ms: u64,
}

/// What a key or a field has.
#[derive(Debug)]
pub(crate) enum Named {
    Bytes(Vec<u8>),
    /// A string in chunks.
    Long(LongString),
}

/// A string in chunks that is read part by part.
#[derive(Debug)]
pub(crate) struct LongString {
    stream: ValueStream,
    /// Bytes of it that were read.
    read: u64,
    /// What lies over its bytes.
    patches: Option<(Snapshot, Table, PieceHead)>,
}

impl NamedValues {
    /// Reads the pages of the rows of the first of `keys`, at the same time.
    pub(crate) fn prefetch(&self, keys: &[Vec<u8>]) -> Result<FetchedLeaves, Broken> {
        let stored: Vec<_> = keys.iter().map(|key| self.stored(key)).collect();
        let stored: Vec<&[u8]> = stored.iter().map(|key| &key[..]).collect();
        match self.snapshot.prefetch(&self.keys, &stored) {
            // Nothing had been written to the database yet.
            Err(Error::NoSuchTable { .. }) => Ok(FetchedLeaves {
                keys: keys.len(),
                missing: 0,
            }),
            read => Ok(read?),
        }
    }

    /// Returns how the key is stored.
    fn stored(&self, key: &[u8]) -> Vec<u8> {
        let mut stored = Vec::new();
        self.folder.store(key, &mut stored);
        stored
    }

    /// Returns the string at `key`; `None` if it has none.
    pub(crate) fn string(&self, key: &[u8]) -> Result<Option<Named>, Broken> {
        let Some((row, stream)) = self.open(key)? else {
            return Ok(None);
        };
        let payload = &stream.head()[row.payload..];
        let patches = match row.value_type {
            ValueType::String if !stream.is_chunked() => {
                return Ok(Some(Named::Bytes(payload.to_vec())));
            }
            ValueType::Pieces => {
                let head = PieceHead::decode(payload)?;
                let mut bytes = vec![0; head.length as usize];
                let whole = 0..u64::from(head.length);
                lay((&self.snapshot, &self.members), &head, (&mut bytes, whole))?;
                return Ok(Some(Named::Bytes(bytes)));
            }
            ValueType::Patched => {
                let head = payload.get(..HEAD_BYTES).ok_or(RowError::Damaged)?;
                let head = PieceHead::decode_patched(head)?;
                Some((self.snapshot.clone(), self.members.clone(), head))
            }
            ValueType::String => None,
            _ => return Ok(None),
        };
        Ok(Some(Named::Long(LongString {
            stream,
            read: 0,
            patches,
        })))
    }

    /// Returns `field` of the hash at `key`; `None` if there is none.
    pub(crate) fn field(&self, key: &[u8], field: &[u8]) -> Result<Option<Named>, Broken> {
        let Some((row, stream)) = self.open(key)? else {
            return Ok(None);
        };
        if row.value_type != ValueType::Hash {
            return Ok(None);
        }
        let payload = &stream.head()[row.payload..];
        let lives = |deadline: Option<u64>| deadline.is_none_or(|at| !has_ended(at, self.now_ms));
        if !TreeHead::is_of(payload) {
            let (strings, deadlines) = deadlines::decode(payload)?;
            let place = strings
                .find(field, 2)
                .filter(|_| lives(deadlines.of(field)));
            let value = place.map(|place| strings.at(place + 1).to_vec());
            return Ok(value.map(Named::Bytes));
        }
        let head = TreeHead::decode(payload)?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.element_keys.name(head.id, field, &mut key);
        if !self.snapshot.get_into(&self.members, &key, &mut value)? {
            return Ok(None);
        }
        let row = elements::decode_name(&key, &value)?;
        // Long names with the same beginning may have the same hash.
        let is_it = row.name == field && lives(row.deadline);
        Ok(is_it.then(|| Named::Bytes(row.value.to_vec())))
    }

    /// Returns the row of `key`, and its value.
    fn open(&self, key: &[u8]) -> Result<Option<(Row, ValueStream)>, Broken> {
        let stored = self.stored(key);
        let Some(stream) = value_at(&self.snapshot, (&self.keys, &stored))? else {
            return Ok(None);
        };
        let row = Row::decode(&stored, stream.head())?;
        if row.user_key(&stored, stream.head()) != key {
            return Err(RowError::OtherKey.into());
        }
        Ok((!row.is_over(self.now_ms)).then_some((row, stream)))
    }
}

impl LongString {
    /// Bytes of it that were not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.stream.len() - self.stream.head().len() as u64 - self.read
    }

    /// Appends the next bytes to `out`: those of a chunk, at most. Blocks.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let end = self.stream.chunk_at(self.read).end;
        let range = self.read..end.min(self.read + PART_BYTES);
        let start = out.len();
        out.resize(start + within(range.end - range.start), 0);
        let place = self.stream.head().len() as u64 + range.start;
        let count = self.stream.read_at(place, &mut out[start..])?;
        if count < out.len() - start || count == 0 {
            return Err(RowError::Damaged.into());
        }
        if let Some((snapshot, members, head)) = &self.patches {
            lay(
                (snapshot, members),
                head,
                (&mut out[start..], range.clone()),
            )?;
        }
        self.read = range.end;
        // The chunk is not kept while the bytes wait to be sent.
        self.stream = self.stream.reopen();
        Ok(())
    }

    /// Returns all of it, if it has at most `most` bytes. Blocks.
    pub(crate) fn whole(mut self, most: usize) -> Result<Option<Vec<u8>>, Broken> {
        if self.left() > most as u64 {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        while self.left() > 0 {
            self.read(&mut bytes)?;
        }
        Ok(Some(bytes))
    }
}

/// Puts the pieces of a string over those of its bytes that are at `range`.
fn lay(
    (snapshot, members): (&Snapshot, &Table),
    head: &PieceHead,
    (bytes, range): (&mut [u8], Range<u64>),
) -> Result<(), Broken> {
    let pieces = head.pieces(&range);
    let from = elements::piece_key(head.id, pieces.start);
    let to = elements::piece_key(head.id, pieces.end);
    let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    let mut rows = snapshot.range(members, bounds);
    while let Some(row) = rows.next_ref() {
        let (key, piece) = row?;
        let number = elements::piece_number(key.get(elements::START_BYTES..).unwrap_or_default());
        let number = number.ok_or(RowError::Damaged)?;
        let places = head.places(number);
        if piece.len() as u64 > places.end - places.start {
            return Err(RowError::Damaged.into());
        }
        // What of the piece lies in the range.
        let start = places.start.max(range.start);
        let end = (places.start + piece.len() as u64).min(range.end);
        if start < end {
            let piece = &piece[within(start - places.start)..within(end - places.start)];
            bytes[within(start - range.start)..within(end - range.start)].copy_from_slice(piece);
        }
    }
    Ok(())
}

fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("strings fit into memory")
}
