//! Nodes that take entries from their right neighbours until they are full.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_format::Lsn;
use pando_pool::Marks;
use pando_stats::Ticker;
use pando_tree::{Direction, LeafCopy, Packed};

use crate::rig::{NO_MARKS, Rig, Session, check_tree, enter, random_bytes, retry};

/// Packs one level, and runs `between` after each step. Returns the number of steps.
fn pack_level(rig: &Rig, session: &mut Session, level: u8, mut between: impl FnMut()) -> usize {
    let (mut key, mut next) = (Vec::new(), Vec::new());
    for step in 1.. {
        let packed = rig.change(|token| {
            let scratch = &mut session.scratch;
            rig.tree
                .try_pack(&rig.pool, token, NO_MARKS, &key, level, &mut next, scratch)
        });
        between();
        match packed {
            Packed::Merged => {}
            Packed::Next => {
                assert!(next > key, "each step moves forward");
                key.clone_from(&next);
            }
            Packed::Last | Packed::Top => return step,
        }
    }
    unreachable!()
}

fn pack(rig: &Rig, session: &mut Session, mut between: impl FnMut()) {
    let top = retry(|| rig.tree.try_root_level(&rig.pool));
    for level in (0..top).rev().chain(1..top) {
        pack_level(rig, session, level, &mut between);
    }
    rig.change(|token| {
        let scratch = &mut session.scratch;
        rig.tree.try_merge(&rig.pool, token, NO_MARKS, b"", scratch)
    });
}

fn scattered(n: u32) -> Vec<u8> {
    n.wrapping_mul(0x9E37_79B1).to_be_bytes().to_vec()
}

#[test]
fn what_insertions_and_removals_have_left_sparse_becomes_dense() {
    for (kept_of_ten, value_bytes) in [(10, 100), (1, 100), (3, 20), (1, 300)] {
        for rig in Rig::of_each_kind(4096, 8192) {
            become_dense(&rig, kept_of_ten, value_bytes);
        }
    }
}

fn become_dense(rig: &Rig, kept_of_ten: u32, value_bytes: usize) {
    let mut session = Session::default();
    for n in 0..15_000 {
        rig.insert(&mut session, &scattered(n), &vec![n as u8; value_bytes]);
    }
    for n in (0..15_000).filter(|n| n % 10 >= kept_of_ten) {
        assert!(rig.remove(&mut session, &scattered(n)));
    }
    let before = check_tree(rig);
    // What the first time has brought below one parent is packed the second time.
    pack(rig, &mut session, || {});
    pack(rig, &mut session, || {});
    let after = check_tree(rig);
    assert_eq!(
        (after.records, after.weight),
        (before.records, before.weight)
    );
    assert!(
        rig.fill_percent(&check_tree(rig)) >= 85,
        "{}",
        rig.fill_percent(&check_tree(rig))
    );
    assert!(after.inner <= 1 + before.inner / 2 || after.inner * 60 <= after.leaves);
    // A tree that is packed already is only read.
    let packed = rig.pool.statistics().get(Ticker::PagesPacked);
    pack(rig, &mut session, || {});
    let again = rig.pool.statistics().get(Ticker::PagesPacked) - packed;
    assert!(
        again * 10 <= after.leaves as u64,
        "{again} of {}",
        after.leaves
    );
    for n in 0..15_000 {
        let expected = (n % 10 < kept_of_ten).then(|| vec![n as u8; value_bytes]);
        assert_eq!(rig.get(&mut session, &scattered(n)), expected.as_deref());
    }
}

/// A scan that proceeds between steps.
struct Walk {
    direction: Direction,
    bound: Option<Bound<Vec<u8>>>,
    seen: Vec<Vec<u8>>,
}

impl Walk {
    fn step(&mut self, rig: &Rig) {
        let Some(bound) = &self.bound else { return };
        let mut page = LeafCopy::new();
        retry(|| {
            let bound = bound.as_ref().map(Vec::as_slice);
            rig.tree
                .try_scan_leaf(&rig.pool, bound, self.direction, &mut page)
        });
        self.seen
            .extend((0..page.len()).map(|index| page.entry(index).0.to_vec()));
        self.bound = page.next_bound().map(|next| next.map(<[u8]>::to_vec));
    }
}

