//! Blocks: the rows of a large list, in the table `db/N/members` (`data/elements.rs`). Each has
//! neighbouring elements, in their order:
//!
//! | bytes      | what                                                                        |
//! |------------|-----------------------------------------------------------------------------|
//! | 1          | `80` + number of elements, 1 to 127: the weight of the row (decision 117)    |
//! | rest       | the elements, each: varint of its length, its bytes                         |
//! | any        | zeros, so that a block that grows or shrinks often keeps its length; all of  |
//! |            | the row has 961 bytes at most                                               |
//!
//! A long element has a row of its own: `00`, and its bytes.

use pando_resp::Writer;

use super::keyspace::RowError;

/// Most elements of a block.
pub(crate) const ELEMENTS_MAX: usize = 127;
/// Most bytes of the elements of a block, with their lengths: four of them fill a leaf of 4 KiB.
pub(crate) const BYTES_MAX: usize = 960;
/// Elements of more bytes have rows of their own.
const SHORT_BYTES_MAX: usize = 256;
/// Most bytes of the row of a block.
const ROW_BYTES_MAX: usize = 1 + BYTES_MAX;
/// Least bytes of the row of a block at an end of a list.
const ROW_BYTES_MIN: usize = 64;
/// Before the number of elements.
const COUNTED: u8 = 0x80;
/// Before a long element.
const LONG: u8 = 0;

/// Returns true if an element of so many bytes has a row of its own.
pub(crate) fn is_long(bytes: usize) -> bool {
    bytes > SHORT_BYTES_MAX
}

/// Returns the number of bytes of a long element whose row has so many.
pub(crate) fn long_bytes(row: usize) -> usize {
    row.saturating_sub(1)
}

/// Returns the number of elements of a row, of which `value` is the value, if it lies in its leaf.
pub(crate) fn count_of(value: Option<&[u8]>) -> Result<usize, RowError> {
    match value.map(<[u8]>::first) {
        // Only a long element lies elsewhere.
        None | Some(Some(&LONG)) => Ok(1),
        Some(Some(&first)) if first > COUNTED => Ok(usize::from(first - COUNTED)),
        Some(_) => Err(RowError::Damaged),
    }
}

/// The elements of a row, which may be any bytes, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Elements<'r> {
    rest: &'r [u8],
    /// Number of elements that were not read yet.
    left: usize,
    is_long: bool,
}

impl<'r> Elements<'r> {
    pub(crate) fn of(row: &'r [u8]) -> Result<Self, RowError> {
        let left = count_of(Some(row))?;
        let (first, rest) = row.split_first().ok_or(RowError::Damaged)?;
        let is_long = *first == LONG;
        if !is_long && row.len() > ROW_BYTES_MAX {
            return Err(RowError::Damaged);
        }
        Ok(Self {
            rest,
            left,
            is_long,
        })
    }

    /// The element of a row of a list that is not in blocks.
    pub(crate) fn of_one(row: &'r [u8]) -> Result<Self, RowError> {
        let elements = Self::of(row)?;
        match elements.is_long {
            true => Ok(elements),
            false => Err(RowError::Damaged),
        }
    }

    /// Returns the number of elements that were not read yet.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Returns the bytes behind those elements that were read.
    pub(crate) fn bytes_left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the next element; `None` if there is none, and nothing but zeros behind it.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&'r [u8]>, RowError> {
        if self.left == 0 {
            return match is_zero(self.rest) {
                true => Ok(None),
                false => Err(RowError::Damaged),
            };
        }
        self.left -= 1;
        if self.is_long {
            return Ok(Some(std::mem::take(&mut self.rest)));
        }
        let (length, rest) = length_of(self.rest)
            .filter(|(length, _)| !is_long(*length))
            .ok_or(RowError::Damaged)?;
        let (element, rest) = rest.split_at_checked(length).ok_or(RowError::Damaged)?;
        self.rest = rest;
        Ok(Some(element))
    }

    /// Gives the next `count` elements to `show`.
    #[inline]
    pub(crate) fn take(
        &mut self,
        count: usize,
        mut show: impl FnMut(&'r [u8]),
    ) -> Result<(), RowError> {
        for _ in 0..count {
            show(self.next()?.ok_or(RowError::Damaged)?);
        }
        Ok(())
    }

    /// Writes the next `count` elements as strings.
    pub(crate) fn write(&mut self, count: usize, to: &mut Writer<'_>) -> Result<(), RowError> {
        let mut rest = self.clone();
        to.bulks(count, self.rest.len(), |bulks| {
            rest.take(count, |element| bulks.push(element))
        })?;
        *self = rest;
        Ok(())
    }

    /// Passes over so many elements.
    pub(crate) fn skip(&mut self, count: usize) -> Result<(), RowError> {
        if self.is_long || count > self.left {
            return self.take(count, |_| {});
        }
        let mut at = 0;
        for _ in 0..count {
            at += match self.rest.get(at) {
                // Most lengths take a byte.
                Some(length) if *length < COUNTED => 1 + usize::from(*length),
                _ => self
                    .rest
                    .get(at..)
                    .and_then(long_step)
                    .ok_or(RowError::Damaged)?,
            };
        }
        self.rest = self.rest.get(at..).ok_or(RowError::Damaged)?;
        self.left -= count;
        Ok(())
    }
}

