//! Group reads find the same values as single reads.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_pool::Restart;
use pando_tree::{Fate, GROUP_MAX, Ways};

use crate::rig::{Rig, Session, random_bytes, retry};

/// Returns the value of each key. It reads the keys as a group, and reads those singly that the
/// group read leaves out.
pub(crate) fn get_group(rig: &Rig, session: &mut Session, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let before = b"what was there before";
    let mut values = before.to_vec();
    let mut fates = [Fate::Long; GROUP_MAX];
    rig.tree.get_group(&rig.pool, keys, &mut values, &mut fates);
    assert!(values.starts_with(before));
    let one = |(key, fate): (&&[u8], &Fate)| match fate {
        Fate::Read {
            lookup,
            start,
            bytes,
        } => {
            let value = values[*start..*start + *bytes].to_vec();
            assert!(lookup.found || *bytes == 0);
            lookup.found.then_some(value)
        }
        Fate::Long | Fate::Restart(Restart::Conflict) => rig.get(session, key).map(<[u8]>::to_vec),
        Fate::Restart(other) => panic!("{other:?}"),
    };
    keys.iter().zip(&fates).map(one).collect()
}

#[test]
fn a_group_finds_what_single_reads_find() {
    let rig = Rig::new(4096, 8192);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(8));
    let mut model = BTreeMap::new();
    let key = |random: &mut Rng| {
        let key = (random.usize(..40_000) as u64).to_be_bytes();
        key[..8 - random.usize(..2)].to_vec()
    };
    for round in 0..30 {
        for _ in 0..round * 40 {
            let len = [0, 10, 100, 300, 5000][random.usize(..5).min(random.usize(..6))];
            let (key, value) = (key(&mut random), random_bytes(&mut random, len));
            rig.insert(&mut session, &key, &value);
            model.insert(key, value);
        }
        for size in 0..=GROUP_MAX {
            let mut keys: Vec<Vec<u8>> = (0..size).map(|_| key(&mut random)).collect();
            for key in &mut keys {
                let known = model.keys().nth(random.usize(..model.len().max(1)));
                if let Some(known) = known.filter(|_| random.usize(..3) > 0) {
                    key.clone_from(known);
                }
            }
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let found = get_group(&rig, &mut session, &keys);
            let expected: Vec<_> = keys.iter().map(|key| model.get(*key).cloned()).collect();
            assert_eq!(found, expected);
        }
    }
    assert!(model.values().any(|value| value.len() == 5000));
}

#[test]
fn a_group_leads_to_the_places_that_single_descents_lead_to() {
    let (rig, mut session, mut random) =
        (Rig::new(4096, 4096), Session::default(), Rng::with_seed(3));
    // The memory of one group does for the next, of another length and height of the tree.
    let mut ways = Ways::default();
    let mut shared = 0;
    for round in 0..40 {
        let mut keys: Vec<Vec<u8>> = (0..GROUP_MAX)
            .map(|_| random_bytes(&mut random, 3))
            .collect();
        if round % 3 > 0 {
            // Neighbours share the steps to their nodes.
            keys.sort();
        }
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let keys = &keys[..round % GROUP_MAX + 1];
        let places = rig.tree.locate_group(&rig.pool, keys, &mut ways);
        assert_eq!(places.count(), keys.len());
        let places = rig.tree.locate_group(&rig.pool, keys, &mut ways);
        let mut last = None;
        for (key, place) in keys.iter().zip(places) {
            let located = retry(|| rig.tree.try_locate(&rig.pool, key));
            let (place, leaf) = place.unwrap();
            let expected = match last == Some(located.leaf) {
                true => located.place.finger().into(),
                false => located.place,
            };
            assert_eq!((place, leaf.page()), (expected, located.leaf));
            let (pinned, pin) = retry(|| rig.tree.try_pin_place(&rig.pool, key));
            assert_eq!(pinned.finger(), place.finger());
            drop(pin);
            shared += usize::from(last == Some(located.leaf));
            last = Some(located.leaf);
        }
        for _ in 0..round * 20 {
            let key = random_bytes(&mut random, 3);
            rig.insert(&mut session, &key, &[1; 60]);
        }
    }
    assert!(shared > 20, "{shared} keys beside another one");
    assert!(retry(|| rig.tree.try_height(&rig.pool)) > 1);
}

#[test]
fn neighbours_are_those_of_one_leaf() {
    let mut counts = [0; GROUP_MAX + 1];
    for rig in [Rig::new(4096, 4096), Rig::counted(4096, 4096)] {
        let (mut session, mut random) = (Session::default(), Rng::with_seed(5));
        for round in 0..300 {
            let from = random.u32(..100_000);
            let step = [1, 1, 3, 40, 4000][random.usize(..5)];
            let keys: Vec<_> = (0..1 + random.u32(..16))
                .map(|at| (from + at * step).to_be_bytes())
                .collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 4]>::as_slice).collect();
            let located = |key: &&[u8]| retry(|| rig.tree.try_locate(&rig.pool, key));
            let first = located(&keys[0]);
            let expected = keys
                .iter()
                .take_while(|key| located(key).leaf == first.leaf);
            let expected = Some(expected.count()).filter(|count| *count > 1);
            let found = rig.tree.locate_neighbours(&rig.pool, &keys);
            assert_eq!(found.map(|(count, ..)| count), expected);
            if let Some((count, place, leaf)) = found {
                assert_eq!((place, leaf.page()), (first.place, first.leaf));
                counts[count] += 1;
            }
            for _ in 0..round / 2 {
                let key = [&random.u32(..100_000).to_be_bytes()[..], &[7; 300]].concat();
                rig.insert(&mut session, &key, &[1; 200]);
            }
        }
        assert!(retry(|| rig.tree.try_height(&rig.pool)) > 2);
    }
    let parts = counts[2..GROUP_MAX].iter().sum::<i32>();
    assert!(parts > 50 && counts[GROUP_MAX] > 5, "{counts:?}");
}
