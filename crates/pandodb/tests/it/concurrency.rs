//! Threads on a pool of 64 frames, with a watchdog that checks the progress of all of them.

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Batch, Db, Durability};

use crate::fixture::{NONE, verified};

fn in_memory() -> Db {
    let builder = Db::builder().max_memory(4 << 20);
    builder
        .durability(Durability::None)
        .open_in_memory()
        .unwrap()
}

/// Fails the test if some thread makes no progress for a long time.
fn watched<R>(progress: &[AtomicU64], work: impl FnOnce() -> R) -> R {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last: Vec<u64> = Vec::new();
            let mut quiet = 0;
            while !done.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(100));
                let now: Vec<u64> = progress.iter().map(|p| p.load(Ordering::Relaxed)).collect();
                let stuck = now
                    .iter()
                    .zip(&last)
                    .any(|(now, last)| now == last && *now < u64::MAX);
                quiet = if stuck { quiet + 1 } else { 0 };
                assert!(quiet < 300, "a thread is stuck: {now:?}");
                last = now;
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Each thread owns its keys and knows their values. All share leaves, frames and the log.
fn mixed(threads: u64, operations: u64) {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .durability(Durability::None)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    let progress: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(0)).collect();
    watched(&progress, || {
        thread::scope(|scope| {
            for thread in 0..threads {
                let (table, progress) = (&table, &progress[thread as usize]);
                scope.spawn(move || {
                    let mut twin = std::collections::BTreeMap::new();
                    let mut random = Rng::with_seed(thread);
                    for step in 0..operations {
                        let key = format!("{:04}-{thread:02}", random.u32(..500));
                        match random.u32(..10) {
                            0..4 => {
                                table.put(key.as_bytes(), &step.to_le_bytes()).unwrap();
                                twin.insert(key, step);
                            }
                            4..6 => {
                                let existed = table.delete(key.as_bytes()).unwrap();
                                assert_eq!(existed, twin.remove(&key).is_some());
                            }
                            6..9 => {
                                let value = table.get(key.as_bytes()).unwrap();
                                let expected = twin.get(&key).map(|step| step.to_le_bytes());
                                assert_eq!(value.as_deref(), expected.as_ref().map(|b| &b[..]));
                            }
                            _ => {
                                let scanned = table.range(key.as_bytes()..).take(30);
                                let keys: Vec<_> = scanned.map(|entry| entry.unwrap().0).collect();
                                assert!(keys.is_sorted());
                            }
                        }
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                    for (key, step) in &twin {
                        let value = table.get(key.as_bytes()).unwrap().unwrap();
                        assert_eq!(value, step.to_le_bytes());
                    }
                    progress.store(u64::MAX, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(table.len(), table.iter().count() as u64);
    drop(table);
    db.close().unwrap();
    verified(directory.path());
}

#[test]
fn two_threads_agree_with_their_twins() {
    mixed(2, 6000);
}

#[test]
fn sixteen_threads_agree_with_their_twins() {
    mixed(16, 1500);
}

#[test]
fn sixty_four_threads_agree_with_their_twins() {
    mixed(64, 300);
}

#[test]
fn sixteen_writers_share_a_log_of_two_segments() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(4 << 20)
        .log_bytes(2 << 20)
        .durability(Durability::None)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    let progress: Vec<AtomicU64> = (0..16).map(|_| AtomicU64::new(0)).collect();
    watched(&progress, || {
        thread::scope(|scope| {
            for thread in 0..16_u64 {
                let (table, progress) = (&table, &progress[thread as usize]);
                scope.spawn(move || {
                    for step in 0..400_u64 {
                        let key = [thread.to_be_bytes(), (step % 50).to_be_bytes()].concat();
                        table.put(&key, &[step as u8; 2000]).unwrap();
                        progress.fetch_add(1, Ordering::Relaxed);
                    }
                    progress.store(u64::MAX, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(table.len(), 800);
    assert!(db.report().log_bytes < 8 << 20);
}

#[test]
fn a_batch_of_more_leaves_than_frames_is_applied() {
    let db = Db::builder()
        .max_memory(16 << 20)
        .frames(64)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    for round in 0..3_u8 {
        let mut batch = Batch::new();
        for number in 0..300_u32 {
            batch.put(&table, &number.to_be_bytes(), &[round; 1800]);
        }
        db.write(&mut batch, NONE).unwrap();
        assert_eq!(
            table
                .iter()
                .filter(|e| e.as_ref().unwrap().1[0] == round)
                .count(),
            300
        );
    }
}

#[test]
fn nobody_sees_half_a_batch() {
    let db = Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .durability(Durability::None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    let keys: Vec<Vec<u8>> = (0..8_u8).map(|at| vec![at; 300]).collect();
    // There is more than a leaf between two keys, since writes to one leaf are made under one
    // latch.
    for key in &keys {
        for last in 100..=u8::MAX {
            table.put(&[&key[..], &[last]].concat(), b"").unwrap();
        }
    }
    let write = |value: u64| {
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(&table, key, &value.to_le_bytes());
        }
        db.write(&mut batch, NONE).unwrap();
    };
    write(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // If keys are read one after the other, later keys are never older than earlier
                    // ones.
                    let mut newest = 0;
                    for key in &keys {
                        let value = table.get(key).unwrap().unwrap();
                        let value = u64::from_le_bytes(value.try_into().unwrap());
                        assert!(value >= newest, "{value} after {newest}");
                        newest = value;
                    }
                }
            });
        }
        for value in 1..50_000 {
            write(value);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_is_there_once_is_deleted_once() {
    let db = in_memory();
    let table = db.table("t").unwrap();
    let (made, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..6 {
            let (table, made, deleted) = (&table, &made, &deleted);
            scope.spawn(move || {
                for turn in 0..200_000_u32 {
                    let key = [turn as u8 % 2];
                    if thread % 2 == 0 {
                        let mut is_new = false;
                        let make = |old: Option<&[u8]>| {
                            is_new = old.is_none();
                            Some(b"value".to_vec())
                        };
                        table.update(&key, make).unwrap();
                        made.fetch_add(is_new.into(), Ordering::Relaxed);
                    } else if table.delete(&key).unwrap() {
                        deleted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let left = made.into_inner() - deleted.into_inner();
    assert_eq!(left, table.iter().count() as u64);
    assert_eq!(left, table.len());
}

#[test]
fn counters_lose_no_increment() {
    let db = in_memory();
    let table = db.table("t").unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..500 {
                    table
                        .update(b"n", |old| {
                            let old =
                                old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                            Some((old + 1).to_le_bytes().to_vec())
                        })
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(table.get(b"n").unwrap().unwrap(), 4000_u64.to_le_bytes());
}

#[test]
fn a_storm_of_clears_beside_readers_and_writers() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(4 << 20)
        .durability(Durability::None)
        .open(directory.path())
        .unwrap();
    let tables = [db.table("a").unwrap(), db.table("b").unwrap()];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (tables, stop) = (&tables, &stop);
            scope.spawn(move || {
                let mut step = 0_u32;
                while !stop.load(Ordering::Relaxed) {
                    step += 1;
                    let key = [thread.to_be_bytes(), (step % 400).to_be_bytes()].concat();
                    tables[(step & 1) as usize].put(&key, &[1; 500]).unwrap();
                    tables[(step >> 1 & 1) as usize].get(&key).unwrap();
                    if step.is_multiple_of(100) {
                        for entry in tables[0].iter() {
                            entry.unwrap();
                        }
                    }
                }
            });
        }
        for _ in 0..150 {
            db.clear_tables(&[&tables[0], &tables[1]]).unwrap();
            thread::sleep(Duration::from_millis(2));
        }
        stop.store(true, Ordering::Relaxed);
    });
    for table in &tables {
        assert_eq!(table.len(), table.iter().count() as u64);
    }
    drop(tables);
    db.close().unwrap();
    verified(directory.path());
}

#[test]
fn a_table_that_others_create_can_be_used_at_once() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    thread::scope(|scope| {
        for thread in 0..3_u8 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..300 {
                    let table = db.table(&format!("t{round}")).unwrap();
                    table.put_with(&[thread], b"v", NONE).unwrap();
                    assert_eq!(table.get(&[thread]).unwrap().as_deref(), Some(&b"v"[..]));
                }
            });
        }
    });
    assert_eq!(db.tables().len(), 300);
}
