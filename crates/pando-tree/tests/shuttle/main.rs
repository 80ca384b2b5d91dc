//! Trees under random schedules with a possible switch at every word access. Build with
//! `RUSTFLAGS="--cfg pando_shuttle"`. A failure prints the schedule that led to it.

#![cfg(pando_shuttle)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::ops::Bound;

use pando_format::weight::weight_byte;
use pando_format::{Lsn, PageSize, TreeId};
use pando_pool::{Attempt, CheckImages, Content, Marks, Pool, PoolOptions, Restart};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::gate::GateGuard;
use pando_sync::{Arc, thread};
use pando_tree::{
    Direction, Fate, GROUP_MAX, KnownRank, LeafCopy, LeafFill, Ranked, Scratch, Tree, ValueReader,
    check_page, prepare_image,
};

const MARKS: Marks = Marks {
    lsn: Lsn(1),
    multi_lsn: Lsn(0),
};
const SCHEDULES: usize = 300;
/// Three such values fill a leaf.
const VALUE: [u8; 1200] = [1; 1200];

/// Enters the gate of `pool`.
fn enter(pool: &Pool) -> GateGuard<'_> {
    loop {
        if let Some(guard) = pool.gate().try_enter() {
            return guard;
        }
        thread::yield_now();
    }
}

struct Rig {
    pool: Pool,
    tree: Tree,
}

fn retry<T>(mut attempt: impl FnMut() -> Attempt<T>) -> T {
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(Restart::Conflict) => thread::yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    }
}

impl Rig {
    fn new() -> Arc<Self> {
        Self::of_tree(TreeId(7))
    }

    fn of_tree(id: TreeId) -> Arc<Self> {
        let pool = Pool::new(PoolOptions {
            page_size: PageSize::new(4096).unwrap(),
            frames: 40,
            page_ids_max: 64,
            images: 2,
            block_bytes: 4096,
            compression: pando_format::Compression::None,
            prepare_image,
            check_page,
            check_images: CheckImages::All,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .unwrap();
        let tree = Tree::create(&pool, &pool.apply_token(&enter(&pool)), id).unwrap();
        Arc::new(Self { pool, tree })
    }

    fn insert(&self, key: &[u8], value: &[u8]) {
        let mut scratch = Scratch::new();
        retry(|| {
            self.tree.try_insert(
                &self.pool,
                &self.pool.apply_token(&enter(&self.pool)),
                MARKS,
                key,
                value,
                &mut scratch,
            )
        });
        retry(|| scratch.try_finish(&self.pool, &self.pool.apply_token(&enter(&self.pool))));
    }

    fn remove(&self, key: &[u8]) {
        let mut scratch = Scratch::new();
        let removed = retry(|| {
            self.tree.try_remove(
                &self.pool,
                &self.pool.apply_token(&enter(&self.pool)),
                MARKS,
                key,
                &mut scratch,
            )
        });
        assert!(removed.existed);
        if removed.leaf_fill != LeafFill::Enough {
            retry(|| {
                self.tree.try_remove_empty(
                    &self.pool,
                    &self.pool.apply_token(&enter(&self.pool)),
                    MARKS,
                    key,
                )
            });
            retry(|| {
                self.tree.try_merge(
                    &self.pool,
                    &self.pool.apply_token(&enter(&self.pool)),
                    MARKS,
                    key,
                    &mut scratch,
                )
            });
        }
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        let (mut reader, mut out) = (ValueReader::new(), Vec::new());
        let lookup = retry(|| self.tree.try_get(&self.pool, key, &mut reader, &mut out));
        lookup.found.then_some(out)
    }

    /// Reads up to [`GROUP_MAX`] keys as a group, and those by themselves that it has no value of.
    fn get_group(&self, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let (mut values, mut fates) = (Vec::new(), [Fate::Long; GROUP_MAX]);
        self.tree
            .get_group(&self.pool, keys, &mut values, &mut fates);
        let one = |(key, fate): (&&[u8], &Fate)| match fate {
            Fate::Read {
                lookup,
                start,
                bytes,
            } => (lookup.found).then(|| values[*start..*start + *bytes].to_vec()),
            Fate::Long | Fate::Restart(Restart::Conflict) => self.get(key),
            Fate::Restart(other) => panic!("{other:?}"),
        };
        keys.iter().zip(&fates).map(one).collect()
    }

    fn scan(&self, direction: Direction) -> Vec<Vec<u8>> {
        let mut page = LeafCopy::new();
        let mut keys = Vec::new();
        let mut bound: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            retry(|| {
                let bound = bound.as_ref().map(Vec::as_slice);
                self.tree
                    .try_scan_leaf(&self.pool, bound, direction, &mut page)
            });
            keys.extend((0..page.len()).map(|index| page.entry(index).0.to_vec()));
            match page.next_bound() {
                Some(next) => bound = next.map(<[u8]>::to_vec),
                None => break,
            }
        }
        if direction == Direction::Backward {
            keys.reverse();
        }
        keys
    }
}

fn entry<'k>(key: &&'k str) -> (&'k [u8], &'k [u8]) {
    (key.as_bytes(), &VALUE)
}

