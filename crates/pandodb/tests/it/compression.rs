//! A store keeps its compression: in later openings that choose none, in compactions, and in what
//! is salvaged.

use pando_format::bytes::put_u32;
use pando_format::checksum::crc32c;
use pandodb::device::faulty::{CrashMode, FaultyDevice};
use pandodb::device::{AnyDevice, Device, File, IoBuf, OpenOptions};
use pandodb::{Builder, Compression, Db, Error, StoreStat, VerifyReport};
use std::ops::ControlFlow;

use crate::fixture::{NONE, open_on, scattered_key};

const KEYS: u32 = 20_000;
/// Bytes of the superblock that name the compression and its level.
const COMPRESSION_AT: usize = 120;
const SLOT_BYTES: usize = 4096;

/// Options that choose no compression.
fn options() -> Builder {
    Db::builder()
        .max_memory(4 << 20)
        .frames(128)
        .log_bytes(1 << 20)
        .page_size(8192)
        .block_size(512)
}

/// Returns a value that compresses to less than half.
fn value(number: u32) -> Vec<u8> {
    format!("the value of key number {number}, which is followed by many bytes that repeat: ")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(160)
        .collect()
}

fn stays(number: u32) -> bool {
    number.is_multiple_of(4)
}

/// Returns a closed store of three quarters deleted keys, whose pages `compression` has written.
fn sparse(compression: Compression) -> FaultyDevice {
    let device = FaultyDevice::new(1);
    let db = open_on(&device, options().compression(compression));
    let table = db.table("t").unwrap();
    for number in 0..KEYS {
        let (key, value) = (scattered_key(number), value(number));
        table.put_with(&key, &value, NONE).unwrap();
    }
    for number in (0..KEYS).filter(|number| !stays(*number)) {
        assert!(table.delete_with(&scattered_key(number), NONE).unwrap());
    }
    drop(table);
    db.close().unwrap();
    device
}

fn check(db: &Db) {
    let table = db.table("t").unwrap();
    for number in 0..KEYS {
        let expected = stays(number).then(|| value(number));
        assert_eq!(table.get(&scattered_key(number)).unwrap(), expected);
    }
}

fn stat(device: &FaultyDevice) -> StoreStat {
    let report = VerifyReport::of_device(&AnyDevice::from(device.clone())).unwrap();
    assert_eq!(report.damages, []);
    report.stat
}

/// Checks that `codec` has compressed every page that can be compressed, and no other codec any.
fn assert_all(stat: &StoreStat, codec: &str) {
    for stored in &stat.stored {
        match stored.compression {
            // Roots of system trees are nearly empty, and so compressed as well.
            "none" if codec != "none" => assert!(stored.pages < 4, "{:?}", stat.stored),
            found => assert_eq!(found, codec, "{:?}", stat.stored),
        }
    }
    assert!(stat.stored.iter().any(|one| one.compression == codec));
}

/// Changes the bytes of the superblock that name the compression.
fn set_compression(device: &FaultyDevice, bytes: [u8; 2]) {
    let any = AnyDevice::from(device.clone());
    let file = any.open("superblock", OpenOptions::write()).unwrap();
    let mut slots = IoBuf::new(2 * SLOT_BYTES);
    slots.copy_from_slice(&device.snapshot_file("superblock")[..2 * SLOT_BYTES]);
    for slot in slots.chunks_exact_mut(SLOT_BYTES) {
        slot[COMPRESSION_AT..COMPRESSION_AT + 2].copy_from_slice(&bytes);
        let crc = crc32c(&slot[16..]);
        put_u32(slot, 12, crc);
    }
    file.write_at(&slots, 0).unwrap();
    file.sync().unwrap();
}

/// A new store has pages of several blocks if it has a compression, whatever the device's
/// alignment, unless its sizes are given.
#[test]
fn a_new_store_has_sizes_with_which_its_compression_works() {
    let none_given = || Db::builder().max_memory(4 << 20).log_bytes(1 << 20);
    let lz4 = || none_given().compression(Compression::Lz4);
    for (alignment, options, sizes) in [
        (512, none_given(), (4096, 4096)),
        (
            512,
            none_given().compression(Compression::None),
            (4096, 4096),
        ),
        (512, lz4(), (4096, 512)),
        (1024, lz4(), (4096, 1024)),
        (2048, lz4(), (8192, 2048)),
        (4096, lz4(), (16384, 4096)),
        (512, lz4().page_size(8192), (8192, 512)),
        (512, lz4().block_size(4096), (16384, 4096)),
        (512, lz4().page_size(4096).block_size(4096), (4096, 4096)),
    ] {
        let device = FaultyDevice::new(1);
        device.set_direct_alignment(alignment);
        let db = open_on(&device, options);
        let report = db.report();
        let what = format!("alignment {alignment}, {:?}", report.compression);
        assert_eq!((report.page_size, report.block_size), sizes, "{what}");
        let table = db.table("t").unwrap();
        for number in 0..4000 {
            let (key, value) = (scattered_key(number), value(number));
            table.put_with(&key, &value, NONE).unwrap();
        }
        drop(table);
        db.close().unwrap();
        let after = stat(&device);
        let page_bytes: u64 = after.stored.iter().map(|one| one.page_bytes).sum();
        let saves = report.compression != Compression::None && sizes.0 > sizes.1;
        assert_eq!(after.used_bytes * 3 < page_bytes * 2, saves, "{what}");
    }
}

