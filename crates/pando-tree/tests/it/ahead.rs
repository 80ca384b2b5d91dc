//! Lists of the leaves that a scan will read next, beside the order in which a scan reads them.

use std::ops::Bound;

use fastrand::Rng;
use pando_format::PageId;
use pando_tree::{Ahead, Direction, LeafCopy, ScanBound};

use crate::rig::{Rig, Session, random_bytes, retry};

const KEYS: usize = 12_000;
const PAGES: usize = 4096;

/// A tree in which a parent has few leaves, and a scan many.
fn filled() -> Rig {
    let rig = Rig::new(4096, PAGES);
    let mut random = Rng::with_seed(11);
    let mut session = Session::default();
    for _ in 0..KEYS {
        let len = random.usize(8..200);
        let key = random_bytes(&mut random, len);
        rig.insert(&mut session, &key, &[7; 100]);
    }
    rig
}

fn list(rig: &Rig, ahead: Ahead<'_>) -> Vec<PageId> {
    let (mut bound, mut pages) = (Vec::new(), Vec::new());
    let looked = retry(|| {
        pages.clear();
        rig.tree
            .try_list_ahead(&rig.pool, ahead, &mut bound, |page| pages.push(page))
    });
    assert_eq!(looked, pages.len());
    pages
}

/// Returns the key that each leaf of a scan shows first.
fn first_keys(rig: &Rig, direction: Direction) -> Vec<Vec<u8>> {
    let (mut copy, mut bound) = (LeafCopy::new(), Bound::Unbounded);
    let mut keys = Vec::new();
    loop {
        let from = bound.as_ref().map(|key: &Vec<u8>| &key[..]);
        retry(|| {
            rig.tree
                .try_scan_leaf(&rig.pool, from, direction, &mut copy)
        });
        keys.push(copy.entry(0).0.to_vec());
        match copy.next_bound() {
            Some(next) => bound = next.map(<[u8]>::to_vec),
            None => return keys,
        }
    }
}

#[test]
fn lists_go_on_over_the_leaves_of_other_parents() {
    let rig = filled();
    let forward = first_keys(&rig, Direction::Forward);
    let leaves = forward.len();
    let backward = first_keys(&rig, Direction::Backward);
    assert!(retry(|| rig.tree.try_height(&rig.pool)) > 2 && leaves > 300);
    let all = |direction| Ahead {
        from: Bound::Unbounded,
        until: Bound::Unbounded,
        direction,
        skip: 0,
        most: PAGES,
    };
    // All but the first one of each direction.
    let ascending = list(&rig, all(Direction::Forward));
    let mut descending = list(&rig, all(Direction::Backward));
    assert_eq!(
        (ascending.len(), descending.len()),
        (leaves - 1, leaves - 1)
    );
    let first = *descending.last().unwrap();
    descending.reverse();
    assert_eq!(ascending[..leaves - 2], descending[1..]);
    let mut pages = vec![first];
    pages.extend(ascending);

    let mut random = Rng::with_seed(5);
    let bound = |key: &[u8], is_included: bool| -> Bound<Vec<u8>> {
        match is_included {
            true => Bound::Included(key.to_vec()),
            false => Bound::Excluded(key.to_vec()),
        }
    };
    for _ in 0..3000 {
        let direction = match random.bool() {
            true => Direction::Forward,
            false => Direction::Backward,
        };
        let (keys, order): (_, Vec<PageId>) = match direction {
            Direction::Forward => (&forward, pages.clone()),
            Direction::Backward => (&backward, pages.iter().rev().copied().collect()),
        };
        let (here, end) = (random.usize(..leaves), random.usize(..=leaves));
        let (from, is_included) = (bound(&keys[here], random.bool()), random.bool());
        // The end is the first key of a leaf, which is read all the same: of what may lie before
        // that key the parent knows nothing.
        let (until, last) = match keys.get(end) {
            None => (Bound::Unbounded, leaves),
            Some(key) => (bound(key, is_included), end + 1),
        };
        let (skip, most) = (random.usize(..80), random.usize(..80));
        let found = list(
            &rig,
            Ahead {
                from: borrowed(&from),
                until: borrowed(&until),
                direction,
                skip,
                most,
            },
        );
        let begin = (here + 1 + skip).min(leaves);
        let expected = order[begin..last.max(begin)].iter().take(most);
        assert!(
            found.iter().eq(expected),
            "{direction:?} from leaf {here} until {end}: {found:?}"
        );
    }
}

fn borrowed(bound: &Bound<Vec<u8>>) -> ScanBound<'_> {
    bound.as_ref().map(|key| &key[..])
}
