//! Counters of entries, one for each table and core. Many tables share a line of each core, which
//! that core alone writes. A table takes eight bytes a core, not a line (decision 063).

use pando_sync::atomic::{AtomicI64, Ordering};
use pando_sync::{Arc, CoreLocal, Mutex};

/// Counters on one line.
const LINE: usize = 16;

/// Counters of [`LINE`] tables.
type Lines = CoreLocal<[AtomicI64; LINE]>;

/// Counters that nobody has; all of them are zero.
#[derive(Debug, Default)]
pub(crate) struct FreeCounts(Mutex<Vec<(Arc<Lines>, usize)>>);

impl FreeCounts {
    /// A count of zero.
    pub(crate) fn take(home: &Arc<Self>) -> TableCount {
        let mut free = home.0.lock();
        if free.is_empty() {
            let lines = CoreLocal::new("table counts", |_| Default::default());
            let lines = Arc::new(lines);
            free.extend((0..LINE).map(|at| (lines.clone(), at)));
        }
        let (lines, at) = free.pop().expect("there were some, or some were made");
        TableCount {
            lines,
            at,
            home: home.clone(),
        }
    }
}

/// How many entries a table has: what each core has added.
#[derive(Debug)]
pub(crate) struct TableCount {
    lines: Arc<Lines>,
    at: usize,
    home: Arc<FreeCounts>,
}

impl TableCount {
    /// Memory that one takes.
    pub(crate) fn bytes() -> u64 {
        (pando_sync::core_count() * size_of::<i64>() + size_of::<(Arc<Lines>, usize)>()) as u64
    }

    /// Relaxed: a sum is exact only while nobody adds, which others make sure of.
    pub(crate) fn add(&self, entries: i64) {
        self.lines.here()[self.at].fetch_add(entries, Ordering::Relaxed);
    }

    /// Exact while nobody adds.
    pub(crate) fn sum(&self) -> i64 {
        let of_core = |line: &[AtomicI64; LINE]| line[self.at].load(Ordering::Relaxed);
        self.lines.iter().map(of_core).sum()
    }

    /// Starts over; nobody adds.
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
