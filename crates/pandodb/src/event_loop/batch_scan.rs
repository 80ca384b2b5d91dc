//! What a validated batch reads beside what it validates: scans, with its own writes, and ranks.

use std::ops::{Bound, RangeBounds as _};

use pando_sync::Arc;
use pando_tree::{Direction, ScanBound};

use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::event_loop::counted::EntryFrom;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::table::{Reads, ScanPage};
use crate::event_loop::validated_batch::ValidatedBatch;
use crate::read::counted::FoundEntry;
use crate::writes::keys::Told;
use crate::writes::set::{Own, Value};

/// Number of writes up to which all are looked at for those of a range.
const LOOKED_AT_MAX: usize = 64;

impl ValidatedBatch {
    /// Copies the entries of one leaf of `table`, from the first bound of `range` on, into `page`,
    /// with its own writes; there may be some behind the second bound, without those. If it has
    /// own writes there, it copies no more than `most` entries, at least one. Unlike what
    /// [`ValidatedBatch::get`] reads, the entries are **not validated** by its commit: the caller
    /// reads a key that whoever changes the range writes, too. Inside a transaction they are those
    /// that the transaction sees, and count as read, up to the second bound.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn scan(
        &mut self,
        table: &Table,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        most: usize,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        self.scan_in(table, (range, Direction::Forward), most, page)
    }

    /// As [`ValidatedBatch::scan`], of a leaf from the first bound backwards, in descending order.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn scan_back(
        &mut self,
        table: &Table,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        most: usize,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        self.scan_in(table, (range, Direction::Backward), most, page)
    }

    fn scan_in(
        &mut self,
        table: &Table,
        ((from, until), direction): ((ScanBound<'_>, ScanBound<'_>), Direction),
        most: usize,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let scanned = match &mut self.within {
            Some(transaction) => {
                let step = transaction.try_scan(table, ((from, until), direction), page);
                polled(step, &mut Vec::new())?
            }
            None => {
                self.reads_beside = true;
                let step = page.scan(table, None, (from, direction));
                let scanned = polled(step, &mut Vec::new())?;
                page.find_next(direction);
                scanned
            }
        };
        if let Polled::Pending(pending) = scanned {
            return Ok(Polled::Pending(pending));
        }
        let Some(index) = self.set.index_of(&table.state) else {
            return Ok(Polled::Ready(()));
        };
        let next = page.next.take();
        let end = match (direction, &next) {
            (_, None) => Bound::Unbounded,
            (Direction::Forward, Some(next)) => Bound::Excluded(&next[..]),
            (Direction::Backward, Some(next)) => Bound::Included(&next[..]),
        };
        let bounds = match direction {
            Direction::Forward => (from, end),
            Direction::Backward => (end, from),
        };
        let own = self.set.writes_between(index, bounds);
        let own = own.map(|(key, value)| (key, value.map(Value::scanned)));
        match direction {
            Direction::Forward => page.lay_over(own, direction, most),
            Direction::Backward => page.lay_over(own.rev(), direction, most),
        }
        // Unless it ends before.
        page.next = page.next.take().or(next);
        Ok(Polled::Ready(()))
    }

    /// As [`Reads::count`]: entries that `table` has, without its own writes, and **not
    /// validated**, as those of [`ValidatedBatch::scan`].
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn count(
        &mut self,
        table: &Table,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<Polled<u64>> {
        self.reads_beside = true;
        Reads::of(table).count(start, end)
    }

    /// As [`Reads::key_from`], for entries as [`ValidatedBatch::count`] counts them.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn key_from(
        &mut self,
        table: &Table,
        from: &[u8],
        number: u64,
        key: &mut Vec<u8>,
    ) -> Result<Polled<Option<u64>>> {
        self.reads_beside = true;
        Reads::of(table).key_from(from, number, key)
    }

    /// As [`Reads::entry_from`], for entries as [`ValidatedBatch::count`] counts them: what it has
    /// written of that with this number is told, and no other one takes its place, whatever its
    /// weight is then. If the whole entry was copied, a change of it that follows need not look for
    /// it.
    ///
    /// # Errors
    /// As [`Table::rank`]; [`Error::OtherStore`].
    ///
    /// # Panics
    /// If it is a step of a transaction, which sees another moment.
    pub fn entry_from(
        &mut self,
        table: &Table,
        from: (&[u8], u64),
        (key, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<Polled<EntryFrom>> {
        assert!(self.within.is_none(), "a transaction sees another moment");
        if !Arc::ptr_eq(table.db.engine(), &self.engine) {
            return Err(Error::OtherStore);
        }
        self.reads_beside = true;
        let step = self
            .engine
            .try_entry_from(&table.state, from, (&mut *key, value));
        let entry = step.map(|entry| match entry {
            FoundEntry::None => EntryFrom::None,
            FoundEntry::Key(offset) => {
                let own = self.own_entry(table, key, offset);
                own.unwrap_or(EntryFrom::Key(offset))
            }
            FoundEntry::Whole(debt, place, offset) => match self.own_entry(table, key, offset) {
                Some(own) => own,
                None => {
                    let index = self.set.table(&table.state);
                    let (_, unwritten) = self.set.own_noted(index, key);
                    let told = Told {
                        place,
                        stripe: None,
                    };
                    self.set.note_read(index, key, (told, unwritten));
                    self.set.debt.add(debt);
                    EntryFrom::Whole(offset)
                }
            },
        });
        polled(entry, &mut Vec::new())
    }

    /// Returns what is to be told of an entry that it has written itself, of whose units `offset`
    /// lie before the one that was looked for.
    fn own_entry(&self, table: &Table, key: &[u8], offset: u64) -> Option<EntryFrom> {
        let index = self.set.index_of(&table.state)?;
        match self.set.own(index, key) {
            Own::Unknown => None,
            Own::Gone => Some(EntryFrom::Removed(offset)),
            Own::Value(_) | Own::Large(_) => Some(EntryFrom::Key(offset)),
        }
    }

    /// Returns true if it writes a key of `table` between these bounds.
    pub fn writes_between(&mut self, table: &Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
        let Some(index) = self.set.index_of(&table.state) else {
            return false;
        };
        self.set.writes_between(index, (from, to)).len() > 0
    }

    /// Returns how many keys of `table` between these bounds it removes, whether they exist or not;
    /// `None` if it puts one there.
    pub fn removals_between(
        &mut self,
        table: &Table,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Option<usize> {
        let Some(index) = self.set.index_of(&table.state) else {
            return Some(0);
        };
        if self.set.len() > LOOKED_AT_MAX {
            let mut own = self.set.writes_between(index, (from, to));
            let count = own.len();
            return own.all(|(_, value)| value.is_none()).then_some(count);
        }
        // To put few in order takes longer than to look at all of them.
        let mut count = 0;
        for (of, key, value) in self.set.writes() {
            if of == index && (from, to).contains(key) {
                if value.is_some() {
                    return None;
                }
                count += 1;
            }
        }
        Some(count)
    }
}
