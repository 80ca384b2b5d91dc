//! Counted and weighted trees under several threads. That they count what a map counts is in
//! `model`, after merges and packing in `merge` and `pack`, after loads in `disk`.

use fastrand::Rng;
use pando_format::weight::weight_byte;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_tree::{KnownRank, Ranked, Selected};

use crate::rig::{Rig, Session, check_tree, random_bytes, retry};

const MIDDLE: u32 = 2000;

fn low(n: u32) -> Vec<u8> {
    format!("a{n:06}").into_bytes()
}

fn middle(n: u32) -> Vec<u8> {
    format!("m{n:06}").into_bytes()
}

fn high(n: u32) -> Vec<u8> {
    format!("n{n:06}").into_bytes()
}

/// Adds a record on the left before it takes one away on the right, and takes it away after it has
/// put that one back: so there is never one too few.
fn exchange(rig: &Rig, rounds: u32) {
    let mut session = Session::default();
    let mut random = Rng::with_seed(3);
    for _ in 0..rounds {
        let (left, right) = (low(random.u32(500_000..)), high(random.u32(..500)));
        let len = random.usize(..900);
        rig.insert(&mut session, &left, &random_bytes(&mut random, len));
        assert!(rig.remove(&mut session, &right));
        let len = random.usize(..900);
        rig.insert(&mut session, &right, &random_bytes(&mut random, len));
        assert!(rig.remove(&mut session, &left));
    }
}

/// As [`exchange`], by the weights of records: that on the left weighs one more before that on the
/// right weighs one less.
fn exchange_weights(rig: &Rig, rounds: u32) {
    let mut session = Session::default();
    let mut random = Rng::with_seed(3);
    for round in 0..rounds {
        let (left, right) = (low(random.u32(..MIDDLE)), high(random.u32(..500)));
        let ones = [weight_byte(1), b'1'];
        for (key, first) in [
            (&left, weight_byte(2)),
            (&right, weight_byte(0)),
            (&right, ones[round as usize % 2]),
            (&left, ones[random.usize(..2)]),
        ] {
            let mut value = vec![1; 1 + random.usize(..900)];
            value[0] = first;
            if random.bool() {
                assert!(rig.insert(&mut session, key, &value));
            } else {
                assert_eq!(rig.insert_all(&mut session, &[(key, &value)]).1, 0);
            }
        }
    }
}

/// Splits and merges nodes in the middle, and makes the tree taller and lower on the right.
fn churn(rig: &Rig, seed: u64, stop: &AtomicBool) {
    let mut session = Session::default();
    let mut random = Rng::with_seed(seed);
    let key = |n: u32| format!("z{seed}{n:06}").into_bytes();
    let mut turn = 0;
    // Relaxed: the flag orders nothing.
    while !stop.load(Ordering::Relaxed) {
        let len = random.usize(..1200);
        let mut value = random_bytes(&mut random, len);
        // Each record weighs 1.
        if let Some(first) = value.first_mut() {
            *first &= 0x7F;
        }
        assert!(rig.insert(&mut session, &middle(random.u32(..MIDDLE)), &value));
        turn += 1;
        match turn / 2000 % 2 {
            0 => drop(rig.insert(&mut session, &key(random.u32(..5000)), &value)),
            _ => drop(rig.remove(&mut session, &key(random.u32(..5000)))),
        }
    }
}

