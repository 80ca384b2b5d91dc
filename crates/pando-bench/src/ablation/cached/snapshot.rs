//! A private copy of a tree's root, for the descents of one thread (decision 022).
//!
//! The copy holds the words of the root's frame as they were at a version. A descent looks whether
//! the root is still in that frame and at that version, takes the child from the copy, acquires it,
//! and looks at the version again. So it proves what a descent through the root itself proves: that
//! the child was the root's when it was acquired.
//!
//! Nobody but its owner reads a copy, so none is ever retired: another one is written over it, and
//! its memory, one page, goes with the reader. Any change of the root drops what it says, by way of
//! the version or of the frame: a split, a merge, another page at the same place after its table is
//! gone. A new hint changes no version, so the copy has hints of its own and corrects them.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool};
use pando_tree::Tree;
use pando_tree::node::view::{ChildWord, Node};

use super::descent::{NodeLookup, Start, prefetch};

/// What a copy is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Source {
    page: PageId,
    frame_hint: u32,
    version: u64,
}

/// The copy of one thread.
#[derive(Debug, Default)]
pub(super) struct RootSnapshot {
    source: Option<Source>,
    pub(super) words: Vec<u64>,
    /// Times that a root was copied.
    pub(super) copies: u64,
}

impl RootSnapshot {
    /// Makes the copy one of `root`, unless it is.
    #[inline]
    fn bring_up(&mut self, tree: &Tree, root: Optimistic<'_>) -> Attempt<()> {
        let source = Source {
            page: root.page(),
            frame_hint: root.hint(),
            version: root.version(),
        };
        match self.source == Some(source) {
            true => Ok(()),
            false => self.copy(tree, root, source),
        }
    }

    #[cold]
    fn copy(&mut self, tree: &Tree, root: Optimistic<'_>, source: Source) -> Attempt<()> {
        self.source = None;
        let words = root.words();
        self.words.clear();
        self.words
            .extend((0..words.len()).map(|index| words.load(index)));
        root.validate()?;
        let node = Node::open(&self.words);
        if node.tree() == tree.id && node.is_inner() && node.level() > 0 {
            self.source = Some(source);
            self.copies += 1;
        }
        Ok(())
    }
}

/// A read that begins at the copy and goes on as `below` does.
#[derive(Debug)]
pub(super) struct FromSnapshot<'s, A> {
    pub(super) snapshot: &'s mut RootSnapshot,
    pub(super) below: A,
}

impl<'p, A: NodeLookup<'p>> NodeLookup<'p> for FromSnapshot<'_, A> {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        self.below.look(pool, page, hint)
    }

    #[inline]
    fn begin(&mut self, tree: &Tree, pool: &'p Pool, key: &[u8]) -> Attempt<Start<'p>> {
        let hint = self.snapshot.source.map_or(0, |source| source.frame_hint);
        let root = pool.optimistic(tree.root, hint)?;
        self.snapshot.bring_up(tree, root)?;
        if self.snapshot.source.is_none() {
            // A leaf, or no page of this tree: what a descent without a copy makes of it.
            return self.below.begin(tree, pool, key);
        }
        let node = Node::open(&self.snapshot.words);
        root.touch_inner();
        let index = node.child_for(key);
        let (word, level) = (node.child(index), node.level() - 1);
        prefetch(pool, level, word.hint());
        let child = match self.below.look(pool, word.page(), word.hint()) {
            Ok(child) => child,
            Err(restart) => {
                root.validate()?;
                return Err(restart);
            }
        };
        // The child was the root's while it was acquired.
        root.validate()?;
        if child.hint() != word.hint() {
            let at = node.slot_word(index) + 1;
            self.snapshot.words[at] = ChildWord::new(word.page(), child.hint()).0;
        }
        Ok(Start {
            node: child,
            level: Some(level),
        })
    }
}

/// What of a copy is left without the copy: a read that finds the root's frame by a hint of its
/// thread instead of the page table, and goes on as the product.
#[derive(Debug)]
pub(super) struct FromHint<'s>(pub(super) &'s mut u32);

impl<'p> NodeLookup<'p> for FromHint<'_> {
    #[inline]
    fn look(&mut self, pool: &'p Pool, page: PageId, hint: u32) -> Attempt<Optimistic<'p>> {
        pool.optimistic(page, hint)
    }

    #[inline]
    fn begin(&mut self, tree: &Tree, pool: &'p Pool, _key: &[u8]) -> Attempt<Start<'p>> {
        let node = pool.optimistic(tree.root, *self.0)?;
        *self.0 = node.hint();
        Ok(Start { node, level: None })
    }
}
