//! Interprets the input as operations on a table of some kind, in memory and on a tiny pool, and
//! compares it with a `BTreeMap`: entries, and what counted and weighted tables count.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use pandodb::{Db, Durability, Table, TableOptions};

/// Most bytes of a value, and of a key, that surely lie in one leaf.
const SHORT_BYTES: usize = 800;
/// Least bytes of a value that lies in no leaf.
const LONG_BYTES: usize = 1952;

/// Returns what an entry counts for, if its length alone tells.
fn weight(table: &Table, value: &[u8]) -> Option<u64> {
    match value.first() {
        Some(first @ 128..) if table.is_weighted() && value.len() < LONG_BYTES => {
            (value.len() <= SHORT_BYTES).then(|| u64::from(first - 128))
        }
        _ => Some(1),
    }
}

/// Compares each rank with the sum of weights before it, and each first and last unit.
fn check_counts(table: &Table, twin: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut below = 0;
    let mut entries = twin.iter().peekable();
    while let Some((key, value)) = entries.next() {
        assert_eq!(table.rank(key).expect("a read succeeds"), below);
        let next = match entries.peek() {
            Some((next, _)) => table.rank(next),
            None => table.count(..),
        };
        let counted = next.expect("a read succeeds") - below;
        match weight(table, value) {
            Some(weight) => assert_eq!(counted, weight),
            None => assert!(counted == 1 || counted == u64::from(value[0] - 128)),
        }
        for unit in [0, counted.saturating_sub(1)] {
            if counted > 0 {
                let found = table.unit_at(below + unit).expect("a read succeeds");
                assert_eq!(found, Some((key.clone(), unit)));
            }
        }
        below += counted;
    }
    assert_eq!(table.unit_at(below).expect("a read succeeds"), None);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else {
        return;
    };
    let db = Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .durability(Durability::None)
        .open_in_memory()
        .expect("a store in memory opens");
    let options = match kind % 4 {
        0 => TableOptions::new(),
        1 => TableOptions::new().counted(true),
        _ => TableOptions::new().weighted(true),
    };
    let table = db.table_with("t", options).expect("a table can be made");
    let mut twin = BTreeMap::new();
    for chunk in bytes.chunks(6) {
        let [operation, key, repeat, value, length, scale] = *chunk else { break };
        let key = vec![key; usize::from(repeat) * 4];
        match operation % 5 {
            0 | 1 => {
                let value = vec![value; usize::from(length) << (scale % 6)];
                table.put(&key, &value).expect("the entry fits");
                twin.insert(key, value);
            }
            2 => {
                let existed = table.delete(&key).expect("the entry can be deleted");
                assert_eq!(existed, twin.remove(&key).is_some());
            }
            3 => {
                let bytes = [value; 8];
                let at = usize::from(length) % 16;
                table.put_range(&key, at as u64, &bytes).expect("the entry fits");
                let entry = twin.entry(key).or_default();
                entry.resize(entry.len().max(at + 8), 0);
                entry[at..at + 8].copy_from_slice(&bytes);
            }
            _ => assert_eq!(table.get(&key).expect("a read succeeds").as_ref(), twin.get(&key)),
        }
    }
    if table.is_counted() {
        check_counts(&table, &twin);
    }
    assert_eq!(table.len(), twin.len() as u64);
    let entries = table.iter().map(|entry| entry.expect("a read succeeds"));
    assert!(entries.eq(twin));
});
