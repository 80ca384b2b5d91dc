//! Iterators over a range of keys, in both directions, one leaf at a time (decision 021).
//!
//! An iterator borrows the handle that it was made from. Cloning the handle would write a cache
//! line that all cores share, twice per scan.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};

use pando_pool::Restart;
use pando_sync::Arc;
use pando_tree::{Direction, LeafCopy, LeafFill, ScanValue, Tree};

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::Settled;
use crate::read::ahead::{Position, ReadAhead};
use crate::read::at::unless_ended;
use crate::read::merged_leaf::MergedLeaf;
use crate::read::point::{no_such_table, on_tree};
use crate::wait::reason::Step;

/// Key and value of an entry.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Entries of a table in a range of keys: see [`Table::range`]. Between calls it pins nothing and
/// holds only a copy of one leaf for each end. If the table is dropped, the iterator ends with
/// [`crate::Error::NoSuchTable`].
#[derive(Debug)]
pub struct Iter<'t> {
    table: Cow<'t, Table>,
    /// The moment that it shows; None: each leaf as it is when it is read.
    snapshot: Option<Cow<'t, Snapshot>>,
    front: RangeEnd,
    back: RangeEnd,
    done: bool,
    /// Why it fails before it begins.
    failed: Option<Error>,
}

/// One end of the range that is left.
#[derive(Debug)]
struct RangeEnd {
    direction: Direction,
    /// Where the range continues; returned keys are excluded.
    bound: Bound<Vec<u8>>,
    leaf: LeafCopy,
    /// The records of `leaf` at the snapshot, if they are not those of `leaf`.
    merged: Option<Box<MergedLeaf>>,
    is_merged: bool,
    /// Number of the next record in `leaf`; None: the leaf must be loaded.
    next: Option<usize>,
    ahead: ReadAhead,
    /// The same for a settled snapshot.
    kept_ahead: KeptAhead,
}

impl RangeEnd {
    fn new(direction: Direction, bound: Bound<Vec<u8>>) -> Self {
        Self {
            direction,
            bound,
            leaf: LeafCopy::new(),
            merged: None,
            is_merged: false,
            next: None,
            ahead: ReadAhead::default(),
            kept_ahead: KeptAhead::default(),
        }
    }

    /// Number of records.
    fn len(&self) -> usize {
        match &self.merged {
            Some(merged) if self.is_merged => merged.len(),
            _ => self.leaf.len(),
        }
    }

    /// Returns record `index` in scan order.
    fn get(&self, index: usize) -> (&[u8], ScanValue<'_>) {
        match &self.merged {
            Some(merged) if self.is_merged => merged.get(index),
            _ => self.leaf.get(index),
        }
    }
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        let engine = self.table.db().engine();
        self.front.ahead.end(engine);
        self.back.ahead.end(engine);
    }
}

impl<'t> Iter<'t> {
    /// Returns an iterator over the keys from `start` to `end`. Reads nothing yet.
    pub(crate) fn new(table: Cow<'t, Table>, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        let statistics = &table.db().engine().store.statistics;
        statistics.tick(pando_stats::Ticker::Scans, 1);
        Self {
            table,
            snapshot: None,
            front: RangeEnd::new(Direction::Forward, start),
            back: RangeEnd::new(Direction::Backward, end),
            done: false,
            failed: None,
        }
    }

    /// Makes it show the moment of `snapshot`.
    pub(crate) fn at(mut self, snapshot: Cow<'t, Snapshot>) -> Self {
        if !Arc::ptr_eq(self.table.db.engine(), snapshot.db().engine()) {
            self.failed = Some(Error::OtherStore);
        }
        self.snapshot = Some(snapshot);
        self
    }

