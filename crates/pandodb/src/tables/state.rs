//! Tables: their names, the tree of each, and its number of entries.
//!
//! The tree of a table changes (drop, emptying, swap) only while the apply gate is closed. Readers
//! read the row first and check it again at the end; writers check it inside the gate.
//!
//! A batch that changes tables changes their trees last, when all that it writes is there, and all
//! of them at once. So who sees a part of the batch sees all of it (decision 113).
//!
//! **A swap** gives tables the trees of each other. Nobody sees it in part, and who has noted a
//! tree learns of a swap even if another one has brought that tree back (decision 096):
//!
//! - All rows of the swap become [`IN_SWAP`], then [`TableState::swapped`] of all tables gets the
//!   LSN of the batch, then their numbers of entries and their rows are set. [`TableState::tree`]
//!   waits while it finds a row in between, for no more than these stores. So who has seen one new
//!   row finds no old one any more: its load of the former (Acquire) sees what came before that
//!   store (Release), and so do its later loads.
//! - Who notes a tree for later notes the number of the last swap first. If it reads the new
//!   number (Acquire; Release in the swap), it cannot read the old row behind it; if it reads the
//!   old one, the comparison later finds another.

use std::borrow::Borrow;
use std::cmp::Ordering as Comparison;
use std::collections::{BTreeSet, HashMap, VecDeque};

use pando_format::cast::low_u32;
use pando_format::catalogue::{
    CATALOGUE_ROOT, CATALOGUE_TREE, FIRST_USER_TREE, GARBAGE_ROOT, GARBAGE_TREE, TreeRow,
};
use pando_format::{Lsn, PageId, TreeId};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use pando_sync::thread::yield_now;
use pando_sync::{Arc, Mutex, RwLock, audit};
use pando_tree::Tree;

use crate::error::{Error, Result};
use crate::memory_share::MemoryShare;
use crate::tables::counts::{FreeCounts, TableCount};

/// The tree of table names.
pub(crate) const CATALOGUE: Tree = Tree {
    id: CATALOGUE_TREE,
    root: CATALOGUE_ROOT,
};
/// The tree of garbage: pages that must be freed.
pub(crate) const GARBAGE: Tree = Tree {
    id: GARBAGE_TREE,
    root: GARBAGE_ROOT,
};

/// A table that exists, or existed, under a name. Aligned so that the reference counts of its
/// handles, which precede it in memory, share no cache line with what every read accesses.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct TableState {
    /// Never changes, even when the table is dropped.
    pub(crate) name: Box<str>,
    /// Tree id (low half) and root page; 0 once dropped, [`IN_SWAP`] for a moment. Changed only
    /// while the gate is closed.
    row: AtomicU64,
    /// The table is in [`Tables::changed`]. Set inside the gate, cleared while the gate is closed.
    changed: AtomicBool,
    /// Number of entries of the current tree.
    count: TableCount,
    /// LSN of the batch that has given the table its present tree, or none; 0 if no snapshot reads
    /// below it. Written while the gate is closed, before `row`.
    since: AtomicU64,
    /// LSN of the last batch that has swapped the table with another one; 0 if none has since the
    /// store was opened. Written while the gate is closed, and `row` is [`IN_SWAP`].
    swapped: AtomicU64,
}

/// The row of a table whose swap is under way. No table has a row below that of the first tree.
const IN_SWAP: u64 = 1;
const _: () = assert!(IN_SWAP < FIRST_USER_TREE.0 as u64);

/// The tree of a table at some moment, for a look later whether the table has had it all along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotedTree {
    /// None if the table was dropped.
    pub(crate) tree: Option<Tree>,
    /// As [`TableState::swapped`] then.
    swapped: Lsn,
}

/// The tree that a table gets by a batch.
#[derive(Debug)]
pub(crate) struct NewTree {
    pub(crate) table: Arc<TableState>,
    /// Another tree than it has; None removes the table.
    pub(crate) row: Option<TreeRow>,
    /// Number of entries of the tree.
    pub(crate) entries: i64,
}

impl NewTree {
    /// Returns the tree.
    pub(crate) fn tree(&self) -> Option<Tree> {
        self.row
            .map(|TreeRow { tree, root }| Tree { id: tree, root })
    }
}

