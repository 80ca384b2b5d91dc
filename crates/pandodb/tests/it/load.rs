//! Loads of keys in order.

use pandodb::{Batch, Db, Durability, Error, WriteOptions};

fn key(number: u32) -> Vec<u8> {
    format!("user:{number:010}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    // One in a thousand goes to overflow pages, and is a batch of its own.
    let bytes = if number % 1000 == 17 { 30_000 } else { 90 };
    vec![number as u8; bytes]
}

fn open(path: &std::path::Path) -> Db {
    let options = Db::builder().max_memory(8 << 20);
    options.durability(Durability::None).open(path).unwrap()
}

#[test]
fn a_sorted_load_fills_leaves_and_is_durable_on_return() {
    let (directory, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    let entries = (0..20_000).map(|number| (key(number), value(number)));
    assert_eq!(table.load_sorted(entries).unwrap(), 20_000);
    // As a crash would leave it now, but for the log.
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap();
        if file.file_name() != "LOCK" && file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    std::fs::create_dir(copy.path().join("log")).unwrap();
    drop(table);
    db.close().unwrap();
    for path in [directory.path(), copy.path()] {
        let report = pandodb::verify(path, |_, _| ()).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
        let leaves = report.stat.tables[0].tree[0];
        assert_eq!(leaves.keys, 20_000);
        assert!(leaves.fill_percent(4096) > 94.0, "{leaves:?}");
    }
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    for (number, entry) in table.iter().enumerate() {
        let number = number as u32;
        assert_eq!(entry.unwrap(), (key(number), value(number)));
    }
    assert_eq!(table.len(), 20_000);
}

#[test]
fn only_an_empty_table_is_loaded_and_only_in_order() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(table.load_sorted([(b"k", b"v"); 0]).unwrap(), 0);
    for wrong in [999, 1000] {
        let entries = (0..5000).map(|number| {
            let number = if number == 1000 { wrong } else { number };
            (key(number), [1; 20])
        });
        let end = table.load_sorted(entries);
        if wrong == 1000 {
            assert_eq!(end.unwrap(), 5000);
            continue;
        }
        assert!(matches!(end, Err(Error::NotAscending { entry: 1000 })));
        // What is there is a beginning of what came.
        let kept = table.len();
        assert!(kept > 0 && kept < 1000, "{kept}");
        let keys = table.iter().map(|entry| entry.unwrap().0);
        assert!(keys.eq((0..kept as u32).map(key)));
        let again = table.load_sorted([(b"a", b"b")]);
        assert!(matches!(again, Err(Error::NotEmpty { .. })));
        db.clear_tables(&[&table]).unwrap();
    }
    let long = vec![b'k'; db.key_bytes_max() + 1];
    db.clear_tables(&[&table]).unwrap();
    let too_long = table.load_sorted([(long, b"v")]);
    assert!(matches!(too_long, Err(Error::KeyTooLong { .. })));
    assert!(table.is_empty());
}

/// Batches whose keys lie together, of which some are there already, in two tables.
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
    // 0, 2, 4 and 6 have all keys of theirs; 7, the last one, those that are even.
    let expected: Vec<u32> = (0..4000).chain((4000..4500).step_by(2)).collect();
    drop((left, right));
    db.close().unwrap();
    let report = pandodb::verify(directory.path(), |_, _| ()).unwrap();
    assert!(report.damages.is_empty(), "{:?}", report.damages);
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
fn a_load_that_is_not_finished_leaves_a_beginning() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut loader = table.loader().unwrap();
    for number in 0..5000 {
        loader.put(&key(number), &[1; 20]).unwrap();
    }
    let wrong = loader.put(&key(4999), &[2; 20]);
    assert!(matches!(wrong, Err(Error::NotAscending { entry: 5000 })));
    drop(loader);
    let kept = table.len();
    assert!(kept > 4000 && kept < 5000, "{kept}");
    let keys = table.iter().map(|entry| entry.unwrap().0);
    assert!(keys.eq((0..kept as u32).map(key)));
    assert!(matches!(table.loader(), Err(Error::NotEmpty { .. })));
}
