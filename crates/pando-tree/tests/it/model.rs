//! A tree compared with a map, with keys of many shapes.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_tree::{Direction, Ranked, Sought};

use crate::rig::{Rig, Session, check_tree, random_bytes, retry};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Rng, style: usize, key_bytes_max: usize) -> Vec<u8> {
    match style {
        0 => {
            let len = random.usize(..9);
            (0..len)
                .map(|_| b"\0\x01a\xFF"[random.usize(..4)])
                .collect()
        }
        1 => format!("user:{:012}", random.usize(..5000)).into_bytes(),
        2 => {
            let len = 1 + random.usize(..3);
            random_bytes(random, len)
        }
        3 => {
            let mut key = vec![b'p'; random.usize(..4) * 60];
            key.extend(random_bytes(random, 2));
            key
        }
        4 => vec![0; random.usize(..key_bytes_max.min(700))],
        _ => {
            let mut key = vec![b'x'; key_bytes_max - 2];
            if random.usize(..4) == 0 {
                let at = random.usize(..key.len());
                key[at] = b'a' + random.usize(..26) as u8;
            }
            key.extend(random_bytes(random, 2));
            key
        }
    }
}

fn value(random: &mut Rng, page_bytes: usize) -> Vec<u8> {
    let len = match random.usize(..40) {
        0 => random.usize(..page_bytes * 20),
        1..4 => random.usize(..page_bytes),
        4..10 => 0,
        _ => random.usize(..120),
    };
    random_bytes(random, len)
}

