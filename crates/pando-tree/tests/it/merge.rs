//! Underfull nodes are merged with their neighbours.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_format::Lsn;
use pando_pool::Marks;
use pando_stats::Ticker;
use pando_tree::{Direction, LeafCopy, LeafFill};

use crate::rig::{NO_MARKS, Rig, Session, check_tree, enter, random_bytes, retry};

/// Removes `key` without any merge.
fn remove(rig: &Rig, session: &mut Session, key: &[u8]) -> LeafFill {
    let scratch = &mut session.scratch;
    let removed = rig.change(|token| {
        rig.tree
            .try_remove(&rig.pool, token, NO_MARKS, key, scratch)
    });
    rig.change(|token| session.scratch.try_finish(&rig.pool, token));
    assert!(removed.existed);
    removed.leaf_fill
}

fn merge(rig: &Rig, session: &mut Session, key: &[u8]) -> u32 {
    let scratch = &mut session.scratch;
    rig.change(|token| rig.tree.try_remove_empty(&rig.pool, token, NO_MARKS, key));
    rig.change(|token| rig.tree.try_merge(&rig.pool, token, NO_MARKS, key, scratch))
}

#[test]
fn leaves_that_lose_most_records_become_fewer_in_whatever_order() {
    let rigs = Rig::of_each_kind(4096, 8192);
    let rigs = rigs.into_iter().chain(Rig::of_each_kind(4096, 8192));
    for (order, rig) in (0..).zip(rigs.chain(Rig::of_each_kind(4096, 8192))) {
        let (mut session, mut random) = (Session::default(), Rng::with_seed(order));
        let mut keys: Vec<_> = (0..12_000).map(|n| format!("key{n:06}")).collect();
        for (number, key) in keys.iter().enumerate() {
            rig.insert(&mut session, key.as_bytes(), &[number as u8; 100]);
        }
        let before = check_tree(&rig);
        let kept: Vec<_> = keys.iter().step_by(10).cloned().collect();
        keys.retain(|key| kept.binary_search(key).is_err());
        match order / 3 {
            0 => {}
            1 => keys.reverse(),
            _ => random.shuffle(&mut keys),
        }
        for key in &keys {
            assert!(rig.remove(&mut session, key.as_bytes()));
        }
        let fill = rig.fill_percent(&check_tree(&rig));
        let after = check_tree(&rig);
        assert!(fill >= 25, "order {order}: {fill} %");
        assert!(after.leaves * 5 < before.leaves * 2, "{after:?}");
        let found = rig.scan(Bound::Unbounded, Direction::Backward, usize::MAX);
        let kept = kept.iter().rev().map(|key| key.as_bytes());
        assert!(found.iter().map(|(key, _)| &key[..]).eq(kept));
    }
}

#[test]
fn inner_nodes_merge_and_the_root_takes_the_place_of_its_last_child() {
    let rig = Rig::new(4096, 16384);
    let mut session = Session::default();
    // Long keys that differ early leave room for few children in a node, so the tree has at least
    // four levels.
    let key = |n: u32| {
        let mut key = n.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec();
        key.resize(200, b'x');
        for (at, byte) in n.to_be_bytes().iter().cycle().take(196).enumerate() {
            key[4 + at] = byte.wrapping_add(at as u8);
        }
        key
    };
    let level = |rig: &Rig| {
        let root = rig.tree.try_summary(&rig.pool, rig.tree.root);
        root.unwrap().level
    };
    for n in 0..20_000 {
        rig.insert(&mut session, &key(n), &[1; 600]);
    }
    let (tall, before) = (level(&rig), check_tree(&rig));
    for n in 0..20_000 {
        if n % 100 != 0 {
            assert!(rig.remove(&mut session, &key(n)));
        }
    }
    let after = check_tree(&rig);
    assert_eq!(after.records, 200);
    assert!(level(&rig) < tall, "{tall}: {after:?}");
    assert!(after.inner * 20 < before.inner, "{before:?} {after:?}");
    assert!(after.leaves * 20 < before.leaves, "{before:?} {after:?}");
}

/// A scan that proceeds leaf by leaf, while merges happen before, at and after its position.
struct Walk {
    direction: Direction,
    bound: Option<Bound<Vec<u8>>>,
    seen: Vec<Vec<u8>>,
}

impl Walk {
    fn step(&mut self, rig: &Rig, page: &mut LeafCopy) {
        let Some(bound) = &self.bound else { return };
        retry(|| {
            let bound = bound.as_ref().map(Vec::as_slice);
            rig.tree
                .try_scan_leaf(&rig.pool, bound, self.direction, page)
        });
        self.seen
            .extend((0..page.len()).map(|index| page.entry(index).0.to_vec()));
        self.bound = page.next_bound().map(|next| next.map(<[u8]>::to_vec));
    }
}

