//! A queue with pushes at the tail and pops at the head. Neither the files nor the work of a pop
//! grow.
//!
//! `PANDO_QUEUE=10000000 cargo test --release -p pandodb --test it queue -- --nocapture` makes that
//! many pushes, and prints how long pushes and pops took.

use pando_sync::time;
use pandodb::statistics::Ticker;
use pandodb::{Db, Table};

use crate::fixture::{NONE, verified};

/// Number of entries in the queue at a time.
const DEPTH: u64 = 1000;
/// Number of parts of a run that are compared.
const PARTS: u64 = 10;

fn push(table: &Table, number: u64) {
    let mut value = [7; 100];
    value[..8].copy_from_slice(&number.to_be_bytes());
    table.put_with(&number.to_be_bytes(), &value, NONE).unwrap();
}

fn pop(table: &Table) -> u64 {
    let (key, value) = table.iter().next().unwrap().unwrap();
    assert_eq!(key[..], value[..8]);
    assert!(table.delete_with(&key, NONE).unwrap());
    u64::from_be_bytes(key[..].try_into().unwrap())
}

/// What one part of a run used.
#[derive(Debug)]
struct Part {
    data_bytes: u64,
    pages: u64,
    leaves_per_pop: f64,
    page_writes: u64,
    ns_per_pair: f64,
}

fn run(with_reader: bool) -> Vec<Part> {
    let turns = std::env::var("PANDO_QUEUE").map_or(200_000, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(16 << 20)
        .open(directory.path())
        .unwrap();
    let table = db.table("queue").unwrap();
    for number in 0..DEPTH {
        push(&table, number);
    }
    // The reader has read the first entry and keeps its place during the whole run.
    let mut reader = table.iter();
    if with_reader {
        assert!(reader.next().is_some());
    }
    let mut parts = Vec::new();
    let mut number = 0;
    for _ in 0..PARTS {
        let (before, began) = (db.statistics(), time::now());
        for _ in 0..turns / PARTS {
            push(&table, number + DEPTH);
            assert_eq!(pop(&table), number);
            number += 1;
        }
        let elapsed = began.elapsed();
        let (after, report) = (db.statistics().since(&before), db.report());
        let pops = (turns / PARTS) as f64;
        parts.push(Part {
            data_bytes: report.data_bytes,
            pages: report.pages,
            leaves_per_pop: after.get(Ticker::ScanLeaves) as f64 / pops,
            page_writes: after.get(Ticker::PageWrites),
            ns_per_pair: elapsed.as_nanos() as f64 / pops,
        });
        // Empty leaves at the head exist until the maintenance thread has removed them, and that
        // may not be given a core for a while.
        let slow = parts.iter().filter(|part| part.leaves_per_pop >= 20.0);
        assert!(slow.count() as u64 <= PARTS / 5, "{parts:?}");
    }
    if with_reader {
        // The entries from its beginning are gone, and it continues with the current ones.
        let (key, _) = reader
            .find(|entry| entry.as_ref().unwrap().0[..] >= number.to_be_bytes()[..])
            .unwrap()
            .unwrap();
        assert_eq!(key[..], number.to_be_bytes());
    }
    assert_eq!(table.len(), DEPTH);
    drop(reader);
    drop(table);
    db.close().unwrap();
    let report = verified(directory.path());
    let leaves = report.stat.tables[0].tree[0].pages;
    assert!(leaves < 200, "{leaves} leaves for {DEPTH} entries");
    parts
}

#[test]
fn a_queue_stays_flat_in_size_and_in_work_with_and_without_an_old_reader() {
    for with_reader in [false, true] {
        let parts = run(with_reader);
        for part in &parts {
            let Part {
                data_bytes,
                pages,
                leaves_per_pop,
                page_writes,
                ns_per_pair,
            } = part;
            eprintln!(
                "reader {with_reader}: {ns_per_pair:.0} ns a pair, {leaves_per_pop:.2} leaves a pop, \
                 {page_writes} pages written, {pages} ids, {data_bytes} bytes"
            );
        }
        let (first, last) = (&parts[1], &parts[parts.len() - 1]);
        assert!(
            last.data_bytes <= first.data_bytes.max(24 << 20),
            "{parts:?}"
        );
        assert!(last.pages <= 2 * first.pages.max(1000), "{parts:?}");
    }
}
