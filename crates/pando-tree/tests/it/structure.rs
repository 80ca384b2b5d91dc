//! The structure of trees that grow, fill up and shrink.

use std::ops::Bound;

use fastrand::Rng;
use pando_format::page::{HEADER_WORDS, WORD_HEAP};
use pando_format::{Extent, FrameIndex, Lsn, TreeId};
use pando_pool::{Attempt, Marks, Restart};
use pando_stats::Ticker;
use pando_tree::{Direction, LeafCopy, LeafFill, Scratch, Tree, ValueReader};

use crate::rig::{Rig, Session, check_tree, enter, random_bytes, retry};

#[test]
fn an_ascending_load_fills_leaves() {
    let rig = Rig::new(4096, 8192);
    let mut session = Session::default();
    for n in 0..20_000 {
        let key = format!("user:{n:012}");
        rig.insert(&mut session, key.as_bytes(), &[7; 60]);
    }
    let facts = check_tree(&rig);
    assert_eq!(facts.records, 20_000);
    let fill = rig.fill_percent(&facts);
    assert!(fill >= 95, "{fill} %");
    let per_leaf = facts.records / facts.leaves;
    assert!(per_leaf >= 49, "{per_leaf} a leaf: keys share their prefix");
    assert!(rig.pool.statistics().get(Ticker::Splits) as usize >= facts.leaves);
}

#[test]
fn ascending_loads_between_other_keys_fill_leaves_too() {
    let rig = Rig::new(4096, 8192);
    let mut session = Session::default();
    rig.insert(&mut session, b"zzz", b"");
    for n in 0..10_000u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[7; 60]);
    }
    let facts = check_tree(&rig);
    let fill = rig.fill_percent(&facts);
    assert!(fill >= 95, "{fill} %");
}

/// Inserts the keys of many sequences, each of which ascends or descends one by one. The next
/// sequence is chosen at random. Returns the fill of the leaves in percent.
fn fill_of_sequences(sequences: usize, each: u32, descending: bool, value: &[u8]) -> usize {
    let rig = Rig::new(4096, 16384);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(5));
    let mut next = vec![0; sequences];
    for _ in 0..sequences as u32 * each {
        let sequence = random.usize(..sequences);
        let place = if descending {
            u32::MAX - next[sequence]
        } else {
            next[sequence]
        };
        next[sequence] += 1;
        let key = format!("sequence {sequence:04} entry {place:010}");
        rig.insert(&mut session, key.as_bytes(), value);
    }
    let facts = check_tree(&rig);
    assert_eq!(facts.records, sequences * each as usize);
    rig.fill_percent(&facts)
}

#[test]
fn interleaved_sequences_fill_leaves() {
    for descending in [false, true] {
        for (sequences, each, value) in [(8, 2000, 60), (100, 1000, 20), (100, 300, 150)] {
            let fill = fill_of_sequences(sequences, each, descending, &vec![7; value]);
            let what = format!("{sequences} of {each}, {value} bytes, descending: {descending}");
            assert!(fill >= 85, "{what}: {fill} %");
        }
    }
}

#[test]
fn a_descending_load_fills_leaves() {
    let rig = Rig::new(4096, 8192);
    let mut session = Session::default();
    for n in (0..10_000u64).rev() {
        rig.insert(&mut session, &n.to_be_bytes(), &[7; 40]);
    }
    let facts = check_tree(&rig);
    let fill = rig.fill_percent(&facts);
    assert!(fill >= 95, "{fill} %");
}

/// If random insertions were taken for runs, leaves would be split far from the middle.
#[test]
fn random_loads_are_not_taken_for_runs() {
    for (count, value) in [(20_000, 40), (8000, 400), (4000, 900)] {
        let rig = Rig::new(4096, 8192);
        let (mut session, mut random) = (Session::default(), Rng::with_seed(3));
        for _ in 0..count {
            rig.insert(&mut session, &random.u64(..).to_be_bytes(), &vec![7; value]);
        }
        let facts = check_tree(&rig);
        let fill = rig.fill_percent(&facts);
        assert!(fill >= 63, "{value} bytes: {fill} %");
    }
}

