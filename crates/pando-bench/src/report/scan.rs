//! Passes over all entries, and what they must find.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{self, Duration, Instant};
use pandodb::{Iter, Snapshot, Table};

use crate::error::{Error, Result};
use crate::random::mix;

/// Entries between two looks at the clock and at the end of the turn.
const LOOK: u64 = 1024;

/// What a pass has found: as many entries, with these keys and values in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Found {
    pub(super) entries: u64,
    checksum: u64,
}

impl Found {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.checksum = mix(self.checksum ^ digest(key).rotate_left(1) ^ digest(value));
    }
}

/// Returns a number in which every byte counts, in little time.
fn digest(bytes: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks();
    let add = |all: u64, word: u64| (all ^ word).wrapping_mul(FACTOR).rotate_left(29);
    let all = words.iter().fold(bytes.len() as u64, |all, word| {
        add(all, u64::from_le_bytes(*word))
    });
    rest.iter()
        .fold(all, |all, byte| add(all, u64::from(*byte)))
}

/// Reads all entries of `iter`; calls `look` now and then with their number.
fn pass(mut iter: Iter<'_>, mut look: impl FnMut(u64)) -> Result<Found> {
    let mut found = Found::default();
    while let Some(entry) = iter.next_with(|key, value| found.add(key, value)) {
        entry?;
        if found.entries.is_multiple_of(LOOK) {
            look(found.entries);
        }
    }
    Ok(found)
}

/// Reads all entries of `table`, which nobody writes meanwhile.
pub(super) fn all_of(table: &Table, look: impl FnMut(u64)) -> Result<Found> {
    pass(table.iter(), look)
}

/// A scan beside writers.
pub(super) struct Scan<'a> {
    pub(super) table: &'a Table,
    pub(super) snapshot: &'a Snapshot,
    /// What each pass must find.
    pub(super) expected: Found,
    /// The writers have ended.
    pub(super) is_over: &'a AtomicBool,
    /// A pass has failed.
    pub(super) has_failed: &'a AtomicBool,
}

/// What a scan did while there were writers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Scanned {
    /// Number of passes that ended by then.
    pub(super) passes: u64,
    /// Number of entries of all passes, ended or not.
    pub(super) entries: u64,
    /// How long that took.
    pub(super) elapsed: Duration,
    /// When the snapshot was seen to go on on disk, after the beginning of the scan.
    pub(super) settled_after: Option<Duration>,
    /// Number of passes that were checked, the one with it that ended without writers.
    pub(super) checked: u64,
}

impl Scan<'_> {
    /// Makes passes until the writers have ended. The last pass is ended, and checked, without
    /// them.
    ///
    /// # Errors
    /// Those of reads; [`Error::Wrong`] for a pass that has found something else.
    pub(super) fn run(&self) -> Result<Scanned> {
        let mut failing = Failing(Some(self.has_failed));
        let start: Instant = time::now();
        let mut scanned = Scanned::default();
        let mut is_over = false;
        while !is_over {
            let before = scanned;
            let mut look = |entries: u64| {
                if scanned.settled_after.is_none() && self.snapshot.is_settled() {
                    scanned.settled_after = Some(start.elapsed());
                }
                if is_over {
                    return;
                }
                is_over = self.is_over.load(Ordering::Relaxed);
                scanned.entries = before.entries + entries;
                scanned.elapsed = start.elapsed();
            };
            let found = pass(self.snapshot.iter(self.table), &mut look)?;
            if !is_over {
                scanned.entries = before.entries + found.entries;
                scanned.elapsed = start.elapsed();
                scanned.passes += 1;
                is_over = self.is_over.load(Ordering::Relaxed);
            }
            scanned.checked += 1;
            self.check(found, scanned.checked)?;
        }
        failing.0 = None;
        Ok(scanned)
    }

    fn check(&self, found: Found, pass: u64) -> Result<()> {
        if found == self.expected {
            return Ok(());
        }
        let (entries, expected) = (found.entries, self.expected.entries);
        let what = match entries == expected {
            false => format!("pass {pass} has found {entries} entries, not {expected}"),
            true => format!("pass {pass} has found keys or values of another moment"),
        };
        Err(Error::Wrong {
            workload: "report",
            what,
        })
    }
}

/// Tells the writers on drop: an error or a panic ends the run at once.
struct Failing<'a>(Option<&'a AtomicBool>);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if let Some(has_failed) = self.0 {
            has_failed.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use pandodb::{Db, Table};

    use super::{AtomicBool, Error, Ordering, Scan, Scanned, all_of};

    fn table() -> (Db, Table) {
        let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        for number in 0..3000_u32 {
            table.put(&number.to_be_bytes(), &[7; 30]).unwrap();
        }
        (db, table)
    }

    /// Runs one pass at a snapshot, over what `change` makes of the table before and after it.
    fn pass(before: impl Fn(&Table), after: impl Fn(&Table)) -> (Result<Scanned, Error>, bool) {
        let (db, table) = table();
        let expected = all_of(&table, |_| {}).unwrap();
        before(&table);
        let snapshot = db.snapshot().unwrap();
        after(&table);
        let (is_over, has_failed) = (AtomicBool::new(true), AtomicBool::new(false));
        let scan = Scan {
            table: &table,
            snapshot: &snapshot,
            expected,
            is_over: &is_over,
            has_failed: &has_failed,
        };
        let scanned = scan.run();
        (scanned, has_failed.load(Ordering::Relaxed))
    }

    #[test]
    fn a_pass_must_find_the_entries_of_its_moment() {
        let key = 1234_u32.to_be_bytes();
        let changes: [&dyn Fn(&Table); 3] = [
            &|table| table.put(&key, &[8; 30]).unwrap(),
            &|table| table.put(b"new", &[7; 30]).unwrap(),
            &|table| {
                table.delete(&key).unwrap();
            },
        ];
        for change in changes {
            let (scanned, has_failed) = pass(|_| {}, change);
            assert_eq!(scanned.unwrap().checked, 1);
            assert!(!has_failed);
            let (scanned, has_failed) = pass(change, |_| {});
            assert!(matches!(scanned, Err(Error::Wrong { .. })), "{scanned:?}");
            assert!(has_failed);
        }
    }
}