/// What a table had before a batch changed it, for snapshots that read below that batch.
#[derive(Debug)]
struct Earlier {
    table: Arc<TableState>,
    /// LSN of the batch that gave it the tree; or of none, if no snapshot reads below it.
    from: Lsn,
    /// LSN of the batch.
    until: Lsn,
    tree: Option<Tree>,
}

/// The batch that changes a table as a whole, and who may still read what the table was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableBatch {
    /// LSN of the batch.
    pub(crate) lsn: Lsn,
    /// No snapshot reads below this.
    pub(crate) horizon: Lsn,
    /// No snapshot below the LSN reads above this.
    pub(crate) newest: Lsn,
}

impl TableBatch {
    /// A batch of `lsn` while there is no snapshot, as in recovery.
    pub(crate) fn unseen(lsn: Lsn) -> Self {
        let (horizon, newest) = (Lsn(u64::MAX), Lsn(0));
        Self {
            lsn,
            horizon,
            newest,
        }
    }
}

impl NotedTree {
    /// Returns a note of another tree that the table has got since, by no swap.
    pub(crate) fn with_tree(self, tree: Tree) -> Self {
        Self {
            tree: Some(tree),
            ..self
        }
    }
}

/// Average bytes that the maps, and the allocator's overhead, take per table.
const MAPS_BYTES: u64 = 160;

impl TableState {
    /// Returns the current tree; None if the table was dropped.
    #[inline]
    pub(crate) fn tree(&self) -> Option<Tree> {
        // Acquire: pairs with the Release in replace, so the tree's pages are there.
        let row = self.row.load(Ordering::Acquire);
        if row <= IN_SWAP {
            return self.tree_of_few(row);
        }
        Some(tree_of(row))
    }

    /// As [`TableState::tree`], which has found this row. Waits for the end of a swap: the few
    /// stores of the thread that makes it, which holds nothing meanwhile that a reader has.
    #[cold]
    fn tree_of_few(&self, mut row: u64) -> Option<Tree> {
        while row == IN_SWAP {
            yield_now();
            // Acquire: as in tree.
            row = self.row.load(Ordering::Acquire);
        }
        (row != 0).then(|| tree_of(row))
    }

    /// Returns the tree, to be compared with what [`TableState::has_noted`] finds later.
    #[inline]
    pub(crate) fn note(&self) -> NotedTree {
        // First the swap: see the top of this file. Acquire: pairs with the Release in swap.
        let swapped = Lsn(self.swapped.load(Ordering::Acquire));
        let tree = self.tree();
        NotedTree { tree, swapped }
    }

    /// Returns whether the table has had the tree that was noted, or none, all along.
    #[inline]
    pub(crate) fn has_noted(&self, noted: NotedTree) -> bool {
        self.tree() == noted.tree && !self.was_swapped_since(noted)
    }

    /// Returns whether the table was swapped since this was noted.
    #[inline]
    pub(crate) fn was_swapped_since(&self, noted: NotedTree) -> bool {
        self.swapped() != noted.swapped
    }

    /// LSN of the last batch that has swapped the table; 0 if none has since the store was opened.
    #[inline]
    pub(crate) fn swapped(&self) -> Lsn {
        // Acquire: pairs with the Release in swap.
        Lsn(self.swapped.load(Ordering::Acquire))
    }

    /// Number of entries; exact while no commit is being applied. Of one content also during a
    /// swap.
    pub(crate) fn count(&self) -> u64 {
        loop {
            // If a swap is under way, this waits for its numbers.
            let before = self.note();
            let sum = self.count.sum();
            // Acquire: pairs with the Release fence in swap. A sum that has seen some of what a
            // swap sets does not find the old number below.
            fence(Ordering::Acquire);
            if self.has_noted(before) {
                return u64::try_from(sum).unwrap_or(0);
            }
        }
    }

    /// Bytes of memory of a table called `name`.
    fn bytes(name: &str) -> u64 {
        // Preceded by the reference counts of its handles, which are on cache lines of their own.
        let state = align_of::<Self>() + size_of::<Self>();
        state as u64 + TableCount::bytes() + MAPS_BYTES + name.len() as u64
    }
}

/// Returns the tree of a row that is one.
#[inline]
fn tree_of(row: u64) -> Tree {
    Tree {
        id: TreeId(low_u32(row)),
        root: PageId((row >> 32) as u32),
    }
}

