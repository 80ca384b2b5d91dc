//! Changes between two steps of a reader. Each test tries its change at every step, one step at a
//! time.
//!
//! A reader reads its nodes through an [`Access`]. The one of these tests changes the tree just
//! before or just after the look-up of a node. The reader may answer with the state before or after
//! the change, or restart. It never reports damage and never panics.
//!
//! The last test is of writers that lose their leaf to each other.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::cell::Cell;
use std::ops::Bound;

use fastrand::Rng;
use pando_format::page::{PageKind, SLOT_OVERFLOW, WORD_KIND};
use pando_format::{
    Compression, Extent, FrameIndex, Lsn, PageDecoder, PageEncoder, PageId, PageSize, TreeId,
};
use pando_pool::{
    Attempt, CheckImages, Content, HintedFrame, LoadStart, Marks, Optimistic, Pool, PoolOptions,
    Restart,
};
use pando_stats::Statistics;
use pando_sync::Arc;
use pando_sync::gate::GateGuard;

use crate::access::{Access, OptimisticAccess};
use crate::get_group::{Fate, GROUP_MAX};
use crate::leaf_copy::{Direction, LeafCopy};
use crate::node::check::{check_page, prepare_image};
use crate::node::view::Node;
use crate::remove::LeafFill;
use crate::scratch::Scratch;
use crate::tree::Tree;
use crate::value::ValueReader;
use crate::word::Store;

const MARKS: Marks = Marks {
    lsn: Lsn(1),
    multi_lsn: Lsn(0),
};
const KEYS: u32 = 400;
/// The root and the leaves.
const LEVELS: usize = 2;
/// Keys of a group that is read.
const GROUP: usize = 3;
/// A value of this length needs three overflow pages.
const LONG: usize = 9000;

/// Enters the gate of `pool`, which no test closes.
fn enter(pool: &Pool) -> GateGuard<'_> {
    pool.gate().try_enter().unwrap()
}

struct Rig {
    pool: Pool,
    tree: Tree,
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:08} behind a prefix").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    let len = if number % 40 == 7 { LONG } else { 100 };
    number.to_be_bytes().repeat(len / 4)
}

impl Rig {
    fn new() -> Self {
        let pool = Pool::new(PoolOptions {
            page_size: PageSize::new(4096).unwrap(),
            frames: 512,
            page_ids_max: 512,
            images: 4,
            block_bytes: 4096,
            compression: Compression::None,
            prepare_image,
            check_page,
            check_images: CheckImages::All,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .unwrap();
        let tree = Tree::create(&pool, &pool.apply_token(&enter(&pool)), TreeId(7)).unwrap();
        let rig = Self { pool, tree };
        rig.fill();
        let located = rig.tree.try_locate(&rig.pool, &key(0)).unwrap();
        assert_eq!(usize::from(located.levels), LEVELS);
        rig
    }

    fn fill(&self) {
        for number in 0..KEYS {
            self.insert(&key(number), &value(number));
        }
    }

    fn insert(&self, key: &[u8], value: &[u8]) {
        let (pool, mut scratch) = (&self.pool, Scratch::new());
        let inserted = self.tree.try_insert(
            pool,
            &pool.apply_token(&enter(pool)),
            MARKS,
            key,
            value,
            &mut scratch,
        );
        inserted.unwrap();
        scratch
            .try_finish(pool, &pool.apply_token(&enter(pool)))
            .unwrap();
    }

    fn remove(&self, key: &[u8]) {
        let (pool, mut scratch) = (&self.pool, Scratch::new());
        let removed = self.tree.try_remove(
            pool,
            &pool.apply_token(&enter(pool)),
            MARKS,
            key,
            &mut scratch,
        );
        scratch
            .try_finish(pool, &pool.apply_token(&enter(pool)))
            .unwrap();
        if removed.unwrap().leaf_fill == LeafFill::Empty {
            self.tree
                .try_remove_empty(pool, &pool.apply_token(&enter(pool)), MARKS, key)
                .unwrap();
        }
    }

    fn get<'p>(&'p self, access: &mut impl Access<'p>, key: &[u8]) -> Attempt<Option<Vec<u8>>> {
        let (mut reader, mut out) = (ValueReader::new(), Vec::new());
        let copy = Some((&mut reader, &mut out));
        let lookup = self.tree.get(&self.pool, access, key, copy)?;
        Ok(lookup.found.then_some(out))
    }

    /// Reads `wanted` in a group, as the last of [`GROUP`] keys. None: it is to be read by itself.
    fn get_in_group<'p>(
        &'p self,
        access: &mut impl Access<'p>,
        wanted: &[u8],
    ) -> Attempt<Option<Option<Vec<u8>>>> {
        let (first, last) = (key(0), key(KEYS - 1));
        let keys: [_; GROUP] = [&first[..], &last, wanted];
        let (mut values, mut fates) = (Vec::new(), [Fate::Long; GROUP_MAX]);
        let to = (&mut values, &mut fates);
        self.tree.read_group(&self.pool, access, &keys, to);
        for fate in &fates[..GROUP] {
            if let Fate::Restart(restart) = fate {
                assert_eq!(*restart, Restart::Conflict);
            }
        }
        match fates[GROUP - 1] {
            Fate::Read {
                lookup,
                start,
                bytes,
            } => {
                let value = || values[start..start + bytes].to_vec();
                Ok(Some(lookup.found.then(value)))
            }
            Fate::Long => Ok(None),
            Fate::Restart(restart) => Err(restart),
        }
    }

