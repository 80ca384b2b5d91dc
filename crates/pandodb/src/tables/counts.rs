//! Entry counters, one per table and core. On each core, counters of several tables share a cache
//! line, which only that core writes: a table takes eight bytes per core, not a line
//! (decision 063).

use pando_sync::atomic::{AtomicI64, Ordering};
use pando_sync::{Arc, CoreLocal, Mutex};

/// Counters on one cache line.
const LINE: usize = 16;
/// No table has more entries: as many bytes as 2^32 pages of 64 KiB have. The sum of a number from
/// disk and of all that is added later fits into an i64.
const ENTRIES_MAX: i64 = 1 << 48;

/// Returns a number of entries from disk, None if no table can have as many.
pub(crate) fn entries_of(number: u64) -> Option<i64> {
    let entries = i64::try_from(number).ok();
    entries.filter(|entries| *entries <= ENTRIES_MAX)
}

/// Counters of [`LINE`] tables, per core.
type Lines = CoreLocal<[AtomicI64; LINE]>;

/// Counters that no table uses; all of them are 0.
#[derive(Debug, Default)]
pub(crate) struct FreeCounts(Mutex<Vec<(Arc<Lines>, usize)>>);

impl FreeCounts {
    /// Returns a counter that is 0.
    pub(crate) fn take(home: &Arc<Self>) -> TableCount {
        let mut free = home.0.lock();
        if free.is_empty() {
            let lines = CoreLocal::new("table counts", |_| Default::default());
            let lines = Arc::new(lines);
            free.extend((0..LINE).map(|at| (lines.clone(), at)));
        }
        let (lines, at) = free.pop().expect("there were some, or some were made");
        let count = TableCount {
            lines,
            at,
            home: home.clone(),
        };
        debug_assert_eq!(count.sum(), 0, "nobody adds to a counter that is free");
        count
    }
}

/// Number of entries of a table: the sum of what each core has added.
#[derive(Debug)]
pub(crate) struct TableCount {
    /// Shared with other tables.
    lines: Arc<Lines>,
    /// Index of this counter in each line.
    at: usize,
    /// Where the counter goes on drop.
    home: Arc<FreeCounts>,
}

impl TableCount {
    /// Bytes of memory of one counter.
    pub(crate) fn bytes() -> u64 {
        (pando_sync::core_count() * size_of::<i64>() + size_of::<(Arc<Lines>, usize)>()) as u64
    }

    /// Returns whether it was taken from `home`.
    pub(crate) fn is_of(&self, home: &Arc<FreeCounts>) -> bool {
        Arc::ptr_eq(&self.home, home)
    }

    /// Adds `entries` on this core. Relaxed: a sum is exact only while nobody adds, which its
    /// callers ensure.
    pub(crate) fn add(&self, entries: i64) {
        self.lines.here()[self.at].fetch_add(entries, Ordering::Relaxed);
    }

    /// Returns the sum; exact while nobody adds.
    pub(crate) fn sum(&self) -> i64 {
        let of_core = |line: &[AtomicI64; LINE]| line[self.at].load(Ordering::Relaxed);
        self.lines.iter().map(of_core).sum()
    }

    /// Sets the counter to 0; nobody may add meanwhile.
    pub(crate) fn clear(&self) {
        for line in self.lines.iter() {
            line[self.at].store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for TableCount {
    fn drop(&mut self) {
        self.clear();
        self.home.0.lock().push((self.lines.clone(), self.at));
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    /// Counts of different tables do not affect each other, and a freed count is zero when it is
    /// taken again.
    #[test]
    fn counts_are_apart_and_come_back_as_zero() {
        let home = Arc::new(FreeCounts::default());
        let counts: Vec<_> = (0..40).map(|_| FreeCounts::take(&home)).collect();
        for (number, count) in counts.iter().enumerate() {
            count.add(number as i64);
        }
        for (number, count) in counts.iter().enumerate() {
            assert_eq!(count.sum(), number as i64);
        }
        drop(counts);
        assert_eq!(home.0.lock().len(), 3 * LINE);
        let counts: Vec<_> = (0..48).map(|_| FreeCounts::take(&home)).collect();
        assert!(counts.iter().all(|count| count.sum() == 0));
        assert!(home.0.lock().is_empty());
    }
}
