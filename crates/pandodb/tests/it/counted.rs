//! Counted and weighted tables: ranks and keys of ranks agree with a map, through every way in
//! which a table changes, and through crashes; and an older program never sees one.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::nonblocking::{EntryFrom, Outcome, Polled, Reads, ValidatedBatch};
use pandodb::{
    Batch, Builder, Db, Error, Isolation, Table, TableOptions, TransactionOptions, VerifyReport,
    weight_byte,
};

use crate::fixture::{NONE, fill, open_on, scattered_key, text_key};
use crate::futures::block_on;
use crate::steps::{ended, reactor_of};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Builder {
    Db::builder()
        .max_memory(4 << 20)
        .frames(128)
        .log_bytes(1 << 20)
}

pub(crate) fn counted(db: &Db, name: &str) -> Table {
    table_of(db, name, false)
}

fn table_of(db: &Db, name: &str, is_weighted: bool) -> Table {
    let options = TableOptions::new().counted(true).weighted(is_weighted);
    let table = db.table_with(name, options).unwrap();
    assert_eq!(
        (table.is_counted(), table.is_weighted()),
        (true, is_weighted)
    );
    table
}

/// Returns what an entry counts for in the table.
fn weight(table: &Table, value: &[u8]) -> u64 {
    match value.first() {
        // Longer values do not lie with their keys.
        Some(first @ 128..) if table.is_weighted() && value.len() < 1900 => u64::from(first - 128),
        _ => 1,
    }
}

/// Returns the key of these that has a unit, and how many of its units lie before.
fn unit_of<'m>(
    table: &Table,
    entries: impl IntoIterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>,
    mut number: u64,
) -> Option<(Vec<u8>, u64)> {
    for (key, value) in entries {
        let weight = weight(table, value);
        if number < weight {
            return Some((key.clone(), number));
        }
        number -= weight;
    }
    None
}

/// Compares some ranks, keys and counts with the model.
#[track_caller]
fn compare(table: &Table, model: &Model, random: &mut Rng) {
    let sum = |entries: &mut dyn Iterator<Item = (&Vec<u8>, &Vec<u8>)>| {
        entries.map(|(_, value)| weight(table, value)).sum::<u64>()
    };
    let number = sum(&mut model.iter());
    assert_eq!(table.count(..).unwrap(), number);
    assert_eq!(table.len(), model.len() as u64);
    assert_eq!(table.key_at(number).unwrap(), None);
    for _ in 0..8 {
        let rank = random.u64(..number.max(1));
        let at = unit_of(table, model, rank);
        assert_eq!(table.unit_at(rank).unwrap(), at);
        let Some((key, offset)) = &at else { continue };
        assert_eq!(table.key_at(rank).unwrap().as_ref(), Some(key));
        assert_eq!(table.rank(key).unwrap(), rank - offset);
        let other = scattered_key(random.u32(..)).to_vec();
        let below = sum(&mut model.range(..other.clone()));
        assert_eq!(table.rank(&other).unwrap(), below);
        let number = random.u64(..20);
        let from = unit_of(table, model.range(other.clone()..), number);
        assert_eq!(table.unit_from(&other, number).unwrap(), from);
        let from = from.map(|(key, _)| key);
        assert_eq!(table.key_from(&other, number).unwrap(), from);
        for range in [
            (Bound::Included(&key[..]), Bound::Excluded(&other[..])),
            (Bound::Excluded(&key[..]), Bound::Included(&other[..])),
            (Bound::Included(&key[..]), Bound::Included(&key[..])),
            (Bound::Excluded(&key[..]), Bound::Excluded(&key[..])),
            (Bound::Unbounded, Bound::Included(&key[..])),
            (Bound::Excluded(&key[..]), Bound::Unbounded),
        ] {
            let is_inside = |key: &[u8]| std::ops::RangeBounds::contains(&range, &key);
            let inside = sum(&mut model.iter().filter(|(key, _)| is_inside(key)));
            assert_eq!(table.count(range).unwrap(), inside, "{range:?}");
        }
    }
}

