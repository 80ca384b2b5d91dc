//! Transactions that are many, or read much, within their memory.

use std::ops::Bound;

use fastrand::Rng;
use pandodb::{ConflictKind, Db, Error, Isolation, Table, TransactionOptions};

use crate::fixture::fill;

/// A store of 64 MiB with `keys` keys.
fn filled(keys: u32) -> (Db, Table) {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..keys, |number| (number.to_be_bytes(), b"old"));
    (db, table)
}

/// What a transaction remembers of a million keys that it has read is bounded; it commits if nobody
/// has written one of them, and misses no conflict.
#[test]
fn a_transaction_reads_a_million_keys() {
    const KEYS: u32 = 1_000_000;
    let (db, table) = filled(KEYS);
    let options = TransactionOptions::default().isolation(Isolation::Serializable);
    let mut random = Rng::with_seed(3);
    for written in [None, Some(0), Some(KEYS - 1)] {
        let mut transaction = db.begin(options).unwrap();
        let (mut value, mut conflict) = (Vec::new(), None);
        for turn in 0..KEYS {
            let key = random.u32(..KEYS).to_be_bytes();
            assert!(transaction.get_into(&table, &key, &mut value).unwrap());
            if written == Some(turn) {
                conflict = Some(key);
            }
        }
        let taken = db.memory().transactions.used_bytes;
        assert!(taken <= 2 << 20, "{taken} bytes");
        if let Some(key) = &conflict {
            table.put(key, b"new").unwrap();
        }
        transaction.put(&table, b"sum", b"").unwrap();
        match transaction.commit() {
            Ok(_) => assert_eq!(conflict, None),
            Err(Error::Conflict { kind, .. }) => {
                assert!(conflict.is_some() && kind != ConflictKind::Written);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(db.memory().transactions.used_bytes, 0);
}

/// Ten thousand transactions of one thread read one moment each, and commit in any order: those
/// whose keys nobody else has written succeed, the others conflict.
#[test]
fn ten_thousand_transactions_are_open() {
    const OPEN: u32 = 10_000;
    let (db, table) = filled(2 * OPEN);
    let options = TransactionOptions::default().isolation(Isolation::Serializable);
    let mut all: Vec<_> = (0..OPEN)
        .map(|number| {
            let mut transaction = db.begin(options).unwrap();
            // Of a tenth of them it is written by somebody else.
            let read = (2 * number + 1).to_be_bytes();
            assert!(transaction.contains(&table, &read).unwrap());
            let own = (2 * number).to_be_bytes();
            transaction.put(&table, &own, b"new").unwrap();
            (number, transaction)
        })
        .collect();
    // Those of a few keys are not counted.
    assert_eq!(db.memory().transactions.used_bytes, 0);
    for number in (0..OPEN).step_by(10) {
        table
            .put(&(2 * number + 1).to_be_bytes(), b"other")
            .unwrap();
    }
    Rng::with_seed(4).shuffle(&mut all);
    for (number, transaction) in all {
        let committed = transaction.commit();
        match committed {
            Ok(Some(_)) => assert!(number % 10 != 0, "{number}"),
            Err(Error::Conflict { kind, .. }) => {
                assert_eq!((number % 10, kind), (0, ConflictKind::Read));
            }
            other => panic!("{number}: {other:?}"),
        }
    }
    for (key, value) in table
        .range((Bound::Unbounded, Bound::<&[u8]>::Unbounded))
        .map(|entry| entry.unwrap())
    {
        let number = u32::from_be_bytes(key.try_into().unwrap());
        let expected: &[u8] = match (number % 2, number / 2 % 10) {
            (0, 0) => b"old",
            (0, _) => b"new",
            (_, 0) => b"other",
            _ => b"old",
        };
        assert_eq!(value, expected, "{number}");
    }
    assert_eq!(db.memory().transactions.used_bytes, 0);
}
