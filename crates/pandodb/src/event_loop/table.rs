//! Reads of event loops.

use std::ops::Bound;

use pando_format::Lsn;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_sync::Arc;
use pando_tree::{Direction, LeafCopy, ScanBound, ScanValue};

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::error::Result;
use crate::event_loop::aside::ScannedLeaf;
use crate::event_loop::foreseen::Foreseen;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::transaction::Transaction;
use crate::read::at::unless_ended;
use crate::read::buffers::with_reader;
use crate::read::merged_leaf::MergedLeaf;
use crate::read::point::{no_such_table, on_tree};
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::read_log::WHOLE;
use crate::writes::stripes::Stamp;

/// The reads of a table for event loops: each returns at once, with a result or with a reason to
/// wait.
#[derive(Debug, Clone, Copy)]
pub struct Reads<'t> {
    pub(crate) table: &'t Table,
}

impl<'t> Reads<'t> {
    /// The reads of `table`.
    #[inline]
    pub fn of(table: &'t Table) -> Self {
        Self { table }
    }

    /// Reads `key` into `out`; true if it exists. Linearizable; keeps no state between tries.
    /// Raises `shown_from` to the LSN that must be durable before the result may be shown, if the
    /// store is opened with [`crate::Builder::durable_reads`]: ask [`crate::Db::when_durable`].
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get(
        self,
        key: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<bool>> {
        let Table { db, state } = self.table;
        match db.engine().read_cached(state, key, out) {
            Ok(found) => Ok(Polled::Ready(found)),
            Err(Some(fault @ Restart::Fault(_))) => polled(Err(fault.into()), &mut Vec::new()),
            Err(_) => {
                let found = self.try_get_any((key, WHOLE), out, shown_from)?;
                Ok(found.map(|len| len.is_some()))
            }
        }
    }

    /// As [`Reads::get_head`], for a key of `foreseen`. Returns None, and has read nothing, if it
    /// is none of them, if somebody has changed its leaf since it was looked for, if its value is
    /// in chunks, or if a page is not in memory: then it is read as others are.
    #[inline]
    pub fn get_foreseen(
        self,
        foreseen: &mut Foreseen,
        (key, bytes_max): (&[u8], usize),
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Option<Option<usize>> {
        let Table { db, state } = self.table;
        let place = foreseen.take((state, state.tree()?), key)?;
        let (what, reader) = ((key, bytes_max, &place), &mut foreseen.reader);
        let read = db.engine().get_at(state, what, reader, out);
        let (found, debt) = read.ok().flatten()?;
        *shown_from = (*shown_from).max(debt.lsn());
        Some(found)
    }

    /// As [`Reads::get_head`], for a value that is long or not durable yet, or if a writer
    /// interfered.
    #[cold]
    fn try_get_any(
        self,
        (key, bytes_max): (&[u8], usize),
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<Option<usize>>> {
        with_reader(|reader| {
            let engine = self.table.db.engine();
            let step = engine.try_get_head(&self.table.state, (key, bytes_max), reader, out);
            let step = step.map(|(found, debt, _)| {
                *shown_from = (*shown_from).max(debt.lsn());
                found
            });
            polled(step, &mut reader.wanted)
        })
    }

    /// As [`Reads::get`], but if the value does not lie in its leaf, no more than its first
    /// `bytes_max` bytes are read. Returns the length of the whole value, if the key exists.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_head(
        self,
        key: &[u8],
        bytes_max: usize,
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<Option<usize>>> {
        let Table { db, state } = self.table;
        match db.engine().read_cached(state, key, out) {
            Ok(found) => Ok(Polled::Ready(found.then_some(out.len()))),
            Err(Some(fault @ Restart::Fault(_))) => polled(Err(fault.into()), &mut Vec::new()),
            Err(_) => self.try_get_any((key, bytes_max), out, shown_from),
        }
    }

    /// Returns an LSN that is not below that of the last commit that has written `key` since the
    /// store was opened; None while a commit writes it, and if the table was dropped. Writes of
    /// other keys may raise it.
    pub fn last_write(self, key: &[u8]) -> Option<Lsn> {
        let tree = self.table.state.tree()?;
        let stripes = &self.table.db.engine().stripes;
        stripes.stamp(stripes.of(tree.id, key)).map(Stamp::lsn)
    }

    /// As [`Reads::get_head`], to find out which page is missing: it does not count as a get.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn prefetch(self, key: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<Polled<()>> {
        with_reader(|reader| {
            let engine = self.table.db.engine();
            let step = engine.look_up_head(&self.table.state, (key, bytes_max), reader, out);
            let step = match step {
                // The blob reference was found; chunks are read when they are asked for.
                Err(Unfinished::Wait(WaitReason::Chunks)) => Ok(()),
                other => other.map(drop),
            };
            polled(step, &mut reader.wanted)
        })
    }

    /// Copies the entries of one leaf, from `from` on, into `page`.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn scan(self, from: Bound<&[u8]>, page: &mut ScanPage) -> Result<Polled<()>> {
        self.scan_in(Direction::Forward, from, page)
    }

    /// As [`Reads::scan`], of a leaf from `from` backwards, in descending order.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn scan_back(self, from: Bound<&[u8]>, page: &mut ScanPage) -> Result<Polled<()>> {
        self.scan_in(Direction::Backward, from, page)
    }