    fn leaf_of(&self, key: &[u8]) -> PageId {
        self.tree.try_locate(&self.pool, key).unwrap().leaf
    }

    fn words(&self, page: PageId) -> Vec<u64> {
        let seen = self.pool.optimistic(page, 0).unwrap();
        let words = seen.words();
        (0..512).map(|index| words.load(index)).collect()
    }

    fn overwrite(&self, page: PageId, words: &[u64]) {
        let mut latched = self.pool.exclusive(page).unwrap();
        let mut target = latched
            .modify(&self.pool.apply_token(&enter(&self.pool)))
            .unwrap();
        for (index, word) in words.iter().enumerate() {
            Store::store(&mut target, index, *word);
        }
    }

    /// Allocates overflow pages until one of them has the id of `page`.
    fn use_as_overflow(&self, page: PageId) {
        let mut number = 0_u32;
        while !self.is_overflow(page) {
            self.insert(format!("long {number}").as_bytes(), &[9; LONG]);
            number += 1;
            assert!(number < 100, "{page} is not used again");
        }
    }

    fn is_overflow(&self, page: PageId) -> bool {
        self.pool
            .optimistic(page, 0)
            .is_ok_and(|seen| Node::open(seen.words().slice()).kind() == Some(PageKind::Overflow))
    }
}

/// Runs `what` before or after the look-up number `at`, counted from 0.
struct Meddling<F> {
    at: usize,
    before: bool,
    looks: Cell<usize>,
    what: F,
}

impl<F> Meddling<F> {
    fn new(at: usize, before: bool, what: F) -> Self {
        Self {
            at,
            before,
            looks: Cell::new(0),
            what,
        }
    }
}

impl<'p, F: FnMut(PageId)> Access<'p> for Meddling<F> {
    fn look(
        &mut self,
        pool: &'p Pool,
        page: PageId,
        hinted: Option<HintedFrame<'p>>,
    ) -> Attempt<Optimistic<'p>> {
        let now = self.looks.get() == self.at;
        self.looks.set(self.looks.get() + 1);
        if now && self.before {
            (self.what)(page);
        }
        let seen = pool.optimistic_in(page, hinted);
        if now && !self.before {
            (self.what)(page);
        }
        seen
    }
}

/// Reads `wanted` while `what` runs at each step in turn. A result must be one of `answers`, and a
/// later read must return the second one.
fn check(wanted: &[u8], answers: [Option<&[u8]>; 2], what: impl Fn(&Rig)) {
    check_reads(false, wanted, answers, &what);
    check_reads(true, wanted, answers, &what);
}

/// As [`check`], for a key by itself or in a group.
fn check_reads(in_group: bool, wanted: &[u8], answers: [Option<&[u8]>; 2], what: &impl Fn(&Rig)) {
    let looks = match in_group {
        // The root, which is looked up once, and the leaf of each key.
        true => LEVELS - 1 + GROUP,
        false => LEVELS,
    };
    let mut restarts = 0;
    for at in 0..looks {
        for before in [true, false] {
            let rig = Rig::new();
            let mut access = Meddling::new(at, before, |_| what(&rig));
            let read = match in_group {
                true => match rig.get_in_group(&mut access, wanted) {
                    // It is started again as a single read.
                    Ok(None) => Err(Restart::Conflict),
                    read => read.map(Option::flatten),
                },
                false => rig.get(&mut access, wanted),
            };
            match read {
                Ok(found) => assert!(
                    answers.contains(&found.as_deref()),
                    "look-up {at}: {} bytes",
                    found.map_or(0, |found| found.len())
                ),
                Err(Restart::Conflict) => restarts += 1,
                Err(other) => panic!("look-up {at}: {other:?}"),
            }
            // The next read finds the state after the change.
            let now = rig.get(&mut OptimisticAccess, wanted).unwrap();
            assert_eq!(now.as_deref(), answers[1]);
        }
    }
    assert!(restarts > 0, "no change came between two steps");
}

