//! A leaf that is remembered: keys that lie next to each other find it without a descent.
//!
//! After Brown and Tarjan (A Fast Merging Algorithm, 1979), whose fingers point into a tree where
//! the last search ended. A finger is a leaf, its frame, and the version at which a validated
//! descent, or a change under its latch, saw it. Which keys a leaf covers changes only under its
//! exclusive latch: a split takes keys from it, a merge or the removal of a neighbour gives it
//! some, and all of them end with another version. So while frame, page and version are the same,
//! it covers what it covered: all keys between two of its own, and behind its last one if no leaf
//! lay to its right.
//!
//! A finger belongs to the pool that it was made in: versions of another one mean nothing.

use pando_format::{PageId, TreeId};
use pando_pool::{Optimistic, Pool};

use crate::node::search::Spot;
use crate::node::view::Node;
use crate::tree::Tree;

/// A leaf as somebody last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finger {
    tree: TreeId,
    page: PageId,
    hint: u32,
    version: u64,
    /// No leaf lies to the right of it.
    is_rightmost: bool,
}

impl Default for Finger {
    fn default() -> Self {
        Self {
            tree: TreeId(0),
            page: PageId::NONE,
            hint: 0,
            version: 0,
            is_rightmost: false,
        }
    }
}

impl Finger {
    /// At `leaf`, as it was seen.
    pub(crate) fn at(tree: Tree, leaf: Optimistic<'_>, is_rightmost: bool) -> Self {
        Self {
            tree: tree.id,
            page: leaf.page(),
            hint: leaf.hint(),
            version: leaf.version(),
            is_rightmost,
        }
    }

    /// At `leaf`, which the caller has changed since it was seen: once, under its latch.
    pub(crate) fn behind(tree: Tree, leaf: Optimistic<'_>, is_rightmost: bool) -> Self {
        let mut finger = Self::at(tree, leaf, is_rightmost);
        // What the release of an exclusive latch adds.
        finger.version += 2;
        finger
    }

    /// True if it is at the same leaf, as it was seen then or later.
    pub(crate) fn is_as_new_as(&self, other: &Self) -> bool {
        let place = |finger: &Self| (finger.tree, finger.page, finger.hint);
        place(self) == place(other) && self.version >= other.version
    }

    /// True if the leaf is as it was seen.
    pub(crate) fn is_current(&self, pool: &Pool) -> bool {
        let leaf = pool.optimistic(self.page, self.hint);
        leaf.is_ok_and(|leaf| leaf.version() == self.version && leaf.hint() == self.hint)
    }

    /// The leaf.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Where its frame is: what [`Pool::optimistic`] takes.
    pub fn hint(&self) -> u32 {
        self.hint
    }

    /// True if no leaf lies to the right of it.
    pub(crate) fn is_rightmost(&self) -> bool {
        self.is_rightmost
    }

    /// The leaf, and where in it `key` is or would be, if it is sure that it covers `key`: to be
    /// validated as after a descent.
    #[inline]
    pub(crate) fn reach<'p>(
        &self,
        tree: Tree,
        pool: &'p Pool,
        key: &[u8],
    ) -> Option<(Optimistic<'p>, Spot)> {
        if self.page == PageId::NONE || self.tree != tree.id {
            return None;
        }
        let leaf = pool.optimistic(self.page, self.hint).ok()?;
        if leaf.version() != self.version || leaf.hint() != self.hint {
            return None;
        }
        let node = Node::open(leaf.words().slice());
        let spot = node.find_in_leaf(key);
        let between = spot.index > 0 && (spot.index < node.count() || self.is_rightmost);
        (spot.exact || between).then_some((leaf, spot))
    }

    /// What of the keys from `key` of `tree` on the leaf is sure to cover; of the moment of the
    /// call.
    pub fn cover(&self, tree: Tree, pool: &Pool, key: &[u8]) -> Cover {
        let Some((leaf, spot)) = self.reach(tree, pool, key) else {
            return Cover::Unknown;
        };
        let is_behind = spot.index == Node::open(leaf.words().slice()).count();
        match leaf.validate() {
            Err(_) => Cover::Unknown,
            Ok(()) if is_behind => Cover::All,
            Ok(()) => Cover::One,
        }
    }
}

/// What a leaf covers of the keys from one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// Maybe none.
    Unknown,
    /// The key.
    One,
    /// All of them: the key lies behind the last one, and no leaf to the right.
    All,
}
