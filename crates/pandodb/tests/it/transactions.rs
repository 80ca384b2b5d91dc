//! Transactions: compared with a map, exact in their conflicts, beside others, and with little
//! memory. See hermitage.rs for what each level allows.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{
    Batch, ConflictKind, Db, Error, Isolation, Table, Transaction, TransactionOptions, WriteOptions,
};

use crate::fixture::fill;
use crate::futures::block_on;
use crate::snapshots::read_all;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn at(isolation: Isolation) -> TransactionOptions {
    TransactionOptions::default().isolation(isolation)
}

fn begin(db: &Db) -> Transaction {
    db.begin(TransactionOptions::default()).unwrap()
}

fn conflict_of<T: std::fmt::Debug>(result: pandodb::Result<T>) -> (Option<Vec<u8>>, ConflictKind) {
    match result.unwrap_err() {
        error @ Error::Conflict { .. } => {
            assert!(error.is_retryable() && error.is_conflict());
            let Error::Conflict { key, kind, .. } = error else {
                unreachable!()
            };
            (key, kind)
        }
        other => panic!("{other}"),
    }
}

fn random_key(random: &mut Rng) -> Vec<u8> {
    (0..random.usize(1..=2)).map(|_| random.u8(..30)).collect()
}

fn random_bound(random: &mut Rng) -> Bound<Vec<u8>> {
    match random.u8(..6) {
        0 | 1 => Bound::Unbounded,
        2 | 3 => Bound::Excluded(random_key(random)),
        _ => Bound::Included(random_key(random)),
    }
}

/// Reads a range from both ends in turn, and compares it with the model.
fn compare_range(transaction: &mut Transaction, table: &Table, model: &Model, random: &mut Rng) {
    let bounds = (random_bound(random), random_bound(random));
    let borrowed = (
        bounds.0.as_ref().map(|key| &key[..]),
        bounds.1.as_ref().map(|key| &key[..]),
    );
    let contains = |key: &[u8]| std::ops::RangeBounds::<[u8]>::contains(&borrowed, key);
    let within = model.iter().filter(|(key, _)| contains(key));
    let mut expected: std::collections::VecDeque<_> = within.collect();
    let mut range = transaction.range(table, borrowed);
    let most = random.usize(..60);
    for _ in 0..most {
        let (found, expected) = match random.bool() {
            true => (range.next(), expected.pop_front()),
            false => (range.next_back(), expected.pop_back()),
        };
        let found = found.transpose().unwrap();
        let found = found.as_ref().map(|(key, value)| (key, value));
        assert_eq!(found, expected, "{bounds:?}");
        if found.is_none() {
            break;
        }
    }
}

