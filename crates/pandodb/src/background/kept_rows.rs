//! How far the garbage table has been searched: rows that wait for readers of chunks are not
//! searched again before those readers have gone (decision 028).
//!
//! A new row has an LSN that was not applied when a search began. So rows below everything that was
//! applied when a search began, and seen by that search, are settled. Rows that wait for a reader
//! that is still looking for a blob reference are settled only after they have been checked again.

use std::collections::VecDeque;
use std::ops::Bound;

use pando_format::Lsn;
use pando_format::catalogue::garbage_lsn;

/// Position of the search for garbage. Owned by the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    /// Key of the last settled row.
    settled: Option<Vec<u8>>,
    /// Key of the last row that this search has passed over.
    last: Option<Vec<u8>>,
    /// Everything up to this LSN was applied when this search began.
    applied: Lsn,
    /// No snapshot reads below this LSN; as of when this search began.
    horizon: Lsn,
    /// Number of rows that this search has passed over because of looking readers.
    looked: u64,
    /// Keys of rows whose readers have gone.
    pub(crate) released: VecDeque<Box<[u8]>>,
}

impl KeptRows {
    /// Begins a search; everything up to `applied` is applied, and no snapshot reads below
    /// `horizon`.
    pub(crate) fn begin(&mut self, applied: Lsn, horizon: Lsn) {
        assert!(applied >= self.applied, "what was settled is not applied");
        self.last.clone_from(&self.settled);
        self.applied = applied;
        self.horizon = horizon;
        self.looked = 0;
    }

    /// No snapshot reads below this LSN.
    pub(crate) fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Returns where the search continues.
    pub(crate) fn position(&self) -> Bound<Vec<u8>> {
        self.last.clone().map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// Passes over the row at `key`: its readers report when they have gone, or the row is not
    /// found by this search.
    pub(crate) fn leave(&mut self, key: &[u8]) {
        self.pass(key);
        if self.looked == 0 && garbage_lsn(key).is_some_and(|lsn| lsn < self.applied) {
            self.settled.clone_from(&self.last);
        }
    }

    /// Passes over the row at `key` until no reader is looking that began before it.
    pub(crate) fn leave_looked(&mut self, key: &[u8]) {
        self.pass(key);
        self.looked += 1;
    }

    fn pass(&mut self, key: &[u8]) {
        let is_behind = self.last.as_deref().is_none_or(|last| last < key);
        assert!(is_behind, "rows are passed in order");
        self.last = Some(key.to_vec());
    }

    /// Notes that a settled row waits for a looking reader.
    pub(crate) fn unsettle(&mut self) {
        self.settled = None;
        self.looked += 1;
    }

    /// Number of rows that wait for looking readers.
    pub(crate) fn looked(&self) -> u64 {
        self.looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::PageId;
    use pando_format::catalogue::chunk_garbage_key;

    fn key(lsn: u64) -> Vec<u8> {
        chunk_garbage_key(Lsn(lsn), PageId(1)).to_vec()
    }

    /// A search begins after the last settled row. A row whose LSN a new row may have is not
    /// settled.
    #[test]
    fn a_look_begins_behind_what_was_applied_and_left() {
        let mut kept = KeptRows::default();
        kept.begin(Lsn(20), Lsn(20));
        assert_eq!(kept.position(), Bound::Unbounded);
        for lsn in [8, 16, 20, 24] {
            kept.leave(&key(lsn));
            assert_eq!(kept.position(), Bound::Excluded(key(lsn)));
        }
        // There may be another row with LSN 20.
        kept.begin(Lsn(30), Lsn(30));
        assert_eq!(kept.position(), Bound::Excluded(key(16)));
        kept.leave(&key(20));
        kept.leave(&key(24));
        kept.begin(Lsn(30), Lsn(30));
        assert_eq!(kept.position(), Bound::Excluded(key(24)));
    }

    /// A row that waits for a looking reader is not settled, and neither are the rows after it.
    #[test]
    fn what_waits_for_a_look_is_looked_at_again_with_all_behind_it() {
        let mut kept = KeptRows::default();
        kept.begin(Lsn(100), Lsn(100));
        kept.leave(&key(8));
        kept.leave_looked(&key(16));
        kept.leave(&key(24));
        assert_eq!(kept.looked(), 1);
        assert_eq!(kept.position(), Bound::Excluded(key(24)));
        kept.begin(Lsn(100), Lsn(100));
        assert_eq!(kept.looked(), 0);
        assert_eq!(kept.position(), Bound::Excluded(key(8)));
        kept.unsettle();
        kept.leave(&key(16));
        kept.begin(Lsn(100), Lsn(100));
        assert_eq!(kept.position(), Bound::Unbounded);
    }
}