/// Returns the bytes that the first of these elements takes, with its length.
fn long_step(elements: &[u8]) -> Option<usize> {
    let (length, rest) = length_of(elements).filter(|(length, _)| !is_long(*length))?;
    Some(elements.len() - rest.len() + length)
}

/// Returns true if all bytes of a part of the row of a block are zeros.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; ROW_BYTES_MAX] = [0; ROW_BYTES_MAX];
    // Compared at once: there may be hundreds.
    ZEROS.get(..bytes.len()) == Some(bytes)
}

/// Splits a length off: a varint of one or two bytes.
#[inline]
fn length_of(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < COUNTED {
        return Some((first.into(), rest));
    }
    let (&second, rest) = rest.split_first()?;
    // Short elements need no more, and no length has two forms.
    let is_one = (1..COUNTED).contains(&second);
    is_one.then(|| (usize::from(first & 0x7f) | usize::from(second) << 7, rest))
}

/// Returns true if a block may have so many short elements, which take so many bytes.
pub(crate) fn fits(elements: usize, bytes: usize) -> bool {
    elements <= ELEMENTS_MAX && bytes <= BYTES_MAX
}

/// Returns how many short elements, or how many bytes of them, fill one of several blocks that are
/// to have about the same room, if so many elements take so many bytes.
pub(crate) fn share_of(elements: usize, bytes: usize) -> (usize, usize) {
    let by_number = elements.div_ceil(ELEMENTS_MAX);
    let by_bytes = bytes.div_ceil(BYTES_MAX);
    // One of the two is enough: with both, what is left over would need a block more.
    match by_number > by_bytes {
        true => (elements.div_ceil(by_number), usize::MAX),
        false => (usize::MAX, bytes.div_ceil(by_bytes.max(1))),
    }
}

/// Returns the bytes that a short element takes in a block.
pub(crate) fn bytes_of(element: &[u8]) -> usize {
    element.len() + 1 + usize::from(element.len() >= COUNTED.into())
}

/// Returns the encoded length of a short element, and how many bytes it has.
fn encoded_length(element: &[u8]) -> ([u8; 2], usize) {
    let length = u16::try_from(element.len()).expect("a short element");
    let low = (length & 0x7f).to_le_bytes()[0];
    match length >> 7 {
        0 => ([low, 0], 1),
        high => ([low | COUNTED, high.to_le_bytes()[0]], 2),
    }
}

/// A block in memory, to be cleared or read first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    /// Its row.
    row: Vec<u8>,
    /// Bytes of the row before the zeros at the end.
    used: usize,
    /// Where the elements begin, as far as somebody has asked for the last one; else empty.
    starts: Vec<u16>,
}

impl Block {
    /// Becomes a block without elements.
    pub(crate) fn clear(&mut self) {
        self.row.clear();
        self.row.push(COUNTED);
        self.used = 1;
        self.starts.clear();
    }

    /// Becomes the block of a row, which may be any bytes. Returns false, and becomes one without
    /// elements, if that is a long element.
    pub(crate) fn read(&mut self, row: &[u8]) -> Result<bool, RowError> {
        self.clear();
        let mut elements = Elements::of(row)?;
        if elements.is_long {
            return Ok(false);
        }
        elements.skip(elements.left)?;
        let used = row.len() - elements.rest.len();
        elements.next()?;
        self.row.clear();
        self.row.extend_from_slice(row);
        self.set_used(used);
        Ok(true)
    }

    /// Sets the number of bytes in use. Those behind it are zeros, if there are any: the row has a
    /// power of two, so that it seldom gets longer.
    fn set_used(&mut self, used: usize) {
        self.used = used;
        let bytes = used.next_power_of_two().max(ROW_BYTES_MIN);
        self.row.resize(bytes.min(ROW_BYTES_MAX), 0);
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        let first = self.row.first().copied().unwrap_or(COUNTED);
        usize::from(first - COUNTED)
    }

