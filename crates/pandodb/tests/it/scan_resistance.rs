//! What a full scan beside a hot set costs the hot set.
//!
//! Pages come in new, their first use does not count, and the clock empties what was not used
//! twice: so what a scan reads leaves before what is used again and again. The number of reads says
//! that nothing is read for a scan that it has passed already.

use pandodb::statistics::Ticker;
use pandodb::{Db, Table};

use crate::fixture::{fill, padded_key};

const FRAMES: u32 = 1024;
/// Keys whose records fill a leaf.
const LEAF_KEYS: u32 = 3;
/// Eight times what fits.
const LEAVES: u32 = 8 * FRAMES;
/// An eighth of what fits.
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

/// Reads one key of the next of the hot leaves, which lie behind `first`.
fn get_hot(table: &Table, first: u32, turn: u32) {
    let number = (first + turn % HOT_LEAVES) * LEAF_KEYS;
    assert!(
        table
            .get_with(&padded_key(number), |_| ())
            .unwrap()
            .is_some()
    );
}

/// Share of its hits that the hot set loses while everything is scanned once, each of its leaves
/// being used `uses` times while the scan reads as many leaves as there are frames.
fn lost(db: &Db, table: &Table, first: u32, uses: u32, backward: bool) -> f64 {
    // What the scan comes to first is not in memory: used twice by two scans it would be warm.
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
        // A turn for each so many entries.
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
    // In the middle, so that the scan comes to it with frames full of its own pages.
    let first = LEAVES / 2;
    for backward in [false, true] {
        for uses in [2, 4, 8] {
            let lost = lost(&db, &table, first, uses, backward);
            assert!(lost <= 0.05, "backward: {backward}, {uses} uses: {lost}");
        }
    }
}