/// One transaction after the other, with savepoints, on a small store whose leaves split and merge.
#[test]
fn transactions_show_and_do_what_a_map_does() {
    let levels = [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::Serializable,
    ];
    let options = Db::builder().max_memory(8 << 20).page_size(4096);
    let db = options.open_in_memory().unwrap();
    let tables = [db.table("one").unwrap(), db.table("two").unwrap()];
    let mut models = [Model::new(), Model::new()];
    let mut random = Rng::with_seed(11);
    for round in 0..600 {
        let mut transaction = db.begin(at(levels[round % 3])).unwrap();
        let mut own = models.clone();
        let mut savepoints = Vec::new();
        for step in 0..random.usize(..60) {
            let which = random.usize(..2);
            let (table, model) = (&tables[which], &mut own[which]);
            let key = random_key(&mut random);
            match random.u8(..12) {
                0..4 => {
                    let value = vec![step as u8; random.usize(..700)];
                    transaction.put(table, &key, &value).unwrap();
                    model.insert(key, value);
                }
                4 | 5 => {
                    transaction.delete(table, &key).unwrap();
                    model.remove(&key);
                }
                6 | 7 => {
                    let found = transaction.get(table, &key).unwrap();
                    assert_eq!(found.as_ref(), model.get(&key));
                    let found = transaction.get_reader(table, &key).unwrap().map(read_all);
                    assert_eq!(found.as_ref(), model.get(&key));
                }
                9 => {
                    let keys: Vec<_> = (0..40).map(|_| random_key(&mut random)).collect();
                    let texts: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                    let found = transaction.get_many(table, &texts).unwrap();
                    let expected = keys.iter().map(|key| model.get(key));
                    assert!(found.iter().map(Option::as_ref).eq(expected));
                }
                8 => savepoints.push((transaction.savepoint(), own.clone())),
                10 if !savepoints.is_empty() => {
                    savepoints.truncate(random.usize(1..=savepoints.len()));
                    let (savepoint, then) = savepoints.last().unwrap();
                    transaction.rollback_to(*savepoint).unwrap();
                    own.clone_from(then);
                }
                _ => compare_range(&mut transaction, table, model, &mut random),
            }
        }
        match random.u8(..4) {
            0 => drop(transaction),
            _ => {
                let writes = !transaction.is_empty();
                assert_eq!(transaction.commit().unwrap().is_some(), writes);
                models = own;
            }
        }
        for (table, model) in tables.iter().zip(&models) {
            let stored: Model = table.iter().map(Result::unwrap).collect();
            assert_eq!(stored, *model, "round {round}");
        }
    }
}

/// Every stripe is stamped by keys that the transaction has not read: stamps alone would say that
/// it conflicts.
#[test]
fn keys_that_were_not_read_do_not_conflict() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..60_000, |number| (number.to_be_bytes(), b"old"));
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut transaction = db.begin(at(isolation)).unwrap();
        let mine = (0..60_000_u32).step_by(1000);
        for number in mine.clone() {
            let key = number.to_be_bytes();
            assert!(transaction.contains(&table, &key).unwrap());
            transaction.put(&table, &key, b"mine").unwrap();
        }
        let first = transaction.range(&table, &40_001_u32.to_be_bytes()[..]..);
        assert_eq!(first.take(10).count(), 10);
        let others = (0..60_000).filter(|number| number % 1000 > 500);
        fill(&table, others, |number| (number.to_be_bytes(), b"new"));
        transaction.commit().unwrap();
        // The same again, but one of them was written.
        let mut transaction = db.begin(at(isolation)).unwrap();
        for number in mine {
            let key = number.to_be_bytes();
            assert!(transaction.contains(&table, &key).unwrap());
            transaction.put(&table, &key, b"mine").unwrap();
        }
        let other = 31_000_u32.to_be_bytes();
        table.put(&other, b"theirs").unwrap();
        let kind = match isolation {
            Isolation::Snapshot => ConflictKind::Written,
            _ => ConflictKind::Read,
        };
        assert_eq!(
            conflict_of(transaction.commit()),
            (Some(other.to_vec()), kind)
        );
    }
}

/// A range counts as read as far as it was shown, from either end.
#[test]
fn ranges_conflict_as_far_as_they_were_read() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let key = |number: u32| number.to_be_bytes();
    // What the other one does to the key, and whether that conflicts. The transaction has seen the
    // even numbers from 100 to 118, and from 900 down to 882.
    for (number, conflicts) in [
        (98, false),
        (99, false),
        (100, true),
        (111, true),
        (118, true),
        (119, false),
        (500, false),
        (881, false),
        (882, true),
        (899, true),
        (900, true),
        (901, false),
    ] {
        for deletes in [false, true] {
            fill(&table, (0..1000).step_by(2), |number| (key(number), b"v"));
            let mut transaction = begin(&db);
            let (low, high) = (key(100), key(900));
            let mut range = transaction.range(&table, &low[..]..=&high[..]);
            for _ in 0..10 {
                range.next().unwrap().unwrap();
                range.next_back().unwrap().unwrap();
            }
            drop(range);
            transaction.put(&table, b"result", b"of it").unwrap();
            match deletes {
                true => drop(table.delete(&key(number)).unwrap()),
                false => table.put(&key(number), b"w").unwrap(),
            }
            let commit = transaction.commit();
            // A delete of what does not exist writes nothing.
            match conflicts && (!deletes || number % 2 == 0) {
                true => {
                    let (found, kind) = conflict_of(commit);
                    assert_eq!(found, Some(key(number).to_vec()));
                    assert_eq!(kind, ConflictKind::Range);
                }
                false => assert!(commit.unwrap().is_some()),
            }
            table.delete(&key(number)).unwrap();
        }
    }
}