    /// Returns the same iterator with a handle of its own, so that it may outlive the handle that
    /// it was made from. Writes a cache line that all cores share.
    pub fn into_owned(mut self) -> Iter<'static> {
        let nothing = |direction| RangeEnd::new(direction, Bound::Unbounded);
        Iter {
            table: Cow::Owned(Table::clone(&self.table)),
            snapshot: self
                .snapshot
                .take()
                .map(|snapshot| Cow::Owned(snapshot.into_owned())),
            failed: self.failed.take(),
            front: std::mem::replace(&mut self.front, nothing(Direction::Forward)),
            back: std::mem::replace(&mut self.back, nothing(Direction::Backward)),
            done: self.done,
        }
    }

    /// Calls `f` with the next entry, instead of copying the entry to the heap. `f` may call the
    /// store.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// let (mut iter, mut bytes) = (table.iter(), 0);
    /// while let Some(entry) = iter.next_with(|key, value| key.len() + value.len()) {
    ///     bytes += entry?;
    /// }
    /// assert_eq!(bytes, 20);
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<Result<R>> {
        self.step(Direction::Forward, f)
    }

    /// As [`Iter::next_with`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_back_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<Result<R>> {
        self.step(Direction::Backward, f)
    }

    /// Calls `f` with the next entry at the end for `direction`; None when the range is exhausted.
    fn step<R>(
        &mut self,
        direction: Direction,
        f: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> Option<Result<R>> {
        if let Some(error) = self.failed.take() {
            return self.end_with(error);
        }
        while !self.done {
            let position = match self.find(direction) {
                Ok(Some(position)) => position,
                Ok(None) => continue,
                Err(error) => return self.end_with(error),
            };
            let end = match direction {
                Direction::Forward => &mut self.front,
                Direction::Backward => &mut self.back,
            };
            end.next = Some(position + 1);
            // The entry is shown in place, and `end.bound` is changed before: two fields of `end`.
            let (key, value) = match &end.merged {
                Some(merged) if end.is_merged => merged.get(position),
                _ => end.leaf.get(position),
            };
            debug_assert!(
                inside(key, &end.bound, direction),
                "an entry is shown once, and in order"
            );
            exclude(&mut end.bound, key);
            let long = match value {
                ScanValue::Inline(value) => return Some(Ok(f(key, value))),
                ScanValue::Long => match &self.snapshot {
                    Some(snapshot) => snapshot.get(&self.table, key),
                    None => self.table.get(key),
                },
            };
            match long {
                Ok(Some(value)) => return Some(Ok(f(key, &value))),
                // Skip a long value that was deleted meanwhile.
                Ok(None) => {}
                Err(error) => return self.end_with(error),
            }
        }
        None
    }

    fn end_with<R>(&mut self, error: Error) -> Option<Result<R>> {
        self.done = true;
        Some(Err(error))
    }

    /// Returns the position of the next entry in its leaf. None: call again, or the iterator is
    /// done; a leaf was loaded, or left, or the range is exhausted.
    fn find(&mut self, direction: Direction) -> Result<Option<usize>> {
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &self.back),
            Direction::Backward => (&mut self.back, &self.front),
        };
        let Some(position) = end.next else {
            let snapshot = self.snapshot.as_deref();
            load(&self.table, snapshot, end, &other.bound)?;
            return Ok(None);
        };
        if position >= end.len() {
            match end.leaf.next_bound() {
                Some(bound) => {
                    debug_assert!(
                        is_behind(bound, &end.bound, direction),
                        "a scan goes forward"
                    );
                    if let Bound::Included(next) | Bound::Excluded(next) = bound {
                        // What a snapshot does not show may go on far beyond the range.
                        self.done = !inside(next, &other.bound, other.direction);
                    }
                    end.bound = bound.map(<[u8]>::to_vec);
                    end.next = None;
                }
                None => self.done = true,
            }
            return Ok(None);
        }
        let (key, _) = end.get(position);
        if !inside(key, &other.bound, other.direction) {
            self.done = true;
            return Ok(None);
        }
        Ok(Some(position))
    }
}

