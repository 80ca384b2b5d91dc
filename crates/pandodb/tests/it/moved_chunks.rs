//! Values in chunks that several threads put, replace and delete, also by futures that they drop,
//! while compactions move the chunks, and checkpoints are made. Each thread owns some keys, and has
//! a twin of them; all is there when the store is opened again.
//!
//! Longer: `PANDO_STEPS=5000 cargo test -p pandodb --test it moved_chunks`, several at once.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Waker};

use fastrand::Rng;
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Builder, Db, Error, Result, Snapshot, Table, TransactionOptions};

use crate::fixture::{NONE, verified};

const THREADS: u8 = 8;
const KEYS: u8 = 40;

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(frames: usize) -> Builder {
    Db::builder()
        .max_memory(4 << 20)
        .frames(frames)
        .log_bytes(1 << 20)
        .chunk_values_over(20_000)
        .settle_snapshots_after(Duration::from_millis(200))
        .give_back_after(Some(Duration::from_millis(50)))
}

/// Returns `None` where the store says: again later.
fn done<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.is_retryable() || matches!(error, Error::SnapshotEnded) => None,
        Err(error) => panic!("{error:?}"),
    }
}

struct Worker<'a> {
    number: u8,
    random: Rng,
    table: &'a Table,
    twin: Twin,
    /// A snapshot, and what the twin had then.
    look: Option<(Snapshot, Twin)>,
}

impl Worker<'_> {
    fn key(&mut self) -> Vec<u8> {
        vec![self.number, self.random.u8(..KEYS)]
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.u32(..12) {
            0 => 400_000,
            1 => self.random.usize(20_000..120_000),
            2..4 => 1500,
            _ => self.random.usize(..300),
        };
        vec![self.random.u8(..); bytes]
    }

    fn put(&mut self, key: Vec<u8>) {
        let value = self.value();
        self.table.put_with(&key, &value, NONE).unwrap();
        self.twin.insert(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.table.delete_with(key, NONE).unwrap();
        self.twin.remove(key);
    }

    /// Drops a put somewhere on its way; what is written next stays.
    fn drop_put(&mut self) {
        let (key, value) = (self.key(), self.value());
        let polls = self.random.u32(1..20);
        {
            let mut put = pin!(self.table.put_async(&key, &value));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                if put.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
        match self.random.bool() {
            true => self.put(key),
            false => self.delete(&key),
        }
    }

    fn delete_range(&mut self) {
        let (from, to) = (vec![self.number, self.random.u8(..KEYS)], [self.number + 1]);
        let options = TransactionOptions::default();
        let mut transaction = self.table.db().begin(options).unwrap();
        let deleted = transaction.delete_range(self.table, &from[..]..&to[..]);
        if let Some(count) = done(deleted) {
            assert_eq!(count, self.twin.range(from.clone()..).count() as u64);
            if done(transaction.commit()).is_some() {
                self.twin.split_off(&from);
            }
        }
    }

    fn look(&mut self) {
        let Some((snapshot, twin)) = self.look.take() else {
            let snapshot = done(self.table.db().snapshot());
            self.look = snapshot.map(|snapshot| (snapshot, self.twin.clone()));
            return;
        };
        let (from, to) = ([self.number], [self.number + 1]);
        let range = snapshot.range(self.table, &from[..]..&to[..]);
        if let Some(found) = done(range.collect::<Result<Twin>>()) {
            assert!(found == twin, "snapshot of thread {}", self.number);
        }
    }

    fn check(&mut self) {
        let key = self.key();
        let found = self.table.get(&key).unwrap();
        assert!(found.as_ref() == self.twin.get(&key), "{key:?}");
    }

    fn step(&mut self) {
        match self.random.u32(..20) {
            0..7 => {
                let key = self.key();
                self.put(key);
            }
            7..9 => {
                let key = self.key();
                self.delete(&key);
            }
            9..13 => self.drop_put(),
            13 => self.delete_range(),
            14..16 => self.look(),
            _ => self.check(),
        }
    }
}

fn check(table: &Table, twin: &Twin) {
    let found: Result<Twin> = table.iter().collect();
    assert!(found.unwrap() == *twin, "all that is stored");
    assert_eq!(table.len(), twin.len() as u64);
}

#[test]
fn chunks_that_move_while_they_are_written_and_deleted_stay_whole() {
    let steps: u32 = std::env::var("PANDO_STEPS").map_or(150, |steps| steps.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(std::process::id().into());
    let db = options(random.usize(64..360))
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    let mut all = Twin::new();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (table, random) = (&table, random.fork());
                scope.spawn(move || {
                    let (twin, look) = (Twin::new(), None);
                    let mut worker = Worker {
                        number,
                        random,
                        table,
                        twin,
                        look,
                    };
                    (0..steps).for_each(|_| worker.step());
                    worker.twin
                })
            })
            .collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            if random.bool() {
                db.checkpoint().unwrap();
                continue;
            }
            let go_on = |_| match random.u32(..50) {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            };
            db.compact(go_on).unwrap();
        }
        for worker in workers {
            all.extend(worker.join().unwrap());
        }
    });
    while db.occupancy().helped > 0 {
        thread::yield_now();
    }
    check(&table, &all);
    drop(table);
    db.close().unwrap();
    verified(directory.path());
    let db = options(64).open(directory.path()).unwrap();
    check(&db.table("t").unwrap(), &all);
    db.close().unwrap();
}
