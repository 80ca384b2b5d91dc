//! The watched keys that a batch depends on.

use std::collections::HashMap;

use pando_format::TreeId;
use pando_sync::Arc;

use crate::tables::state::{NotedTree, REPLACED_MAX, Replaced, TableState, Tables};
use crate::writes::stripes::Stamp;

/// Most trees that are looked at for all watched keys of one batch: a few milliseconds. Beyond that
/// they count as changed.
const STEPS_MAX: usize = 1 << 20;

/// A watched key, as a batch depends on it.
#[derive(Debug)]
pub(crate) struct WatchedKey {
    pub(crate) table: Arc<TableState>,
    /// The tree that the table has to have.
    pub(crate) noted: NotedTree,
    /// The stamp of the key in that tree.
    pub(crate) stamp: Stamp,
    /// The key did not exist: whether it does in another tree of the table, another run finds out,
    /// unless the table was swapped: what it has got is not known to be without the key.
    pub(crate) is_absent: bool,
}

impl WatchedKey {
    fn has_its_tree(&self) -> bool {
        self.table.has_noted(self.noted)
    }
}

/// The trees that tables have had since their keys were watched.
#[derive(Debug, Default)]
struct Search {
    /// By the tree in which a key was watched.
    replaced: HashMap<TreeId, Option<Replaced>>,
    /// Number of trees looked at so far.
    steps: usize,
    /// A key has changed: nothing else matters.
    has_changed: bool,
}

/// The watched keys of a batch.
#[derive(Debug, Default)]
pub(crate) struct WatchedKeys {
    keys: Vec<WatchedKey>,
    /// None until a table is met that was emptied since its key was watched.
    search: Option<Box<Search>>,
}

impl WatchedKeys {
    /// Returns true if the batch depends on none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the number of stamps that the batch depends on.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the stamps that the batch depends on.
    pub(crate) fn stamps(&self) -> impl Iterator<Item = Stamp> {
        self.keys.iter().map(|key| key.stamp)
    }

    /// Returns the bytes of its memory that last.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.keys.capacity() * size_of::<WatchedKey>()
    }

    /// Forgets all. Keeps no more memory than `bytes_max`.
    pub(crate) fn clear(&mut self, bytes_max: usize) {
        self.keys.clear();
        self.search = None;
        if self.capacity_bytes() > bytes_max {
            self.keys = Vec::new();
        }
    }

    /// Adds a key, unless one has changed already.
    pub(crate) fn push(&mut self, key: WatchedKey) {
        if !self.has_changed() {
            self.keys.push(key);
        }
    }

    /// Notes that `key` has changed. It stands for all others.
    pub(crate) fn set_changed(&mut self, key: WatchedKey) {
        self.keys.clear();
        self.keys.push(key);
        self.search.get_or_insert_default().has_changed = true;
    }

    /// Returns whether a key was found to have changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.search
            .as_ref()
            .is_some_and(|search| search.has_changed)
    }

    /// Returns the trees that the table of `tree` has had from there on. None if that is not
    /// known, or if the batch has looked at too many.
    pub(crate) fn trees_from(&mut self, tables: &Tables, tree: TreeId) -> Option<&Replaced> {
        let search = self.search.get_or_insert_default();
        let found = search.replaced.entry(tree).or_insert_with(|| {
            search.steps += REPLACED_MAX;
            tables.trees_from(tree)
        });
        let found = found.as_ref()?;
        search.steps += found.gone.len();
        (search.steps <= STEPS_MAX).then_some(found)
    }

    /// Returns what has changed, given `unchanged` as [`crate::writes::set::WriteSet::changed`]:
    /// Some(true) for a key, Some(false) for the tree of a table whose key did not exist.
    pub(crate) fn changed(&self, unchanged: impl Fn(Stamp) -> bool) -> Option<bool> {
        let is_kept = |key: &WatchedKey| match key.has_its_tree() {
            true => unchanged(key.stamp),
            // Nobody writes a tree that is gone, and its stripe says nothing of the next one.
            false => key.is_absent && !key.table.was_swapped_since(key.noted),
        };
        if self.has_changed() || !self.keys.iter().all(is_kept) {
            return Some(true);
        }
        self.has_other_trees().then_some(false)
    }

    /// Returns whether a table has another tree than the batch depends on.
    pub(crate) fn has_other_trees(&self) -> bool {
        !self.keys.iter().all(WatchedKey::has_its_tree)
    }
}