fn walks_and_merges(seed: u64, key_of: fn(u32) -> Vec<u8>) {
    let rig = Rig::new(4096, 8192);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(seed));
    let mut model = BTreeMap::new();
    for n in 0..3000 {
        let len = [0, 20, 150, 150, 400, 5000][random.usize(..6)];
        let (key, value) = (key_of(n), random_bytes(&mut random, len));
        rig.insert(&mut session, &key, &value);
        model.insert(key, value);
    }
    let mut to_free: Vec<_> = model.keys().cloned().collect();
    random.shuffle(&mut to_free);
    to_free.truncate(2700);
    let mut noted = Vec::new();
    for key in &to_free {
        model.remove(key);
        if remove(&rig, &mut session, key) != LeafFill::Enough {
            noted.push(key);
        }
    }
    random.shuffle(&mut noted);
    let mut walks: Vec<_> = [Direction::Forward, Direction::Backward]
        .into_iter()
        .map(|direction| Walk {
            direction,
            bound: Some(Bound::Unbounded),
            seen: Vec::new(),
        })
        .collect();
    let (mut page, mut merged) = (LeafCopy::new(), 0);
    while let Some(key) = noted.pop() {
        merged += merge(&rig, &mut session, key);
        for walk in &mut walks {
            if random.usize(..3) == 0 {
                walk.step(&rig, &mut page);
            }
        }
        if noted.len() % 50 == 0 {
            check_tree(&rig);
        }
    }
    assert!(merged > 20, "{merged}");
    for mut walk in walks {
        while walk.bound.is_some() {
            walk.step(&rig, &mut page);
        }
        if walk.direction == Direction::Backward {
            walk.seen.reverse();
        }
        assert!(walk.seen.iter().eq(model.keys()), "{:?}", walk.direction);
    }
    for (key, value) in &model {
        assert_eq!(rig.get(&mut session, key), Some(&value[..]));
    }
    assert!(rig.fill_percent(&check_tree(&rig)) >= 25);
    // The merged leaves can be filled and split again.
    for (key, value) in &model {
        rig.insert(&mut session, &[key, &b"+"[..]].concat(), value);
    }
    assert_eq!(check_tree(&rig).records, 2 * model.len());
}

#[test]
fn scans_see_each_key_once_while_leaves_are_merged_between_their_steps() {
    walks_and_merges(1, |n| format!("user:{n:08}").into_bytes());
    walks_and_merges(2, |n| n.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec());
    // Each group of keys has a long prefix, so the common prefix of two neighbours may be short or
    // long.
    walks_and_merges(3, |n| {
        let mut key = vec![b'a' + (n / 40 % 20) as u8; (n / 40 % 7) as usize * 50];
        key.extend(n.to_be_bytes());
        key
    });
}

/// Makes a root with two leaves whose keys have one byte. Returns the number of records in the left
/// leaf.
fn two_leaves(rig: &Rig, session: &mut Session) -> u8 {
    let mut n = 0;
    while rig.pool.statistics().get(Ticker::Splits) == 0 {
        rig.insert(session, &[n], &[n; 150]);
        n += 1;
    }
    let mut page = LeafCopy::new();
    retry(|| {
        rig.tree
            .try_scan_leaf(&rig.pool, Bound::Unbounded, Direction::Forward, &mut page)
    });
    for more in n..n + 12 {
        rig.insert(session, &[more], &[more; 150]);
    }
    page.len() as u8
}

#[test]
fn a_merged_leaf_has_the_marks_of_both() {
    for newest_left in [false, true] {
        let rig = Rig::new(4096, 64);
        let mut session = Session::default();
        let left = two_leaves(&rig, &mut session);
        let newest = Marks {
            lsn: Lsn(5000),
            multi_lsn: Lsn(4000),
        };
        let marked = if newest_left { 0 } else { left };
        rig.change(|token| {
            let scratch = &mut session.scratch;
            rig.tree
                .try_insert(&rig.pool, token, newest, &[marked], b"", scratch)
        });
        for key in 2..left {
            remove(&rig, &mut session, &[key]);
        }
        let own = Marks {
            lsn: Lsn(4500),
            multi_lsn: Lsn(0),
        };
        let scratch = &mut session.scratch;
        let merged = rig.change(|token| rig.tree.try_merge(&rig.pool, token, own, &[1], scratch));
        assert_eq!(merged, 2, "the right leaf, and the root's last child");
        for key in [0, left] {
            let lookup = retry(|| rig.tree.try_contains(&rig.pool, &[key]));
            assert!(lookup.found);
            let marks = (lookup.lsn_max, lookup.multi_lsn);
            assert_eq!(marks, (Lsn(5000), Lsn(4000)));
        }
    }
}

