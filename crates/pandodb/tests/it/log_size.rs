//! The log takes what its records need, and what an idle store keeps of it is small; on a full disk
//! nobody waits for a longer one (decision 077).

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

use pando_sync::time::{self, Duration};
use pando_sync::{Arc, thread};
use pandodb::device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, Device, File, MemoryDevice, OpenOptions};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Builder, Db, Error, Table, VerifyReport};

use crate::fixture::{NONE, fill, open_on, padded_key};
use crate::progress::Progress;

const MIB: u64 = 1 << 20;
/// What the log of an idle store takes.
const IDLE: u64 = 2 * MIB;
/// Longer than any file of the log at first.
const LONG: usize = 3 << 19;

/// Options with a log of at most 64 MiB, in segments of 16 MiB.
fn options() -> Builder {
    Db::builder()
        .max_memory(32 << 20)
        .checkpoint_interval(Duration::from_secs(3600))
}

/// Returns the lengths of the files of the log.
fn files(device: &AnyDevice) -> Vec<u64> {
    let names = device.list().unwrap();
    let names = names.iter().filter(|name| name.starts_with("log/"));
    // A file may be removed after the list was made.
    let opened = names.filter_map(|name| device.open(name, OpenOptions::read()).ok());
    opened.map(|file| file.len().unwrap()).collect()
}

fn log_bytes(device: &AnyDevice) -> u64 {
    files(device).iter().sum()
}

/// Writes pairs of together `mib` MiB.
fn load(table: &Table, mib: u32) {
    fill(table, 0..mib * 1024, |number| {
        (padded_key(number), [7; 1008])
    });
}

#[test]
fn the_log_of_a_small_store_is_small() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    // With default options.
    let db = Db::open_device(Db::builder(), device.clone()).unwrap();
    assert_eq!(log_bytes(&device), IDLE);
    let table = db.table("t").unwrap();
    for number in 0..1000 {
        table.put(&padded_key(number), b"value").unwrap();
    }
    assert!(log_bytes(&device) <= 2 * IDLE, "{:?}", files(&device));
    drop(table);
    db.close().unwrap();
    assert_eq!(log_bytes(&device), IDLE);
    let db = Db::open_device(Db::builder(), device.clone()).unwrap();
    assert_eq!(log_bytes(&device), IDLE);
    assert_eq!(db.table("t").unwrap().len(), 1000);
}

#[test]
fn a_log_grows_within_its_budget_and_shrinks_with_the_load() {
    let device = AnyDevice::from(MemoryDevice::new(1 << 30));
    let db = Db::open_device(options(), device.clone()).unwrap();
    let table = db.table("t").unwrap();
    let mut most = 0;
    for _ in 0..3 {
        load(&table, 40);
        most = most.max(log_bytes(&device));
        assert!(db.report().log_bytes <= 64 * MIB);
    }
    assert!((8 * MIB..=64 * MIB).contains(&most), "{most}");
    let checkpoints = db.statistics().get(Ticker::Checkpoints);
    assert!(
        checkpoints < 40,
        "{checkpoints}: a short log does not ask for more"
    );
    // With each checkpoint that frees little, less is kept.
    let deadline = time::now() + Duration::from_secs(30);
    while log_bytes(&device) > 3 * IDLE {
        assert!(time::now() < deadline, "{:?}", files(&device));
        table.put(b"small", b"value").unwrap();
        db.checkpoint().unwrap();
    }
    load(&table, 20);
    drop(table);
    db.close().unwrap();
    assert_eq!(log_bytes(&device), IDLE);
    let report = VerifyReport::of_device(&device).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
}

/// After a crash the log has what it had; the next opening keeps little of it.
#[test]
fn an_opening_after_a_crash_replays_files_of_all_lengths_and_keeps_two() {
    for mode in [CrashMode::AllSurvive, CrashMode::RandomSubset] {
        let device = FaultyDevice::new(1);
        let db = open_on(&device, options());
        let table = db.table("t").unwrap();
        load(&table, 12);
        table.put(b"long", &vec![8; LONG]).unwrap();
        let written = db.report().log_bytes;
        device.crash_now();
        drop(table);
        drop(db);
        let device = device.after_crash(1, mode);
        let shared = AnyDevice::from(device.clone());
        assert!(log_bytes(&shared) >= written, "{:?}", files(&shared));
        let db = open_on(&device, options());
        let report = db.report();
        assert!(report.recovery_log_bytes <= written, "{written}");
        assert!(report.recovery_log_bytes > written / 10 * 9, "{written}");
        assert_eq!(log_bytes(&shared), IDLE);
        let table = db.table("t").unwrap();
        assert_eq!(table.len(), 12 * 1024 + 1);
        assert_eq!(table.get(b"long").unwrap(), Some(vec![8; LONG]));
        drop(table);
        db.close().unwrap();
    }
}