#[test]
fn a_compaction_keeps_the_compression_of_the_store() {
    let device = sparse(Compression::Lz4);
    assert_all(&stat(&device), "lz4");
    let db = open_on(&device, options());
    assert_eq!(db.report().compression, Compression::Lz4);
    let report = db.compact(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.pages_merged + report.pages_packed > 50, "{report:?}");
    check(&db);
    db.close().unwrap();
    let after = stat(&device);
    assert_all(&after, "lz4");
    assert_eq!(after.compression, Some(Compression::Lz4));
}

#[test]
fn every_page_is_written_again_with_another_compression() {
    let device = sparse(Compression::Lz4);
    let mut packed = Vec::new();
    for (how, codec) in [
        (Compression::None, "none"),
        (Compression::Zstd(5), "zstd"),
        (Compression::Snappy, "snappy"),
        (Compression::Lz4, "lz4"),
    ] {
        if !how.is_built_in() {
            continue;
        }
        let db = open_on(&device, options().compression(how));
        let report = db.rewrite(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.finished, "{report:?}");
        check(&db);
        db.close().unwrap();
        let after = stat(&device);
        assert_all(&after, codec);
        assert_eq!(after.compression, Some(how));
        packed.push(after.used_bytes);
        // The next opening goes on with it.
        let db = open_on(&device, options());
        assert_eq!(db.report().compression, how);
        db.close().unwrap();
    }
    let smaller = packed[1..].iter().all(|bytes| 2 * bytes < packed[0]);
    assert!(smaller, "{packed:?}");
}

/// A rewriting that is told to stop, or whose process ends, leaves a store of both kinds of pages.
#[test]
fn a_rewriting_may_end_at_any_moment() {
    let device = sparse(Compression::Lz4);
    for steps in [1, 2, 5] {
        let db = open_on(&device, options().compression(Compression::Snappy));
        let mut left = steps;
        let report = db.rewrite(|progress| {
            left -= u32::from(progress.phase == pandodb::CompactPhase::Rewrite);
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        assert!(!report.unwrap().finished);
        check(&db);
        let copy = device.after_crash(u64::from(steps), CrashMode::AllLost);
        stat(&copy);
        check(&open_on(&copy, options()));
        db.close().unwrap();
    }
}

/// Earlier programs do not record the compression, and clear what was recorded.
#[test]
fn a_store_of_an_earlier_program_goes_on_with_what_its_pages_have() {
    for how in [Compression::Lz4, Compression::ZSTD, Compression::None] {
        if !how.is_built_in() {
            continue;
        }
        let device = sparse(how);
        set_compression(&device, [0, 0]);
        assert_eq!(stat(&device).compression, None);
        let db = open_on(&device, options());
        assert_eq!(db.report().compression, how);
        db.close().unwrap();
        assert_eq!(stat(&device).compression, Some(how));
    }
}

#[test]
fn a_compression_of_a_later_program_is_refused_by_name() {
    let device = sparse(Compression::Lz4);
    let original = device.snapshot_file("superblock");
    for bytes in [[9, 0], [2, 1], [3, 0], [0, 4]] {
        set_compression(&device, bytes);
        let any = || AnyDevice::from(device.clone());
        let open = |how: Builder| Db::open_device(how, any()).map(drop).unwrap_err();
        let opened = open(options());
        // A choice does not make the code known: pages may have it.
        let chosen = open(options().compression(Compression::Snappy));
        let looked = VerifyReport::of_device(&any()).map(drop).unwrap_err();
        for error in [opened, chosen, looked] {
            let name = format!("compression {} of level {}", bytes[0], bytes[1]);
            assert!(error.to_string().contains(&name), "{error}");
            assert!(matches!(error, Error::Corrupt { .. }), "{error:?}");
        }
    }
    set_compression(
        &device,
        [original[COMPRESSION_AT], original[COMPRESSION_AT + 1]],
    );
    check(&open_on(&device, options()));
}

#[test]
fn what_is_salvaged_keeps_the_compression() {
    for recorded in [true, false] {
        let device = sparse(Compression::Lz4);
        if !recorded {
            set_compression(&device, [0, 0]);
        }
        let into = FaultyDevice::new(2);
        let from = AnyDevice::from(device);
        let salvaged = pandodb::SalvageReport::of_devices(&from, into.clone().into(), options());
        assert!(salvaged.unwrap().is_whole());
        let after = stat(&into);
        assert_all(&after, "lz4");
        assert_eq!(after.compression, Some(Compression::Lz4));
        check(&open_on(&into, options()));
    }
}
