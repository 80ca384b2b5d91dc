//! The hidden trees of loads: those of this life, and those whose load was given up.

use pando_format::catalogue::{GarbageRow, filled_garbage_key};
use pando_format::{Lsn, TreeId};
use pando_sync::Mutex;
use pando_tree::Tree;

/// A tree that was filled beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) tree: Tree,
    /// Entries that it has.
    pub(crate) entries: u64,
}

/// The hidden trees of this life.
#[derive(Debug)]
pub(crate) struct Loads {
    /// Trees from here on are of this life.
    first: u64,
    /// Those whose load has ended without a table: to be taken apart.
    given_up: Mutex<Vec<Tree>>,
}

impl Loads {
    /// Of a life whose trees begin at `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            first,
            given_up: Mutex::default(),
        }
    }

    /// True for the row of a hidden tree of this life.
    pub(crate) fn owns(&self, lsn: Lsn, row: &GarbageRow) -> bool {
        match row {
            GarbageRow::DroppedTree(row) => lsn == Lsn(0) && self.is_of_this_life(row.tree),
            GarbageRow::Chunks(_) | GarbageRow::Leaked { .. } | GarbageRow::Aside => false,
        }
    }

    /// A tree that was given up, with the key of its row.
    pub(crate) fn given_up(&self) -> Option<(Vec<u8>, Tree)> {
        let given_up = self.given_up.lock();
        let tree = given_up.last()?;
        Some((filled_garbage_key(tree.id).to_vec(), *tree))
    }

    /// Nothing of `tree` is left.
    pub(crate) fn forget(&self, tree: TreeId) {
        self.given_up.lock().retain(|known| known.id != tree);
    }

    /// The load of `tree` has ended without a table.
    pub(crate) fn give_up(&self, tree: Tree) {
        let mut given_up = self.given_up.lock();
        assert!(!given_up.contains(&tree), "a load is given up once");
        given_up.push(tree);
    }

    /// True for trees of this life.
    pub(crate) fn is_of_this_life(&self, tree: TreeId) -> bool {
        u64::from(tree.0) >= self.first
    }
}
