//! Deletes of ranges: what they read, what they leave when they fail or the power is cut, and what
//! others see. That they delete what they should is in `twin.rs`.

use std::ops::Bound;

use pandodb::device::faulty::{CrashMode, FaultyDevice};
use pandodb::statistics::Ticker;
use pandodb::{ConflictKind, Db, Error, Isolation, Occupancy, TransactionOptions};

use crate::fixture::{fill, open_on, text_key, verified};

#[test]
fn values_outside_of_leaves_are_not_read() {
    let place = tempfile::tempdir().unwrap();
    let options = || {
        Db::builder()
            .max_memory(16 << 20)
            .chunk_values_over(64 << 10)
    };
    let db = options().open(place.path()).unwrap();
    let table = db.table("t").unwrap();
    // In pages of their own, in chunks, and in leaves.
    for number in 0..60 {
        table.put(&text_key(number), &[1; 30_000]).unwrap();
    }
    for number in 60..70 {
        table.put(&text_key(number), &vec![2; 300_000]).unwrap();
    }
    fill(&table, 70..100, |number| (text_key(number), [3; 10]));
    drop(table);
    db.close().unwrap();
    let db = options().open(place.path()).unwrap();
    let table = db.existing_table("t").unwrap();
    let mut keys = table.iter();
    for number in 0..50 {
        assert_eq!(keys.next_key().unwrap().unwrap(), text_key(number));
        assert_eq!(
            keys.next_back_key().unwrap().unwrap(),
            text_key(99 - number)
        );
    }
    assert!(keys.next_key().is_none() && keys.next_back_key().is_none());
    let in_transaction = |transaction: &mut pandodb::Transaction| {
        transaction.delete_range(&table, ..&text_key(30)[..])
    };
    assert_eq!(db.transact(in_transaction).unwrap(), 30);
    assert_eq!(table.delete_range(&text_key(50)[..]..).unwrap(), 50);
    let spent = db.statistics();
    assert_eq!(spent.get(Ticker::ChunkReads), 0);
    assert_eq!(spent.get(Ticker::PageReadsOverflow), 0);
    assert_eq!(table.len(), 20);
    drop(keys);
    drop(table);
    db.close().unwrap();
    verified(place.path());
}

/// It ends with the last commit, also if that has as many keys as there can be.
#[test]
fn what_was_deleted_is_durable() {
    for count in [1, 255, 256, 257, 512, 600] {
        let device = FaultyDevice::new(1);
        let db = open_on(&device, Db::builder().max_memory(8 << 20));
        let table = db.table("t").unwrap();
        fill(&table, 0..count, |number| (text_key(number), b"value"));
        db.checkpoint().unwrap();
        assert_eq!(table.delete_range(..).unwrap(), u64::from(count));
        let after = device.after_crash(u64::from(count), CrashMode::AllLost);
        device.crash_now();
        let db = open_on(&after, Db::builder().max_memory(8 << 20));
        assert_eq!(db.table("t").unwrap().len(), 0, "of {count}");
    }
}

/// As many keys as are deleted at a time, and bounds that meet behind the last one.
#[test]
fn bounds_may_be_anywhere() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let low = text_key(0);
    for count in [255, 256, 257, 512] {
        let last = text_key(count - 1);
        for in_transaction in [false, true] {
            fill(&table, 0..count, |number| (text_key(number), b"value"));
            let delete = |range: (Bound<&[u8]>, Bound<&[u8]>)| match in_transaction {
                true => db.transact(|transaction| transaction.delete_range(&table, range)),
                false => table.delete_range(range),
            };
            let none = (Bound::Included(&last[..]), Bound::Excluded(&low[..]));
            assert_eq!(delete(none).unwrap(), 0);
            let none = (Bound::Excluded(&last[..]), Bound::Included(&last[..]));
            assert_eq!(delete(none).unwrap(), 0);
            let all = (Bound::Included(&low[..]), Bound::Included(&last[..]));
            assert_eq!(delete(all).unwrap(), u64::from(count));
            assert_eq!((delete(all).unwrap(), table.len()), (0, 0));
        }
    }
}

#[test]
fn a_range_without_room_in_memory_is_not_deleted_in_part() {
    const KEYS: u32 = 60_000;
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..KEYS, |number| (text_key(number), b"value"));
    let mut other = db.begin(TransactionOptions::default()).unwrap();
    assert_eq!(other.delete_range(&table, ..).unwrap(), u64::from(KEYS));
    let mut transaction = db.begin(TransactionOptions::default()).unwrap();
    transaction.put(&table, b"before", b"1").unwrap();
    let before = transaction.savepoint();
    transaction.put(&table, b"behind", b"2").unwrap();
    let full = transaction.delete_range(&table, ..).unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    assert_eq!(transaction.len(), 2);
    other.rollback();
    let first = text_key(0);
    assert_eq!(transaction.get(&table, &first).unwrap().unwrap(), b"value");
    // Savepoints from before are there.
    transaction.rollback_to(before).unwrap();
    let deleted = transaction.delete_range(&table, ..&text_key(100)[..]);
    assert_eq!(deleted.unwrap(), 101, "with the key that was put before");
    transaction.commit().unwrap();
    assert_eq!(table.len(), u64::from(KEYS) - 100);
    assert_eq!(table.delete_range(..).unwrap(), u64::from(KEYS) - 100);
    assert_eq!((table.len(), db.occupancy()), (0, Occupancy::default()));
}

#[test]
fn who_puts_into_a_range_conflicts_with_its_delete() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, (0..1000).step_by(2), |number| {
        (text_key(number), b"value")
    });
    let snapshot = db.snapshot().unwrap();
    for (put, conflicts) in [(501, true), (499, false), (600, true), (701, false)] {
        table.put(&text_key(650), b"value").unwrap();
        let serializable = TransactionOptions::default().isolation(Isolation::Serializable);
        let mut transaction = db.begin(serializable).unwrap();
        let range = &text_key(500)[..]..&text_key(700)[..];
        transaction.delete_range(&table, range).unwrap();
        table.put(&text_key(put), b"other").unwrap();
        match transaction.commit() {
            Ok(_) => assert!(!conflicts, "{put}"),
            Err(Error::Conflict { kind, .. }) => {
                assert!(conflicts && kind == ConflictKind::Range, "{put}: {kind:?}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(snapshot.iter(&table).count(), 500);
}