/// Makes `bound` start after `key`, and reuses its memory.
fn exclude(bound: &mut Bound<Vec<u8>>, key: &[u8]) {
    let mut text = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(text) | Bound::Excluded(text) => text,
        Bound::Unbounded => Vec::new(),
    };
    text.clear();
    text.extend_from_slice(key);
    *bound = Bound::Excluded(text);
}

/// True if `key` is on the inner side of `bound`, which is the start of a range for `Forward` and
/// the end of a range for `Backward`.
fn inside(key: &[u8], bound: &Bound<Vec<u8>>, direction: Direction) -> bool {
    match (direction, bound) {
        (_, Bound::Unbounded) => true,
        (Direction::Backward, Bound::Included(end)) => key <= &end[..],
        (Direction::Backward, Bound::Excluded(end)) => key < &end[..],
        (Direction::Forward, Bound::Included(start)) => key >= &start[..],
        (Direction::Forward, Bound::Excluded(start)) => key > &start[..],
    }
}

/// True if a range that continues at `next` contains no key that is outside `bound`.
fn is_behind(next: Bound<&[u8]>, bound: &Bound<Vec<u8>>, direction: Direction) -> bool {
    match next {
        Bound::Unbounded => matches!(bound, Bound::Unbounded),
        Bound::Included(next) => {
            inside(next, bound, direction) || matches!(bound, Bound::Excluded(at) if at == next)
        }
        Bound::Excluded(next) => match bound {
            Bound::Excluded(at) | Bound::Included(at) if at == next => true,
            _ => inside(next, bound, direction),
        },
    }
}

/// Returns the tree that `table` has, or had for `snapshot`.
fn tree_of(table: &Table, snapshot: Option<&Snapshot>) -> Step<Tree> {
    let tree = match snapshot {
        Some(snapshot) => {
            let tables = &table.db.engine().store.tables;
            let tree = tables.tree_at(&table.state, snapshot.lsn());
            unless_ended(snapshot.registration(), Ok(tree))?
        }
        None => table.state.tree(),
    };
    tree.ok_or_else(|| no_such_table(&table.state))
}

/// Loads into `end` the leaf where its range continues; `until` is the bound of the other end.
fn load(
    table: &Table,
    snapshot: Option<&Snapshot>,
    end: &mut RangeEnd,
    until: &Bound<Vec<u8>>,
) -> Result<()> {
    let on_disk = || snapshot.and_then(|snapshot| Some((snapshot, snapshot.settled()?)));
    if on_disk().is_none() {
        match load_in_memory(table, snapshot, end, until) {
            // It may have been settled meanwhile.
            Err(Error::SnapshotEnded) => {}
            loaded => return loaded,
        }
    }
    let (snapshot, settled) = on_disk().ok_or(Error::SnapshotEnded)?;
    load_settled(table, (snapshot, &settled), end, until)
}

/// As [`load`], from the pages of the store and from old versions.
fn load_in_memory(
    table: &Table,
    snapshot: Option<&Snapshot>,
    end: &mut RangeEnd,
    until: &Bound<Vec<u8>>,
) -> Result<()> {
    let engine = table.db.engine();
    let RangeEnd {
        direction,
        bound,
        leaf,
        merged,
        is_merged,
        ahead,
        ..
    } = end;
    *is_merged = false;
    let position = Position {
        state: &table.state,
        from: bound,
        until,
        direction: *direction,
    };
    let mut missed = false;
    let debt = engine.block(|_| {
        let tree = tree_of(table, snapshot)?;
        let from = position.from.as_ref().map(|key| &key[..]);
        let step = tree.try_scan_leaf(&engine.store.pool, from, *direction, leaf);
        if let Err(Restart::Fault(page)) = step
            && !missed
        {
            missed = true;
            ahead.missed(engine, position, page);
        }
        let Some(snapshot) = snapshot else {
            on_tree(&table.state, tree, step)?;
            return engine.check_marks(leaf.marks(), None);
        };
        unless_ended(snapshot.registration(), step)?;
        let lsn = snapshot.lsn();
        if leaf.lsn_max() > lsn {
            let versions = &engine.old_versions.versions;
            let merged = merged.get_or_insert_default();
            let step = merged.merge(versions, (tree.id, lsn), (from, *direction), leaf);
            unless_ended(snapshot.registration(), step)?;
            *is_merged = true;
        }
        Ok(engine.debt_until(lsn, engine.debt(leaf.lsn_max(), None)))
    })?;
    engine.pay(debt)?;
    ahead.loaded(engine, position);
    if snapshot.is_none()
        && end.leaf.is_empty()
        && let (Bound::Included(key) | Bound::Excluded(key), Some(tree)) =
            (&end.bound, table.state.tree())
    {
        // The leaf may have become empty before a crash, and nobody could remove it then.
        if engine.underfull_leaves.push(tree, key, LeafFill::Empty) {
            engine.store.space.growth.notify_all();
        }
    }
    engine
        .store
        .statistics
        .tick(pando_stats::Ticker::ScanLeaves, 1);
    end.next = Some(0);
    Ok(())
}

