//! Ranks of counted tables for event loops.

use std::ops::Bound;

use pando_format::Lsn;
use pando_tree::Ranked;

use crate::api::counted::ends;
use crate::error::Result;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::table::Reads;
use crate::read::counted::FoundEntry;

impl Reads<'_> {
    /// As [`crate::Table::rank`].
    ///
    /// # Errors
    /// As [`crate::Table::rank`].
    pub fn rank(self, key: &[u8]) -> Result<Polled<u64>> {
        let engine = self.table.db.engine();
        let step = engine.try_rank(&self.table.state, Ranked::Below(key));
        polled(step, &mut Vec::new())
    }

    /// As [`crate::Table::count`].
    ///
    /// # Errors
    /// As [`crate::Table::rank`].
    pub fn count(self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Polled<u64>> {
        let engine = self.table.db.engine();
        let (from, to) = ends(start, end).unwrap_or((None, Ranked::Below(&[])));
        let step = engine.try_count(&self.table.state, from, to);
        polled(step, &mut Vec::new())
    }

    /// As [`crate::Table::unit_at`], with the key into `key`: returns the number of units of it
    /// that lie before, 0 in tables without weights. None if there is no such key.
    ///
    /// # Errors
    /// As [`crate::Table::rank`].
    pub fn key_at(self, rank: u64, key: &mut Vec<u8>) -> Result<Polled<Option<u64>>> {
        let engine = self.table.db.engine();
        let step = engine.try_key_at(&self.table.state, rank, key);
        polled(step, &mut Vec::new())
    }

    /// As [`crate::Table::unit_from`], with the key into `key`: returns the number of units of it
    /// that lie before, 0 in tables without weights. None if there is no such key.
    ///
    /// # Errors
    /// As [`crate::Table::rank`].
    pub fn key_from(
        self,
        from: &[u8],
        number: u64,
        key: &mut Vec<u8>,
    ) -> Result<Polled<Option<u64>>> {
        let engine = self.table.db.engine();
        let step = engine.try_key_from(&self.table.state, (from, number), key);
        polled(step, &mut Vec::new())
    }

    /// As [`Reads::key_from`], and copies the value to `value`, if it lies with the key. What was
    /// copied may be shown once the LSN in `shown_from` is durable.
    ///
    /// # Errors
    /// As [`crate::Table::rank`].
    pub fn entry_from(
        self,
        (from, number): (&[u8], u64),
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<EntryFrom>> {
        let engine = self.table.db.engine();
        let step = engine.try_entry_from(&self.table.state, (from, number), (key, value));
        let entry = step.map(|entry| match entry {
            FoundEntry::None => EntryFrom::None,
            FoundEntry::Key(offset) => EntryFrom::Key(offset),
            FoundEntry::Whole(debt, _, offset) => {
                *shown_from = (*shown_from).max(debt.lsn());
                EntryFrom::Whole(offset)
            }
        });
        polled(entry, &mut Vec::new())
    }
}

/// What was found of an entry by its number. In a weighted table that is the number of a unit; each
/// tells how many units of the entry lie before that one, as it is in the table: 0 in others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryFrom {
    /// There are not that many.
    None,
    /// The batch has removed it. Its key was copied.
    Removed(u64),
    /// Its key was copied. The value lies elsewhere, or the batch has written it.
    Key(u64),
    /// Key and value were copied.
    Whole(u64),
}