/// Changes the table by a call of some kind.
fn change(db: &Db, table: &Table, model: &mut Model, random: &mut Rng) {
    let some_key = |random: &mut Rng| scattered_key(random.u32(..3000)).to_vec();
    let some_value = |random: &mut Rng| {
        let len = match random.u32(..60) {
            0 => 20_000,
            1..5 => 1500,
            _ => random.usize(..100),
        };
        vec![random.u8(..); len]
    };
    match random.u32(..6) {
        0 => {
            let mut batch = Batch::new();
            for _ in 0..random.usize(1..80) {
                let key = some_key(random);
                if random.u32(..3) == 0 {
                    batch.delete(table, &key);
                    model.remove(&key);
                } else {
                    let value = some_value(random);
                    batch.put(table, &key, &value);
                    model.insert(key, value);
                }
            }
            db.write(&mut batch, NONE).unwrap();
        }
        1 => {
            let options = TransactionOptions::default().isolation(Isolation::Snapshot);
            let mut transaction = db.begin(options).unwrap();
            for _ in 0..10 {
                let (key, value) = (some_key(random), some_value(random));
                transaction.put(table, &key, &value).unwrap();
                model.insert(key, value);
            }
            transaction.commit().unwrap();
        }
        2 => {
            // A run of keys that go away: leaves become empty, and are merged.
            let from = some_key(random);
            let gone: Vec<_> = model
                .range(from..)
                .take(100)
                .map(|(key, _)| key.clone())
                .collect();
            let mut batch = Batch::new();
            for key in &gone {
                batch.delete(table, key);
                model.remove(key);
            }
            db.write(&mut batch, NONE).unwrap();
        }
        3 => {
            let key = some_key(random);
            let existed = table.delete_with(&key, NONE).unwrap();
            assert_eq!(existed, model.remove(&key).is_some());
        }
        _ => {
            let (key, value) = (some_key(random), some_value(random));
            table.put_with(&key, &value, NONE).unwrap();
            model.insert(key, value);
        }
    }
}

#[track_caller]
fn verify(device: &FaultyDevice) {
    let report = VerifyReport::of_device(&device.clone().into()).unwrap();
    assert_eq!(report.damages, []);
}

#[test]
fn a_counted_table_counts_what_a_map_holds_in_every_life() {
    for is_weighted in [false, true] {
        live_six_times(is_weighted);
    }
}

fn live_six_times(is_weighted: bool) {
    let device = FaultyDevice::new(1);
    let (mut model, mut random) = (Model::new(), Rng::with_seed(4));
    for life in 0..6 {
        let db = open_on(&device, options());
        let table = table_of(&db, "t", is_weighted);
        assert_eq!(table.len(), model.len() as u64);
        compare(&table, &model, &mut random);
        for step in 0..400 {
            change(&db, &table, &mut model, &mut random);
            if step % 20 == 0 {
                compare(&table, &model, &mut random);
            }
            if step % 150 == 0 {
                db.checkpoint().unwrap();
            }
        }
        if life == 3 {
            db.compact(|_| ControlFlow::Continue(())).unwrap();
            compare(&table, &model, &mut random);
        }
        match life % 2 {
            0 => db.close().unwrap(),
            _ => {
                db.flush().unwrap();
                drop((table, db));
            }
        }
        verify(&device);
    }
}

