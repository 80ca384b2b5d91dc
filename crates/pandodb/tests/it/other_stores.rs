//! Tables of another store, and of an earlier opening of the same one: whoever is given one refuses
//! it, and neither store is changed.

use std::task::Waker;

use pandodb::device::AnyDevice;
use pandodb::device::faulty::{CrashMode, FaultyDevice};
use pandodb::nonblocking::{Polled, Reactor, ValidatedBatch};
use pandodb::{
    Batch, Db, Error, LargeValue, Result, Table, TableOptions, VerifyReport, WriteOptions,
};

use crate::fixture::open_on;
use crate::futures::block_on;
use crate::nonblocking::run;

/// Table `a` of one store has the tree id of `x` of the other, and `b` that of `a`.
const ONE: [&str; 2] = ["a", "b"];
const OTHER: [&str; 2] = ["x", "a"];

fn open(device: &FaultyDevice) -> Db {
    open_on(device, Db::builder().max_memory(8 << 20))
}

/// Makes a store with two tables, each with its name as an entry.
fn filled(names: [&str; 2]) -> (FaultyDevice, Db, [Table; 2]) {
    let device = FaultyDevice::new(1);
    let db = open(&device);
    let tables = names.map(|name| {
        let options = TableOptions::new().counted(true);
        let table = db.table_with(name, options).unwrap();
        table.put(b"k", name.as_bytes()).unwrap();
        table
    });
    (device, db, tables)
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::OtherStore)), "{result:?}");
}

/// Checks that the store is sound and takes writes, and that its tables are as they were made: now,
/// after a replay of the log, and after a close.
fn check(device: &FaultyDevice, db: Db, names: [&str; 2]) {
    let look = |db: &Db| {
        for name in names {
            let table = db.existing_table(name).unwrap();
            let entries: Vec<_> = table.iter().map(|entry| entry.unwrap()).collect();
            let made = (b"k".to_vec(), name.as_bytes().to_vec());
            assert_eq!(entries, [made], "{name}");
            assert_eq!(table.len(), 1, "{name}");
        }
    };
    look(&db);
    let table = db.table(names[0]).unwrap();
    table.put(b"k", names[0].as_bytes()).unwrap();
    drop(table);
    look(&open(&device.after_crash(7, CrashMode::AllLost)));
    db.close().unwrap();
    look(&open(device));
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert_eq!(report.damages, []);
}

fn batch_of(table: &Table, value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(table, b"k", value);
    batch.put(table, b"l", b"v");
    batch
}

/// A value in chunks of the store.
fn large(db: &Db) -> LargeValue {
    let bytes = vec![1; 1 << 20];
    let mut writer = db.value_writer(bytes.len() as u64).unwrap();
    writer.write(&bytes).unwrap();
    writer.finish().unwrap()
}

/// Calls all that takes tables on `db`, with `own` and with what is not a table of it.
fn refuse_all(db: &Db, own: &Table, foreign: &[Table; 2]) {
    let [first, second] = foreign;
    assert_refused(db.clear_tables(&[first]));
    assert_refused(db.clear_tables(&[own, second]));
    assert_refused(db.swap_tables(&[(first, second)]));
    assert_refused(db.swap_tables(&[(own, second)]));
    assert_refused(db.swap_tables(&[(second, own)]));
    let options = WriteOptions::default();
    // The longest one would go to chunks of the wrong store.
    for value in [&b"v"[..], &vec![1; db.plain_bytes_max() + 1]] {
        let mut batch = batch_of(second, value);
        assert_refused(db.write(&mut batch, options));
        batch.put(own, b"k", b"v");
        assert_refused(db.write(&mut batch, options));
        assert_refused(block_on(db.write_async(batch, options)));
    }
    let mut deletes = Batch::new();
    deletes.delete(second, b"k");
    assert_refused(db.write(&mut deletes, options));
    let mut batch = Batch::new();
    batch.put_large(second, b"k", large(db));
    assert_refused(db.write(&mut batch, options));
}

/// The same with a batch of an event loop, which the refusals leave usable.
fn refuse_all_in_loops(db: &Db, own: &Table, foreign: &[Table; 2]) {
    let [first, second] = foreign;
    let mut reactor = Reactor::new(db, Waker::noop().clone()).unwrap();
    let mut batch = ValidatedBatch::new(db);
    let mut out = Vec::new();
    assert_refused(batch.get(second, b"k", &mut out));
    assert_refused(batch.open(second, b"k", &mut out));
    assert_refused(batch.put(second, b"k", b"v"));
    assert_refused(batch.put_large(second, b"k", large(db)));
    let (mut key, mut value) = (Vec::new(), Vec::new());
    assert_refused(batch.entry_from(second, (b"", 0), (&mut key, &mut value)));
    // Who was told goes on.
    let name = own.name().as_bytes().to_vec();
    batch.put(own, b"k", &name).unwrap();
    run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    batch.reset();
    let Polled::Ready(watch) = ValidatedBatch::new(second.db()).watch(second, b"k") else {
        panic!("nobody writes the key");
    };
    let calls: [&dyn Fn(&mut ValidatedBatch); 7] = [
        &|batch| batch.delete(second, b"k"),
        &|batch| batch.clear_table(first),
        &|batch| batch.swap_tables(first, second),
        &|batch| batch.swap_tables(own, second),
        &|batch| batch.swap_tables(second, own),
        &|batch| batch.expect(&watch),
        &|batch| assert!(matches!(batch.expect_absent(&watch), Polled::Ready(()))),
    ];
    for (number, call) in calls.iter().enumerate() {
        let place = batch.place();
        call(&mut batch);
        assert!(!batch.go_on_from(place), "its commit has to fail");
        // The commit says what these could not, and says it again.
        assert_refused(batch.try_commit(&mut reactor));
        assert_refused(batch.try_commit(&mut reactor));
        match number % 2 {
            0 => batch.reset(),
            _ => batch.rewind(),
        }
        batch.put(own, b"k", &name).unwrap();
        run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
        batch.reset();
    }
}

#[test]
fn tables_of_another_store_are_refused() {
    let (device, db, tables) = filled(ONE);
    let (other_device, other, foreign) = filled(OTHER);
    refuse_all(&db, &tables[0], &foreign);
    refuse_all_in_loops(&db, &tables[0], &foreign);
    drop((tables, foreign));
    check(&device, db, ONE);
    check(&other_device, other, OTHER);
}

/// Its tables may have got other trees since.
#[test]
fn tables_of_an_earlier_opening_are_refused() {
    let (device, db, earlier) = filled(ONE);
    db.close().unwrap();
    let db = open(&device);
    let own = db.table("a").unwrap();
    refuse_all(&db, &own, &earlier);
    refuse_all_in_loops(&db, &own, &earlier);
    drop((own, earlier));
    check(&device, db, ONE);
}

/// A batch belongs to no store before it is written, and may read in all of them.
#[test]
fn a_batch_may_read_another_store() {
    let (device, db, tables) = filled(ONE);
    let (_, _other, foreign) = filled(OTHER);
    let mut batch = Batch::new();
    let name = batch.get(&foreign[1], b"k").unwrap().unwrap();
    batch.put(&tables[0], b"k", &name);
    db.write(&mut batch, WriteOptions::default()).unwrap();
    drop((tables, batch));
    check(&device, db, ONE);
}
