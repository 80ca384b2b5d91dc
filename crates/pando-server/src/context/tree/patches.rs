//! Patches of strings in chunks (`data/piece_head.rs`, decision 107): a change of a few bytes
//! writes those around them to a row that lies over the chunk, and not the chunk.
//!
//! As with strings in pieces ([`super::pieces`]) whoever changes a patch writes the head, so what a
//! command has read is one state if the head is unchanged at its commit. A chunk that has many
//! patches is *folded*: it is written with them in it, and they go. So it is with any chunk when
//! the string has as many patches as whoever reads it whole can keep in memory.

use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::LargeValue;
use pandodb::nonblocking::{EditOld, NewBytes, Polled};

use super::edition::Edition;
use super::source::Source;
use crate::context::parts::Gathered;
use crate::context::{Chunked, Context, Data, Former, Found, Interrupted, NewString, Run};
use crate::data::elements::{START_BYTES, piece_key, piece_number};
use crate::data::keyspace::RowError;
use crate::data::patches::Patches;
use crate::data::piece_head::{PATCH_BYTES, PieceHead};

/// Most bytes that one command writes to patches; more are better written to the chunk.
const WRITTEN_MAX: u64 = 64 * PATCH_BYTES as u64;
/// The part of a chunk of which more is better written to it.
const WRITTEN_OF_CHUNK: u64 = 8;
/// What a patch takes in the memory of who reads the string whole, with all that belongs to it.
const PATCH_MEMORY: u64 = 2 * PATCH_BYTES as u64;
/// The part of a chunk of which more is not covered by patches.
const COVERED_MOST: u64 = 4;
/// The patches of a chunk are counted each time that it has got so many more, by chance.
const COUNTED_AT: u64 = 16;

/// A chunk that is written with its patches in it.
struct Fold {
    places: Range<u64>,
    patches: Arc<Patches>,
}

/// Returns `place` as an index of bytes in memory.
fn within(place: u64) -> usize {
    usize::try_from(place).expect("it is in memory")
}

/// Copies `new`, which begins at `offset` of the string, into `bytes`, which have `places` of it,
/// as far as it lies there.
fn lay_over(bytes: &mut [u8], places: &Range<u64>, (offset, new): (u64, &[u8])) {
    super::kept_pieces::place_piece(bytes, places, offset, new);
}

impl PieceHead {
    /// Returns the number of the patch that begins at `place`.
    fn number_at(&self, place: u64) -> u64 {
        place / u64::from(self.piece)
    }

    /// Returns it for a row: `None` once no patch is left.
    fn if_any(&self) -> Option<&Self> {
        (self.count > 0).then_some(self)
    }
}