fn observe(rig: &Rig, seed: u64, before: u64, stop: &AtomicBool) {
    let mut random = Rng::with_seed(seed);
    let mut key = Vec::new();
    // Relaxed: the flag orders nothing.
    while !stop.load(Ordering::Relaxed) {
        let up_to = retry(|| rig.tree.try_rank(&rig.pool, Ranked::UpTo(b"x")));
        let all = before + u64::from(MIDDLE) + 500;
        assert!((all..=all + 1).contains(&up_to), "{up_to} of {all}");
        let number = random.u32(..MIDDLE);
        let rank = retry(|| (rig.tree).try_rank(&rig.pool, Ranked::Below(&middle(number))));
        let expected = before + u64::from(number);
        assert!((expected..=expected + 1).contains(&rank), "{rank}");
        let found = retry(|| rig.tree.try_select(&rig.pool, expected, &mut key));
        // Of the last record before the middle it may be the second unit.
        let is_first = found == Some(0);
        assert!(number == 0 && found.is_some() || is_first, "{found:?}");
        let near = [number.wrapping_sub(1), number].map(middle);
        assert!(number == 0 || near.contains(&key), "{key:?}");
    }
}

#[test]
fn a_rank_shows_changes_in_the_order_in_which_they_were_made() {
    show_changes_in_order(&Rig::counted(4096, 16384), exchange);
}

#[test]
fn a_rank_shows_weights_in_the_order_in_which_they_were_changed() {
    show_changes_in_order(&Rig::weighted(4096, 16384), exchange_weights);
}

fn show_changes_in_order(rig: &Rig, exchange: fn(&Rig, u32)) {
    let mut session = Session::default();
    for n in 0..MIDDLE {
        rig.insert(&mut session, &low(n), b"low");
        rig.insert(&mut session, &middle(n), b"middle");
    }
    for n in 0..500 {
        rig.insert(&mut session, &high(n), b"high");
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = &stop;
        let exchanger = scope.spawn(|| exchange(rig, 8000));
        for seed in 0..2 {
            scope.spawn(move || churn(rig, seed, stop));
            scope.spawn(move || observe(rig, seed, u64::from(MIDDLE), stop));
        }
        let end = exchanger.join();
        stop.store(true, Ordering::Relaxed);
        end.unwrap();
    });
    check_tree(rig);
}

/// A record moves from one range to the other and back. So a range around both has one more, or
/// not.
#[test]
fn a_range_is_counted_at_one_moment() {
    let rig = Rig::counted(4096, 16384);
    let mut session = Session::default();
    for n in 0..MIDDLE {
        rig.insert(&mut session, &low(n), &[1; 300]);
        rig.insert(&mut session, &middle(n), &[1; 300]);
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (rig, stop) = (&rig, &stop);
        let mover = scope.spawn(move || {
            let mut session = Session::default();
            for n in 0..20_000 {
                // Before the range, then in it: both ends of it count each.
                let (before, within) = (low(n % MIDDLE), [&middle(n % MIDDLE)[..], b"+"].concat());
                rig.remove(&mut session, &before);
                rig.insert(&mut session, &within, b"moved");
                rig.remove(&mut session, &within);
                rig.insert(&mut session, &before, b"is back");
            }
        });
        scope.spawn(move || {
            let (all, mut known) = (u64::from(MIDDLE), KnownRank::none());
            // Relaxed: the flag orders nothing.
            while !stop.load(Ordering::Relaxed) {
                let range = (Some(Ranked::Below(b"m")), Ranked::UpTo(b"z"));
                let counted = retry(|| rig.tree.try_count(&rig.pool, range.0, range.1, &mut known));
                assert!((all..=all + 1).contains(&counted), "{counted} of {all}");
            }
        });
        let end = mover.join();
        stop.store(true, Ordering::Relaxed);
        end.unwrap();
    });
    check_tree(&rig);
}