/// A table, ordered by name.
#[derive(Debug)]
struct ByName(Arc<TableState>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Comparison {
        self.0.name.cmp(&other.0.name)
    }
}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Comparison> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

/// The tables that exist.
#[derive(Debug, Default)]
struct Known {
    by_name: BTreeSet<ByName>,
    by_tree: HashMap<TreeId, Arc<TableState>>,
    /// Bytes of memory that they take.
    bytes: u64,
    /// What snapshots may still read, ascending by LSN.
    earlier: Vec<Earlier>,
    /// Trees of emptied tables, each with the one that has taken its place; the oldest first.
    replaced: VecDeque<(TreeId, TreeId)>,
}

/// Number of replaced trees that are remembered, for who watches keys meanwhile. An emptying of all
/// databases of a server replaces 48.
pub(crate) const REPLACED_MAX: usize = 2048;

/// The trees of one table, from one on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    /// Those that are gone: nobody writes them any more, and who did has stamped its stripes.
    pub(crate) gone: Vec<TreeId>,
    /// The one that the table has.
    pub(crate) present: Tree,
}

impl Known {
    /// Enters a table with the tree that it is about to get, or takes it out.
    fn give(&mut self, table: &Arc<TableState>, row: Option<TreeRow>) {
        let before = table.tree().map(|tree| tree.id);
        assert!(
            row.is_none() || before != row.map(|row| row.tree),
            "the entries of the same tree would be lost"
        );
        if let Some(before) = before {
            self.by_tree.remove(&before);
        }
        match row {
            Some(row) => {
                let before = self.by_tree.insert(row.tree, table.clone());
                assert!(before.is_none(), "a tree has one table");
                if self.by_name.insert(ByName(table.clone())) {
                    self.bytes += TableState::bytes(&table.name);
                }
            }
            None => {
                if self.by_name.remove(&*table.name) {
                    let bytes = TableState::bytes(&table.name);
                    assert!(self.bytes >= bytes, "the memory of a table is counted");
                    self.bytes -= bytes;
                }
            }
        }
    }

    /// Returns the tree that `table` had for a snapshot of `lsn`.
    fn tree_at(&self, table: &TableState, lsn: Lsn) -> Option<Tree> {
        // Relaxed: written under the lock.
        if table.since.load(Ordering::Relaxed) <= lsn.0 {
            return table.tree();
        }
        let is_then = |one: &&Earlier| one.from <= lsn && lsn < one.until;
        let mut of_table = self
            .earlier
            .iter()
            .filter(|one| std::ptr::eq(&*one.table, table));
        // What is not noted did not exist.
        of_table.find(is_then).and_then(|earlier| earlier.tree)
    }

    /// Notes what `table` has before `batch` changes it. Returns what no snapshot needs any longer,
    /// to be dropped when no lock is held.
    fn keep_tree(&mut self, table: &Arc<TableState>, batch: TableBatch) -> Vec<Earlier> {
        let TableBatch {
            lsn,
            horizon,
            newest,
        } = batch;
        let unneeded = |earlier: &Earlier| earlier.until <= horizon;
        let count = self.earlier.partition_point(unneeded);
        let unneeded = self.earlier.drain(..count).collect();
        if lsn > horizon {
            let last = self.earlier.last().map(|last| last.until);
            assert!(last <= Some(lsn), "what snapshots may read ascends by LSN");
            // Not if the table is new, or if everybody reads what it had before this tree.
            let from = Lsn(table.since.load(Ordering::Relaxed));
            if table.tree().is_some() && newest >= from {
                self.earlier.push(Earlier {
                    table: table.clone(),
                    from,
                    until: lsn,
                    tree: table.tree(),
                });
            }
            // Release: pairs with the Acquire in tree_at, also for a reader that does not see the
            // row that is set next.
            table.since.store(lsn.0, Ordering::Release);
        }
        unneeded
    }
}

/// The tables by name, and by tree for replay.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Changed only while the gate is closed, or by recovery.
    known: RwLock<Known>,
    /// Tables whose count differs from that in the mapping's journal; each table once.
    changed: Mutex<Vec<Arc<TableState>>>,
    /// Where tables take their counters from.
    counts: Arc<FreeCounts>,
    /// Bytes of memory that tables may take.
    bytes_max: u64,
}