#[test]
fn a_log_that_is_replayed_counts_again() {
    for seed in 0..8 {
        let device = FaultyDevice::new(seed);
        let (mut model, mut random) = (Model::new(), Rng::with_seed(seed));
        let is_weighted = seed % 2 == 1;
        let db = open_on(&device, options());
        let table = table_of(&db, "t", is_weighted);
        for _ in 0..300 {
            change(&db, &table, &mut model, &mut random);
        }
        db.flush().unwrap();
        let crashed = device.after_crash(seed, CrashMode::AllLost);
        let db = open_on(&crashed, options());
        let table = table_of(&db, "t", is_weighted);
        compare(&table, &model, &mut random);
        db.clear_tables(&[&table]).unwrap();
        assert_eq!(
            (table.is_counted(), table.is_weighted()),
            (true, is_weighted)
        );
        assert_eq!(
            (table.count(..).unwrap(), table.key_at(0).unwrap()),
            (0, None)
        );
        table.put(b"again", b"").unwrap();
        assert_eq!(table.rank(b"b").unwrap(), 1);
        db.close().unwrap();
        verify(&crashed);
    }
}

#[test]
fn a_load_counts_what_it_puts() {
    for is_weighted in [false, true] {
        load(is_weighted);
    }
}

fn load(is_weighted: bool) {
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options());
    let table = table_of(&db, "t", is_weighted);
    let value = |number: u32| match number % 500 {
        0 => vec![200; 9000],
        _ => vec![number as u8; 20],
    };
    let mut model: Model = (0..30_000).map(|n| (text_key(n), value(n))).collect();
    assert_eq!(table.load_sorted(&model).unwrap(), 30_000);
    let mut random = Rng::with_seed(1);
    compare(&table, &model, &mut random);
    for _ in 0..100 {
        change(&db, &table, &mut model, &mut random);
    }
    compare(&table, &model, &mut random);
    db.close().unwrap();
    verify(&device);
}

#[test]
fn a_salvaged_table_is_counted_again() {
    let source = tempfile::tempdir().unwrap();
    let target = tempfile::tempdir().unwrap();
    let db = options().open(source.path()).unwrap();
    let table = counted(&db, "t");
    fill(&table, 0..5000, |n| (scattered_key(n), b"value"));
    let weighted = table_of(&db, "w", true);
    fill(&weighted, 0..5000, |n| (scattered_key(n), [128 + 3]));
    db.close().unwrap();
    drop((table, weighted));
    let into = target.path().join("new");
    let report = pandodb::salvage(source.path(), &into, options(), |_, _| ()).unwrap();
    assert_eq!(report.lost.len(), 0);
    let db = options().open(&into).unwrap();
    let table = db.existing_table("t").unwrap();
    assert!(table.is_counted() && !table.is_weighted());
    assert_eq!(table.count(..).unwrap(), 5000);
    let weighted = db.existing_table("w").unwrap();
    assert!(weighted.is_weighted());
    assert_eq!(weighted.count(..).unwrap(), 15_000);
}

#[test]
fn a_table_that_does_not_count_says_so() {
    let db = options().open_in_memory().unwrap();
    let plain = db.table("plain").unwrap();
    let refused = |error: Error| {
        assert!(
            matches!(&error, Error::NotCounted { name } if name == "plain"),
            "{error}"
        );
    };
    refused(plain.rank(b"k").unwrap_err());
    refused(plain.count(..).unwrap_err());
    refused(plain.key_at(0).unwrap_err());
    let options = TableOptions::new().counted(true);
    refused(db.table_with("plain", options).unwrap_err());
    for name in ["plain", "counted"] {
        counted(&db, "counted");
        let refused = db.table_with(name, TableOptions::new().weighted(true));
        let error = refused.map(drop).unwrap_err();
        assert!(
            matches!(&error, Error::NotWeighted { name: found } if found == name),
            "{error}"
        );
    }
    // Weights are no hindrance to who asks for counts.
    assert!(table_of(&db, "weighted", true).is_counted());
    let options = TableOptions::new().counted(true);
    assert!(db.table_with("weighted", options).unwrap().is_weighted());
    // Who does not ask for counts gets the table as it is.
    let table = counted(&db, "counted");
    assert!(db.table("counted").unwrap().is_counted());
    assert!(
        db.table_with("counted", TableOptions::new())
            .unwrap()
            .is_counted()
    );
    db.drop_table("counted").unwrap();
    assert!(matches!(table.rank(b"k"), Err(Error::NoSuchTable { .. })));
    let again = db.table("counted").unwrap();
    assert!(!again.is_counted() && !table.is_counted());
}

