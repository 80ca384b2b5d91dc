//! Reads of a table that do not block.

use std::ops::Bound;

use pando_format::Lsn;
use pando_pool::Restart;
use pando_tree::{Direction, LeafCopy, ScanValue};

use crate::api::table::Table;
use crate::error::Result;
use crate::event_loop::polled::{Polled, polled};
use crate::read::buffers::with_reader;
use crate::read::point::{no_such_table, on_tree};
use crate::wait::reason::{Step, Unfinished, WaitReason};

impl Table {
    /// Reads `key` into `out`; true if it exists. Linearizable; keeps no state between tries.
    /// Raises `shown_from` to the LSN that must be durable before the result may be shown, if the
    /// store is opened with [`crate::Builder::durable_reads`]: ask [`crate::Db::when_durable`].
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn try_get(
        &self,
        key: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<bool>> {
        match self.db.engine().read_cached(&self.state, key, out) {
            Ok(found) => Ok(Polled::Ready(found)),
            Err(Some(fault @ Restart::Fault(_))) => polled(Err(fault.into()), &mut Vec::new()),
            Err(_) => self.try_get_any(key, out, shown_from),
        }
    }

    /// As [`Table::try_get`], for a value that is long or not durable yet, or if a writer
    /// interfered.
    #[cold]
    fn try_get_any(
        &self,
        key: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<bool>> {
        with_reader(|reader| {
            let step = self.db.engine().try_get(&self.state, key, reader, out);
            let step = step.map(|(found, debt)| {
                *shown_from = (*shown_from).max(debt.lsn());
                found
            });
            polled(step, &mut reader.wanted)
        })
    }

    /// As [`Table::try_get`], to find out which page is missing: it does not count as a get.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn try_prefetch(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<()>> {
        with_reader(|reader| {
            let step = self.db.engine().look_up(&self.state, key, reader, out);
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
    pub fn try_scan(&self, from: Bound<&[u8]>, page: &mut ScanPage) -> Result<Polled<()>> {
        let engine = self.db.engine();
        let mut step = || -> Step<()> {
            let Some(tree) = self.state.tree() else {
                return Err(no_such_table(&self.state));
            };
            let forward = Direction::Forward;
            let leaf = tree.try_scan_leaf(&engine.store.pool, from, forward, &mut page.leaf);
            on_tree(&self.state, tree, leaf)?;
            let debt = engine.check_marks(page.leaf.marks(), None)?;
            page.shown_from = debt.lsn();
            Ok(())
        };
        let done = polled(step(), &mut Vec::new())?;
        page.next = match page.leaf.next_bound() {
            Some(Bound::Included(key)) => Some(key.to_vec()),
            Some(Bound::Excluded(key)) => Some([key, &[0]].concat()),
            Some(Bound::Unbounded) | None => None,
        };
        Ok(done)
    }
}

/// Entries of one leaf, copied.
#[derive(Debug, Default)]
pub struct ScanPage {
    leaf: LeafCopy,
    /// Where the scan continues (inclusive); None at the end.
    pub next: Option<Vec<u8>>,
    /// The LSN that must be durable before the entries may be shown: see [`Table::try_get`].
    pub shown_from: Option<Lsn>,
}

impl ScanPage {
    /// Returns the keys with their values; None for a value that is too long for the leaf.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.leaf.iter().map(|(key, value)| match value {
            ScanValue::Inline(value) => (key, Some(value)),
            ScanValue::Long => (key, None),
        })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.leaf.len()
    }

    /// Returns true if the leaf had no entries from there on; the next leaf may have some.
    pub fn is_empty(&self) -> bool {
        self.leaf.is_empty()
    }
}