#[test]
fn threads_with_keys_of_their_own_lose_no_count() {
    let kinds = [Rig::counted, Rig::weighted];
    for (threads, rig) in [4, 16]
        .into_iter()
        .flat_map(|n| kinds.map(|kind| (n, kind)))
    {
        let rig = rig(4096, 16384);
        thread::scope(|scope| {
            for worker in 0..threads {
                let rig = &rig;
                scope.spawn(move || {
                    let (mut session, mut random) = (Session::default(), Rng::with_seed(worker));
                    for _ in 0..20_000 / threads {
                        let key = format!("{:06}-{worker}", random.u32(..2000)).into_bytes();
                        match random.usize(..5) {
                            0..2 => drop(rig.remove(&mut session, &key)),
                            _ => {
                                let mut value = [7; 300];
                                value[0] = random.u8(..);
                                rig.insert(&mut session, &key, &value);
                            }
                        }
                    }
                });
            }
        });
        let all = check_tree(&rig).weight;
        assert_eq!(retry(|| rig.tree.try_rank(&rig.pool, Ranked::All)), all);
    }
}

/// The rank of the beginning is kept, and the beginning of the table grows and shrinks.
#[test]
fn a_rank_that_is_kept_is_forgotten_with_the_next_change() {
    for rig in [Rig::counted(4096, 4096), Rig::weighted(4096, 4096)] {
        let (mut session, mut random) = (Session::default(), Rng::with_seed(12));
        for n in 0..MIDDLE {
            rig.insert(&mut session, &middle(n), b"one");
        }
        let mut known = KnownRank::none();
        let mut keys = vec![middle(0), middle(7), [&b"m"[..], &[b'-'; 200]].concat()];
        keys.push([&middle(3)[..], b"+"].concat());
        for n in 0..400_u32 {
            let from = &keys[random.usize(..keys.len())];
            let all = retry(|| rig.tree.try_rank(&rig.pool, Ranked::All));
            let below = retry(|| rig.tree.try_rank(&rig.pool, Ranked::Below(from)));
            for _ in 0..2 {
                let range = (Some(Ranked::Below(from)), Ranked::UpTo(b"z"));
                let count = || rig.tree.try_count(&rig.pool, range.0, range.1, &mut known);
                assert_eq!(retry(count), all - below);
                let (mut key, mut value) = (Vec::new(), Vec::new());
                let at = (&from[..], u64::from(n % 5));
                let select = || {
                    rig.tree
                        .try_select_from(&rig.pool, at, &mut key, &mut known)
                };
                assert_eq!(retry(select), Some(0));
                let mut number = Vec::new();
                let by_rank = || rig.tree.try_select(&rig.pool, below + at.1, &mut number);
                assert_eq!(retry(by_rank), Some(0));
                assert_eq!(key, number);
                let to = (&mut key, &mut value);
                let select = || {
                    rig.tree
                        .try_select_record(&rig.pool, at, (&mut *to.0, &mut *to.1), &mut known)
                };
                assert!(matches!(retry(select), Selected::Record(_, _, 0)));
                assert_eq!((&key, &value[..]), (&number, &b"one"[..]));
            }
            match n % 3 {
                0 => drop(rig.insert(&mut session, &low(n), b"one")),
                1 => drop(rig.remove(&mut session, &low(n - 1))),
                _ => drop(rig.insert(&mut session, &low(n + 1), b"one")),
            }
        }
    }
}

/// A put that knows its place writes over the old value without a descent, unless the weight is
/// another one.
#[test]
fn a_weight_that_changes_at_a_known_place_is_counted() {
    let rig = Rig::weighted(4096, 4096);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(9));
    for n in 0..MIDDLE {
        rig.insert(&mut session, &low(n), &[weight_byte(1); 100]);
    }
    let mut all = u64::from(MIDDLE);
    for _ in 0..500 {
        let (key, weight) = (low(random.u32(..MIDDLE)), random.u8(1..4));
        let old = rig.get(&mut session, &key).unwrap()[0] & 0x7F;
        let place = retry(|| rig.tree.try_find_place(&rig.pool, &key));
        assert!(rig.insert_at(&mut session, (&key, &place), &[weight_byte(weight); 100]));
        all = all + u64::from(weight) - u64::from(old);
        assert_eq!(retry(|| rig.tree.try_rank(&rig.pool, Ranked::All)), all);
    }
    assert_eq!(check_tree(&rig).weight, all);
}
