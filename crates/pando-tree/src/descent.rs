//! The descent that every operation starts with (decision 003).
//!
//! ```text
//! step from parent to child:
//!   parent version -> child word -> child frame (hint, else page table) -> child version
//!   -> parent version again -> the child is the one that covers the key
//! ```
//! A descent takes no latches. A change latches the nodes that it changes, at the versions that its
//! descent saw, parent before child, and releases no latch before all of them are changed. So a
//! reader that finds the versions unchanged has read one state of the tree. (A change that is
//! counted releases each node before those above it, as `counted.rs` argues: who reads sums begins
//! at the root, and no reader goes from a node to its parent.) An attempt that fails holds nothing.

use pando_format::PageId;
use pando_pool::{Attempt, HintedFrame, Optimistic, Pool};

use crate::access::{Access, OptimisticAccess};
use crate::node::view::{ChildWord, LEVEL_MAX, Node};
use crate::tree::{FrameNode, Tree};

/// Number of lines that are prefetched as soon as a leaf's frame is known: its header and most of
/// its slots.
const LEAF_LINES: usize = 6;
/// Number of further ones for an inner node.
const MORE_LINES: usize = 10;

/// The node at which a descent begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Start<'p> {
    /// The first node.
    pub(crate) node: Optimistic<'p>,
    /// Its level, if it is known.
    pub(crate) level: Option<u8>,
}

/// An inner node on the path, and the index of the child that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step<'p> {
    /// The node at the version at which the child was chosen; it may have changed since.
    pub(crate) node: Optimistic<'p>,
    /// Index of that child in the node.
    pub(crate) index: usize,
    /// Number of children of the node.
    pub(crate) count: usize,
}

/// All inner nodes on the path, the root first. It is filled where it stays: it is too large to be
/// handed from one to the next.
#[derive(Debug)]
pub(crate) struct Path<'p> {
    steps: [Option<Step<'p>>; LEVEL_MAX as usize + 1],
    len: usize,
}

impl<'p> Path<'p> {
    pub(crate) fn new() -> Self {
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

    /// Returns the number of inner nodes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the first `count` inner nodes, the root first.
    pub(crate) fn first(&self, count: usize) -> &[Option<Step<'p>>] {
        &self.steps[..count.min(self.len)]
    }

    /// Returns the inner nodes from the root down.
    pub(crate) fn steps(&self) -> impl DoubleEndedIterator<Item = Step<'p>> + '_ {
        self.steps[..self.len].iter().copied().flatten()
    }

    /// Returns the lowest inner node with at least two children, and the number of nodes above it.
    pub(crate) fn branching_ancestor(&self) -> Option<(usize, Step<'p>)> {
        let depths = (0..self.len).rev();
        depths
            .zip(self.steps().rev())
            .find(|(_, step)| step.count > 1)
    }
}

impl Tree {
    /// Descends from the root to the node of level `stop`. `choose` picks a child of each node.
    #[inline]
    pub(crate) fn descend<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        stop: u8,
        choose: impl FnMut(Optimistic<'p>, &FrameNode<'p>) -> usize,
    ) -> Attempt<Optimistic<'p>> {
        let root = self.root(pool, access)?;
        let start = Start {
            node: root,
            level: None,
        };
        let (here, _) = self.descend_from(pool, access, start, stop, choose)?;
        Ok(here)
    }

    /// Looks up the root.
    #[inline]
    pub(crate) fn root<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
    ) -> Attempt<Optimistic<'p>> {
        access.look(pool, self.root, None)
    }

    /// Returns the number of levels of the tree, including the leaves.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_height(&self, pool: &Pool) -> Attempt<u8> {
        let root = self.root(pool, &mut OptimisticAccess)?;
        let level = self.node_at(root, None)?.level();
        root.validate()?;
        Ok(level + 1)
    }

    /// Descends from `start` to level `stop`. Also returns the node there, opened.
    #[inline]
    pub(crate) fn descend_from<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        start: Start<'p>,
        stop: u8,
        mut choose: impl FnMut(Optimistic<'p>, &FrameNode<'p>) -> usize,
    ) -> Attempt<(Optimistic<'p>, FrameNode<'p>)> {
        let mut here = start.node;
        let mut node = self.node_at(here, start.level)?;
        // Ends: each node is one level below the one before.
        loop {
            let level = node.level();
            if level <= stop {
                here.touch();
                return Ok((here, node));
            }
            here.touch_inner();
            let index = choose(here, &node);
            here = step_down(pool, access, here, &node, index)?;
            node = self.node_at(here, Some(level - 1))?;
        }
    }

    /// Descends to the leaf that `choose` leads to, and fills `path` with all nodes above it.
    #[inline]
    pub(crate) fn descend_with_path<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        path: &mut Path<'p>,
        choose: impl FnMut(&FrameNode<'p>) -> usize,
    ) -> Attempt<Optimistic<'p>> {
        self.descend_with_path_to(pool, access, (0, path), choose)
    }

    /// Like [`Tree::descend_with_path`], to the node of level `stop`.
    #[inline]
    pub(crate) fn descend_with_path_to<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        (stop, path): (u8, &mut Path<'p>),
        mut choose: impl FnMut(&FrameNode<'p>) -> usize,
    ) -> Attempt<Optimistic<'p>> {
        path.len = 0;
        self.descend(pool, access, stop, |here, node| {
            let index = choose(node);
            path.push(Step {
                node: here,
                index,
                count: node.count(),
            });
            index
        })
    }
}

