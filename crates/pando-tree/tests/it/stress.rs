//! Threads that change and read one tree at the same time.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pando_tree::{Direction, GROUP_MAX, LeafCopy};

use crate::groups::get_group;
use crate::rig::{Rig, Session, check_tree, random_bytes, retry};

/// Returns a value that begins with its key and continues with one repeated byte.
fn value(key: u64, version: u8, len: usize) -> Vec<u8> {
    let mut value = key.to_be_bytes().to_vec();
    value.resize(8 + len, version);
    value
}

fn assert_whole(key: u64, value: &[u8]) {
    assert_eq!(value[..8], key.to_be_bytes(), "the value of another key");
    let version = value[8];
    assert!(value[8..].iter().all(|byte| *byte == version), "torn value");
}

#[test]
fn four_threads_with_keys_of_their_own_keep_each_their_map() {
    disjoint(4, 5000);
}

#[test]
fn sixteen_threads_with_keys_of_their_own_keep_each_their_map() {
    disjoint(16, 1200);
}

fn disjoint(threads: u64, steps: usize) {
    let rig = Rig::new(4096, 16384);
    let total = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|worker| {
                let rig = &rig;
                scope.spawn(move || {
                    let (mut session, mut random) = (Session::default(), Rng::with_seed(worker));
                    let mut model = BTreeMap::new();
                    for _ in 0..steps {
                        // Neighbouring keys belong to different threads.
                        let key = (random.usize(..500) as u64 * threads + worker).to_be_bytes();
                        match random.usize(..10) {
                            0..4 => {
                                let existed = rig.remove(&mut session, &key);
                                assert_eq!(existed, model.remove(&key).is_some());
                            }
                            _ => {
                                let len = [10, 100, 300, 6000][random.usize(..4)];
                                let value = random_bytes(&mut random, len);
                                let replaced = rig.insert(&mut session, &key, &value);
                                assert_eq!(replaced, model.insert(key, value).is_some());
                            }
                        }
                        let expected = model.get(&key).map(Vec::as_slice);
                        assert_eq!(rig.get(&mut session, &key), expected);
                    }
                    for (key, value) in &model {
                        assert_eq!(rig.get(&mut session, key), Some(&value[..]));
                    }
                    model.len()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum::<usize>()
    });
    assert_eq!(check_tree(&rig).records, total);
}

/// Reads a group of keys that always exist.
fn check_group(rig: &Rig, session: &mut Session, random: &mut Rng, keys: u64) {
    let group: [u64; GROUP_MAX] =
        std::array::from_fn(|_| random.usize(..keys as usize / 2) as u64 * 2);
    let texts = group.map(|key| (key << 32).to_be_bytes());
    let texts: Vec<&[u8]> = texts.iter().map(<[u8; 8]>::as_slice).collect();
    for (key, found) in group.into_iter().zip(get_group(rig, session, &texts)) {
        assert_whole(key, &found.expect("a key that always exists"));
    }
}

/// Even keys always exist. Odd keys are inserted and removed, so that leaves split and are taken
/// out.
#[test]
fn a_key_that_is_always_there_is_never_missed() {
    const KEYS: u64 = 600;
    let rig = Rig::new(4096, 16384);
    let mut session = Session::default();
    for key in (0..KEYS).step_by(2) {
        rig.insert(&mut session, &(key << 32).to_be_bytes(), &value(key, 0, 20));
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (rig, stop) = (&rig, &stop);
        let writers: Vec<_> = (0..3)
            .map(|writer| scope.spawn(move || write_and_clear(rig, writer, KEYS)))
            .collect();
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                scope.spawn(move || {
                    let (mut session, mut random) =
                        (Session::default(), Rng::with_seed(100 + reader));
                    // Relaxed: the flag orders nothing.
                    while !stop.load(Ordering::Relaxed) {
                        for _ in 0..200 {
                            let key = random.usize(..KEYS as usize / 2) as u64 * 2;
                            let found = rig.get(&mut session, &(key << 32).to_be_bytes());
                            assert_whole(key, found.expect("a key that always exists"));
                        }
                        for _ in 0..20 {
                            check_group(rig, &mut session, &mut random, KEYS);
                        }
                        check_scan(rig, KEYS, Direction::Forward);
                        check_scan(rig, KEYS, Direction::Backward);
                    }
                })
            })
            .collect();
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        for result in results
            .into_iter()
            .chain(readers.into_iter().map(|reader| reader.join()))
        {
            result.unwrap();
        }
    });
    let facts = check_tree(&rig);
    assert_eq!(facts.records, KEYS as usize / 2);
}

