//! Traps for readers that use a copy of the root: changes between the read of the copy and the read
//! of the child, and changes between two reads after which the copy is stale.

use pando_format::page::PageKind;
use pando_format::{Extent, FrameIndex, Lsn, PageDecoder, PageEncoder, PageId, TreeId};
use pando_pool::{Attempt, LoadStart, Marks, Optimistic, Pool, Restart};
use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pando_sync::thread;
use pando_tree::node::view::Node;
use pando_tree::{LeafFill, Scratch, Tree};

use super::descent::{self, Found, NodeLookup, OptimisticAccess};
use super::rig::{Rig, enter, is_value_of, value_of};
use super::snapshot::{FromSnapshot, RootSnapshot};

const KEYS: u64 = 1000;
const PAGE_BYTES: usize = 4096;
const MARKS: Marks = Marks {
    lsn: Lsn(1),
    multi_lsn: Lsn(0),
};

fn key_of(rig: &Rig, number: u64) -> Vec<u8> {
    let mut key = Vec::new();
    rig.keys.write(number, &mut key);
    key
}

fn read_by<'p>(
    rig: &'p Rig,
    way: &mut impl NodeLookup<'p>,
    key: &[u8],
) -> Attempt<(Found, Vec<u8>)> {
    let mut out = Vec::new();
    let found = descent::get(&rig.tree, &rig.pool, way, key, &mut out)?;
    Ok((found, out))
}

/// Reads key `number` through `snapshot`. Returns whether it exists.
fn read(rig: &Rig, snapshot: &mut RootSnapshot, number: u64) -> Attempt<bool> {
    let below = OptimisticAccess;
    let mut way = FromSnapshot { snapshot, below };
    let (lookup, out) = read_by(rig, &mut way, &key_of(rig, number))?;
    assert!(!lookup.found || is_value_of(number, &out), "key {number}");
    Ok(lookup.found)
}

fn remove(rig: &Rig, number: u64) {
    let (pool, tree, key) = (&rig.pool, &rig.tree, key_of(rig, number));
    let mut scratch = Scratch::new();
    let removed = tree.try_remove(
        pool,
        &pool.apply_token(&enter(pool)),
        MARKS,
        &key,
        &mut scratch,
    );
    scratch
        .try_finish(pool, &pool.apply_token(&enter(pool)))
        .unwrap();
    if removed.unwrap().leaf_fill == LeafFill::Empty {
        tree.try_remove_empty(pool, &pool.apply_token(&enter(pool)), MARKS, &key)
            .unwrap();
    }
}

fn insert(rig: &Rig, key: &[u8], number: u64) {
    let mut scratch = Scratch::new();
    rig.insert(key, &value_of(number), &mut scratch).unwrap();
}

/// Splits leaves in every part of the tree.
fn grow(rig: &Rig) {
    for number in 0..KEYS {
        insert(rig, &[&key_of(rig, number)[..], b"!"].concat(), number);
    }
}

fn leaf_of(rig: &Rig, number: u64) -> PageId {
    let located = rig.tree.try_locate(&rig.pool, &key_of(rig, number));
    located.unwrap().leaf
}

/// A way that runs `what` before or after its first look-up, which is that of the root's child.
struct Meddling<F> {
    before: bool,
    what: Option<F>,
}

impl<'p, F: FnOnce(PageId)> NodeLookup<'p> for Meddling<F> {
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        let mut now = self.what.take().map(|what| || what(page));
        let mut run = || {
            if let Some(what) = now.take() {
                what();
            }
        };
        if self.before {
            run();
        }
        let seen = pool.optimistic(page, hint);
        run();
        seen
    }
}

/// Reads `number` and runs `what` between the read of the copy and the end of the look-up of the
/// child. The read must restart, and the next read must find the state after the change.
fn check_between(number: u64, is_there_then: bool, what: impl Fn(&Rig)) {
    for before in [true, false] {
        let rig = Rig::filled(KEYS, PAGE_BYTES, 1).unwrap();
        let mut snapshot = RootSnapshot::default();
        assert_eq!(read(&rig, &mut snapshot, number), Ok(true));
        let mut way = FromSnapshot {
            snapshot: &mut snapshot,
            below: Meddling {
                before,
                what: Some(|_| what(&rig)),
            },
        };
        let found = read_by(&rig, &mut way, &key_of(&rig, number));
        assert!(matches!(found, Err(Restart::Conflict)), "{found:?}");
        assert_eq!(read(&rig, &mut snapshot, number), Ok(is_there_then));
        assert_eq!(snapshot.copies, 2);
    }
}

