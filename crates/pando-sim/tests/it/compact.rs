//! Crashes in the middle of a compaction that moves most of a store, and of one that writes all of
//! it again with another compression.

use std::ops::ControlFlow;

use pando_device::faulty::CrashMode;
use pando_device::{AnyDevice, FaultyDevice};
use pando_sim::crash::MODES;
use pando_sim::panics;
use pando_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use pando_sync::thread;
use pandodb::{
    Batch, Builder, CompactReport, Compression, Db, Durability, VerifyReport, WriteOptions,
};

use crate::number;

const KEYS: u32 = 24_000;
const LARGE: u32 = 24;
const DENSE: u32 = 2400;

fn options() -> Builder {
    Builder::default()
        .max_memory(4 << 20)
        .give_back_after(None)
        .frames(256)
        .log_bytes(1 << 20)
        .chunk_size(16 << 10)
        .chunk_values_over(8 << 10)
}

/// What is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// A compaction of pages of one block.
    Pack,
    /// A rewriting of compressed pages with another compression.
    Rewrite,
}

impl Work {
    fn options(self) -> Builder {
        match self {
            Self::Pack => options(),
            Self::Rewrite => options().block_size(512),
        }
    }

    /// Opens a store that is to be filled, or looked at.
    fn open(self, device: &FaultyDevice) -> pandodb::Result<Db> {
        panics::watch("a store");
        Db::open_device(self.options(), AnyDevice::from(device.clone()))
    }

    fn create(self, device: &FaultyDevice) -> pandodb::Result<Db> {
        let options = match self {
            Self::Pack => self.options(),
            Self::Rewrite => self.options().compression(Compression::Lz4),
        };
        panics::watch("a store");
        Db::open_device(options, AnyDevice::from(device.clone()))
    }

    /// Opens a store to work on it.
    fn begin(self, device: &FaultyDevice) -> pandodb::Result<Db> {
        let options = match self {
            Self::Pack => self.options(),
            Self::Rewrite => self.options().compression(Compression::Snappy),
        };
        panics::watch("a store");
        Db::open_device(options, AnyDevice::from(device.clone()))
    }

    /// Checks that all pages that are compressed have the compression of the rewriting.
    fn assert_done(self, device: &FaultyDevice) {
        let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
        let stored = report.stat.stored.iter().map(|one| one.compression);
        let codecs: Vec<_> = stored.filter(|codec| *codec != "none").collect();
        let expected: &[&str] = match self {
            Self::Pack => &[],
            Self::Rewrite => &["snappy"],
        };
        assert_eq!(codecs, expected);
    }

    fn run(self, db: &Db) -> pandodb::Result<CompactReport> {
        match self {
            Self::Pack => db.compact(|_| ControlFlow::Continue(())),
            Self::Rewrite => db.rewrite(|_| ControlFlow::Continue(())),
        }
    }
}

fn key(number: u32) -> [u8; 8] {
    let scattered = u64::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    scattered.to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    let bytes = 300 + number as usize % 400;
    number
        .to_be_bytes()
        .into_iter()
        .cycle()
        .take(bytes)
        .collect()
}

fn large(number: u32) -> Vec<u8> {
    let bytes = 150_000 + number as usize * 1001;
    let words = (0..).map(|word: u32| word.wrapping_mul(number + 3));
    words.flat_map(u32::to_le_bytes).take(bytes).collect()
}

fn stays(number: u32) -> bool {
    number.is_multiple_of(8)
}

fn none() -> WriteOptions {
    WriteOptions::durability(Durability::None)
}

/// Returns a store whose pages and chunks are scattered over a file that is several times too long.
fn scattered(work: Work) -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = work.create(&device).unwrap();
    let (table, long) = (db.table("t").unwrap(), db.table("long").unwrap());
    for number in 0..KEYS {
        table
            .put_with(&key(number), &value(number), none())
            .unwrap();
    }
    // They are followed by leaves that are full, and by chunks.
    let dense = db.table("dense").unwrap();
    for number in 0..DENSE {
        let key = number.to_be_bytes();
        dense.put_with(&key, &value(number), none()).unwrap();
        if number % (DENSE / LARGE) == 0 {
            let number = number / (DENSE / LARGE);
            long.put_with(&self::key(number), &large(number), none())
                .unwrap();
        }
    }
    drop(dense);
    db.checkpoint().unwrap();
    let mut batch = Batch::new();
    for number in (0..KEYS).filter(|number| !stays(*number)) {
        batch.delete(&table, &key(number));
        if number % 200 == 1 {
            db.write(&mut batch, none()).unwrap();
            batch.clear();
        }
    }
    db.write(&mut batch, none()).unwrap();
    for number in (0..LARGE).filter(|number| !number.is_multiple_of(4)) {
        assert!(long.delete_with(&key(number), none()).unwrap());
    }
    drop((table, long));
    while db.garbage_left() {
        thread::yield_now();
    }
    db.checkpoint().unwrap();
    // A close would move what is little.
    device.crash_now();
    device.after_crash(1, CrashMode::AllSurvive)
}

