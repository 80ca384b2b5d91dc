//! The tree: its identity, how it begins, and the descent that every operation starts with.
//!
//! ```text
//! step from parent to child:
//!   parent version -> child word -> child frame (hint, else page table) -> child version
//!   -> parent version again -> the child is the one that covers the key
//! ```
//! Nothing is latched on the way. A change latches what it changes, at the versions that the
//! descent saw, parent before child, and releases none before all are changed; so a reader that
//! finds versions unchanged has read one state of the tree. Every attempt that fails holds nothing.

use pando_format::page::PageKind;
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{Attempt, Exclusive, Marks, Optimistic, Pool, Restart, Stay};
use pando_stats::Ticker;
use pando_sync::atomic::AtomicU64;

use crate::approach::{Approach, Freely};
use crate::node::view::{self, ChildWord, LEVEL_MAX, Node};
use crate::word::Store;

/// Lines that are asked for as soon as a leaf's frame is known: its header and most of its slots.
const LEAF_LINES: usize = 6;
/// The same of an inner node.
const INNER_LINES: usize = 16;

/// A node of a frame.
pub(crate) type FrameNode<'p> = Node<'p, AtomicU64>;

/// A B+tree. The root keeps its page id for the life of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Its name; every page of the tree carries it.
    pub id: TreeId,
    /// Its root.
    pub root: PageId,
}

/// Where a descent begins.
#[derive(Debug, Clone, Copy)]
pub struct Start<'p> {
    /// The first node.
    pub node: Optimistic<'p>,
    /// Its level, if that is known.
    pub level: Option<u8>,
}

/// An inner node on the way down, and which of its children was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'p> {
    pub(crate) node: Optimistic<'p>,
    pub(crate) index: usize,
    pub(crate) count: usize,
}

/// All inner nodes on the way down, the root first.
#[derive(Debug)]
pub(crate) struct Path<'p> {
    steps: [Option<Step<'p>>; LEVEL_MAX as usize + 1],
    len: usize,
}

impl<'p> Path<'p> {
    fn new() -> Self {
        Self {
            steps: [None; LEVEL_MAX as usize + 1],
            len: 0,
        }
    }

    fn push(&mut self, step: Step<'p>) {
        debug_assert!(self.len < self.steps.len(), "a way longer than any tree");
        if let Some(place) = self.steps.get_mut(self.len) {
            *place = Some(step);
            self.len += 1;
        }
    }

    pub(crate) fn steps(&self) -> impl DoubleEndedIterator<Item = Step<'p>> + '_ {
        self.steps[..self.len].iter().copied().flatten()
    }

    /// The lowest inner node with two children or more, and how many nodes lie above it.
    pub(crate) fn fork(&self) -> Option<(usize, Step<'p>)> {
        let depths = (0..self.len).rev();
        depths
            .zip(self.steps().rev())
            .find(|(_, step)| step.count > 1)
    }
}

impl Tree {
    /// Makes a tree that is an empty leaf.
    ///
    /// # Errors
    /// As [`Pool::allocate`].
    pub fn create(pool: &Pool, stay: &Stay<'_>, id: TreeId) -> Attempt<Self> {
        let mut root = pool.allocate(stay, id, PageKind::Leaf, 0)?;
        match root.modify(stay) {
            Ok(mut page) => view::clear(&mut page),
            Err(restart) => {
                root.free(stay);
                return Err(restart);
            }
        }
        Ok(Self {
            id,
            root: root.page(),
        })
    }

