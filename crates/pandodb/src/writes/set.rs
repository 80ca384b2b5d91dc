//! The writes of one batch and what it has read: an overlay, through which a batch reads its own
//! writes.

use std::ops::Bound;

use pando_format::Lsn;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_tree::{ScanValue, Tree};

use crate::blobs::value::LargeValue;
use crate::error::{Error, Result};
use crate::options::Durability;
use crate::space::urgency::Urgency;
use crate::state::loads::Filled;
use crate::state::read_bounds::Debt;
use crate::tables::kind::TreeKind;
use crate::tables::state::{NotedTree, TableState, Tables};
use crate::writes::keys::{Change, KeyWrites, Mark, Told, Write};
use crate::writes::read_places::{ReadPlaces, Unwritten};
use crate::writes::stripes::{Stamp, StripeIndex};
use crate::writes::watched::WatchedKeys;

/// Most memory for watched keys that a batch keeps for its next run.
const WATCHED_BYTES_MAX: usize = 64 << 10;

/// A new value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Bytes(&'a [u8]),
    Chunks(&'a LargeValue),
}

impl<'a> Value<'a> {
    /// Returns it as a scan shows it.
    pub(crate) fn scanned(self) -> ScanValue<'a> {
        match self {
            Self::Bytes(bytes) => ScanValue::Inline(bytes),
            Self::Chunks(_) => ScanValue::Long,
        }
    }

    /// Bytes of it that are in the log and in pages: of a value in chunks those of its blob
    /// reference.
    pub(crate) fn stored_bytes(self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Chunks(value) => value.blob_ref_bytes(),
        }
    }
}

/// A change of a whole table, made before the writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableChange {
    Create(TreeKind),
    Drop,
    Clear,
    /// An empty table gets a tree that was filled beside the log (decision 051).
    Take(Filled),
    /// It and the table of this index, which has the same change, get the trees of each other. A
    /// batch with swaps does nothing else.
    Swap(usize),
}

/// Writes, table changes and reads of one batch. Reusable: [`WriteSet::clear`] keeps the memory.
#[derive(Debug)]
pub(crate) struct WriteSet {
    /// All tables that the batch touches; other fields refer to them by index.
    pub(crate) tables: Vec<BatchTable>,
    /// First table of the previous use. Taking this handle again does not write its reference
    /// count, which all threads share.
    last_table: Option<Arc<TableState>>,
    /// The writes.
    keys: KeyWrites,
    /// Number of writes and of changes of whole tables so far, those of keys that were written
    /// before among them.
    pub(crate) write_calls: u64,
    /// Where keys are that were read.
    read: ReadPlaces,
    /// Upper bound of the bytes that any value takes, or would take, in its leaf.
    stored_bytes_max: usize,
    /// True if some values are, or were, in chunks.
    has_large: bool,
    /// Changes of whole tables, by index of the table.
    pub(crate) table_changes: Vec<(usize, TableChange)>,
    /// Names of tables that must not exist; only in batches that change tables.
    pub(crate) absent: Vec<Box<str>>,
    /// The flag that must not be set, if `expects_unset`; kept from one use to the next.
    unset: Option<Arc<AtomicBool>>,
    expects_unset: bool,
    /// No snapshot of this LSN or a later one reads what the batch writes.
    pub(crate) unread_since: Option<Lsn>,
    /// Stamps from before each read.
    pub(crate) reads: Vec<Stamp>,
    /// Stripes of keys that a transaction has read, to be shared until the record has its LSN.
    pub(crate) shares: Vec<StripeIndex>,
    /// Watched keys that the batch depends on.
    pub(crate) watched: WatchedKeys,
    /// What the reads owe: the LSN that must be durable before they may be shown (decision 060).
    pub(crate) debt: Debt,
    /// The durability that the caller asks for; None for that of the store.
    pub(crate) durability: Option<Durability>,
}

/// A table that a batch touches, and the tree that it had at that moment.
#[derive(Debug, Clone)]
pub(crate) struct BatchTable {
    pub(crate) state: Arc<TableState>,
    noted: NotedTree,
}