/// Ranks of futures and of event loops, of pages that are not in memory.
#[test]
fn every_form_of_call_counts_the_same() {
    for is_weighted in [false, true] {
        call_in_every_form(is_weighted);
    }
}

fn call_in_every_form(is_weighted: bool) {
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options());
    let table = table_of(&db, "t", is_weighted);
    fill(&table, 0..60_000, |n| (scattered_key(n), [n as u8; 60]));
    let all = (0..60_000).map(|n| weight(&table, &[n as u8])).sum::<u64>();
    assert_eq!(table.count(..).unwrap(), all);
    let mut random = Rng::with_seed(3);
    let mut reactor = reactor_of(&db);
    let reads = Reads::of(&table);
    let mut out = Vec::new();
    for _ in 0..300 {
        let rank = random.u64(..all + all / 60);
        let key = table.key_at(rank).unwrap();
        assert_eq!(block_on(table.key_at_async(rank)).unwrap(), key);
        let found = ended(&mut reactor, || reads.key_at(rank, &mut out)).unwrap();
        let unit = found.map(|offset| (out.clone(), offset));
        assert_eq!(unit, table.unit_at(rank).unwrap());
        assert_eq!(unit.map(|(key, _)| key), key);
        let probe = scattered_key(random.u32(..));
        let rank = table.rank(&probe).unwrap();
        assert_eq!(block_on(table.rank_async(&probe)).unwrap(), rank);
        assert_eq!(ended(&mut reactor, || reads.rank(&probe)).unwrap(), rank);
        let number = random.u64(..500);
        let key = table.key_from(&probe, number).unwrap();
        assert_eq!(key, table.key_at(rank + number).unwrap());
        assert_eq!(block_on(table.key_from_async(&probe, number)).unwrap(), key);
        let found = ended(&mut reactor, || reads.key_from(&probe, number, &mut out)).unwrap();
        let unit = found.map(|offset| (out.clone(), offset));
        assert_eq!(unit, table.unit_at(rank + number).unwrap());
        assert_eq!(unit, table.unit_from(&probe, number).unwrap());
        let (start, end) = (Bound::Included(&probe[..]), Bound::Unbounded);
        let left = all - rank;
        assert_eq!(table.count((start, end)).unwrap(), left);
        assert_eq!(block_on(table.count_async((start, end))).unwrap(), left);
        let counted = ended(&mut reactor, || reads.count(start, end)).unwrap();
        assert_eq!(counted, left);
    }
}

/// A thousand threads, half of which add and remove entries.
/// A thread keeps the rank that it has counted last, and these roots have the same version.
#[test]
fn stores_of_one_thread_do_not_share_a_rank() {
    let stores = [5, 25].map(|before| {
        let db = options().open_in_memory().unwrap();
        let table = counted(&db, "t");
        for n in 0..30 {
            let key = if n < before { [b'a', n] } else { [b'x', n] };
            table.put(&key, b"").unwrap();
        }
        (db, table, u64::from(30 - before))
    });
    for _ in 0..3 {
        for (_db, table, behind) in &stores {
            assert_eq!(table.count(&b"m"[..]..).unwrap(), *behind);
            assert_eq!(
                table.key_from(b"m", behind - 1).unwrap(),
                Some(vec![b'x', 29])
            );
        }
    }
}

