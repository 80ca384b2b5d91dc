//! Hidden trees of loads: those that this opening of the store created, and those of abandoned
//! loads.

use pando_format::catalogue::{GarbageRow, filled_garbage_key};
use pando_format::{Lsn, TreeId};
use pando_sync::Mutex;
use pando_tree::Tree;

/// A tree that was filled without the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filled {
    /// Hidden until a batch gives it to a table.
    pub(crate) tree: Tree,
    /// Number of its entries.
    pub(crate) entries: u64,
}

/// The hidden trees that this opening of the store created ("this life").
#[derive(Debug)]
pub(crate) struct Loads {
    /// The first tree id of this life.
    first: u64,
    /// Trees of loads that have ended without a table; they must be freed.
    given_up: Mutex<Vec<Tree>>,
}

impl Loads {
    /// Returns the state for a life whose tree ids begin at `first`.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            first,
            given_up: Mutex::default(),
        }
    }

    /// True if `row` is that of a hidden tree of this life, which must not be freed by its row.
    pub(crate) fn owns(&self, lsn: Lsn, row: &GarbageRow) -> bool {
        match row {
            GarbageRow::DroppedTree(row) => lsn == Lsn(0) && self.is_of_this_life(row.tree),
            GarbageRow::Chunks(_)
            | GarbageRow::Pages(_)
            | GarbageRow::Leaked { .. }
            | GarbageRow::Aside => false,
        }
    }

    /// Returns a tree of an abandoned load, with the key of its row, if there is one.
    pub(crate) fn given_up(&self) -> Option<(Vec<u8>, Tree)> {
        let given_up = self.given_up.lock();
        let tree = given_up.last()?;
        Some((filled_garbage_key(tree.id).to_vec(), *tree))
    }

    /// Forgets `tree`, of which nothing is left.
    pub(crate) fn forget(&self, tree: TreeId) {
        self.given_up.lock().retain(|known| known.id != tree);
    }

    /// Notes that the load of `tree` has ended without a table.
    pub(crate) fn give_up(&self, tree: Tree) {
        let mut given_up = self.given_up.lock();
        assert!(!given_up.contains(&tree), "a load is given up once");
        given_up.push(tree);
    }

    /// True if this life created `tree`.
    pub(crate) fn is_of_this_life(&self, tree: TreeId) -> bool {
        u64::from(tree.number()) >= self.first
    }
}
