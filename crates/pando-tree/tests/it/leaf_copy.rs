//! Copies of leaves, whose entries are decoded when they are asked for, beside a naive twin.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_tree::{Direction, LeafCopy, ScanValue};

use crate::rig::{Rig, Session, random_bytes, retry};

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGES: [usize; 5] = [4096, 8192, 16384, 32768, 65536];
const STEPS: u32 = 400;

/// Returns a key that shares its beginning with others, of which some are each other's prefix.
fn key_of(random: &mut Rng) -> Vec<u8> {
    let shared = [0, 1, 5, 64, 300][random.usize(..5)];
    let mut key = vec![b'p'; shared];
    for _ in 0..random.usize(..12) {
        key.push([0, 1, b'p', b'q', u8::MAX][random.usize(..5)]);
    }
    key
}

/// Returns the bound of a scan: at a key of the twin, beside one, or none.
fn bound_of(random: &mut Rng, keys: &[&Vec<u8>]) -> Bound<Vec<u8>> {
    let key = match random.bool() {
        true => keys[random.usize(..keys.len())].clone(),
        false => key_of(random),
    };
    match random.usize(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn is_beyond(key: &[u8], bound: &Bound<Vec<u8>>, direction: Direction) -> bool {
    match (direction, bound) {
        (_, Bound::Unbounded) => true,
        (Direction::Forward, Bound::Included(bound)) => key >= &bound[..],
        (Direction::Forward, Bound::Excluded(bound)) => key > &bound[..],
        (Direction::Backward, Bound::Included(bound)) => key <= &bound[..],
        (Direction::Backward, Bound::Excluded(bound)) => key < &bound[..],
    }
}

/// Compares a step from `bound` with the twin. Asks for the entries in any order.
fn compare(
    copy: &mut LeafCopy,
    (bound, until): (&Bound<Vec<u8>>, &Bound<Vec<u8>>),
    direction: Direction,
    (twin, long_from): (&Twin, usize),
    random: &mut Rng,
) {
    let own = |bound: Bound<&[u8]>| bound.map(<[u8]>::to_vec);
    let opposite = direction.opposite();
    let next = copy.next_bound().map(own);
    let in_step = |key: &[u8]| {
        let comes_later = next
            .as_ref()
            .is_some_and(|next| is_beyond(key, next, direction));
        is_beyond(key, bound, direction) && !comes_later
    };
    let mut expected: Vec<_> = twin.iter().filter(|(key, _)| in_step(key)).collect();
    if direction == Direction::Backward {
        expected.reverse();
    }
    assert_eq!(copy.len(), expected.len());
    assert_eq!(copy.is_empty(), expected.is_empty());
    let before = expected
        .iter()
        .filter(|(key, _)| is_beyond(key, until, opposite));
    let limit = copy.count_until(until.as_ref().map(|key| &key[..]));
    assert_eq!(limit, before.count(), "{until:?}");
    let mut indices: Vec<usize> = (0..expected.len()).collect();
    if random.bool() {
        random.shuffle(&mut indices);
    }
    for index in indices {
        let (key, value) = expected[index];
        let shown = match value.len() >= long_from {
            true => ScanValue::Long,
            false => ScanValue::Inline(value),
        };
        assert_eq!(copy.is_long(index), shown == ScanValue::Long);
        assert_eq!(copy.entry(index), (&key[..], shown));
    }
}

#[test]
fn entries_that_are_decoded_late_are_those_of_the_twin() {
    for (seed, page_bytes) in (0..).zip(PAGES) {
        let mut random = Rng::with_seed(seed);
        let (rig, mut session) = (Rig::new(page_bytes, 4096), Session::default());
        let mut twin = Twin::new();
        let long_from = page_bytes;
        rig.insert(&mut session, b"", b"of the empty key");
        twin.insert(Vec::new(), b"of the empty key".to_vec());
        for _ in 0..page_bytes / 4 {
            let key = key_of(&mut random);
            let len = [0, 1, 7, 8, 100, long_from + 100][random.usize(..6)];
            // Few long ones, since they take pages of their own.
            let len = if random.u8(..8) > 0 {
                len % long_from
            } else {
                len
            };
            let value = random_bytes(&mut random, len);
            rig.insert(&mut session, &key, &value);
            twin.insert(key, value);
            if random.u8(..8) == 0 {
                let key = key_of(&mut random);
                rig.remove(&mut session, &key);
                twin.remove(&key);
            }
        }
        let keys: Vec<&Vec<u8>> = twin.keys().collect();
        // One copy for all, so that each step finds what the one before has left.
        let mut copy = LeafCopy::new();
        for _ in 0..STEPS {
            let direction = [Direction::Forward, Direction::Backward][random.usize(..2)];
            let mut bound = bound_of(&mut random, &keys);
            for _ in 0..random.usize(1..4) {
                retry(|| {
                    let bound = bound.as_ref().map(|key| &key[..]);
                    rig.tree
                        .try_scan_leaf(&rig.pool, bound, direction, &mut copy)
                });
                let until = bound_of(&mut random, &keys);
                let bounds = (&bound, &until);
                compare(
                    &mut copy,
                    bounds,
                    direction,
                    (&twin, long_from),
                    &mut random,
                );
                match copy.next_bound() {
                    Some(next) => bound = next.map(<[u8]>::to_vec),
                    None => break,
                }
            }
        }
    }
}

/// The keys of a leaf of 64 KiB may be 100 times as long as the leaf: a step has a part of them,
/// and all steps together have each once.
#[test]
fn a_step_over_long_keys_ends_early() {
    const KEYS: u32 = 1000;
    let (rig, mut session) = (Rig::new(65536, 64), Session::default());
    let key = |number: u32| [&[b'p'; 8000][..], &number.to_be_bytes()].concat();
    for number in 0..KEYS {
        rig.insert(&mut session, &key(number), b"");
    }
    let mut copy = LeafCopy::new();
    for direction in [Direction::Forward, Direction::Backward] {
        let (mut bound, mut shown, mut steps) = (Bound::Unbounded, Vec::new(), 0);
        loop {
            retry(|| {
                let bound = bound.as_ref().map(|key: &Vec<u8>| &key[..]);
                rig.tree
                    .try_scan_leaf(&rig.pool, bound, direction, &mut copy)
            });
            assert!(copy.len() * 8000 <= 1 << 20, "{} entries", copy.len());
            shown.extend((0..copy.len()).map(|index| copy.entry(index).0.to_vec()));
            steps += 1;
            match copy.next_bound() {
                Some(next) => bound = next.map(<[u8]>::to_vec),
                None => break,
            }
        }
        if direction == Direction::Backward {
            shown.reverse();
        }
        assert!(shown.into_iter().eq((0..KEYS).map(key)));
        assert!(steps >= 8, "{steps} steps");
    }
}