#[test]
fn deleting_everything_leaves_one_leaf_in_whatever_order() {
    for order in 0..3 {
        let rig = Rig::new(4096, 8192);
        let (mut session, mut random) = (Session::default(), Rng::with_seed(order));
        let mut keys: Vec<_> = (0..6000u32).map(|n| format!("key{n:06}")).collect();
        for key in &keys {
            rig.insert(&mut session, key.as_bytes(), &[1; 500]);
        }
        assert!(check_tree(&rig).inner > 1);
        match order {
            0 => {}
            1 => keys.reverse(),
            _ => random.shuffle(&mut keys),
        }
        for (step, key) in keys.iter().enumerate() {
            assert!(rig.remove(&mut session, key.as_bytes()));
            if step % 1000 == 0 {
                assert_eq!(check_tree(&rig).empty_leaves, 0);
            }
        }
        let facts = check_tree(&rig);
        assert_eq!((facts.leaves, facts.inner, facts.records), (1, 0, 0));
        assert_eq!(
            facts.lsn_max, session.lsn,
            "the last leaf inherits all marks"
        );
        rig.insert(&mut session, b"again", b"and again");
        assert_eq!(rig.get(&mut session, b"again"), Some(&b"and again"[..]));
    }
}

#[test]
fn a_leaf_that_takes_over_a_range_inherits_its_marks() {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for n in 0..200u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    // The newest change of all is the removal of the last record of the first leaf.
    let mut page = LeafCopy::new();
    retry(|| {
        rig.tree
            .try_scan_leaf(&rig.pool, Bound::Unbounded, Direction::Forward, &mut page)
    });
    let mut reader = ValueReader::new();
    let mut out = Vec::new();
    let keys: Vec<_> = (0..page.len())
        .map(|index| page.entry(index).0.to_vec())
        .collect();
    let marks = |n| Marks {
        lsn: Lsn(n),
        multi_lsn: Lsn(n),
    };
    let mut scratch = Scratch::new();
    for (n, key) in keys.iter().enumerate() {
        let marks = marks(1000 + n as u64);
        let removed = rig.change(|token| {
            rig.tree
                .try_remove(&rig.pool, token, marks, key, &mut scratch)
        });
        assert_eq!(removed.leaf_fill == LeafFill::Empty, n + 1 == keys.len());
    }
    let newest = 1000 + keys.len() as u64 - 1;
    assert!(rig.change(|token| {
        rig.tree
            .try_remove_empty(&rig.pool, token, marks(0), &keys[0])
    }));
    let lookup = retry(|| rig.tree.try_get(&rig.pool, &keys[0], &mut reader, &mut out));
    assert!(!lookup.found);
    assert_eq!(
        (lookup.lsn_max, lookup.multi_lsn),
        (Lsn(newest), Lsn(newest))
    );
    assert!(!rig.change(|token| {
        rig.tree
            .try_remove_empty(&rig.pool, token, marks(0), &keys[0])
    }));
    check_tree(&rig);
}

#[test]
fn a_split_leaf_hands_its_marks_to_both_sides() {
    let rig = Rig::new(4096, 256);
    let mut scratch = Scratch::new();
    let mut insert = |n: u32, lsn| {
        let marks = Marks {
            lsn: Lsn(lsn),
            multi_lsn: Lsn(lsn),
        };
        rig.change(|token| {
            rig.tree.try_insert(
                &rig.pool,
                token,
                marks,
                &n.to_be_bytes(),
                &[1; 100],
                &mut scratch,
            )
        });
    };
    insert(500, 999);
    for n in 0..400 {
        insert(n * 7 % 400, 1);
    }
    for n in 0..400u32 {
        let lookup = retry(|| rig.tree.try_contains(&rig.pool, &n.to_be_bytes()));
        assert!(lookup.found);
        assert_eq!((lookup.lsn_max, lookup.multi_lsn), (Lsn(999), Lsn(999)));
    }
}

#[test]
fn a_dropped_tree_gives_all_its_pages_back() {
    let rig = Rig::new(4096, 8192);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(9));
    for n in 0..3000 {
        let len = if n % 50 == 0 {
            random.usize(..200_000)
        } else {
            60
        };
        let key = random_bytes(&mut random, 10);
        let value = random_bytes(&mut random, len);
        rig.insert(&mut session, &key, &value);
    }
    let pages = check_tree(&rig).overflow;
    assert!(pages > 500);
    let used = rig.pages_used();
    let mut freed = 0;
    loop {
        let step = rig.change(|token| {
            rig.tree
                .try_free_leftmost(&rig.pool, token, &mut session.scratch)
        });
        rig.change(|token| session.scratch.try_finish(&rig.pool, token));
        freed += step.pages_freed as usize;
        assert_eq!(rig.pages_used(), used - freed);
        if step.done {
            break;
        }
        if freed % 7 == 0 {
            check_tree(&rig);
        }
    }
    assert_eq!(rig.pages_used(), 0);
}

