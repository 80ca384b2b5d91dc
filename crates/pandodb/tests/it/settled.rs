//! Settled snapshots: they read a checkpoint that is kept, and take room on disk.

use std::ops::ControlFlow;

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Device};
use pandodb::statistics::{Measure, Ticker};
use pandodb::{Builder, Db, Error, Snapshot, Table, VerifyReport};

use crate::fixture::{NONE, fill, open_on, scattered_key, text_key, wait_for_garbage};
use crate::futures::block_on;
use crate::snapshots::{Model, State, Stop, read_all};

fn verify(device: &FaultyDevice) {
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

fn held(db: &Db) -> u64 {
    db.snapshot_stat().held_bytes
}

/// Blocks are used again as fast as they are free, moved and cut off: whatever a snapshot reads
/// would be overwritten if it was not held.
#[test]
fn settled_snapshots_show_their_moment_beside_checkpoints_and_compactions() {
    for seed in 0..4 {
        let mut device = FaultyDevice::new(seed);
        let options = Db::builder().max_memory(256 << 20).log_bytes(1 << 20);
        let options = options.frames(128).chunk_values_over(16 << 10);
        let mut model = Model::of(open_on(&device, options.clone()), seed);
        let mut open: Vec<(Snapshot, State)> = Vec::new();
        let mut most_held = 0;
        for step in 0..1200 {
            model.change();
            most_held = held(&model.db).max(most_held);
            if model.random.u32(..40) == 0 && open.len() < 6 {
                let snapshot = model.db.snapshot_settled().unwrap();
                open.push((snapshot, model.now.clone()));
            }
            match model.random.u32(..100) {
                0 | 1 if !open.is_empty() => {
                    let at = model.random.usize(..open.len());
                    open.swap_remove(at);
                }
                2 => drop(model.db.compact(|_| ControlFlow::Continue(())).unwrap()),
                3 | 4 => model.db.checkpoint().unwrap(),
                _ => {}
            }
            if step % 60 == 59 {
                for (snapshot, state) in &open {
                    assert!(snapshot.is_settled());
                    model.check(snapshot, state);
                }
            }
        }
        assert!(most_held > 100_000, "{most_held} bytes with seed {seed}");
        if seed % 2 == 0 {
            // The power is cut while they are open.
            let after = device.after_crash(seed, CrashMode::RandomSubset);
            device.crash_now();
            device = after;
        } else {
            drop(open);
            assert_eq!(held(&model.db), 0);
            wait_for_garbage(&model.db);
            model.db.compact(|_| ControlFlow::Continue(())).unwrap();
            model.db.clone().close().unwrap();
            verify(&device);
        }
        drop(model);
        let db = open_on(&device, options);
        assert_eq!(held(&db), 0);
        let names = device.list().unwrap();
        let bases = names.iter().filter(|name| name.starts_with("map."));
        assert!(bases.count() <= 2, "{names:?}");
        db.close().unwrap();
        verify(&device);
    }
}

fn few_frames() -> Builder {
    Db::builder().max_memory(48 << 20).frames(96)
}

fn used_bytes(db: &Db) -> u64 {
    let report = db.report();
    report.data_bytes - report.data_free_bytes
}

/// The blocks that a snapshot held are free when it ends; those that another one uses, too,
/// only when that ends.
#[test]
fn what_settled_snapshots_hold_is_free_when_the_last_of_them_ends() {
    let db = few_frames().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let put = |byte: u8| {
        fill(&table, 0..2000, |number| (text_key(number), [byte; 500]));
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
    };
    put(1);
    let first = db.snapshot_settled().unwrap();
    // Nothing was committed since: the same checkpoint.
    let again = db.snapshot_settled().unwrap();
    assert_eq!(first.lsn(), again.lsn());
    assert_eq!(db.snapshot_stat().settled, 1);
    drop(again);
    assert_eq!(held(&db), 0, "nothing has changed");
    put(2);
    let of_first = held(&db);
    assert!(of_first > 1_000_000, "{of_first}");
    put(3);
    assert_eq!(held(&db), of_first, "what it does not use is free");
    let second = db.snapshot_settled().unwrap();
    put(4);
    let of_both = held(&db);
    assert!(of_both > of_first + 1_000_000, "{of_both}");
    let used = used_bytes(&db);
    for (snapshot, byte) in [(&first, 1), (&second, 3)] {
        for number in (0..2000).step_by(7) {
            let value = snapshot.get(&table, &text_key(number)).unwrap();
            assert_eq!(value, Some(vec![byte; 500]));
        }
    }
    drop(first);
    let of_second = held(&db);
    assert!(of_second < of_both && of_second > 1_000_000, "{of_second}");
    db.checkpoint().unwrap();
    let freed = used - used_bytes(&db);
    assert!(freed >= of_both - of_second, "{freed} bytes are free again");
    put(5);
    let ages = db.snapshot_stat();
    assert!(ages.settled == 1 && ages.oldest_settled.is_some());
    drop(second);
    assert_eq!(db.snapshot_stat(), pandodb::SnapshotStat::default());
}

/// With little memory there are few, and each error says what to do.
#[test]
fn there_is_memory_for_some_settled_snapshots_and_none_for_more() {
    let db = few_frames().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut open = Vec::new();
    let error = loop {
        table.put(b"key", &open.len().to_be_bytes()).unwrap();
        match db.snapshot_settled() {
            Ok(snapshot) => open.push(snapshot),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.to_string().contains("end some"), "{error}");
    assert!((3..=16).contains(&open.len()), "{} of them", open.len());
    for (number, snapshot) in open.iter().enumerate() {
        let value = snapshot.get(&table, b"key").unwrap().unwrap();
        assert_eq!(value, number.to_be_bytes());
    }
    open.remove(0);
    open.push(db.snapshot_settled().unwrap());
}

/// The page table of a kept checkpoint is thrown away when it has grown too large.
#[test]
fn a_scan_of_more_pages_than_its_page_table_may_have_is_right() {
    let options = Db::builder().max_memory(2 << 20).page_size(4096);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    // 20,000 leaves, and places for 8,192.
    fill(&table, 0..20_000, |number| {
        (scattered_key(number), [7; 3000])
    });
    let snapshot = db.snapshot_settled().unwrap();
    let memory = db.snapshot_stat().settled_memory_bytes;
    assert!(memory < 1 << 20, "{memory}");
    assert!(table.delete(&scattered_key(5)).unwrap());
    let mut keys: Vec<[u8; 8]> = (0..20_000).map(scattered_key).collect();
    keys.sort_unstable();
    for found in [
        snapshot
            .iter(&table)
            .map(Result::unwrap)
            .collect::<Vec<_>>(),
        snapshot.iter(&table).rev().map(Result::unwrap).collect(),
    ] {
        let mut found: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
        found.sort_unstable();
        assert!(found.iter().eq(keys.iter()));
    }
}

/// A disk without room for old and new: the oldest snapshot ends, and says so, and writes go on.
/// With the other choice it stays, and writes are refused.
#[test]
fn a_full_disk_ends_settled_snapshots_or_refuses_writes() {
    for keeps in [false, true] {
        let device = FaultyDevice::new(1);
        // Room for all keys and for what two checkpoints have retired, but not for all keys twice.
        device.set_capacity(46 << 20);
        let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
        let db = open_on(&device, options.keep_settled_snapshots(keeps));
        let table = db.table("t").unwrap();
        let put = |number: u32, byte: u8| table.put_with(&text_key(number), &[byte; 1000], NONE);
        for number in 0..16_000 {
            put(number, 1).unwrap();
        }
        let snapshot = db.snapshot_settled().unwrap();
        let refused = (0..48_000).find_map(|number| put(number % 16_000, 2).err());
        if keeps {
            let refused = refused.expect("there is no room for both");
            assert!(matches!(refused, Error::Full { .. }), "{refused}");
            for number in (0..16_000).step_by(11) {
                let value = snapshot.get(&table, &text_key(number)).unwrap();
                assert_eq!(value, Some(vec![1; 1000]));
            }
            drop(snapshot);
            for number in 0..16_000 {
                put(number, 3).unwrap();
            }
        } else {
            assert!(refused.is_none(), "{refused:?}");
            let ended = snapshot.get(&table, &text_key(1)).unwrap_err();
            assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
            let ended = snapshot.iter(&table).next().unwrap().unwrap_err();
            assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
            let ended = snapshot.table("t").unwrap_err();
            assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
            assert_eq!(db.snapshot_stat(), pandodb::SnapshotStat::default());
        }
        let ends = db.statistics().get(Ticker::SnapshotsEnded);
        assert_eq!(ends, u64::from(!keeps));
        drop(table);
        db.close().unwrap();
        verify(&device);
    }
}

/// When the journal cannot grow, a checkpoint writes its changes into a base that no superblock
/// names. It is not the one that a snapshot reads.
#[test]
fn the_mapping_of_a_snapshot_is_not_changed_by_a_checkpoint_on_a_full_disk() {
    let device = FaultyDevice::new(1);
    let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
    let db = open_on(&device, options);
    let table = db.table("t").unwrap();
    fill(&table, 0..5_000, |number| (text_key(number), [1; 300]));
    let snapshot = db.snapshot_settled().unwrap();
    for round in 2..6_u8 {
        device.fail(FaultPlan::once(Operation::Write, "journal", 1, Fault::Full));
        fill(&table, 0..5_000, |number| (text_key(number), [round; 300]));
        db.checkpoint().unwrap();
        device.clear_faults();
        for number in 0..5_000 {
            let value = snapshot.get(&table, &text_key(number)).unwrap();
            assert_eq!(value, Some(vec![1; 300]), "{number} in round {round}");
        }
    }
    drop((snapshot, table));
    db.close().unwrap();
    verify(&device);
}

/// Damage under a snapshot is an error of the snapshot, and of nothing else.
#[test]
fn a_page_that_cannot_be_read_is_an_error_of_the_snapshot() {
    let device = FaultyDevice::new(1);
    let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
    let db = open_on(&device, options);
    let table = db.table("t").unwrap();
    fill(&table, 0..2_000, |number| (text_key(number), [1; 300]));
    let snapshot = db.snapshot_settled().unwrap();
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    let error = snapshot.get(&table, &text_key(7)).unwrap_err();
    assert!(matches!(error, Error::CorruptPage { .. }), "{error}");
    device.clear_faults();
    assert_eq!(
        snapshot.get(&table, &text_key(7)).unwrap(),
        Some(vec![1; 300])
    );
    assert_eq!(table.get(&text_key(7)).unwrap(), Some(vec![1; 300]));
    table.put(&text_key(7), b"new").unwrap();
}

/// A closed store may be opened by others, who use the blocks.
#[test]
fn a_closed_store_has_no_settled_snapshots() {
    let db = few_frames().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    table.put(b"key", b"value").unwrap();
    let snapshot = db.snapshot_settled().unwrap();
    let other = db.clone();
    db.close().unwrap();
    let error = snapshot.get(&table, b"key").unwrap_err();
    assert!(matches!(error, Error::SnapshotEnded), "{error}");
    let error = other.snapshot_settled().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

/// A future reads at a settled snapshot without blocking its task.
#[test]
fn futures_read_at_settled_snapshots() {
    let db = few_frames().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..2_000, |number| (text_key(number), [1; 300]));
    let snapshot = db.snapshot_settled().unwrap();
    fill(&table, 0..2_000, |number| (text_key(number), [2; 300]));
    for number in (0..2_000).step_by(13) {
        let value = block_on(snapshot.get_async(&table, &text_key(number)));
        assert_eq!(value.unwrap(), Some(vec![1; 300]));
    }
}

/// A value in its leaf, in overflow pages or in chunks.
fn value_of(number: u32, round: u32) -> Vec<u8> {
    let len = match number % 40 {
        0 => 30_000,
        1..4 => 6_000,
        _ => 150,
    };
    let mut value = vec![number as u8; len];
    value[..8].copy_from_slice(&(u64::from(number) << 32 | u64::from(round)).to_le_bytes());
    value
}

/// A reader of a large value needs the snapshot no longer, also when it was settled in between.
/// What ends it says so.
#[test]
fn readers_outlive_the_snapshots_that_they_were_opened_at() {
    let options = few_frames().chunk_values_over(16 << 10);
    let options = options.settle_snapshots_after(Duration::ZERO);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let put = |round: u32| {
        for number in 0..20 {
            table
                .put(&text_key(number), &value_of(number * 40, round))
                .unwrap();
        }
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
    };
    put(0);
    let young = db.snapshot().unwrap();
    let of_young = young.get_reader(&table, &text_key(3)).unwrap().unwrap();
    put(1);
    while !young.is_settled() {
        thread::yield_now();
    }
    let of_settling = young.get_reader(&table, &text_key(4)).unwrap().unwrap();
    let settled = db.snapshot_settled().unwrap();
    let of_settled = settled.get_reader(&table, &text_key(5)).unwrap().unwrap();
    let again = of_settled.reopen();
    drop((young, settled));
    put(2);
    put(3);
    assert!(
        of_settled.is_chunked() && held(&db) > 0,
        "a reader keeps its checkpoint"
    );
    assert!(read_all(of_young) == value_of(120, 0));
    assert!(read_all(of_settling) == value_of(160, 0));
    assert!(read_all(of_settled) == value_of(200, 1));
    put(4);
    assert!(read_all(again) == value_of(200, 1));
    assert_eq!(held(&db), 0);
    let settled = db.snapshot_settled().unwrap();
    let mut last = settled.get_reader(&table, &text_key(6)).unwrap().unwrap();
    drop((settled, table));
    db.close().unwrap();
    let ended = last.read_at(100, &mut [0; 10]).unwrap_err();
    assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
}

/// A scan and a `get_many` of data that are not in memory read several pages at a time.
#[test]
fn reads_at_settled_snapshots_are_under_way_together() {
    let db = few_frames().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    // In no order: leaves that lie one behind the other would be read by few requests.
    let shuffled = (0..4_000).map(|number| number * 1_009 % 4_000);
    fill(&table, shuffled, |number| (text_key(number), [1; 500]));
    let snapshot = db.snapshot_settled().unwrap();
    let at_once = |read: &dyn Fn() -> usize| {
        db.reset_statistics();
        assert_eq!(read(), 4_000);
        let reads = db.statistics().get(Ticker::PageReadsLeaf);
        let depth = db.histogram(Measure::DeviceQueueDepth).max();
        (reads, depth)
    };
    let (reads, depth) = at_once(&|| snapshot.iter(&table).flatten().count());
    assert!(depth >= 8, "{depth}");
    let (reads_back, depth) = at_once(&|| snapshot.iter(&table).rev().flatten().count());
    assert!(depth >= 8, "{depth}");
    // What is read ahead is used.
    assert!(
        reads_back < reads + reads / 10,
        "{reads} and {reads_back} leaves"
    );
    let keys: Vec<_> = (0..4_000).map(|at| text_key(at * 1_237 % 4_000)).collect();
    let texts: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let (_, depth) = at_once(&|| {
        let found = snapshot.get_many(&table, &texts).unwrap();
        found.into_iter().flatten().count()
    });
    assert!(depth >= 6, "{depth}");
    // Leaves that were read before, for reads of one key at a time.
    let (reads, depth) = at_once(&|| {
        let mut left = &texts[..];
        let mut found = 0;
        while !left.is_empty() {
            let now;
            (now, left) = left.split_at(snapshot.prefetch(&table, left).unwrap().keys);
            let before = db.statistics();
            let values = now.iter().map(|key| snapshot.get(&table, key).unwrap());
            found += values.flatten().count();
            let spent = db.statistics().since(&before);
            assert_eq!(spent.get(Ticker::PageReadsLeaf), 0);
        }
        found
    });
    assert!(depth >= 6, "{depth}");
    assert!(reads <= 4_000, "{reads}");
}

const KEYS: u32 = 3_000;

/// Reads everything at `snapshot`, by gets and by scans in both directions.
fn check_all(snapshot: &Snapshot, table: &Table, round: u32) {
    for number in (0..KEYS).step_by(17) {
        let value = snapshot.get(table, &text_key(number)).unwrap();
        assert!(value == Some(value_of(number, round)), "{number}");
    }
    let keys: Vec<_> = (0..KEYS).map(text_key).collect();
    let texts: Vec<_> = keys.iter().map(|key| &key[..]).collect();
    let found = snapshot.get_many(table, &texts).unwrap();
    let values = (0..KEYS).map(|number| Some(value_of(number, round)));
    assert!(found.into_iter().eq(values));
    let expected = |number: u32| (text_key(number), value_of(number, round));
    let forward = snapshot.iter(table).map(Result::unwrap);
    assert!(forward.eq((0..KEYS).map(expected)));
    let backward = snapshot.iter(table).rev().map(Result::unwrap);
    assert!(backward.eq((0..KEYS).rev().map(expected)));
}

/// What is written beside a snapshot is many times what the memory for old versions has room for.
/// The snapshot is read by others while it goes on on disk.
#[test]
fn a_snapshot_outlives_the_memory_for_old_versions() {
    let device = FaultyDevice::new(1);
    let options = Db::builder()
        .max_memory(16 << 20)
        .log_bytes(4 << 20)
        .chunk_values_over(16 << 10);
    let db = open_on(&device, options.clone());
    let table = db.table("t").unwrap();
    let other = db.table("other").unwrap();
    let write = |table: &Table, round: u32| {
        fill(table, 0..KEYS, |number| {
            (text_key(number), value_of(number, round))
        });
    };
    write(&table, 0);
    write(&other, 0);
    let snapshot = db.snapshot().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    check_all(&snapshot, &table, 0);
                }
            });
        }
        let stop = Stop(&done);
        write(&table, 1);
        db.drop_table("other").unwrap();
        for round in 2..8 {
            write(&table, round);
        }
        assert!(snapshot.is_settled());
        drop(stop);
    });
    check_all(&snapshot, &other, 0);
    check_all(&snapshot, &table, 0);
    assert!(snapshot.table("other").is_ok());
    let stat = db.snapshot_stat();
    assert_eq!(stat.settled, 1);
    let value = block_on(snapshot.get_async(&table, &text_key(40))).unwrap();
    assert!(value == Some(value_of(40, 0)));
    // A power cut leaves nothing of it, and a drop neither.
    let crashed = device.after_crash(3, CrashMode::RandomSubset);
    drop(snapshot);
    assert_eq!(db.snapshot_stat(), pandodb::SnapshotStat::default());
    check_all(&db.snapshot().unwrap(), &table, 7);
    drop((table, other));
    wait_for_garbage(&db);
    db.close().unwrap();
    verify(&device);
    let db = open_on(&crashed, options);
    wait_for_garbage(&db);
    db.close().unwrap();
    verify(&crashed);
}