fn bound(random: &mut Rng, key: Vec<u8>) -> Bound<Vec<u8>> {
    match random.usize(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn compare_scan(rig: &Rig, model: &Model, random: &mut Rng, key: Vec<u8>) {
    let (start, limit) = (bound(random, key), 1 + random.usize(..200));
    let start = start.as_ref().map(Vec::as_slice);
    let (direction, range) = if random.bool() {
        (Direction::Forward, (start, Bound::Unbounded))
    } else {
        (Direction::Backward, (Bound::Unbounded, start))
    };
    let found = rig.scan(start, direction, limit);
    let all = model.range::<[u8], _>(range);
    let expected: Vec<_> = match direction {
        Direction::Forward => all.take(limit).collect(),
        Direction::Backward => all.rev().take(limit).collect(),
    };
    assert!(
        found.iter().map(|(k, v)| (k, v)).eq(expected),
        "{direction:?}"
    );
}

/// Seeks the neighbour of a bound, also where leaves have become empty.
fn compare_seek(rig: &Rig, model: &Model, random: &mut Rng, session: &mut Session, key: Vec<u8>) {
    let start = bound(random, key);
    let start = start.as_ref().map(Vec::as_slice);
    let (direction, expected) = if random.bool() {
        let beyond = (start, Bound::Unbounded);
        (Direction::Forward, model.range::<[u8], _>(beyond).next())
    } else {
        let beyond = (Bound::Unbounded, start);
        let last = model.range::<[u8], _>(beyond).next_back();
        (Direction::Backward, last)
    };
    let mut sought = Sought::default();
    let found = retry(|| rig.tree.try_seek(&rig.pool, start, direction, &mut sought));
    assert_eq!(found.then_some(&sought.key), expected.map(|(key, _)| key));
    if let Some((key, value)) = expected {
        let found = match sought.is_long {
            true => rig.get(session, key),
            false => Some(&sought.value[..]),
        };
        assert_eq!(found, Some(&value[..]), "{direction:?}");
    }
}

/// Asks a counted tree for the number of keys below one, and for the key of a number; a weighted
/// one for sums of weights, and for the key that has a unit, and the units of that before it.
fn compare_ranks(rig: &Rig, model: &Model, random: &mut Rng, key: &[u8]) {
    let rank = |ranked| retry(|| rig.tree.try_rank(&rig.pool, ranked));
    let weight = |(key, value): (&Vec<u8>, &Vec<u8>)| rig.weight(key, value);
    let below = model.range(..key.to_vec()).map(weight).sum();
    assert_eq!(rank(Ranked::Below(key)), below);
    let itself = model.get_key_value(key).map_or(0, weight);
    assert_eq!(rank(Ranked::UpTo(key)), below + itself);
    let all = model.iter().map(weight).sum::<u64>();
    assert_eq!(rank(Ranked::All), all);
    for number in [below, random.u64(..all + 2), u64::MAX] {
        let mut found = b"not empty".to_vec();
        let offset = retry(|| rig.tree.try_select(&rig.pool, number, &mut found));
        let mut left = number;
        let expected = model.iter().find_map(|entry| {
            let offset = left;
            let is_behind = left >= weight(entry);
            left = left.saturating_sub(weight(entry));
            (!is_behind).then_some((entry.0, offset))
        });
        let found = offset.map(|offset| (&found, offset));
        assert_eq!(found, expected, "number {number}");
    }
}

fn run(seed: u64, page_bytes: usize, style: usize, steps: usize) {
    for rig in Rig::of_each_kind(page_bytes, (32 << 20) / page_bytes) {
        run_on(&rig, seed, style, steps);
    }
}

fn run_on(rig: &Rig, seed: u64, style: usize, steps: usize) {
    let page_bytes = rig.pool.page_size().bytes();
    let key_bytes_max = page_bytes / 4;
    let mut random = Rng::with_seed(seed);
    let (mut session, mut model) = (Session::default(), Model::new());
    for step in 0..steps {
        let key = key(&mut random, style, key_bytes_max);
        // The tree grows and shrinks in turn.
        let removals = if step / 1000 % 3 == 2 { 8 } else { 3 };
        if random.usize(..10) < removals {
            let key = match model.range(key.clone()..).next() {
                Some((next, _)) if random.bool() => next.clone(),
                _ => key.clone(),
            };
            assert_eq!(rig.remove(&mut session, &key), model.remove(&key).is_some());
        } else {
            let value = value(&mut random, page_bytes);
            let replaced = rig.insert(&mut session, &key, &value);
            assert_eq!(replaced, model.insert(key.clone(), value).is_some());
        }
        assert_eq!(
            rig.get(&mut session, &key),
            model.get(&key).map(Vec::as_slice)
        );
        if step % 10 == 0 {
            compare_seek(rig, &model, &mut random, &mut session, key.clone());
        }
        if step % 100 == 0 {
            compare_scan(rig, &model, &mut random, key.clone());
        }
        if step % 20 == 0 && rig.tree.id.is_counted() {
            compare_ranks(rig, &model, &mut random, &key);
        }
        if step % 500 == 0 {
            let facts = check_tree(rig);
            assert_eq!(facts.records, model.len());
            let weights = model.iter().map(|(key, value)| rig.weight(key, value));
            assert_eq!(facts.weight, weights.sum());
        }
    }
    for (key, value) in &model {
        assert_eq!(rig.get(&mut session, key), Some(&value[..]));
    }
    let everything = rig.scan(Bound::Unbounded, Direction::Backward, usize::MAX);
    assert!(
        everything
            .iter()
            .map(|(k, v)| (k, v))
            .eq(model.iter().rev())
    );
    for key in model.keys() {
        assert!(rig.remove(&mut session, key));
    }
    let facts = check_tree(rig);
    assert_eq!((facts.leaves, facts.inner, facts.records), (1, 0, 0));
}

#[test]
fn a_tree_holds_what_a_map_holds() {
    for style in 0..6 {
        run(style as u64, 4096, style, 4000);
    }
}

#[test]
fn larger_pages_hold_the_same() {
    for (seed, page_bytes) in [8192, 16384, 32768, 65536].into_iter().enumerate() {
        for style in [1, 5] {
            run(seed as u64, page_bytes, style, 1500);
        }
    }
}
