//! Strings whose bytes lie in rows of their own, in pieces (`data/piece_head.rs`, decision 105): a
//! change in the middle or at the end of a long string writes a piece and the head, and not all of
//! it.
//!
//! What holds for large collections holds for them: whoever changes a piece writes the head, so
//! what a command has read is one state if the head is unchanged at its commit. `Context::find`
//! reads such a string whole ([`super::piece_reads`]), and commands see it as any other one; those
//! that need or change a part of it use [`Context::find_partly`].

use super::edition::Edition;
use crate::context::{Context, Former, Found, Run};
use crate::data::elements::piece_key;
use crate::data::keyspace::{RowError, Times, ValueType};
use crate::data::piece_head::{PIECE_BYTES_MAX, PieceHead};
use crate::data::tree_head::TreeHead;

/// How many times as long as a packed collection may be a string is that lies in its row although
/// a part of it is changed: such a change then writes twenty pieces' worth.
const WHOLE: u64 = 8;
/// Most pieces of a string: as many as the longest has, if they are not very short.
const PIECES_MAX: u64 = 20_000;

impl PieceHead {
    /// Returns it as the head of a collection, for what reads rows.
    pub(super) fn as_tree(&self) -> TreeHead {
        TreeHead {
            edition: self.edition,
            count: u64::from(self.length),
            ..TreeHead::new(self.id)
        }
    }
}

impl Context<'_> {
    /// Returns true if a string of `length` bytes, of which so many are written now, is better kept
    /// in pieces than in its row.
    pub(crate) fn wants_pieces(&self, length: u64, written: u64) -> bool {
        let from = self.shared.settings.packed_bytes_max() * WHOLE;
        let is_part = written > 0 && written * 2 <= length;
        is_part && length >= from && self.fits_pieces(length, self.piece_bytes())
    }

    /// Returns true if a string of `length` bytes may lie in pieces of so many: many commands have
    /// to read it whole, and to cut it takes one batch.
    pub(crate) fn fits_pieces(&self, length: u64, piece: u32) -> bool {
        let most = self.engine().piece_string_bytes_max;
        length <= most && length <= PIECES_MAX * u64::from(piece)
    }

    /// Returns the length of the pieces that a string is cut into.
    fn piece_bytes(&self) -> u32 {
        let bytes = self.shared.settings.packed_bytes_max();
        u32::try_from(bytes).map_or(PIECE_BYTES_MAX, |bytes| bytes.clamp(1, PIECE_BYTES_MAX))
    }

    /// Writes `new` at `offset` of the string in pieces that `found` describes, which was read
    /// last, whole or partly. It may become longer by that; a gap is zeros.
    pub(crate) fn write_pieces(
        &mut self,
        key: &[u8],
        (found, head): (&Found, &PieceHead),
        new: (u64, &[u8]),
    ) -> Run {
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        let mut head = *head;
        self.put_pieces(&mut head, new, &mut edition)?;
        head.edition = edition.finish();
        self.put_piece_head(key, &head, found.deadline(), found.former.but_tree())
    }

    /// Writes the string that `found` describes, which is in its row and was read last, in pieces,
    /// with `new` at `offset`.
    pub(crate) fn put_new_pieces(&mut self, key: &[u8], found: &Found, new: (u64, &[u8])) -> Run {
        self.make_members()?;
        let old = match found.row {
            Some(row) => self.payload(row).to_vec(),
            None => Vec::new(),
        };
        let mut head = PieceHead {
            id: self.database().members.new_id(),
            edition: 0,
            length: u32::try_from(old.len()).expect("strings are shorter"),
            piece: self.piece_bytes(),
            count: 0,
        };
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        for (number, row) in (0..).zip(old.chunks(head.piece as usize)) {
            // What has no piece is zeros. Those with new bytes are written again below, so there
            // is one.
            if row.iter().any(|byte| *byte != 0) {
                self.put_piece(&head, number, row, &mut edition)?;
                head.count += 1;
            }
        }
        self.put_pieces(&mut head, new, &mut edition)?;
        head.edition = edition.finish();
        self.put_piece_head(key, &head, found.deadline(), found.former)
    }

    /// Returns true if this value, whose deadline is moved, is better kept in one piece than in its
    /// row: it is a string that does not fit into a leaf.
    pub(crate) fn is_better_in_one_piece(&self, (value_type, string): (ValueType, &[u8])) -> bool {
        let length = string.len() as u64;
        value_type == ValueType::String
            && length > self.shared.settings.packed_bytes_max()
            && length <= self.engine().piece_string_bytes_max
    }

    /// Writes a string that lay in its row in one piece, so that its next deadline writes the head
    /// alone.
    pub(crate) fn put_in_one_piece(
        &mut self,
        key: &[u8],
        string: &[u8],
        times: Times,
        former: Former,
    ) -> Run {
        self.make_members()?;
        let length = u32::try_from(string.len()).expect("strings are shorter");
        let mut head = PieceHead {
            id: self.database().members.new_id(),
            edition: 0,
            length,
            piece: length,
            count: 1,
        };
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        self.put_piece(&head, 0, string, &mut edition)?;
        head.edition = edition.finish();
        self.put_piece_head(key, &head, times.deadline, former)
    }

    /// Writes the pieces that have the bytes `new` from `offset` on.
    fn put_pieces(
        &mut self,
        head: &mut PieceHead,
        (offset, new): (u64, &[u8]),
        edition: &mut Edition,
    ) -> Run {
        let within = |place: u64| usize::try_from(place).expect("it is in memory");
        let end = offset + new.len() as u64;
        for number in head.pieces(&(offset..end)) {
            let places = head.places(number);
            let part = offset.max(places.start)..end.min(places.end);
            let is_there = self.read_piece(head, number)?;
            head.count += u32::from(!is_there);
            let mut row = std::mem::take(&mut self.data().scratch.element_row);
            let to = within(part.start - places.start)..within(part.end - places.start);
            if row.len() < to.end {
                row.resize(to.end, 0);
            }
            row[to].copy_from_slice(&new[within(part.start - offset)..within(part.end - offset)]);
            let put = self.put_piece(head, number, &row, edition);
            self.data().scratch.element_row = row;
            put?;
        }
        let end = u32::try_from(end).expect("strings are shorter");
        head.length = head.length.max(end);
        match head.has_place_for_pieces() {
            true => Ok(()),
            false => Err(RowError::Damaged.into()),
        }
    }

    pub(super) fn put_piece(
        &mut self,
        head: &PieceHead,
        number: u64,
        row: &[u8],
        edition: &mut Edition,
    ) -> Run {
        let key = piece_key(head.id, number);
        edition.add(&key, Some(row));
        let members = self.members()?;
        Ok(self.batch()?.put(members, &key, row)?)
    }

    /// Writes the row of the key of a string in pieces.
    pub(crate) fn put_piece_head(
        &mut self,
        key: &[u8],
        head: &PieceHead,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        let mut payload = Vec::new();
        head.encode(&mut payload);
        self.put_row(
            key,
            (ValueType::Pieces, &payload),
            Times::of(deadline),
            former,
        )
    }
}