#[test]
fn pages_of_another_tree_are_damage() {
    let rig = Rig::new(4096, 256);
    let stranger = Tree {
        id: TreeId(8),
        root: rig.tree.root,
    };
    let result = stranger.try_contains(&rig.pool, b"key");
    assert!(matches!(result, Err(Restart::Damaged(page, _)) if page == rig.tree.root));
}

#[test]
fn a_long_prefix_that_a_new_key_lacks_starts_a_leaf_of_its_own() {
    let rig = Rig::new(4096, 1024);
    let mut session = Session::default();
    let long = |n: u32| [&[b'm'; 1000][..], &n.to_be_bytes()].concat();
    for n in 0..2000 {
        rig.insert(&mut session, &long(n), b"v");
    }
    for other in [&b"a"[..], b"z", b"mmz", b"mma", b"", b"n"] {
        rig.insert(&mut session, other, b"other");
        check_tree(&rig);
    }
    for n in 0..2000 {
        assert_eq!(rig.get(&mut session, &long(n)), Some(&b"v"[..]));
    }
    for other in [&b"a"[..], b"z", b"mmz", b"mma", b"", b"n"] {
        assert_eq!(rig.get(&mut session, other), Some(&b"other"[..]));
    }
    assert_eq!(
        rig.scan(Bound::Unbounded, Direction::Forward, usize::MAX)
            .len(),
        2006
    );
}

#[test]
fn a_scan_of_long_keys_goes_on_within_a_leaf() {
    let rig = Rig::new(65536, 64);
    let mut session = Session::default();
    let long = |n: u32| [&[b'm'; 16000][..], &n.to_be_bytes()].concat();
    for n in 0..500 {
        rig.insert(&mut session, &long(n), b"v");
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut keys: Vec<_> = rig.scan(Bound::Unbounded, direction, usize::MAX);
        if direction == Direction::Backward {
            keys.reverse();
        }
        assert!(
            keys.iter()
                .map(|r| &r.0)
                .eq(&(0..500).map(long).collect::<Vec<_>>())
        );
    }
}

#[test]
fn a_located_leaf_is_the_one_that_a_get_reads() {
    let rig = Rig::new(4096, 1024);
    let mut session = Session::default();
    for n in 0..1000u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[0; 30]);
    }
    let located = retry(|| rig.tree.try_locate(&rig.pool, &500u32.to_be_bytes()));
    let lookup = retry(|| rig.tree.try_contains(&rig.pool, &500u32.to_be_bytes()));
    assert_eq!(located.leaf, lookup.leaf);
    assert_eq!(located.levels, 2);
    assert!(located.free_bytes < 4096);
}

#[test]
fn a_child_of_the_wrong_level_is_damage_and_not_an_endless_descent() {
    let rig = Rig::new(4096, 256);
    let mut session = Session::default();
    for n in 0..200u32 {
        rig.insert(&mut session, &n.to_be_bytes(), &[1; 100]);
    }
    {
        let mut latch = rig.pool.exclusive(rig.tree.root).unwrap();
        let mut page = latch
            .modify(&rig.pool.apply_token(&enter(&rig.pool)))
            .unwrap();
        // Makes the root its own first child.
        page.store(HEADER_WORDS + 1, u64::from(rig.tree.root.0));
    }
    let result = rig.tree.try_contains(&rig.pool, &[0]);
    let expected = Restart::Damaged(rig.tree.root, "is no node of its tree and level");
    assert_eq!(result, Err(expected));
}

const MARKS: Marks = Marks {
    lsn: Lsn(100),
    multi_lsn: Lsn(0),
};

/// Returns a tree with the keys 0 to 40, four in each leaf, without those in `removed`. The
/// contents of the leaves of `one` and `other` are swapped, which no check of a single page can
/// detect.
fn with_swapped_leaves(removed: &[u8], one: u8, other: u8) -> (Rig, Session) {
    let rig = Rig::new(4096, 64);
    let mut session = Session::default();
    for key in 0..40 {
        rig.insert(&mut session, &[key], &[7; 900]);
    }
    let inside = enter(&rig.pool);
    let token = rig.pool.apply_token(&inside);
    for key in removed {
        let scratch = &mut session.scratch;
        retry(|| (rig.tree).try_remove(&rig.pool, &token, MARKS, &[*key], scratch));
    }
    let leaves = [one, other].map(|key| retry(|| rig.tree.try_contains(&rig.pool, &[key])).leaf);
    let contents = leaves.map(|leaf| {
        let seen = rig.pool.optimistic(leaf, 0).unwrap();
        let words = WORD_HEAP..rig.pool.page_size().words();
        words
            .map(|word| seen.words().load(word))
            .collect::<Vec<_>>()
    });
    for (leaf, words) in leaves.iter().zip(contents.iter().rev()) {
        let mut latch = rig.pool.exclusive(*leaf).unwrap();
        let mut page = latch.modify(&token).unwrap();
        for (index, word) in words.iter().enumerate() {
            page.store(WORD_HEAP + index, *word);
        }
    }
    drop(inside);
    (rig, session)
}

