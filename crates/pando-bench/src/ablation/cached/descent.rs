//! One point read, node by node, of the variants that go another way than the product does: a copy
//! of the product's descent with a [`NodeLookup`] in the place of two of its steps. What the
//! product does is not measured with it but as it is, and pays nothing for being measured.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool, Restart};
use pando_sync::atomic::AtomicU64;
use pando_tree::Tree;
use pando_tree::node::view::{ChildWord, LEVEL_MAX, Node};

/// Lines that are asked for at once, as the product does: of an inner node, of a leaf, and of a
/// record.
const INNER_LINES: usize = 16;
const LEAF_LINES: usize = 6;
const RECORD_LINES: usize = 3;

/// How a read comes by its nodes.
pub(super) trait NodeLookup<'p>: Sized {
    /// Looks up `page`, as [`Pool::optimistic`].
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>>;

    /// Where a read of `key` begins: at the root.
    #[inline]
    fn begin(&mut self, tree: &Tree, pool: &'p Pool, key: &[u8]) -> Attempt<Start<'p>> {
        let _ = key;
        let node = self.look(pool, tree.root, 0)?;
        Ok(Start { node, level: None })
    }
}

/// Under no latch: writes nothing.
#[derive(Debug)]
pub(super) struct OptimisticAccess;

impl<'p> NodeLookup<'p> for OptimisticAccess {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        pool.optimistic(page, hint)
    }
}

/// The first node of a descent.
#[derive(Debug)]
pub(super) struct Start<'p> {
    pub(super) node: Optimistic<'p>,
    /// Its level, if that is known.
    pub(super) level: Option<u8>,
}

/// What a read has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) found: bool,
    pub(super) leaf: PageId,
}

/// Asks for what a look at the child of `level` in the frame of `hint`, and a search of it, read.
#[inline]
pub(super) fn prefetch(pool: &Pool, level: u8, hint: u32) {
    match (pool.hinted(hint), level) {
        (Some(frame), 0) => frame.prefetch::<LEAF_LINES>(),
        (Some(frame), _) => frame.prefetch::<INNER_LINES>(),
        (None, _) => {}
    }
}

/// Reads the value of `key` into `out`: one try. Values lie in their leaves here.
///
/// # Errors
/// As [`Tree::try_get`].
#[inline]
pub(super) fn get<'p>(
    tree: &Tree,
    pool: &'p Pool,
    way: &mut impl NodeLookup<'p>,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Attempt<Found> {
    out.clear();
    let mut start = way.begin(tree, pool, key)?;
    for _ in 0..=LEVEL_MAX {
        let here = start.node;
        let node = Node::open(here.words().slice());
        let level = node.level();
        if !is_of(tree, &node) || start.level.is_some_and(|known| known != level) {
            here.validate()?;
            let what = "is no node of its tree and level";
            return Err(Restart::Damaged(here.page(), what));
        }
        if level == 0 {
            here.touch();
            return read(here, &node, key, out);
        }
        here.touch_inner();
        start = step_down(pool, way, here, &node, node.child_for(key))?;
    }
    start.node.validate()?;
    Err(Restart::Damaged(start.node.page(), "lies too deep"))
}

#[inline]
fn is_of(tree: &Tree, node: &Node<'_, AtomicU64>) -> bool {
    let kind = match node.level() {
        0 => node.is_leaf(),
        level => node.is_inner() && level <= LEVEL_MAX && node.count() > 0,
    };
    kind && node.tree() == tree.id
}

/// Acquires child `index` of `here`; proves that it was the child when its version was read.
#[inline]
fn step_down<'p>(
    pool: &'p Pool,
    way: &mut impl NodeLookup<'p>,
    here: Optimistic<'p>,
    node: &Node<'_, AtomicU64>,
    index: usize,
) -> Attempt<Start<'p>> {
    let (word, level) = (node.child(index), node.level() - 1);
    prefetch(pool, level, word.hint());
    let child = match way.look(pool, word.page(), word.hint()) {
        Ok(child) => child,
        Err(restart) => {
            // A torn word names any page.
            here.validate()?;
            return Err(restart);
        }
    };
    here.validate()?;
    if child.hint() != word.hint() {
        prefetch(pool, level, child.hint());
        let new = ChildWord::new(word.page(), child.hint());
        here.replace_hint(node.slot_word(index) + 1, word.0, new.0);
    }
    Ok(Start {
        node: child,
        level: Some(level),
    })
}

/// What the leaf `here` has of `key`.
#[inline]
fn read(
    here: Optimistic<'_>,
    node: &Node<'_, AtomicU64>,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Attempt<Found> {
    let candidate = node.candidate(key);
    if let Some(record) = candidate.record() {
        here.prefetch_words::<RECORD_LINES>(record);
    }
    let spot = node.find_at(candidate, key);
    if spot.exact {
        node.append_value(node.slot(spot.index), out);
    }
    let found = Found {
        found: spot.exact,
        leaf: here.page(),
    };
    here.validate()?;
    Ok(found)
}