    /// Returns its row, with room for further elements. A block without elements has none.
    pub(crate) fn row(&self) -> &[u8] {
        debug_assert!(self.len() > 0, "no block");
        &self.row
    }

    /// As [`Block::row`], without that room.
    pub(crate) fn full_row(&self) -> &[u8] {
        debug_assert!(self.len() > 0, "no block");
        &self.row[..self.used]
    }

    /// Returns true if a short element has room.
    pub(crate) fn has_room(&self, element: &[u8]) -> bool {
        fits(self.len() + 1, self.used - 1 + bytes_of(element))
    }

    /// Makes room for an element at `place`, and writes it there.
    fn put(&mut self, place: usize, element: &[u8]) {
        debug_assert!(self.has_room(element), "a block that is too long");
        let (length, bytes) = encoded_length(element);
        let (old, added) = (self.used, bytes + element.len());
        self.set_used(old + added);
        self.row.copy_within(place..old, place + added);
        let (head, rest) = self.row[place..].split_at_mut(bytes);
        head.copy_from_slice(&length[..bytes]);
        rest[..element.len()].copy_from_slice(element);
        self.row[0] += 1;
    }

    /// Appends an element, which has room.
    pub(crate) fn push(&mut self, element: &[u8]) {
        if !self.starts.is_empty() {
            self.starts.push(u16_of(self.used));
        }
        self.put(self.used, element);
    }

    /// Inserts an element, which has room, before all others.
    pub(crate) fn push_front(&mut self, element: &[u8]) {
        self.starts.clear();
        self.put(1, element);
    }

    /// Returns the first element.
    pub(crate) fn first(&self) -> Option<&[u8]> {
        self.element_at(1).filter(|_| self.len() > 0)
    }

    /// Returns the last element.
    pub(crate) fn last(&mut self) -> Option<&[u8]> {
        if self.starts.is_empty() {
            let mut start = 1;
            for _ in 0..self.len() {
                self.starts.push(u16_of(start));
                let element = self.element_at(start)?;
                start += bytes_of(element);
            }
        }
        let start = *self.starts.last()?;
        self.element_at(start.into())
    }

    /// Returns the element that begins at this place of the row.
    fn element_at(&self, start: usize) -> Option<&[u8]> {
        let (length, rest) = length_of(&self.row[start..self.used])?;
        rest.get(..length)
    }

    /// Removes the first element, if there is one.
    pub(crate) fn pop_front(&mut self) {
        let Some(bytes) = self.first().map(bytes_of) else {
            return;
        };
        self.starts.clear();
        self.row.copy_within(1 + bytes..self.used, 1);
        self.shorten(bytes);
    }

    /// Removes the last element, if there is one.
    pub(crate) fn pop(&mut self) {
        if let Some(bytes) = self.last().map(bytes_of) {
            self.starts.pop();
            self.shorten(bytes);
        }
    }

    /// Takes so many bytes from the end, and the number of an element.
    fn shorten(&mut self, bytes: usize) {
        self.row[0] -= 1;
        let (old, used) = (self.used, self.used - bytes);
        self.row[used..old].fill(0);
        self.set_used(used);
    }
}

fn u16_of(place: usize) -> u16 {
    u16::try_from(place).expect("a block is shorter")
}

