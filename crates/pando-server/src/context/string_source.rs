//! The bytes of a string in chunks on their way out, with its patches over them (decision 107).

use std::ops::Range;
use std::task::Waker;

use pando_sync::Arc;
use pandodb::ValueStream;
use pandodb::nonblocking::ValueSource;

use crate::data::patches::Patches;

/// Bytes that are put together at once where patches lie: a socket takes them with one call.
const TOGETHER: usize = 16 << 10;

/// A part of a string on its way out, as it was when it was opened.
#[derive(Debug)]
pub(crate) struct StringSource {
    chunks: ValueSource,
    /// Place in the string of the next byte that is taken from `chunks`.
    place: u64,
    patches: Option<Arc<Patches>>,
    /// Bytes that were put together, of which `sent` were consumed.
    together: Vec<u8>,
    sent: usize,
}

impl StringSource {
    /// Makes the source of the bytes at `range` of the string, which lies behind the head of
    /// `stream`, with those of `patches` over them.
    pub(crate) fn new(
        stream: ValueStream,
        range: &Range<u64>,
        patches: Option<Arc<Patches>>,
    ) -> Self {
        let head = stream.head().len() as u64;
        Self {
            chunks: ValueSource::new(stream, head + range.start..head + range.end),
            place: range.start,
            patches: patches.filter(|patches| patches.len() > 0),
            together: Vec::new(),
            sent: 0,
        }
    }

    /// Number of bytes still to come.
    pub(crate) fn left(&self) -> u64 {
        self.chunks.left() + (self.together.len() - self.sent) as u64
    }

    /// Returns the next bytes that are in memory. If it returns none although some are left,
    /// `waker` is woken when there are.
    pub(crate) fn piece(&mut self, waker: &Waker) -> pandodb::Result<&[u8]> {
        if self.sent < self.together.len() {
            return Ok(&self.together[self.sent..]);
        }
        self.together.clear();
        self.sent = 0;
        let Some(patches) = self.patches.clone() else {
            return self.chunks.piece(waker);
        };
        let next = patches.get(patches.first_from(self.place));
        let next = next.map_or(u64::MAX, |(start, _)| start);
        let before = next.saturating_sub(self.place);
        if before >= TOGETHER as u64 {
            let piece = self.chunks.piece(waker)?;
            return Ok(&piece[..within(before).min(piece.len())]);
        }
        self.put_together(&patches, waker)?;
        Ok(&self.together)
    }

    /// Puts the next bytes together, as many as are in memory.
    fn put_together(&mut self, patches: &Patches, waker: &Waker) -> pandodb::Result<()> {
        let mut index = patches.first_from(self.place);
        while self.chunks.left() > 0 && self.together.len() < TOGETHER {
            let (start, patch) = patches.get(index).unwrap_or((u64::MAX, &[]));
            let count = if start <= self.place {
                index += 1;
                let rest = &patch[within(self.place - start)..];
                let count = within(self.chunks.left()).min(rest.len());
                self.together.extend_from_slice(&rest[..count]);
                count
            } else {
                let piece = self.chunks.piece(waker)?;
                let room = TOGETHER - self.together.len();
                let count = piece.len().min(within(start - self.place)).min(room);
                self.together.extend_from_slice(&piece[..count]);
                count
            };
            if count == 0 {
                break;
            }
            self.chunks.consume(count);
            self.place += count as u64;
        }
        Ok(())
    }

    /// Consumes `count` bytes of the last piece.
    pub(crate) fn consume(&mut self, count: usize) {
        if self.together.is_empty() {
            self.chunks.consume(count);
            self.place += count as u64;
            return;
        }
        self.sent += count;
        assert!(self.sent <= self.together.len(), "only what was there");
    }

    /// Returns the stream that it reads, with the chunk that it has read last, if there is one.
    pub(crate) fn into_stream(self) -> Option<ValueStream> {
        self.chunks.into_stream()
    }
}

fn within(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