#[test]
fn a_child_that_is_freed_and_used_as_another_kind_of_page_is_not_read() {
    let victim = 100;
    check(&key(victim), [Some(&value(victim)), None], |rig| {
        let leaf = rig.leaf_of(&key(victim));
        for number in 0..KEYS {
            if rig.leaf_of(&key(number)) == leaf {
                rig.remove(&key(number));
            }
        }
        rig.use_as_overflow(leaf);
    });
}

#[test]
fn a_tree_that_is_emptied_and_grown_again_is_read_as_it_was_or_is() {
    let expected = value(211);
    check(&key(211), [Some(&expected), Some(&expected)], |rig| {
        for number in 0..KEYS {
            rig.remove(&key(number));
        }
        assert!(rig.get(&mut OptimisticAccess, &key(211)).unwrap().is_none());
        rig.fill();
    });
}

#[test]
fn a_leaf_that_is_merged_away_is_read_as_it_was_or_is() {
    // One key in twenty stays. One of them is the victim, which moves to pages further left.
    let (victim, kept) = (211, 11);
    let expected = value(victim);
    check(&key(victim), [Some(&expected), Some(&expected)], |rig| {
        let before = rig.leaf_of(&key(victim));
        for number in (0..KEYS).filter(|number| number % 20 != kept) {
            rig.remove(&key(number));
        }
        let mut scratch = Scratch::new();
        for number in (kept..KEYS).step_by(20) {
            let (pool, key) = (&rig.pool, key(number));
            let merged = rig.tree.try_merge(
                pool,
                &pool.apply_token(&enter(pool)),
                MARKS,
                &key,
                &mut scratch,
            );
            merged.unwrap();
        }
        assert_ne!(rig.leaf_of(&key(victim)), before);
        rig.use_as_overflow(before);
    });
}

#[test]
fn a_root_that_becomes_a_leaf_is_not_taken_for_an_inner_node() {
    check(&key(3), [Some(&value(3)), None], |rig| {
        for number in 0..KEYS {
            rig.remove(&key(number));
        }
        let root = rig.pool.optimistic(rig.tree.root, 0).unwrap();
        assert!(Node::open(root.words().slice()).is_leaf());
    });
}

#[test]
fn a_root_whose_content_is_moved_is_read_as_it_was_or_is() {
    let expected = value(390);
    check(&key(390), [Some(&expected), Some(&expected)], |rig| {
        // This splits each leaf, so that the separators of the root are laid out anew.
        for number in 0..KEYS {
            let mut close = key(number);
            close.push(b'!');
            rig.insert(&close, &[5; 300]);
        }
        let root = rig.words(rig.tree.root);
        rig.overwrite(rig.tree.root, &root);
    });
}

#[test]
fn a_root_that_is_written_back_and_loaded_elsewhere_is_read() {
    let expected = value(5);
    check(&key(5), [Some(&expected), Some(&expected)], |rig| {
        let (pool, root) = (&rig.pool, rig.tree.root);
        let frame = pool.exclusive(root).unwrap().hint() - 1;
        let mut image = pool.image_of(FrameIndex(frame), None).unwrap();
        pool.seal_image(&mut image, &mut PageEncoder::default())
            .unwrap();
        let bytes = image.bytes().to_vec();
        let extent = Extent {
            block: 3,
            blocks: 1,
        };
        assert!(pool.complete_image(image, extent).is_ok());
        while !pool.is_on_disk(root) {
            pool.sweep(pool.frames(), 1, &mut Vec::new());
        }
        let other = pool.allocate(
            &pool.apply_token(&enter(pool)),
            TreeId(9),
            PageKind::Overflow,
            0,
        );
        assert_eq!(
            other.unwrap().hint() - 1,
            frame,
            "the frame is used at once"
        );
        let Ok(LoadStart::Claimed(ticket)) = pool.begin_load(root) else {
            panic!("no other reader");
        };
        let decoder = &mut PageDecoder::default();
        pool.finish_load(ticket, &bytes, decoder).unwrap();
    });
}