/// An emptied table conflicts as a whole, one that was made or dropped since is no table of the
/// transaction's moment, and the writes of a transaction without reads go into the new tree.
#[test]
fn tables_that_change_as_a_whole_conflict() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    table.put(b"k", b"v").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut transaction = db.begin(at(isolation)).unwrap();
        transaction.get(&table, b"k").unwrap();
        transaction.put(&table, b"k", b"w").unwrap();
        db.clear_tables(&[&table]).unwrap();
        assert_eq!(
            conflict_of(transaction.commit()),
            (None, ConflictKind::Table)
        );
        assert!(!table.contains(b"k").unwrap());
    }
    let mut blind = begin(&db);
    blind.put(&table, b"k", b"blind").unwrap();
    db.clear_tables(&[&table]).unwrap();
    assert!(blind.commit().unwrap().is_some());
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"blind"[..]));
    let mut late = begin(&db);
    late.get(&table, b"k").unwrap();
    let new = db.table("new").unwrap();
    let (of_get, of_range) = (late.get(&new, b"k"), late.iter(&new).next().unwrap());
    assert_eq!(conflict_of(of_get), (None, ConflictKind::Table));
    assert_eq!(conflict_of(of_range), (None, ConflictKind::Table));
    let mut dropped = begin(&db);
    dropped.put(&new, b"k", b"v").unwrap();
    db.drop_table("new").unwrap();
    assert!(matches!(dropped.commit(), Err(Error::NoSuchTable { .. })));
}

/// A table that was read, or whose only write was taken back, is dropped before the commit, which
/// writes several keys of another table.
#[test]
fn a_table_that_was_not_written_is_dropped_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for (number, in_task) in [(0, false), (1, true)] {
            let commit = |mut transaction: Transaction, own: u8| {
                for key in [b'b', b'a'] {
                    transaction.put(&table, &[own, key], b"v").unwrap();
                }
                match in_task {
                    true => block_on(transaction.commit_async()),
                    false => transaction.commit(),
                }
            };
            let gone = db.table("gone").unwrap();
            let mut read = db.begin(at(isolation)).unwrap();
            assert_eq!(read.get(&gone, b"k").unwrap(), None);
            let mut taken_back = db.begin(at(isolation)).unwrap();
            let savepoint = taken_back.savepoint();
            taken_back.put(&gone, b"k", b"v").unwrap();
            taken_back.rollback_to(savepoint).unwrap();
            db.drop_table("gone").unwrap();
            let mut late = db.begin(at(isolation)).unwrap();
            let found = late.get(&gone, b"k");
            assert!(matches!(found, Err(Error::NoSuchTable { .. })), "{found:?}");
            let place = (isolation, number);
            match isolation {
                Isolation::Serializable => {
                    assert_eq!(
                        conflict_of(commit(read, 0)).1,
                        ConflictKind::Table,
                        "{place:?}"
                    );
                }
                _ => assert!(commit(read, 0).is_ok(), "{place:?}"),
            }
            for (own, transaction) in [(1, taken_back), (2, late)] {
                let committed = commit(transaction, own);
                assert!(committed.is_ok(), "{own} {place:?}: {committed:?}");
            }
        }
    }
}

