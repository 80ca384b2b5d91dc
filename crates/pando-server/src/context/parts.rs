//! Parts of strings that a command reads itself, piece by piece. Those of strings in chunks take
//! several runs of the command.
//!
//! A command that is run again requests the same parts in the same order. What a part has gathered
//! is kept while its string stays the same: across waits, and across conflicts with writes to other
//! keys (as in [`super::edits`]).

use std::ops::Range;
use std::task::Waker;

use pando_sync::Arc;
use pandodb::ValueStream;
use pandodb::nonblocking::Fingerprint;

use super::string_source::StringSource;
use super::{Chunked, Interrupted};
use crate::data::patches::Patches;

/// What a command has made of the pieces of a part.
#[derive(Debug, Default, Clone)]
pub(crate) struct Gathered {
    /// A count or a place.
    pub(crate) number: u64,
    /// Bytes of the part.
    pub(crate) bytes: Vec<u8>,
}

/// Takes the piece of a string that begins at an offset. Returns true if it needs no more.
pub(crate) type Take<'t> = &'t mut dyn FnMut(&mut Gathered, u64, &[u8]) -> bool;

/// Parts of strings in chunks that the running command reads.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    list: Vec<Part>,
    /// Index of the next part that this run requests.
    next: usize,
    /// The string that the current run has read last, with a chunk in memory: commands that change
    /// a few bytes read those, and then what lies around them. One alone, and no longer than the
    /// run: who waits, be it for the room of a chunk, must not keep that of another one.
    last: Option<(Fingerprint, ValueStream)>,
    /// Number of parts that began again since their strings had changed, until it is taken.
    restarts: u32,
}

#[derive(Debug)]
struct Part {
    database: usize,
    key: Vec<u8>,
    /// As `exec_index` of the command, which tells what is gathered: another run of a script may
    /// call another command here.
    place: Option<usize>,
    /// Identifies the string, to detect that it has changed.
    string: Option<Fingerprint>,
    /// What lies over its part.
    patches: Option<Arc<Patches>>,
    range: Range<u64>,
    /// `None` once it needs no more.
    source: Option<StringSource>,
    gathered: Gathered,
}

impl Parts {
    /// True if no run of the command has requested a part.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Begins another run of the command, from its first part.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
        self.last = None;
    }

    /// Gives back what only the run that ends needs: its commit may wait for others.
    pub(crate) fn end_run(&mut self) {
        self.last = None;
    }

    /// Returns the place of the next part, for [`Parts::rewind_to`].
    #[cfg(feature = "scripts")]
    pub(crate) fn place(&self) -> usize {
        self.next
    }

    /// As [`Parts::rewind`], for a run that goes on at `place`.
    #[cfg(feature = "scripts")]
    pub(crate) fn rewind_to(&mut self, place: usize) {
        self.next = place;
        self.last = None;
    }

    /// Bytes that the parts which this run has requested hold.
    pub(crate) fn held(&self) -> u64 {
        let parts = self.list.iter().take(self.next);
        parts.map(|part| part.gathered.bytes.len() as u64).sum()
    }

    /// Bytes of memory that all parts have gathered, those of earlier runs, too.
    pub(crate) fn memory(&self) -> usize {
        let gathered = self.list.iter().map(|part| part.gathered.bytes.capacity());
        gathered.sum()
    }

    /// Takes the number of parts that began again.
    pub(crate) fn take_restarts(&mut self) -> u32 {
        std::mem::take(&mut self.restarts)
    }

    /// Returns what `take` gathers of the bytes of `chunked` at `range`, over which `patches` lie,
    /// once it has them; until then the command waits.
    pub(crate) fn gather(
        &mut self,
        (database, key, in_exec): (usize, &[u8], Option<usize>),
        (chunked, patches, range): (&Chunked, Option<Arc<Patches>>, Range<u64>),
        waker: &Waker,
        take: Take<'_>,
    ) -> Result<&Gathered, Interrupted> {
        let place = self.next;
        self.next += 1;
        let string = chunked.stream.fingerprint();
        let is_same = |part: &Part| {
            (part.database, part.key.as_slice(), part.place) == (database, key, in_exec)
                && part.range == range
                && part.string == string
                && part.patches == patches
        };
        if !self.list.get(place).is_some_and(is_same) {
            let is_of_it = |part: &Part| part.key == key && part.range == range;
            self.restarts += u32::from(self.list.get(place).is_some_and(is_of_it));
            self.list.truncate(place);
            let last = self.last.take();
            let last = last.filter(|(last, _)| string.as_ref() == Some(last));
            let stream = last.map_or_else(|| chunked.stream.reopen(), |(_, stream)| stream);
            self.list.push(Part {
                database,
                key: key.to_vec(),
                place: in_exec,
                string,
                patches: patches.clone(),
                source: Some(StringSource::new(stream, &range, patches)),
                range,
                gathered: Gathered::default(),
            });
        }
        let part = &mut self.list[place];
        while let Some(source) = part.source.as_mut().filter(|source| source.left() > 0) {
            let offset = part.range.end - source.left();
            let piece = source.piece(waker)?;
            if piece.is_empty() {
                return Err(Interrupted::Wait);
            }
            let count = piece.len();
            let is_enough = take(&mut part.gathered, offset, piece);
            source.consume(count);
            if is_enough {
                break;
            }
        }
        let stream = part.source.take().and_then(StringSource::into_stream);
        if let (Some(string), Some(stream)) = (&part.string, stream) {
            self.last = Some((string.clone(), stream));
        }
        Ok(&part.gathered)
    }
}