/// Runs a writer that first finds and pins the leaves of its keys and then puts them, as a commit
/// does.
fn put_in_order(rig: &Rig, keys: &[&str]) {
    let locate = |key: &&str| retry(|| rig.tree.try_pin_place(&rig.pool, key.as_bytes()));
    let (places, _pins): (Vec<_>, Vec<_>) = keys.iter().map(locate).unzip();
    let (mut scratch, mut at) = (Scratch::new(), 0);
    while at < keys.len() {
        let (first, rest) = (entry(&keys[at]), keys[at + 1..].iter().map(entry));
        let run = (rig.tree).put_run(
            &rig.pool,
            &rig.pool.apply_token(&enter(&rig.pool)),
            MARKS,
            (&places[at], first, rest),
            &mut scratch,
        );
        assert_eq!(run.new, run.records, "no other thread puts these keys");
        if run.records == 0 {
            let key = (keys[at].as_bytes(), &places[at]);
            let done = retry(|| {
                let scratch = &mut scratch;
                (rig.tree).try_insert_at(
                    &rig.pool,
                    &rig.pool.apply_token(&enter(&rig.pool)),
                    MARKS,
                    key,
                    &VALUE,
                    scratch,
                )
            });
            assert!(!done.replaced);
        }
        at += run.records.max(1);
    }
    for key in keys {
        assert_eq!(
            rig.get(key.as_bytes()).as_deref(),
            Some(&VALUE[..]),
            "{key}"
        );
    }
}

type Threads = Vec<Box<dyn FnOnce() + Send>>;

/// Runs the threads with possible switches at every step, and again with few switches at random
/// places. The former finds errors of short interleavings, the latter those of a long pause between
/// two steps.
fn check(threads: fn() -> Threads) {
    let run = move || {
        let workers: Vec<_> = threads().into_iter().map(thread::spawn).collect();
        for worker in workers {
            worker.join().unwrap();
        }
    };
    shuttle::check_random(run, SCHEDULES);
    shuttle::check_pct(run, SCHEDULES, 4);
}

/// Returns a tree with three leaves, of the keys `a`, `b` and `c`. The keys of the leaf of `b` are
/// removed and inserted again.
fn three_leaves() -> Arc<Rig> {
    with_three_leaves(Rig::new())
}

fn with_three_leaves(rig: Arc<Rig>) -> Arc<Rig> {
    for key in ["a", "a1", "c", "c1", "b", "b1", "b2"] {
        rig.insert(key.as_bytes(), &[1; 1200]);
    }
    rig
}

#[test]
fn runs_of_two_writers_behind_the_last_key_lose_nothing() {
    check(|| {
        let rig = three_leaves();
        let (one, other, reader) = (rig.clone(), rig.clone(), rig);
        vec![
            Box::new(move || put_in_order(&one, &["c2", "c4", "d", "d2", "d4", "d6"])),
            Box::new(move || put_in_order(&other, &["c3", "c5", "d1", "d3", "d5"])),
            Box::new(move || {
                for _ in 0..2 {
                    assert!(reader.get(b"c1").is_some());
                    let keys = reader.scan(Direction::Forward);
                    assert!(keys.is_sorted());
                    assert!(keys.iter().any(|key| key == b"c1"));
                }
            }),
        ]
    });
}

