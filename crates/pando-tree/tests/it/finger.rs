//! What a finger says about a key is true, whatever has happened to its leaf.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_tree::{Cover, Finger, Place};

use crate::rig::{Rig, Session, check_tree, random_bytes, retry};

fn finger(rig: &Rig, key: &[u8]) -> Finger {
    place(rig, key).finger()
}

fn place(rig: &Rig, key: &[u8]) -> Place {
    retry(|| rig.tree.try_locate(&rig.pool, key)).place
}

fn covers(finger: &Finger, rig: &Rig, key: &[u8]) -> bool {
    finger.cover(rig.tree, &rig.pool, key) != Cover::Unknown
}

fn key(number: usize) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// Sessions insert runs of neighbouring keys into the same leaves and remove other keys from them.
#[test]
fn runs_of_several_sessions_in_the_same_leaves_agree_with_a_map() {
    const KEYS: usize = 6000;
    let (rig, mut random) = (Rig::new(4096, 4096), Rng::with_seed(5));
    let mut sessions: Vec<Session> = (0..3).map(|_| Session::default()).collect();
    let mut at = [0; 3];
    let mut model = BTreeMap::new();
    let mut fingers: Vec<(Finger, usize)> = Vec::new();
    let (mut sure, mut unsure) = (0, 0);
    for step in 0..60_000 {
        let who = random.usize(..3);
        if random.usize(..12) == 0 {
            at[who] = match random.usize(..4) {
                0 => at[random.usize(..3)],
                _ => random.usize(..KEYS),
            };
        }
        at[who] = (at[who] + 1) % KEYS;
        let (session, number) = (&mut sessions[who], at[who]);
        let is_shrinking = step / 5000 % 3 == 2;
        if random.usize(..10) < if is_shrinking { 9 } else { 1 } {
            let existed = rig.remove(session, &key(number));
            assert_eq!(existed, model.remove(&number).is_some());
        } else {
            let bytes = [8, 30, 200][random.usize(..3)];
            let value = random_bytes(&mut random, bytes);
            let replaced = rig.insert(session, &key(number), &value);
            assert_eq!(replaced, model.insert(number, value).is_some());
        }
        if random.usize(..20) == 0 {
            fingers.push((finger(&rig, &key(number)), number));
        }
        if fingers.len() > 10 {
            fingers.swap_remove(random.usize(..10));
        }
        for (finger, known) in &fingers {
            let number = (*known + random.usize(..20)).saturating_sub(random.usize(..20));
            if covers(finger, &rig, &key(number)) {
                sure += 1;
                let located = retry(|| rig.tree.try_locate(&rig.pool, &key(number)));
                assert_eq!(located.leaf, finger.page());
            } else {
                unsure += 1;
            }
        }
        if step % 1000 == 0 {
            assert_eq!(check_tree(&rig).records, model.len());
        }
    }
    assert!(sure > 10_000 && unsure > 10_000, "{sure} {unsure}");
    for number in 0..KEYS {
        let found = rig.get(&mut sessions[0], &key(number));
        assert_eq!(found, model.get(&number).map(Vec::as_slice));
    }
}

#[test]
fn a_finger_is_sure_between_keys_and_behind_the_last_one_of_all() {
    let (rig, mut session) = (Rig::new(4096, 1024), Session::default());
    for number in (0..1000).map(|number| 10 * number) {
        rig.insert(&mut session, &key(number), &[7; 50]);
    }
    let last = finger(&rig, &key(9990));
    for number in [9980, 9985, 9990, 9991, 1 << 30] {
        assert!(covers(&last, &rig, &key(number)), "{number}");
    }
    let from = |number| last.cover(rig.tree, &rig.pool, &key(number));
    assert_eq!([from(9985), from(9990)], [Cover::One; 2]);
    assert_eq!([from(9991), from(1 << 30)], [Cover::All; 2]);
    assert!(!covers(&last, &rig, &key(5)));
    // For a key just below the first one of the next leaf nothing is certain, since the separator
    // may lie there.
    let first = finger(&rig, &key(0));
    assert!(covers(&first, &rig, &key(0)));
    let end = (0..1000).find(|number| finger(&rig, &key(10 * number)).page() != first.page());
    let end = 10 * end.unwrap();
    assert!(covers(&first, &rig, &key(end - 15)));
    assert!(!covers(&first, &rig, &key(end - 5)));
    // Any change of the leaf invalidates the finger.
    rig.insert(&mut session, &key(3), &[]);
    assert!(!covers(&first, &rig, &key(0)));
    assert!(!covers(&Finger::default(), &rig, &key(0)));
}

/// Keys are put and removed at places that were found some changes ago: some are still right, and
/// the others are noticed. Values of all lengths make leaves split, merge and have overflow pages.
#[test]
fn changes_at_places_of_before_agree_with_a_map() {
    const KEYS: usize = 2000;
    let (rig, mut random) = (Rig::new(4096, 4096), Rng::with_seed(8));
    let mut session = Session::default();
    let mut model = BTreeMap::new();
    let mut places: Vec<(Place, usize)> = Vec::new();
    for step in 0..60_000 {
        // Sometimes many changes of one leaf, sometimes of all.
        let near = random.usize(..KEYS - 20);
        let number = match step / 1000 % 2 {
            0 => random.usize(..KEYS),
            _ => near + random.usize(..20),
        };
        places.push((place(&rig, &key(number)), number));
        let late = [1, 1, 3, 40][random.usize(..4)];
        if places.len() < late {
            continue;
        }
        let (place, number) = places.swap_remove(random.usize(..places.len()));
        let is_shrinking = step / 5000 % 3 == 2;
        if random.usize(..10) < if is_shrinking { 8 } else { 2 } {
            let existed = rig.remove_at(&mut session, (&key(number), &place));
            assert_eq!(existed, model.remove(&number).is_some());
        } else {
            let bytes = [8, 30, 200, 3000][random.usize(..4)];
            let value = random_bytes(&mut random, bytes);
            let replaced = rig.insert_at(&mut session, (&key(number), &place), &value);
            assert_eq!(replaced, model.insert(number, value).is_some());
        }
        if places.len() > 100 {
            places.clear();
        }
        if step % 1000 == 0 {
            assert_eq!(check_tree(&rig).records, model.len());
        }
    }
    for number in 0..KEYS {
        let found = rig.get(&mut session, &key(number));
        assert_eq!(found, model.get(&number).map(Vec::as_slice));
    }
}
