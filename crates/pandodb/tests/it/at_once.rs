//! Batches that change tables as a whole are seen whole, and once they are durable (decision 113).

use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{thread, thread_waker};
use pandodb::nonblocking::{Outcome, Reactor, ValidatedBatch};
use pandodb::{Batch, Db, Durability, Table};

use crate::fixture::{NONE, open_on};
use crate::nonblocking::run;

fn reactor(db: &Db) -> Reactor {
    Reactor::new(db, thread_waker()).unwrap()
}

fn end(batch: &mut ValidatedBatch, reactor: &mut Reactor) -> Outcome {
    run(reactor, |reactor| batch.try_commit(reactor).unwrap())
}

/// Returns the number that a batch has put; there always is one.
fn number_in(table: &Table) -> u64 {
    let value = table.get(b"n").unwrap();
    u64::from_be_bytes(value.expect("emptied, and not filled").try_into().unwrap())
}

/// Tells readers to stop, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn put_number(batch: &mut ValidatedBatch, table: &Table, number: u64) {
    // The leaf is split meanwhile.
    for row in 0..60_u64 {
        batch.put(table, &row.to_be_bytes(), &[7; 100]).unwrap();
    }
    batch.put(table, b"n", &number.to_be_bytes()).unwrap();
}

/// Batch n empties two tables and puts n into each of them, and into a third one that it does not
/// empty.
#[test]
fn nobody_sees_a_part_of_a_batch_that_empties_and_fills_tables() {
    const BATCHES: u64 = 300;
    let options = Db::builder().max_memory(32 << 20);
    let db = options.durability(Durability::None).open_in_memory();
    let db = db.unwrap();
    let tables = ["a", "b", "kept"].map(|name| db.table(name).unwrap());
    for table in &tables {
        table.put(b"n", &0_u64.to_be_bytes()).unwrap();
    }
    let (ended, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let (ended, looks, tables) = (&ended, &looks, &tables);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let [first, second, third] = order.map(|place| number_in(&tables[place]));
                    assert!(
                        first <= second && second <= third,
                        "{first} {second} {third}"
                    );
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let mut reactor = reactor(&db);
            let mut committed = 0;
            while !ended.load(Ordering::Relaxed) {
                let mut batch = ValidatedBatch::new(&db);
                let read = [2, 0, 1].map(|place| {
                    let mut value = Vec::new();
                    let table = &tables[place];
                    let found = run(&mut reactor, |_| {
                        batch.get(table, b"n", &mut value).unwrap()
                    });
                    found.then_some(value)
                });
                if let Outcome::Committed(_) = end(&mut batch, &mut reactor) {
                    assert!(read[0].is_some(), "emptied, and not filled");
                    assert!(read.iter().all(|one| *one == read[0]), "{read:?}");
                    committed += 1;
                }
            }
            assert!(committed > 0, "all conflicted");
        });
        let _ends = Ends(&ended);
        let mut reactor = reactor(&db);
        for number in 1..=BATCHES {
            let mut batch = ValidatedBatch::new(&db);
            for table in &tables[..2] {
                batch.clear_table(table);
            }
            for table in &tables {
                put_number(&mut batch, table, number);
            }
            let outcome = end(&mut batch, &mut reactor);
            assert!(
                matches!(outcome, Outcome::Committed(Some(_))),
                "{outcome:?}"
            );
            assert_eq!([0, 1, 2].map(|place| tables[place].len()), [61; 3]);
        }
    });
    assert!(looks.into_inner() > 0, "nobody has looked");
}

/// All tables have the number n, then none has any, then all have n + 1.
#[test]
fn nobody_sees_some_tables_emptied_and_others_not() {
    let options = Db::builder().max_memory(32 << 20);
    let db = options.durability(Durability::None).open_in_memory();
    let db = db.unwrap();
    let names = (0..120).map(|number| format!("t{number}"));
    let tables: Vec<Table> = names.map(|name| db.table(&name).unwrap()).collect();
    let (ended, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let number_of = |table: &Table| {
        let value = table.get(b"n").unwrap();
        value.map(|value| u64::from_be_bytes(value.try_into().unwrap()))
    };
    thread::scope(|scope| {
        for [one, two] in [[0, 119], [119, 0]].map(|of| of.map(|place: usize| &tables[place])) {
            let (ended, looks) = (&ended, &looks);
            scope.spawn(move || {
                let mut known = None;
                while !ended.load(Ordering::Relaxed) {
                    match (number_of(one), known) {
                        (None, Some(before)) => {
                            let other = number_of(two);
                            assert!(
                                other.is_none_or(|other| other > before),
                                "{before}, {other:?}"
                            );
                            looks.fetch_add(1, Ordering::Relaxed);
                            known = None;
                        }
                        (found, _) => known = found,
                    }
                }
            });
        }
        let _ends = Ends(&ended);
        let all: Vec<&Table> = tables.iter().collect();
        for number in 0..1_200_u64 {
            let mut batch = Batch::new();
            for table in &tables {
                batch.put(table, b"n", &number.to_be_bytes());
            }
            db.write(&mut batch, NONE).unwrap();
            db.clear_tables(&all).unwrap();
        }
    });
    assert!(looks.into_inner() > 0, "nobody has looked");
}

#[test]
fn a_table_is_emptied_for_readers_when_that_is_durable() {
    for durability in [Durability::Durable, Durability::None] {
        let device = FaultyDevice::new(3);
        let options = Db::builder().max_memory(8 << 20).durability(durability);
        let db = open_on(&device, options);
        let table = db.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let mut batch = ValidatedBatch::new(&db);
        batch.clear_table(&table);
        let Outcome::Committed(Some(lsn)) = end(&mut batch, &mut reactor(&db)) else {
            panic!("nobody else changes tables");
        };
        assert_eq!(table.get(b"key").unwrap(), None);
        let is_durable = db.durable_lsn() >= lsn;
        assert_eq!(is_durable, durability == Durability::Durable);
    }
}

/// Who finds a loaded entry ends the power at once.
#[test]
fn what_was_loaded_is_shown_when_it_is_durable() {
    let mut shown = 0;
    for round in 0..100 {
        let device = FaultyDevice::new(round);
        let db = open_on(&device, Db::builder().max_memory(8 << 20));
        let table = db.table("t").unwrap();
        db.flush().unwrap();
        let (is_shown, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed)
                    && let Ok(found) = table.get(&7_u32.to_be_bytes())
                {
                    if found.is_some() {
                        device.crash_now();
                        is_shown.store(true, Ordering::Relaxed);
                        break;
                    }
                }
            });
            let _ends = Ends(&is_over);
            // It may end with an error when the power is gone.
            let entries = (0..100_u32).map(|key| (key.to_be_bytes(), [7; 20]));
            let _loaded = table.load_sorted(entries);
        });
        let device = device.after_crash(7, CrashMode::AllLost);
        drop((table, db));
        let db = open_on(&device, Db::builder().max_memory(8 << 20));
        let found = db.table("t").unwrap().get(&7_u32.to_be_bytes()).unwrap();
        if is_shown.into_inner() {
            assert!(found.is_some(), "shown, and gone after the power cut");
            shown += 1;
        }
    }
    assert!(shown > 0, "nobody has looked");
}