/// Replaces `out` by the row of a long element, or of any one in a list that is not in blocks.
pub(crate) fn encode_long(element: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.push(LONG);
    out.extend_from_slice(element);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_resp::Version;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Debug, Clone)]
    enum Edit {
        Push(Vec<u8>),
        PushFront(Vec<u8>),
        Pop,
        PopFront,
        Read,
    }

    fn edits() -> impl Strategy<Value = Edit> {
        let length = prop_oneof![4 => 0..20_usize, 1 => 120..=SHORT_BYTES_MAX];
        let element = length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length));
        prop_oneof![
            3 => element.clone().prop_map(Edit::Push),
            3 => element.prop_map(Edit::PushFront),
            2 => Just(Edit::Pop),
            2 => Just(Edit::PopFront),
            1 => Just(Edit::Read),
        ]
    }

    fn elements_of(row: &[u8]) -> Result<Vec<Vec<u8>>, RowError> {
        let mut elements = Elements::of(row)?;
        let mut all = Vec::new();
        while let Some(element) = elements.next()? {
            all.push(element.to_vec());
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn blocks_are_edited_at_both_ends(edits in prop::collection::vec(edits(), 0..300)) {
            let (mut block, mut twin) = (Block::default(), VecDeque::<Vec<u8>>::new());
            let mut row = Vec::new();
            block.clear();
            for edit in edits {
                match edit {
                    Edit::Push(of) if block.has_room(&of) => {
                        block.push(&of);
                        twin.push_back(of);
                    }
                    Edit::PushFront(of) if block.has_room(&of) => {
                        block.push_front(&of);
                        twin.push_front(of);
                    }
                    Edit::Push(_) | Edit::PushFront(_) => {
                        let bytes: usize = twin.iter().map(|of| bytes_of(of)).sum();
                        prop_assert!(twin.len() == ELEMENTS_MAX || bytes > BYTES_MAX / 2);
                    }
                    Edit::Pop => {
                        prop_assert_eq!(block.last(), twin.back().map(Vec::as_slice));
                        block.pop();
                        twin.pop_back();
                    }
                    Edit::PopFront => {
                        prop_assert_eq!(block.first(), twin.front().map(Vec::as_slice));
                        block.pop_front();
                        twin.pop_front();
                    }
                    Edit::Read if twin.is_empty() => block.clear(),
                    Edit::Read => prop_assert_eq!(block.read(&row), Ok(true)),
                }
                prop_assert_eq!(block.len(), twin.len());
                if twin.is_empty() {
                    continue;
                }
                row.clear();
                row.extend_from_slice(block.row());
                prop_assert!(row.len().is_power_of_two() || row.len() == ROW_BYTES_MAX);
                prop_assert!(elements_of(block.full_row()).unwrap().iter().eq(twin.iter()));
                prop_assert_eq!(count_of(Some(&row)), Ok(twin.len()));
                prop_assert!(elements_of(&row).unwrap().iter().eq(twin.iter()));
            }
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            first in any::<u8>(),
            rest in prop::collection::vec(0..9_u8, 0..200),
            tail in prop::collection::vec(any::<u8>(), 0..70),
        ) {
            let row = [&[first], &rest[..], &tail].concat();
            let mut block = Block::default();
            let elements = elements_of(&row);
            let read = block.read(&row);
            prop_assert_eq!(read.is_ok(), elements.is_ok());
            if let Ok(elements) = &elements {
                let (mut together, mut one_by_one) = (Vec::new(), Vec::new());
                let mut left = Elements::of(&row).unwrap();
                let mut reply = Writer::new(&mut together, Version::Resp2);
                prop_assert_eq!(left.write(left.left(), &mut reply), Ok(()));
                prop_assert_eq!(left.next(), Ok(None));
                let mut reply = Writer::new(&mut one_by_one, Version::Resp2);
                elements.iter().for_each(|element| reply.bulk(element));
                prop_assert_eq!(together, one_by_one);
            }
            if let (Ok(true), Ok(elements)) = (read, elements) {
                prop_assert_eq!(block.len(), elements.len());
            }
        }
    }

    #[test]
    fn a_long_element_has_a_row_of_its_own() {
        let mut row = Vec::new();
        encode_long(&[7; 5000], &mut row);
        assert_eq!(elements_of(&row), Ok(vec![vec![7; 5000]]));
        assert_eq!((count_of(Some(&row)), count_of(None)), (Ok(1), Ok(1)));
        assert_eq!(Block::default().read(&row), Ok(false));
        assert!(is_long(257) && !is_long(256));
    }

    #[test]
    fn what_is_cut_off_or_has_more_is_damaged() {
        let mut block = Block::default();
        block.clear();
        block.push(b"one");
        block.push(&[5; 200]);
        let mut row = block.row().to_vec();
        let used = 1 + 4 + 202;
        for end in 0..used {
            assert_eq!(elements_of(&row[..end]), Err(RowError::Damaged), "{end}");
        }
        assert!(elements_of(&row[..used]).is_ok());
        row.push(1);
        assert_eq!(elements_of(&row), Err(RowError::Damaged));
        // One that has a row of its own, and more than a row has.
        let long = [&[0x81, 0x81, 0x02], &[7; 257][..]].concat();
        let many = [
            &[0x85][..],
            &[&[0x80, 0x02][..], &[7; 256]].concat().repeat(5),
        ]
        .concat();
        for row in [long, many] {
            assert_eq!(elements_of(&row), Err(RowError::Damaged), "{}", row.len());
            assert_eq!(Block::default().read(&row), Err(RowError::Damaged));
        }
        // No elements, a number that is too small, and a length with a byte too many.
        for row in [&[0x80][..], &[0x7f], &[], &[0x81, 0x81, 0x00, 5]] {
            assert_eq!(elements_of(row), Err(RowError::Damaged), "{row:?}");
        }
    }
}
