//! Iterators that are used from both ends, without copies of their entries.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use fastrand::Rng;
use pandodb::{Db, Error, Iter, Table};

use crate::fixture::{NONE, fill, text_key};

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

const KEYS: u32 = 600;
const RANGES: u32 = 60;

/// Returns the value of a key; that of every seventh does not fit into its leaf.
fn value_of(number: u32, change: u8) -> Vec<u8> {
    let len = if number.is_multiple_of(7) {
        5000
    } else {
        number as usize % 150
    };
    let mut value = vec![change; len];
    value.extend_from_slice(&number.to_be_bytes());
    value
}

fn twin_of(numbers: impl Iterator<Item = u32>) -> Twin {
    numbers
        .map(|number| (text_key(number), value_of(number, 0)))
        .collect()
}

fn range_of(random: &mut Rng) -> Bounds {
    let mut numbers = [0; 2].map(|_: u32| random.u32(..KEYS + 20));
    numbers.sort_unstable();
    let mut bound = |number| match random.u32(..5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(text_key(number)),
        _ => Bound::Excluded(text_key(number)),
    };
    let [low, high] = numbers.map(&mut bound);
    match (&low, &high) {
        // The twin refuses a range without any key.
        (Bound::Excluded(one), Bound::Excluded(other)) if one == other => (low, Bound::Unbounded),
        _ => (low, high),
    }
}

/// Takes the entries of a range from both ends, in any order, and compares them with the twin's.
fn meets(mut iter: Iter<'_>, twin: &Twin, bounds: &Bounds, random: &mut Rng) {
    let mut left: VecDeque<_> = twin.range(bounds.clone()).collect();
    let mut runs = 0;
    let mut is_forward = true;
    loop {
        if runs == 0 {
            runs = random.u32(..30);
            is_forward = random.u32(..2) == 0;
            if random.u32(..4) == 0 {
                iter = iter.into_owned();
            }
        }
        runs = runs.saturating_sub(1);
        let (shown, expected) = match is_forward {
            true => (iter.next_ref(), left.pop_front()),
            false => (iter.next_back_ref(), left.pop_back()),
        };
        let shown = shown.transpose().unwrap();
        let expected = expected.map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(shown, expected, "{bounds:?}, {} left", left.len());
        if shown.is_none() {
            break;
        }
    }
    assert!(iter.next_ref().is_none() && iter.next_back_ref().is_none());
}

fn all_meet<'t>(twin: &Twin, seed: u64, range: impl Fn(&Bounds) -> Iter<'t>) {
    let mut random = Rng::with_seed(seed);
    for _ in 0..RANGES {
        let bounds = range_of(&mut random);
        meets(range(&bounds), twin, &bounds, &mut random);
    }
}

fn slices((low, high): &Bounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (
        low.as_ref().map(|key| &key[..]),
        high.as_ref().map(|key| &key[..]),
    )
}

fn filled() -> (Db, Table) {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..KEYS, |number| {
        (text_key(number), value_of(number, 0))
    });
    (db, table)
}

#[test]
fn both_ends_meet_in_the_middle() {
    let (_db, table) = filled();
    let twin = twin_of(0..KEYS);
    all_meet(&twin, 1, |bounds| table.range(slices(bounds)));
}

/// What has changed since is merged with old versions, or with the pages of the checkpoint.
#[test]
fn both_ends_meet_in_snapshots() {
    let (db, table) = filled();
    let in_memory = db.snapshot().unwrap();
    let settled = db.snapshot_settled().unwrap();
    for number in (0..KEYS).step_by(3) {
        match number % 2 {
            0 => drop(table.delete(&text_key(number)).unwrap()),
            _ => table.put_with(&text_key(number), b"new", NONE).unwrap(),
        }
        table
            .put_with(&[&text_key(number)[..], b"+"].concat(), b"new", NONE)
            .unwrap();
    }
    let twin = twin_of(0..KEYS);
    all_meet(&twin, 2, |bounds| in_memory.range(&table, slices(bounds)));
    all_meet(&twin, 3, |bounds| settled.range(&table, slices(bounds)));
}

/// A long value that is deleted after its leaf was copied is passed over, at both ends.
#[test]
fn a_long_value_that_is_gone_is_passed_over() {
    let (_db, table) = filled();
    let mut iter = table.range(&text_key(5)[..]..=&text_key(9)[..]);
    assert_eq!(iter.next_ref().unwrap().unwrap().0, text_key(5));
    assert_eq!(iter.next_back_ref().unwrap().unwrap().0, text_key(9));
    table.delete(&text_key(7)).unwrap();
    let mut shown = Vec::new();
    iter.for_each_ref(|key, _| shown.push(key.to_vec()))
        .unwrap();
    assert_eq!(shown, [text_key(6), text_key(8)]);
}

#[test]
fn a_closure_that_fails_ends_the_loop_and_not_the_iterator() {
    let (_db, table) = filled();
    let (mut iter, mut seen) = (table.iter(), 0);
    let stopped = iter.try_for_each_ref(|_, _| {
        seen += 1;
        match seen {
            40 => Err(Error::Closed),
            _ => Ok(()),
        }
    });
    assert!(matches!(stopped, Err(Error::Closed)));
    assert_eq!(iter.next_ref().unwrap().unwrap().0, text_key(40));
    iter.for_each_ref(|_, _| seen += 1).unwrap();
    assert_eq!(seen, KEYS - 1);
}
