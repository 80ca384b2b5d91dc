//! The coherence audit of cached point reads: built with `--cfg pando_audit`, run by
//! `cargo xtask audit --cores N`.
//!
//! Simulated cores take turns, one read each, over a tree of three levels. At steady state no line
//! may move between them: whatever a read writes (a ticker) lies on lines of its own core.

#![cfg(pando_audit)]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use pando_sync::audit;
use pandodb::{Db, Durability, Table, WriteOptions};

const KEYS: u32 = 30_000;

fn cores() -> u32 {
    std::env::var("PANDO_AUDIT_CORES").map_or(2, |cores| cores.parse().unwrap())
}

fn filled() -> (Db, Table) {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let none = WriteOptions::durability(Durability::None);
    for number in 0..KEYS {
        table
            .put_with(&number.to_be_bytes(), &[number as u8; 100], none)
            .unwrap();
    }
    // The cleaner has nothing to do from here on.
    db.checkpoint().unwrap();
    (db, table)
}

/// Each core reads keys spread over the whole tree.
fn read(table: &Table, cores: u32, rounds: u32, out: &mut Vec<u8>) -> u64 {
    let mut reads = 0;
    for round in 0..rounds {
        for core in 0..cores {
            audit::enter_core(core);
            let number = round.wrapping_mul(2_654_435_761) % KEYS;
            assert!(table.get_into(&number.to_be_bytes(), out).unwrap());
            reads += 1;
        }
    }
    audit::leave_core();
    reads
}

#[test]
fn cached_point_reads_move_no_line() {
    let (_db, table) = filled();
    let (cores, mut out) = (cores(), Vec::new());
    // Warm: every core has read every page twice, so that reference bits are set.
    for number in 0..KEYS {
        for core in 0..cores {
            audit::enter_core(core);
            for _ in 0..3 {
                table.get_into(&number.to_be_bytes(), &mut out).unwrap();
            }
        }
    }
    audit::leave_core();
    audit::take_transfers();
    let reads = read(&table, cores, 5000, &mut out);
    let transfers = audit::take_transfers();
    println!("{cores} cores, {reads} cached point reads, line transfers by structure:");
    for (structure, count) in &transfers {
        println!(
            "  {structure}: {:.4} per read",
            *count as f64 / reads as f64
        );
    }
    assert!(
        transfers.is_empty(),
        "0 transfers were promised: {transfers:?}"
    );
    println!("  none");
}

#[test]
fn the_audit_sees_writers_move_lines() {
    let (_db, table) = filled();
    let none = WriteOptions::durability(Durability::None);
    audit::take_transfers();
    for round in 0..100_u32 {
        for core in 0..cores() {
            audit::enter_core(core);
            table
                .put_with(&(round % 10).to_be_bytes(), &[1; 100], none)
                .unwrap();
        }
    }
    audit::leave_core();
    let transfers = audit::take_transfers();
    assert!(transfers.contains_key("frame headers"), "{transfers:?}");
    assert!(transfers.contains_key("pages"), "{transfers:?}");
}
