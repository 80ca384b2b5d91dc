//! A remembered leaf: keys that lie near each other find it without a descent.
//!
//! After Brown and Tarjan (A Fast Merging Algorithm, 1979), whose fingers point into a tree where
//! the last search ended. A finger is a leaf, its frame, and the version at which a validated
//! descent, or a change under its latch, saw it. The keys that a leaf covers change only under its
//! exclusive latch: a split takes keys from it, a merge or the removal of a neighbour adds some,
//! and all of them end with another version. So while frame, page and version are the same, the
//! leaf covers the same keys: all keys between two of its own, and those after its last one if
//! there was no leaf to its right.
//!
//! A finger belongs to the pool in which it was made: versions of another pool mean nothing.

use pando_format::{PageId, TreeId};
use pando_pool::{Optimistic, Pool};

use crate::leaf::Leaf;
use crate::node::search::Spot;
use crate::tree::Tree;

/// A leaf as an operation last saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finger {
    tree: TreeId,
    page: PageId,
    hint: u32,
    version: u64,
    /// No leaf lies to the right of this one.
    is_rightmost: bool,
}

impl Default for Finger {
    fn default() -> Self {
        Self::NONE
    }
}

impl Finger {
    /// A finger at no leaf.
    pub const NONE: Self = Self {
        tree: TreeId(0),
        page: PageId::NONE,
        hint: 0,
        version: 0,
        is_rightmost: false,
    };

    /// Makes a finger at `leaf`, as it was seen.
    pub(crate) fn at(tree: Tree, leaf: Optimistic<'_>, is_rightmost: bool) -> Self {
        Self {
            tree: tree.id,
            page: leaf.page(),
            hint: leaf.hint(),
            version: leaf.version(),
            is_rightmost,
        }
    }

    /// Makes a finger at `leaf`, which the caller has changed once since it was seen, under its
    /// latch.
    pub(crate) fn behind(tree: Tree, leaf: Optimistic<'_>, is_rightmost: bool) -> Self {
        let mut finger = Self::at(tree, leaf, is_rightmost);
        // The release of an exclusive latch adds 2.
        finger.version += 2;
        finger
    }

    /// Returns whether it is at the same leaf as `other`, seen at the same time or later.
    pub(crate) fn is_as_new_as(&self, other: &Self) -> bool {
        let place = |finger: &Self| (finger.tree, finger.page, finger.hint);
        place(self) == place(other) && self.version >= other.version
    }

    /// Returns whether the leaf has not changed since it was seen.
    pub(crate) fn is_current(&self, pool: &Pool) -> bool {
        let leaf = pool.optimistic(self.page, self.hint);
        leaf.is_ok_and(|leaf| leaf.version() == self.version && leaf.hint() == self.hint)
    }

    /// Returns false for one that was made by default.
    pub fn is_known(&self) -> bool {
        self.page != PageId::NONE
    }

    /// Returns the page id of the leaf.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns the hint of the leaf's frame, for [`Pool::optimistic`].
    pub fn hint(&self) -> u32 {
        self.hint
    }

    /// Returns whether no leaf lies to the right of it.
    pub(crate) fn is_rightmost(&self) -> bool {
        self.is_rightmost
    }

    /// Returns the leaf, if it is one of `tree` and has not changed since it was seen. The caller
    /// validates it as after a descent.
    #[expect(
        clippy::inline_always,
        reason = "else a leaf goes through memory, twice, on the way to a put"
    )]
    #[inline(always)]
    pub(crate) fn leaf<'p>(&self, tree: Tree, pool: &'p Pool) -> Option<Leaf<'p>> {
        if !self.is_known() || self.tree != tree.id {
            return None;
        }
        let leaf = pool.optimistic(self.page, self.hint).ok()?;
        if leaf.version() != self.version || leaf.hint() != self.hint {
            return None;
        }
        Some(Leaf::at(leaf))
    }

    /// Returns the leaf, and the spot where `key` is or would be in it, if the leaf is certain to
    /// cover `key`. The caller validates the leaf as after a descent.
    #[expect(
        clippy::inline_always,
        reason = "else a put that saves nothing takes 40 instructions more (callgrind)"
    )]
    #[inline(always)]
    pub(crate) fn reach<'p>(
        &self,
        tree: Tree,
        pool: &'p Pool,
        key: &[u8],
    ) -> Option<(Leaf<'p>, Spot)> {
        let leaf = self.leaf(tree, pool)?;
        let spot = leaf.find(key);
        let between = spot.index > 0 && (spot.index < leaf.count() || self.is_rightmost);
        (spot.exact || between).then_some((leaf, spot))
    }

    /// Returns which of the keys of `tree` from `key` on the leaf is certain to cover, at the
    /// moment of the call.
    pub fn cover(&self, tree: Tree, pool: &Pool, key: &[u8]) -> Cover {
        let Some((leaf, spot)) = self.reach(tree, pool, key) else {
            return Cover::Unknown;
        };
        let is_behind = spot.index == leaf.count();
        match leaf.here.validate() {
            Err(_) => Cover::Unknown,
            Ok(()) if is_behind => Cover::All,
            Ok(()) => Cover::One,
        }
    }
}

/// Which of the keys from a given one on a leaf is certain to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cover {
    /// Possibly none.
    Unknown,
    /// The given key.
    One,
    /// All of them: the key is greater than all keys of the leaf, and no leaf lies to its right.
    All,
}
