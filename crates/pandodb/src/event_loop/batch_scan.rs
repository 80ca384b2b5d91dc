//! Scans of validated batches, with their own writes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;

use pando_tree::{Direction, ScanBound, ScanValue};

use crate::api::table::Table;
use crate::error::Result;
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::table::ScanPage;
use crate::event_loop::validated_batch::ValidatedBatch;
use crate::writes::set::Value;

/// An own write of a batch: None for a key that it deletes.
type OwnWrite<'a> = (&'a [u8], Option<ScanValue<'a>>);

impl ValidatedBatch {
    /// Copies the entries of one leaf of `table`, from the first bound of `range` on, into `page`,
    /// with its own writes; there may be some behind the second bound, without those. Unlike what
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
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        self.scan_in(table, (range, Direction::Forward), page)
    }

    /// As [`ValidatedBatch::scan`], of a leaf from the first bound backwards, in descending order.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn scan_back(
        &mut self,
        table: &Table,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        self.scan_in(table, (range, Direction::Backward), page)
    }

    fn scan_in(
        &mut self,
        table: &Table,
        ((from, until), direction): ((ScanBound<'_>, ScanBound<'_>), Direction),
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let scanned = match &mut self.within {
            Some(transaction) => {
                let step = transaction.try_scan(table, ((from, until), direction), page);
                polled(step, &mut Vec::new())?
            }
            None => {
                let step = page.scan(table, None, (from, direction));
                let scanned = polled(step, &mut Vec::new())?;
                page.find_next(direction);
                scanned
            }
        };
        if let Polled::Pending(pending) = scanned {
            return Ok(Polled::Pending(pending));
        }
        let next = page.next.clone();
        let end = match (direction, &next) {
            (_, None) => Bound::Unbounded,
            (Direction::Forward, Some(next)) => Bound::Excluded(&next[..]),
            (Direction::Backward, Some(next)) => Bound::Included(&next[..]),
        };
        let own = match direction {
            Direction::Forward => self.own_between(table, (from, end)),
            Direction::Backward => {
                let mut own = self.own_between(table, (end, from));
                own.reverse();
                own
            }
        };
        page.lay_over(own.into_iter(), direction);
        Ok(Polled::Ready(()))
    }

    /// Returns true if it writes a key of `table` between these bounds.
    pub fn writes_between(&self, table: &Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
        let within = |key: &[u8]| is_behind(from, key) && is_before(to, key);
        self.own(table).any(|(key, _)| within(key))
    }

    /// Returns a hash of its writes to `table` between these bounds; 0 if there are none.
    pub fn hash_between(&self, table: &Table, from: Bound<&[u8]>, to: Bound<&[u8]>) -> u64 {
        if self.set.is_read_only() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        let mut any = false;
        for (key, value) in self.own_between(table, (from, to)) {
            any = true;
            key.hash(&mut hasher);
            match value {
                None => hasher.write_u8(0),
                Some(ScanValue::Inline(bytes)) => bytes.hash(&mut hasher),
                Some(ScanValue::Long) => hasher.write_u8(1),
            }
        }
        if any { hasher.finish() } else { 0 }
    }

    /// Returns its writes to `table`, in any order.
    fn own(&self, table: &Table) -> impl Iterator<Item = OwnWrite<'_>> {
        let mut tables = self.set.tables.iter();
        let index = tables.position(|known| std::ptr::eq(&*known.state, &*table.state));
        let writes = index.map(|index| self.set.writes().filter(move |(of, ..)| *of == index));
        writes.into_iter().flatten().map(|(_, key, value)| {
            let value = value.map(|value| match value {
                Value::Bytes(bytes) => ScanValue::Inline(bytes),
                Value::Chunks(_) => ScanValue::Long,
            });
            (key, value)
        })
    }

    /// Returns its writes to `table` between these bounds, in order.
    fn own_between(
        &self,
        table: &Table,
        (from, to): (ScanBound<'_>, ScanBound<'_>),
    ) -> Vec<OwnWrite<'_>> {
        if self.set.is_read_only() {
            return Vec::new();
        }
        let within = |(key, _): &OwnWrite<'_>| is_behind(from, key) && is_before(to, key);
        let mut own: Vec<_> = self.own(table).filter(within).collect();
        own.sort_unstable_by_key(|(key, _)| *key);
        own
    }
}

fn is_behind(from: ScanBound<'_>, key: &[u8]) -> bool {
    match from {
        Bound::Included(from) => key >= from,
        Bound::Excluded(from) => key > from,
        Bound::Unbounded => true,
    }
}

fn is_before(to: ScanBound<'_>, key: &[u8]) -> bool {
    match to {
        Bound::Included(to) => key <= to,
        Bound::Excluded(to) => key < to,
        Bound::Unbounded => true,
    }
}
