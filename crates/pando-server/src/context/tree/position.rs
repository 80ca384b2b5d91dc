//! Positions of elements of a list: byte strings in the order of the elements.
//!
//! An element at an end has the next number of 8 bytes. One that is inserted between two others has
//! the shortest string between theirs. An element that takes the place of a removed one has its
//! position.
//!
//! As long as a list is dense (`data/tree_head.rs`), the ends of its positions follow what is
//! removed at an end, and the place of an element tells its position. What is inserted or removed
//! elsewhere ends that.

use std::borrow::Cow;
use std::ops::Range;

use super::part::Loaded;
use crate::data::packed::Strings;
use crate::data::tree_head::{PADDING, TreeHead};

/// Positions that are spread have so many bytes that there are so many others between two of them.
const SPREAD: u128 = 16;
/// How many times as much as all others together has the one gap between them where rows are put:
/// the next rows come there, too, and what it does not have is lost to them.
const OPENING: u128 = 16;

/// What was changed between two elements that have stayed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Places of those that were removed, among the old ones.
    pub(super) deleted: Range<usize>,
    /// Places of those that were added, among the new ones.
    pub(super) added: Range<usize>,
}

/// A place between two rows of a list that gets new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opening {
    /// Number of the row below, among those that were loaded.
    pub(super) below: usize,
    /// Number of the rows that it gets.
    pub(super) missing: usize,
}

/// Positions for a change of a list.
pub(super) struct Places<'l> {
    /// Those of the rows that were loaded.
    pub(super) loaded: Cow<'l, Strings>,
    /// Those of rows that are put between others, the next one first.
    pub(super) between: std::vec::IntoIter<Vec<u8>>,
}

impl<'l> Places<'l> {
    pub(super) fn new(loaded: &'l Strings, between: Vec<Vec<u8>>) -> Self {
        Self {
            loaded: Cow::Borrowed(loaded),
            between: between.into_iter(),
        }
    }

    /// Returns the position of the next row that is put between others.
    pub(super) fn next_between(&mut self) -> Vec<u8> {
        self.between.next().expect("each opening was told")
    }
}

/// Returns the changes between the strings that were loaded and what they were edited to.
pub(super) fn gaps(old: &Strings, new: &Strings) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let (mut next_old, mut next_new) = (0, 0);
    let mut note = |deleted: Range<usize>, added: Range<usize>| {
        if !deleted.is_empty() || !added.is_empty() {
            gaps.push(Gap { deleted, added });
        }
    };
    for place in 0..new.len() {
        if !new.is_of(place, old) {
            continue;
        }
        let mut candidates = next_old..old.len();
        let same = candidates.find(|other| new.is_same(place, old, *other));
        let same = same.expect("elements of a list stay in their order");
        note(next_old..same, next_new..place);
        (next_old, next_new) = (same + 1, place + 1);
    }
    note(next_old..old.len(), next_new..new.len());
    gaps
}

impl Gap {
    /// Lets the ends of the positions of a dense list follow what was removed there.
    pub(super) fn shorten(&self, head: &mut TreeHead, loaded: &Loaded) {
        let removed = self.deleted.len() as u64;
        if !loaded.head.is_dense() || removed == 0 || !self.added.is_empty() {
            return;
        }
        if loaded.first == 0 && self.deleted.start == 0 {
            head.low += removed;
        } else if loaded.reaches_end() && self.deleted.end == loaded.count {
            head.high -= removed;
        }
    }

    /// Returns where elements are put between others, if some are.
    pub(super) fn opening(&self, loaded: &Loaded) -> Option<Opening> {
        let reused = self.deleted.len().min(self.added.len());
        let missing = self.added.len() - reused;
        let (below, above) = (self.deleted.start + reused, self.deleted.end);
        let is_at_end = above == loaded.count && loaded.reaches_end();
        if missing == 0 || below == 0 || is_at_end {
            return None;
        }
        let below = below - 1;
        Some(Opening { below, missing })
    }

