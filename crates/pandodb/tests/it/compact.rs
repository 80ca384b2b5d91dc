//! Compaction makes files small and changes nothing else.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pandodb::{Batch, CompactPhase, CompactProgress, CompactReport, Db, Error, Table};

use crate::fixture::{NONE, fill, scattered_key, verified};

const MIB: u64 = 1 << 20;
const VALUE_BYTES: usize = 100;

fn key(number: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&scattered_key(number));
    key[8..12].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u32, round: u8) -> Vec<u8> {
    let mut value = vec![round; VALUE_BYTES];
    value[..4].copy_from_slice(&number.to_be_bytes());
    value
}

fn fill_round(table: &Table, keys: u32, round: u8) {
    fill(table, 0..keys, |number| (key(number), value(number, round)));
}

fn delete(db: &Db, table: &Table, numbers: impl Iterator<Item = u32>) {
    let numbers: Vec<u32> = numbers.collect();
    for some in numbers.chunks(200) {
        let mut batch = Batch::new();
        for number in some {
            batch.delete(table, &key(*number));
        }
        db.write(&mut batch, NONE).unwrap();
    }
}

/// Returns the number of bytes that the files take on disk.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let bytes = |entry: fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => disk_bytes(&entry.path()),
        false => entry.metadata().map_or(0, |of| of.blocks() * 512),
    };
    entries.map(bytes).sum()
}

fn compact(db: &Db) -> CompactReport {
    let mut last = 0.0;
    let report = db.compact(|progress: CompactProgress| {
        assert!((last..=1.0).contains(&progress.share), "{progress:?}");
        last = progress.share;
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(report.finished && last > 0.9, "{report:?}");
    report
}

fn verify(directory: &Path) {
    verified(directory);
}

/// Checks that the files are as small as the documentation says, for keys and values of `bytes`
/// bytes.
fn assert_small(directory: &Path, bytes: u64, what: &str) {
    let disk = disk_bytes(directory);
    let list = || {
        let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
        let of =
            |entry: fs::DirEntry| (entry.file_name(), entry.metadata().unwrap().blocks() * 512);
        entries.map(of).collect::<Vec<_>>()
    };
    let most = bytes * 3 / 2 + 16 * MIB;
    assert!(disk <= most, "{what}: {disk} of {bytes}: {:?}", list());
}

/// Stops the threads that run besides a test, also if the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn stays(number: u32) -> bool {
    number.is_multiple_of(10)
}

fn bytes_of(count: u32) -> u64 {
    u64::from(count) * (16 + VALUE_BYTES as u64)
}

#[test]
fn a_store_that_lost_most_of_its_keys_becomes_small() {
    const KEYS: u32 = 400_000;
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let options = Db::builder().max_memory(24 << 20);
        options.open(directory.path()).unwrap()
    };
    let db = open();
    let table = db.table("t").unwrap();
    fill_round(&table, KEYS, 1);
    delete(&db, &table, (0..KEYS).filter(|number| !stays(*number)));
    let before = disk_bytes(directory.path());
    let report = compact(&db);
    let bytes = bytes_of(KEYS / 10);
    assert!(before > 64 * MIB, "{before}");
    assert_small(directory.path(), bytes, "open");
    // The length of the file is bounded, apart from a mebibyte of slack and the reserve.
    let data = report.data_bytes_after;
    assert!(
        data <= bytes * 5 / 4 + 4 * MIB,
        "{data} of {bytes}: {report:?}"
    );
    assert!(report.data_bytes_before > 4 * data, "{report:?}");
    assert_eq!(db.report().data_bytes, data);
    let check = |db: &Db| {
        let table = db.table("t").unwrap();
        assert_eq!(table.len(), u64::from(KEYS / 10));
        for number in 0..KEYS {
            let expected = stays(number).then(|| value(number, 1));
            assert_eq!(table.get(&key(number)).unwrap(), expected, "{number}");
        }
    };
    check(&db);
    drop(table);
    db.close().unwrap();
    assert_small(directory.path(), bytes, "closed");
    verify(directory.path());
    let db = open();
    check(&db);
    // A second compaction finds nothing to do.
    let again = compact(&db);
    assert!(again.pages_packed * 8 < data / 4096, "{again:?}");
    assert!(again.pages_moved * 10 < data / 4096, "{again:?}");
    let table = db.table("t").unwrap();
    fill_round(&table, 30_000, 2);
    assert_eq!(table.get(&key(5)).unwrap(), Some(value(5, 2)));
    drop(table);
    db.close().unwrap();
    verify(directory.path());
}