/// Deletes what a table has, and returns how many keys that were.
fn delete_all(transaction: &mut Transaction, table: &Table) -> pandodb::Result<usize> {
    let keys = transaction.iter(table).map(|entry| Ok(entry?.0));
    let keys: Vec<Vec<u8>> = keys.collect::<pandodb::Result<_>>()?;
    for key in &keys {
        transaction.delete(table, key)?;
    }
    Ok(keys.len())
}

/// A transaction that replaces far more than the memory for old versions holds, with the only
/// snapshot in the store; and again beside a snapshot, which is ended for it.
#[test]
fn a_transaction_larger_than_the_room_for_versions_commits() {
    let options = Db::builder().max_memory(16 << 20).page_size(4096);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    for beside in [false, true] {
        fill(&table, 0..20_000, |number| (number.to_be_bytes(), [7; 100]));
        let snapshot = beside.then(|| db.snapshot().unwrap());
        let mut runs = 0;
        let deleted = db.transact(|transaction| {
            runs += 1;
            delete_all(transaction, &table)
        });
        assert_eq!(deleted.unwrap(), 20_000);
        assert_eq!(table.iter().count(), 0);
        match snapshot {
            None => assert_eq!(runs, 1),
            Some(snapshot) => {
                let read = snapshot.get(&table, &7_u32.to_be_bytes());
                assert!(matches!(read, Err(Error::SnapshotEnded)), "{read:?}");
            }
        }
    }
}

/// Two threads that empty large tables of their own, beside snapshots that come and go: each run
/// that is repeated was repeated for somebody who went on.
#[test]
fn large_transactions_beside_others_end() {
    let options = Db::builder().max_memory(16 << 20).page_size(4096);
    let db = options.open_in_memory().unwrap();
    let names = ["one", "two"];
    for name in names {
        let table = db.table(name).unwrap();
        fill(&table, 0..10_000, |number| (number.to_be_bytes(), [7; 100]));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let snapshots: Vec<_> = (0..3).map(|_| db.snapshot().unwrap()).collect();
                let table = db.table("one").unwrap();
                for snapshot in snapshots {
                    match snapshot.contains(&table, b"k") {
                        Ok(_) | Err(Error::SnapshotEnded) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        });
        let emptiers = names.map(|name| {
            let db = &db;
            scope.spawn(move || {
                let table = db.table(name).unwrap();
                let mut runs = 0;
                let emptied = db.transact(|transaction| {
                    runs += 1;
                    assert!(runs < 50, "it is repeated again and again");
                    delete_all(transaction, &table)
                });
                assert_eq!(emptied.unwrap(), 10_000);
            })
        });
        let ended = emptiers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::Relaxed);
        readers.join().unwrap();
        for emptier in ended {
            emptier.unwrap();
        }
    });
    for name in names {
        assert_eq!(db.table(name).unwrap().iter().count(), 0);
    }
}

/// A function that reads a snapshot of its own, which is ended, gets that error back instead of
/// being run for ever.
#[test]
fn a_snapshot_that_ended_elsewhere_is_no_reason_to_repeat() {
    let options = Db::builder().max_memory(16 << 20).page_size(4096);
    let options = options.settle_snapshots_after(Duration::MAX);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..20_000, |number| (number.to_be_bytes(), [7; 100]));
    let snapshot = db.snapshot().unwrap();
    fill(&table, 0..20_000, |number| (number.to_be_bytes(), [8; 100]));
    let mut runs = 0;
    let read = db.transact(|transaction| {
        runs += 1;
        transaction.get(&table, b"k")?;
        snapshot.get(&table, b"k")
    });
    assert!(matches!(read, Err(Error::SnapshotEnded)), "{read:?}");
    assert_eq!(runs, 1);
}

/// With more reads than it may remember, a transaction conflicts too often and never too rarely.
#[test]
fn many_reads_are_remembered_as_ranges() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..20_000, |number| (number.to_be_bytes(), b"v"));
    let options = TransactionOptions::default().read_set_bytes(1000);
    for (written, conflicts) in [(9_000_u32, true), (8_999, true), (10_001, false)] {
        let mut transaction = db.begin(options).unwrap();
        for number in (0..=10_000_u32).step_by(2) {
            transaction.get(&table, &number.to_be_bytes()).unwrap();
        }
        transaction.put(&table, b"result", b"of it").unwrap();
        table.put(&written.to_be_bytes(), b"w").unwrap();
        let commit = transaction.commit();
        assert_eq!(commit.is_err(), conflicts, "{written}");
    }
}