    /// Returns the positions of the elements that were added.
    pub(super) fn positions(
        &self,
        head: &mut TreeHead,
        loaded: &Loaded,
        places: &mut Places<'_>,
    ) -> Strings {
        let mut positions = Strings::default();
        positions.reserve(self.added.len(), self.added.len() * size_of::<u64>());
        let reused = self.deleted.clone().take(self.added.len());
        reused.for_each(|place| positions.push(places.loaded.at(place)));
        let missing = self.added.len() - positions.len();
        if missing == 0 {
            return positions;
        }
        if self.opening(loaded).is_some() {
            (0..missing).for_each(|_| positions.push(&places.next_between()));
            head.high += PADDING * missing as u64;
        } else if self.deleted.end == loaded.count && loaded.reaches_end() {
            for _ in 0..missing {
                head.high += 1;
                positions.push(&head.high.to_be_bytes());
            }
        } else {
            assert_eq!(loaded.first, 0, "what is before the part is not known");
            head.low -= missing as u64;
            let numbers = head.low..head.low + missing as u64;
            numbers.for_each(|number| positions.push(&number.to_be_bytes()));
        }
        positions
    }
}

/// Returns the shortest byte string between two others, of which `low` is the smaller one; it does
/// not end with a zero, so there is always another one below it.
pub(super) fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    // From here on all that follows is below `high`.
    let mut is_below = false;
    for place in 0.. {
        let from = low.get(place).map_or(0, |byte| u16::from(*byte));
        let to = match high.get(place) {
            Some(byte) if !is_below => u16::from(*byte),
            _ => 256,
        };
        let middle = from + (to - from) / 2;
        if middle > from {
            found.push(u8::try_from(middle).expect("below 256"));
            break;
        }
        found.push(u8::try_from(from).expect("it is a byte"));
        is_below |= to > from;
    }
    found
}

/// Positions between two others.
pub(super) struct Spread {
    pub(super) positions: Vec<Vec<u8>>,
    /// Number of bits before the first one of the distance between the outer ones: the fewer, the
    /// larger it is.
    pub(super) zeros: usize,
}

