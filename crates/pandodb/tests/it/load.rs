//! Loads of keys in order.

use std::collections::BTreeMap;
use std::path::Path;

use fastrand::Rng;
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, InjectorDevice, MemoryDevice};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Builder, Compression, Db, Durability, Error, Table, WriteOptions};

use crate::fixture::{verified, wait_for_garbage};

fn key(number: u32) -> Vec<u8> {
    format!("user:{number:010}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    // One value in a thousand needs overflow pages.
    let bytes = if number % 1000 == 17 { 30_000 } else { 90 };
    vec![number as u8; bytes]
}

fn builder() -> Builder {
    Db::builder()
        .max_memory(8 << 20)
        .durability(Durability::None)
}

fn open(path: &Path) -> Db {
    builder().open(path).unwrap()
}

/// Copies the files of a store, as a crash would leave them.
fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let (path, target) = (file.path(), to.join(file.file_name()));
        if file.file_type().unwrap().is_dir() {
            copy_store(&path, &target);
        } else if file.file_name() != "LOCK" {
            std::fs::copy(path, target).unwrap();
        }
    }
}

fn settle(db: &Db) {
    wait_for_garbage(db);
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
}

/// Returns the number of bytes of blocks in use, once no garbage is left.
fn used_bytes(db: &Db) -> u64 {
    settle(db);
    let report = db.report();
    report.data_bytes - report.data_free_bytes
}

#[test]
fn a_sorted_load_fills_leaves_and_is_durable_on_return() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    let before = db.statistics().get(Ticker::LogWriteBytes);
    let entries = (0..20_000).map(|number| (key(number), value(number)));
    assert_eq!(table.load_sorted(entries).unwrap(), 20_000);
    let logged = db.statistics().get(Ticker::LogWriteBytes) - before;
    assert!(logged < 64 << 10, "{logged} bytes in the log");
    copy_store(directory.path(), copy.path());
    drop(table);
    db.close().unwrap();
    for path in [copy.path(), directory.path()] {
        // Opening the copy replays the record of the load.
        let db = open(path);
        let table = db.table("t").unwrap();
        for (number, entry) in table.iter().enumerate() {
            let number = number as u32;
            assert_eq!(entry.unwrap(), (key(number), value(number)));
        }
        assert_eq!(table.len(), 20_000);
        settle(&db);
        drop(table);
        db.close().unwrap();
        let report = verified(path);
        let leaves = report.stat.tables[0].tree[0];
        assert_eq!(leaves.keys, 20_000);
        assert!(leaves.fill_percent(4096) > 96.0, "{leaves:?}");
    }
}

/// Loads values of all lengths and keys of up to the greatest length, and compares with a map.
#[test]
fn what_was_loaded_is_what_a_map_holds() {
    let plain = builder().chunk_size(4096).chunk_values_over(70_000);
    let packed = builder().page_size(16384).block_size(512);
    let packed = packed.compression(Compression::Lz4);
    let large = builder().page_size(16384).block_size(4096);
    for options in [plain, packed, large] {
        let directory = tempfile::tempdir().unwrap();
        let db = options.open(directory.path()).unwrap();
        let table = db.table("t").unwrap();
        let mut model = BTreeMap::new();
        let mut random = Rng::with_seed(1);
        for number in 0..3000_u32 {
            let mut key = format!("{:05}", number / 7).into_bytes();
            if number % 40 < 5 {
                key.resize(random.usize(..db.key_bytes_max() - 9) + 5, b'k');
            }
            key.extend_from_slice(&number.to_be_bytes());
            let bytes = match number % 500 {
                7 => 60_000 + random.usize(..10_000),
                8 => 70_001 + random.usize(..200_000),
                9 => 4_500_000,
                _ if number % 11 == 0 => random.usize(..9000),
                _ => random.usize(..300),
            };
            model.insert(key, vec![number as u8; bytes]);
        }
        model.insert(Vec::new(), b"the least key".to_vec());
        model.insert(vec![255; db.key_bytes_max()], b"the greatest".to_vec());
        let count = model.len() as u64;
        assert_eq!(table.load_sorted(&model).unwrap(), count);
        check(&table, &model);
        drop(table);
        drop(db);
        verified(directory.path());
        let db = open(directory.path());
        let table = db.table("t").unwrap();
        check(&table, &model);
        // The loaded tree can be changed as any other.
        let removed: Vec<Vec<u8>> = model.keys().step_by(3).cloned().collect();
        for key in removed {
            assert!(table.delete(&key).unwrap());
            model.remove(&key);
        }
        for number in 0..500_u32 {
            let key = format!("{:05}+{number}", number * 7 % 430).into_bytes();
            table.put(&key, &[7; 700]).unwrap();
            model.insert(key, vec![7; 700]);
        }
        check(&table, &model);
        db.compact(|_| std::ops::ControlFlow::Continue(())).unwrap();
        check(&table, &model);
        drop(table);
        db.close().unwrap();
        verified(directory.path());
    }
}