#[test]
fn a_store_is_compacted_while_others_read_and_write() {
    const KEYS: u32 = 400_000;
    // The writer changes few pages, since dirty and retired pages count towards the size.
    const OWN: u32 = 200;
    let directory = tempfile::tempdir().unwrap();
    // The log is small, too, because writers fill it while the sizes are measured.
    let db = Db::builder()
        .max_memory(16 << 20)
        .log_bytes(4 << 20)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    fill_round(&table, KEYS, 1);
    delete(&db, &table, (0..KEYS).filter(|number| !stays(*number)));
    let (stop, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let reports = thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            for number in (0..KEYS).filter(|number| stays(*number)).cycle() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                assert_eq!(table.get(&key(number)).unwrap(), Some(value(number, 1)));
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // The writer's keys are inserted and deleted. All others exist, each once.
                let count = table.iter().map(Result::unwrap);
                let count = count.filter(|(key, _)| key[15] == 0).count();
                assert_eq!(count as u32, KEYS / 10);
                let count = table.iter().rev().map(Result::unwrap);
                let count = count.filter(|(key, _)| key[15] == 0).count();
                assert_eq!(count as u32, KEYS / 10);
            }
        });
        scope.spawn(|| {
            for turn in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let number = turn % OWN;
                let mut own = key(number * 7919);
                own[15] = 1;
                match turn / OWN % 2 {
                    0 => table.put_with(&own, &value(number, 3), NONE).unwrap(),
                    _ => assert!(table.delete_with(&own, NONE).unwrap()),
                }
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let reports = [compact(&db), compact(&db)];

        let bytes = bytes_of(KEYS / 10 + OWN);
        assert_small(directory.path(), bytes, "while others write");
        reports
    });
    let (reads, writes) = (reads.into_inner(), writes.into_inner());
    assert!(reads > 100 && writes > 100, "{reads} {writes}: {reports:?}");
    assert!(reports[0].data_bytes_before > 2 * reports[1].data_bytes_after);
    drop(table);
    db.close().unwrap();
    verify(directory.path());
}

fn large(number: u32) -> Vec<u8> {
    let words = (0..).map(|word: u32| word.wrapping_mul(number + 7));
    let bytes = words.flat_map(u32::to_le_bytes);
    bytes.take(600_000 + number as usize * 977).collect()
}

/// Puts values in chunks with small values between them, scattered over the file.
fn fill_large(db: &Db, table: &Table, small: &Table, values: u32) {
    for number in 0..values {
        table.put_with(&key(number), &large(number), NONE).unwrap();
        let mut batch = Batch::new();
        for part in 0..200 {
            let number = number * 200 + part;
            batch.put(small, &key(number), &value(number, 1));
        }
        db.write(&mut batch, NONE).unwrap();
        if number % 8 == 0 {
            db.checkpoint().unwrap();
        }
    }
}

