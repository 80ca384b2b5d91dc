//! Each operation once, in memory and on disk.

use pandodb::{Batch, Db, Error, WriteOptions};

fn with_db(f: impl Fn(&Db)) {
    f(&Db::builder().max_memory(16 << 20).open_in_memory().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder()
        .max_memory(16 << 20)
        .open(directory.path())
        .unwrap();
    f(&db);
    db.close().unwrap();
}

#[test]
fn a_value_is_read_back_replaced_and_removed() {
    with_db(|db| {
        let table = db.table("t").unwrap();
        assert_eq!(table.get(b"a").unwrap(), None);
        table.put(b"a", b"1").unwrap();
        assert_eq!(table.get(b"a").unwrap().unwrap(), b"1");
        table.put(b"a", b"22").unwrap();
        assert_eq!(table.get(b"a").unwrap().unwrap(), b"22");
        assert!(table.contains(b"a").unwrap());
        assert_eq!(table.len(), 1);
        assert!(table.delete(b"a").unwrap());
        assert!(!table.delete(b"a").unwrap());
        assert!(table.is_empty());
    });
}

#[test]
fn reads_into_a_buffer_and_through_a_closure_agree() {
    with_db(|db| {
        let table = db.table("t").unwrap();
        table.put(b"", b"empty key").unwrap();
        let mut out = vec![1, 2, 3];
        assert!(table.get_into(b"", &mut out).unwrap());
        assert_eq!(out, b"empty key");
        let nested = table.get_with(b"", |value| {
            (value.len(), table.get_with(b"", <[u8]>::len).unwrap())
        });
        assert_eq!(nested.unwrap(), Some((9, Some(9))));
        assert_eq!(
            table.get_many(&[b"", b"x"]).unwrap(),
            vec![Some(b"empty key".to_vec()), None]
        );
    });
}

#[test]
fn long_values_live_in_overflow_pages() {
    with_db(|db| {
        let table = db.table("t").unwrap();
        for length in [0, 1, 1900, 2000, 4032, 4096, 60_000, 200_000] {
            let value: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            table.put(b"long", &value).unwrap();
            assert_eq!(table.get(b"long").unwrap().unwrap(), value, "{length}");
        }
        assert!(table.delete(b"long").unwrap());
        assert_eq!(table.get(b"long").unwrap(), None);
    });
}

#[test]
fn a_batch_reads_its_own_writes_and_spans_tables() {
    with_db(|db| {
        let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
        one.put(b"k", b"old").unwrap();
        let mut batch = Batch::new();
        batch.put(&one, b"k", b"new");
        batch.put(&two, b"k", b"other");
        batch.delete(&two, b"none");
        assert_eq!(batch.get(&one, b"k").unwrap().unwrap(), b"new");
        assert_eq!(one.get(b"k").unwrap().unwrap(), b"old");
        db.write(&mut batch, WriteOptions::default()).unwrap();
        assert_eq!(one.get(b"k").unwrap().unwrap(), b"new");
        assert_eq!(two.get(b"k").unwrap().unwrap(), b"other");
        assert_eq!((one.len(), two.len()), (1, 1));
        batch.clear();
        assert!(batch.is_empty());
        for number in 0..100_u32 {
            batch.put(&one, &number.to_be_bytes(), b"x");
            batch.put(&one, &number.to_be_bytes(), b"y");
        }
        assert_eq!(batch.len(), 100);
        db.write(&mut batch, WriteOptions::default()).unwrap();
        assert_eq!(one.get(&7_u32.to_be_bytes()).unwrap().unwrap(), b"y");
    });
}

#[test]
fn update_and_compare_and_put_are_conditional() {
    with_db(|db| {
        let table = db.table("t").unwrap();
        let add = |old: Option<&[u8]>| Some(vec![old.map_or(0, |old| old[0]) + 1]);
        assert_eq!(table.update(b"n", add).unwrap(), Some(vec![1]));
        assert_eq!(table.update(b"n", add).unwrap(), Some(vec![2]));
        assert!(!table.compare_and_put(b"n", Some(&[1]), Some(&[9])).unwrap());
        assert!(table.compare_and_put(b"n", Some(&[2]), Some(&[9])).unwrap());
        assert!(table.compare_and_put(b"new", None, Some(b"v")).unwrap());
        assert!(!table.compare_and_put(b"new", None, Some(b"w")).unwrap());
        assert!(table.compare_and_put(b"new", Some(b"v"), None).unwrap());
        assert_eq!(table.update(b"n", |_| None).unwrap(), None);
        assert!(table.is_empty());
    });
}

#[test]
fn iterators_go_both_ways_and_meet() {
    with_db(|db| {
        let table = db.table("t").unwrap();
        for number in 0..500_u32 {
            table
                .put(format!("k{number:04}").as_bytes(), &number.to_le_bytes())
                .unwrap();
        }
        let keys = |iter: pandodb::Iter<'_>| -> Vec<String> {
            iter.map(|entry| String::from_utf8(entry.unwrap().0).unwrap())
                .collect()
        };
        assert_eq!(keys(table.iter()).len(), 500);
        let range = keys(table.range(&b"k0100"[..]..&b"k0103"[..]));
        assert_eq!(range, ["k0100", "k0101", "k0102"]);
        let closed = keys(table.range(&b"k0498"[..]..=&b"k0499"[..]));
        assert_eq!(closed, ["k0498", "k0499"]);
        assert_eq!(keys(table.prefix(b"k049")).len(), 10);
        let back: Vec<_> = table.prefix(b"k00").rev().map(|e| e.unwrap().0).collect();
        assert_eq!(back.len(), 100);
        assert_eq!(back[0], b"k0099");
        let mut both = table.prefix(b"k000");
        let mut seen = Vec::new();
        while let Some(front) = both.next() {
            seen.push(front.unwrap().0);
            if let Some(back) = both.next_back() {
                seen.push(back.unwrap().0);
            }
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 10);
        assert!(table.prefix(&[0xff]).next().is_none());
    });
}