fn check(table: &Table, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    assert_eq!(table.len(), model.len() as u64);
    let mut scanned = table.iter().map(Result::unwrap);
    for (key, value) in model {
        let (found_key, found) = scanned.next().unwrap();
        assert_eq!(&found_key, key);
        assert!(&found == value, "{} bytes", value.len());
        assert!(&table.get(key).unwrap().unwrap() == value);
    }
    assert!(scanned.next().is_none());
}

#[test]
fn only_an_empty_table_is_loaded_and_only_in_order() {
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(table.load_sorted([(b"k", b"v"); 0]).unwrap(), 0);
    let mut loader = table.loader().unwrap();
    let long = vec![b'v'; db.key_bytes_max() + 1];
    let too_long = loader.put(&long, b"v");
    assert!(matches!(too_long, Err(Error::KeyTooLong { .. })));
    for number in 0..5000 {
        loader.put(&key(number), &[1; 20]).unwrap();
    }
    // An entry that is refused leaves the load as it was.
    for wrong in [4999, 0] {
        let refused = loader.put(&key(wrong), &[2; 20]);
        assert!(matches!(refused, Err(Error::NotAscending { entry: 5000 })));
    }
    assert!(table.is_empty() && table.get(&key(7)).unwrap().is_none());
    assert_eq!(loader.finish().unwrap(), 5000);
    assert_eq!(table.len(), 5000);
    let keys = table.iter().map(|entry| entry.unwrap().0);
    assert!(keys.eq((0..5000).map(key)));
    assert!(matches!(table.loader(), Err(Error::NotEmpty { .. })));
    let wrong = db.table("wrong").unwrap();
    let refused = wrong.load_sorted([(b"b", b"1"), (b"a", b"2")]);
    assert!(matches!(refused, Err(Error::NotAscending { entry: 1 })));
    assert!(wrong.is_empty());
}

/// Loads that are dropped, or refused in the end.
#[test]
fn a_load_without_an_end_gives_everything_back() {
    let directory = tempfile::tempdir().unwrap();
    let options = builder().chunk_size(4096).chunk_values_over(40_000);
    let db = options.open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let value = |number: u32| match number % 1000 {
        19 => vec![7; 50_000],
        _ => value(number),
    };
    let mut before = None;
    for round in 0..4 {
        let mut loader = table.loader().unwrap();
        for number in 0..8000 * (round % 3) {
            loader.put(&key(number), &value(number)).unwrap();
            if number % 5000 == 4999 {
                db.checkpoint().unwrap();
            }
        }
        if round == 2 {
            table.put(b"other", b"entry").unwrap();
            let refused = loader.finish();
            assert!(matches!(refused, Err(Error::NotEmpty { .. })));
            assert_eq!(table.get(b"other").unwrap().unwrap(), b"entry");
            table.delete(b"other").unwrap();
        } else {
            drop(loader);
        }
        assert!(table.is_empty());
        let (used, pages) = (used_bytes(&db), db.report().pages);
        if round < 3 {
            // In the first rounds the mapping and the tables may still grow, so only later rounds
            // are compared.
            before = Some((used, pages));
        } else {
            assert_eq!(before, Some((used, pages)));
        }
        assert_eq!(db.occupancy().chunk_readers, 0);
    }
    let used = used_bytes(&db);
    drop(table);
    db.close().unwrap();
    verified(directory.path());
    let db = open(directory.path());
    assert_eq!(used_bytes(&db), used, "blocks had no owner");
}

#[test]
fn a_crash_in_a_load_leaves_an_empty_table() {
    let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    db.table("other").unwrap().put(b"a", b"b").unwrap();
    db.checkpoint().unwrap();
    let used = used_bytes(&db);
    let mut loader = table.loader().unwrap();
    for number in 0..20_000 {
        loader.put(&key(number), &value(number)).unwrap();
        if number % 4000 == 3999 {
            let copy = copies.path().join(number.to_string());
            db.checkpoint().unwrap();
            copy_store(directory.path(), &copy);
        }
    }
    drop(loader);
    for copy in std::fs::read_dir(copies.path()).unwrap() {
        let path = copy.unwrap().path();
        let leftover = verified(&path).pages_checked;
        assert!(leftover > 20, "{leftover}: no tree was left to be dropped");
        let db = open(&path);
        let table = db.table("t").unwrap();
        assert!(table.is_empty() && table.iter().next().is_none());
        assert_eq!(used_bytes(&db), used);
        assert_eq!(table.load_sorted([(b"k", b"v")]).unwrap(), 1);
        drop(table);
        db.close().unwrap();
        verified(&path);
    }
}

