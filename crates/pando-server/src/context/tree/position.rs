//! Positions of elements of a list: byte strings in the order of the elements.
//!
//! An element at an end has the next number of 8 bytes. One that is inserted between two others has
//! the shortest string between theirs. An element that takes the place of a removed one has its
//! position.
//!
//! As long as a list is dense (`data/tree_head.rs`), the ends of its positions follow what is
//! removed at an end, and the place of an element tells its position. What is inserted or removed
//! elsewhere ends that.

use std::ops::Range;

use super::part::Loaded;
use crate::data::packed::Strings;
use crate::data::tree_head::{PADDING, TreeHead};

/// What was changed between two elements that have stayed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Places of those that were removed, among the old ones.
    pub(super) deleted: Range<usize>,
    /// Places of those that were added, among the new ones.
    pub(super) added: Range<usize>,
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

    /// Returns the positions of the elements that were added.
    pub(super) fn positions(&self, head: &mut TreeHead, loaded: &Loaded) -> Strings {
        let old = &loaded.load.positions;
        let mut positions = Strings::default();
        positions.reserve(self.added.len(), self.added.len() * size_of::<u64>());
        let reused = self.deleted.clone().take(self.added.len());
        reused.for_each(|place| positions.push(old.at(place)));
        let missing = self.added.len() - positions.len();
        if missing == 0 {
            return positions;
        }
        let below = match (positions.iter().next_back(), self.deleted.start) {
            (Some(last), _) => Some(last.to_vec()),
            (None, 0) => None,
            (None, start) => Some(old.at(start - 1).to_vec()),
        };
        let above = (self.deleted.end < old.len()).then(|| old.at(self.deleted.end));
        let reaches_end = loaded.reaches_end();
        match (below, above) {
            (_, None) if reaches_end => {
                for _ in 0..missing {
                    head.high += 1;
                    positions.push(&head.high.to_be_bytes());
                }
            }
            (None, _) => {
                assert_eq!(loaded.first, 0, "what is before the part is not known");
                head.low -= missing as u64;
                let numbers = head.low..head.low + missing as u64;
                numbers.for_each(|number| positions.push(&number.to_be_bytes()));
            }
            (Some(mut below), above) => {
                let above = above.expect("what is behind the part is known");
                for _ in 0..missing {
                    below = between(&below, above);
                    positions.push(&below);
                }
                head.high += PADDING * missing as u64;
            }
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
        let positions: Vec<_> = gaps(&old, &new)
            .iter()
            .map(|gap| gap.positions(&mut head, &loaded).at(0).to_vec())
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
                for gap in gaps(&old, &list) {
                    let added = gap.positions(&mut head, &loaded);
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
    }
}
