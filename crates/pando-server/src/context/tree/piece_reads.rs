//! Reading the pieces of a string, in turns of the command.
//!
//! What was read is kept for the next run of the command, by the head, as what is loaded of
//! collections; but strings that a command has already read are no longer kept once they have 16
//! MiB together, and then are read again by each run.

use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::{Pending, Polled, Reads};

use super::kept_pieces::{Partial, Read, Reading, Wanted};
use super::source::Source;
use crate::context::{Chunked, Context, Data, Interrupted, Run};
use crate::data::elements::{START_BYTES, piece_key, piece_number};
use crate::data::keyspace::{Row, RowError};
use crate::data::patches::Patches;
use crate::data::piece_head::PieceHead;

/// Leaves that are read before others get a turn.
const LEAVES_PER_TURN: usize = 256;
/// Pieces that are looked for behind one whose page is missing.
const PIECES_AHEAD: u64 = 256;

impl Context<'_> {
    /// Returns the bytes at `range` of the string with this head, whose row was read last; `range`
    /// must be within it.
    pub(crate) fn bytes_in_pieces(
        &mut self,
        head: &PieceHead,
        range: &Range<u64>,
    ) -> Result<Arc<Vec<u8>>, Interrupted> {
        let length = usize::try_from(range.end - range.start).expect("strings fit into memory");
        let pieces = head.pieces(range);
        let mut reading = Reading::Bytes(vec![0; length]);
        let read = if pieces.end - pieces.start > 1 {
            self.many_pieces(head, range, reading)?
        } else {
            if !pieces.is_empty() {
                let read = self.read_piece(head, pieces.start);
                if self.confirmed(head.as_tree(), read)? {
                    let row = &self.data().scratch.element_row;
                    reading.take(range, &head.places(pieces.start), row)?;
                }
            }
            reading.finish()
        };
        match read {
            Read::Bytes(bytes) => Ok(bytes),
            Read::Patches(_) => Err(RowError::Damaged.into()),
        }
    }

    /// Reads the string with this head, which has one piece, into the scratch: behind the head of
    /// its row, which was read last.
    pub(crate) fn read_one_piece(&mut self, head: &PieceHead, row: Row) -> Run {
        let read = self.read_piece(head, 0);
        let is_there = self.confirmed(head.as_tree(), read)?;
        let scratch = &mut *self.data().scratch;
        if !is_there || scratch.element_row.len() != head.length as usize {
            return Err(RowError::Damaged.into());
        }
        scratch.value.truncate(row.payload);
        scratch.value.extend_from_slice(&scratch.element_row);
        Ok(())
    }

    /// Returns what lies over the bytes of `chunked` at `range`: all patches that have one of them,
    /// which may begin before it or end behind it.
    pub(crate) fn patches_at(
        &mut self,
        chunked: &Chunked,
        range: &Range<u64>,
    ) -> Result<Option<Arc<Patches>>, Interrupted> {
        let Some(head) = &chunked.patches else {
            return Ok(None);
        };
        let pieces = head.pieces(range);
        let mut reading = Reading::Patches(Patches::default());
        let read = if pieces.end - pieces.start > 1 {
            self.many_pieces(head, range, reading)?
        } else {
            // As in many_pieces.
            self.batch()?;
            if !pieces.is_empty() && self.read_piece(head, pieces.start)? {
                let row = &self.data().scratch.element_row;
                reading.take(range, &head.places(pieces.start), row)?;
            }
            reading.finish()
        };
        match read {
            Read::Patches(patches) => Ok(Some(patches)),
            Read::Bytes(_) => Err(RowError::Damaged.into()),
        }
    }

    /// Reads the pieces that have the bytes at `range`, in turns.
    fn many_pieces(
        &mut self,
        head: &PieceHead,
        range: &Range<u64>,
        reading: Reading,
    ) -> Result<Read, Interrupted> {
        let pieces = head.pieces(range);
        // What is not validated by itself belongs to the head, which the transaction has read.
        self.batch()?;
        let wanted = Wanted {
            database: self.session.database,
            last_swap: self.last_swap(),
            head: *head,
            range: range.clone(),
        };
        let reads = self.progress.strings.get_or_insert_default();
        if let Some((_, read)) = reads.done.iter().find(|(of, _)| *of == wanted) {
            return Ok(read.clone());
        }
        let partial = reads.partial.take();
        let is_other = |of: &Partial| of.wanted.head.id == head.id && of.wanted.head != *head;
        self.progress.restarts += u32::from(partial.as_ref().is_some_and(is_other));
        let mut partial = match partial {
            Some(partial) if partial.wanted == wanted => partial,
            _ => Partial {
                wanted,
                of_it: reading,
                from: piece_key(head.id, pieces.start).to_vec(),
                next: pieces.start,
                is_complete: false,
            },
        };
        let ended = self.read_pieces(&mut partial);
        let reads = self.progress.strings.get_or_insert_default();
        if let Err(interrupted) = ended {
            reads.partial = Some(partial);
            return Err(interrupted);
        }
        let read = partial.of_it.finish();
        reads.keep(partial.wanted, &read);
        Ok(read)
    }

    /// Reads on to the last piece.
    fn read_pieces(&mut self, partial: &mut Partial) -> Run {
        let members = self.members()?;
        let is_short = self.progress.strings.as_ref().is_some_and(|of| of.is_short);
        let mut leaves = 0;
        while !partial.is_complete {
            if leaves == LEAVES_PER_TURN && !is_short {
                return Err(Interrupted::Yield);
            }
            leaves += 1;
            if let Polled::Pending(pending) = self.read_leaf(members, partial)? {
                return Err(Interrupted::Pending(pending));
            }
        }
        Ok(())
    }

    /// Reads the pieces of one leaf. If it is missing, those behind it are requested, too.
    fn read_leaf(
        &mut self,
        members: &Table,
        partial: &mut Partial,
    ) -> Result<Polled<()>, Interrupted> {
        let (head, range) = (&partial.wanted.head, &partial.wanted.range);
        let behind = head.pieces(range).end;
        let to = piece_key(head.id, behind - 1);
        let Data { batch, scratch, .. } = self.data();
        let mut source = Source::new(batch.as_deref_mut());
        let page = &mut scratch.page;
        let bounds = (Bound::Included(&partial.from[..]), Bound::Included(&to[..]));
        if let Polled::Pending(mut pending) =
            source.scan(members, (bounds, false), usize::MAX, page)?
        {
            let row = &mut scratch.element_row;
            look_ahead(members, head, partial.next..behind, row, &mut pending)?;
            return Ok(Polled::Pending(pending));
        }
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            if key > &to[..] {
                break;
            }
            let number = key.get(START_BYTES..).and_then(piece_number);
            let number = number.ok_or(RowError::Damaged)?;
            // A piece is shorter than what does not lie in its leaf.
            let value = value.ok_or(RowError::Damaged)?;
            partial.of_it.take(range, &head.places(number), value)?;
            partial.next = number + 1;
        }
        match page.next.take().filter(|next| next[..] <= to[..]) {
            Some(next) => partial.from = next,
            None => partial.is_complete = true,
        }
        let shown_from = source.shown_from;
        self.progress.show_from(shown_from);
        Ok(Polled::Ready(()))
    }

    /// Reads a piece into the scratch; false if there is none, and then that is empty. Without a
    /// transaction the command begins again with one if a page is missing.
    pub(super) fn read_piece(
        &mut self,
        head: &PieceHead,
        number: u64,
    ) -> Result<bool, Interrupted> {
        let members = self.members()?;
        let Data { batch, scratch, .. } = self.data();
        let mut source = Source::new(batch.as_deref_mut());
        let row = &mut scratch.element_row;
        let found = source.get(members, &piece_key(head.id, number), row)?;
        let shown_from = source.shown_from;
        self.progress.show_from(shown_from);
        match found {
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
            Polled::Ready(found) => Ok(found),
        }
    }
}

/// Requests the pages of further pieces, which are read at the same time.
fn look_ahead(
    members: &Table,
    head: &PieceHead,
    numbers: Range<u64>,
    row: &mut Vec<u8>,
    pending: &mut Pending,
) -> Run {
    let end = numbers.end.min(numbers.start + PIECES_AHEAD);
    for number in numbers.start..end {
        let key = piece_key(head.id, number);
        if let Polled::Pending(other) = Reads::of(members).prefetch(&key, usize::MAX, row)? {
            pending.beside(other);
        }
    }
    Ok(())
}