    /// Goes down from the root to the node of level `stop` that `choose` leads to.
    #[inline]
    pub(crate) fn descend<'p>(
        &self,
        pool: &'p Pool,
        approach: &mut impl Approach<'p>,
        stop: u8,
        mut choose: impl FnMut(Optimistic<'p>, &FrameNode<'p>) -> usize,
    ) -> Attempt<Optimistic<'p>> {
        let root = self.root(pool, approach)?;
        let start = Start {
            node: root,
            level: None,
        };
        let choose = |_: &mut _, here, node: &_| choose(here, node);
        self.descend_from(pool, approach, start, stop, choose)
    }

    /// The root.
    #[inline]
    pub(crate) fn root<'p>(
        &self,
        pool: &'p Pool,
        approach: &mut impl Approach<'p>,
    ) -> Attempt<Optimistic<'p>> {
        approach.look(pool, self.root, 0)
    }

    /// Levels of the tree, the leaves included.
    ///
    /// # Errors
    /// [`Restart`].
    pub fn try_height(&self, pool: &Pool) -> Attempt<u8> {
        let root = self.root(pool, &mut Freely)?;
        let level = self.node_at(root, None)?.level();
        root.validate()?;
        Ok(level + 1)
    }

    /// The node at `here`, of this tree and of `level` if that is known.
    #[inline]
    pub(crate) fn node_at<'p>(
        &self,
        here: Optimistic<'p>,
        level: Option<u8>,
    ) -> Attempt<FrameNode<'p>> {
        let node = Node::open(here.words().slice());
        if !self.owns(&node) || level.is_some_and(|level| level != node.level()) {
            here.validate()?;
            return Err(Restart::Damaged(
                here.page(),
                "is no node of its tree and level",
            ));
        }
        Ok(node)
    }

    /// Goes down from `start` to level `stop`.
    #[inline]
    pub(crate) fn descend_from<'p, A: Approach<'p>>(
        &self,
        pool: &'p Pool,
        approach: &mut A,
        start: Start<'p>,
        stop: u8,
        mut choose: impl FnMut(&mut A, Optimistic<'p>, &FrameNode<'p>) -> usize,
    ) -> Attempt<Optimistic<'p>> {
        let Start {
            node: mut here,
            level: mut expected,
        } = start;
        for _ in 0..LEVEL_MAX + 1 {
            let node = self.node_at(here, expected)?;
            let level = node.level();
            if level <= stop {
                approach.touch(here);
                return Ok(here);
            }
            approach.touch_inner(here);
            let index = choose(approach, here, &node);
            here = step_down(pool, approach, here, &node, index)?;
            expected = Some(level - 1);
        }
        here.validate()?;
        Err(Restart::Damaged(here.page(), "lies too deep"))
    }

    /// Goes down to the leaf that `choose` leads to and lists all nodes above it.
    pub(crate) fn descend_with_path<'p>(
        &self,
        pool: &'p Pool,
        approach: &mut impl Approach<'p>,
        choose: impl FnMut(&FrameNode<'p>) -> usize,
    ) -> Attempt<(Path<'p>, Optimistic<'p>)> {
        self.descend_with_path_to(pool, approach, 0, choose)
    }

    /// As [`Tree::descend_with_path`], to the node of level `stop`.
    pub(crate) fn descend_with_path_to<'p>(
        &self,
        pool: &'p Pool,
        approach: &mut impl Approach<'p>,
        stop: u8,
        mut choose: impl FnMut(&FrameNode<'p>) -> usize,
    ) -> Attempt<(Path<'p>, Optimistic<'p>)> {
        let mut path = Path::new();
        let leaf = self.descend(pool, approach, stop, |here, node| {
            let index = choose(node);
            path.push(Step {
                node: here,
                index,
                count: node.count(),
            });
            index
        })?;
        Ok((path, leaf))
    }

    /// True when the header says that `node` is a node of this tree.
    #[inline]
    fn owns(&self, node: &FrameNode<'_>) -> bool {
        let level = node.level();
        let kind = if level == 0 {
            node.is_leaf()
        } else {
            node.is_inner() && level <= LEVEL_MAX && node.count() > 0
        };
        kind && node.tree() == self.id
    }
}

/// The way from a node to one of its children, as it was read: any bits, until validated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Down {
    word: ChildWord,
    /// Where in the node `word` lies.
    at: usize,
    /// Level of the child.
    level: u8,
}

impl Down {
    /// The way to child `index` of `node`.
    #[inline]
    pub(crate) fn to(node: &FrameNode<'_>, index: usize) -> Self {
        Self {
            word: node.child(index),
            at: node.slot_word(index) + 1,
            level: node.level().wrapping_sub(1),
        }
    }

