//! Positions of elements of a list: byte strings in the order of the elements.
//!
//! An element at an end has the next number of 8 bytes. One that is inserted between two others has
//! the shortest string between theirs. An element that takes the place of a removed one has its
//! position.

use std::ops::Range;

use super::part::Loaded;
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

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
    /// Returns the positions of the elements that were added.
    pub(super) fn positions(&self, head: &mut TreeHead, loaded: &Loaded) -> Vec<Vec<u8>> {
        let reused = self.deleted.clone().take(self.added.len());
        let mut positions: Vec<_> = reused
            .map(|place| loaded.load.positions[place].clone())
            .collect();
        let missing = self.added.len() - positions.len();
        if missing == 0 {
            return positions;
        }
        let below = match (positions.last(), self.deleted.start.checked_sub(1)) {
            (Some(last), _) => Some(last.clone()),
            (None, Some(place)) => Some(loaded.load.positions[place].clone()),
            (None, None) => None,
        };
        let above = loaded.load.positions.get(self.deleted.end);
        let reaches_end = loaded.first + loaded.count == loaded.head.len();
        match (below, above) {
            (_, None) if reaches_end => {
                for _ in 0..missing {
                    head.high += 1;
                    positions.push(head.high.to_be_bytes().to_vec());
                }
            }
            (None, _) => {
                assert_eq!(loaded.first, 0, "what is before the part is not known");
                head.low -= missing as u64;
                let numbers = head.low..head.low + missing as u64;
                positions.extend(numbers.map(|number| number.to_be_bytes().to_vec()));
            }
            (Some(mut below), above) => {
                let above = above.expect("what is behind the part is known");
                for _ in 0..missing {
                    below = between(&below, above);
                    positions.push(below.clone());
                }
            }
        }
        positions
    }
}

/// Returns the shortest byte string between two others, of which `low` is the smaller one; it does
/// not end with a zero, so there is always another one below it.
fn between(low: &[u8], high: &[u8]) -> Vec<u8> {
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
        let position = |place: usize| (100 + (first + place) as u64).to_be_bytes().to_vec();
        let head = TreeHead {
            count: total,
            low: 100,
            high: 99 + total,
            ..TreeHead::new(1)
        };
        let mut load = Load::empty(head, Kind::Position);
        load.strings = old.clone();
        load.positions = (0..count).map(position).collect();
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
            .flat_map(|gap| gap.positions(&mut head, &loaded))
            .collect();
        assert_eq!(positions[0], 99_u64.to_be_bytes());
        assert!(positions[1] > loaded.load.positions[0] && positions[1] < loaded.load.positions[1]);
        assert_eq!(positions[2], 103_u64.to_be_bytes());
        assert_eq!((head.low, head.high), (99, 103));
    }

    proptest! {
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
