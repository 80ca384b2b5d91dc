//! Values that were handed over and that no key has yet: they are read, and values are made of
//! their parts.

use std::io::Read as _;

use pandodb::nonblocking::{EditOld, NewBytes};
use pandodb::{Batch, Error, LargeValue};

use crate::chunks::{CHUNK, builder, check, made, pour, value};
use crate::fixture::{NONE, verified, wait_for_garbage};

#[test]
fn a_value_is_made_of_a_part_of_one_that_was_handed_over() {
    let directory = tempfile::tempdir().unwrap();
    let db = builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let bytes = value(3, 7 * CHUNK + 9);
    let whole = [b"head", &bytes[..]].concat();
    let handed = pour(&db, &bytes).with_head(b"head".to_vec()).unwrap();
    let mut read = Vec::new();
    let mut reader = db.value_reader(&handed).unwrap();
    reader.read_to_end(&mut read).unwrap();
    assert!(read == whole);
    let of = |start: usize, end: usize| NewBytes::Part(handed.clone(), start as u64..end as u64);
    let put = |value: LargeValue| {
        let mut batch = Batch::new();
        batch.put_large(&table, b"k", value);
        db.write(&mut batch, NONE).unwrap();
    };
    let nothing = || (EditOld::Value(Vec::new()), 0);
    for (start, end) in [
        (0, whole.len()),
        (2, 3 * CHUNK),
        (4, 4 + 2 * CHUNK),
        (CHUNK + 5, whole.len() - 10),
        (3 * CHUNK, 3 * CHUNK + 1),
    ] {
        let part = made(&db, nothing(), of(start, end)).unwrap();
        put(part);
        check(&table, b"k", Some(&whole[start..end]));
    }
    // Into the middle of another one.
    let old = EditOld::Value(vec![7; CHUNK]);
    let part = made(&db, (old, 100), of(1000, 1000 + 2 * CHUNK)).unwrap();
    put(part);
    let expected = [&[7; 100][..], &whole[1000..1000 + 2 * CHUNK]].concat();
    check(&table, b"k", Some(&expected));
    let behind = made(&db, nothing(), of(5, whole.len() + 1));
    let what = format!(
        "the bytes 5..{} of a value that has {}",
        whole.len() + 1,
        whole.len()
    );
    assert!(matches!(behind, Err(Error::InvalidValue { what: found }) if found == what));

    put(handed.clone());
    let had = db.value_reader(&handed);
    assert!(matches!(had, Err(Error::InvalidValue { .. })), "{had:?}");
    let other = builder().open_in_memory().unwrap();
    let refused = other.value_reader(&pour(&db, &bytes));
    assert!(matches!(refused, Err(Error::OtherStore)), "{refused:?}");
    drop((handed, reader, table));
    wait_for_garbage(&db);
    db.close().unwrap();
    assert_eq!(verified(directory.path()).stat.chunks, 8);
}