#[test]
fn a_child_that_is_freed_and_used_as_another_kind_of_page_is_not_read_from_a_copy() {
    let victim = 100;
    check_between(victim, false, |rig| {
        let leaf = leaf_of(rig, victim);
        for number in (0..KEYS).filter(|number| leaf_of(rig, *number) == leaf) {
            remove(rig, number);
        }
        // Continues until the page is an overflow page.
        for number in 0..KEYS {
            let mut scratch = Scratch::new();
            let key = format!("long {number}");
            rig.insert(key.as_bytes(), &[9; 9000], &mut scratch)
                .unwrap();
            let seen = rig.pool.optimistic(leaf, 0);
            if seen.is_ok_and(|seen| {
                Node::open(seen.words().slice()).kind() == Some(PageKind::Overflow)
            }) {
                return;
            }
        }
        panic!("{leaf} is not used again");
    });
}

#[test]
fn a_tree_that_is_emptied_and_grown_again_is_read_through_a_new_copy() {
    check_between(211, true, |rig| {
        for number in 0..KEYS {
            remove(rig, number);
        }
        for number in 0..KEYS {
            insert(rig, &key_of(rig, number), number);
        }
    });
}

/// Here the root is laid out anew by splits of its children.
#[test]
fn a_root_whose_content_is_moved_drops_its_copies() {
    check_between(390, true, grow);
}

#[test]
fn a_copy_is_made_once_for_as_long_as_the_root_stays_as_it_is() {
    let rig = Rig::filled(KEYS, PAGE_BYTES, 1).unwrap();
    let mut snapshot = RootSnapshot::default();
    for number in 0..KEYS {
        assert_eq!(read(&rig, &mut snapshot, number), Ok(true));
    }
    assert_eq!(snapshot.copies, 1);
    // Replacing a value splits nothing, so the root does not change.
    insert(&rig, &key_of(&rig, 7), 7);
    assert_eq!(read(&rig, &mut snapshot, 7), Ok(true));
    assert_eq!(snapshot.copies, 1);
    grow(&rig);
    for number in 0..KEYS {
        assert_eq!(read(&rig, &mut snapshot, number), Ok(true));
    }
    assert_eq!(snapshot.copies, 2);
    assert_eq!(snapshot.words.capacity(), PAGE_BYTES / 8, "a page");
}

#[test]
fn a_tree_of_one_leaf_has_no_copy_and_is_read() {
    let rig = Rig::empty(KEYS, PAGE_BYTES, 1).unwrap();
    let mut snapshot = RootSnapshot::default();
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(false));
    insert(&rig, &key_of(&rig, 1), 1);
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    assert_eq!(snapshot.copies, 0);
    grow(&rig);
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    assert_eq!(snapshot.copies, 1);
    for number in 0..KEYS {
        let key = [&key_of(&rig, number)[..], b"!"].concat();
        let mut scratch = Scratch::new();
        let tree = &rig.tree;
        let removed = tree.try_remove(
            &rig.pool,
            &rig.pool.apply_token(&enter(&rig.pool)),
            MARKS,
            &key,
            &mut scratch,
        );
        if removed.unwrap().leaf_fill == LeafFill::Empty {
            let removed = tree.try_remove_empty(
                &rig.pool,
                &rig.pool.apply_token(&enter(&rig.pool)),
                MARKS,
                &key,
            );
            removed.unwrap();
        }
    }
    remove(&rig, 1);
    assert_eq!(
        read(&rig, &mut snapshot, 1),
        Ok(false),
        "the root is a leaf again"
    );
}

/// Writes a page back and loads it into another frame.
fn move_page(rig: &Rig, page: PageId) {
    let pool = &rig.pool;
    let latched = pool.exclusive(page).unwrap();
    latched.unwire();
    let frame = latched.hint() - 1;
    drop(latched);
    let mut image = pool.image_of(FrameIndex(frame), None).unwrap();
    pool.seal_image(&mut image, &mut PageEncoder::default())
        .unwrap();
    let bytes = image.bytes().to_vec();
    let extent = Extent {
        block: 3,
        blocks: 1,
    };
    assert!(pool.complete_image(image, extent).is_ok());
    while !pool.is_on_disk(page) {
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
        "the freed frame is used at once"
    );
    let Ok(LoadStart::Claimed(ticket)) = pool.begin_load(page) else {
        panic!("no other thread reads the page");
    };
    let decoder = &mut PageDecoder::default();
    pool.finish_load(ticket, &bytes, decoder).unwrap();
}

