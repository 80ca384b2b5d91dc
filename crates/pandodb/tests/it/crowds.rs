//! Many more threads than the pool has frames, with batches that touch many more pages than it has
//! frames.

use fastrand::Rng;
use pando_sync::{Arc, thread};
use pandodb::{Batch, Db, Durability, Occupancy, Table};

use crate::fixture::NONE;
use crate::progress::Progress;

const VALUE_BYTES: usize = 400;

/// Returns the keys of the batch that `thread` writes in `round`.
fn keys_of(thread: u32, round: u32, writes: usize, keys: u32) -> Vec<u32> {
    let mut random = Rng::with_seed(u64::from(thread) << 32 | u64::from(round));
    (0..writes).map(|_| random.u32(..keys)).collect()
}

fn value_of(thread: u32, round: u32) -> Vec<u8> {
    let mut value = vec![thread as u8; VALUE_BYTES];
    value[..4].copy_from_slice(&thread.to_le_bytes());
    value[4..8].copy_from_slice(&round.to_le_bytes());
    value
}

/// Checks that every value belongs to a batch which has its key.
fn check(table: &Table, threads: u32, writes: usize, keys: u32) {
    let mut count = 0;
    for entry in table.iter() {
        let (key, value) = entry.unwrap();
        count += 1;
        let key = u32::from_be_bytes(key.try_into().unwrap());
        let thread = u32::from_le_bytes(value[..4].try_into().unwrap());
        let round = u32::from_le_bytes(value[4..8].try_into().unwrap());
        assert_eq!(value, value_of(thread, round), "{key}");
        let is_of = thread == threads || keys_of(thread, round, writes, keys).contains(&key);
        assert!(is_of, "{key} is not of batch {round} of thread {thread}");
    }
    assert_eq!(count, keys);
}

/// Lets `threads` threads commit batches of `writes` keys. All values take `times` times
/// `max_memory`.
fn crowd(threads: u32, (max_memory, times): (u64, u64), writes: usize, rounds: u32) {
    let builder = Db::builder().max_memory(max_memory);
    let db = builder
        .durability(Durability::None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    let keys = (times * max_memory / VALUE_BYTES as u64) as u32;
    for first in (0..keys).step_by(500) {
        let mut batch = Batch::new();
        for key in first..keys.min(first + 500) {
            batch.put(&table, &key.to_be_bytes(), &value_of(threads, 0));
        }
        db.write(&mut batch, NONE).unwrap();
    }
    let progress = Arc::new(Progress::default());
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let (db, table, progress) = (db.clone(), table.clone(), progress.clone());
            thread::spawn(move || {
                for round in 0..rounds {
                    let mut batch = Batch::new();
                    for key in keys_of(thread, round, writes, keys) {
                        batch.put(&table, &key.to_be_bytes(), &value_of(thread, round));
                    }
                    db.write(&mut batch, NONE).unwrap();
                    progress.step();
                }
            })
        })
        .collect();
    progress.wait_for(u64::from(threads * rounds));
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(db.occupancy(), Occupancy::default());
    check(&table, threads, writes, keys);
}

#[test]
fn a_thousand_threads_commit_batches_with_16_mib() {
    crowd(1000, (16 << 20, 4), 200, 2);
}

#[test]
fn many_threads_commit_batches_with_8_mib() {
    crowd(256, (8 << 20, 4), 200, 4);
}

#[test]
fn threads_commit_batches_with_4_mib() {
    crowd(64, (4 << 20, 4), 200, 10);
}

/// A commit of one write pins nothing, so its leaf may be gone when it is applied.
#[test]
fn threads_put_one_key_at_a_time_with_4_mib() {
    crowd(64, (4 << 20, 4), 1, 200);
}

/// Batches of few writes pin nothing if all their leaves are in memory, which they often are here,
/// and may lose some before they are applied.
#[test]
fn threads_commit_short_batches_with_4_mib() {
    crowd(64, (4 << 20, 1), 4, 200);
}