#[test]
fn a_key_that_comes_and_goes_at_the_threshold_neither_merges_nor_splits_again() {
    let rig = Rig::new(4096, 1024);
    let mut session = Session::default();
    for n in 0..2000u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    let statistics = rig.pool.statistics();
    let changes = || statistics.get(Ticker::Splits) + statistics.get(Ticker::PagesMerged);
    for n in 0..2000u32 {
        if n % 8 == 0 {
            continue;
        }
        assert!(rig.remove(&mut session, &n.to_be_bytes()));
        let before = changes();
        for _ in 0..3 {
            rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
            rig.remove(&mut session, &n.to_be_bytes());
        }
        assert_eq!(changes(), before, "around {n}");
    }
}

#[test]
fn two_leaves_that_would_fill_more_than_three_quarters_stay_apart() {
    let rig = Rig::new(4096, 64);
    let mut session = Session::default();
    let left = two_leaves(&rig, &mut session);
    // This fills the right leaf to about three quarters.
    for more in 100..107 {
        rig.insert(&mut session, &[more], &[1; 150]);
    }
    let notes: Vec<_> = (1..left)
        .map(|key| {
            let fill = remove(&rig, &mut session, &[key]);
            assert_eq!(merge(&rig, &mut session, &[key]), 0, "{key}");
            fill
        })
        .filter(|fill| *fill != LeafFill::Enough)
        .collect();
    assert_eq!(
        notes,
        [LeafFill::Underfull; 2],
        "below a quarter, below an eighth"
    );
    assert_eq!(check_tree(&rig).leaves, 2);
    for more in 100..107 {
        remove(&rig, &mut session, &[more]);
    }
    assert_eq!(merge(&rig, &mut session, &[0]), 2);
    assert_eq!(check_tree(&rig).leaves, 1);
}

/// A root has no neighbour to be merged with, so it is never reported as underfull.
#[test]
fn a_root_is_never_called_thin() {
    let rig = Rig::new(4096, 64);
    let mut session = Session::default();
    for key in 0..20 {
        rig.insert(&mut session, &[key], &[1; 150]);
    }
    for key in 0..20 {
        assert_eq!(remove(&rig, &mut session, &[key]), LeafFill::Enough);
    }
    assert_eq!(merge(&rig, &mut session, &[0]), 0);
}

/// A single call merges neighbours into a leaf until it is no longer underfull.
#[test]
fn one_look_goes_on_until_the_leaf_is_underfull_no_more() {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for n in 0..600u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    for n in (0..600u32).filter(|n| n % 10 != 0) {
        remove(&rig, &mut session, &n.to_be_bytes());
    }
    let before = check_tree(&rig).leaves;
    let merged = merge(&rig, &mut session, &300u32.to_be_bytes());
    assert!(merged >= 2, "{merged} of {before}");
    let located = retry(|| rig.tree.try_locate(&rig.pool, &300u32.to_be_bytes()));
    assert!(located.free_bytes <= 3072, "{located:?}");
    assert_eq!(merge(&rig, &mut session, &300u32.to_be_bytes()), 0);
}

#[test]
fn a_running_checkpoint_gets_what_it_needs_of_merged_pages() {
    let rig = Rig::new(4096, 64);
    let mut session = Session::default();
    let left = two_leaves(&rig, &mut session);
    for key in 1..left {
        remove(&rig, &mut session, &[key]);
    }
    let leaf_of = |key| {
        let lookup = retry(|| rig.tree.try_contains(&rig.pool, &[key]));
        lookup.leaf
    };
    let pages = [rig.tree.root, leaf_of(0), leaf_of(left)];
    rig.pool
        .epochs()
        .advance(&rig.pool.gate().close(), Lsn(session.lsn));
    let inside = enter(&rig.pool);
    let token = rig.pool.apply_token(&inside);
    let scratch = &mut session.scratch;
    let merged = retry(|| {
        rig.tree
            .try_merge(&rig.pool, &token, NO_MARKS, &[0], scratch)
    });
    assert_eq!(merged, 2);
    let mut images = Vec::new();
    rig.pool.take_started_images(&mut images, usize::MAX);
    for page in pages {
        assert!(images.iter().any(|image| image.page() == page), "{page}");
    }
}