#[test]
fn tables_are_created_listed_cleared_and_dropped() {
    with_db(|db| {
        assert!(db.tables().is_empty());
        let table = db.table("b").unwrap();
        db.table("a").unwrap();
        assert_eq!(db.tables(), ["a", "b"]);
        for number in 0..2000_u32 {
            table.put(&number.to_be_bytes(), &[1; 100]).unwrap();
        }
        db.clear_tables(&[&table]).unwrap();
        assert_eq!((table.len(), table.get(&[0; 4]).unwrap()), (0, None));
        table.put(b"again", b"1").unwrap();
        db.drop_table("b").unwrap();
        assert_eq!(db.tables(), ["a"]);
        assert!(matches!(
            table.get(b"again"),
            Err(Error::NoSuchTable { .. })
        ));
        assert!(matches!(
            table.put(b"again", b"2"),
            Err(Error::NoSuchTable { .. })
        ));
        assert!(matches!(db.drop_table("b"), Err(Error::NoSuchTable { .. })));
        let again = db.table("b").unwrap();
        assert_eq!(again.get(b"again").unwrap(), None);
        assert!(matches!(db.table(""), Err(Error::InvalidTableName { .. })));
    });
}

/// A batch is applied to the current state of its tables, and refused as a whole if one of them is
/// gone.
#[test]
fn a_batch_goes_into_what_its_tables_are_when_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Db::builder().max_memory(16 << 20).open(directory.path());
    let db = open().unwrap();
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    for change in 0..2 {
        table.put(b"old", b"1").unwrap();
        let mut batch = Batch::new();
        batch.put(&table, b"new", b"2");
        batch.put(&other, b"new", b"3");
        match change {
            0 => db.clear_tables(&[&table]).unwrap(),
            _ => db.drop_table("t").unwrap(),
        }
        let written = db.write(&mut batch, WriteOptions::default());
        if change == 0 {
            written.unwrap();
            assert_eq!(table.get(b"new").unwrap().unwrap(), b"2");
            assert_eq!(table.len(), 1);
        } else {
            assert!(matches!(written, Err(Error::NoSuchTable { .. })));
        }
        assert_eq!((other.len(), table.iter().count()), (1, 1));
    }
    drop((table, other));
    db.close().unwrap();
    let db = open().unwrap();
    assert_eq!(db.tables(), ["other"]);
    assert_eq!(
        db.table("other").unwrap().get(b"new").unwrap().unwrap(),
        b"3"
    );
}

#[test]
fn space_of_dropped_tables_comes_back() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let none = WriteOptions::durability(pandodb::Durability::None);
    let table = db.table("t").unwrap();
    for round in 0..4_u32 {
        for number in 0..5000_u32 {
            let value = [round as u8; 3000];
            table.put_with(&number.to_be_bytes(), &value, none).unwrap();
        }
        db.clear_tables(&[&table]).unwrap();
        while db.garbage_left() {
            pando_sync::thread::yield_now();
        }
        db.checkpoint().unwrap();
    }
    let report = db.report();
    let used = report.data_bytes - report.data_free_bytes;
    assert!(used < 2 << 20, "{used} bytes are still in use: {report:?}");
}