/// A record is added on the left before one on the right is removed. So whoever counts without the
/// first counts the second.
#[test]
fn a_rank_counts_what_was_added_before_it_misses_what_was_removed_after() {
    check(|| {
        let rig = with_three_leaves(Rig::of_tree(TreeId(7).counted()));
        let (writer, splitter, reader) = (rig.clone(), rig.clone(), rig.clone());
        let ranks = move || {
            for _ in 0..3 {
                let count = |ranked| retry(|| reader.tree.try_rank(&reader.pool, ranked));
                let up_to = count(Ranked::UpTo(b"z"));
                assert!((7..=8).contains(&up_to), "{up_to}");
                let all = count(Ranked::All);
                assert!((7..=8).contains(&all), "{all}");
                let (mut key, pool) = (Vec::new(), &reader.pool);
                assert!(retry(|| reader.tree.try_select(pool, 6, &mut key)).is_some());
                assert!([&b"b2"[..], b"c", b"c1"].contains(&&key[..]), "{key:?}");
            }
        };
        vec![
            Box::new(move || {
                for (new, old) in [("a0", "c"), ("a2", "b")] {
                    writer.insert(new.as_bytes(), &VALUE);
                    writer.remove(old.as_bytes());
                }
            }),
            Box::new(move || {
                splitter.insert(b"b1", &[2; 1700]);
                splitter.insert(b"b2", &[2; 1700]);
                splitter.insert(b"b1", b"short");
            }),
            Box::new(ranks),
        ]
    });
}

/// The value of a record of that weight.
fn weighing(weight: u8) -> Vec<u8> {
    let mut value = VALUE.to_vec();
    value[0] = weight_byte(weight);
    value
}

/// A record on the left weighs one more before one on the right weighs one less. So whoever counts
/// the second change counts the first.
#[test]
fn a_rank_counts_a_weight_that_grew_before_it_misses_one_that_shrank_after() {
    check(|| {
        let rig = with_three_leaves(Rig::of_tree(TreeId(7).weighted()));
        rig.insert(b"c", &weighing(3));
        let (writer, splitter, reader) = (rig.clone(), rig.clone(), rig);
        vec![
            Box::new(move || {
                let value = weighing(2);
                writer.insert(b"a", &value);
                // As a commit puts it: in a run.
                loop {
                    let place = retry(|| writer.tree.try_find_place(&writer.pool, b"c"));
                    let guard = enter(&writer.pool);
                    let (pool, token) = (&writer.pool, &writer.pool.apply_token(&guard));
                    let run = (&place, (&b"c"[..], &value[..]), std::iter::empty());
                    let scratch = &mut Scratch::new();
                    if writer
                        .tree
                        .put_run(pool, token, MARKS, run, scratch)
                        .records
                        > 0
                    {
                        break;
                    }
                    drop(guard);
                    thread::yield_now();
                }
                writer.insert(b"a", &weighing(3));
                writer.insert(b"c", &weighing(1));
            }),
            Box::new(move || {
                splitter.insert(b"b1", &[2; 1700]);
                splitter.insert(b"b2", &[2; 1700]);
                splitter.insert(b"b1", b"short");
            }),
            Box::new(move || {
                for _ in 0..3 {
                    let count = |ranked| retry(|| reader.tree.try_rank(&reader.pool, ranked));
                    for ranked in [Ranked::UpTo(b"z"), Ranked::All] {
                        let all = count(ranked);
                        assert!((9..=10).contains(&all), "{all}");
                    }
                    let mut key = Vec::new();
                    let found = retry(|| reader.tree.try_select(&reader.pool, 1, &mut key));
                    let (at_a, behind) = ((&b"a"[..], Some(1)), (&b"a1"[..], Some(0)));
                    assert!([at_a, behind].contains(&(&key[..], found)), "{key:?}");
                }
            }),
        ]
    });
}

/// A record moves from before the range into it, and back.
#[test]
fn a_range_is_counted_at_one_moment() {
    check(|| {
        let rig = with_three_leaves(Rig::of_tree(TreeId(7).counted()));
        let writer = rig.clone();
        vec![
            Box::new(move || {
                for (old, new) in [("a1", "c2"), ("c2", "a1")] {
                    writer.remove(old.as_bytes());
                    writer.insert(new.as_bytes(), &VALUE);
                }
            }),
            Box::new(move || {
                let mut known = KnownRank::none();
                for _ in 0..3 {
                    let ends = (Some(Ranked::Below(b"b")), Ranked::UpTo(b"z"));
                    let count = retry(|| rig.tree.try_count(&rig.pool, ends.0, ends.1, &mut known));
                    assert!((5..=6).contains(&count), "{count}");
                }
            }),
        ]
    });
}