impl Tree {
    /// Descends from the root to the parent of the leaf `page`, which covers `key`, and fills
    /// `path` with all nodes above the leaf. Returns false if the key leads to another leaf.
    #[inline]
    pub(crate) fn path_above<'p>(
        &self,
        pool: &'p Pool,
        path: &mut Path<'p>,
        (key, page): (&[u8], PageId),
    ) -> Attempt<bool> {
        let to_parent = (1, &mut *path);
        let lowest = self.descend_with_path_to(pool, &mut OptimisticAccess, to_parent, |node| {
            node.child_for(key)
        })?;
        let node = Node::open(lowest.words().slice());
        if !node.is_inner() {
            // The root is the only leaf.
            return Ok(lowest.page() == page);
        }
        let index = node.child_for(key);
        if node.child(index).page() != page {
            return Ok(false);
        }
        path.push(Step {
            node: lowest,
            index,
            count: node.count(),
        });
        Ok(true)
    }
}

/// The link from a node to one of its children, as it was read: arbitrary bits until validated.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Down<'p> {
    word: ChildWord,
    /// Index of `word` in the node.
    at: usize,
    /// The frame of its hint.
    frame: Option<HintedFrame<'p>>,
}

impl<'p> Down<'p> {
    /// Reads the link to child `index` of `node`, and prefetches what [`acquire_child`] and a
    /// search of the child will read.
    #[inline]
    pub(crate) fn to(pool: &'p Pool, node: &FrameNode<'_>, index: usize) -> Self {
        let word = node.child(index);
        let frame = pool.hinted(word.hint());
        if let Some(frame) = frame {
            frame.prefetch::<LEAF_LINES>();
            if node.level() > 1 {
                frame.prefetch_more::<LEAF_LINES, MORE_LINES>();
            }
        }
        let at = FrameNode::child_word(index);
        Self { word, at, frame }
    }
}

/// Acquires child `index` of `here`, and proves that it was the child when its version was read.
#[inline]
pub(crate) fn step_down<'p>(
    pool: &'p Pool,
    access: &mut impl Access<'p>,
    here: Optimistic<'p>,
    node: &FrameNode<'p>,
    index: usize,
) -> Attempt<Optimistic<'p>> {
    // Prefetches before the frame's header is read, whose line has to be fetched, too.
    let down = Down::to(pool, node, index);
    acquire_child(pool, access, &here, &down)
}

/// Acquires the child of the link `down` of `here`, as [`step_down`] does.
#[inline]
pub(crate) fn acquire_child<'p>(
    pool: &'p Pool,
    access: &mut impl Access<'p>,
    here: &Optimistic<'p>,
    down: &Down<'p>,
) -> Attempt<Optimistic<'p>> {
    let word = down.word;
    let child = match access.look(pool, word.page(), down.frame) {
        Ok(child) => child,
        Err(restart) => {
            // A torn word may name any page.
            here.validate()?;
            return Err(restart);
        }
    };
    here.validate()?;
    if child.hint() != word.hint() {
        replace_hint(pool, *here, (down.at, word), child.hint());
    }
    Ok(child)
}

/// Goes on to the frame of `hint`, in which the child was found, and names it in the child word at
/// index `at`. Takes copies: of references, every descent would write what they refer to into
/// memory, for nothing.
#[cold]
fn replace_hint(pool: &Pool, here: Optimistic<'_>, (at, word): (usize, ChildWord), hint: u32) {
    if let Some(frame) = pool.hinted(hint) {
        frame.prefetch::<LEAF_LINES>();
    }
    let new = ChildWord::new(word.page(), hint);
    here.replace_hint(at, word.0, new.0);
}
