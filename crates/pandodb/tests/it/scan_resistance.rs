//! The cost of a full scan for the hits of a hot set.
//!
//! The first use of a new page does not count, and the clock evicts pages that were not used twice.
//! So pages that a scan reads are evicted before pages that are used again and again. The number of
//! reads shows that no page is read for a scan that has already passed it.

use pandodb::statistics::Ticker;
use pandodb::{Db, Table};

use crate::fixture::{fill, padded_key};

const FRAMES: u32 = 1024;
/// Number of keys whose records fill a leaf.
const LEAF_KEYS: u32 = 3;
/// Eight times the number of leaves that fit in memory.
const LEAVES: u32 = 8 * FRAMES;
/// An eighth of the number of leaves that fit in memory.
const HOT_LEAVES: u32 = FRAMES / 8;

fn filled() -> (Db, Table) {
    let options = Db::builder().max_memory(64 << 20).frames(FRAMES as usize);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let pair = |number| (padded_key(number), [number as u8; 1000]);
    fill(&table, 0..LEAVES * LEAF_KEYS, pair);
    db.checkpoint().unwrap();
    (db, table)
}

/// Reads one key of the next hot leaf. The hot leaves begin at leaf `first`.
fn get_hot(table: &Table, first: u32, turn: u32) {
    let number = (first + turn % HOT_LEAVES) * LEAF_KEYS;
    assert!(
        table
            .get_with(&padded_key(number), |_| ())
            .unwrap()
            .is_some()
    );
}

/// Returns the share of its hits that the hot set loses during one full scan. Each of its leaves is
/// used `uses` times while the scan reads as many leaves as there are frames.
fn lost(db: &Db, table: &Table, first: u32, uses: u32, backward: bool) -> f64 {
    // This scan of the far half evicts the leaves that the measured scan reads first. If two scans
    // used them, they would count as warm.
    let middle = padded_key(LEAVES / 2 * LEAF_KEYS);
    let far = match backward {
        false => table.range(&middle[..]..),
        true => table.range(..&middle[..]),
    };
    far.for_each(|entry| drop(entry.unwrap()));
    for turn in 0..4 * HOT_LEAVES {
        get_hot(table, first, turn);
    }
    let before = db.statistics();
    let mut entries = table.iter();
    let mut scanned = 0;
    let entries = std::iter::from_fn(|| match backward {
        false => entries.next(),
        true => entries.next_back(),
    });
    for entry in entries {
        entry.unwrap();
        // There is one use for this many entries of the scan.
        let between = LEAF_KEYS * FRAMES / (HOT_LEAVES * uses);
        if scanned % between == 0 {
            get_hot(table, first, scanned / between);
        }
        scanned += 1;
    }
    assert_eq!(scanned, LEAVES * LEAF_KEYS);
    let counted = db.statistics().since(&before);
    let (gets, missed) = (counted.get(Ticker::Gets), counted.get(Ticker::GetsMissed));
    assert!(gets >= u64::from(uses * HOT_LEAVES * (LEAVES / FRAMES)));
    let read = counted.get(Ticker::PageReads);
    let expected = u64::from(LEAVES - FRAMES)..u64::from(LEAVES + FRAMES / 2);
    assert!(expected.contains(&read), "{read} pages were read");
    missed as f64 / gets as f64
}

#[test]
fn a_full_scan_costs_a_hot_set_at_most_a_twentieth_of_its_hits() {
    let (db, table) = filled();
    // The hot set is in the middle, so that the frames are full of the scan's own pages when the
    // scan reaches it.
    let first = LEAVES / 2;
    for backward in [false, true] {
        for uses in [2, 4, 8] {
            let lost = lost(&db, &table, first, uses, backward);
            assert!(lost <= 0.05, "backward: {backward}, {uses} uses: {lost}");
        }
    }
}
