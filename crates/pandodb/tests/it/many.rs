//! Reads of many keys at once: compared with single reads, on small pools, with closures that panic
//! or call the store, and with reads that fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use pando_sync::thread;
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::statistics::{Measure, Ticker};
use pandodb::{Db, Error, IoBackend, Occupancy, Table};

use crate::fixture::{fill, open_on};

fn filled(db: &Db, keys: u32) -> Table {
    let table = db.table("t").unwrap();
    let short = |number| vec![number as u8; 100 + (number % 7) as usize * 100];
    fill(&table, 0..keys, |number| {
        (number.to_be_bytes(), short(number))
    });
    // Some values are long and lie in pages of their own.
    let long = |number: u32| (number.to_be_bytes(), vec![number as u8; 30_000]);
    fill(&table, (0..keys).step_by(501), long);
    db.checkpoint().unwrap();
    // The maintenance thread reads the garbage table once after the store was opened, perhaps only
    // now. A test that lets a read fail must not meet that one.
    while db.garbage_left() {
        thread::yield_now();
    }
    table
}

fn open(backend: IoBackend, frames: usize, place: &std::path::Path) -> Db {
    let options = Db::builder()
        .max_memory(16 << 20)
        .frames(frames)
        .io_backend(backend);
    match backend {
        IoBackend::Memory => options.open_in_memory().unwrap(),
        _ => options.open(place).unwrap(),
    }
}

/// Returns `count` keys, some of which do not exist and some of which are repeated.
fn some_keys(seed: u64, count: usize, keys: u32) -> Vec<[u8; 4]> {
    let mut random = Rng::with_seed(seed);
    (0..count)
        .map(|_| random.u32(..keys + keys / 10).to_be_bytes())
        .collect()
}

#[test]
fn many_keys_give_what_single_reads_give() {
    for (backend, frames) in [
        (IoBackend::Memory, 64),
        (IoBackend::Pread, 64),
        (IoBackend::Memory, 1000),
        (IoBackend::Pread, 300),
    ] {
        let place = tempfile::tempdir().unwrap();
        let db = open(backend, frames, place.path());
        let table = filled(&db, 4000);
        for (seed, count) in [(1, 0), (2, 1), (3, 17), (4, 128), (5, 1024), (6, 2500)] {
            let keys = some_keys(seed, count, 4000);
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let many = table.get_many(&keys).unwrap();
            assert_eq!(many.len(), keys.len());
            for (key, value) in keys.iter().zip(many) {
                assert_eq!(value, table.get(key).unwrap(), "{key:?}");
            }
        }
        assert_eq!(db.occupancy(), Occupancy::default());
    }
}

#[test]
fn threads_share_pages_and_frames_and_everybody_gets_all() {
    let place = tempfile::tempdir().unwrap();
    let db = open(IoBackend::Pread, 64, place.path());
    let table = filled(&db, 3000);
    thread::scope(|scope| {
        for seed in 0..6 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..12 {
                    let keys = some_keys(seed / 2 + round, 100, 3000);
                    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                    let mut seen = vec![0; keys.len()];
                    let each = |at: usize, value: Option<&[u8]>| {
                        seen[at] += 1;
                        let number = u32::from_be_bytes(keys[at].try_into().unwrap());
                        assert_eq!(value.is_some(), number < 3000);
                        assert!(value.is_none_or(|value| value[0] == number as u8));
                    };
                    table.get_many_with(&keys, each).unwrap();
                    assert!(seen.iter().all(|seen| *seen == 1));
                }
            });
        }
    });
    assert_eq!(db.occupancy(), Occupancy::default());
}

#[test]
fn a_leaf_that_is_missed_is_read_once_however_many_of_its_keys_are_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let db = open(IoBackend::Pread, 1000, place.path());
    let table = filled(&db, 3000);
    drop((table, db));
    let db = open(IoBackend::Pread, 1000, place.path());
    let table = db.existing_table("t").unwrap();
    let keys: Vec<[u8; 4]> = (0..3000_u32).map(u32::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let before = db.statistics();
    assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
    let spent = db.statistics().since(&before);
    // The maintenance thread may be in the middle of a read of its own.
    let (faults, reads) = (spent.get(Ticker::Faults), spent.get(Ticker::PageReads));
    assert!(
        faults.abs_diff(reads) <= 1,
        "{faults} faults, {reads} reads"
    );
    let after = db.statistics();
    assert!(table.get_many(&keys).unwrap().iter().all(Option::is_some));
    assert_eq!(
        db.statistics().since(&after).get(Ticker::PageReads),
        0,
        "each page was read once, and stayed"
    );
}

