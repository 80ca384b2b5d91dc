//! Limits have names, and calls that meet one report it.

use pando_sync::{Arc, thread};
use pandodb::device::faulty::CrashMode;
use pandodb::device::{AnyDevice, FaultyDevice, MemoryDevice};
use pandodb::{Batch, Compression, Db, Durability, Error, WriteOptions};

use crate::progress::Progress;

#[test]
fn too_long_keys_and_values_are_refused_with_the_limit() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let limit = db.key_bytes_max();
    assert_eq!(limit, 1024);
    table.put(&vec![7; limit], b"fits").unwrap();
    assert_eq!(table.get(&vec![7; limit]).unwrap().unwrap(), b"fits");
    let error = table.put(&vec![7; limit + 1], b"").unwrap_err();
    assert!(
        matches!(
            error,
            Error::KeyTooLong {
                bytes: 1025,
                limit: 1024
            }
        ),
        "{error}"
    );
    let longest = db.value_bytes_max();
    table.put(b"v", &vec![1; longest]).unwrap();
    assert_eq!(table.get(b"v").unwrap().unwrap().len(), longest);
    let error = table.put(b"v", &vec![1; longest + 1]).unwrap_err();
    assert!(matches!(error, Error::ValueTooLong { .. }), "{error}");
}

/// The largest plain value with 64 MiB of memory has 4 MiB, and it can be put.
#[test]
fn four_mebibytes_fit_a_budget_of_sixty_four() {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    assert_eq!(db.plain_bytes_max(), 4 << 20);
    let table = db.table("t").unwrap();
    let value: Vec<u8> = (0..4_u32 << 20).map(|at| (at % 253) as u8).collect();
    table.put(b"v", &value).unwrap();
    assert!(table.get(b"v").unwrap().unwrap() == value);
}

#[test]
fn a_batch_that_cannot_fit_is_refused_whole() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut batch = Batch::new();
    for number in 0..40_u32 {
        batch.put(&table, &number.to_be_bytes(), &[1; 100_000]);
    }
    let error = db.write(&mut batch, WriteOptions::default()).unwrap_err();
    assert!(matches!(error, Error::BatchTooLarge { .. }), "{error}");
    assert!(table.is_empty());
}

/// More memory is advised only where it makes longer batches possible.
#[test]
fn the_error_of_a_long_batch_advises_what_helps() {
    let refused = |db: &Db| {
        let table = db.table("t").expect("it has room");
        let mut batch = Batch::new();
        for number in 0..400_u32 {
            batch.put(&table, &number.to_be_bytes(), &[1; 100_000]);
        }
        let written = db.write(&mut batch, WriteOptions::default());
        written.expect_err("it is too long").to_string()
    };
    let opened = |memory, place: &std::path::Path| {
        let options = Db::builder().max_memory(memory);
        options.open(place).expect("a directory of its own")
    };
    let place = tempfile::tempdir().unwrap();
    let little = opened(4 << 20, place.path());
    let text = refused(&little);
    assert!(text.contains("split it, or raise max_memory"), "{text}");
    little.close().unwrap();
    let text = refused(&opened(256 << 20, place.path()));
    assert!(text.contains("created with little memory"), "{text}");
    let place = tempfile::tempdir().unwrap();
    let text = refused(&opened(2 << 30, place.path()));
    assert!(text.ends_with(": split it"), "{text}");
}

/// A batch of many small writes asks for about as much room as it takes, and not for what as many
/// writes into as many leaves would take.
#[test]
fn a_long_batch_of_neighbours_fits_a_small_disk() {
    let keys = |from: u32| (from..from + 60_000).map(|number| number.to_be_bytes());
    let device = MemoryDevice::new(64 << 20);
    let options = Db::builder().max_memory(64 << 20).log_bytes(16 << 20);
    let db = Db::open_device(options, device.into()).unwrap();
    let table = db.table("t").unwrap();
    let none = WriteOptions::durability(Durability::None);
    let mut batch = Batch::new();
    for from in [0, 60_000] {
        keys(from).for_each(|key| batch.put(&table, &key, b"a value"));
        db.write(&mut batch, none).unwrap();
        batch.clear();
    }
    // Now the disk is nearly full.
    let filled = (0_u32..).find(|number| {
        let key = [b"filler".as_slice(), &number.to_be_bytes()].concat();
        let put = table.put_with(&key, &[1; 1900], none);
        put.inspect_err(|error| assert!(matches!(error, Error::Full { .. }), "{error}"))
            .is_err()
    });
    assert!(filled.unwrap() > 10_000);
    // Their leaves fit into the room that is kept for deletes.
    let deleted = keys(0).take(4_000);
    deleted.for_each(|key| batch.delete(&table, &key));
    db.write(&mut batch, none).unwrap();
    assert_eq!(table.len(), 116_000 + u64::from(filled.unwrap()));
    assert_eq!(table.get(&0_u32.to_be_bytes()).unwrap(), None);
    db.close().unwrap();
}