/// Returns byte strings between two others, of which `low` is the smaller one, as short as that
/// goes: first `before` and then `after`, in equal distances but for these two, between which is
/// nearly all. None ends with a zero. `None` if there is nothing between the outer ones.
pub(super) fn spread(low: &[u8], high: &[u8], [before, after]: [usize; 2]) -> Option<Spread> {
    let count = before + after;
    let opening = count as u128 * OPENING;
    let parts = count as u128 + 1 + opening;
    // As many bytes of `low` as are needed, and by how much those of `high` are more.
    let (mut start, mut distance) = (Vec::new(), 0_u128);
    while distance < parts * SPREAD {
        let place = start.len();
        if distance == 0 && place >= low.len() && place >= high.len() {
            return None;
        }
        let byte = |of: &[u8]| of.get(place).copied().unwrap_or_default();
        distance = (distance << 8).checked_add(byte(high).into())?;
        distance = distance.checked_sub(byte(low).into())?;
        start.push(byte(low));
    }
    let all = (1..=count).map(|place| {
        let opening = if place > before { opening } else { 0 };
        let mut carry = (place as u128 + opening) * distance / parts;
        let mut position = start.clone();
        for byte in position.iter_mut().rev() {
            carry += u128::from(*byte);
            *byte = u8::try_from(carry & 0xff).expect("a byte");
            carry >>= 8;
        }
        let zeros = position.iter().rev().take_while(|byte| **byte == 0).count();
        position.truncate(position.len() - zeros);
        position
    });
    let positions = all.collect();
    let zeros = start.len() * 8 - (distance.ilog2() as usize + 1);
    Some(Spread { positions, zeros })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tree::part::Load;
    use crate::data::elements::Kind;
    use pando_sync::Arc;
    use proptest::prelude::*;

    fn strings(of: &[&str]) -> Strings {
        let mut strings = Strings::default();
        of.iter().for_each(|text| strings.push(text.as_bytes()));
        strings.seal();
        strings
    }

    /// Returns positions for what is put between others.
    fn places<'l>(loaded: &'l Loaded, gaps: &[Gap]) -> Places<'l> {
        let positions = &loaded.load.positions;
        let mut all = Vec::new();
        for Opening { below, missing } in gaps.iter().filter_map(|gap| gap.opening(loaded)) {
            let mut last = positions.at(below).to_vec();
            for _ in 0..missing {
                last = between(&last, positions.at(below + 1));
                all.push(last.clone());
            }
        }
        Places::new(positions, all)
    }

    fn loaded(old: &Strings, (first, total): (usize, u64)) -> Loaded {
        let count = old.len();
        let position = |place: usize| (100 + (first + place) as u64).to_be_bytes();
        let head = TreeHead {
            count: total,
            low: 100,
            high: 99 + total,
            ..TreeHead::new(1)
        };
        let mut load = Load::empty(head, Kind::Position, false);
        load.strings = old.clone();
        (0..count).for_each(|place| load.positions.push(&position(place)));
        Loaded {
            head,
            first,
            count,
            load: Arc::new(load),
        }
    }

    #[test]
    fn edits_are_gaps() {
        let old = strings(&["a", "", "", "b", ""]);
        let mut new = old.clone();
        assert_eq!(gaps(&old, &new), []);
        new.remove(1..2);
        let removed = gaps(&old, &new);
        assert_eq!(removed.len(), 1);
        assert_eq!((removed[0].deleted.len(), removed[0].added.len()), (1, 0));
        new.push(b"");
        new.insert(0, b"x");
        new.set(3, b"b");
        let found = gaps(&old, &new);
        let lengths: Vec<_> = found
            .iter()
            .map(|gap| (gap.deleted.len(), gap.added.len()))
            .collect();
        // Of two empty strings side by side either one may be the one that was removed.
        assert_eq!(lengths, [(0, 1), (2, 1), (0, 1)]);
    }

    #[test]
    fn positions_go_on_at_both_ends_and_between() {
        let old = strings(&["a", "b", "c"]);
        let loaded = loaded(&old, (0, 3));
        let mut head = loaded.head;
        let mut new = old.clone();
        new.insert(0, b"x");
        new.insert(2, b"y");
        new.push(b"z");
        let gaps = gaps(&old, &new);
        let mut places = places(&loaded, &gaps);
        let positions: Vec<_> = gaps
            .iter()
            .map(|gap| {
                gap.positions(&mut head, &loaded, &mut places)
                    .at(0)
                    .to_vec()
            })
            .collect();
        let old = &loaded.load.positions;
        assert_eq!(positions[0], 99_u64.to_be_bytes());
        assert!(positions[1][..] > *old.at(0) && positions[1][..] < *old.at(1));
        assert_eq!(positions[2], 105_u64.to_be_bytes());
        assert_eq!((head.low, head.high), (99, 105));
    }

    #[derive(Debug, Clone)]
    enum Edit {
        Push,
        PushFront,
        Insert(usize),
        Set(usize),
        Remove(usize, usize),
        Pop(usize),
        PopFront(usize),
    }

    fn edits() -> impl Strategy<Value = Edit> {
        prop_oneof![
            3 => Just(Edit::Push),
            2 => Just(Edit::PushFront),
            1 => (0..9_usize).prop_map(Edit::Insert),
            1 => (0..9_usize).prop_map(Edit::Set),
            1 => (0..9_usize, 1..3_usize).prop_map(|(at, count)| Edit::Remove(at, count)),
            2 => (1..3_usize).prop_map(Edit::Pop),
            2 => (1..3_usize).prop_map(Edit::PopFront),
        ]
    }

    fn edit(list: &mut Strings, edit: &Edit) {
        let length = list.len();
        match *edit {
            Edit::Push => list.push(b"new"),
            Edit::PushFront => list.insert(0, b"new"),
            Edit::Insert(at) => list.insert(at.min(length), b"new"),
            Edit::Set(at) if at < length => list.set(at, b"set"),
            Edit::Remove(at, count) if at + count < length => list.remove(at..at + count),
            Edit::Pop(count) if count < length => list.remove(length - count..length),
            Edit::PopFront(count) if count < length => list.remove(0..count),
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn a_head_that_says_so_is_that_of_a_dense_list(
            steps in prop::collection::vec(prop::collection::vec(edits(), 1..4), 1..60),
        ) {
            let mut head = TreeHead::new(1);
            let (mut list, mut positions) = (Strings::default(), Vec::<Vec<u8>>::new());
            let mut was_dense = false;
            for edits in steps {
                let mut load = Load::empty(head, Kind::Position, false);
                list.seal();
                load.strings = list.clone();
                positions.iter().for_each(|of| load.positions.push(of));
                let count = list.len();
                let loaded = Loaded { head, first: 0, count, load: Arc::new(load) };
                let old = list.clone();
                edits.iter().for_each(|of| edit(&mut list, of));
                let mut kept = positions.clone().into_iter();
                let (mut next, mut taken) = (Vec::new(), 0);
                let gaps = gaps(&old, &list);
                let mut places = places(&loaded, &gaps);
                for gap in gaps {
                    let added = gap.positions(&mut head, &loaded, &mut places);
                    gap.shorten(&mut head, &loaded);
                    next.extend(kept.by_ref().take(gap.deleted.start - taken));
                    kept.by_ref().take(gap.deleted.len()).for_each(drop);
                    taken = gap.deleted.end;
                    head.count = head.count + gap.added.len() as u64 - gap.deleted.len() as u64;
                    next.extend(added.iter().map(<[u8]>::to_vec));
                }
                next.extend(kept);
                positions = next;
                prop_assert_eq!(positions.len() as u64, head.count);
                prop_assert!(positions.is_sorted_by(|one, other| one < other));
                let behind = (head.high + 1).to_be_bytes();
                let low = head.low.to_be_bytes();
                let is_within = |of: &Vec<u8>| of[..] >= low[..] && of[..] < behind[..];
                prop_assert!(positions.iter().all(is_within));
                let numbers = (head.low..=head.high).map(|number| number.to_be_bytes().to_vec());
                let is_dense = positions.iter().cloned().eq(numbers);
                prop_assert!(is_dense || !head.is_dense());
                was_dense |= is_dense && head.is_dense();
            }
            prop_assert!(was_dense, "a list begins dense");
        }

        #[test]
        fn there_is_always_something_between(
            places in prop::collection::vec(0..1000_usize, 1..200),
        ) {
            let mut all = vec![7_u64.to_be_bytes().to_vec(), 8_u64.to_be_bytes().to_vec()];
            for place in places {
                let at = place % (all.len() - 1);
                let new = between(&all[at], &all[at + 1]);
                prop_assert!(new > all[at] && new < all[at + 1], "{all:?} {at} {new:?}");
                all.insert(at + 1, new);
            }
        }

        #[test]
        fn strings_are_spread_between_two_others(
            low in prop::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..40),
            more in prop::collection::vec(prop_oneof![Just(0), Just(255), any::<u8>()], 0..40),
            common in 0..40_usize,
            before in 0..600_usize,
            after in 0..600_usize,
        ) {
            let common = common.min(low.len());
            let high = [&low[..common], &more].concat();
            let (low, high) = (low.clone().min(high.clone()), low.max(high));
            // Zeros alone make no room.
            let rest = high.strip_prefix(&low[..]);
            let is_open = rest.is_none_or(|rest| rest.iter().any(|byte| *byte > 0));
            let spread = spread(&low, &high, [before, after]);
            prop_assert_eq!(spread.is_some(), is_open);
            let Some(Spread { positions, .. }) = spread else {
                return Ok(());
            };
            prop_assert_eq!(positions.len(), before + after);
            prop_assert!(positions.iter().all(|of| of[..] > low[..] && of[..] < high[..]));
            prop_assert!(positions.is_sorted_by(|one, other| one < other));
            prop_assert!(positions.iter().all(|of| of.last() != Some(&0)));
        }
    }

    #[test]
    fn most_of_what_is_spread_is_where_rows_are_put() {
        let spread = spread(&[3], &[4], [1, 3]).unwrap();
        // 4 * 16 + 5 parts of 65,536, of which the first one is below the first position.
        let part = |of: u32| (of * 65_536 / 69).to_be_bytes();
        let wanted = [1, 66, 67, 68].map(|of| [&[3][..], &part(of)[2..]].concat());
        assert_eq!(spread.positions, wanted);
        assert_eq!(spread.zeros, 7);
        let near = |high: &[u8]| super::spread(&[3, 255], high, [1, 1]).unwrap().zeros;
        assert_eq!([near(&[4]), near(&[4, 1]), near(&[5])], [15, 14, 7]);
    }
}
