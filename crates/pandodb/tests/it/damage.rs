//! Stores with damaged pages are written to, dropped from, and opened again. One page is lost, and
//! nothing else.

use std::ops::ControlFlow;

use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
use pando_format::TreeId;
use pando_format::catalogue::{FIRST_USER_TREE, GARBAGE_TREE};
use pando_format::page::{HEADER_BYTES, PageKind};
use pando_format::superblock::SLOT_BYTES;
use pando_sync::time::{self, Duration};
use pandodb::{Builder, Db, Error, VerifyReport, WriteOptions};

use crate::fixture::{NONE, open_on, text_key as key, wait_for_garbage};

const PAGE: usize = 4096;

fn options() -> Builder {
    Db::builder().max_memory(8 << 20).frames(64)
}

fn open(device: &FaultyDevice) -> Db {
    open_on(device, options())
}

/// Returns a closed store with a table `t` of `rows` rows, each with its number in its value.
fn filled(seed: u64, rows: u32) -> FaultyDevice {
    let device = FaultyDevice::new(seed);
    let db = open(&device);
    let table = db.table("t").unwrap();
    for number in 0..rows {
        let value = [&key(number)[..], &[7; 80]].concat();
        table.put_with(&key(number), &value, NONE).unwrap();
    }
    db.close().unwrap();
    device
}

fn tree_of(page: &[u8]) -> TreeId {
    TreeId(u32::from_le_bytes(page[8..12].try_into().unwrap()))
}

/// Returns the blocks of `data` that hold a page of this kind that belongs to a table and contains
/// `text`.
fn pages_with(device: &FaultyDevice, kind: PageKind, text: &[u8]) -> Vec<usize> {
    let data = device.snapshot_file("data");
    let holds = |page: &[u8]| {
        tree_of(page) >= FIRST_USER_TREE
            && PageKind::decode(page[12]) == Some(kind)
            && (text.is_empty()
                || page[HEADER_BYTES..]
                    .windows(text.len())
                    .any(|at| at == text))
    };
    let pages = data.chunks_exact(PAGE).enumerate();
    let found = pages.filter(|(_, page)| holds(page));
    found.map(|(block, _)| block).collect()
}

/// Damages every page that matches, including older images of it.
fn rot(device: &FaultyDevice, kind: PageKind, text: &[u8]) {
    let blocks = pages_with(device, kind, text);
    assert!(!blocks.is_empty(), "there is such a page");
    for block in blocks {
        device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
    }
}

/// Flips the same bits once more.
fn heal(device: &FaultyDevice, kind: PageKind, text: &[u8]) {
    rot(device, kind, text);
}

fn verify(device: &FaultyDevice) -> VerifyReport {
    VerifyReport::of_device(&device.clone().into()).expect("the store can be verified")
}

fn is_damage(error: &Error) -> bool {
    matches!(error, Error::CorruptPage { .. })
}

/// Checks that rows which are not lost can be read, that other rows can be written, and that the
/// store can be opened repeatedly.
fn goes_on(device: &FaultyDevice, rows: u32, lost: impl Fn(u32) -> bool) {
    for turn in 0..2_u32 {
        let db = open(device);
        let table = db.table("t").unwrap();
        for number in (0..rows).step_by(7) {
            let got = table.get(&key(number));
            match lost(number) {
                true => assert!(got.is_err_and(|error| is_damage(&error)), "row {number}"),
                false => assert!(got.unwrap().is_some(), "row {number}"),
            }
        }
        let other = db.table("other").unwrap();
        other.put(&turn.to_be_bytes(), b"written").unwrap();
        db.checkpoint().unwrap();
        db.close().expect("the close reports no error");
    }
    let db = open(device);
    assert_eq!(db.table("other").unwrap().iter().count(), 2);
}

const ROWS: u32 = 6000;

/// Pages that a batch may need besides those it holds are read before the batch is logged.
#[test]
fn a_batch_that_meets_a_damaged_page_is_refused_before_it_is_logged() {
    refuses(20, options());
}