/// What transactions take is counted, and given back however they end. While others take much, one
/// that writes is refused, and one that reads remembers less exactly.
#[test]
fn the_memory_of_open_transactions_is_counted_and_bounded() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..3_000, |number| (number.to_be_bytes(), b"v"));
    let used = || db.memory().transactions.used_bytes;
    let budget = db.memory().transactions.budget_bytes;
    assert_eq!(budget, 2 << 20);
    let mut small: Vec<_> = (0..100).map(|_| begin(&db)).collect();
    for transaction in &mut small {
        transaction.get(&table, b"k").unwrap();
        transaction.put(&table, b"k", b"v").unwrap();
    }
    assert_eq!(used(), 0, "of a few keys");
    let write = |transaction: &mut Transaction, bytes: usize| {
        (0..bytes / 1000).try_for_each(|number| {
            let key = number.to_be_bytes();
            transaction.put(&table, &key, &[7; 1000])
        })
    };
    // The largest one may take more.
    let mut large = begin(&db);
    write(&mut large, 3 << 20).unwrap();
    assert!(used() > 3 << 20 && used() < 4 << 20, "{}", used());
    let mut other = begin(&db);
    let refused = write(&mut other, 1 << 20);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    assert!(Error::is_retryable(&refused.unwrap_err()));
    // What it has got stays, and it may be committed.
    assert!(!other.is_empty());
    other.commit().unwrap();
    // Reads go on, as ranges.
    let mut reader = begin(&db);
    for number in (0..3_000_u32).step_by(2) {
        reader.get(&table, &number.to_be_bytes()).unwrap();
    }
    assert!(used() < 4 << 20, "{}", used());
    reader.put(&table, b"k", b"v").unwrap();
    table.put(&1_001_u32.to_be_bytes(), b"not read").unwrap();
    conflict_of(reader.commit());
    large.rollback();
    assert_eq!(used(), 0);
    let mut again = begin(&db);
    write(&mut again, 100_000).unwrap();
    assert!(used() > 100_000);
    again.commit().unwrap();
    let mut task = begin(&db);
    write(&mut task, 100_000).unwrap();
    block_on(task.commit_async()).unwrap();
    let mut given_up = begin(&db);
    write(&mut given_up, 100_000).unwrap();
    drop(given_up.commit_async());
    assert_eq!(used(), 0);
}

/// Sixteen threads move people between cities, each with its own function: the index always has
/// one entry for each.
#[test]
fn a_secondary_index_is_right() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let (people, index) = (db.table("people").unwrap(), db.table("index").unwrap());
    let entry = |city: &[u8], person: &[u8]| [city, b"/", person].concat();
    thread::scope(|scope| {
        for worker in 0..16 {
            let (db, people, index, entry) = (&db, &people, &index, &entry);
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker);
                for _ in 0..60 {
                    let person = [random.u8(..20)];
                    let city = [random.u8(..8)];
                    db.transact(|transaction| {
                        if let Some(old) = transaction.get(people, &person)? {
                            transaction.delete(index, &entry(&old, &person))?;
                        }
                        transaction.put(people, &person, &city)?;
                        transaction.put(index, &entry(&city, &person), b"")
                    })
                    .unwrap();
                }
            });
        }
    });
    let of_people: Vec<Vec<u8>> = people
        .iter()
        .map(Result::unwrap)
        .map(|(person, city)| entry(&city, &person))
        .collect();
    let mut of_people = of_people;
    of_people.sort();
    let of_index: Vec<Vec<u8>> = index.iter().map(|entry| entry.unwrap().0).collect();
    assert_eq!(of_index, of_people);
}