/// Every fifth value in chunks stays.
#[test]
fn chunks_move_and_readers_of_them_go_on() {
    const VALUES: u32 = 120;
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(16 << 20)
        .chunk_size(64 << 10)
        .chunk_values_over(32 << 10)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    let small = db.table("small").unwrap();
    fill_large(&db, &table, &small, VALUES);
    let mut bytes = bytes_of(VALUES * 200 / 5);
    for number in 0..VALUES {
        match number % 5 {
            0 => bytes += large(number).len() as u64,
            _ if number == VALUES - 2 => {}
            _ => assert!(table.delete_with(&key(number), NONE).unwrap()),
        }
    }
    // Garbage from before the reader is freed first, which makes room to move chunks to.
    while db.garbage_left() {
        thread::yield_now();
    }
    let mut old = table.get_reader(&key(VALUES - 2)).unwrap().unwrap();
    assert!(table.delete_with(&key(VALUES - 2), NONE).unwrap());
    delete(
        &db,
        &small,
        (0..VALUES * 200).filter(|number| number % 5 != 0),
    );
    let stop = AtomicBool::new(false);
    let report = thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for number in (0..VALUES).step_by(5) {
                    assert!(table.get(&key(number)).unwrap() == Some(large(number)));
                }
            }
        });
        compact(&db)
    });
    assert!(report.chunks_moved > 10, "{report:?}");
    let mut expected = large(VALUES - 2);
    let mut found = vec![0; expected.len()];
    assert_eq!(old.read_at(0, &mut found).unwrap(), expected.len());
    assert!(
        found == expected,
        "the open reader does not see the deleted value"
    );
    drop(old);
    let last = compact(&db);
    assert_small(directory.path(), bytes, "with chunks");
    assert!(
        last.data_bytes_after <= bytes * 5 / 4 + 4 * MIB,
        "{last:?} {bytes}"
    );
    drop((table, small));
    db.close().unwrap();
    verify(directory.path());
    let db = Db::open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    for number in 0..VALUES {
        expected = large(number);
        let expected = (number % 5 == 0).then_some(&expected);
        assert!(table.get(&key(number)).unwrap().as_ref() == expected);
    }
}

#[test]
fn a_compaction_ends_when_it_is_told_to_or_the_store_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(16 << 20)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    fill_round(&table, 60_000, 1);
    delete(&db, &table, (0..60_000).filter(|number| !stays(*number)));
    for phase in [CompactPhase::Garbage, CompactPhase::Pack, CompactPhase::Cut] {
        let mut seen = false;
        let report = db.compact(|progress| {
            let busy = db.compact(|_| ControlFlow::Continue(()));
            assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
            seen |= progress.phase == phase;
            match seen {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        let report = report.unwrap();
        assert!(!report.finished && seen, "{phase:?}: {report:?}");
    }
    fill_round(&table, 100, 2);
    drop(table);
    let (started, other) = (AtomicBool::new(false), db.clone());
    let started = &started;
    let closed = thread::scope(|scope| {
        let compacting = scope.spawn(move || {
            let db = other;
            db.compact(|_| {
                started.store(true, Ordering::Relaxed);
                thread::yield_now();
                ControlFlow::Continue(())
            })
        });
        while !started.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        db.close().unwrap();
        compacting.join().unwrap()
    });
    let ended = matches!(&closed, Ok(report) if report.finished);
    assert!(ended || matches!(closed, Err(Error::Closed)), "{closed:?}");
    verify(directory.path());
}

/// Nothing is left to win behind a compaction: all that is free lies at the end of the file, also
/// in a small store, and a second compaction moves little.
#[test]
fn a_compacted_store_has_no_holes() {
    // A few mebibytes of pages, which is about what is kept free behind them.
    for keys in [8_000, 30_000, 150_000] {
        for block in [4096, 512] {
            let what = format!("{keys} keys in blocks of {block}");
            let directory = tempfile::tempdir().unwrap();
            let open = || {
                let options = Db::builder().max_memory(16 << 20).block_size(block);
                let options = options.compression(pandodb::Compression::Lz4);
                options.open(directory.path()).unwrap()
            };
            let db = open();
            let table = db.table("t").unwrap();
            fill_round(&table, keys, 1);
            db.checkpoint().unwrap();
            delete(&db, &table, (0..keys).filter(|number| number % 3 != 0));
            compact(&db);
            drop(table);
            db.close().unwrap();
            let stat = verified(directory.path()).stat;
            let free = stat.data_bytes - stat.used_bytes;
            let holes = free - stat.free_run_bytes_max;
            // The last checkpoint has freed what named the mapping and the free space before: about
            // 64 KiB, and each a few blocks.
            let most = stat.used_bytes / 50 + 72 * 1024;
            assert!(holes <= most, "{what}: {holes} of {free}: {stat:?}");
            // 64 KiB of a file of less than two mebibytes.
            assert!(stat.fragmentation_percent <= 4, "{what}: {stat:?}");
            let db = open();
            let again = compact(&db);
            let pages = bytes_of(keys / 3) / 4096;
            assert!(again.pages_moved <= 20 + pages / 5, "{what}: {again:?}");
            db.close().unwrap();
        }
    }
}