/// The leaves of few writes are not pinned, but found before the batch is logged, too.
#[test]
fn a_short_batch_that_meets_a_damaged_page_is_refused_before_it_is_logged() {
    // They are pinned if they are more than one of 64 frames.
    refuses(2950, options().frames(256));
}

/// Writes each row whose number `step` divides in one batch, and so one that is lost.
fn refuses(step: usize, options: Builder) {
    let device = filled(1, ROWS);
    let lost = key(ROWS - 100);
    rot(&device, PageKind::Leaf, &lost);
    {
        let db = open_on(&device, options);
        let table = db.table("t").unwrap();
        let mut batch = pandodb::Batch::new();
        for number in (0..ROWS).step_by(step) {
            batch.put(&table, &key(number), b"new");
        }
        let refused = db.write(&mut batch, WriteOptions::default()).unwrap_err();
        assert!(is_damage(&refused), "{refused}");
        assert!(
            table.get(&key(0)).unwrap().unwrap().len() > 3,
            "no part of the batch was applied"
        );
        table.put(&key(1), b"others go on").unwrap();
        db.close().unwrap();
    }
    let db = open(&device);
    let table = db.table("t").unwrap();
    assert_eq!(table.get(&key(1)).unwrap().unwrap(), b"others go on");
    assert!(table.get(&lost).is_err_and(|error| is_damage(&error)));
    drop((table, db));
    let report = verify(&device);
    assert_eq!((report.writes_aside, report.leaked), (0, 0));
    // One damage is the page, and the other is the count of its table.
    assert_eq!(report.damages.len(), 2, "{:?}", report.damages);
}

/// The page was sound when the write was logged, and is damaged when the write is replayed.
#[test]
fn a_page_that_replay_cannot_read_is_out_of_reach_and_the_write_is_kept() {
    const ROWS: u32 = 3000;
    for kind in [PageKind::Leaf, PageKind::Inner] {
        let device = filled(2, ROWS);
        let crashed = {
            let db = open(&device);
            let table = db.table("t").unwrap();
            table.put(&key(1500), b"in the log").unwrap();
            assert!(table.delete(&key(1501)).unwrap());
            table.put(&key(20), b"elsewhere").unwrap();
            let crashed = device.after_crash(1, CrashMode::AllSurvive);
            device.crash_now();
            drop((table, db.close()));
            crashed
        };
        let is_leaf = kind == PageKind::Leaf;
        let text = if is_leaf { key(1500) } else { Vec::new() };
        rot(&crashed, kind, &text);
        {
            let db = open(&crashed);
            let table = db.table("t").unwrap();
            let read = table.get(&key(1500)).unwrap_err();
            assert!(is_damage(&read), "{read}");
            let refused = table.put(&key(1500), b"later").unwrap_err();
            assert!(is_damage(&refused), "{refused}");
            let deleted = table.delete(&key(1501)).unwrap_err();
            assert!(is_damage(&deleted), "{deleted}");
            if is_leaf {
                assert_eq!(table.get(&key(20)).unwrap().unwrap(), b"elsewhere");
                table.put(&key(21), b"others go on").unwrap();
                assert_eq!(table.range(..&key(1000)[..]).count(), 1000);
            }
            db.table("other").unwrap().put(b"a", b"b").unwrap();
            db.close().unwrap();
        }
        for turn in 0..3 {
            if turn == 1 {
                // The healed page still lacks the write.
                heal(&crashed, kind, &text);
            }
            let report = verify(&crashed);
            assert_eq!(report.writes_aside, if is_leaf { 2 } else { 3 });
            let db = open(&crashed);
            let other = db.table("other").unwrap();
            assert_eq!(other.get(b"a").unwrap().unwrap(), b"b");
            let table = db.table("t").unwrap();
            assert!(table.get(&key(1500)).is_err_and(|error| is_damage(&error)));
            db.close().unwrap();
        }
    }
}

