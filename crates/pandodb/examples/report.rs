//! A report about one moment, beside a writer that never stops: what came in and what went out is
//! balanced in it, although the writer has changed both many times since.
//!
//! `cargo run --example report`

#![expect(clippy::print_stdout, reason = "an example shows what it has found")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pandodb::{Batch, Db, Result, Table, WriteOptions};

const KEYS: u32 = 1000;

/// Adds up all values of a table.
fn sum(snapshot: &pandodb::Snapshot, table: &Table) -> Result<u64> {
    let mut sum = 0;
    for entry in snapshot.iter(table) {
        let (_, value) = entry?;
        sum += value.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    Ok(sum)
}

fn main() -> Result<()> {
    let db = Db::builder().open_in_memory()?;
    let (incoming, outgoing) = (db.table("incoming")?, db.table("outgoing")?);
    let is_over = AtomicBool::new(false);
    let balanced = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut batch = Batch::new();
            for round in 0_u32.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let (key, amount) = ((round % KEYS).to_be_bytes(), round.to_le_bytes());
                batch.clear();
                batch.put(&incoming, &key, &amount);
                batch.put(&outgoing, &key, &amount);
                db.write(&mut batch, WriteOptions::default())?;
            }
            Ok(())
        });
        let reports = (0..20).map(|_| {
            let snapshot = db.snapshot()?;
            Ok(sum(&snapshot, &incoming)? == sum(&snapshot, &outgoing)?)
        });
        let reports: Result<Vec<bool>> = reports.collect();
        is_over.store(true, Ordering::Relaxed);
        match writer.join() {
            Ok(written) => written.and(reports),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    println!("{} reports, all of one moment each", balanced.len());
    assert!(balanced.iter().all(|is_balanced| *is_balanced));
    Ok(())
}
