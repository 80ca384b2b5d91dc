//! Loads keys in random order, overwrites a tenth, reads them back: a first look at speed and at
//! resident memory. Arguments: number of keys, memory budget in MiB, directory (optional).

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use pandodb::{Batch, Db, Durability, WriteOptions};

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or("");
    line.split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or(0)
        / 1024
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments
        .next()
        .map_or(1_000_000, |text| text.parse().unwrap());
    let memory: u64 = arguments.next().map_or(1024, |text| text.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(memory << 20)
        .durability(Durability::None)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    let key = |n: u64| {
        let mut key = *b"0000000000000000";
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    };
    let permute = |n: u64| n.wrapping_mul(6_700_417) % count;
    let none = WriteOptions::durability(Durability::None);
    let run = |name: &str, operations: u64, step: &mut dyn FnMut(u64)| {
        let start = pando_sync::time::now();
        for n in 0..operations {
            step(n);
        }
        let rate = operations as f64 / start.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} ops/s, {} MiB resident", resident_mib());
    };
    let mut batch = Batch::new();
    run("fillrandom in batches of 100", count / 100, &mut |n| {
        batch.clear();
        for at in 0..100 {
            batch.put(&table, &key(permute(n * 100 + at)), &[7; 100]);
        }
        db.write(&mut batch, none).unwrap();
    });
    run("overwrite", count / 10, &mut |n| {
        table
            .put_with(&key(permute(n * 31)), &[8; 100], none)
            .unwrap();
    });
    let mut out = Vec::with_capacity(128);
    let reads = if memory << 20 > count * 150 {
        count
    } else {
        count / 20
    };
    for _ in 0..2 {
        run("readrandom", reads, &mut |n| {
            table.get_into(&key(permute(n * 7)), &mut out).unwrap();
        });
    }
    run("durable put", 5000, &mut |n| {
        let durable = WriteOptions::durability(Durability::Durable);
        table
            .put_with(&key(permute(n)), &[9; 100], durable)
            .unwrap();
    });
    println!("{:?}", db.report());
    for (ticker, value) in db.statistics().iter() {
        println!("  {:24} {value:>14} {}", ticker.name(), ticker.unit());
    }
}
