//! Loads a million keys and reads them back: a first look at speed.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "an example")]

use pandodb::{Db, Durability, WriteOptions};

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(1 << 30)
        .durability(Durability::None)
        .open(directory.path());
    let db = db.unwrap();
    let table = db.table("t").unwrap();
    let count = 1_000_000_u64;
    let key = |n: u64| {
        let mut key = *b"0000000000000000";
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    };
    let permute = |n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count;
    let none = WriteOptions::durability(Durability::None);
    let start = pando_sync::time::now();
    for n in 0..count {
        table.put_with(&key(permute(n)), &[7; 100], none).unwrap();
    }
    println!(
        "put {:.0} ops/s",
        count as f64 / start.elapsed().as_secs_f64()
    );
    let mut out = Vec::with_capacity(128);
    for _ in 0..3 {
        let start = pando_sync::time::now();
        let mut found = 0;
        for n in 0..count {
            found += u64::from(table.get_into(&key(permute(n * 7)), &mut out).unwrap());
        }
        println!(
            "get {:.0} ops/s ({found})",
            count as f64 / start.elapsed().as_secs_f64()
        );
    }
    let start = pando_sync::time::now();
    for n in 0..5000 {
        table
            .put_with(
                &key(permute(n)),
                &[8; 100],
                WriteOptions::durability(Durability::Durable),
            )
            .unwrap();
    }
    println!(
        "durable put {:.0} ops/s",
        5000.0 / start.elapsed().as_secs_f64()
    );
}