/// Returns the key `at` of a group: so long that a few of them make a tree of three levels.
fn long_key(group: char, at: &str) -> Vec<u8> {
    format!("{group}{}{at}", "-".repeat(700)).into_bytes()
}

/// Puts or removes two neighbours as one run, from where the first one belongs.
fn change_two(rig: &Rig, keys: [&[u8]; 2], puts: bool) {
    let [first, second] = keys;
    loop {
        let place = retry(|| rig.tree.try_find_place(&rig.pool, first));
        let guard = enter(&rig.pool);
        let (pool, token) = (&rig.pool, &rig.pool.apply_token(&guard));
        let records = if puts {
            let rest = std::iter::once((second, &b"short"[..]));
            let run = (&place, (first, &b"short"[..]), rest);
            let scratch = &mut Scratch::new();
            rig.tree.put_run(pool, token, MARKS, run, scratch).records
        } else {
            let run = (&place, first, std::iter::once(second));
            rig.tree.remove_run(pool, token, MARKS, run).records
        };
        match records {
            0 => thread::yield_now(),
            2 => return,
            _ => panic!("one of two neighbours"),
        }
    }
}

/// Two neighbours come on the left, and two on the right, and go again. So who counts a side
/// counts none or two of them, and never one, however many levels of the tree are counted.
#[test]
fn a_run_is_counted_at_once_on_all_levels() {
    check(|| {
        let rig = Rig::of_tree(TreeId(7).counted());
        for group in "abcdef".chars() {
            for at in ["1", "5", "7", "9"] {
                rig.insert(&long_key(group, at), &VALUE);
            }
        }
        let height = retry(|| rig.tree.try_height(&rig.pool));
        assert!(height > 2, "a tree of {height} levels");
        let (writer, other, reader) = (rig.clone(), rig.clone(), rig);
        vec![
            Box::new(move || {
                let of = |group| [long_key(group, "2"), long_key(group, "3")];
                for (group, puts) in [('a', true), ('f', true), ('f', false), ('a', false)] {
                    let [one, two] = of(group);
                    change_two(&writer, [&one, &two], puts);
                }
            }),
            Box::new(move || {
                other.insert(&long_key('b', "6"), b"one more");
                other.insert(&long_key('b', "1"), b"short");
                other.remove(&long_key('b', "6"));
            }),
            Box::new(move || {
                let count = |ranked| retry(|| reader.tree.try_rank(&reader.pool, ranked));
                let mut known = KnownRank::none();
                for _ in 0..2 {
                    let left = count(Ranked::Below(b"b"));
                    assert!(left == 4 || left == 6, "{left}");
                    let end = (Some(Ranked::Below(b"c")), Ranked::UpTo(b"g"));
                    let right = retry(|| {
                        reader
                            .tree
                            .try_count(&reader.pool, end.0, end.1, &mut known)
                    });
                    assert!(right == 16 || right == 18, "{right}");
                    let all = count(Ranked::UpTo(b"g"));
                    assert!((24..=29).contains(&all), "{all}");
                    let mut key = Vec::new();
                    let found = retry(|| reader.tree.try_select(&reader.pool, 23, &mut key));
                    assert_eq!(found, Some(0));
                    assert!(key > long_key('d', "9"), "{:?}", key.first());
                }
            }),
        ]
    });
}

#[test]
fn a_scan_sees_each_key_once_while_a_leaf_is_taken_out_and_its_range_used_again() {
    check(|| {
        let rig = three_leaves();
        let writer = rig.clone();
        let mut threads: Threads = vec![Box::new(move || {
            for key in ["b", "b1", "b2"] {
                writer.remove(key.as_bytes());
            }
            writer.insert(b"b3", b"short");
            writer.insert(b"b4", b"short");
        })];
        for direction in [Direction::Forward, Direction::Backward] {
            let rig = rig.clone();
            threads.push(Box::new(move || {
                let keys = rig.scan(direction);
                assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
                for always in [&b"a"[..], b"a1", b"c", b"c1"] {
                    assert!(keys.iter().any(|key| key == always), "{keys:?}");
                }
            }));
        }
        threads
    });
}