/// Checks that the old entries exist, and no others, and that all acknowledged writes of the writer
/// exist.
fn check(db: &Db, written: u32) {
    let (table, long) = (db.table("t").unwrap(), db.table("long").unwrap());
    let kept = (0..KEYS).filter(|number| stays(*number));
    let mut expected: Vec<[u8; 8]> = kept.clone().map(key).collect();
    expected.sort_unstable();
    let found = table.iter().map(|entry| entry.unwrap().0);
    assert!(found.eq(expected.iter().map(|key| &key[..])));
    for number in kept {
        assert_eq!(table.get(&key(number)).unwrap(), Some(value(number)));
    }
    for number in 0..LARGE {
        let expected = number.is_multiple_of(4).then(|| large(number));
        assert!(long.get(&key(number)).unwrap() == expected, "{number}");
    }
    let dense = db.table("dense").unwrap();
    assert_eq!(dense.iter().count(), DENSE as usize);
    for number in 0..DENSE {
        let found = dense.get(&number.to_be_bytes()).unwrap();
        assert_eq!(found, Some(value(number)));
    }
    let own = db.table("own").unwrap();
    for number in 0..written {
        assert_eq!(own.get(&key(number)).unwrap(), Some(value(number)));
    }
}

fn verify(device: &FaultyDevice, what: &str) {
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert!(report.damages.is_empty(), "{what}: {:?}", report.damages);
}

/// Works until the device crashes, with a concurrent writer if `writes`. Returns the number of
/// acknowledged puts.
fn work_and_write(work: Work, device: &FaultyDevice, writes: bool) -> u32 {
    let (stop, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let Ok(db) = work.begin(device) else {
        return 0;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            if !writes {
                return;
            }
            let Ok(own) = db.table("own") else { return };
            for number in 0.. {
                let put = own.put(&key(number), &value(number));
                if put.is_err() || stop.load(Ordering::Relaxed) {
                    break;
                }
                written.store(number + 1, Ordering::Relaxed);
            }
        });
        let _report = work.run(&db);
        stop.store(true, Ordering::Relaxed);
    });
    device.crash_now();
    written.into_inner()
}

/// Crashes `original` during `work`, at the point that `arm` sets. Checks what is left, and does
/// the work to the end.
fn crash(work: Work, original: &FaultyDevice, seed: u64, what: &str, arm: impl Fn(&FaultyDevice)) {
    // Without a writer the operations are the same as when they were counted.
    let writes = seed % 2 == 1;
    let device = original.after_crash(seed, CrashMode::AllSurvive);
    arm(&device);
    let written = work_and_write(work, &device, writes);
    for mode in MODES {
        let after = device.after_crash(seed, mode);
        let what = format!("{what}, {mode:?}, {written} writes");
        verify(&after, &what);
        let db = work.open(&after).unwrap();
        check(&db, written);
        drop(db);
        // A compaction continues from where it was.
        let db = work.begin(&after).unwrap();
        let report = work.run(&db).unwrap();
        assert!(report.finished);
        check(&db, written);
        db.close().unwrap();
        verify(&after, &what);
        work.assert_done(&after);
    }
}

#[test]
fn a_compaction_may_be_cut_off_at_any_sync_or_write() {
    cut_off(Work::Pack);
}

#[test]
fn a_rewriting_may_be_cut_off_at_any_sync_or_write() {
    cut_off(Work::Rewrite);
}

fn cut_off(work: Work) {
    let original = scattered(work);
    let whole = original.after_crash(1, CrashMode::AllSurvive);
    let (syncs, writes) = {
        let db = work.begin(&whole).unwrap();
        check(&db, 0);
        let report = work.run(&db).unwrap();
        check(&db, 0);
        // How many depends on where the store has put them while it was filled.
        assert!(
            report.pages_moved > 50 && report.chunks_moved > 10,
            "{report:?}"
        );
        assert!(
            report.data_bytes_before > 2 * report.data_bytes_after,
            "{report:?}"
        );
        let counts = (whole.sync_points(), whole.writes());
        db.close().unwrap();
        verify(&whole, "whole");
        work.assert_done(&whole);
        counts
    };
    let points = number("PANDO_COMPACT_POINTS", 8);
    // These syncs are those of the checkpoint that names the shorter file, and of the cut.
    for sync in syncs.saturating_sub(7)..=syncs {
        crash(work, &original, 0, &format!("sync {sync}"), |device| {
            device.crash_at_sync(sync);
        });
    }
    for point in 0..points {
        let sync = 1 + point * syncs / points;
        crash(work, &original, point, &format!("sync {sync}"), |device| {
            device.crash_at_sync(sync);
        });
        let write = 1 + point * writes / points;
        crash(
            work,
            &original,
            point,
            &format!("write {write}"),
            |device| {
                device.crash_after_writes(write);
            },
        );
    }
}
