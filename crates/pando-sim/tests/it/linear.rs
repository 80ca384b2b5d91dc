//! Threads use a store of 64 frames. Their calls must be linearizable.

use std::collections::BTreeMap;

use pando_device::faulty::Random;
use pando_sim::linear::{self, Action, Call, Key, Value};
use pando_sim::panics;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, thread};
use pandodb::{Batch, Builder, Db, Durability, Table, WriteOptions};

use crate::number;

const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

fn name(key: Key) -> Vec<u8> {
    // The keys are far apart, so that they lie in different leaves.
    format!("{:03}{}", key * 37 % 100, "x".repeat(60)).into_bytes()
}

fn number_of(value: Option<Vec<u8>>) -> Value {
    value.map(|bytes| u64::from_le_bytes(bytes[..8].try_into().unwrap()))
}

/// Returns a value of one of several lengths, some of which need overflow pages.
fn bytes(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize([8, 200, 1500, 6000][(value % 4) as usize], value as u8);
    bytes
}

struct Rig {
    db: Db,
    table: Table,
    clock: AtomicU64,
    history: Mutex<Vec<Call>>,
}

impl Rig {
    fn call(&self, act: impl FnOnce() -> Action) {
        // AcqRel: the stamps order calls of different threads.
        let start = self.clock.fetch_add(1, Ordering::AcqRel);
        let action = act();
        let end = Some(self.clock.fetch_add(1, Ordering::AcqRel));
        self.history.lock().push(Call { action, start, end });
    }

    fn step(&self, random: &mut Random, keys: Key, batches: bool, value: u64) {
        let key = random.below(u64::from(keys)) as Key;
        match random.below(10) {
            0..4 => self.call(|| {
                let found = number_of(self.table.get(&name(key)).unwrap());
                Action::Read(vec![(key, found)])
            }),
            4 if batches => self.call(|| {
                let pairs: Vec<(Key, Value)> = (0..3)
                    .map(|step| ((key + step) % keys, Some(value)))
                    .collect();
                let mut batch = Batch::new();
                for (key, value) in &pairs {
                    batch.put(&self.table, &name(*key), &bytes(value.unwrap()));
                }
                self.db.write(&mut batch, NONE).unwrap();
                Action::Write(pairs)
            }),
            4..7 => self.call(|| {
                self.table
                    .put_with(&name(key), &bytes(value), NONE)
                    .unwrap();
                Action::Write(vec![(key, Some(value))])
            }),
            7 => self.call(|| {
                self.table.delete_with(&name(key), NONE).unwrap();
                Action::Write(vec![(key, None)])
            }),
            8 => {
                let old = number_of(self.table.get(&name(key)).unwrap());
                self.call(|| {
                    let old_bytes = old.map(bytes);
                    let done = self
                        .table
                        .compare_and_put(&name(key), old_bytes.as_deref(), Some(&bytes(value)))
                        .unwrap();
                    Action::Swap(key, old, Some(value), done)
                });
            }
            _ => self.call(|| {
                let sum = self.table.update(&[b"c", &name(key)[..]].concat(), |old| {
                    let old = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                    Some((old + 1).to_le_bytes().to_vec())
                });
                Action::Add(1000 + key, number_of(sum.unwrap()))
            }),
        }
    }
}

fn check(seed: u64, threads: u64, keys: Key, batches: bool) {
    let options = Builder::default()
        .max_memory(2 << 20)
        .frames(64)
        .log_bytes(1 << 20);
    panics::watch(&format!("seed {seed}"));
    let db = options
        .durability(Durability::None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    let ballast = db.table("ballast").unwrap();
    let rig = Rig {
        table,
        db,
        clock: AtomicU64::new(0),
        history: Mutex::new(Rank::Caller, Vec::new()),
    };
    thread::scope(|scope| {
        for thread in 0..threads {
            let (rig, ballast) = (&rig, &ballast);
            scope.spawn(move || {
                let mut random = Random::new(seed).part(thread);
                for step in 0..400 {
                    rig.step(&mut random, keys, batches, step * threads + thread + 1);
                    // Other entries compete for the frames of the pool.
                    let other = random.below(300).to_be_bytes();
                    if random.once_in(2) {
                        ballast.put_with(&other, &[1; 900], NONE).unwrap();
                    } else {
                        ballast.get(&other).unwrap();
                    }
                    if random.once_in(100) {
                        rig.db.request_checkpoint();
                    }
                }
            });
        }
    });
    let history = std::mem::take(&mut *rig.history.lock());
    if let Err(violation) = linear::check(&history, &BTreeMap::new()) {
        panic!("seed {seed}: {violation}");
    }
}

#[test]
fn registers_and_counters_are_linearizable() {
    for seed in 0..number("PANDO_SEEDS", 4) {
        check(seed, 4, 6, false);
    }
}

#[test]
fn batches_over_several_leaves_are_seen_whole() {
    for seed in 0..number("PANDO_SEEDS", 4) {
        check(seed, 3, 5, true);
    }
}

#[test]
fn who_has_seen_one_key_of_a_batch_sees_the_others() {
    let options = Builder::default().max_memory(2 << 20).frames(64);
    panics::watch("a store");
    let db = options
        .durability(Durability::None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    let stop = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // A batch is applied in the order of its keys, which takes a while. A reader that
                // has seen its first key must see its last one.
                while stop.load(Ordering::Relaxed) == 0 {
                    let first = number_of(table.get(&[0; 40]).unwrap());
                    let last = number_of(table.get(&[11; 40]).unwrap());
                    assert!(last >= first, "{first:?}, and then {last:?}");
                }
            });
        }
        for round in 1..3000_u64 {
            let mut batch = Batch::new();
            for key in 0..12 {
                let mut value = round.to_le_bytes().to_vec();
                value.resize(if key % 11 == 0 { 1000 } else { 5000 }, 1);
                batch.put(&table, &[key; 40], &value);
            }
            db.write(&mut batch, NONE).unwrap();
        }
        stop.store(1, Ordering::Relaxed);
    });
}
