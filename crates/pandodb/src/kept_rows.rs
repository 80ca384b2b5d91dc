//! Rows at the front of the garbage table that wait for the oldest reader of chunks, so that each
//! look at the table begins behind them.
//!
//! A row waits while a reader is registered at an LSN before its own. As long as the oldest one is
//! the one that all of them were seen to wait for, they still do. A row of chunks that comes to lie
//! before the last of them is of a batch that was applied since that reader registered, so it waits
//! too. The batch of a dropped tree runs alone: its LSN is not below those of the rows there are.
//! Should its row come to lie before one of the same LSN, it is freed when that reader has gone.

use std::ops::Bound;

use pando_format::Lsn;

/// Owned by the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    /// The oldest reader when they were looked at: all of them wait for it.
    oldest: Option<Lsn>,
    /// Key of the last one.
    last: Vec<u8>,
    count: u64,
}

impl KeptRows {
    /// Where a look begins, when `oldest` is the oldest reader.
    pub(crate) fn begin(&mut self, oldest: Option<Lsn>) -> Bound<Vec<u8>> {
        if oldest.is_none() || self.oldest != oldest {
            self.oldest = oldest;
            self.count = 0;
        }
        match self.count {
            0 => Bound::Unbounded,
            _ => Bound::Excluded(self.last.clone()),
        }
    }

    /// The row behind them, with `key`, waits for `reader`: maybe not the one that was the oldest
    /// when the look began.
    pub(crate) fn keep(&mut self, key: &[u8], reader: Lsn) {
        let oldest = self.oldest.map_or(reader, |oldest| oldest.min(reader));
        self.oldest = Some(oldest);
        self.count += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
    }

    /// How many they are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_begins_behind_what_waits_for_the_same_reader() {
        let mut kept = KeptRows::default();
        assert_eq!(kept.begin(Some(Lsn(7))), Bound::Unbounded);
        kept.keep(b"a", Lsn(7));
        kept.keep(b"b", Lsn(7));
        assert_eq!(kept.begin(Some(Lsn(7))), Bound::Excluded(b"b".to_vec()));
        kept.keep(b"c", Lsn(7));
        assert_eq!(kept.begin(Some(Lsn(7))), Bound::Excluded(b"c".to_vec()));
        assert_eq!(kept.count(), 3);
        // The reader is gone, another one is the oldest.
        assert_eq!(kept.begin(Some(Lsn(8))), Bound::Unbounded);
        assert_eq!(kept.count(), 0);
        kept.keep(b"b", Lsn(8));
        assert_eq!(kept.begin(None), Bound::Unbounded);
        assert_eq!(kept.count(), 0);
    }

    /// Who registers takes the newest LSN first, and may be overtaken in between.
    #[test]
    fn a_row_that_waits_for_another_reader_is_looked_at_when_that_one_is_gone() {
        let mut kept = KeptRows::default();
        assert_eq!(kept.begin(Some(Lsn(8))), Bound::Unbounded);
        // An older reader has registered since; it goes.
        kept.keep(b"a", Lsn(7));
        assert_eq!(kept.begin(Some(Lsn(8))), Bound::Unbounded);
        // It stays.
        kept.keep(b"a", Lsn(7));
        assert_eq!(kept.begin(Some(Lsn(7))), Bound::Excluded(b"a".to_vec()));
        // The oldest one has gone since, and what comes first may be free.
        kept.keep(b"b", Lsn(9));
        assert_eq!(kept.begin(Some(Lsn(9))), Bound::Unbounded);
        // The first one of all.
        assert_eq!(kept.begin(None), Bound::Unbounded);
        kept.keep(b"a", Lsn(9));
        assert_eq!(kept.begin(Some(Lsn(9))), Bound::Excluded(b"a".to_vec()));
    }
}
