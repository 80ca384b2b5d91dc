//! Values of an RDB file. None says how long it is before it ends, and it may be longer than
//! memory: it is read piece by piece.

use std::io::Read;

use pando_server::rdb::{self, Part};

use super::reader::{Fault, Reader};

/// The kind of strings.
pub(super) const STRING: u8 = 0;
/// The kind of values that belong to modules.
pub(super) const OF_MODULE: u8 = 7;
/// Kinds of values that are one string: strings, and collections in one of the packed forms.
const ONE_STRING: [u8; 9] = [STRING, 9, 10, 11, 12, 13, 16, 17, 20];
/// Kinds of hashes whose fields have deadlines, each field by itself or all in a listpack.
const HASH_TIMED: u8 = 24;
const HASH_TIMED_LISTPACK: u8 = 25;
const STREAMS: [u8; 3] = [15, 19, 21];

/// A piece ends behind the first element with which it has so many bytes, expanded. A server with
/// the least memory takes a payload of one.
pub(super) const PIECE_WEIGHT: u64 = 256 << 10;

/// A value that is being read.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) kind: u8,
    /// The first deadline of the fields of a hash, from which the others count.
    first: Option<[u8; 8]>,
    /// Elements that are to come, or listpacks of a stream; `None` at its beginning.
    left: Option<u64>,
    /// All of it was read.
    is_over: bool,
}

/// Part of a value.
#[derive(Debug)]
pub(super) struct Piece {
    /// Bytes as they stand in the file; `None` if they are longer than what may be kept.
    pub(super) bytes: Option<Vec<u8>>,
    /// Number of these bytes.
    pub(super) length: u64,
    /// The same, with what is compressed expanded.
    pub(super) weight: u64,
    /// It is all of the value.
    pub(super) is_whole: bool,
    /// Number of elements.
    items: u64,
    /// Where elements begin, or the listpacks of a stream.
    items_at: usize,
    /// Where begins what is behind them.
    rest_at: usize,
}

