//! How far the garbage table was looked at: rows that wait for readers of chunks are not looked at
//! again before these have gone.
//!
//! A row that comes later has an LSN that was not applied before: what lies below all that was
//! applied when a look began, and was seen by it, is settled. Rows that wait for somebody who
//! merely looks are settled only when they were looked at again.

use std::collections::VecDeque;
use std::ops::Bound;

use pando_format::Lsn;
use pando_format::catalogue::garbage_lsn;

/// Owned by the maintenance thread.
#[derive(Debug, Default)]
pub(crate) struct KeptRows {
    /// Key of the last row that is settled.
    settled: Option<Vec<u8>>,
    /// Key of the last row that this look has left.
    last: Option<Vec<u8>>,
    /// Everything up to here was applied when this look began.
    applied: Lsn,
    /// Rows that this look has left since somebody looks.
    looked: u64,
    /// Keys of rows whose readers have gone.
    pub(crate) released: VecDeque<Box<[u8]>>,
}

impl KeptRows {
    /// A look begins; everything up to `applied` is applied.
    pub(crate) fn begin(&mut self, applied: Lsn) {
        assert!(applied >= self.applied, "what was settled is not applied");
        self.last.clone_from(&self.settled);
        self.applied = applied;
        self.looked = 0;
    }

    /// Where the look goes on.
    pub(crate) fn position(&self) -> Bound<Vec<u8>> {
        self.last.clone().map_or(Bound::Unbounded, Bound::Excluded)
    }

    /// The row at `key` is left: its readers say when they have gone, or it is not looked for here.
    pub(crate) fn leave(&mut self, key: &[u8]) {
        self.pass(key);
        if self.looked == 0 && garbage_lsn(key).is_some_and(|lsn| lsn < self.applied) {
            self.settled.clone_from(&self.last);
        }
    }

    /// The row at `key` is left until nobody looks any more who began before it.
    pub(crate) fn leave_looked(&mut self, key: &[u8]) {
        self.pass(key);
        self.looked += 1;
    }

    fn pass(&mut self, key: &[u8]) {
        let is_behind = self.last.as_deref().is_none_or(|last| last < key);
        assert!(is_behind, "rows between are not looked at");
        self.last = Some(key.to_vec());
    }

    /// A row that was settled waits for somebody who looks.
    pub(crate) fn unsettle(&mut self) {
        self.settled = None;
        self.looked += 1;
    }

    /// How many rows wait for somebody who looks.
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

    #[test]
    fn a_look_begins_behind_what_was_applied_and_left() {
        let mut kept = KeptRows::default();
        kept.begin(Lsn(20));
        assert_eq!(kept.position(), Bound::Unbounded);
        for lsn in [8, 16, 20, 24] {
            kept.leave(&key(lsn));
            assert_eq!(kept.position(), Bound::Excluded(key(lsn)));
        }
        // Another row of 20 may come.
        kept.begin(Lsn(30));
        assert_eq!(kept.position(), Bound::Excluded(key(16)));
        kept.leave(&key(20));
        kept.leave(&key(24));
        kept.begin(Lsn(30));
        assert_eq!(kept.position(), Bound::Excluded(key(24)));
    }

    #[test]
    fn what_waits_for_a_look_is_looked_at_again_with_all_behind_it() {
        let mut kept = KeptRows::default();
        kept.begin(Lsn(100));
        kept.leave(&key(8));
        kept.leave_looked(&key(16));
        kept.leave(&key(24));
        assert_eq!(kept.looked(), 1);
        assert_eq!(kept.position(), Bound::Excluded(key(24)));
        kept.begin(Lsn(100));
        assert_eq!(kept.looked(), 0);
        assert_eq!(kept.position(), Bound::Excluded(key(8)));
        kept.unsettle();
        kept.leave(&key(16));
        kept.begin(Lsn(100));
        assert_eq!(kept.position(), Bound::Unbounded);
    }
}
