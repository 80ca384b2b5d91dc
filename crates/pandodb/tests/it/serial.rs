//! The order of LSNs is a serial order: a transaction that has read a value comes before the one
//! that overwrites it.

use std::collections::BTreeMap;

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{thread, thread_waker};
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};
use pandodb::{Db, Error, Table, TransactionOptions};

/// Least number of commits of the thread that writes what the others read.
const OVERWRITES: u64 = 60_000;
/// Least number of commits of the other threads. How often they lose against the first one depends
/// on the machine.
const READS: u64 = 6_000;
const READERS: u64 = 3;
/// Greatest number of tries of a thread, so that the others end if one panics.
const TRIES: u64 = 2_000_000;

/// Reads `from` and writes a value that depends on it to `to`. Returns the value and the LSN, or
/// `None` after a conflict.
fn copy(
    transaction: &mut ValidatedBatch,
    reactor: &mut Reactor,
    table: &Table,
    (from, to): (&[u8], &[u8]),
    step: u64,
) -> Option<(u64, u64)> {
    let (waker, mut value) = (thread_waker(), Vec::new());
    transaction.reset();
    loop {
        match transaction.get(table, from, &mut value).unwrap() {
            Polled::Ready(found) => assert!(found),
            Polled::Pending(pending) => {
                reactor.park(pending, &waker).unwrap();
                thread::yield_now();
                continue;
            }
        }
        break;
    }
    let read = u64::from_le_bytes(value[..].try_into().unwrap());
    transaction
        .put(table, to, &(read + step).to_le_bytes())
        .unwrap();
    loop {
        match transaction.try_commit(reactor).unwrap() {
            Polled::Ready(Outcome::Committed(lsn)) => return Some((read, lsn.unwrap().0)),
            Polled::Ready(Outcome::Conflict { .. }) => return None,
            Polled::Pending(pending) => {
                reactor.park(pending, &waker).unwrap();
                thread::yield_now();
            }
        }
    }
}

/// As [`copy`], by a transaction that reads a key, or a range that has this key only.
fn copy_in_transaction(
    db: &Db,
    table: &Table,
    (from, to): (&[u8], &[u8]),
    step: u64,
    by_range: bool,
) -> Option<(u64, u64)> {
    let mut transaction = db.begin(TransactionOptions::default()).unwrap();
    let value = match by_range {
        true => {
            let end = [from, &[1]].concat();
            let mut range = transaction.range(table, from..&end[..]);
            let (_, value) = range.next().unwrap().unwrap();
            assert!(range.next().is_none());
            value
        }
        false => transaction.get(table, from).unwrap().unwrap(),
    };
    let read = u64::from_le_bytes(value[..].try_into().unwrap());
    transaction
        .put(table, to, &(read + step).to_le_bytes())
        .unwrap();
    match transaction.commit() {
        Ok(lsn) => Some((read, lsn.unwrap().0)),
        Err(Error::Conflict { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn the_order_of_the_log_is_a_serial_order() {
    check_order(|db| {
        let mut reactor = Reactor::new(db, thread_waker()).unwrap();
        let mut transaction = ValidatedBatch::new(db);
        move |_: &Db, table: &Table, places: (&[u8], &[u8]), step| {
            copy(&mut transaction, &mut reactor, table, places, step)
        }
    });
}

#[test]
fn so_it_is_for_transactions_that_read_keys() {
    check_order(|_| {
        |db: &Db, table: &Table, places: (&[u8], &[u8]), step| {
            copy_in_transaction(db, table, places, step, false)
        }
    });
}

#[test]
fn so_it_is_for_transactions_that_read_ranges() {
    check_order(|_| {
        |db: &Db, table: &Table, places: (&[u8], &[u8]), step| {
            copy_in_transaction(db, table, places, step, true)
        }
    });
}

/// Has some threads copy what another one overwrites, each with what `begin` makes for it, and
/// checks that each copy comes before what has replaced the value that it has read.
fn check_order<C>(begin: impl Fn(&Db) -> C + Sync)
where
    C: FnMut(&Db, &Table, (&[u8], &[u8]), u64) -> Option<(u64, u64)>,
{
    let db = Db::builder()
        .max_memory(32 << 20)
        .durability(pandodb::Durability::None)
        .open_in_memory()
        .unwrap();
    let table = db.table("t").unwrap();
    table.put(b"x", &0_u64.to_le_bytes()).unwrap();
    let (written, read) = (AtomicU64::new(0), AtomicU64::new(0));
    let enough =
        || written.load(Ordering::Relaxed) >= OVERWRITES && read.load(Ordering::Relaxed) >= READS;
    let commit_all = |from: &[u8], to: &[u8], step: u64| {
        let mut copy = begin(&db);
        let mut commits = Vec::new();
        for _ in 0..TRIES {
            if enough() {
                break;
            }
            let done = copy(&db, &table, (from, to), step);
            if let Some(commit) = done {
                commits.push(commit);
                let count = if step > 0 { &written } else { &read };
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        commits
    };
    let (overwrites, reads) = thread::scope(|scope| {
        let commit_all = &commit_all;
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let to = [b"y", &reader.to_le_bytes()[..]].concat();
                scope.spawn(move || commit_all(b"x", &to, 0))
            })
            .collect();
        let overwrites = commit_all(b"x", b"x", 1);
        let reads = readers.into_iter().map(|reader| reader.join().unwrap());
        (overwrites, reads.collect::<Vec<_>>())
    });
    let lsn_of: BTreeMap<u64, u64> = overwrites
        .into_iter()
        .map(|(x, lsn)| (x + 1, lsn))
        .collect();
    assert!(enough(), "{written:?} overwrites, {read:?} reads");
    assert_eq!(lsn_of.len() as u64, written.into_inner());
    for (read, lsn) in reads.into_iter().flatten() {
        let before = lsn_of.get(&read).copied().unwrap_or(0);
        let after = lsn_of.get(&(read + 1)).copied().unwrap_or(u64::MAX);
        assert!(before < lsn, "{read} was read before it was written");
        assert!(
            lsn < after,
            "{read} was read, and replaced at a smaller LSN"
        );
    }
}