fn walks_and_packs(seed: u64, key_of: fn(u32) -> Vec<u8>) {
    let rig = Rig::new(4096, 8192);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(seed));
    let mut model = BTreeMap::new();
    for n in 0..4000 {
        let len = [0, 20, 150, 150, 400, 5000][random.usize(..6)];
        let (key, value) = (key_of(n), random_bytes(&mut random, len));
        rig.insert(&mut session, &key, &value);
        model.insert(key, value);
    }
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    for key in keys {
        if random.usize(..3) == 0 {
            rig.remove(&mut session, &key);
            model.remove(&key);
        }
    }
    let mut walks: Vec<Walk> = [Direction::Forward, Direction::Backward, Direction::Forward]
        .into_iter()
        .map(|direction| Walk {
            direction,
            bound: Some(Bound::Unbounded),
            seen: Vec::new(),
        })
        .collect();
    let before = check_tree(&rig);
    pack(&rig, &mut session, || {
        for (index, walk) in walks.iter_mut().enumerate() {
            // The first scan is about as fast as the packing; the second one is much slower.
            if random.usize(..1 + 3 * index) == 0 {
                walk.step(&rig);
            }
        }
    });
    let after = check_tree(&rig);
    assert!(
        after.leaves * 10 < before.leaves * 9,
        "{before:?} {after:?}"
    );
    assert_eq!(after.lsn_max, before.lsn_max);
    for mut walk in walks {
        while walk.bound.is_some() {
            walk.step(&rig);
        }
        if walk.direction == Direction::Backward {
            walk.seen.reverse();
        }
        assert!(walk.seen.iter().eq(model.keys()), "{:?}", walk.direction);
    }
    for (key, value) in &model {
        assert_eq!(rig.get(&mut session, key), Some(&value[..]));
    }
    for (key, value) in &model {
        rig.insert(&mut session, &[key, &b"+"[..]].concat(), value);
    }
    assert_eq!(check_tree(&rig).records, 2 * model.len());
}

#[test]
fn scans_see_each_key_once_while_leaves_are_packed_between_their_steps() {
    walks_and_packs(1, |n| format!("user:{n:08}").into_bytes());
    walks_and_packs(2, scattered);
    walks_and_packs(3, |n| {
        let mut key = vec![b'a' + (n / 40 % 20) as u8; (n / 40 % 7) as usize * 50];
        key.extend(n.to_be_bytes());
        key
    });
}

#[test]
fn a_leaf_that_takes_records_has_the_marks_of_both() {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for n in 0..200u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    for n in 0..10u32 {
        rig.remove(&mut session, &n.to_be_bytes());
    }
    let leaf = |n: u32| retry(|| rig.tree.try_contains(&rig.pool, &n.to_be_bytes()));
    let first = leaf(10).leaf;
    let second = (10..200).find(|n| leaf(*n).leaf != first).unwrap();
    let newest = Marks {
        lsn: Lsn(5000),
        multi_lsn: Lsn(4000),
    };
    rig.change(|token| {
        let (key, scratch) = (second.to_be_bytes(), &mut session.scratch);
        rig.tree
            .try_insert(&rig.pool, token, newest, &key, b"", scratch)
    });
    let own = Marks {
        lsn: Lsn(6000),
        multi_lsn: Lsn(0),
    };
    let mut next = Vec::new();
    let packed = rig.change(|token| {
        let scratch = &mut session.scratch;
        rig.tree
            .try_pack(&rig.pool, token, own, b"", 0, &mut next, scratch)
    });
    assert_eq!(packed, Packed::Next);
    assert_eq!(leaf(second).leaf, first, "it took the record");
    assert!(next > second.to_be_bytes().to_vec());
    for n in [10, second, second + 12] {
        let marks = (leaf(n).lsn_max, leaf(n).multi_lsn);
        assert_eq!(marks, (Lsn(6000), Lsn(4000)), "{n}");
    }
}

#[test]
fn a_running_checkpoint_gets_what_it_needs_of_packed_pages() {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for n in 0..100u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    for n in 0..10u32 {
        rig.remove(&mut session, &n.to_be_bytes());
    }
    let root = rig.tree.try_summary(&rig.pool, rig.tree.root).unwrap();
    rig.pool
        .epochs()
        .advance(&rig.pool.gate().close(), Lsn(session.lsn));
    let inside = enter(&rig.pool);
    let token = rig.pool.apply_token(&inside);
    let mut next = Vec::new();
    retry(|| {
        let scratch = &mut session.scratch;
        rig.tree
            .try_pack(&rig.pool, &token, NO_MARKS, b"", 0, &mut next, scratch)
    });
    let mut images = Vec::new();
    rig.pool.take_started_images(&mut images, usize::MAX);
    for page in [root.page, root.children[0], root.children[1]] {
        assert!(images.iter().any(|image| image.page() == page), "{page}");
    }
}
