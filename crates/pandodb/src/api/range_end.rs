//! One end of the range of an iterator: a copy of one leaf, and how far it was shown.

use std::ops::Bound;

use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Direction, LeafCopy, ScanValue, Tree};
use pando_versions::Registration;

use crate::engine::Engine;
use crate::error::Result;
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::Settled;
use crate::read::ahead::{Position, ReadAhead};
use crate::read::at::unless_ended;
use crate::read::merged_leaf::MergedLeaf;
use crate::read::point::{no_such_table, on_tree};
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// The entries that an iterator is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) table: &'a TableState,
    /// The moment that is shown; None: each leaf as it is when it is copied.
    pub(crate) then: Option<&'a Registration>,
}

impl Source<'_> {
    /// Returns the tree that the table has, or had then.
    fn tree(&self) -> Step<Tree> {
        let tree = match self.then {
            Some(then) => {
                let tables = &self.engine.store.tables;
                unless_ended(then, Ok(tables.tree_at(self.table, then.lsn())))?
            }
            None => self.table.tree(),
        };
        tree.ok_or_else(|| no_such_table(self.table))
    }
}

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

    /// Returns an end without a leaf that continues where this one does.
    pub(crate) fn anew(&self) -> Self {
        Self {
            kept_ahead: self.kept_ahead,
            ..Self::new(self.direction, self.bound.clone())
        }
    }

    /// Goes on as `loaded` does, which came from [`RangeEnd::anew`].
    pub(crate) fn take(&mut self, engine: &Engine, loaded: Self) {
        debug_assert_eq!(self.bound, loaded.bound, "a leaf of another place");
        self.end(engine);
        *self = loaded;
    }

    /// Copies the leaf where the range continues; `until` is the bound of the other end. Blocks.
    ///
    /// # Errors
    /// [`crate::Error::SnapshotEnded`], also for a snapshot that goes on on disk.
    pub(crate) fn load(&mut self, from: Source<'_>, until: Bound<&[u8]>) -> Result<()> {
        let mut missed = false;
        let debt = from.engine.block(|_| {
            let step = self.try_load(from, until, &mut true);
            if let Err(Unfinished::Wait(WaitReason::Restart(Restart::Fault(page)))) = &step
                && !std::mem::replace(&mut missed, true)
            {
                let position = Position {
                    state: from.table,
                    from: self.bound.as_ref().map(|key| &key[..]),
                    until,
                    direction: self.direction,
                };
                self.ahead.read_on(from.engine, position, *page);
            }
            step
        })?;
        from.engine.pay(debt)?;
        self.loaded(from, until);
        Ok(())
    }

    /// Makes one attempt to copy the leaf; `missed` is false at the first one. Once what it owes is
    /// paid, [`RangeEnd::loaded`] lets it be shown.
    pub(crate) fn try_load(
        &mut self,
        from: Source<'_>,
        until: Bound<&[u8]>,
        missed: &mut bool,
    ) -> Step<Debt> {
        let Self {
            direction,
            bound,
            leaf,
            merged,
            is_merged,
            ahead,
            ..
        } = self;
        let Source {
            engine,
            table,
            then,
        } = from;
        *is_merged = false;
        let bound = bound.as_ref().map(|key| &key[..]);
        let tree = from.tree()?;
        let step = tree.try_scan_leaf(&engine.store.pool, bound, *direction, leaf);
        if let Err(Restart::Fault(page)) = step
            && !std::mem::replace(missed, true)
        {
            let position = Position {
                state: table,
                from: bound,
                until,
                direction: *direction,
            };
            ahead.missed(engine, position, page);
        }
        let Some(then) = then else {
            on_tree(table, tree, step)?;
            return engine.check_marks(leaf.marks(), None);
        };
        unless_ended(then, step)?;
        let lsn = then.lsn();
        if leaf.lsn_max() > lsn {
            let versions = &engine.old_versions.versions;
            let merged = merged.get_or_insert_default();
            let step = merged.merge(versions, (tree.id, lsn), (bound, *direction), leaf);
            unless_ended(then, step)?;
            *is_merged = true;
        }
        Ok(engine.debt_until(lsn, engine.debt(leaf.lsn_max(), None)))
    }

    /// The leaf was copied, and may be shown.
    pub(crate) fn loaded(&mut self, from: Source<'_>, until: Bound<&[u8]>) {
        let engine = from.engine;
        let position = Position {
            state: from.table,
            from: self.bound.as_ref().map(|key| &key[..]),
            until,
            direction: self.direction,
        };
        self.ahead.loaded(engine, position);
        let bound = self.bound.as_ref().map(|key| &key[..]);
        engine.note_passed(from.table, || from.tree().ok(), (bound, &self.leaf));
        engine.store.statistics.tick(Ticker::ScanLeaves, 1);
        self.is_loaded = true;
    }

    /// As [`RangeEnd::load`], of `tree` at a settled snapshot.
    pub(crate) fn load_settled(
        &mut self,
        engine: &Engine,
        (settled, tree): (&Settled, Tree),
        until: Bound<&[u8]>,
    ) -> Result<()> {
        let position = KeptPosition {
            from: self.bound.as_ref().map(|key| &key[..]),
            until,
            direction: self.direction,
        };
        let copies = (&mut self.leaf, &mut self.merged);
        let ahead = &mut self.kept_ahead;
        self.is_merged = engine.scan_settled(settled, tree, position, copies, ahead)?;
        self.is_loaded = true;
        Ok(())
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