/// The index page of a long value is lost, and the value is replaced. Pages that only the index
/// page names are leaked until a compaction reclaims them.
#[test]
fn a_value_whose_pages_are_not_known_can_be_replaced_and_removed() {
    let device = FaultyDevice::new(3);
    {
        let db = open(&device);
        let table = db.table("t").unwrap();
        for number in 0..3 {
            table.put(&key(number), &[number as u8; 100_000]).unwrap();
        }
        db.close().unwrap();
    }
    rot(&device, PageKind::OverflowIndex, b"");
    {
        let db = open(&device);
        let table = db.table("t").unwrap();
        assert!(table.get(&key(0)).is_err_and(|error| is_damage(&error)));
        table.put(&key(0), b"short").unwrap();
        assert!(table.delete(&key(1)).unwrap());
        table.put(&key(2), &[9; 100_000]).unwrap();
        db.close().unwrap();
    }
    let report = verify(&device);
    assert_eq!(report.damages, []);
    assert!(report.leaked >= 3 * 24, "{} pages", report.leaked);
    {
        let db = open(&device);
        let compacted = db.compact(|_| ControlFlow::Continue(())).unwrap();
        assert_eq!(compacted.reclaimed, report.leaked);
        db.close().unwrap();
    }
    let report = verify(&device);
    assert_eq!((&report.damages[..], report.leaked), (&[][..], 0));
    let db = open(&device);
    let table = db.table("t").unwrap();
    assert_eq!(table.get(&key(0)).unwrap().unwrap(), b"short");
    assert_eq!(table.get(&key(1)).unwrap(), None);
    assert_eq!(table.get(&key(2)).unwrap().unwrap(), [9; 100_000]);
}

/// A leaf, an inner node or the root of a table cannot be read, and the table is dropped or
/// emptied.
#[test]
fn a_damaged_table_can_be_dropped() {
    const ROWS: u32 = 9000;
    for (turn, kind) in [PageKind::Leaf, PageKind::Inner, PageKind::Inner]
        .into_iter()
        .enumerate()
    {
        let device = filled(4, ROWS);
        match (kind, turn) {
            (PageKind::Leaf, _) => rot(&device, kind, &key(4000)),
            (_, 1) => rot(&device, kind, b""),
            // This is an inner node other than the root, as a rule.
            _ => {
                let block = pages_with(&device, kind, b"")[0];
                device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
            }
        }
        {
            let db = open(&device);
            match turn {
                1 => db.clear_tables(&[&db.table("t").unwrap()]).unwrap(),
                _ => db.drop_table("t").unwrap(),
            }
            wait_for_garbage(&db);
            db.table("other").unwrap().put(b"a", b"b").unwrap();
            db.close().unwrap();
        }
        let report = verify(&device);
        assert_eq!(report.damages, [], "turn {turn}");
        assert!(report.leaked > 0 || kind == PageKind::Leaf, "turn {turn}");
        {
            let db = open(&device);
            db.table("other").unwrap().put(b"c", b"d").unwrap();
            let compacted = db.compact(|_| ControlFlow::Continue(())).unwrap();
            assert_eq!(compacted.reclaimed, report.leaked);
            db.close().unwrap();
        }
        let report = verify(&device);
        assert_eq!((&report.damages[..], report.leaked), (&[][..], 0));
    }
}

/// Underfull leaves next to a damaged one stay as they are.
#[test]
fn leaves_beside_a_damaged_one_can_become_sparse() {
    const ROWS: u32 = 3000;
    let device = filled(5, ROWS);
    rot(&device, PageKind::Leaf, &key(1500));
    let mut lost = Vec::new();
    {
        let db = open(&device);
        let table = db.table("t").unwrap();
        for number in 0..ROWS {
            match table.delete(&key(number)) {
                Ok(existed) => assert!(existed),
                Err(error) => {
                    assert!(is_damage(&error), "{error}");
                    lost.push(number);
                }
            }
        }
        assert!(lost.contains(&1500) && lost.len() < 100, "{lost:?}");
        table.put(&key(1), b"again").unwrap();
        db.close().unwrap();
    }
    let db = open(&device);
    let table = db.table("t").unwrap();
    assert_eq!(table.get(&key(1)).unwrap().unwrap(), b"again");
    table.put(&key(2), b"again").unwrap();
    drop((table, db));
    assert_eq!(verify(&device).writes_aside, 0);
}