    /// Level of the child.
    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.level
    }

    /// Asks for what [`acquire_child`] and a search of the child will read.
    #[inline]
    pub(crate) fn prefetch(&self, pool: &Pool) {
        self.prefetch_at(pool, self.word.hint());
    }

    /// As [`Down::prefetch`], of the frame of `hint`.
    #[inline]
    fn prefetch_at(&self, pool: &Pool, hint: u32) {
        if self.level == 0 {
            pool.prefetch::<LEAF_LINES>(hint);
        } else {
            pool.prefetch::<INNER_LINES>(hint);
        }
    }
}

/// Acquires child `index` of `here`; proves that it was the child when its version was read.
#[inline]
pub(crate) fn step_down<'p>(
    pool: &'p Pool,
    approach: &mut impl Approach<'p>,
    here: Optimistic<'p>,
    node: &FrameNode<'p>,
    index: usize,
) -> Attempt<Optimistic<'p>> {
    let down = Down::to(node, index);
    // Before the frame's header is looked at, which is a line that has to come, too.
    down.prefetch(pool);
    acquire_child(pool, approach, here, down)
}

/// As [`step_down`], when what it reads was asked for before.
#[inline]
pub(crate) fn acquire_child<'p>(
    pool: &'p Pool,
    approach: &mut impl Approach<'p>,
    here: Optimistic<'p>,
    down: Down,
) -> Attempt<Optimistic<'p>> {
    let word = down.word;
    let child = match approach.look(pool, word.page(), word.hint()) {
        Ok(child) => child,
        Err(restart) => {
            // A torn word names any page.
            here.validate()?;
            return Err(restart);
        }
    };
    here.validate()?;
    if child.hint() != word.hint() {
        down.prefetch_at(pool, child.hint());
        let new = ChildWord::new(word.page(), child.hint());
        here.replace_hint(down.at, word.0, new.0);
    }
    Ok(child)
}

/// Counts a conflict.
#[inline]
pub(crate) fn counted<T>(pool: &Pool, attempt: Attempt<T>) -> Attempt<T> {
    if matches!(attempt, Err(Restart::Conflict)) {
        pool.statistics().tick(Ticker::Restarts, 1);
    }
    attempt
}

/// The reason why `node` cannot be used: it changed meanwhile, or it is damaged.
pub(crate) fn damaged<T>(node: &Optimistic<'_>, what: &'static str) -> Attempt<T> {
    node.validate()?;
    Err(Restart::Damaged(node.page(), what))
}

/// A new page of `tree`, ready to be written.
pub(crate) fn allocate<'p>(
    pool: &'p Pool,
    stay: &Stay<'_>,
    tree: TreeId,
    kind: PageKind,
    level: u8,
) -> Attempt<Exclusive<'p>> {
    assert_eq!(
        kind == PageKind::Leaf,
        level == 0,
        "a kind on no level of it"
    );
    assert!(level <= LEVEL_MAX, "a node that lies too high");
    let mut latch = pool.allocate(stay, tree, kind, level)?;
    match latch.modify(stay) {
        Ok(mut page) => view::clear(&mut page),
        Err(restart) => {
            latch.free(stay);
            return Err(restart);
        }
    }
    Ok(latch)
}

/// Frees a page of the tree that nothing names any more.
pub(crate) fn free(latch: Exclusive<'_>, stay: &Stay<'_>) {
    latch.unwire();
    latch.free(stay);
}

/// The node of a page that is latched.
pub(crate) fn opened<'a>(latch: &'a Exclusive<'_>) -> FrameNode<'a> {
    Node::open(latch.words().slice())
}

/// Stamps a leaf that a change touches.
pub(crate) fn stamp<P: Store + ?Sized>(page: &mut P, marks: Marks) {
    debug_assert!(
        Node::open(page.words()).is_leaf(),
        "leaves alone have marks"
    );
    view::raise_marks(page, marks.lsn, marks.multi_lsn);
}

/// Both marks of a leaf, so that another one can inherit them.
pub(crate) fn marks_of(node: &FrameNode<'_>) -> (Lsn, Lsn) {
    (node.lsn_max(), node.multi_lsn())
}