/// With much memory a batch may be longer than 8 MiB; a store that has such a batch in its log
/// opens with little memory, too.
#[test]
fn a_batch_of_twenty_mebibytes_survives() {
    let device = FaultyDevice::new(1);
    let opened = |device: AnyDevice, memory| {
        let options = Db::builder().max_memory(memory).log_bytes(512 << 20);
        Db::open_device(options, device).unwrap()
    };
    let db = opened(device.clone().into(), 2 << 30);
    let table = db.table("t").unwrap();
    let mut batch = Batch::new();
    for number in 0..20_000_u32 {
        batch.put(&table, &number.to_be_bytes(), &[number as u8; 1000]);
    }
    let durable = WriteOptions::durability(Durability::Durable);
    db.write(&mut batch, durable).unwrap();
    device.crash_now();
    let crashed = device.after_crash(1, CrashMode::AllLost);
    let db = opened(crashed.into(), 16 << 20);
    let table = db.table("t").unwrap();
    assert_eq!(table.len(), 20_000);
    for number in [0, 7_777, 19_999_u32] {
        let value = table.get(&number.to_be_bytes()).unwrap().unwrap();
        assert_eq!(value, [number as u8; 1000]);
    }
    db.close().unwrap();
}

#[test]
fn wrong_options_are_named() {
    for (builder, option) in [
        (Db::builder().page_size(5000), "page_size"),
        (Db::builder().max_memory(1000), "max_memory"),
        (Db::builder().block_size(256), "block_size"),
        (Db::builder().block_size(1000), "block_size"),
        (Db::builder().block_size(8192), "block_size"),
        (
            Db::builder().compression(Compression::Zstd(40)),
            "compression",
        ),
        (Db::builder().queue_depth(0), "queue_depth"),
        (
            Db::builder().completion_threads(usize::MAX),
            "completion_threads",
        ),
        // More than any machine has.
        (Db::builder().max_memory(u64::MAX), "max_memory"),
    ] {
        let error = builder.open_in_memory().map(drop).unwrap_err();
        assert!(error.to_string().contains(option), "{error}");
    }
}

#[test]
fn a_second_process_gets_a_clear_error() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path()).unwrap();
    let error = Db::open(directory.path()).unwrap_err();
    assert!(error.is_in_use(), "{error}");
    assert!(
        error
            .to_string()
            .contains(directory.path().to_str().unwrap()),
        "{error}"
    );
    db.close().unwrap();
    Db::open(directory.path()).unwrap();
}

#[test]
fn foreign_files_are_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("letter.txt"), "dear").unwrap();
    let error = Db::open(directory.path()).unwrap_err();
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert_eq!(
        std::fs::read(directory.path().join("letter.txt")).unwrap(),
        b"dear"
    );
}

/// A batch of deletes that is larger than any room that checkpoints make is refused. Smaller
/// batches are accepted, and may use the room that they free.
#[test]
fn a_batch_of_deletes_that_never_fits_is_refused() {
    let device = MemoryDevice::new(24 << 20);
    let options = Db::builder().max_memory(16 << 20).log_bytes(2 << 20);
    let db = Db::open_device(options, device.into()).unwrap();
    let table = db.table("t").unwrap();
    let none = WriteOptions::durability(Durability::None);
    // Two entries fit in a page.
    let stored = (0_u32..).find(|number| {
        let put = table.put_with(&number.to_be_bytes(), &[1; 1900], none);
        put.inspect_err(|error| assert!(matches!(error, Error::Full { .. }), "{error}"))
            .is_err()
    });
    let stored = stored.unwrap();
    let progress = Arc::new(Progress::default());
    let deleter = thread::spawn({
        let progress = progress.clone();
        move || {
            let of = |numbers: std::ops::Range<u32>| {
                let mut batch = Batch::new();
                numbers.for_each(|number| batch.delete(&table, &number.to_be_bytes()));
                batch
            };
            let refused = db.write(&mut of(0..stored), none);
            progress.step();
            assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
            assert_eq!(table.len(), u64::from(stored));
            for first in (0..stored / 2).step_by(100) {
                db.write(&mut of(first..first + 100), none).unwrap();
            }
            db.checkpoint().unwrap();
            // These need more than the reserve has room for.
            db.write(&mut of(stored / 2..stored / 2 + 1000), none)
                .unwrap();
            progress.step();
        }
    });
    progress.wait_for(2);
    deleter.join().unwrap();
}

/// Places that no value has are behind its end.
#[test]
fn a_place_far_behind_a_value_is_in_no_chunk() {
    let db = Db::builder().max_memory(4 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    table.put(b"key", &vec![7; 3_000_000]).unwrap();
    let mut value = table.get_reader(b"key").unwrap().unwrap();
    for place in [4_000_000, 1 << 63, u64::MAX] {
        assert_eq!(value.chunk_at(place), 3_000_000..3_000_000);
        assert_eq!(value.read_at(place, &mut [0; 10]).unwrap(), 0);
        assert_eq!(value.piece_at(place).unwrap(), b"");
    }
    let last = value.chunk_at(2_999_999);
    assert!(
        last.contains(&2_999_999) && last.end == 3_000_000,
        "{last:?}"
    );
}

#[test]
fn a_table_that_never_was_is_named() {
    let db = Db::builder().open_in_memory().unwrap();
    let refused = db.drop_table("never").unwrap_err().to_string();
    assert_eq!(refused, "there is no table 'never' (any more)");
}
