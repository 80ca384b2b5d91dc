//! The snapshots that one batch has to save versions for.

use pando_format::Lsn;

/// Number of LSNs that are kept one by one; more are kept as the range that has all of them.
const EXACT_MAX: usize = 16;

/// The LSNs below that of a batch at which somebody reads. What it says is never too little; it is
/// too much for snapshots that are just beginning, and for very many of them.
#[derive(Debug, Clone)]
pub struct Readers {
    /// LSN of the batch: who reads there or later sees what the batch has written.
    limit: u64,
    exact: [u64; EXACT_MAX],
    count: usize,
    /// Least LSN of the others; the greatest number if there are none.
    low: u64,
    /// Greatest LSN of the others.
    high: u64,
}

impl Readers {
    /// Returns no readers, for a batch at `lsn`.
    pub(crate) fn below(lsn: Lsn) -> Self {
        Self {
            limit: lsn.0,
            exact: [0; EXACT_MAX],
            count: 0,
            low: u64::MAX,
            high: 0,
        }
    }

    /// Adds a snapshot that reads at some LSN from `low` to `high`.
    pub(crate) fn add(&mut self, low: u64, high: u64) {
        if low >= self.limit {
            return;
        }
        if low == high && self.count < EXACT_MAX {
            self.exact[self.count] = low;
            self.count += 1;
            return;
        }
        self.low = self.low.min(low);
        self.high = self.high.max(high.min(self.limit - 1));
    }

    /// Returns whether nobody reads below the batch.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.low == u64::MAX
    }

    /// Returns whether somebody may read at `from` or later, and before the batch.
    pub fn any_from(&self, from: Lsn) -> bool {
        let exact = &self.exact[..self.count];
        exact.iter().any(|lsn| *lsn >= from.0) || (self.low != u64::MAX && self.high >= from.0)
    }

    /// Returns the greatest LSN below that of the batch at which somebody may read.
    pub fn newest(&self) -> Option<Lsn> {
        let others = (self.low != u64::MAX).then_some(self.high);
        let exact = self.exact[..self.count].iter().copied();
        exact.chain(others).max().map(Lsn)
    }

    /// Returns the LSN of the batch.
    pub fn limit(&self) -> Lsn {
        Lsn(self.limit)
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn only_those_between_the_version_and_the_batch_need_it() {
        let mut readers = Readers::below(Lsn(100));
        assert!(readers.is_empty() && !readers.any_from(Lsn(0)));
        readers.add(100, 100);
        readers.add(108, u64::MAX);
        assert!(readers.is_empty(), "they see what the batch has written");
        readers.add(40, 40);
        assert!(!readers.is_empty());
        assert!(readers.any_from(Lsn(0)) && readers.any_from(Lsn(40)));
        assert!(!readers.any_from(Lsn(48)));
        // One that is beginning may read at any LSN from its bound on.
        readers.add(64, u64::MAX);
        assert!(readers.any_from(Lsn(96)) && !readers.any_from(Lsn(104)));
    }

    #[test]
    fn more_than_are_kept_become_a_range() {
        let mut readers = Readers::below(Lsn(8000));
        for number in 1..200 {
            readers.add(8 * number, 8 * number);
        }
        for lsn in [0, 8, 16, 1000, 1592] {
            assert!(readers.any_from(Lsn(lsn)), "{lsn}");
        }
        assert!(!readers.any_from(Lsn(1600)));
    }
}
