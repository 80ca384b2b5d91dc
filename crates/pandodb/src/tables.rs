//! Tables: names, the tree behind each name, and how many entries it has.
//!
//! A table's tree changes (drop, emptying) only while the apply gate is closed. Readers take the
//! row first and look again last; writers look again inside the gate.

use std::collections::BTreeMap;

use pando_format::catalogue::TreeRow;
use pando_format::{PageId, TreeId};
use pando_sync::atomic::{AtomicI64, AtomicU64, Ordering};
use pando_sync::{Arc, CoreLocal, RwLock, audit};
use pando_tree::Tree;

/// A table that exists, or existed, under a name. Aligned so that the counts of its handles, which
/// lie in front of it, share no line with what every read looks at.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TableState {
    pub(crate) name: String,
    /// Tree id (low half) and root page; 0 once dropped. Changed with the gate closed.
    row: AtomicU64,
    /// Entries: at the last load, plus what was added and removed core by core since.
    counts: CoreLocal<AtomicI64>,
}

impl TableState {
    pub(crate) fn new(name: String, row: TreeRow, count: u64) -> Self {
        let table = Self {
            name,
            row: AtomicU64::new(u64::from_le_bytes(row.encode())),
            counts: CoreLocal::new("table counts", |_| AtomicI64::new(0)),
        };
        table.add(count as i64);
        table
    }

    /// A table that is about to be created.
    pub(crate) fn absent(name: String) -> Self {
        Self {
            name,
            row: AtomicU64::new(0),
            counts: CoreLocal::new("table counts", |_| AtomicI64::new(0)),
        }
    }

    /// The tree now; None if the table was dropped.
    #[inline]
    pub(crate) fn tree(&self) -> Option<Tree> {
        // Acquire: pairs with the Release in set_row: the tree's pages are there.
        let row = self.row.load(Ordering::Acquire);
        (row != 0).then_some(Tree {
            id: TreeId((row & u64::from(u32::MAX)) as u32),
            root: PageId((row >> 32) as u32),
        })
    }

    /// Gives the name another tree, or none; the gate is closed.
    pub(crate) fn set_row(&self, row: Option<TreeRow>) {
        let word = row.map_or(0, |row| u64::from_le_bytes(row.encode()));
        // Release: pairs with the Acquire in tree.
        self.row.store(word, Ordering::Release);
        for count in self.counts.iter() {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Adds to the number of entries.
    pub(crate) fn add(&self, entries: i64) {
        self.counts.here().fetch_add(entries, Ordering::Relaxed);
    }

    /// Number of entries; exact when no commit is being applied.
    pub(crate) fn count(&self) -> u64 {
        let sum: i64 = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum();
        u64::try_from(sum).unwrap_or(0)
    }
}

/// The tables by name, and the trees by id for replay.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_name: RwLock<BTreeMap<String, Arc<TableState>>>,
}

impl Tables {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<TableState>> {
        self.by_name.read().get(name).cloned()
    }

    pub(crate) fn insert(&self, table: Arc<TableState>) {
        audit::name("tables", &*table);
        self.by_name.write().insert(table.name.clone(), table);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.by_name.write().remove(name);
    }

    pub(crate) fn all(&self) -> Vec<Arc<TableState>> {
        self.by_name.read().values().cloned().collect()
    }

    /// The table whose tree is `tree`, for replay.
    pub(crate) fn of_tree(&self, tree: TreeId) -> Option<Arc<TableState>> {
        let by_name = self.by_name.read();
        by_name
            .values()
            .find(|table| table.tree().is_some_and(|t| t.id == tree))
            .cloned()
    }
}