impl Value {
    /// Returns one of this kind, of which nothing was read.
    pub(super) fn new(kind: u8) -> Self {
        Self {
            kind,
            first: None,
            left: None,
            is_over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn is_stream(&self) -> bool {
        STREAMS.contains(&self.kind)
    }

    /// Reads its next piece; not called when it is over.
    pub(super) fn next<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<Piece, Fault> {
        reader.keep();
        let is_first = self.left.is_none();
        let mut left = match self.left {
            None => self.begin(reader)?,
            Some(left) => left,
        };
        let (items_at, mut items) = (if is_first { reader.since() } else { 0 }, 0);
        while left > 0 && reader.weight() < PIECE_WEIGHT {
            pass_item(reader, self.kind)?;
            (left, items) = (left - 1, items + 1);
        }
        let rest_at = reader.since();
        self.left = Some(left);
        self.is_over = left == 0;
        if self.is_over && self.is_stream() {
            pass_groups(reader, self.kind)?;
        }
        let weight = reader.weight();
        let (bytes, length) = reader.kept();
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok(Piece {
            bytes,
            length,
            weight,
            is_whole: is_first && self.is_over,
            items,
            items_at: place(items_at),
            rest_at: place(rest_at),
        })
    }

    /// Reads what is before the elements. Returns their number: 0 for a value that is one string,
    /// or belongs to a module, which is read as a whole.
    fn begin<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<u64, Fault> {
        match self.kind {
            kind if ONE_STRING.contains(&kind) => {
                reader.pass_string()?;
                Ok(0)
            }
            HASH_TIMED_LISTPACK => {
                reader.pass(8)?;
                reader.pass_string()?;
                Ok(0)
            }
            OF_MODULE => {
                reader.length()?;
                pass_module(reader)?;
                Ok(0)
            }
            HASH_TIMED => {
                self.first = Some(reader.array()?);
                reader.length()
            }
            1..=5 | 14 | 15 | 18 | 19 | 21 => reader.length(),
            _ => Err(unknown(reader, self.kind)),
        }
    }

    /// Gives the parts of the value that `piece` has to `take`; false if it is too long.
    pub(super) fn parts(&self, piece: &Piece, take: &mut dyn FnMut(Part<'_>) -> bool) -> bool {
        let Some(bytes) = &piece.bytes else {
            return false;
        };
        let (items, rest) = (
            &bytes[piece.items_at..piece.rest_at],
            &bytes[piece.rest_at..],
        );
        if self.is_stream() {
            let has_rest = !rest.is_empty();
            return take(Part::Entries(items)) && (!has_rest || take(Part::Rest(self.kind, rest)));
        }
        let mut elements = vec![self.kind];
        match piece.items {
            // It is one string.
            0 => elements.extend_from_slice(bytes),
            count => {
                elements.extend_from_slice(self.first.as_ref().map_or(&[][..], |first| first));
                rdb::put_length(&mut elements, count);
                elements.extend_from_slice(items);
            }
        }
        take(Part::Elements(&elements))
    }
}

/// Reads an element of a value of this kind, or a listpack of a stream.
fn pass_item<R: Read>(reader: &mut Reader<R>, kind: u8) -> Result<(), Fault> {
    match kind {
        // Lists, sets, and lists of ziplists.
        1 | 2 | 14 => reader.pass_string(),
        // Sorted sets with their scores as texts or numbers.
        3 => {
            reader.pass_string()?;
            pass_score(reader)
        }
        5 => {
            reader.pass_string()?;
            reader.pass(8)
        }
        // Hashes and streams.
        4 | 15 | 19 | 21 => {
            reader.pass_string()?;
            reader.pass_string()
        }
        // Lists of listpacks.
        18 => {
            reader.length()?;
            reader.pass_string()
        }
        HASH_TIMED => {
            reader.length()?;
            reader.pass_string()?;
            reader.pass_string()
        }
        _ => Err(unknown(reader, kind)),
    }
}

fn unknown<R: Read>(reader: &Reader<R>, kind: u8) -> Fault {
    reader.damaged(&format!("a value of the unknown kind {kind}"))
}

fn each<R: Read>(
    reader: &mut Reader<R>,
    mut pass: impl FnMut(&mut Reader<R>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for _ in 0..reader.length()? {
        pass(reader)?;
    }
    Ok(())
}

fn pass_score<R: Read>(reader: &mut Reader<R>) -> Result<(), Fault> {
    match reader.byte()? {
        // Not a number, and the infinities.
        253..=255 => Ok(()),
        length => reader.pass(length.into()),
    }
}

/// Reads what is behind the listpacks of a stream.
fn pass_groups<R: Read>(reader: &mut Reader<R>, kind: u8) -> Result<(), Fault> {
    // Its length and last ID; later ones also the first and the highest deleted one, and how many
    // entries were added.
    for _ in 0..if kind == 15 { 3 } else { 8 } {
        reader.length()?;
    }
    each(reader, |reader| {
        reader.pass_string()?;
        for _ in 0..if kind == 15 { 2 } else { 3 } {
            reader.length()?;
        }
        each(reader, |reader| {
            reader.pass(16 + 8)?;
            reader.length().map(|_| ())
        })?;
        each(reader, |reader| {
            reader.pass_string()?;
            reader.pass(if kind == 21 { 16 } else { 8 })?;
            each(reader, |reader| reader.pass(16))
        })
    })
}

/// Reads what a module has written: parts behind their kinds, and 0.
pub(super) fn pass_module<R: Read>(reader: &mut Reader<R>) -> Result<(), Fault> {
    loop {
        match reader.length()? {
            0 => return Ok(()),
            1 | 2 => {
                reader.length()?;
            }
            3 => reader.pass(4)?,
            4 => reader.pass(8)?,
            5 => reader.pass_string()?,
            _ => return Err(reader.damaged("a part of a module's value of no known kind")),
        }
    }
}
