//! Where rows of elements are read: through the transaction of the command, or without one.

use std::ops::Bound;

use pandodb::nonblocking::{Polled, Reads, ScanPage, ValidatedBatch};
use pandodb::{Lsn, Result, Table};

/// The reads of a command. Without a transaction there are no own writes.
pub(super) struct Source<'s> {
    batch: Option<&'s mut ValidatedBatch>,
    /// What was read without a transaction may be shown once this LSN is durable.
    pub(super) shown_from: Option<Lsn>,
}

/// Bounds of a scan: where it begins, and behind what nothing is wanted.
pub(super) type Bounds<'b> = (Bound<&'b [u8]>, Bound<&'b [u8]>);

impl<'s> Source<'s> {
    pub(super) fn new(batch: Option<&'s mut ValidatedBatch>) -> Self {
        Self {
            batch,
            shown_from: None,
        }
    }

    /// As [`ValidatedBatch::get`].
    pub(super) fn get(
        &mut self,
        table: &Table,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Polled<bool>> {
        match &mut self.batch {
            Some(batch) => batch.get(table, key, out),
            None => {
                out.clear();
                Reads::of(table).get(key, out, &mut self.shown_from)
            }
        }
    }

    /// Returns the length of a value. The rest of it may be in memory, or be read, or not.
    pub(super) fn length(
        &mut self,
        table: &Table,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Polled<Option<usize>>> {
        match &mut self.batch {
            Some(batch) => batch.get_head(table, key, 0, out),
            None => {
                out.clear();
                Reads::of(table).get_head(key, 0, out, &mut self.shown_from)
            }
        }
    }

    /// As [`ValidatedBatch::scan`], or, if `is_backwards`, [`ValidatedBatch::scan_back`].
    pub(super) fn scan(
        &mut self,
        table: &Table,
        (bounds, is_backwards): (Bounds<'_>, bool),
        most: usize,
        page: &mut ScanPage,
    ) -> Result<Polled<()>> {
        let polled = match (&mut self.batch, is_backwards) {
            (Some(batch), false) => batch.scan(table, bounds, most, page),
            (Some(batch), true) => batch.scan_back(table, bounds, most, page),
            (None, false) => Reads::of(table).scan(bounds.0, page),
            (None, true) => Reads::of(table).scan_back(bounds.0, page),
        };
        if matches!(polled, Ok(Polled::Ready(()))) {
            self.shown_from = self.shown_from.max(page.shown_from);
        }
        polled
    }

    /// As [`ValidatedBatch::count`].
    pub(super) fn count(&mut self, table: &Table, (from, to): Bounds<'_>) -> Result<Polled<u64>> {
        match &mut self.batch {
            Some(batch) => batch.count(table, from, to),
            None => Reads::of(table).count(from, to),
        }
    }

    /// As [`ValidatedBatch::key_from`].
    pub(super) fn key_from(
        &mut self,
        table: &Table,
        (from, number): (&[u8], usize),
        key: &mut Vec<u8>,
    ) -> Result<Polled<Option<u64>>> {
        match &mut self.batch {
            Some(batch) => batch.key_from(table, from, number as u64, key),
            None => Reads::of(table).key_from(from, number as u64, key),
        }
    }
}