#[test]
fn a_thousand_threads_lose_no_count() {
    let db = options().open_in_memory().unwrap();
    let table = counted(&db, "t");
    fill(&table, 0..2000, |n| (text_key(n), b"stays"));
    thread::scope(|scope| {
        for worker in 0..1000_u32 {
            let table = &table;
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker.into());
                if worker % 2 == 0 {
                    for _ in 0..4 {
                        let key =
                            [&text_key(random.u32(..2000))[..], &worker.to_be_bytes()].concat();
                        table.put_with(&key, &[1; 200], NONE).unwrap();
                        assert!(table.delete_with(&key, NONE).unwrap());
                    }
                    table
                        .put_with(&[b"z", &worker.to_be_bytes()[..]].concat(), b"", NONE)
                        .unwrap();
                    return;
                }
                let number = random.u32(..2000);
                let rank = table.rank(&text_key(number)).unwrap();
                assert!(
                    (u64::from(number)..=u64::from(number) + 500).contains(&rank),
                    "{rank}"
                );
            });
        }
    });
    assert_eq!(table.count(..).unwrap(), 2500);
    assert_eq!(table.len(), 2500);
}

/// Wherever the creation of the first counted table ends, a store whose superblock has the old
/// version has nothing of it.
#[test]
fn an_older_program_never_sees_a_counted_table() {
    for nth in 1..12 {
        for (operation, version) in [
            (Operation::Write, 2),
            (Operation::Sync, 2),
            (Operation::Write, 3),
            (Operation::Sync, 3),
        ] {
            let device = FaultyDevice::new(nth);
            let db = open_on(&device, options());
            db.table("old").unwrap().put(b"key", b"value").unwrap();
            db.close().unwrap();
            assert_eq!(versions(&device), [1, 1]);
            let db = open_on(&device, options());
            device.fail(FaultPlan::once(operation, "superblock", nth, Fault::Crash));
            let kind = TableOptions::new().counted(version == 2);
            let made = db.table_with("new", kind.weighted(version == 3));
            let is_made = made.is_ok();
            drop((made, db));
            let crashed = device.after_crash(nth, CrashMode::AllLost);
            let versions = versions(&crashed);
            let db = open_on(&crashed, options());
            let exists = db.existing_table("new").is_some();
            assert!(!is_made || exists, "a table that was made is lost");
            assert!(
                !exists || versions == [version; 2],
                "{versions:?} has a counted table"
            );
            let value = db.existing_table("old").unwrap().get(b"key").unwrap();
            assert_eq!(value.as_deref(), Some(&b"value"[..]));
            let new = table_of(&db, "new", version == 3);
            assert_eq!(new.count(..).unwrap(), 0);
        }
    }
}

/// Returns the versions of both slots of the superblock.
fn versions(device: &FaultyDevice) -> [u32; 2] {
    let bytes = device.snapshot_file("superblock");
    [8, 4096 + 8].map(|at| u32::from_le_bytes(bytes[at..][..4].try_into().unwrap()))
}

/// Others write before the key from which on it is counted.
#[test]
fn a_key_from_another_one_is_that_of_one_moment() {
    let db = options().open_in_memory().unwrap();
    let table = counted(&db, "t");
    fill(&table, 0..2000, |n| {
        ((1_000_000 + n).to_be_bytes(), [7; 20])
    });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Rng::with_seed(5);
            for _ in 0..30_000 {
                let key = random.u32(..3000).to_be_bytes();
                if random.bool() {
                    table.put(&key, &[1; 20]).unwrap();
                } else {
                    let _was_there = table.delete(&key).unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        let from = 1_000_000_u32.to_be_bytes();
        let mut random = Rng::with_seed(6);
        while !over.load(Ordering::Relaxed) {
            let number = random.u32(..2000);
            let found = table.key_from(&from, u64::from(number)).unwrap();
            assert_eq!(
                found.as_deref(),
                Some(&(1_000_000 + number).to_be_bytes()[..])
            );
            assert_eq!(table.key_from(&from, 2000).unwrap(), None);
        }
    });
}