#[test]
fn a_key_is_found_while_its_leaf_is_split_and_its_neighbours_are_removed() {
    check(|| {
        let rig = three_leaves();
        let (inserter, remover, reader) = (rig.clone(), rig.clone(), rig);
        vec![
            Box::new(move || {
                for key in ["c0", "c2", "a0", "a2"] {
                    inserter.insert(key.as_bytes(), &[2; 1500]);
                }
                assert!(inserter.get(b"a2").is_some());
            }),
            Box::new(move || {
                for key in ["b", "b1", "b2"] {
                    remover.remove(key.as_bytes());
                    assert_eq!(remover.get(key.as_bytes()), None);
                }
            }),
            Box::new(move || {
                let keys = ["a1", "c", "c1", "a"].map(str::as_bytes);
                for key in keys {
                    assert_eq!(reader.get(key), Some(vec![1; 1200]));
                }
                for found in reader.get_group(&keys) {
                    assert_eq!(found, Some(vec![1; 1200]));
                }
            }),
        ]
    });
}

#[test]
fn a_long_value_is_read_whole_while_it_is_replaced() {
    check(|| {
        let rig = Rig::new();
        rig.insert(b"key", &[0; 9000]);
        let (writer, reader) = (rig.clone(), rig);
        vec![
            Box::new(move || {
                for version in 1..4 {
                    writer.insert(b"key", &[version; 9000]);
                }
            }),
            Box::new(move || {
                for _ in 0..2 {
                    let value = reader.get(b"key").unwrap();
                    assert_eq!(value.len(), 9000);
                    assert!(value.iter().all(|byte| *byte == value[0]), "torn");
                }
            }),
        ]
    });
}

#[test]
fn changes_of_one_leaf_do_not_undo_each_other() {
    check(|| {
        let rig = Rig::new();
        for key in ["k1", "k2", "k3"] {
            rig.insert(key.as_bytes(), b"old");
        }
        let (inserter, remover) = (rig.clone(), rig.clone());
        let threads: Threads = vec![
            Box::new(move || {
                for key in ["a", "b", "k2"] {
                    inserter.insert(key.as_bytes(), b"new");
                }
            }),
            Box::new(move || {
                for key in ["k1", "k3"] {
                    remover.remove(key.as_bytes());
                }
            }),
        ];
        let workers: Vec<_> = threads.into_iter().map(thread::spawn).collect();
        vec![Box::new(move || {
            for worker in workers {
                worker.join().unwrap();
            }
            assert_eq!(
                rig.scan(Direction::Forward),
                [b"a".to_vec(), b"b".to_vec(), b"k2".to_vec()]
            );
            assert_eq!(rig.get(b"k2"), Some(b"new".to_vec()));
        })]
    });
}

/// A writer never pauses, so that everything a reader copies optimistically has changed before it
/// is validated.
#[test]
fn readers_of_a_leaf_that_never_stops_changing_make_progress() {
    const CALLS_MAX: usize = 20;
    let run = || {
        let rig = Rig::new();
        for key in 0..8_u8 {
            rig.insert(&[key], &[1; 300]);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let writer = thread::spawn({
            let (rig, stop) = (rig.clone(), stop.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    rig.insert(&[3], &[2; 300]);
                }
            }
        });
        let (mut reader, mut out, mut page) = (ValueReader::new(), Vec::new(), LeafCopy::new());
        for turn in 0..4 {
            let done = (0..CALLS_MAX).any(|_| {
                let (pool, tree) = (&rig.pool, &rig.tree);
                let attempt = if turn % 2 == 0 {
                    let forward = Direction::Forward;
                    tree.try_scan_leaf(pool, Bound::Unbounded, forward, &mut page)
                } else {
                    tree.try_get(pool, &[3], &mut reader, &mut out).map(drop)
                };
                attempt.is_ok()
            });
            assert!(done, "a reader starves");
        }
        let pessimistic = rig.pool.statistics().get(Ticker::RestartsPessimistic);
        assert!(pessimistic > 0, "no change came between");
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    };
    shuttle::check_random(run, 50);
}