impl BatchTable {
    fn new(state: Arc<TableState>) -> Self {
        let noted = state.note();
        Self { state, noted }
    }

    /// The tree that it had; None if it was dropped then.
    #[inline]
    pub(crate) fn tree(&self) -> Option<Tree> {
        self.noted.tree
    }

    fn refresh(&mut self) {
        self.noted = self.state.note();
    }
}

/// What a batch knows of a key.
pub(crate) enum Own<'a> {
    Value(&'a [u8]),
    Large(&'a LargeValue),
    Gone,
    Unknown,
}

impl Default for WriteSet {
    fn default() -> Self {
        Self {
            tables: Vec::new(),
            last_table: None,
            keys: KeyWrites::default(),
            write_calls: 0,
            read: ReadPlaces::default(),
            stored_bytes_max: 0,
            has_large: false,
            table_changes: Vec::new(),
            absent: Vec::new(),
            unset: None,
            expects_unset: false,
            unread_since: None,
            reads: Vec::new(),
            shares: Vec::new(),
            watched: WatchedKeys::default(),
            debt: Debt::NONE,
            durability: None,
        }
    }
}

impl WriteSet {
    /// Forgets everything but the memory, and a handle of the first table.
    pub(crate) fn clear(&mut self) {
        self.tables.truncate(1);
        if let Some(table) = self.tables.pop() {
            self.last_table = Some(table.state);
        }
        self.forget_writes();
        self.reads.clear();
        self.shares.clear();
        self.debt = Debt::NONE;
    }

    /// As [`WriteSet::clear`]. Returns false if it has grown beyond `bytes_max`.
    pub(crate) fn empty(&mut self, bytes_max: usize) -> bool {
        self.clear();
        self.durability = None;
        let of_reads = self.reads.capacity() * size_of::<Stamp>()
            + self.shares.capacity() * size_of::<StripeIndex>();
        let of_watches = self.watched.capacity_bytes();
        self.keys.capacity() + of_reads + of_watches <= bytes_max
    }

    /// Forgets writes, table changes, and what is watched or expected; keeps tables and reads.
    pub(crate) fn forget_writes(&mut self) {
        self.keys.clear();
        self.read.clear();
        self.stored_bytes_max = 0;
        self.has_large = false;
        self.table_changes.clear();
        self.absent.clear();
        self.expects_unset = false;
        self.unread_since = None;
        self.watched.clear(WATCHED_BYTES_MAX);
    }

    /// Has the commit meet a conflict if `flag` is set by then. Returns false if it has another one
    /// already.
    pub(crate) fn expect_unset(&mut self, flag: &Arc<AtomicBool>) -> bool {
        let known = self.unset.as_ref();
        if !known.is_some_and(|known| Arc::ptr_eq(known, flag)) {
            if self.expects_unset {
                return false;
            }
            self.unset = Some(flag.clone());
        }
        self.expects_unset = true;
        true
    }

    /// Returns whether the flag is set that must not be.
    #[inline]
    pub(crate) fn is_flag_set(&self) -> bool {
        let flag = self.unset.as_ref().filter(|_| self.expects_unset);
        // Acquire: pairs with the Release of who sets it.
        flag.is_some_and(|flag| flag.load(Ordering::Acquire))
    }

    /// Refuses to go on if the flag is set that must not be: that stays so.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub(crate) fn check_flag(&self) -> Result<()> {
        match self.is_flag_set() {
            true => Err(Error::aborted("nobody waits for the commit any longer")),
            false => Ok(()),
        }
    }

    /// Returns true if nothing is written.
    pub(crate) fn is_read_only(&self) -> bool {
        self.keys.writes().is_empty() && self.table_changes.is_empty()
    }

    /// Returns the position of the write to a key.
    pub(crate) fn find(&self, table: usize, key: &[u8]) -> Option<usize> {
        self.keys.find(table, key)
    }

    /// Returns the index of a table that the batch touches.
    pub(crate) fn index_of(&self, state: &Arc<TableState>) -> Option<usize> {
        let mut tables = self.tables.iter();
        tables.position(|table| Arc::ptr_eq(&table.state, state))
    }

    /// Returns the index of a table, adding it with its current tree if it is new to the batch.
    pub(crate) fn table(&mut self, state: &Arc<TableState>) -> usize {
        debug_assert!(
            self.keys
                .writes()
                .iter()
                .all(|write| write.table < self.tables.len()),
            "each write has its table"
        );
        // Most batches touch one.
        if let [first, ..] = &self.tables[..]
            && Arc::ptr_eq(&first.state, state)
        {
            return 0;
        }
        let known = self.index_of(state);
        known.unwrap_or_else(|| {
            let last = self.last_table.take();
            let again = last.filter(|last| Arc::ptr_eq(last, state));
            let state = again.unwrap_or_else(|| state.clone());
            self.tables.push(BatchTable::new(state));
            self.tables.len() - 1
        })
    }

    /// Puts `value`, or deletes the key if it is None. Replaces an earlier write to the key.
    pub(crate) fn write(&mut self, table: usize, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.put_joined(table, key, (value, &[])),
            None => self.change(table, key, Change::Delete),
        }
    }

    /// Puts a value of two parts. Replaces an earlier write to the key.
    #[inline]
    pub(crate) fn put_joined(&mut self, table: usize, key: &[u8], value: (&[u8], &[u8])) {
        self.put_marked(table, key, value, false);
    }

    /// As [`WriteSet::put_joined`], with a mark: whether it belongs to the removal of something
    /// larger.
    #[inline]
    pub(crate) fn put_marked(
        &mut self,
        table: usize,
        key: &[u8],
        value: (&[u8], &[u8]),
        frees_room: bool,
    ) {
        let bytes = value.0.len() + value.1.len();
        self.stored_bytes_max = self.stored_bytes_max.max(bytes);
        let change = self.keys.append_value(value, frees_room);
        self.change(table, key, change);
    }

    /// Changes a key. If it was one of the last to be read, neither it nor its place is looked for
    /// again.
    #[inline]
    fn change(&mut self, table: usize, key: &[u8], change: Change) {
        let calls = self.write_calls;
        self.write_calls += 1;
        let Some(read) = self.read.of(table, key) else {
            let _position = self.keys.note(table, key, change);
            return;
        };
        let seen = std::mem::take(&mut read.seen);
        let position = match read.unwritten {
            Unwritten { write_calls, hash } if write_calls == calls => {
                self.keys.add(table, key, change, hash)
            }
            // It may have been written since.
            _ => self.keys.note(table, key, change),
        };
        self.keys.set_place(position, seen);
    }

    /// Notes where a key is that was just read: it was not found among the writes.
    #[inline]
    pub(crate) fn note_read(&mut self, table: usize, key: &[u8], told: (Told, Unwritten)) {
        self.read.note(table, key, told);
    }

    /// Returns where the keys of the first writes are, as far as reads of them have told;
    /// [`Told::default`] for the others.
    #[inline]
    pub(crate) fn places(&self) -> &[Told] {
        self.keys.places()
    }

    /// Sets a key to a value in chunks. Replaces an earlier write to the key.
    pub(crate) fn write_large(&mut self, table: usize, key: &[u8], value: LargeValue) {
        self.write_calls += 1;
        self.measure_large(&value);
        let _position = self.keys.note(table, key, Change::PutLarge(value));
    }

    /// Returns the position of the first value of more than `limit` bytes that is not in chunks.
    #[inline]
    pub(crate) fn first_longer(&self, limit: usize) -> Option<usize> {
        if self.stored_bytes_max <= limit {
            return None;
        }
        self.keys
            .writes()
            .iter()
            .position(|write| match &write.change {
                Change::Put { value, .. } => value.len() > limit,
                Change::PutLarge(_) | Change::Delete => false,
            })
    }

    /// Replaces the value of the write at `position` by `value`: the same bytes, written to chunks.
    pub(crate) fn replace_value(&mut self, position: usize, value: LargeValue) {
        self.measure_large(&value);
        self.keys.replace_value(position, value);
    }

    /// Updates the bounds for a value in chunks.
    fn measure_large(&mut self, value: &LargeValue) {
        self.has_large = true;
        self.stored_bytes_max = self.stored_bytes_max.max(value.blob_ref_bytes());
    }

    /// Returns false if no value is in chunks.
    #[inline]
    pub(crate) fn has_large(&self) -> bool {
        self.has_large
    }

    /// Returns the values in chunks.
    #[inline]
    pub(crate) fn large(&self) -> impl Iterator<Item = &LargeValue> {
        let is_large = |write: &Write| matches!(write.change, Change::PutLarge(_));
        debug_assert!(
            self.has_large || !self.keys.writes().iter().any(is_large),
            "has_large is false, and there are chunks"
        );
        let writes = match self.has_large {
            true => self.keys.writes(),
            false => &[],
        };
        writes.iter().filter_map(|write| match &write.change {
            Change::PutLarge(value) => Some(value),
            Change::Put { .. } | Change::Delete => None,
        })
    }

    /// Marks the chunks of all values as named, for a log record that is about to be written: they
    /// no longer belong to the batch.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] if a record has named one of them before, or if two keys have the
    /// same value; then none is left marked.
    pub(crate) fn name_chunks(&self) -> Result<()> {
        for (index, value) in self.large().enumerate() {
            if !value.staged.name() {
                // A value that two keys of this batch have is among the earlier ones exactly once.
                for named in self.large().take(index) {
                    named.staged.take_back_name();
                }
                return Err(Error::InvalidValue {
                    what: "was put before".into(),
                });
            }
        }
        Ok(())
    }

    /// Returns true if the batch changes this table as a whole, before it writes to it.
    pub(crate) fn changes_table(&self, table: usize) -> bool {
        self.table_changes.iter().any(|(known, _)| *known == table)
    }

    /// Forgets the writes to a table, and notes that it is changed as a whole.
    pub(crate) fn change_table(&mut self, table: usize, change: TableChange) {
        self.write_calls += 1;
        self.keys.forget_table(table);
        self.table_changes.retain(|(known, _)| *known != table);
        self.table_changes.push((table, change));
    }

    /// Notes that two tables get the trees of each other.
    ///
    /// # Panics
    /// If they are one table, if one is swapped already, or if the batch writes anything else.
    pub(crate) fn swap_tables(&mut self, first: usize, second: usize) {
        assert_ne!(first, second, "a table is swapped with another one");
        let is_swap = |(_, change): &(usize, TableChange)| matches!(change, TableChange::Swap(_));
        assert!(
            self.keys.writes().is_empty() && self.table_changes.iter().all(is_swap),
            "a batch that swaps tables does nothing else"
        );
        for (table, other) in [(first, second), (second, first)] {
            assert!(!self.changes_table(table), "a table is swapped once");
            self.change_table(table, TableChange::Swap(other));
        }
    }

    /// Returns the tables of each swap.
    pub(crate) fn swaps(&self) -> impl Iterator<Item = [&BatchTable; 2]> {
        let changes = self.table_changes.iter();
        // Both have the change: it is that of the one which comes first.
        changes.step_by(2).map(|(table, change)| match change {
            TableChange::Swap(other) => [&self.tables[*table], &self.tables[*other]],
            _ => unreachable!("a batch that swaps tables does nothing else"),
        })
    }

    /// Returns whether it swaps tables.
    pub(crate) fn swaps_tables(&self) -> bool {
        let first = self.table_changes.first();
        matches!(first, Some((_, TableChange::Swap(_))))
    }

    /// Returns the state of the set, for [`WriteSet::go_back`].
    pub(crate) fn mark(&mut self) -> Mark {
        self.keys.mark()
    }

    /// Forgets all writes since `mark`, which must not be later than another mark that the set went
    /// back to.
    pub(crate) fn go_back(&mut self, mark: Mark) {
        self.keys.go_back(mark);
    }

    /// Returns what the batch itself has done to a key.
    pub(crate) fn own(&self, table: usize, key: &[u8]) -> Own<'_> {
        self.own_noted(table, key).0
    }

    /// Also returns what [`WriteSet::note_read`] takes, if the batch has done nothing to it.
    pub(crate) fn own_noted(&self, table: usize, key: &[u8]) -> (Own<'_>, Unwritten) {
        let (position, hash) = self.keys.look_up(table, key);
        let own = match position.map(|position| &self.keys.writes()[position].change) {
            Some(Change::Put { value, .. }) => Own::Value(self.keys.value(value)),
            Some(Change::PutLarge(value)) => Own::Large(value),
            Some(Change::Delete) => Own::Gone,
            None if self.changes_table(table) => {
                assert!(!self.swaps_tables(), "a table is not read behind its swap");
                Own::Gone
            }
            None => Own::Unknown,
        };
        let write_calls = self.write_calls;
        (own, Unwritten { write_calls, hash })
    }

    /// Returns table and key of all writes, in the order in which they were first written.
    pub(crate) fn written_keys(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let writes = self.keys.writes().iter();
        writes.map(|write| (write.table, self.keys.key(write)))
    }

    /// Bytes that the writes take, and what savepoints need to go back, about.
    pub(crate) fn memory(&self) -> usize {
        self.keys.memory()
    }

    /// Number of keys written.
    pub(crate) fn len(&self) -> usize {
        self.keys.writes().len()
    }

    /// Returns true if its writes are in the order of their trees and keys for certain.
    pub(crate) fn is_in_order(&self) -> bool {
        self.len() <= 1 || self.tables.len() == 1 && self.keys.is_ascending()
    }

    /// Returns table, key and new value (None: deleted) of the write at `position`.
    #[inline]
    pub(crate) fn write_at(&self, position: usize) -> (usize, &[u8], Option<Value<'_>>) {
        let write = &self.keys.writes()[position];
        let value = match &write.change {
            Change::Put { value, .. } => Some(Value::Bytes(self.keys.value(value))),
            Change::PutLarge(value) => Some(Value::Chunks(value)),
            Change::Delete => None,
        };
        (write.table, self.keys.key(write), value)
    }

    /// Returns, for all values that take more than `limit` bytes of a leaf, or would, how many
    /// bytes.
    pub(crate) fn values_beyond(&self, limit: usize) -> impl Iterator<Item = usize> {
        let writes = match self.stored_bytes_max > limit {
            true => 0..self.len(),
            false => 0..0,
        };
        let stored = |at| self.write_at(at).2.map(Value::stored_bytes);
        debug_assert!(
            (0..self.len())
                .filter_map(stored)
                .all(|bytes| bytes <= self.stored_bytes_max),
            "no value is longer than the longest"
        );
        writes
            .filter_map(stored)
            .filter(move |bytes| *bytes > limit)
    }

    /// Returns how many bytes the puts take in leaves, at most: each with `overhead`, and no more
    /// than `limit` of its value.
    pub(crate) fn bytes_in_leaves(&self, limit: usize, overhead: usize) -> usize {
        let puts = self
            .writes()
            .filter_map(|(_, key, value)| Some((key, value?)));
        let bytes = puts.map(|(key, value)| {
            let stored = value.stored_bytes().min(limit);
            key.len() + stored + overhead
        });
        bytes.sum()
    }

    /// Returns all writes, in the order in which their keys were first written.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (usize, &[u8], Option<Value<'_>>)> {
        (0..self.len()).map(|position| self.write_at(position))
    }

    /// Returns key and new value (None: deleted) of the writes to `table` between two bounds, in
    /// order.
    pub(crate) fn writes_between(
        &mut self,
        table: usize,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = (&[u8], Option<Value<'_>>)> + ExactSizeIterator {
        let places = self.keys.between(table, bounds);
        let this = &*self;
        places.map(|place| {
            let (_, key, value) = this.write_at(this.keys.in_order(place));
            (key, value)
        })
    }

    /// Returns how much of the reserve it may use: all of it if all writes are deletes, some if
    /// the others are puts that free room; nothing if it creates a table.
    pub(crate) fn urgency(&self) -> Urgency {
        let mut urgency = Urgency::Deletes;
        for write in self.keys.writes() {
            match write.change {
                Change::Delete => {}
                Change::Put { frees_room, .. } if frees_room => urgency = Urgency::FreesRoom,
                Change::Put { .. } | Change::PutLarge(_) => return Urgency::No,
            }
        }
        let is_creation = |change: &TableChange| matches!(change, TableChange::Create(_));
        match self.table_changes.iter().any(|(_, how)| is_creation(how)) {
            true => Urgency::No,
            false => urgency,
        }
    }

    /// Number of writes that are puts.
    pub(crate) fn puts(&self) -> u64 {
        let is_put = |write: &&Write| !matches!(write.change, Change::Delete);
        self.keys.writes().iter().filter(is_put).count() as u64
    }

    /// Notes the current trees of all tables, for another attempt.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if a table that is written to was dropped.
    pub(crate) fn refresh_trees(&mut self) -> Result<()> {
        for table in &mut self.tables {
            table.refresh();
        }
        self.check_tables()
    }

    /// Notes the current trees of the tables that are changed as a whole: the batch does not depend
    /// on what was in them.
    pub(crate) fn refresh_trees_of_changes(&mut self) {
        for (table, change) in &self.table_changes {
            if !matches!(change, TableChange::Create(_)) {
                self.tables[*table].refresh();
            }
        }
    }

    /// Checks that all tables which it touches are those of one store.
    ///
    /// # Errors
    /// [`Error::OtherStore`].
    #[inline]
    pub(crate) fn check_store(&self, own: &Tables) -> Result<()> {
        let mut tables = self.tables.iter();
        match tables.all(|table| own.has_made(&table.state)) {
            true => Ok(()),
            false => Err(Error::OtherStore),
        }
    }

    /// Checks that all tables that are written to exist.
    pub(crate) fn check_tables(&self) -> Result<()> {
        let mut last = None;
        for write in self.keys.writes() {
            if last.replace(write.table) == Some(write.table) {
                continue;
            }
            let table = &self.tables[write.table];
            let created = self.table_changes.iter().any(|(known, change)| {
                matches!(change, TableChange::Create(_))
                    && Arc::ptr_eq(&self.tables[*known].state, &table.state)
            });
            if table.tree().is_none() && !created {
                return Err(Error::NoSuchTable {
                    name: table.state.name.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Returns what has changed, given `unchanged`, which tells for a stamp whether its stripe is
    /// unchanged: Some(true) for something that was watched, Some(false) for something that was
    /// read or for the tree of a table, also if a key was watched there that did not exist, None
    /// for nothing.
    #[inline]
    pub(crate) fn changed(&self, unchanged: impl Fn(Stamp) -> bool) -> Option<bool> {
        if self.watched.is_empty() && self.reads.is_empty() {
            return (!self.trees_unchanged()).then_some(false);
        }
        self.read_changed(unchanged)
    }

    /// As [`WriteSet::changed`], for a batch that has read or watches something.
    fn read_changed(&self, unchanged: impl Fn(Stamp) -> bool) -> Option<bool> {
        if let Some(watched) = self.watched.changed(&unchanged) {
            return Some(watched);
        }
        if !self.reads.iter().all(|stamp| unchanged(*stamp)) || !self.trees_unchanged() {
            return Some(false);
        }
        None
    }

    /// Returns true if all tables have the trees that were noted.
    pub(crate) fn trees_unchanged(&self) -> bool {
        self.tables
            .iter()
            .all(|table| table.state.has_noted(table.noted))
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use std::collections::BTreeMap;

    use super::{Own, TableChange, Value, WriteSet};
    use crate::tables::state::Tables;

    /// Keys come partly in order and partly at random; some are repeated or removed, and tables are
    /// emptied.
    #[test]
    fn a_batch_holds_what_a_map_holds() {
        let tables = Tables::new(0);
        let states: [_; 2] = std::array::from_fn(|at| tables.absent(&format!("{at}")));
        let mut random = fastrand::Rng::with_seed(1);
        let mut set = WriteSet::default();
        for round in 0..600 {
            let mut model = BTreeMap::new();
            set.clear();
            let tables = states.each_ref().map(|state| set.table(state));
            let mut cleared = [false; 2];
            for step in 0..round % 60 {
                let table = if round % 3 == 0 { 0 } else { random.usize(..2) };
                let number = match random.usize(..=round % 7) {
                    0 => step,
                    _ => random.usize(..50),
                };
                let key = (number as u16).to_be_bytes();
                match random.u32(..24) {
                    0 => {
                        set.change_table(tables[table], TableChange::Clear);
                        model.retain(|(known, _), _| *known != table);
                        cleared[table] = true;
                    }
                    1..4 => {
                        set.write(tables[table], &key, None);
                        model.insert((table, key), None);
                    }
                    _ => {
                        set.write(tables[table], &key, Some(&[step as u8]));
                        model.insert((table, key), Some(step as u8));
                    }
                }
            }
            assert_eq!(set.len(), model.len());
            for table in 0..2 {
                for number in 0..60_u16 {
                    let key = number.to_be_bytes();
                    let own = match set.own(tables[table], &key) {
                        Own::Value(value) => Some(Some(value[0])),
                        Own::Gone if model.contains_key(&(table, key)) => Some(None),
                        Own::Gone => {
                            assert!(cleared[table]);
                            None
                        }
                        Own::Large(_) => unreachable!("none was written"),
                        Own::Unknown => None,
                    };
                    assert_eq!(own, model.get(&(table, key)).copied(), "{round} {number}");
                }
            }
        }
    }

    fn contents(set: &WriteSet) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let writes = set.writes().map(|(_, key, value)| {
            let value = value.map(|value| match value {
                Value::Bytes(bytes) => bytes.to_vec(),
                Value::Chunks(_) => unreachable!("none was written"),
            });
            (key.to_vec(), value)
        });
        writes.collect()
    }

    /// Keys that are written again and again do not take more and more memory.
    #[test]
    fn replaced_values_are_dropped() {
        let tables = Tables::new(0);
        let state = tables.absent("t");
        let mut random = fastrand::Rng::with_seed(7);
        let mut set = WriteSet::default();
        let table = set.table(&state);
        let mut model = BTreeMap::new();
        for _ in 0..20_000 {
            let key = vec![random.u8(..100)];
            let value = vec![random.u8(..); random.usize(..1000)];
            set.write(table, &key, Some(&value));
            model.insert(key, Some(value));
            assert!(set.memory() < 400_000);
        }
        assert_eq!(contents(&set), model);
    }

    /// Goes back to any of the marks that are left, with keys in order and at random.
    #[test]
    fn a_set_goes_back_to_what_it_was() {
        let tables = Tables::new(0);
        let state = tables.absent("t");
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..300_usize {
            let mut set = WriteSet::default();
            let table = set.table(&state);
            let mut states = Vec::new();
            for step in 0..120_u8 {
                match random.u8(..10) {
                    0 => {
                        let mark = set.mark();
                        states.push((mark, contents(&set)));
                    }
                    1 if !states.is_empty() => {
                        let to = random.usize(..states.len());
                        states.truncate(to + 1);
                        set.go_back(states[to].0);
                        assert_eq!(contents(&set), states[to].1, "{round} {step}");
                    }
                    choice => {
                        let key = if round % 2 == 0 {
                            step
                        } else {
                            random.u8(..40)
                        };
                        let value = [step; 9];
                        let value = (choice > 3).then_some(&value[..usize::from(choice)]);
                        set.write(table, &[key], value);
                        let own = set.own(table, &[key]);
                        assert!(matches!(
                            (own, value),
                            (Own::Value(_), Some(_)) | (Own::Gone, None)
                        ));
                    }
                }
            }
        }
    }
}
