//! How elements of a list are cut into blocks (`data/list_block.rs`), and which blocks are joined.

use std::ops::Range;

use crate::data::list_block::{self, Block};
use crate::data::packed::Strings;

/// A block of fewer bytes is joined to a neighbour.
const SMALL_BYTES: usize = list_block::BYTES_MAX / 4;
/// Most bytes of a block that was joined: it has room for further elements.
const JOINED_BYTES: usize = list_block::BYTES_MAX / 4 * 3;
/// Most elements of a block that was joined.
const JOINED_ELEMENTS: usize = list_block::ELEMENTS_MAX / 4 * 3;

/// Where the elements go for which a section has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Before it: it begins the list, and something was put there.
    Before,
    /// Behind it: it ends the list.
    Behind,
    /// Behind it, and before the next block.
    Between,
}

/// Returns true if neighbours have so few short elements, and bytes of them, where they meet that
/// these are to share a block.
pub(super) fn are_small(one: (usize, usize), other: (usize, usize)) -> bool {
    one.0.min(other.0) > 0
        && one.0 + other.0 <= JOINED_ELEMENTS
        && one.1.min(other.1) < SMALL_BYTES
        && one.1 + other.1 <= JOINED_BYTES
}

/// Returns how many short elements come before the first long one, and the bytes that they take in
/// a block; no more than are needed to see that they are too many.
pub(super) fn short_ones(strings: &Strings, places: impl Iterator<Item = usize>) -> (usize, usize) {
    let (mut elements, mut bytes) = (0, 0);
    for element in places.map(|place| strings.at(place)) {
        if list_block::is_long(element.len()) || bytes > JOINED_BYTES {
            break;
        }
        elements += 1;
        bytes += list_block::bytes_of(element);
    }
    (elements, bytes)
}

/// How elements are cut into those of single blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// From the end on: the first block has the room that is left.
    from_end: bool,
    /// A block with so many elements, or bytes of them, gets no more.
    enough: (usize, usize),
}

impl Cut {
    /// Blocks that are full, but for the last one.
    pub(super) const FULL: Self = Self {
        from_end: false,
        enough: (usize::MAX, usize::MAX),
    };

    /// For what goes where `overflow` says: between others, all blocks get the same room.
    pub(super) fn of(overflow: Overflow, strings: &Strings, places: Range<usize>) -> Self {
        let elements = places.len();
        let elements_of = places.map(|place| strings.at(place));
        let short = elements_of.filter(|of| !list_block::is_long(of.len()));
        let bytes = short.map(list_block::bytes_of).sum::<usize>();
        let enough = match overflow {
            Overflow::Between => list_block::share_of(elements, bytes),
            Overflow::Before | Overflow::Behind => Self::FULL.enough,
        };
        let from_end = overflow == Overflow::Before;
        Self { from_end, enough }
    }

    /// Returns the places of the elements of each block if those of `strings` at `places` are cut
    /// between others.
    pub(super) fn even(strings: &Strings, places: Range<usize>) -> Vec<Range<usize>> {
        Self::of(Overflow::Between, strings, places.clone()).blocks(strings, places)
    }

    /// Returns the places of the elements of each block.
    pub(super) fn blocks(self, strings: &Strings, places: Range<usize>) -> Vec<Range<usize>> {
        let mut blocks: Vec<Range<usize>> = Vec::new();
        // Bytes of the last block; `None` if it gets no more elements.
        let mut open: Option<usize> = None;
        for number in 0..places.len() {
            let place = match self.from_end {
                false => places.start + number,
                true => places.end - 1 - number,
            };
            let element = strings.at(place);
            let added = list_block::bytes_of(element);
            if list_block::is_long(element.len()) {
                blocks.push(place..place + 1);
                open = None;
                continue;
            }
            if let (Some(bytes), Some(last)) = (open, blocks.last_mut())
                && list_block::fits(last.len() + 1, bytes + added)
                && last.len() < self.enough.0
                && bytes < self.enough.1
            {
                (last.start, last.end) = (last.start.min(place), last.end.max(place + 1));
                open = Some(bytes + added);
                continue;
            }
            blocks.push(place..place + 1);
            open = Some(added);
        }
        if self.from_end {
            blocks.reverse();
        }
        blocks
    }
}

/// Replaces `row` by the block of the elements at these places, which fit, or by the row of the
/// long one there.
pub(super) fn block_row((strings, places): (&Strings, Range<usize>), row: &mut Vec<u8>) {
    let first = strings.at(places.start);
    if list_block::is_long(first.len()) {
        return list_block::encode_long(first, row);
    }
    let mut block = Block::default();
    block.clear();
    places.for_each(|place| block.push(strings.at(place)));
    row.clear();
    row.extend_from_slice(block.full_row());
}