/// Transfers that read the sum of all accounts by a range first: neither transfers, nor those who
/// add accounts, ever see another sum. Plain batches write between them.
#[test]
fn ranges_of_transactions_see_whole_sums_beside_writers() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("accounts").unwrap();
    fill(&table, 0..50, |number| {
        (number.to_be_bytes(), 100_i64.to_be_bytes())
    });
    let number = |value: &[u8]| i64::from_be_bytes(value.try_into().unwrap());
    thread::scope(|scope| {
        for worker in 0..4 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut random = Rng::with_seed(worker);
                for _ in 0..60 {
                    let (from, to) = (random.u32(..60), random.u32(..60));
                    db.transact(|transaction| {
                        let mut sum = 0;
                        for entry in transaction.iter(table) {
                            sum += number(&entry?.1);
                        }
                        assert_eq!(sum, 5000);
                        if from == to {
                            return Ok(());
                        }
                        let mut add = |account: u32, amount: i64| {
                            let key = account.to_be_bytes();
                            let old = transaction.get(table, &key)?;
                            let new = old.map_or(0, |old| number(&old)) + amount;
                            transaction.put(table, &key, &new.to_be_bytes())
                        };
                        add(from, -1)?;
                        add(to, 1)
                    })
                    .unwrap();
                }
            });
        }
        // Batches that change nothing of the sum, and are no transactions.
        scope.spawn(|| {
            for number in 0..400_u32 {
                let mut batch = Batch::new();
                batch.put(
                    &table,
                    &(1000 + number % 7).to_be_bytes(),
                    &0_i64.to_be_bytes(),
                );
                batch.delete(&table, &(1000 + (number + 3) % 7).to_be_bytes());
                db.write(&mut batch, WriteOptions::default()).unwrap();
                thread::yield_now();
            }
        });
    });
    let values = table.iter().map(|entry| number(&entry.unwrap().1));
    assert_eq!(values.sum::<i64>(), 5000);
}

#[test]
fn errors_of_transactions_name_what_is_wrong() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let other = Db::builder().open_in_memory().unwrap();
    let of_other = other.table("t").unwrap();
    let mut transaction = begin(&db);
    let is_other = |result: pandodb::Result<()>| matches!(result, Err(Error::OtherStore));
    assert!(is_other(transaction.put(&of_other, b"k", b"v")));
    assert!(is_other(transaction.delete(&of_other, b"k")));
    assert!(is_other(transaction.get(&of_other, b"k").map(drop)));
    of_other.put(b"k", b"v").unwrap();
    let mut range = transaction.iter(&of_other);
    assert!(is_other(range.next().unwrap().map(drop)));
    assert!(range.next().is_none(), "it is over");
    drop(range);
    let long = vec![1; db.key_bytes_max() + 1];
    let put = transaction.put(&table, &long, b"v");
    assert!(matches!(put, Err(Error::KeyTooLong { .. })), "{put:?}");
    assert!(transaction.is_empty());
    let (first, second) = (transaction.savepoint(), transaction.savepoint());
    transaction.rollback_to(first).unwrap();
    let gone = |result| matches!(result, Err(Error::NoSuchSavepoint));
    assert!(gone(transaction.rollback_to(second)));
    assert!(gone(begin(&db).rollback_to(first)));
    let given_up: pandodb::Result<()> = db.transact(|transaction| {
        transaction.put(&table, b"k", b"v")?;
        Err(Error::aborted("not today"))
    });
    let given_up = given_up.unwrap_err();
    assert_eq!(given_up.to_string(), "the transaction gave up: not today");
    assert!(!table.contains(b"k").unwrap());
    transaction.put(&table, b"k", b"v").unwrap();
    db.close().unwrap();
    assert!(matches!(transaction.commit(), Err(Error::Closed)));
    let began = other.begin(TransactionOptions::default());
    assert!(began.is_ok());
}