#[test]
fn of_two_loads_of_a_table_the_first_to_end_counts() {
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let (mut one, mut two) = (table.loader().unwrap(), table.loader().unwrap());
    for number in 0..6000 {
        one.put(&key(number), b"one").unwrap();
        two.put(&key(number + 1), b"two").unwrap();
    }
    assert_eq!(two.finish().unwrap(), 6000);
    assert!(matches!(one.finish(), Err(Error::NotEmpty { .. })));
    assert!(table.iter().all(|entry| entry.unwrap().1 == b"two"));
    assert_eq!(table.len(), 6000);
    settle(&db);
}

#[test]
fn a_table_may_be_emptied_during_a_load_and_not_dropped() {
    let db = builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut loader = table.loader().unwrap();
    loader.put(b"a", b"1").unwrap();
    table.put(b"b", b"2").unwrap();
    db.clear_tables(&[&table]).unwrap();
    assert_eq!(loader.finish().unwrap(), 1);
    assert_eq!(table.get(b"a").unwrap().unwrap(), b"1");
    db.clear_tables(&[&table]).unwrap();
    let mut loader = table.loader().unwrap();
    loader.put(b"a", b"1").unwrap();
    db.drop_table("t").unwrap();
    let again = db.table("t").unwrap();
    assert!(matches!(loader.finish(), Err(Error::NoSuchTable { .. })));
    assert!(again.is_empty());
    settle(&db);
}