/// Returns a tree with three leaves of four records: a.., b.. and c... The first record of each
/// leaf stays.
fn leaves_to_merge() -> Arc<Rig> {
    let rig = Rig::new();
    for leaf in ["a", "c", "b"] {
        for n in 0..4 {
            rig.insert(format!("{leaf}{n}").as_bytes(), &[1; 900]);
        }
    }
    rig
}

#[test]
fn keys_are_neither_lost_nor_seen_twice_while_underfull_leaves_are_merged() {
    check(|| {
        let rig = leaves_to_merge();
        let (remover, writer, reader) = (rig.clone(), rig.clone(), rig.clone());
        let mut threads: Threads = vec![
            Box::new(move || {
                for key in ["b1", "b2", "b3", "c1", "c2", "c3", "a3", "a2", "a1"] {
                    remover.remove(key.as_bytes());
                    assert_eq!(remover.get(key.as_bytes()), None);
                }
            }),
            Box::new(move || {
                // The writer changes what the merge moves and what it takes away, and then splits
                // the result of the merge.
                for key in ["b0", "c0", "b5", "b6"] {
                    writer.insert(key.as_bytes(), &[2; 1000]);
                    assert_eq!(writer.get(key.as_bytes()), Some(vec![2; 1000]));
                }
            }),
            Box::new(move || {
                for key in ["c0", "b0", "a0"] {
                    assert!(reader.get(key.as_bytes()).is_some(), "{key}");
                }
            }),
        ];
        for direction in [Direction::Forward, Direction::Backward] {
            let rig = rig.clone();
            threads.push(Box::new(move || {
                let keys = rig.scan(direction);
                assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
                for always in [&b"a0"[..], b"b0", b"c0"] {
                    assert!(keys.iter().any(|key| key == always), "{keys:?}");
                }
            }));
        }
        threads
    });
}

#[test]
fn two_threads_that_merge_the_same_leaves_leave_one_sound_tree() {
    check(|| {
        let rig = leaves_to_merge();
        let workers: Vec<_> = [["b1", "b2", "b3", "a1"], ["c3", "c2", "c1", "a2"]]
            .into_iter()
            .map(|keys| {
                let rig = rig.clone();
                thread::spawn(move || {
                    for key in keys {
                        rig.remove(key.as_bytes());
                    }
                })
            })
            .collect();
        vec![Box::new(move || {
            for worker in workers {
                worker.join().unwrap();
            }
            let expected = [&b"a0"[..], b"a3", b"b0", b"c0"];
            assert_eq!(rig.scan(Direction::Forward), expected);
            assert_eq!(rig.scan(Direction::Backward), expected);
        })]
    });
}

/// The leaf of a key that was found exactly is split before the key is put; the half that stays has
/// a prefix that is longer than the key.
#[test]
fn a_found_key_is_replaced_while_its_leaf_is_split() {
    fn threads() -> Threads {
        let rig = Rig::new();
        let long = |number: u32| format!("{}{number}", "a".repeat(50));
        for key in ["c", "c1", "c2", "c3", "b"] {
            rig.insert(key.as_bytes(), &VALUE);
        }
        for number in 0..2 {
            rig.insert(long(number).as_bytes(), &VALUE);
        }
        let (one, other) = (rig.clone(), rig);
        let place = retry(|| one.tree.try_locate(&one.pool, b"b")).place;
        vec![
            Box::new(move || {
                let mut scratch = Scratch::new();
                let entry = (&b"b"[..], &VALUE[..100]);
                let _ = one.tree.put_run(
                    &one.pool,
                    &one.pool.apply_token(&enter(&one.pool)),
                    MARKS,
                    (&place, entry, std::iter::empty()),
                    &mut scratch,
                );
            }),
            Box::new(move || other.insert(long(2).as_bytes(), &VALUE)),
        ]
    }
    let run = || {
        let workers: Vec<_> = threads().into_iter().map(thread::spawn).collect();
        for worker in workers {
            worker.join().unwrap();
        }
    };
    shuttle::check_pct(run, 10_000, 3);
    shuttle::check_random(run, 10_000);
}
