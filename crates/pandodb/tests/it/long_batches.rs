//! Batches of thousands of writes on a disk that they fill: what is accepted is there as a whole,
//! what is refused has changed nothing, and no batch dirties more pages than it has blocks for,
//! which debug builds check.

use std::collections::BTreeMap;

use fastrand::Rng;
use pandodb::device::{AnyDevice, MemoryDevice};
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};
use pandodb::{Batch, Db, Durability, Error, Table};

use crate::fixture::NONE;
use crate::nonblocking::run;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes by key; `None` deletes it.
type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A key: places lie apart, those of one place have a long beginning in common.
fn key(place: u32, number: u32) -> Vec<u8> {
    [&place.to_be_bytes()[..], &[b'k'; 60], &number.to_be_bytes()].concat()
}

fn value(random: &mut Rng, bytes_max: usize) -> Vec<u8> {
    vec![random.u8(..); random.usize(..bytes_max)]
}

/// The writes of one batch, which are alike.
fn writes(model: &Model, random: &mut Rng) -> Writes {
    let count = random.usize(2048..5000);
    let place = random.u32(..8);
    let mut writes = Writes::new();
    let shape = random.u32(..6);
    while writes.len() < count {
        let number = writes.len() as u32;
        let (key, value) = match shape {
            // Neighbours, in one leaf at first.
            0 => (key(place, number * 2), Some(value(random, 150))),
            // All over one place.
            1 => (key(place, random.u32(..1 << 24)), Some(value(random, 150))),
            // Keys of all places, which begin differently and have all lengths.
            2 => {
                let mut key = key(random.u32(..1 << 30), random.u32(..));
                key.truncate(random.usize(5..=key.len()));
                (key, Some(value(random, 100)))
            }
            // Each shares more with the key that follows them.
            3 => {
                let mut key = key(place, number / 60);
                key.truncate(5 + number as usize % 59);
                key.push(b'a');
                key.extend((number / 59).to_be_bytes());
                (key, Some(value(random, 40)))
            }
            // Other lengths for what is there, and deletes of neighbours.
            _ => break,
        };
        writes.insert(key, value);
    }
    if shape >= 4 {
        let from = key(place, random.u32(..4000));
        let keys = model.range(from..).map(|(key, _)| key.clone());
        for key in keys.take(count) {
            let value = (shape == 4).then(|| value(random, 200));
            writes.insert(key, value);
        }
    }
    writes
}

fn compare(table: &Table, model: &Model) {
    assert_eq!(table.len(), model.len() as u64);
    let entries = table.iter().map(|entry| entry.unwrap());
    assert!(
        entries.eq(model
            .iter()
            .map(|(key, value)| (key.clone(), value.clone()))),
        "it has other entries"
    );
}

#[test]
fn long_batches_on_a_small_disk_equal_a_map() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..6 {
        let mut random = Rng::with_seed(seed);
        let device = AnyDevice::from(MemoryDevice::new(26 << 20));
        let open = || {
            let options = Db::builder().max_memory(32 << 20).log_bytes(8 << 20);
            Db::open_device(options, device.clone()).unwrap()
        };
        let mut db = open();
        let mut table = db.table("t").unwrap();
        let mut model = Model::new();
        for step in 0..50 {
            let writes = writes(&model, &mut random);
            let mut batch = Batch::new();
            for (key, value) in &writes {
                match value {
                    Some(value) => batch.put(&table, key, value),
                    None => batch.delete(&table, key),
                }
            }
            match db.write(&mut batch, NONE) {
                Ok(_) => {
                    accepted += 1;
                    for (key, value) in writes {
                        match value {
                            Some(value) => model.insert(key, value),
                            None => model.remove(&key),
                        };
                    }
                }
                Err(Error::Full { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if step % 10 == 9 {
                compare(&table, &model);
            }
            if step % 20 == 19 {
                db.close().unwrap();
                drop(table);
                db = open();
                table = db.table("t").unwrap();
                compare(&table, &model);
            }
        }
    }
    assert!(accepted > 100 && refused > 10, "{accepted}, {refused}");
}

/// Commits writes to `table` in a batch that also empties `emptied`, and fills that with `filler`.
fn commit_emptying(
    (db, reactor): (&Db, &mut Reactor),
    (table, writes): (&Table, &Writes),
    (emptied, filler): (&Table, &Writes),
) -> Result<(), Error> {
    let mut batch = ValidatedBatch::new(db);
    batch.clear_table(emptied);
    for (table, writes) in [(table, writes), (emptied, filler)] {
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(table, key, value)?,
                None => batch.delete(table, key),
            }
        }
    }
    let end = run(reactor, |reactor| match batch.try_commit(reactor) {
        Ok(Polled::Pending(pending)) => Polled::Pending(pending),
        Ok(Polled::Ready(outcome)) => Polled::Ready(Ok(outcome)),
        Err(error) => Polled::Ready(Err(error)),
    });
    end.map(|outcome| assert!(matches!(outcome, Outcome::Committed(Some(_)))))
}

/// Such a batch is applied by another thread, alone; its pages are counted in the same way.
#[test]
fn long_batches_that_empty_a_table_on_a_small_disk_equal_a_map() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..4 {
        let mut random = Rng::with_seed(seed);
        let device = AnyDevice::from(MemoryDevice::new(26 << 20));
        let options = Db::builder().max_memory(32 << 20).log_bytes(8 << 20);
        let options = options.durability(Durability::None);
        let db = Db::open_device(options, device).unwrap();
        let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
        let [table, emptied] = ["t", "emptied"].map(|name| db.table(name).unwrap());
        let (mut model, mut rest) = (Model::new(), Model::new());
        for step in 0..30 {
            let new = writes(&model, &mut random);
            let filler = writes(&Model::new(), &mut random);
            let of_store = (&db, &mut reactor);
            match commit_emptying(of_store, (&table, &new), (&emptied, &filler)) {
                Ok(()) => {
                    accepted += 1;
                    for (key, value) in new {
                        match value {
                            Some(value) => model.insert(key, value),
                            None => model.remove(&key),
                        };
                    }
                    let filler = filler.into_iter();
                    rest = filler
                        .filter_map(|(key, value)| Some((key, value?)))
                        .collect();
                }
                Err(Error::Full { .. }) => refused += 1,
                Err(Error::BatchTooLarge { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            if step % 10 == 9 {
                compare(&table, &model);
                compare(&emptied, &rest);
            }
        }
    }
    assert!(accepted > 40 && refused > 4, "{accepted}, {refused}");
}