fn write_and_clear(rig: &Rig, writer: u64, keys: u64) {
    let (mut session, mut random) = (Session::default(), Rng::with_seed(writer));
    for round in 0..60u64 {
        // Inserts a block of new keys after one odd key and later removes all of it, so that its
        // leaves become empty.
        let block = (random.usize(..keys as usize / 2) as u64 * 2 + 1) << 32 | writer << 24;
        for n in 0..120 {
            rig.insert(&mut session, &(block + n).to_be_bytes(), &[3; 90]);
        }
        for _ in 0..40 {
            let key = random.usize(..keys as usize / 2) as u64 * 2;
            let len = [1, 40, 900, 9000][random.usize(..4)];
            let value = value(key, random.u8(..), len);
            rig.insert(&mut session, &(key << 32).to_be_bytes(), &value);
        }
        for n in 0..120 {
            let n = if round % 2 == 0 { n } else { 119 - n };
            assert!(rig.remove(&mut session, &(block + n).to_be_bytes()));
        }
    }
}

/// Checks that a scan returns every even key once and in order.
fn check_scan(rig: &Rig, keys: u64, direction: Direction) {
    let mut page = LeafCopy::new();
    let mut bound: Bound<Vec<u8>> = Bound::Unbounded;
    let mut seen = Vec::new();
    loop {
        retry(|| {
            let bound = bound.as_ref().map(Vec::as_slice);
            rig.tree
                .try_scan_leaf(&rig.pool, bound, direction, &mut page)
        });
        for index in 0..page.len() {
            let (key, _) = page.entry(index);
            seen.push(u64::from_be_bytes(key.try_into().unwrap()));
        }
        match page.next_bound() {
            Some(next) => bound = next.map(<[u8]>::to_vec),
            None => break,
        }
    }
    if direction == Direction::Backward {
        seen.reverse();
    }
    assert!(
        seen.is_sorted_by(|a, b| a < b),
        "{direction:?}: a key twice or out of order"
    );
    let even = seen
        .iter()
        .filter(|key| **key >> 32 & 1 == 0)
        .map(|key| key >> 32);
    assert!(
        even.eq((0..keys).step_by(2)),
        "{direction:?}: a key was missed"
    );
}

/// Pages are large and the writer never pauses, so that a reader can hardly copy a leaf without a
/// change in between.
#[test]
fn readers_make_progress_while_a_writer_hammers_their_leaf() {
    const TURNS: u32 = 200;
    const TURNS_MAX: u32 = 20_000;
    let rig = Rig::new(65536, 64);
    let mut session = Session::default();
    for key in 0..100_u64 {
        rig.insert(&mut session, &key.to_be_bytes(), &value(key, 0, 400));
    }
    let stop = AtomicBool::new(false);
    let pessimistic = || rig.pool.statistics().get(Ticker::RestartsPessimistic);
    thread::scope(|scope| {
        let (rig, stop) = (&rig, &stop);
        let writer = scope.spawn(move || {
            let mut session = Session::default();
            let mut version = 0_u8;
            while !stop.load(Ordering::Relaxed) {
                version = version.wrapping_add(1);
                let value = value(50, version, 400);
                rig.insert(&mut session, &50_u64.to_be_bytes(), &value);
            }
        });
        let mut turns = 0;
        while turns < TURNS || pessimistic() == 0 {
            let scanned = rig.scan(Bound::Unbounded, Direction::Backward, usize::MAX);
            assert_eq!(scanned.len(), 100);
            assert_whole(50, &scanned[49].1);
            let found = rig.get(&mut session, &50_u64.to_be_bytes());
            assert_whole(50, found.expect("a key that always exists"));
            turns += 1;
            if turns == TURNS_MAX {
                // With one processor for both threads, the writer may never run during a read.
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

/// Lets two writers change one leaf of 16 records until the leaf is split or `most` has passed.
/// Returns the number of leaves.
fn fight(keys: [u32; 2], most: Duration) -> usize {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for number in 0..16_u32 {
        rig.insert(&mut session, &number.to_be_bytes(), &[0; 100]);
    }
    thread::scope(|scope| {
        for key in keys {
            let rig = &rig;
            scope.spawn(move || {
                let mut session = Session::default();
                let end = time::now() + most;
                for turn in 0_u64.. {
                    let value = [turn as u8; 100];
                    assert!(rig.insert(&mut session, &key.to_be_bytes(), &value));
                    if turn % 1024 == 0 && (check_leaves(rig) > 1 || time::now() > end) {
                        break;
                    }
                }
            });
        }
    });
    let facts = check_tree(&rig);
    assert_eq!(facts.records, 16);
    facts.leaves
}

/// Returns the number of leaves while other threads write.
fn check_leaves(rig: &Rig) -> usize {
    let root = retry(|| rig.tree.try_summary(&rig.pool, rig.tree.root));
    root.children.len().max(1)
}

/// Whether writers meet often enough to part the leaf depends on who else needs the processors:
/// that they part it then is a unit test (`traps.rs`).
#[test]
fn writers_that_fight_for_a_leaf_lose_no_record() {
    assert!((1..=2).contains(&fight([3, 12], Duration::from_secs(2))));
    // If both write the same record, no split can separate them.
    assert_eq!(fight([3, 3], Duration::from_millis(100)), 1);
}