/// The version alone does not identify a copy: a page in another frame may reach the same version.
#[test]
fn a_root_in_another_frame_at_the_same_version_is_copied_again() {
    let rig = Rig::filled(KEYS, PAGE_BYTES, 1).unwrap();
    let version = || rig.pool.optimistic(rig.tree.root, 0).unwrap().version();
    let release = || drop(rig.pool.exclusive(rig.tree.root).unwrap());
    (0..5000).for_each(|_| release());
    let mut snapshot = RootSnapshot::default();
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    let copied = version();
    move_page(&rig, rig.tree.root);
    grow(&rig);
    assert!(version() < copied);
    while version() < copied {
        release();
    }
    assert_eq!(version(), copied);
    for number in 0..KEYS {
        assert_eq!(read(&rig, &mut snapshot, number), Ok(true), "{number}");
    }
    assert_eq!(snapshot.copies, 2);
}

/// The hint of a child is corrected in the copy, without another copy of the root.
#[test]
fn a_copy_learns_where_a_child_has_gone() {
    let rig = Rig::filled(KEYS, PAGE_BYTES, 1).unwrap();
    let mut snapshot = RootSnapshot::default();
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    let leaf = leaf_of(&rig, 1);
    move_page(&rig, leaf);
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    assert_eq!(snapshot.copies, 1, "the root has not changed");
    let node = Node::open(&snapshot.words);
    let mut children = (0..node.count()).map(|index| node.child(index));
    let child = children.find(|child| child.page() == leaf).unwrap();
    let now = rig.pool.optimistic(leaf, 0).unwrap().hint();
    assert_eq!(child.hint(), now);
}

#[test]
fn a_copy_of_a_tree_that_is_gone_answers_nothing() {
    let rig = Rig::filled(KEYS, PAGE_BYTES, 1).unwrap();
    let mut snapshot = RootSnapshot::default();
    assert_eq!(read(&rig, &mut snapshot, 1), Ok(true));
    rig.pool.exclusive(rig.tree.root).unwrap().unwire();
    let mut scratch = Scratch::new();
    while !rig
        .tree
        .try_free_leftmost(
            &rig.pool,
            &rig.pool.apply_token(&enter(&rig.pool)),
            &mut scratch,
        )
        .unwrap()
        .done
    {}
    assert!(read(&rig, &mut snapshot, 1).is_err());
    // The page of its root becomes the root of another tree.
    let mut others = Vec::new();
    while others.last() != Some(&rig.tree.root) {
        let other = Tree::create(
            &rig.pool,
            &rig.pool.apply_token(&enter(&rig.pool)),
            TreeId(5),
        )
        .unwrap();
        others.push(other.root);
    }
    assert!(read(&rig, &mut snapshot, 1).is_err());
}

#[test]
fn readers_with_copies_miss_nothing_in_a_storm_of_splits() {
    let rig = Rig::empty(20 * KEYS, PAGE_BYTES, 1).unwrap();
    for number in 0..KEYS {
        insert(&rig, &key_of(&rig, number), number);
    }
    let (begun, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let copies = thread::scope(|scope| {
        let reader = || {
            let mut snapshot = RootSnapshot::default();
            let mut number = 0;
            let mut read_next = || {
                match read(&rig, &mut snapshot, number % KEYS) {
                    Ok(found) => assert!(found, "{number}"),
                    Err(restart) => assert_eq!(restart, Restart::Conflict),
                }
                number += 1;
            };
            read_next();
            // All accesses are relaxed: they order nothing.
            begun.fetch_add(1, Ordering::Relaxed);
            while !is_over.load(Ordering::Relaxed) {
                read_next();
            }
            read_next();
            assert!(snapshot.words.capacity() <= PAGE_BYTES / 8);
            snapshot.copies
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        while begun.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        for number in KEYS..20 * KEYS {
            insert(&rig, &key_of(&rig, number), number);
        }
        is_over.store(true, Ordering::Relaxed);
        readers.map(|reader| reader.join().unwrap())
    });
    // One copy was made of the first root, and at least one of a later state.
    assert!(copies.iter().all(|copies| *copies >= 2), "{copies:?}");
}
