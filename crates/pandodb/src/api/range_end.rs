//! One end of the range of an iterator: a copy of one leaf, and how far it was shown.

use std::ops::Bound;

use pando_pool::Restart;
use pando_tree::{Direction, LeafCopy, LeafFill, ScanValue, Tree};

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::Settled;
use crate::read::ahead::{Position, ReadAhead};
use crate::read::at::unless_ended;
use crate::read::merged_leaf::MergedLeaf;
use crate::read::point::{no_such_table, on_tree};
use crate::wait::reason::Step;

/// One end of the range that is left.
#[derive(Debug)]
pub(crate) struct RangeEnd {
    direction: Direction,
    /// Where `leaf` begins, or where the leaf to be loaded will.
    bound: Bound<Vec<u8>>,
    pub(crate) is_loaded: bool,
    leaf: LeafCopy,
    /// The records of `leaf` at the snapshot, if they are not those of `leaf`.
    merged: Option<Box<MergedLeaf>>,
    is_merged: bool,
    /// Number of the next record of the leaf; those before it were shown.
    pub(crate) next: usize,
    /// The records before this one are inside the bound of the other end. 0 if that is not known:
    /// the other end has moved.
    pub(crate) limit: usize,
    ahead: ReadAhead,
    /// The same for a settled snapshot.
    kept_ahead: KeptAhead,
}

impl RangeEnd {
    pub(crate) fn new(direction: Direction, bound: Bound<Vec<u8>>) -> Self {
        Self {
            direction,
            bound,
            is_loaded: false,
            leaf: LeafCopy::new(),
            merged: None,
            is_merged: false,
            next: 0,
            limit: 0,
            ahead: ReadAhead::default(),
            kept_ahead: KeptAhead::default(),
        }
    }

    /// Number of records.
    pub(crate) fn len(&self) -> usize {
        match &self.merged {
            Some(merged) if self.is_merged => merged.len(),
            _ => self.leaf.len(),
        }
    }

    /// Returns record `index` in scan order.
    #[inline]
    pub(crate) fn entry(&mut self, index: usize) -> (&[u8], ScanValue<'_>) {
        if self.is_merged
            && let Some(merged) = &self.merged
        {
            return merged.get(index);
        }
        self.leaf.entry(index)
    }

    /// Returns whether the value of record `index` is not in its leaf.
    #[inline]
    pub(crate) fn is_long(&self, index: usize) -> bool {
        if self.is_merged
            && let Some(merged) = &self.merged
        {
            return merged.get(index).1 == ScanValue::Long;
        }
        self.leaf.is_long(index)
    }

    /// Returns the bound of what is left: behind the last record that was shown.
    pub(crate) fn rest(&mut self) -> Bound<&[u8]> {
        match self.next.checked_sub(1) {
            Some(shown) => Bound::Excluded(self.entry(shown).0),
            None => self.bound.as_ref().map(|key| &key[..]),
        }
    }

    /// Returns whether record `index` is in the range that was left when its leaf was loaded.
    pub(crate) fn is_beyond_bound(&mut self, index: usize) -> bool {
        let key = self.entry(index).0.to_vec();
        let bound = self.bound.as_ref().map(|key| &key[..]);
        inside(&key, bound, self.direction)
    }

    /// Finds out which records of the leaf are before `until`, the bound of the other end.
    pub(crate) fn set_limit(&mut self, until: Bound<&[u8]>) {
        let before = |key: &[u8]| inside(key, until, self.direction.opposite());
        self.limit = match &self.merged {
            Some(merged) if self.is_merged => merged.count_while(before),
            _ => self.leaf.count_until(until),
        };
    }

    /// Leaves the leaf. Returns false if no key that is left is before `until`, the bound of the
    /// other end.
    pub(crate) fn leave(&mut self, until: Bound<&[u8]>) -> bool {
        let Some(bound) = self.leaf.next_bound() else {
            return false;
        };
        if let Bound::Included(next) | Bound::Excluded(next) = bound
            && !inside(next, until, self.direction.opposite())
        {
            // What a snapshot does not show may go on far beyond the range.
            return false;
        }
        renew(&mut self.bound, bound);
        (self.is_loaded, self.next, self.limit) = (false, 0, 0);
        true
    }

    /// The scan has ended: drops its read requests.
    pub(crate) fn end(&mut self, engine: &Engine) {
        self.ahead.end(engine);
    }
}

/// Replaces `bound`, and reuses its memory.
fn renew(bound: &mut Bound<Vec<u8>>, new: Bound<&[u8]>) {
    let mut text = match std::mem::replace(bound, Bound::Unbounded) {
        Bound::Included(text) | Bound::Excluded(text) => text,
        Bound::Unbounded => Vec::new(),
    };
    *bound = new.map(|key| {
        text.clear();
        text.extend_from_slice(key);
        text
    });
}

/// True if `key` is on the inner side of `bound`, which is the start of a range for `Forward` and
/// the end of a range for `Backward`.
fn inside(key: &[u8], bound: Bound<&[u8]>, direction: Direction) -> bool {
    match (direction, bound) {
        (_, Bound::Unbounded) => true,
        (Direction::Backward, Bound::Included(end)) => key <= end,
        (Direction::Backward, Bound::Excluded(end)) => key < end,
        (Direction::Forward, Bound::Included(start)) => key >= start,
        (Direction::Forward, Bound::Excluded(start)) => key > start,
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
pub(crate) fn load(
    table: &Table,
    snapshot: Option<&Snapshot>,
    end: &mut RangeEnd,
    until: Bound<&[u8]>,
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
    until: Bound<&[u8]>,
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
        from: bound.as_ref().map(|key| &key[..]),
        until,
        direction: *direction,
    };
    let mut missed = false;
    let debt = engine.block(|_| {
        let tree = tree_of(table, snapshot)?;
        let from = position.from;
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
    end.is_loaded = true;
    Ok(())
}

/// As [`load`], for a settled snapshot.
fn load_settled(
    table: &Table,
    (snapshot, settled): (&Snapshot, &Settled),
    end: &mut RangeEnd,
    until: Bound<&[u8]>,
) -> Result<()> {
    let RangeEnd {
        direction,
        bound,
        leaf,
        merged,
        is_merged,
        is_loaded,
        kept_ahead,
        ..
    } = end;
    let (engine, tree) = (table.db.engine(), snapshot.tree_of(table)?);
    let from = bound.as_ref().map(|key| &key[..]);
    let position = KeptPosition {
        from,
        until,
        direction: *direction,
    };
    let copies = (leaf, merged);
    *is_merged = engine.scan_settled(settled, tree, position, copies, kept_ahead)?;
    *is_loaded = true;
    Ok(())
}