/// As [`load`], for a settled snapshot.
fn load_settled(
    table: &Table,
    (snapshot, settled): (&Snapshot, &Settled),
    end: &mut RangeEnd,
    until: &Bound<Vec<u8>>,
) -> Result<()> {
    let RangeEnd {
        direction,
        bound,
        leaf,
        merged,
        is_merged,
        next,
        kept_ahead,
        ..
    } = end;
    let (engine, tree) = (table.db.engine(), snapshot.tree_of(table)?);
    let from = bound.as_ref().map(|key| &key[..]);
    let position = KeptPosition {
        from,
        until: until.as_ref().map(|key| &key[..]),
        direction: *direction,
    };
    let copies = (leaf, merged);
    *is_merged = engine.scan_settled(settled, tree, position, copies, kept_ahead)?;
    *next = Some(0);
    Ok(())
}

fn copied(key: &[u8], value: &[u8]) -> Entry {
    (key.to_vec(), value.to_vec())
}

impl Iterator for Iter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.next_with(copied)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.next_back_with(copied)
    }
}

impl Table {
    /// Returns the entries with keys in `range`, ascending; `rev()` makes it descending. Each entry
    /// is committed, as of some moment between the call and its return. Entries that are put or
    /// deleted during the iteration may or may not be seen; all others are seen exactly once.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Iter<'_> {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Iter::new(
            Cow::Borrowed(self),
            own(range.start_bound()),
            own(range.end_bound()),
        )
    }

    /// Returns all entries, as [`Table::range`].
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(Cow::Borrowed(self), Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the entries whose keys begin with `prefix`, as [`Table::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Iter<'_> {
        let mut end = prefix.to_vec();
        // The least key after all keys with this prefix: drop trailing 0xff bytes, then add one to
        // the last byte.
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Iter::new(Cow::Borrowed(self), Bound::Included(prefix.to_vec()), end)
    }
}

impl Snapshot {
    /// Returns the entries of `table` with keys in `range` at this moment, ascending; `rev()` makes
    /// it descending.
    pub fn range<'s, 'k>(
        &'s self,
        table: &'s Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Iter<'s> {
        table.range(range).at(Cow::Borrowed(self))
    }

    /// Returns all entries of `table` at this moment, as [`Snapshot::range`].
    pub fn iter<'s>(&'s self, table: &'s Table) -> Iter<'s> {
        table.iter().at(Cow::Borrowed(self))
    }

    /// Returns the entries of `table` whose keys begin with `prefix` at this moment, as
    /// [`Snapshot::range`].
    pub fn prefix<'s>(&'s self, table: &'s Table, prefix: &[u8]) -> Iter<'s> {
        table.prefix(prefix).at(Cow::Borrowed(self))
    }
}

impl<'t> IntoIterator for &'t Table {
    type Item = Result<Entry>;
    type IntoIter = Iter<'t>;

    fn into_iter(self) -> Iter<'t> {
        self.iter()
    }
}