    fn scan_in(
        self,
        direction: Direction,
        from: Bound<&[u8]>,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let step = page.scan(self.table, None, (from, direction));
        let done = polled(step, &mut Vec::new())?;
        page.find_next(direction);
        Ok(done)
    }
}

impl Transaction {
    /// As [`Reads::scan`], as the transaction sees the table. What lies between `from` and
    /// [`ScanPage::next`] counts as read.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn scan(
        &mut self,
        table: &Table,
        from: Bound<&[u8]>,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let range = (from, Bound::Unbounded);
        let step = self.try_scan(table, (range, Direction::Forward), page);
        polled(step, &mut Vec::new())
    }

    /// As [`Transaction::scan`], of a leaf from `from` backwards, in descending order.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub fn scan_back(
        &mut self,
        table: &Table,
        from: Bound<&[u8]>,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let range = (from, Bound::Unbounded);
        let step = self.try_scan(table, (range, Direction::Backward), page);
        polled(step, &mut Vec::new())
    }

    /// Scans a leaf from the first bound on. What lies behind the second one does not count as
    /// read.
    pub(super) fn try_scan(
        &mut self,
        table: &Table,
        ((from, until), direction): ((ScanBound<'_>, ScanBound<'_>), Direction),
        page: &mut ScanPage,
    ) -> Step<()> {
        let at = (from, direction);
        let _own = self.own_reads();
        let inner = &mut self.inner;
        inner.check_store(table)?;
        inner.check_usable()?;
        inner.try_take_snapshot()?;
        let scanned = page.scan(table, inner.snapshot.as_ref(), at);
        let scanned = scanned.map_err(|stopped| inner.why_not_read(table, stopped));
        if matches!(scanned, Err(Unfinished::Wait(WaitReason::Settled))) {
            let on_disk = self.on_disk(table)?;
            let scanned = self.aside.scan(table.db.engine(), on_disk, at);
            let scanned = scanned.map_err(|stopped| self.inner.why_not_read(table, stopped))?;
            page.take(scanned);
        } else {
            scanned?;
        }
        let inner = &mut self.inner;
        page.find_next(direction);
        let end = nearer_end(page.next.as_deref(), until, direction).map(<[u8]>::to_vec);
        let from = from.map(<[u8]>::to_vec);
        let bounds = match direction {
            Direction::Forward => (from, end),
            Direction::Backward => (end, from),
        };
        let mut own = inner.own_writes(table, &bounds);
        if direction == Direction::Backward {
            own.make_contiguous().reverse();
        }
        page.lay_over(inner.own_at(&own), direction, usize::MAX);
        inner.note_range(table, bounds)?;
        Ok(())
    }
}

/// Returns the end of what a scan has read: where it goes on, unless `until` comes first.
fn nearer_end<'k>(
    next: Option<&'k [u8]>,
    until: ScanBound<'k>,
    direction: Direction,
) -> ScanBound<'k> {
    let Some(next) = next else {
        return until;
    };
    let (Bound::Included(end) | Bound::Excluded(end)) = until else {
        return match direction {
            Direction::Forward => Bound::Excluded(next),
            Direction::Backward => Bound::Included(next),
        };
    };
    match direction {
        Direction::Forward if end < next => until,
        Direction::Forward => Bound::Excluded(next),
        Direction::Backward if end > next => until,
        Direction::Backward => Bound::Included(next),
    }
}

/// Entries of one leaf, copied.
#[derive(Debug, Default)]
pub struct ScanPage {
    leaf: LeafCopy,
    /// The entries that count instead of those of `leaf`, if `is_merged`.
    merged: MergedLeaf,
    is_merged: bool,
    /// Becomes `merged` when something is laid over that.
    spare: MergedLeaf,
    /// The leaf of a settled snapshot, which counts instead of `leaf` and `merged`.
    kept: Option<Arc<ScannedLeaf>>,
    /// Where the scan continues: from this key on, or, backwards, before it. None at the end.
    pub next: Option<Vec<u8>>,
    /// The LSN that must be durable before the entries may be shown: see [`Reads::get`].
    pub shown_from: Option<Lsn>,
}