/// A write after the end of a load is lost together with the load, or exists together with it.
#[test]
fn readers_and_writers_see_the_table_before_or_behind_the_load() {
    let db = builder().open_in_memory().unwrap();
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    let done = pando_sync::atomic::AtomicBool::new(false);
    pando_sync::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u32;
            while !done.load(pando_sync::atomic::Ordering::Relaxed) {
                let found = table.get(&key(number % 3000)).unwrap();
                let scanned = table.iter().map(Result::unwrap).count();
                assert!(scanned == 0 || scanned == 3000, "{scanned}");
                assert!(found.is_none() || table.len() == 3000);
                other.put(&key(number), b"beside").unwrap();
                number += 7;
            }
        });
        let mut loader = table.loader().unwrap();
        for number in 0..3000 {
            loader.put(&key(number), &value(number)).unwrap();
        }
        loader.finish().unwrap();
        for number in 0..3000 {
            assert_eq!(table.get(&key(number)).unwrap().unwrap(), value(number));
        }
        done.store(true, pando_sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_load_that_finds_the_disk_full_is_refused_and_the_store_goes_on() {
    for bytes in [12 << 20, 20 << 20, 40 << 20] {
        let device: AnyDevice = MemoryDevice::new(bytes).into();
        let options = builder().log_bytes(1 << 20);
        let db = Db::open_device(options, device.clone()).unwrap();
        let table = db.table("t").unwrap();
        let other = db.table("other").unwrap();
        other.put(b"a", &[1; 5000]).unwrap();
        let used = used_bytes(&db);
        let mut loader = table.loader().unwrap();
        let refused = (0..1_000_000_u32)
            .find_map(|number| loader.put(&key(number), &[7; 1000]).err())
            .unwrap();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        assert!(matches!(loader.finish(), Err(Error::Full { .. })));
        assert_eq!(used_bytes(&db), used);
        other.put(b"b", &[1; 5000]).unwrap();
        let entries = (0..2000).map(|number| (key(number), value(number)));
        assert_eq!(table.load_sorted(entries).unwrap(), 2000);
        drop((table, other));
        db.close().unwrap();
        let report = pandodb::VerifyReport::of_device(&device).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
}

/// A write of pages fails. Whichever it is, nothing names any page of the load.
#[test]
fn a_page_that_could_not_be_written_ends_the_load() {
    for nth in 1..12 {
        let device = InjectorDevice::new(MemoryDevice::new(1 << 28).into(), nth);
        let options = builder().checkpoint_interval(pando_sync::time::Duration::from_secs(3600));
        let db = Db::open_device(options, device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        db.checkpoint().unwrap();
        let mut loader = table.loader().unwrap();
        device.fail(FaultPlan::once(Operation::Write, "data", nth, Fault::Io));
        let mut numbers = 0..12_000_u32;
        let refused = numbers.find_map(|number| loader.put(&key(number), &value(number)).err());
        let refused = match refused {
            Some(error) => {
                drop(loader);
                Some(error)
            }
            None => loader.finish().err(),
        };
        device.clear_faults();
        let Some(refused) = refused else {
            assert_eq!(device.faults_struck(), 0);
            continue;
        };
        assert!(
            matches!(refused, Error::Io { .. } | Error::Poisoned { .. }),
            "{refused}"
        );
        if matches!(refused, Error::Io { .. }) {
            assert!(table.is_empty());
            let entries = (0..3000).map(|number| (key(number), value(number)));
            assert_eq!(table.load_sorted(entries).unwrap(), 3000);
            assert!(table.iter().all(|entry| entry.is_ok()));
        }
    }
}

/// Crashes at each sync of a load.
#[test]
fn a_crash_at_any_sync_leaves_all_of_a_load_or_nothing() {
    let (mut empty, mut whole) = (0, 0);
    for at in 1.. {
        let device = FaultyDevice::new(at);
        let options = || Db::builder().max_memory(16 << 20).frames(64);
        let ended = {
            let Ok(db) = Db::open_device(options(), device.clone().into()) else {
                continue;
            };
            let table = db.table("t").unwrap();
            device.crash_at_sync(device.sync_points() + at);
            let result = (|| {
                let mut loader = table.loader()?;
                for number in 0..3000 {
                    // A long value often comes when a leaf is full.
                    let bytes = if number % 9 == 0 { 5000 } else { 90 };
                    loader.put(&key(number), &vec![number as u8; bytes])?;
                    if number % 500 == 499 {
                        db.checkpoint()?;
                    }
                }
                loader.finish()?;
                // This write follows the load in the log.
                table.put(b"zz behind", b"the load")
            })();
            device.crash_now();
            result.is_ok()
        };
        for mode in crash_modes() {
            let after = device.after_crash(at, mode);
            let report = pandodb::VerifyReport::of_device(&after.clone().into()).unwrap();
            assert!(report.damages.is_empty(), "{:?}", report.damages);
            let db = Db::open_device(options(), after.clone().into()).unwrap();
            let table = db.table("t").unwrap();
            let behind = table.get(b"zz behind").unwrap().is_some();
            let count = table.len() - u64::from(behind);
            assert_eq!(table.iter().map(Result::unwrap).count() as u64, table.len());
            match count {
                0 => assert!(!behind && !ended, "a write without the load before it"),
                3000 => {}
                other => panic!("{other} entries"),
            }
            (empty, whole) = (empty + u32::from(count == 0), whole + u32::from(count > 0));
            settle(&db);
            drop(table);
            db.close().unwrap();
            let report = pandodb::VerifyReport::of_device(&after.clone().into()).unwrap();
            assert!(report.damages.is_empty(), "{:?}", report.damages);
        }
        if ended {
            break;
        }
    }
    // In the last round the load ends, and then it is whole in every mode.
    assert!(empty > 8 && whole >= 4, "{empty} {whole}");
}

fn crash_modes() -> [pandodb::device::faulty::CrashMode; 4] {
    use pandodb::device::faulty::CrashMode::*;
    [AllLost, AllSurvive, RandomSubset, TornSectors]
}

/// Batches of neighbouring keys in two tables, some of which exist already.
#[test]
fn batches_of_neighbours_count_what_is_new_and_keep_what_is_last() {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path());
    let (left, right) = (db.table("left").unwrap(), db.table("right").unwrap());
    for step in 0..8_u32 {
        let mut batch = Batch::new();
        for number in (step * 500..step * 500 + 1000).step_by(1 + step as usize % 2) {
            batch.put(&left, &key(number), &[step as u8; 40]);
            batch.put(&right, &key(number), &value(number));
        }
        db.write(&mut batch, WriteOptions::default()).unwrap();
    }
    // Batches 0, 2, 4 and 6 have all keys of their ranges, and batch 7, the last one, has the even
    // ones.
    let expected: Vec<u32> = (0..4000).chain((4000..4500).step_by(2)).collect();
    drop((left, right));
    db.close().unwrap();
    verified(directory.path());
    let db = open(directory.path());
    let (left, right) = (db.table("left").unwrap(), db.table("right").unwrap());
    for table in [&left, &right] {
        assert_eq!(table.len(), expected.len() as u64);
        let keys = table.iter().map(|entry| entry.unwrap().0);
        assert!(keys.eq(expected.iter().map(|number| key(*number))));
    }
    for number in expected {
        let newest = match number / 500 {
            0 => 0,
            step if number % 2 == 0 || step % 2 == 0 => step.min(7),
            step => step - 1,
        };
        let newest = if number % 2 == 1 && newest % 2 == 1 {
            newest - 1
        } else {
            newest
        };
        assert_eq!(left.get(&key(number)).unwrap().unwrap(), [newest as u8; 40]);
        assert_eq!(right.get(&key(number)).unwrap().unwrap(), value(number));
    }
}

#[test]
fn a_load_fits_into_a_small_log() {
    let options = Db::builder().max_memory(16 << 20).log_bytes(1 << 20);
    let db = options.frames(1 << 18).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut loader = table.loader().unwrap();
    for number in 0..20_000_u64 {
        loader.put(&number.to_be_bytes(), &[1; 56]).unwrap();
    }
    assert_eq!(loader.finish().unwrap(), 20_000);
    assert_eq!(table.len(), 20_000);
}

#[test]
fn an_entry_that_was_refused_may_be_put_again() {
    const ENTRIES: u32 = 2000;
    let device = FaultyDevice::new(1);
    let options = Db::builder().max_memory(8 << 20);
    let db = Db::open_device(options, AnyDevice::from(device.clone())).unwrap();
    let table = db.table("t").unwrap();
    let mut loader = table.loader().unwrap();
    let full = || FaultPlan::sticky(Operation::Allocate, "data", 1, Fault::Full);
    device.fail(full());
    let mut refused = 0;
    for number in 0..ENTRIES {
        // Most refused entries are long, and some of their pages are written already.
        let bytes = if number % 2 == 0 { 40_000 } else { 200 };
        while let Err(error) = loader.put(&key(number), &vec![1; bytes]) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            refused += 1;
            device.clear_faults();
            pando_sync::thread::yield_now();
        }
        if number % 10 == 9 {
            device.fail(full());
        }
    }
    assert!(refused > 5, "{refused}");
    device.fail(full());
    let mut late = ENTRIES;
    let error = loop {
        match loader.put(&key(late), &[2; 200]) {
            Ok(()) => late += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    let error = loader.try_finish().unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    device.clear_faults();
    let finished = loop {
        match loader.try_finish() {
            Ok(count) => break count,
            Err(error) => assert!(matches!(error, Error::Full { .. }), "{error}"),
        }
        pando_sync::thread::yield_now();
    };
    assert_eq!(finished, u64::from(late));
    for error in [
        loader.try_finish().unwrap_err(),
        loader.put(b"~", b"").unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotEmpty { .. }), "{error}");
    }
    drop(loader);
    assert_eq!(table.len(), u64::from(late));
    let keys = table.iter().map(|entry| entry.unwrap().0);
    assert!(keys.eq((0..late).map(key)));
    let used = used_bytes(&db);
    drop(table);
    db.close().unwrap();
    let device = AnyDevice::from(device);
    let report = pandodb::VerifyReport::of_device(&device).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
    let db = Db::open_device(Db::builder().max_memory(8 << 20), device).unwrap();
    assert_eq!(used_bytes(&db), used, "blocks had no owner");
}

/// The file system finds that it is full only on a write. The pages that were to be written are not
/// lost.
#[test]
fn a_run_that_found_the_disk_full_is_written_when_there_is_room() {
    const ENTRIES: u32 = 8000;
    for nth in 1..6 {
        let device = FaultyDevice::new(nth);
        let options = || builder().checkpoint_interval(pando_sync::time::Duration::from_secs(3600));
        let db = Db::open_device(options(), device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        db.checkpoint().unwrap();
        let mut loader = table.loader().unwrap();
        let full = || FaultPlan::sticky(Operation::Write, "data", nth, Fault::Full);
        device.fail(full());
        let mut refused = 0;
        for number in 0..ENTRIES {
            while let Err(error) = loader.put(&key(number), &value(number)) {
                assert!(matches!(error, Error::Full { .. }), "{error}");
                refused += 1;
                assert!(refused < 100, "there is room, and it is refused");
                if refused % 3 == 0 {
                    device.clear_faults();
                }
            }
        }
        assert!(refused >= 3, "{refused}");
        assert_eq!(loader.finish().unwrap(), u64::from(ENTRIES));
        device.crash_now();
        let after = device.after_crash(nth, crash_modes()[0]);
        let db = Db::open_device(options(), after.into()).unwrap();
        let table = db.table("t").unwrap();
        let expected = (0..ENTRIES).map(|number| (key(number), value(number)));
        assert!(table.iter().map(Result::unwrap).eq(expected));
    }
}