/// Only what no file holds is refused, whichever file of the log cannot be made; all else goes on,
/// also over a close and an opening. When there is room, the next try succeeds.
#[test]
fn a_log_that_cannot_get_longer_refuses_long_batches_only() {
    // Later writes and syncs of a file are those of flushes.
    for nth in 1..3 {
        for operation in [Operation::Allocate, Operation::Write, Operation::Sync] {
            let device = FaultyDevice::new(nth);
            let mut db = open_on(&device, options());
            db.table("t").unwrap();
            // The next file of the log cannot be made.
            let full = |db: &Db| {
                db.checkpoint().unwrap();
                let names = device.list().unwrap();
                let mut slots = (0..).map(|slot| format!("log/{slot:016x}"));
                let next = slots.find(|name| !names.contains(name)).unwrap();
                let prefix = match operation {
                    Operation::Allocate => "log/",
                    _ => &next,
                };
                device.fail(FaultPlan::sticky(operation, prefix, nth, Fault::Full));
            };
            let context = format!("{operation:?} {nth}");
            for _ in 0..2 {
                full(&db);
                let table = db.table("t").unwrap();
                let refused = (0..20).find_map(|_| table.put(b"long", &vec![8; LONG]).err());
                // Otherwise one that is long enough may be made before.
                if nth == 1 && operation == Operation::Allocate {
                    let error = refused.expect("no file holds it");
                    assert!(matches!(error, Error::Full { .. }), "{context}: {error}");
                    let text = error.to_string();
                    assert!(text.contains("a longer log"), "{context}: {text}");
                } else if let Some(error) = refused {
                    assert!(matches!(error, Error::Full { .. }), "{context}: {error}");
                }
                // More than the files that are there.
                load(&table, 8);
                for number in 0..1000 {
                    assert!(table.delete(&padded_key(number)).unwrap());
                }
                assert_eq!(db.report().poisoned, None, "{context}");
                drop(table);
                db.close().unwrap();
                db = open_on(&device, options());
                device.clear_faults();
            }
            let table = db.table("t").unwrap();
            full(&db);
            let _refused = table.put(b"long", &vec![8; LONG]);
            device.clear_faults();
            let deadline = time::now() + Duration::from_secs(30);
            while let Err(error) = table.put(b"long", &vec![9; LONG]) {
                assert!(matches!(error, Error::Full { .. }), "{context}: {error}");
                assert!(time::now() < deadline, "{context}: refused for ever");
                thread::yield_now();
            }
            assert_eq!(table.get(b"long").unwrap(), Some(vec![9; LONG]));
            drop(table);
            db.close().unwrap();
            assert_eq!(log_bytes(&device.clone().into()), IDLE, "{context}");
        }
    }
}

/// Long and short batches of many threads, while files can be made at one time and not at another.
#[test]
fn nobody_waits_for_ever_for_a_longer_log() {
    const WRITERS: u32 = 6;
    const EACH: u32 = 60;
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options());
    db.table("t").unwrap();
    let progress = Arc::new(Progress::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (db, progress) = (db.clone(), progress.clone());
            thread::spawn(move || {
                let table = db.table("t").unwrap();
                let mut random = fastrand::Rng::with_seed(writer.into());
                let mut refused = 0;
                for round in 0..EACH {
                    let mut batch = Batch::new();
                    let bytes = [100, 100_000, 400_000, LONG][random.usize(..4)];
                    batch.put(&table, &padded_key(writer * EACH + round), &vec![1; bytes]);
                    match db.write(&mut batch, NONE) {
                        Ok(_) => {}
                        Err(Error::Full { .. }) => refused += 1,
                        Err(error) => panic!("{error}"),
                    }
                    progress.step();
                }
                refused
            })
        })
        .collect();
    let done = Arc::new(pando_sync::atomic::AtomicBool::new(false));
    let switch = thread::spawn({
        let done = done.clone();
        move || {
            while !done.load(pando_sync::atomic::Ordering::SeqCst) {
                device.fail(FaultPlan::sticky(
                    Operation::Allocate,
                    "log/",
                    1,
                    Fault::Full,
                ));
                thread::sleep(Duration::from_millis(60));
                device.clear_faults();
                thread::sleep(Duration::from_millis(15));
            }
        }
    });
    progress.wait_for(u64::from(WRITERS * EACH));
    done.store(true, pando_sync::atomic::Ordering::SeqCst);
    switch.join().unwrap();
    let refused: u32 = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .sum();
    let stored = db.table("t").unwrap().len();
    assert_eq!(stored, u64::from(WRITERS * EACH - refused));
    db.close().unwrap();
}

/// A batch that waits for a longer log is told when the store is closed.
#[test]
fn a_close_ends_the_waits_for_a_longer_log() {
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options());
    let table = db.table("t").unwrap();
    device.fail(FaultPlan::sticky(
        Operation::Allocate,
        "log/",
        1,
        Fault::Full,
    ));
    let writer = thread::spawn(move || {
        loop {
            match table.put(b"long", &vec![8; LONG]) {
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => return error,
            }
        }
    });
    thread::sleep(Duration::from_millis(100));
    db.close().unwrap();
    let error = writer.join().unwrap();
    assert!(matches!(error, Error::Closed), "{error}");
    device.clear_faults();
    open_on(&device, options()).close().unwrap();
}

/// A compaction leaves no file of the log without room: a flush would wait for it on a full disk,
/// and with it every write, deletes too.
#[test]
fn a_compaction_shortens_the_log_and_leaves_it_the_room_of_what_stays() {
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    load(&table, 24);
    let lengths = || -> Vec<(u64, u64)> {
        let files = std::fs::read_dir(directory.path().join("log")).unwrap();
        let about = files.map(|file| file.unwrap().metadata().unwrap());
        about
            .map(|about| (about.len(), about.blocks() * 512))
            .collect()
    };
    let sum = |lengths: Vec<(u64, u64)>| lengths.iter().map(|(len, _)| len).sum::<u64>();
    let before = sum(lengths());
    let report = db.compact(|_| ControlFlow::Continue(())).unwrap();
    let after = lengths();
    assert!(
        after.iter().all(|(len, room)| room >= len),
        "holes: {after:?}"
    );
    let shorter = before - sum(after);
    assert!(shorter > before / 4, "{before} bytes, {shorter} less");
    // The thread of the log removes what a checkpoint frees, too.
    assert!(report.log_bytes_given_back <= shorter, "{report:?}");
    load(&table, 4);
    db.close().unwrap();
}