/// As above, key and value together; some values lie elsewhere.
#[test]
fn an_entry_from_another_one_is_that_of_one_moment() {
    let db = options().open_in_memory().unwrap();
    let table = counted(&db, "t");
    let value = |n: u32| vec![n as u8; if n.is_multiple_of(50) { 4000 } else { 20 }];
    fill(&table, 0..2000, |n| {
        ((1_000_000 + n).to_be_bytes(), value(n))
    });
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Rng::with_seed(5);
            for _ in 0..30_000 {
                let key = random.u32(..3000).to_be_bytes();
                if random.bool() {
                    table.put(&key, &[1; 20]).unwrap();
                } else {
                    let _was_there = table.delete(&key).unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        let from = 1_000_000_u32.to_be_bytes();
        let mut random = Rng::with_seed(6);
        let (mut key, mut found, mut shown_from) = (Vec::new(), Vec::new(), None);
        let mut entry = |number: u32, key: &mut Vec<u8>, found: &mut Vec<u8>| loop {
            let from = (&from[..], u64::from(number));
            let reads = Reads::of(&table);
            let read = reads.entry_from(from, (&mut *key, &mut *found), &mut shown_from);
            match read.unwrap() {
                Polled::Ready(entry) => return entry,
                Polled::Pending(_) => thread::yield_now(),
            }
        };
        while !over.load(Ordering::Relaxed) {
            let number = random.u32(..2000);
            let read = entry(number, &mut key, &mut found);
            assert_eq!(key, (1_000_000 + number).to_be_bytes());
            match number.is_multiple_of(50) {
                true => assert_eq!(read, EntryFrom::Key(0)),
                false => assert_eq!((read, &found), (EntryFrom::Whole(0), &value(number))),
            }
            assert_eq!(entry(2000, &mut key, &mut found), EntryFrom::None);
        }
    });
}

/// What a batch has written is told of the entries that the table has, and a removal of what it has
/// found removes that.
#[test]
fn a_batch_finds_entries_beside_its_own_writes() {
    let db = options().open_in_memory().unwrap();
    let table = counted(&db, "t");
    fill(&table, 0..900, |n| (n.to_be_bytes(), n.to_le_bytes()));
    let mut reactor = reactor_of(&db);
    let mut random = Rng::with_seed(8);
    let mut left: Vec<u32> = (0..900).collect();
    while left.len() > 50 {
        let mut batch = ValidatedBatch::new(&db);
        let mut gone = Vec::new();
        for _ in 0..random.usize(1..20) {
            let place = random.usize(..left.len() + 2);
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let to = (&mut key, &mut value);
            let read = batch.entry_from(&table, (&[], place as u64), to).unwrap();
            let Polled::Ready(entry) = read else {
                panic!("all is in memory");
            };
            let Some(number) = left.get(place) else {
                assert_eq!(entry, EntryFrom::None);
                continue;
            };
            assert_eq!(key, number.to_be_bytes());
            if gone.contains(number) {
                let written = [EntryFrom::Removed(0), EntryFrom::Key(0)][*number as usize % 2];
                assert_eq!(entry, written);
                continue;
            }
            assert_eq!(
                (entry, &value[..]),
                (EntryFrom::Whole(0), &number.to_le_bytes()[..])
            );
            gone.push(*number);
            match number % 2 {
                0 => batch.delete(&table, &key),
                _ => batch.put(&table, &key, &value).unwrap(),
            }
        }
        match batch.try_commit(&mut reactor).unwrap() {
            Polled::Ready(Outcome::Committed(_)) => {}
            other => panic!("{other:?}"),
        }
        left.retain(|number| number % 2 == 1 || !gone.contains(number));
        assert_eq!(table.len(), left.len() as u64);
        if left.iter().all(|number| number % 2 == 1) {
            break;
        }
    }
    for (rank, number) in left.iter().enumerate() {
        let found = table.key_at(rank as u64).unwrap();
        assert_eq!(found.as_deref(), Some(&number.to_be_bytes()[..]));
    }
}