#[test]
fn a_value_that_is_replaced_while_it_is_read_is_one_of_the_two() {
    let (old, new) = (value(47), vec![1; LONG - 20]);
    assert_eq!(old.len(), LONG);
    check(&key(47), [Some(&old), Some(&new)], |rig| {
        rig.insert(&key(47), &new)
    });
}

/// Returns words as a torn read may see them: arbitrary words, or a valid page with some words
/// changed.
fn torn(sound: &[u64], random: &mut Rng) -> Vec<u64> {
    let mut words = sound.to_vec();
    match random.usize(..4) {
        0 => words.iter_mut().for_each(|word| *word = random.u64(..)),
        1 => {
            // The header stays valid, so that everything after it is used.
            words[8..]
                .iter_mut()
                .for_each(|word| *word = random.u64(..));
        }
        2 => {
            for _ in 0..=random.usize(..6) {
                let index = random.usize(..80);
                words[index] = random.u64(..);
            }
        }
        _ => {
            for _ in 0..=random.usize(..40) {
                let index = random.usize(..512);
                words[index] ^= 1 << random.usize(..64);
                words[8 + random.usize(..60)] |= SLOT_OVERFLOW;
            }
        }
    }
    if random.bool() {
        words[WORD_KIND] = sound[WORD_KIND];
    }
    words
}

#[test]
fn a_page_that_is_torn_under_a_reader_only_ever_makes_it_start_again() {
    let rig = Rig::new();
    let mut random = Rng::with_seed(77);
    let mut copy = LeafCopy::new();
    for round in 0..4000_u32 {
        let wanted = key(round * 31 % KEYS);
        let at = random.usize(..2);
        let page = [rig.tree.root, rig.leaf_of(&wanted)][at];
        let sound = rig.words(page);
        let words = torn(&sound, &mut random);
        let in_group = round % 5 == 4;
        let look = if in_group { at * GROUP } else { at };
        let mut access = Meddling::new(look, false, |seen| {
            assert_eq!(seen, page);
            rig.overwrite(page, &words);
        });
        let bound = Bound::Included(&wanted[..]);
        let result = match round % 5 {
            _ if in_group => match rig.get_in_group(&mut access, &wanted) {
                Ok(None) => Err(Restart::Conflict),
                read => read.map(drop),
            },
            0 => rig.get(&mut access, &wanted).map(drop),
            1 => rig.tree.locate(&rig.pool, &mut access, &wanted).map(drop),
            2 => {
                let forward = Direction::Forward;
                rig.tree
                    .scan_leaf(&rig.pool, &mut access, bound, forward, &mut copy)
            }
            _ => {
                let backward = Direction::Backward;
                rig.tree
                    .scan_leaf(&rig.pool, &mut access, bound, backward, &mut copy)
            }
        };
        assert_eq!(result, Err(Restart::Conflict), "round {round}");
        rig.overwrite(page, &sound);
    }
    for number in 0..KEYS {
        assert_eq!(
            rig.get(&mut OptimisticAccess, &key(number)),
            Ok(Some(value(number)))
        );
    }
}

/// Changes two records of one leaf in turn; each writer has lost the leaf to the other before.
/// Returns whether both are still in one leaf after as many changes.
fn share_after(changes: usize, numbers: [u32; 2]) -> bool {
    let rig = Rig::new();
    let leaf = |number| rig.tree.try_locate(&rig.pool, &key(number)).unwrap().leaf;
    let shared = leaf(numbers[0]);
    assert_eq!(shared, leaf(numbers[1]), "they begin in one leaf");
    for number in numbers.into_iter().cycle().take(changes) {
        let mut scratch = Scratch::new();
        scratch.work.lost = Some(shared);
        let guard = enter(&rig.pool);
        let token = &rig.pool.apply_token(&guard);
        let (key, value) = (key(number), value(number));
        let inserted = (rig.tree).try_insert(&rig.pool, token, MARKS, &key, &value, &mut scratch);
        assert!(inserted.unwrap().replaced);
        scratch.try_finish(&rig.pool, token).unwrap();
    }
    for number in 0..KEYS {
        let found = rig.get(&mut OptimisticAccess, &key(number));
        assert_eq!(found, Ok(Some(value(number))));
    }
    leaf(numbers[0]) == leaf(numbers[1])
}

#[test]
fn writers_that_lose_a_leaf_to_each_other_part_it() {
    assert!(share_after(31, [201, 202]), "parted early");
    assert!(!share_after(32, [201, 202]));
    // No split can separate writers of the same record.
    assert!(share_after(100, [201, 201]));
}