impl Tables {
    /// Returns no tables, which may take `bytes_max` bytes of memory.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            known: RwLock::default(),
            changed: Mutex::default(),
            counts: Arc::default(),
            bytes_max,
        }
    }

    /// Returns the state of a table that is about to be created.
    pub(crate) fn absent(&self, name: &str) -> Arc<TableState> {
        Arc::new(TableState {
            name: name.into(),
            row: AtomicU64::new(0),
            changed: AtomicBool::new(false),
            count: FreeCounts::take(&self.counts),
            since: AtomicU64::new(0),
            swapped: AtomicU64::new(0),
        })
    }

    /// Returns whether `table` is one of these, or was: it is of this store, and of this opening of
    /// it.
    #[inline]
    pub(crate) fn has_made(&self, table: &TableState) -> bool {
        table.count.is_of(&self.counts)
    }

    /// Returns the tree that `table` had for a snapshot of `lsn`; None if it did not exist.
    pub(crate) fn tree_at(&self, table: &TableState, lsn: Lsn) -> Option<Tree> {
        let now = table.tree();
        // Acquire: a caller that has seen a new row sees the LSN of its batch, too.
        if table.since.load(Ordering::Acquire) <= lsn.0 {
            return now;
        }
        self.known.read().tree_at(table, lsn)
    }

    /// Remembers that a table is about to have the empty tree `new` in place of `old`.
    pub(crate) fn note_emptied(&self, old: TreeId, new: TreeId) {
        let mut known = self.known.write();
        if known.replaced.len() == REPLACED_MAX {
            known.replaced.pop_front();
        }
        known.replaced.push_back((old, new));
    }

    /// Returns the trees that the table of `tree` has had from there on. None if it was dropped, or
    /// emptied so long ago that this is forgotten.
    pub(crate) fn trees_from(&self, tree: TreeId) -> Option<Replaced> {
        let known = self.known.read();
        let mut gone = vec![tree];
        for (old, new) in &known.replaced {
            if gone.last() == Some(old) {
                gone.push(*new);
            }
        }
        // The last one may be noted, and not be given to the table yet.
        while let Some(last) = gone.pop() {
            let table = known.by_tree.get(&last);
            if let Some(present) = table.and_then(|table| table.tree()) {
                assert_eq!(present.id, last, "a table is known by its tree");
                return Some(Replaced { gone, present });
            }
        }
        None
    }

    /// Returns the table that was called `name` for a snapshot of `lsn`.
    pub(crate) fn get_at(&self, name: &str, lsn: Lsn) -> Option<Arc<TableState>> {
        let known = self.known.read();
        let now = known.by_name.get(name).map(|named| &named.0);
        let earlier = known.earlier.iter().map(|earlier| &earlier.table);
        let mut all = now
            .into_iter()
            .chain(earlier)
            .filter(|table| *table.name == *name);
        all.find(|table| known.tree_at(table, lsn).is_some())
            .cloned()
    }

    /// Returns the names of the tables that there are at `lsn`, sorted.
    pub(crate) fn names_at(&self, lsn: Lsn) -> Vec<String> {
        let known = self.known.read();
        let now = known.by_name.iter().map(|named| &named.0);
        let earlier = known.earlier.iter().map(|earlier| &earlier.table);
        let then = now
            .chain(earlier)
            .filter(|table| known.tree_at(table, lsn).is_some());
        let names: BTreeSet<&str> = then.map(|table| &*table.name).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Returns the table called `name`.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<TableState>> {
        let known = self.known.read();
        known.by_name.get(name).map(|named| named.0.clone())
    }

    /// Adds a table of the catalogue; `entries` is its number in the mapping's journal.
    pub(crate) fn load(&self, name: &str, row: TreeRow, entries: i64) {
        let table = self.absent(name);
        self.set_tree(&table, Some(row), TableBatch::unseen(Lsn(0)));
        table.count.add(entries);
    }

    /// Gives the table another tree, which is empty, or none, which removes the table. The gate
    /// must be closed, or this is recovery.
    pub(crate) fn set_tree(
        &self,
        table: &Arc<TableState>,
        row: Option<TreeRow>,
        batch: TableBatch,
    ) {
        let table = table.clone();
        let entries = 0;
        let new = NewTree {
            table,
            row,
            entries,
        };
        self.replace(&[new], batch);
    }

    /// Gives tables other trees, or none, which removes a table. The gate must be closed, or this
    /// is recovery. Nobody sees it in part.
    pub(crate) fn replace(&self, all: &[NewTree], batch: TableBatch) {
        let mut known = self.known.write();
        let mut unneeded = Vec::new();
        for NewTree { table, row, .. } in all {
            audit::name("tables", &**table);
            unneeded.extend(known.keep_tree(table, batch));
            known.give(table, *row);
        }
        assert_eq!(
            known.by_name.len(),
            known.by_tree.len(),
            "a table has one tree"
        );
        // Nothing in here fails: readers wait for its end. The order is that of a swap.
        for NewTree { table, .. } in all {
            // Relaxed: ordered by the fence and by the stores behind it.
            table.row.store(IN_SWAP, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire fence in count.
        fence(Ordering::Release);
        for new in all {
            new.table.count.clear();
            new.table.count.add(new.entries);
            let word = new.row.map_or(0, |row| u64::from_le_bytes(row.encode()));
            // Release: pairs with the Acquire in tree.
            new.table.row.store(word, Ordering::Release);
        }
        drop(known);
        drop(unneeded);
        for new in all.iter().filter(|new| new.entries != 0) {
            // The journal learns of them.
            self.add(&new.table, 0);
        }
    }

    /// Gives the two tables of each pair the trees and the numbers of entries of each other. The
    /// gate must be closed, or this is recovery. Nobody sees it in part.
    ///
    /// # Panics
    /// If a table is dropped, or there twice.
    pub(crate) fn swap(&self, pairs: &[[Arc<TableState>; 2]], batch: TableBatch) {
        let mut known = self.known.write();
        let mut moves = Vec::with_capacity(2 * pairs.len());
        for [first, second] in pairs {
            for (to, from) in [(first, second), (second, first)] {
                let tree = from.tree().expect("a table that is swapped exists");
                moves.push((to, tree, from.count.sum()));
            }
        }
        let mut trees: Vec<TreeId> = moves.iter().map(|(_, tree, _)| tree.id).collect();
        trees.sort_unstable();
        assert!(
            trees.is_sorted_by(|one, next| one < next),
            "a table is swapped once"
        );
        let mut unneeded = Vec::new();
        for (table, ..) in &moves {
            unneeded.extend(known.keep_tree(table, batch));
        }
        for (table, tree, _) in &moves {
            let before = known.by_tree.insert(tree.id, Arc::clone(table));
            assert!(before.is_some(), "the tree was that of a table");
        }
        // Nothing in here fails: readers wait for its end. The order is argued at the top.
        for (table, ..) in &moves {
            // Relaxed: ordered by the stores behind it.
            table.row.store(IN_SWAP, Ordering::Relaxed);
        }
        for (table, ..) in &moves {
            // Release: pairs with the Acquire in note; the rows above come first.
            table.swapped.store(batch.lsn.0, Ordering::Release);
        }
        // Release: pairs with the Acquire fence in count.
        fence(Ordering::Release);
        for (table, tree, entries) in &moves {
            table.count.clear();
            table.count.add(*entries);
            let row = u64::from(tree.id.0) | u64::from(tree.root.0) << 32;
            // Release: pairs with the Acquire in tree.
            table.row.store(row, Ordering::Release);
        }
        drop(known);
        drop(unneeded);
        for (table, ..) in &moves {
            // The journal has counts by tree, and what was added to a tree is counted with the
            // table that has it.
            self.add(table, 0);
        }
    }

    /// Adds to the number of entries of `table`. The caller is inside the gate.
    #[inline]
    pub(crate) fn add(&self, table: &Arc<TableState>, entries: i64) {
        debug_assert!(table.tree().is_some(), "entries without a tree");
        // Relaxed, as the count is: a checkpoint reads both after it has closed the gate.
        if !table.changed.load(Ordering::Relaxed) && !table.changed.swap(true, Ordering::Relaxed) {
            self.changed.lock().push(table.clone());
        }
        table.count.add(entries);
    }

    /// Returns the counts of tables that changed since the last call, or of all tables if `all`.
    /// The gate must be closed.
    pub(crate) fn take_counts(&self, all: bool) -> Vec<(TreeId, u64)> {
        let changed = std::mem::take(&mut *self.changed.lock());
        for table in &changed {
            table.changed.store(false, Ordering::Relaxed);
        }
        let entries = |table: &Arc<TableState>| table.tree().map(|tree| (tree.id, table.count()));
        match all {
            true => {
                let known = self.known.read();
                let all = known.by_name.iter().map(|named| &named.0);
                all.filter_map(entries).collect()
            }
            false => changed.iter().filter_map(entries).collect(),
        }
    }

    /// Number of tables.
    pub(crate) fn number(&self) -> usize {
        self.known.read().by_name.len()
    }

    /// All tables, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<TableState>> {
        let known = self.known.read();
        known.by_name.iter().map(|named| named.0.clone()).collect()
    }

    /// Returns the trees of all tables, each once: none of them is missed while tables are swapped.
    pub(crate) fn trees(&self) -> Vec<Tree> {
        // A swap has the lock as long as it changes rows.
        let known = self.known.read();
        let tables = known.by_name.iter();
        tables.filter_map(|named| named.0.tree()).collect()
    }

    /// Returns the trees of `tables`, as of one moment: no two of them have the same one.
    pub(crate) fn trees_of(&self, tables: &[Arc<TableState>]) -> Vec<Option<Tree>> {
        // As in trees.
        let _known = self.known.read();
        tables.iter().map(|table| table.tree()).collect()
    }

    /// Returns the table whose tree is `tree`; for replay.
    pub(crate) fn of_tree(&self, tree: TreeId) -> Option<Arc<TableState>> {
        self.known.read().by_tree.get(&tree).cloned()
    }

    /// Returns how much memory all tables take.
    pub(crate) fn memory(&self) -> MemoryShare {
        MemoryShare {
            budget_bytes: self.bytes_max,
            used_bytes: self.known.read().bytes,
        }
    }

    /// Checks that there is memory for new tables called `names`.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(crate) fn check_room<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let more: u64 = names.map(TableState::bytes).sum();
        let known = self.known.read();
        if more == 0 || known.bytes + more <= self.bytes_max {
            return Ok(());
        }
        Err(Error::Full {
            what: format!(
                "{} tables take {} of the {} bytes that max_memory leaves for tables: \
                 drop some, or open the store with a larger max_memory",
                known.by_name.len(),
                known.bytes,
                self.bytes_max
            ),
        })
    }

    /// Checks that the tables of the store fit into the memory of this opening.
    ///
    /// # Errors
    /// [`Error::InvalidOption`].
    pub(crate) fn check_memory(&self, max_memory: u64) -> Result<()> {
        let known = self.known.read();
        if known.bytes <= self.bytes_max {
            return Ok(());
        }
        // The share is a fixed fraction, apart from rounding.
        let needed = known.bytes.div_ceil(self.bytes_max.max(1)) * max_memory;
        Err(Error::InvalidOption {
            option: "max_memory",
            what: format!(
                "the store's {} tables take {} bytes, and {max_memory} leaves {} for tables: \
                 {needed} is enough",
                known.by_name.len(),
                known.bytes,
                self.bytes_max
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However often tables change, there is one entry for each tree that somebody reads.
    #[test]
    fn only_trees_that_snapshots_read_are_remembered() {
        let tables = Tables::new(1 << 20);
        let set = |table: &Arc<TableState>, tree: Option<u32>, lsn: u64, newest: u64| {
            let row = tree.map(|tree| TreeRow {
                tree: TreeId(tree),
                root: PageId(tree),
            });
            let batch = TableBatch {
                lsn: Lsn(lsn),
                horizon: Lsn(50),
                newest: Lsn(newest),
            };
            tables.set_tree(table, row, batch);
        };
        let number = || tables.known.read().earlier.len();
        let tree_at =
            |table: &TableState, lsn| tables.tree_at(table, Lsn(lsn)).map(|tree| tree.id.0);
        let table = tables.absent("t");
        let row = TreeRow {
            tree: TreeId(20),
            root: PageId(20),
        };
        tables.set_tree(&table, Some(row), TableBatch::unseen(Lsn(8)));
        for lsn in 1..100 {
            let temporary = tables.absent("temporary");
            set(&temporary, Some(1000), 100 + lsn, 50);
            assert_eq!(tree_at(&temporary, 50), None);
            assert!(tables.get_at("temporary", Lsn(50)).is_none());
            set(&temporary, None, 100 + lsn, 50);
        }
        assert_eq!(number(), 0);
        set(&table, Some(21), 300, 50);
        set(&table, Some(22), 400, 50);
        assert_eq!((number(), tree_at(&table, 50)), (1, Some(20)));
        set(&table, Some(23), 500, 450);
        assert_eq!((number(), tree_at(&table, 450)), (2, Some(22)));
        let both = (tree_at(&table, 50), tree_at(&table, 500));
        assert_eq!(both, (Some(20), Some(23)));
        // One that was made after the first snapshot, and read by the second.
        let late = tables.absent("late");
        set(&late, Some(30), 600, 550);
        set(&late, Some(31), 700, 650);
        let all = [50, 550, 650, 700].map(|lsn| tree_at(&late, lsn));
        assert_eq!(all, [None, None, Some(30), Some(31)]);
    }

    /// Who finds one table behind a swap finds the others there, and numbers of entries of one
    /// content.
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    #[test]
    fn nobody_finds_a_swap_half_made() {
        const SWAPS: u64 = 100_000;
        let tables = Tables::new(1 << 20);
        let states = ["a", "b", "c", "d"].map(|name| tables.absent(name));
        for (number, state) in (20..).zip(&states) {
            let row = TreeRow {
                tree: TreeId(number),
                root: PageId(number),
            };
            tables.set_tree(state, Some(row), TableBatch::unseen(Lsn(8)));
            tables.add(state, i64::from(number));
        }
        let pairs = {
            let [a, b, c, d] = states.clone();
            [[a, b], [d, c]]
        };
        let ended = AtomicBool::new(false);
        let [a, _, c, _] = &states;
        let tree_of = |state: &TableState| state.tree().expect("it is never dropped").id.0;
        pando_sync::thread::scope(|scope| {
            for [one, other] in [[a, c], [c, a]] {
                let ended = &ended;
                scope.spawn(move || {
                    let mut seen = [0, 0];
                    while !ended.load(Ordering::Relaxed) {
                        let noted = one.note();
                        let (tree, others) = (noted.tree.map(|tree| tree.id.0), tree_of(other));
                        let count = other.count();
                        assert!([20, 21, 22, 23].contains(&count), "{count}");
                        if one.has_noted(noted) {
                            let is_swapped = tree == Some(21) || tree == Some(23);
                            assert_eq!(is_swapped, others % 2 == 1, "{tree:?} and {others}");
                            assert_eq!(count, u64::from(others));
                            seen[usize::from(is_swapped)] += 1;
                        }
                    }
                    assert!(seen[0] > 0, "it has never seen the first content");
                });
            }
            for swap in 0..SWAPS {
                tables.swap(&pairs, TableBatch::unseen(Lsn(9 + swap)));
                // Readers find both contents.
                if swap % 64 < 2 {
                    yield_now();
                }
            }
            ended.store(true, Ordering::Relaxed);
        });
        assert_eq!((tree_of(a), a.count()), (20, 20));
    }

    #[test]
    fn trees_of_emptied_tables_are_remembered_up_to_a_bound() {
        let tables = Tables::new(1 << 20);
        let from = |tree| {
            let found = tables.trees_from(TreeId(tree))?;
            let gone = found.gone.iter().map(|tree| tree.0);
            Some((gone.collect::<Vec<_>>(), found.present.id.0))
        };
        let table = tables.absent("t");
        let set = |tree: u32| {
            let row = TreeRow {
                tree: TreeId(tree),
                root: PageId(tree),
            };
            tables.set_tree(&table, Some(row), TableBatch::unseen(Lsn(8)));
        };
        set(20);
        tables.note_emptied(TreeId(20), TreeId(21));
        tables.note_emptied(TreeId(1000), TreeId(1001));
        tables.note_emptied(TreeId(21), TreeId(22));
        assert_eq!(from(20), Some((vec![], 20)), "it has no other yet");
        set(22);
        assert_eq!(from(20), Some((vec![20, 21], 22)));
        assert_eq!(from(22), Some((vec![], 22)));
        assert_eq!(from(1000), None, "there is no such table");
        for number in 0..10_000 {
            tables.note_emptied(TreeId(3000 + number), TreeId(30_000));
        }
        assert_eq!(from(20), None, "it is forgotten");
        assert_eq!(tables.known.read().replaced.len(), REPLACED_MAX);
    }
}