#[test]
fn a_damaged_leaf_takes_nothing_else_along() {
    const ROWS: u32 = 3000;
    let device = filled(6, ROWS);
    let lost = key(700);
    rot(&device, PageKind::Leaf, &lost);
    let db = open(&device);
    let table = db.table("t").unwrap();
    let rows: Vec<u32> = (0..ROWS)
        .filter(|row| table.get(&key(*row)).is_err())
        .collect();
    drop((table, db));
    assert!(rows.contains(&700) && rows.len() < 60);
    goes_on(&device, ROWS, |row| rows.contains(&row));
}

/// The damaged leaf is read ahead, long before the scan comes there.
#[test]
fn a_scan_shows_all_that_lies_before_a_damaged_leaf() {
    let device = filled(7, 20_000);
    rot(&device, PageKind::Leaf, &key(15_000));
    let db = open_on(&device, options().frames(1024));
    let table = db.table("t").unwrap();
    let mut entries = table.iter();
    let mut shown = 0;
    let error = loop {
        match entries.next().expect("the scan does not end before") {
            Ok((found, _)) => assert_eq!(found, key(shown)),
            Err(error) => break error,
        }
        shown += 1;
    };
    assert!(is_damage(&error), "{error}");
    assert!((14_900..=15_000).contains(&shown), "{shown} rows");
    assert!(table.get(&key(shown)).is_err_and(|error| is_damage(&error)));
}

/// Only calls that add a row of garbage need the damaged page.
#[test]
fn tables_are_made_and_filled_beside_a_damaged_page_of_the_garbage() {
    const ROWS: u32 = 300;
    let device = filled(8, ROWS);
    let data = device.snapshot_file("data");
    let pages = data.chunks_exact(PAGE).enumerate();
    for (block, _) in pages.filter(|(_, page)| tree_of(page) == GARBAGE_TREE) {
        device.flip_bit("data", (block * PAGE + 2000) as u64, 3);
    }
    goes_on(&device, ROWS, |_| false);
    let db = open(&device);
    let refused = db.drop_table("t").unwrap_err();
    assert!(is_damage(&refused), "{refused}");
    assert_eq!(db.table("t").unwrap().len(), u64::from(ROWS));
    let begun = time::now();
    let compacted = db.compact(|_| match begun.elapsed() < Duration::from_secs(60) {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    let refused = compacted.expect_err("the compaction does not wait for rows that cannot be read");
    assert!(is_damage(&refused), "{refused}");
    db.close().unwrap();
    let db = open(&device);
    assert_eq!(db.table("t").unwrap().iter().count(), ROWS as usize);
    assert_eq!(db.table("other").unwrap().iter().count(), 2);
}

/// Each slot is read by itself, so that a block of the disk that cannot be read takes one along.
#[test]
fn a_store_opens_with_the_slot_of_the_superblock_that_can_be_read() {
    for slot in [0, 1] {
        let device = filled(31, 100);
        let place = slot * SLOT_BYTES;
        device.overwrite("superblock", place as u64, &[7; SLOT_BYTES]);
        let nth = 1 + slot as u64;
        device.fail(FaultPlan::once(
            Operation::Read,
            "superblock",
            nth,
            Fault::Io,
        ));
        let db = open(&device);
        assert_eq!(device.faults_struck(), 1);
        assert_eq!(db.table("t").unwrap().len(), 100);
        // It was written again.
        let bytes = device.snapshot_file("superblock");
        assert_eq!(bytes[..SLOT_BYTES], bytes[SLOT_BYTES..2 * SLOT_BYTES]);
        db.close().unwrap();
        let report = verify(&device);
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
    let device = filled(31, 100);
    device.fail(FaultPlan::sticky(
        Operation::Read,
        "superblock",
        1,
        Fault::Io,
    ));
    let refused = Db::open_device(options(), device.into())
        .map(drop)
        .unwrap_err();
    assert!(refused.is_corruption(), "{refused}");
    let text = refused.to_string();
    assert_eq!(text.matches("Input/output error").count(), 2, "{text}");
}