/// Leaves that were read before are there for reads of one key at a time, long values and missing
/// keys among them; a page that cannot be read is left to the read that needs it.
#[test]
fn leaves_are_read_before_they_are_looked_into() {
    let device = FaultyDevice::new(1);
    let options = || Db::builder().max_memory(16 << 20).frames(1000);
    let db = open_on(&device, options());
    drop(filled(&db, 3000));
    db.close().unwrap();
    let db = open_on(&device, options());
    let table = db.existing_table("t").unwrap();
    let snapshot = db.snapshot().unwrap();
    let keys = some_keys(7, 2000, 3000);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    assert_eq!(snapshot.prefetch(&table, &[]).unwrap().keys, 0);
    db.reset_statistics();
    let mut read_again = 0;
    let mut left = &keys[..];
    while !left.is_empty() {
        let now;
        (now, left) = left.split_at(snapshot.prefetch(&table, left).unwrap().keys);
        let before = db.statistics();
        for key in now {
            let length = snapshot.get_reader(&table, key).unwrap();
            assert_eq!(length.is_some(), *key < &3000_u32.to_be_bytes()[..]);
        }
        let spent = db.statistics().since(&before);
        read_again += spent.get(Ticker::PageReadsLeaf);
    }
    // A page that nobody has used yet may have to make room for those of a long value.
    assert!(read_again <= 20, "{read_again} of 2000");
    let depth = db.histogram(Measure::DeviceQueueDepth).max();
    assert!(depth >= 16, "{depth}");
    let again = snapshot.prefetch(&table, &keys).unwrap();
    assert_eq!((again.keys, again.missing), (125, 0));
    drop((snapshot, table));
    db.close().unwrap();
    let db = open_on(&device, options());
    let table = db.existing_table("t").unwrap();
    while db.garbage_left() {
        thread::yield_now();
    }
    let snapshot = db.snapshot().unwrap();
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    assert!(snapshot.prefetch(&table, &keys).unwrap().missing > 0);
    let failed = snapshot.get(&table, keys[0]).unwrap_err();
    assert!(matches!(failed, Error::CorruptPage { .. }), "{failed}");
    assert!(failed.to_string().contains("os error 5"), "{failed}");
    device.clear_faults();
    assert!(snapshot.prefetch(&table, &keys).unwrap().missing > 0);
    assert!(
        snapshot
            .get(&table, &5_u32.to_be_bytes())
            .unwrap()
            .is_some()
    );
    assert_eq!(db.occupancy().pin_frames, 0);
}

#[test]
fn a_closure_that_panics_loses_nothing_and_one_may_call_the_store() {
    let place = tempfile::tempdir().unwrap();
    let db = open(IoBackend::Pread, 64, place.path());
    let table = filled(&db, 3000);
    for round in 0..40 {
        let keys = some_keys(round, 60, 3000);
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut left = round % 7;
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            table.get_many_with(&keys, |_, _| {
                assert_eq!(db.occupancy(), Occupancy::default(), "while the user runs");
                assert!(left > 0, "as planned");
                left -= 1;
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(db.occupancy(), Occupancy::default());
    }
    // The closure calls the store again, three levels deep.
    let keys = some_keys(77, 20, 3000);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut inner = 0;
    let nested = |_: usize, value: Option<&[u8]>| {
        let first = value.map(|value| value[0]);
        table
            .get_many_with(&keys[..3], |at, value| {
                assert_eq!(table.get(keys[at]).unwrap().as_deref(), value);
                inner += 1;
            })
            .unwrap();
        assert_eq!(first, value.map(|value| value[0]));
    };
    table.get_many_with(&keys, nested).unwrap();
    assert_eq!(inner, 60);
}

#[test]
fn a_read_that_fails_is_an_error_of_the_call_and_leaves_nothing_behind() {
    let device = FaultyDevice::new(5);
    let options = Db::builder().max_memory(16 << 20).frames(64);
    let db = Db::open_device(options, device.clone().into()).unwrap();
    let table = filled(&db, 3000);
    let keys = some_keys(5, 300, 3000);
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for nth in [1, 2, 9, 40] {
        device.fail(FaultPlan::once(Operation::Read, "data", nth, Fault::Io));
        let error = table.get_many(&keys).unwrap_err();
        assert!(error.to_string().contains("page"), "{error}");
        assert_eq!(db.occupancy(), Occupancy::default());
        // Only that one read has failed.
        assert_eq!(table.get_many(&keys).unwrap().len(), keys.len());
    }
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| table.get_many(&keys).unwrap_err());
        }
    });
    assert_eq!(db.occupancy(), Occupancy::default());
}
