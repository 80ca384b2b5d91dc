//! Random histories compared with a `BTreeMap`, with restarts, tiny pools and every page size.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

use fastrand::Rng;
use pandodb::{Batch, Builder, Compression, Db, Durability, Table, Transaction, WriteOptions};

use crate::fixture::verified;

struct Random(Rng);

impl Random {
    fn key(&mut self) -> Vec<u8> {
        let number = self.0.u64(..3000);
        match self.0.u64(..10) {
            0 => format!("{}{number}", "long".repeat(60)).into_bytes(),
            1 => vec![0; (number % 40) as usize],
            _ => format!("key{number:05}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.0.u64(..20) {
            0 => self.0.u64(..30_000),
            1 => 0,
            _ => self.0.u64(..300),
        };
        vec![self.0.u8(..); length as usize]
    }
}

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

/// Compares a few entries from a random key on, in a random direction.
fn compare_range(random: &mut Random, table: &Table, twin: &Twin) {
    let (start, backward) = (random.key(), random.0.bool());
    let take = random.0.usize(..200);
    let own = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
    if backward {
        let ours = table.range(..=&start[..]).rev().map(Result::unwrap);
        let expected = twin.range(..=start).rev().map(own);
        assert!(ours.take(take).eq(expected.take(take)));
    } else {
        let ours = table.range(&start[..]..).map(Result::unwrap);
        let expected = twin.range(start..).map(own);
        assert!(ours.take(take).eq(expected.take(take)));
    }
}

/// Deletes a range, by the table or in a transaction that has written itself.
fn delete_range(random: &mut Random, (db, table): (&Db, &Table), twin: &mut Twin) {
    let (low, high) = (random.key(), random.key());
    let (low, high) = (low.clone().min(high.clone()), low.max(high));
    let bounds = match random.0.u8(..4) {
        0 => (Bound::Unbounded, Bound::Excluded(&low[..])),
        1 => (Bound::Excluded(&high[..]), Bound::Unbounded),
        2 => (Bound::Included(&low[..]), Bound::Included(&high[..])),
        // About a hundredth.
        _ => (
            Bound::Included(&low[..]),
            Bound::Excluded(&[&low[..], b"~"].concat()[..]),
        ),
    };
    let deleted = match random.0.bool() {
        true => table.delete_range(bounds).unwrap(),
        false => {
            let own: Vec<_> = (0..random.0.u8(..5))
                .map(|_| (random.key(), random.value()))
                .collect();
            twin.extend(own.iter().cloned());
            let delete = |transaction: &mut Transaction| {
                for (key, value) in &own {
                    transaction.put(table, key, value)?;
                }
                transaction.delete_range(table, bounds)
            };
            db.transact(delete).unwrap()
        }
    };
    let before = twin.len();
    twin.retain(|key, _| !bounds.contains(&key[..]));
    assert_eq!(deleted, (before - twin.len()) as u64);
}

fn check(seed: u64, options: impl Fn() -> Builder, steps: u32) {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        options()
            .durability(Durability::None)
            .open(directory.path())
            .unwrap()
    };
    let mut db = open();
    let mut table = db.table("t").unwrap();
    let mut twin = Twin::new();
    let mut random = Random(Rng::with_seed(seed));
    for _ in 0..steps {
        match random.0.u64(..100) {
            0..45 => {
                let (key, value) = (random.key(), random.value());
                table.put(&key, &value).unwrap();
                twin.insert(key, value);
            }
            45..60 => {
                let key = random.key();
                assert_eq!(table.delete(&key).unwrap(), twin.remove(&key).is_some());
            }
            60..85 => {
                let key = random.key();
                assert_eq!(table.get(&key).unwrap().as_ref(), twin.get(&key));
            }
            85..93 => {
                let mut batch = Batch::new();
                for _ in 0..random.0.u32(..60) {
                    let key = random.key();
                    if random.0.u64(..3) == 0 {
                        batch.delete(&table, &key);
                        twin.remove(&key);
                    } else {
                        let value = random.value();
                        batch.put(&table, &key, &value);
                        twin.insert(key, value);
                    }
                }
                db.write(&mut batch, WriteOptions::default()).unwrap();
            }
            93..96 => compare_range(&mut random, &table, &twin),
            96 => delete_range(&mut random, (&db, &table), &mut twin),
            97 => db.checkpoint().unwrap(),
            98 => {
                drop(table);
                db.close().unwrap();
                db = open();
                table = db.table("t").unwrap();
            }
            _ if random.0.u64(..20) == 0 => {
                db.clear_tables(&[&table]).unwrap();
                twin.clear();
            }
            _ => {}
        }
        assert_eq!(table.len(), twin.len() as u64);
    }
    assert!(table.iter().map(Result::unwrap).eq(twin.into_iter()));
    drop(table);
    db.close().unwrap();
    verified(directory.path());
}

#[test]
fn a_history_with_room() {
    check(1, || Db::builder().max_memory(32 << 20), 2500);
}

#[test]
fn a_history_on_sixty_four_frames() {
    check(2, || Db::builder().max_memory(4 << 20).frames(64), 4000);
}

#[test]
fn a_history_on_large_pages() {
    check(
        3,
        || {
            Db::builder()
                .max_memory(8 << 20)
                .page_size(16384)
                .frames(64)
        },
        2000,
    );
    check(
        4,
        || {
            Db::builder()
                .max_memory(16 << 20)
                .page_size(65536)
                .frames(64)
        },
        1000,
    );
}

#[test]
fn a_history_on_a_small_log() {
    check(
        5,
        || Db::builder().max_memory(4 << 20).log_bytes(2 << 20),
        4000,
    );
}

/// Returns true if direct I/O accepts blocks of 512 bytes.
fn has_small_sectors() -> bool {
    let directory = tempfile::tempdir().unwrap();
    match Db::builder().block_size(512).open(directory.path()) {
        Ok(_) => true,
        Err(error) => {
            assert!(error.to_string().contains("aligned to"), "{error}");
            false
        }
    }
}

#[test]
fn a_history_of_compressed_pages() {
    let small = if has_small_sectors() { 512 } else { 4096 };
    let how = |page, block, compression| {
        move || {
            Db::builder()
                .max_memory(8 << 20)
                .frames(64)
                .page_size(page)
                .block_size(block)
                .compression(compression)
        }
    };
    check(6, how(4096, small, Compression::Lz4), 1500);
    check(7, how(16384, 4096, Compression::Zstd(1)), 600);
    check(8, how(65536, small, Compression::Snappy), 300);
}

#[test]
fn a_history_that_compresses_differently_each_time_it_opens() {
    let opened = std::cell::Cell::new(0);
    let options = || {
        opened.set(opened.get() + 1);
        let ways = [
            Compression::Lz4,
            Compression::None,
            Compression::Zstd(3),
            Compression::Snappy,
        ];
        Db::builder()
            .max_memory(8 << 20)
            .frames(64)
            .page_size(16384)
            .compression(ways[opened.get() % 4])
    };
    check(9, options, 1000);
    assert!(opened.get() > 4);
}