impl ScanPage {
    /// Returns key and value of entry `index`, in the order of the scan; None for a value that is
    /// too long for the leaf.
    ///
    /// # Panics
    /// When `index` is not below [`ScanPage::len`].
    pub fn entry(&mut self, index: usize) -> (&[u8], Option<&[u8]>) {
        let (key, value) = match (&self.kept, self.is_merged) {
            (Some(kept), _) => kept.records.get(index),
            (None, true) => self.merged.get(index),
            (None, false) => self.leaf.entry(index),
        };
        match value {
            ScanValue::Inline(value) => (key, Some(value)),
            ScanValue::Long => (key, None),
        }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        match (&self.kept, self.is_merged) {
            (Some(kept), _) => kept.records.len(),
            (None, true) => self.merged.len(),
            (None, false) => self.leaf.len(),
        }
    }

    /// Returns true if the leaf had no entries from there on; the next leaf may have some.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Finds out where the scan continues.
    pub(super) fn find_next(&mut self, direction: Direction) {
        self.next = match &self.kept {
            Some(kept) => kept.next.clone(),
            None => self.leaf.next_key().map(<[u8]>::to_vec),
        };
        debug_assert!(
            self.goes_on(direction),
            "a scan goes on behind what it has shown"
        );
    }

    /// Returns whether no entry lies where the scan continues.
    fn goes_on(&mut self, direction: Direction) -> bool {
        let Some(next) = self.next.clone() else {
            return true;
        };
        (0..self.len()).all(|index| {
            let (key, _) = self.entry(index);
            match direction {
                Direction::Forward => *key < next[..],
                Direction::Backward => *key >= next[..],
            }
        })
    }

    /// Replaces its entries by those of a leaf of a settled snapshot.
    fn take(&mut self, scanned: Arc<ScannedLeaf>) {
        self.kept = Some(scanned);
        self.shown_from = None;
    }

    /// Copies the entries of one leaf from `from` on, as they are, or as `snapshot` sees them.
    pub(super) fn scan(
        &mut self,
        table: &Table,
        snapshot: Option<&Snapshot>,
        (from, direction): (ScanBound<'_>, Direction),
    ) -> Step<()> {
        let engine = table.db.engine();
        let leaf = &mut self.leaf;
        self.is_merged = false;
        self.kept = None;
        let Some(snapshot) = snapshot else {
            let Some(tree) = table.state.tree() else {
                return Err(no_such_table(&table.state));
            };
            let step = tree.try_scan_leaf(&engine.store.pool, from, direction, leaf);
            on_tree(&table.state, tree, step)?;
            self.shown_from = engine.check_marks(leaf.marks(), None)?.lsn();
            engine.note_passed(&table.state, || Some(tree), (from, leaf));
            engine.store.statistics.tick(Ticker::ScanLeaves, 1);
            return Ok(());
        };
        let (lsn, registration) = (snapshot.lsn(), snapshot.registration());
        let tree = snapshot.tree_of(table)?;
        let step = tree.try_scan_leaf(&engine.store.pool, from, direction, leaf);
        unless_ended(registration, step)?;
        if leaf.lsn_max() > lsn {
            let versions = &engine.old_versions.versions;
            let step = self
                .merged
                .merge(versions, (tree.id, lsn), (from, direction), leaf);
            unless_ended(registration, step)?;
            self.is_merged = true;
        }
        engine.note_passed(&table.state, || Some(tree), (from, leaf));
        let debt = engine.debt_until(lsn, engine.debt(leaf.lsn_max(), None));
        self.shown_from = debt.lsn();
        engine.store.statistics.tick(Ticker::ScanLeaves, 1);
        Ok(())
    }

    /// Replaces what `above` has by its values; None for a key that is not there. If that has any,
    /// no more than `most` entries stay, and the scan continues behind them.
    pub(super) fn lay_over<'r>(
        &mut self,
        above: impl Iterator<Item = (&'r [u8], Option<ScanValue<'r>>)>,
        direction: Direction,
        most: usize,
    ) {
        let mut above = above.peekable();
        if above.peek().is_none() {
            return;
        }
        let laid = &mut self.spare;
        let is_whole = match (&self.kept, self.is_merged) {
            (Some(kept), _) => laid.fill(&mut &*kept.records, above, (direction, most)),
            (None, true) => laid.fill(&mut &self.merged, above, (direction, most)),
            (None, false) => laid.fill(&mut self.leaf, above, (direction, most)),
        };
        if !is_whole {
            let (last, _) = laid.get(laid.len() - 1);
            let mut next = last.to_vec();
            if direction == Direction::Forward {
                // The first key behind it.
                next.push(0);
            }
            self.next = Some(next);
        }
        std::mem::swap(&mut self.merged, &mut self.spare);
        self.is_merged = true;
        self.kept = None;
    }
}