/// Commits wait neither for a disk that is full nor for a kept checkpoint that fails: the snapshot
/// ends, and they go on.
#[test]
fn a_snapshot_that_cannot_go_on_on_disk_ends() {
    let device = FaultyDevice::new(1);
    let options = Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
    let db = open_on(&device, options);
    let table = db.table("t").unwrap();
    let write = |byte: u8| fill(&table, 0..3_000, |number| (text_key(number), [byte; 300]));
    write(1);
    let snapshot = db.snapshot().unwrap();
    // The mapping of the checkpoint cannot be written.
    device.fail(FaultPlan::sticky(Operation::Write, "map.", 1, Fault::Io));
    (2..10).for_each(write);
    let ended = snapshot.get(&table, &text_key(1)).unwrap_err();
    assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
    device.clear_faults();
    assert_eq!(table.get(&text_key(1)).unwrap(), Some(vec![9; 300]));
    drop((snapshot, table));
    db.close().unwrap();
    verify(&device);
}

/// A read that is in progress when its snapshot is settled is made again, and nobody notices.
#[test]
fn reads_that_are_in_progress_go_on() {
    let options = Db::builder().max_memory(128 << 20);
    let options = options.settle_snapshots_after(Duration::ZERO);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let write = |round: u32| {
        fill(&table, 0..KEYS, |number| {
            (text_key(number), value_of(number, round))
        });
    };
    write(0);
    for round in 0..15 {
        let snapshot = db.snapshot().unwrap();
        write(round + 1);
        thread::scope(|scope| {
            for reader in 0..2 {
                let (snapshot, table) = (&snapshot, &table);
                scope.spawn(move || {
                    let mut seen = 0;
                    let keys: Vec<_> = (0..400).map(text_key).collect();
                    let some: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                    while !snapshot.is_settled() {
                        match reader {
                            1 if seen % 2 == 0 => {
                                let found = snapshot.get_many(table, &some).unwrap();
                                let values = (0..400).map(|number| Some(value_of(number, round)));
                                assert!(found.into_iter().eq(values));
                            }
                            0 => assert_eq!(snapshot.iter(table).flatten().count() as u32, KEYS),
                            _ => {
                                let value = snapshot.get(table, &text_key(7)).unwrap();
                                assert!(value == Some(value_of(7, round)));
                            }
                        }
                        seen += 1;
                    }
                });
            }
        });
        check_all(&snapshot, &table, round);
    }
}