fn check_damaged<T: std::fmt::Debug>(result: Attempt<T>, expected: &str) {
    match result {
        Err(Restart::Damaged(_, what)) => assert_eq!(what, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leaf_with_keys_of_another_place_is_not_split() {
    let (rig, mut session) = with_swapped_leaves(&[], 8, 20);
    let (inside, scratch) = (enter(&rig.pool), &mut session.scratch);
    let token = rig.pool.apply_token(&inside);
    let inserted = (rig.tree).try_insert(&rig.pool, &token, MARKS, &[8, 0], &[7; 900], scratch);
    check_damaged(inserted, "has a child whose keys are not between its own");
}

#[test]
fn underfull_leaves_in_each_others_place_are_not_merged() {
    let (rig, mut session) = with_swapped_leaves(&[9, 10, 11, 13, 14, 15], 8, 12);
    let (inside, scratch) = (enter(&rig.pool), &mut session.scratch);
    let token = rig.pool.apply_token(&inside);
    // The leaf's left neighbour is full.
    let merged = (rig.tree).try_merge(&rig.pool, &token, MARKS, &[8], scratch);
    check_damaged(merged, "has keys that are not behind those to its left");
}

#[test]
fn keys_of_another_place_are_not_packed() {
    let mut removed = vec![5, 6, 21];
    removed.extend((24..40).filter(|key| key % 4 > 1));
    removed.extend([1, 2, 13, 14, 17, 18]);
    let (rig, mut session) = with_swapped_leaves(&removed, 8, 20);
    let (inside, scratch) = (enter(&rig.pool), &mut session.scratch);
    let token = rig.pool.apply_token(&inside);
    let mut next = Vec::new();
    let packed = (rig.tree).try_pack(&rig.pool, &token, MARKS, &[4], 0, &mut next, scratch);
    check_damaged(packed, "has a child whose keys are not between its own");
}

#[test]
fn a_tree_that_was_freed_is_gone_while_its_images_are_in_flight() {
    let rig = Rig::new(4096, 64);
    let mut session = Session::default();
    for key in 0..40_u8 {
        rig.insert(&mut session, &[key], &[7; 900]);
    }
    // Only the root and one leaf remain.
    while rig.pages_used() > 2 {
        rig.change(|token| {
            rig.tree
                .try_free_leftmost(&rig.pool, token, &mut session.scratch)
        });
        rig.change(|token| session.scratch.try_finish(&rig.pool, token));
    }
    let frames = (0..rig.pool.frames() as u32).map(FrameIndex);
    let images: Vec<_> = frames
        .filter_map(|frame| rig.pool.image_of(frame, None))
        .collect();
    assert_eq!(images.len(), 2);
    let last = rig.change(|token| {
        rig.tree
            .try_free_leftmost(&rig.pool, token, &mut session.scratch)
    });
    assert!(last.done);
    // A note of an underfull leaf, or a compaction, may be processed after this.
    let marks = Marks {
        lsn: Lsn(0),
        multi_lsn: Lsn(0),
    };
    let guard = enter(&rig.pool);
    let token = rig.pool.apply_token(&guard);
    let gone = |result: Option<Restart>| match result {
        Some(Restart::Damaged(page, _)) => page == rig.tree.root,
        _ => false,
    };
    let merged = rig
        .tree
        .try_merge(&rig.pool, &token, marks, &[39], &mut session.scratch);
    assert!(gone(merged.err()));
    let removed = rig.tree.try_remove_empty(&rig.pool, &token, marks, &[39]);
    assert!(gone(removed.err()));
    let looked = rig.tree.try_contains(&rig.pool, &[39]);
    assert!(gone(looked.err()));
    assert_eq!(rig.pages_used(), 2, "the ids wait for the images");
    for (block, image) in (1..).zip(images) {
        let extent = Extent { block, blocks: 1 };
        assert!(rig.pool.complete_image(image, extent).is_ok());
    }
    assert_eq!(rig.pages_used(), 0);
}
