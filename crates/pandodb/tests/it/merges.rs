//! Leaves that lose most of their records are merged in the background.

use std::path::Path;

use pando_sync::thread;
use pandodb::statistics::Ticker;
use pandodb::{Batch, Db, LevelStat, Table};

use crate::fixture::{NONE, fill, scattered_key, verified};

const KEYS: u32 = 30_000;

fn stays(number: u32) -> bool {
    number.is_multiple_of(10)
}

fn fill_all(table: &Table) {
    fill(table, 0..KEYS, |number| {
        (scattered_key(number), [number as u8; 100])
    });
}

/// Returns the leaves of the only table of a store, which must be sound.
fn leaves(directory: &Path) -> LevelStat {
    let report = verified(directory);
    report.stat.tables[0].tree[0]
}

fn check(db: &Db) {
    let table = db.table("t").unwrap();
    let stay = KEYS.div_ceil(10);
    assert_eq!(
        (table.len(), table.iter().count()),
        (u64::from(stay), stay as usize)
    );
    assert_eq!(table.iter().rev().count(), stay as usize);
    for number in 0..KEYS {
        let value = table.get(&scattered_key(number)).unwrap();
        let expected = stays(number).then(|| vec![number as u8; 100]);
        assert_eq!(value, expected, "{number}");
    }
}

fn delete_most(max_memory: u64, threads: u32) {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let options = Db::builder().max_memory(max_memory);
        options.open(directory.path()).unwrap()
    };
    let db = open();
    fill_all(&db.table("t").unwrap());
    db.close().unwrap();
    let before = leaves(directory.path());
    let db = open();
    let table = db.table("t").unwrap();
    thread::scope(|scope| {
        for thread in 0..threads {
            let table = &table;
            scope.spawn(move || {
                let mine = (0..KEYS).filter(|number| number / 64 % threads == thread);
                for number in mine.filter(|number| !stays(*number)) {
                    assert!(table.delete_with(&scattered_key(number), NONE).unwrap());
                    if number % 4096 == 0 {
                        let kept = table.range(&scattered_key(number)[..]..).take(300).count();
                        assert!(kept > 0 || scattered_key(number)[0] > 0xF0, "{number}");
                    }
                }
            });
        }
    });
    check(&db);
    drop(table);
    db.close().unwrap();
    let after = leaves(directory.path());
    assert_eq!(after.keys, u64::from(KEYS / 10));
    assert!(after.fill_percent(4096) >= 25.0, "{after:?}");
    assert!(after.pages * 5 < before.pages * 2, "{before:?} {after:?}");
    let db = open();
    check(&db);
    db.close().unwrap();
    assert_eq!(leaves(directory.path()), after);
}

#[test]
fn a_table_that_loses_nine_keys_of_ten_keeps_few_leaves() {
    delete_most(16 << 20, 1);
}

/// The table is larger than memory, and several threads delete from it.
#[test]
fn so_does_one_that_is_larger_than_memory_with_threads_at_work() {
    delete_most(3 << 20, 3);
}

#[test]
fn leaves_are_merged_while_the_store_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(16 << 20)
        .open(directory.path())
        .unwrap();
    let table = db.table("t").unwrap();
    fill_all(&table);
    for number in (0..KEYS).filter(|number| !stays(*number)) {
        table.delete_with(&scattered_key(number), NONE).unwrap();
    }
    // The last few notes may wait for more notes, but the others do not wait for the close.
    while db.statistics().get(Ticker::PagesMerged) < 100 {
        thread::yield_now();
    }
    check(&db);
}

#[test]
fn a_few_underfull_leaves_are_merged_at_close_at_the_latest() {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::builder().max_memory(16 << 20);
    let db = options.open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    // The leaves are filled in order. None becomes empty, and there are too few notes to wake the
    // maintenance thread.
    for number in 0..250u32 {
        let key = number.to_be_bytes();
        table.put_with(&key, &[1; 100], NONE).unwrap();
    }
    for number in (0..250).filter(|number| !stays(*number)) {
        table.delete_with(&number.to_be_bytes(), NONE).unwrap();
    }
    drop(table);
    db.close().unwrap();
    let leaves = leaves(directory.path());
    assert_eq!(leaves.keys, 25);
    assert!(leaves.pages <= 3, "{leaves:?}");
}

#[test]
fn replay_notes_what_the_log_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let copy = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let options = Db::builder().max_memory(16 << 20);
        let rarely = std::time::Duration::from_secs(3600);
        options.checkpoint_interval(rarely).open(path).unwrap()
    };
    let db = open(directory.path());
    fill_all(&db.table("t").unwrap());
    db.close().unwrap();
    let before = leaves(directory.path());
    // While the store is open, its files are as after a crash: the last superblock, and a log.
    let db = open(directory.path());
    let table = db.table("t").unwrap();
    for start in (0..KEYS).step_by(100) {
        let mut batch = Batch::new();
        for number in (start..start + 100).filter(|number| !stays(*number)) {
            batch.delete(&table, &scattered_key(number));
        }
        db.write(&mut batch, NONE).unwrap();
    }
    db.flush().unwrap();
    for file in std::fs::read_dir(directory.path()).unwrap() {
        let (file, copy) = (file.unwrap(), copy.path());
        if file.file_type().unwrap().is_dir() {
            let log = copy.join(file.file_name());
            std::fs::create_dir(&log).unwrap();
            for segment in std::fs::read_dir(file.path()).unwrap() {
                let segment = segment.unwrap();
                std::fs::copy(segment.path(), log.join(segment.file_name())).unwrap();
            }
        } else {
            std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
        }
    }
    drop(table);
    db.close().unwrap();
    let db = open(copy.path());
    check(&db);
    db.close().unwrap();
    let after = leaves(copy.path());
    assert!(after.fill_percent(4096) >= 25.0, "{before:?} {after:?}");
}
