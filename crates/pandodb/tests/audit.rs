//! The coherence audit. Build with `--cfg pando_audit`; `cargo xtask audit --cores N` runs it.
//!
//! Simulated cores take turns, one operation each, over a tree of three levels. The audit counts
//! the transfers of cache lines between cores for each operation, by the structure that owns the
//! line, and prints a table. At steady state cached point reads, gathered reads and scans cause
//! none: what they write (a ticker) lies on lines of their own core. They also cause none while
//! another core writes to other leaves: what they read shares no line with what commits count.

#![cfg(pando_audit)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::{BTreeMap, BTreeSet};

use pando_sync::audit;
use pandodb::{Db, Durability, Table, WriteOptions};

const KEYS: u32 = 30_000;
const RANGE: usize = 100;
const GATHERED: u32 = 16;
/// Number of times that each core does everything before transfers are counted. By then it holds
/// all lines that it reads, and reference bits are set.
const WARM_ROUNDS: u32 = 3;

/// One operation of a core. The same number means the same keys on every core. Returns true if the
/// transfers are counted.
type Operation = fn(&Table, number: u32, core: u32, out: &mut Vec<u8>) -> bool;

struct Workload {
    name: &'static str,
    /// True if no line may move.
    is_reserved: bool,
    /// Number of operations of each core.
    count: u32,
    operation: Operation,
}

const WORKLOADS: [Workload; 7] = [
    Workload {
        name: "get",
        is_reserved: true,
        count: 600,
        operation: get,
    },
    Workload {
        name: "get_many of 16",
        is_reserved: true,
        count: 60,
        operation: get_many,
    },
    Workload {
        name: "scan of 100",
        is_reserved: true,
        count: 40,
        operation: scan,
    },
    Workload {
        name: "scan back",
        is_reserved: true,
        count: 40,
        operation: scan_back,
    },
    Workload {
        name: "get beside puts",
        is_reserved: true,
        count: 200,
        operation: get_beside_puts,
    },
    Workload {
        name: "95 % get, 5 % put",
        is_reserved: false,
        count: 600,
        operation: read_mostly,
    },
    Workload {
        name: "put",
        is_reserved: false,
        count: 200,
        operation: put,
    },
];

fn cores() -> u32 {
    std::env::var("PANDO_AUDIT_CORES").map_or(2, |cores| cores.parse().unwrap())
}

fn filled() -> (Db, Table) {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    for number in 0..KEYS {
        put_at(&table, number, 0);
    }
    // From here on the cleaner has nothing to do.
    db.checkpoint().unwrap();
    (db, table)
}

/// Returns a key. The keys are spread over the whole tree.
fn spread(number: u32) -> u32 {
    number.wrapping_mul(2_654_435_761) % KEYS
}

fn put_at(table: &Table, key: u32, byte: u8) {
    let none = WriteOptions::durability(Durability::None);
    table
        .put_with(&key.to_be_bytes(), &[byte; 100], none)
        .unwrap();
}

fn get(table: &Table, number: u32, _core: u32, out: &mut Vec<u8>) -> bool {
    table.get_into(&spread(number).to_be_bytes(), out).unwrap()
}

fn get_many(table: &Table, number: u32, _core: u32, _out: &mut Vec<u8>) -> bool {
    let key = |at| spread(number * GATHERED + at).to_be_bytes();
    let keys: Vec<[u8; 4]> = (0..GATHERED).map(key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut found = 0;
    table
        .get_many_with(&keys, |_, value| found += u32::from(value.is_some()))
        .unwrap();
    assert_eq!(found, GATHERED);
    true
}

fn scan(table: &Table, number: u32, _core: u32, _out: &mut Vec<u8>) -> bool {
    let from = spread(number).min(KEYS - RANGE as u32).to_be_bytes();
    let entries = table.range(&from[..]..).take(RANGE);
    assert_eq!(entries.filter(Result::is_ok).count(), RANGE);
    true
}

fn scan_back(table: &Table, number: u32, _core: u32, _out: &mut Vec<u8>) -> bool {
    let from = spread(number).max(RANGE as u32).to_be_bytes();
    let entries = table.range(..=&from[..]).rev().take(RANGE);
    assert_eq!(entries.filter(Result::is_ok).count(), RANGE);
    true
}

/// The last core writes the last keys, and the others read keys of the first half.
fn get_beside_puts(table: &Table, number: u32, core: u32, out: &mut Vec<u8>) -> bool {
    if core + 1 == cores() {
        put_at(table, KEYS - 1 - number % 100, number as u8);
        return false;
    }
    let key = spread(number) / 2;
    table.get_into(&key.to_be_bytes(), out).unwrap()
}

fn read_mostly(table: &Table, number: u32, core: u32, out: &mut Vec<u8>) -> bool {
    if number % 20 == core % 20 {
        put(table, number, core, out)
    } else {
        get(table, number, core, out)
    }
}

fn put(table: &Table, number: u32, core: u32, _out: &mut Vec<u8>) -> bool {
    put_at(table, spread(number * 64 + core), number as u8);
    true
}

/// Lets each core do everything once. Returns the transfers for each operation, by structure.
fn round(workload: &Workload, table: &Table, cores: u32) -> BTreeMap<&'static str, f64> {
    let (mut out, mut moved, mut operations) = (Vec::new(), BTreeMap::new(), 0.0);
    audit::take_transfers();
    for number in 0..workload.count {
        for core in 0..cores {
            audit::enter_core(core);
            let is_counted = (workload.operation)(table, number, core, &mut out);
            let transfers = audit::take_transfers();
            if is_counted {
                operations += 1.0;
                for (structure, count) in transfers {
                    *moved.entry(structure).or_default() += count as f64;
                }
            }
        }
    }
    audit::leave_core();
    for count in moved.values_mut() {
        *count /= operations;
    }
    moved
}

/// Returns the transfers for each operation at steady state, by structure.
fn transfers(workload: &Workload, table: &Table, cores: u32) -> BTreeMap<&'static str, f64> {
    for _ in 0..WARM_ROUNDS {
        round(workload, table, cores);
    }
    round(workload, table, cores)
}

fn print(cores: u32, found: &[BTreeMap<&'static str, f64>]) {
    let structures: BTreeSet<_> = found.iter().flat_map(BTreeMap::keys).collect();
    println!("line transfers for each operation, {cores} cores, by structure\n");
    let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
    println!("| structure | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(names.len()));
    let row = |name: &str, of: &dyn Fn(&BTreeMap<&'static str, f64>) -> f64| {
        let cells: Vec<_> = found
            .iter()
            .map(|found| format!("{:.3}", of(found)))
            .collect();
        println!("| {name} | {} |", cells.join(" | "));
    };
    for structure in structures {
        row(structure, &|found| {
            found.get(structure).copied().unwrap_or(0.0)
        });
    }
    row("**all**", &|found| {
        found.values().fold(0.0, |sum, count| sum + count)
    });
}

#[test]
fn cached_reads_move_no_line_and_what_writers_move_is_named() {
    let (_db, table) = filled();
    let cores = cores();
    let found: Vec<_> = WORKLOADS
        .iter()
        .map(|workload| transfers(workload, &table, cores))
        .collect();
    print(cores, &found);
    for (workload, found) in WORKLOADS.iter().zip(&found) {
        if workload.is_reserved || cores == 1 {
            assert!(
                found.is_empty(),
                "{}: no transfer was promised: {found:?}",
                workload.name
            );
        } else {
            // The audit detects the transfers that must happen.
            assert!(found.contains_key("pages"), "{found:?}");
            assert!(found.contains_key("frame headers"), "{found:?}");
        }
    }
}