/// Entries of weighted tables are found by their units, beside what the batch has written itself.
#[test]
fn a_batch_finds_the_entry_that_has_a_unit() {
    let db = options().open_in_memory().unwrap();
    let table = table_of(&db, "t", true);
    let value = |weight: u8| match weight {
        // It does not lie with its key, and so weighs 1.
        9 => vec![weight_byte(9); 4000],
        _ => vec![weight_byte(weight), 7],
    };
    let weights = [3, 0, 9, 1, 127, 5];
    for (key, weight) in (b'a'..).zip(weights) {
        table.put(&[key], &value(weight)).unwrap();
    }
    let mut batch = ValidatedBatch::new(&db);
    batch.delete(&table, b"d");
    batch.put(&table, b"f", &value(0)).unwrap();
    let (mut key, mut found) = (Vec::new(), Vec::new());
    for (unit, expected) in [
        (0, (b'a', EntryFrom::Whole(0))),
        (2, (b'a', EntryFrom::Whole(2))),
        (3, (b'c', EntryFrom::Key(0))),
        (4, (b'd', EntryFrom::Removed(0))),
        (5, (b'e', EntryFrom::Whole(0))),
        (131, (b'e', EntryFrom::Whole(126))),
        (132, (b'f', EntryFrom::Key(0))),
        (136, (b'f', EntryFrom::Key(4))),
    ] {
        let to = (&mut key, &mut found);
        let Polled::Ready(entry) = batch.entry_from(&table, (&[], unit), to).unwrap() else {
            panic!("all is in memory");
        };
        assert_eq!((&key[..], entry), (&[expected.0][..], expected.1));
        let behind_a = batch.key_from(&table, b"b", unit.saturating_sub(3), &mut key);
        let Polled::Ready(offset) = behind_a.unwrap() else {
            panic!("all is in memory");
        };
        if unit >= 3 {
            let (EntryFrom::Whole(same) | EntryFrom::Key(same) | EntryFrom::Removed(same)) = entry
            else {
                panic!("there are so many units");
            };
            assert_eq!((&key[..], offset), (&[expected.0][..], Some(same)));
        }
    }
    let to = (&mut key, &mut found);
    let beyond = batch.entry_from(&table, (&[], 137), to).unwrap();
    assert!(matches!(beyond, Polled::Ready(EntryFrom::None)));
    assert_eq!(table.len(), 6);
}

/// A tree that is taken apart is named by the garbage table alone, and nobody asks it for counts.
#[test]
fn a_dropped_table_that_is_taken_apart_is_sound_at_each_checkpoint() {
    let sound = |device: &FaultyDevice| {
        let left = device.after_crash(1, CrashMode::AllLost);
        let report = VerifyReport::of_device(&left.into()).unwrap();
        assert_eq!(report.damages, []);
        report.stat.chunks
    };
    for is_weighted in [false, true] {
        let mut seen_in_part = 0;
        // How far the thread that frees the values is at a checkpoint is its own affair.
        for seed in 0..100 {
            let device = FaultyDevice::new(seed);
            let chunked = options().chunk_size(4096).chunk_values_over(4096);
            let db = open_on(&device, chunked);
            let table = table_of(&db, "t", is_weighted);
            fill(&table, 0..2000, |number| (text_key(number), [7; 60]));
            fill(&table, 0..2000, |number| (text_key(number), [7; 5000]));
            db.checkpoint().unwrap();
            let all = sound(&device);
            db.drop_table("t").unwrap();
            let mut chunks = all;
            while chunks > 0 {
                db.checkpoint().unwrap();
                chunks = sound(&device);
                seen_in_part += u32::from((1..all).contains(&chunks));
            }
            if seen_in_part > 0 {
                break;
            }
        }
        assert!(seen_in_part > 0, "no checkpoint came in between");
    }
}