impl Context<'_> {
    /// Returns true if so many bytes at `offset` of a string in chunks are better written to
    /// patches.
    pub(crate) fn wants_patches(&self, chunked: &Chunked, offset: u64, written: u64) -> bool {
        if written == 0 || offset + written > chunked.len() {
            return false;
        }
        let places = chunked.stream.chunk_at(offset);
        written <= WRITTEN_MAX.min((places.end - places.start) / WRITTEN_OF_CHUNK)
    }

    /// Returns how many patches a string may have.
    fn patches_max(&self) -> u64 {
        self.engine().piece_string_bytes_max / PATCH_MEMORY
    }

    /// Writes `new` at `offset` of the string in chunks that `found` describes, which was read last
    /// and has all these bytes.
    pub(crate) fn write_patches(
        &mut self,
        key: &[u8],
        (found, chunked): (&Found, &Chunked),
        new: (u64, &[u8]),
    ) -> Run {
        let mut head = match chunked.patches {
            Some(head) => head,
            None => self.new_patch_head(chunked)?,
        };
        let written = new.0..new.0 + new.1.len() as u64;
        let numbers = head.pieces(&written);
        let there = self.patches_at(chunked, &written)?;
        let there = there.unwrap_or_default();
        let more = numbers.end - numbers.start - there.len() as u64;
        let is_full = u64::from(head.count) + more > self.patches_max();
        let fold = self.chunk_to_fold(chunked, &head, (&written, more, is_full))?;
        let fewer = fold.as_ref().map_or(0, |fold| fold.patches.len() as u64);
        if is_full && fewer < more {
            return self.write_chunks(key, found, (new.0, NewString::Bytes(new.1)));
        }
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        // All that is read comes before what is written.
        let length = u64::from(head.length);
        let places = head.places(numbers.start).start..head.places(numbers.end - 1).end.min(length);
        let mut bytes = match places == written {
            true => vec![0; new.1.len()],
            false => self.bytes_of(key, chunked, places.clone())?,
        };
        lay_over(&mut bytes, &places, new);
        let value = match &fold {
            Some(fold) => self.folded(key, chunked, fold, new)?,
            None => self.same_chunks(key, chunked)?,
        };
        let folded = fold.as_ref().map_or(0..0, |fold| fold.places.clone());
        if let Some(fold) = &fold {
            self.remove_patches(&mut head, &fold.patches, &mut edition)?;
        }
        for number in numbers {
            let of_it = head.places(number);
            if folded.contains(&of_it.start) {
                continue;
            }
            head.count += u32::from(!there.begins_at(of_it.start));
            let row =
                within(of_it.start - places.start)..within(of_it.end.min(length) - places.start);
            self.put_piece(&head, number, &bytes[row], &mut edition)?;
        }
        head.edition = edition.finish();
        self.put_patched(key, found, (&value, &head))
    }

    /// Returns the head of a string in chunks that gets its first patch.
    fn new_patch_head(&mut self, chunked: &Chunked) -> Result<PieceHead, Interrupted> {
        self.make_members()?;
        Ok(PieceHead {
            id: self.database().members.new_id(),
            edition: 0,
            length: u32::try_from(chunked.len()).expect("strings are shorter"),
            piece: PATCH_BYTES,
            count: 0,
        })
    }

    /// Returns the bytes at `range` of a string in chunks, patches included.
    fn bytes_of(
        &mut self,
        key: &[u8],
        chunked: &Chunked,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Interrupted> {
        let mut add = |gathered: &mut Gathered, _, piece: &[u8]| {
            gathered.bytes.extend_from_slice(piece);
            false
        };
        Ok(self.gather_chunked(key, chunked, range, &mut add)?.bytes)
    }

    /// Returns the value that has the chunks which the key has.
    fn same_chunks(&mut self, key: &[u8], chunked: &Chunked) -> Result<LargeValue, Interrupted> {
        match chunked.stream.with_head(Vec::new()) {
            Ok(value) => Ok(value),
            // Of a value of a kept checkpoint an edit copies all chunks.
            Err(pandodb::Error::SnapshotEnded) => {
                let old = EditOld::Large(chunked.stream.reopen());
                self.made(key, old, (chunked.len(), NewBytes::Bytes(Vec::new())), None)
            }
            Err(error) => Err(Interrupted::Engine(error)),
        }
    }

    /// Returns the chunk that is to be folded by a command that writes `written`, if one is: any
    /// one if the string has as many patches as it may have. Another run of the command finds the
    /// same one, as the head says which.
    fn chunk_to_fold(
        &mut self,
        chunked: &Chunked,
        head: &PieceHead,
        (written, more, is_full): (&Range<u64>, u64, bool),
    ) -> Result<Option<Fold>, Interrupted> {
        let place = if is_full {
            // Where chance leads to there are as many patches as elsewhere, or more.
            let count = u64::from(head.length.div_ceil(head.piece));
            let number = self.patch_behind(head, head.edition % count)?;
            head.places(number).start
        } else if head.count > 0 && head.edition % COUNTED_AT < more {
            written.start
        } else {
            return Ok(None);
        };
        let places = chunked.stream.chunk_at(place);
        let patches = self.patches_at(chunked, &places)?.unwrap_or_default();
        let covered = patches.len() as u64 * u64::from(head.piece);
        let is_covered = covered * COVERED_MOST > places.end - places.start;
        Ok((is_full || is_covered).then_some(Fold { places, patches }))
    }

    /// Returns the number of the first patch from `number` on, or else from the beginning on.
    fn patch_behind(&mut self, head: &PieceHead, number: u64) -> Result<u64, Interrupted> {
        let members = self.members()?;
        let last = piece_key(head.id, u64::from(u32::MAX));
        for from in [piece_key(head.id, number), piece_key(head.id, 0)] {
            let mut from = from.to_vec();
            loop {
                let Data { batch, scratch, .. } = self.data();
                let mut source = Source::new(batch.as_deref_mut());
                let page = &mut scratch.page;
                let bounds = (Bound::Included(&from[..]), Bound::Included(&last[..]));
                let scanned = source.scan(members, (bounds, false), usize::MAX, page)?;
                if let Polled::Pending(pending) = scanned {
                    return Err(Interrupted::Pending(pending));
                }
                if !page.is_empty() {
                    let (key, _) = page.entry(0);
                    if key <= &last[..] {
                        let number = key.get(START_BYTES..).and_then(piece_number);
                        let count = u64::from(head.length.div_ceil(head.piece));
                        let number = number.filter(|number| *number < count);
                        return Ok(number.ok_or(RowError::Damaged)?);
                    }
                    break;
                }
                match page.next.take().filter(|next| next[..] <= last[..]) {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        // There are some, says the head, unless there is another one by now.
        Err(Interrupted::Torn)
    }

    /// Returns the string with a chunk that has its patches in it, and the new bytes as far as they
    /// lie there.
    fn folded(
        &mut self,
        key: &[u8],
        chunked: &Chunked,
        fold: &Fold,
        new: (u64, &[u8]),
    ) -> Result<LargeValue, Interrupted> {
        let mut bytes = self.bytes_of(key, chunked, fold.places.clone())?;
        lay_over(&mut bytes, &fold.places, new);
        let old = EditOld::Large(chunked.stream.reopen());
        let new = (fold.places.start, NewBytes::Bytes(bytes));
        self.made(key, old, new, None)
    }

    /// Removes the rows of `patches`.
    fn remove_patches(
        &mut self,
        head: &mut PieceHead,
        patches: &Patches,
        edition: &mut Edition,
    ) -> Run {
        let members = self.members()?;
        for (place, _) in patches.iter() {
            let row = piece_key(head.id, head.number_at(place));
            edition.add(&row, None);
            self.batch()?.delete(members, &row);
            // The rows may be those of a newer head.
            head.count = head.count.checked_sub(1).ok_or(Interrupted::Torn)?;
        }
        Ok(())
    }

    /// Writes the row of a string in chunks whose patches have changed. If none is left there is
    /// nothing to give up: their rows are gone.
    fn put_patched(
        &mut self,
        key: &[u8],
        found: &Found,
        (value, head): (&LargeValue, &PieceHead),
    ) -> Run {
        let times = (found.deadline(), found.former.but_tree());
        self.put_with_head(key, head.if_any(), times, |head| value.with_head(head))
    }

    /// Writes `new` at `offset` of the string in chunks that `found` describes, which was read
    /// last, to its chunks. It may become longer by that; a gap is zeros.
    pub(crate) fn write_chunks(
        &mut self,
        key: &[u8],
        found: &Found,
        (offset, new): (u64, NewString<'_>),
    ) -> Run {
        let written = offset..offset + new.len();
        if let Some(under) = self.fold_ends(key, found, &written)? {
            // What is in its part now is all or nothing.
            return self.write_chunks(key, &under, (offset, new));
        }
        let value = self.spliced(key, found, offset, new)?;
        let chunked = found.large.as_deref();
        let Some((chunked, mut head)) = chunked.and_then(|of| Some((of, of.patches?))) else {
            return self.put(
                key,
                NewString::Large(&value),
                found.deadline(),
                found.former,
            );
        };
        let range = offset.min(chunked.len())..written.end.min(chunked.len());
        let patches = self.patches_at(chunked, &range)?.unwrap_or_default();
        // One that was the last of a shorter string may end before the range begins.
        let patches = patches.within(&range);
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        edition.add(
            &written.start.to_be_bytes(),
            Some(&written.end.to_be_bytes()),
        );
        self.remove_patches(&mut head, &patches, &mut edition)?;
        head.length = u32::try_from(value.len()).expect("strings are shorter");
        head.edition = edition.finish();
        self.put_patched(key, found, (&value, &head))
    }

    /// Writes a patch of which only a part is in `written` to its chunk, as that range is going to
    /// be. Returns what the key has then; `None` if there is no such patch.
    fn fold_ends(
        &mut self,
        key: &[u8],
        found: &Found,
        written: &Range<u64>,
    ) -> Result<Option<Found>, Interrupted> {
        let Some(chunked) = found.large.as_deref() else {
            return Ok(None);
        };
        let Some(mut head) = chunked.patches else {
            return Ok(None);
        };
        let length = chunked.len();
        let range = written.start.min(length)..written.end.min(length);
        let patches = self.patches_at(chunked, &range)?.unwrap_or_default();
        let is_part = |(place, bytes): &(u64, &[u8])| {
            let end = place + bytes.len() as u64;
            let has_some = *place < range.end && range.start < end;
            has_some && (*place < range.start || range.end < end)
        };
        let Some((place, bytes)) = patches.iter().find(is_part) else {
            return Ok(None);
        };
        let old = EditOld::Large(chunked.stream.reopen());
        let value = self.made(key, old, (place, NewBytes::Bytes(bytes.to_vec())), None)?;
        let mut one = Patches::default();
        one.push(place, bytes);
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        self.remove_patches(&mut head, &one, &mut edition)?;
        head.edition = edition.finish();
        self.put_patched(key, found, (&value, &head))?;
        self.find_partly(key).map(Some)
    }

    /// Writes a copy of a string in chunks that has `patches` at `key`.
    pub(crate) fn put_patched_copy(
        &mut self,
        key: &[u8],
        (chunked, patches): (&Chunked, &Patches),
        times: (Option<u64>, Former),
    ) -> Run {
        let value = self.copied(key, &chunked.stream)?;
        let mut head = self.new_patch_head(chunked)?;
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        for (place, row) in patches.iter() {
            self.put_piece(&head, head.number_at(place), row, &mut edition)?;
            head.count += 1;
        }
        head.edition = edition.finish();
        self.put_with_head(key, head.if_any(), times, |head| value.with_head(head))
    }
}
