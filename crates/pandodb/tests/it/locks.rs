//! Locks of transactions: who waits for whom, how waits end, and what a lock protects.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::nonblocking::{Outcome, Polled, Reactor, ValidatedBatch};
use pandodb::statistics::Ticker;
use pandodb::{
    Batch, ConflictKind, Db, Error, Isolation, Occupancy, Table, Transaction, TransactionOptions,
    WriteOptions,
};

use crate::fixture::{NONE, fill, padded_key};
use crate::futures::block_on;
use crate::nonblocking::run;

/// Longer than any wait that a test expects to end.
const LONG: Duration = Duration::from_secs(60);
/// A wait that a test expects to end by its deadline.
pub(crate) const SHORT: Duration = Duration::from_millis(50);

pub(crate) fn open(timeout: Duration) -> (Db, Table) {
    let options = Db::builder().max_memory(16 << 20).lock_timeout(timeout);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

pub(crate) fn at(isolation: Isolation) -> TransactionOptions {
    TransactionOptions::default().isolation(isolation)
}

pub(crate) fn begin(db: &Db) -> Transaction {
    db.begin(TransactionOptions::default()).unwrap()
}

fn number(value: Option<Vec<u8>>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()))
}

pub(crate) fn assert_timeout<T: std::fmt::Debug>(result: pandodb::Result<T>, of: Option<&[u8]>) {
    let error = result.unwrap_err();
    assert!(error.is_retryable() && !error.is_conflict(), "{error}");
    match error {
        Error::LockTimeout { table, key } => {
            assert_eq!((&*table, key.as_deref()), ("t", of));
        }
        other => panic!("{other}"),
    }
}

fn is_deadlock<T: std::fmt::Debug>(result: &pandodb::Result<T>) -> bool {
    matches!(result, Err(Error::Deadlock { table, key: Some(_) }) if table == "t")
}

/// Ends other threads when the one with the assertions ends, however it does.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the number of entries that a transaction sees. (`Iterator::count` counts errors, too: a
/// transaction whose snapshot was ended would have read nothing, and its commit not depend on it.)
fn count_of(transaction: &mut Transaction, table: &Table) -> pandodb::Result<u64> {
    let mut entries = transaction.iter(table);
    entries.try_fold(0, |count, entry| entry.map(|_| count + 1))
}

/// Waits until as many operations wait for locks as `waiting` says.
fn wait_for_waits(db: &Db, waiting: u64) {
    while db.statistics().get(Ticker::RestartsLock) < waiting {
        thread::yield_now();
    }
}

#[test]
fn an_update_under_a_lock_is_never_lost_and_never_conflicts() {
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::Serializable,
    ] {
        let (db, table) = open(LONG);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut transaction = db.begin(at(isolation)).unwrap();
                        let value = number(transaction.get_for_update(&table, b"k").unwrap());
                        let next = (value + 1).to_le_bytes();
                        transaction.put(&table, b"k", &next).unwrap();
                        transaction.commit().unwrap();
                    }
                });
            }
        });
        assert_eq!(number(table.get(b"k").unwrap()), 1600, "{isolation:?}");
        assert_eq!(db.occupancy(), Occupancy::default());
    }
}

/// Writers that know of no locks: what they write between the lock and the commit would be lost.
#[test]
fn nobody_writes_a_locked_key() {
    let (db, table) = open(LONG);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (db, table, ended) = (&db, &table, &ended);
            scope.spawn(move || {
                let mut random = Rng::with_seed(writer);
                while !ended.load(Ordering::Relaxed) {
                    let value = random.u64(..).to_le_bytes();
                    match writer {
                        0 | 1 => table.put_with(b"k", &value, NONE).unwrap(),
                        2 => {
                            let mut batch = Batch::new();
                            batch.put(table, b"a", &value);
                            batch.put(table, b"k", &value);
                            db.write(&mut batch, NONE).unwrap();
                        }
                        _ => drop(table.delete_with(b"k", NONE).unwrap()),
                    }
                }
            });
        }
        let locker = |seed: u64| {
            let mut random = Rng::with_seed(seed);
            for _ in 0..300 {
                let options = at(Isolation::ReadCommitted).durability(pandodb::Durability::None);
                let mut transaction = db.begin(options).unwrap();
                let first = transaction.get_for_update(&table, b"k").unwrap();
                for _ in 0..random.usize(..20) {
                    thread::yield_now();
                }
                assert_eq!(transaction.get(&table, b"k").unwrap(), first);
                assert_eq!(table.get(b"k").unwrap(), first, "reads do not wait");
                if random.bool() {
                    transaction.put(&table, b"k", b"its own!").unwrap();
                    transaction.commit().unwrap();
                }
            }
        };
        let _stop = Stop(&ended);
        for locker in [10, 11].map(|seed| scope.spawn(move || locker(seed))) {
            locker.join().unwrap();
        }
    });
    assert_eq!(db.occupancy().locks, 0);
}

#[test]
fn a_write_waits_for_a_lock_and_gives_up_in_time() {
    let (db, table) = open(SHORT);
    table.put(b"k", b"0").unwrap();
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k", b"l"]).unwrap();
    let begun = time::now();
    assert_timeout(table.put(b"k", b"1"), Some(b"k"));
    assert!(begun.elapsed() >= SHORT);
    let mut batch = Batch::new();
    batch.put(&table, b"j", b"1");
    batch.put(&table, b"l", b"1");
    assert_timeout(db.write(&mut batch, WriteOptions::default()), Some(b"l"));
    assert_timeout(table.delete(b"k"), Some(b"k"));
    assert_eq!(
        table.get(b"j").unwrap(),
        None,
        "all of the batch, or nothing"
    );
    let mut other = db
        .begin(TransactionOptions::default().lock_timeout(SHORT))
        .unwrap();
    assert_timeout(other.lock(&table, &[b"k"]), Some(b"k"));
    // It goes on without that lock; its commit waits as other writes do.
    other.put(&table, b"other", b"1").unwrap();
    other.put(&table, b"k", b"1").unwrap();
    assert_timeout(other.commit(), Some(b"k"));
    table.put(b"unlocked", b"1").unwrap();
    assert_eq!(db.statistics().get(Ticker::LockTimeouts), 5);
    holder.put(&table, b"k", b"2").unwrap();
    holder.commit().unwrap();
    table.put(b"l", b"3").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// A waiter that gave up has left the queue, and nobody waits for it.
#[test]
fn whoever_gave_up_is_given_nothing() {
    let (db, table) = open(SHORT);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let mut given_up = begin(&db);
    assert_timeout(given_up.lock(&table, &[b"k"]), Some(b"k"));
    holder.rollback();
    let mut third = begin(&db);
    third.lock(&table, &[b"k"]).unwrap();
    drop(third);
    assert_eq!(db.occupancy().locks, 0, "nobody holds or wants a lock");
    given_up.lock(&table, &[b"k"]).unwrap();
    assert_eq!(db.occupancy().locks, 1);
    drop(given_up);
    assert_eq!(db.occupancy().locks, 0);
}

#[test]
fn the_youngest_in_a_circle_gives_up() {
    for victim in [0, 1, 2] {
        let (db, table) = open(LONG);
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut transactions: Vec<Transaction> = (0..3).map(|_| begin(&db)).collect();
        // Age counts from the first lock on. The key of the youngest is `victim`.
        let order = [(victim + 1) % 3, (victim + 2) % 3, victim];
        let mut of_key: Vec<Option<Transaction>> = vec![None, None, None];
        for key in order {
            let mut transaction = transactions.pop().unwrap();
            transaction.lock(&table, &[keys[key]]).unwrap();
            transaction.put(&table, keys[key], b"1").unwrap();
            of_key[key] = Some(transaction);
        }
        // Transactions that gave up stay until the others have ended: they have no locks.
        let ends: Vec<(pandodb::Result<()>, Option<Transaction>)> = thread::scope(|scope| {
            let (db, table) = (&db, &table);
            let threads: Vec<_> = of_key
                .into_iter()
                .enumerate()
                .map(|(own, transaction)| {
                    scope.spawn(move || {
                        let mut transaction = transaction.unwrap();
                        // Each begins to wait after the one before.
                        wait_for_waits(db, own as u64);
                        let next = keys[(own + 1) % 3];
                        let locked = transaction.lock(table, &[next]);
                        if locked.is_err() {
                            return (locked, Some(transaction));
                        }
                        transaction.commit().unwrap();
                        (locked, None)
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for (own, (end, transaction)) in ends.into_iter().enumerate() {
            assert_eq!(is_deadlock(&end), own == victim, "{own}: {end:?}");
            assert_eq!(end.is_ok(), own != victim, "{own}: {end:?}");
            if let Some(mut transaction) = transaction {
                // It says so until it is dropped.
                assert!(is_deadlock(&transaction.get(&table, b"x")));
                assert!(is_deadlock(&transaction.put(&table, b"x", b"1")));
                assert!(is_deadlock(&transaction.commit()));
            }
            assert_eq!(table.get(keys[own]).unwrap().is_some(), own != victim);
        }
        assert_eq!(db.statistics().get(Ticker::Deadlocks), 1);
        assert_eq!(db.occupancy(), Occupancy::default());
    }
}

/// A commit that has locks, and waits for the key of another, may be part of a circle, too.
#[test]
fn a_commit_in_a_circle_is_told() {
    let (db, table) = open(LONG);
    let (mut old, mut young) = (begin(&db), begin(&db));
    old.lock(&table, &[b"a"]).unwrap();
    young.lock(&table, &[b"b"]).unwrap();
    young.put(&table, b"a", b"young").unwrap();
    thread::scope(|scope| {
        let young = scope.spawn(|| young.commit());
        wait_for_waits(&db, 1);
        old.lock(&table, &[b"b"]).unwrap();
        let refused = young.join().unwrap();
        assert!(is_deadlock(&refused), "{refused:?}");
    });
    old.put(&table, b"b", b"old").unwrap();
    old.commit().unwrap();
    assert_eq!(table.len(), 1);
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// Random locks in random order: everybody ends, nobody waits in vain, and sums are right.
#[test]
fn locks_in_any_order_end() {
    let (db, table) = open(LONG);
    let sums = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..16 {
            let (db, table, sums) = (&db, &table, &sums);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                for _ in 0..60 {
                    let options = at(Isolation::ReadCommitted);
                    let keys: Vec<u8> = (0..3).map(|_| random.u8(..6)).collect();
                    let by = random.u64(1..100);
                    let added = db.transact_with(options, |transaction| {
                        let mut added = 0;
                        for key in &keys {
                            let value = number(transaction.get_for_update(table, &[*key])?);
                            let value = (value + by).to_le_bytes();
                            transaction.put(table, &[*key], &value)?;
                            added += by;
                            // Others get locks in between.
                            (0..4).for_each(|_| thread::yield_now());
                        }
                        Ok(added)
                    });
                    sums.fetch_add(added.unwrap(), Ordering::Relaxed);
                }
            });
        }
    });
    let stored: u64 = table
        .iter()
        .map(|entry| number(Some(entry.unwrap().1)))
        .sum();
    assert_eq!(stored, sums.load(Ordering::Relaxed));
    assert_eq!(db.statistics().get(Ticker::LockTimeouts), 0);
    assert!(
        db.statistics().get(Ticker::Deadlocks) > 0,
        "no test of them"
    );
    assert_eq!(db.occupancy(), Occupancy::default());
}

#[test]
fn a_key_that_was_written_since_the_first_read_conflicts_when_it_is_locked() {
    let (db, table) = open(LONG);
    table.put(b"k", b"1").unwrap();
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let mut transaction = db.begin(at(isolation)).unwrap();
        transaction.get(&table, b"other").unwrap();
        transaction.lock(&table, &[b"unwritten"]).unwrap();
        table.put(b"k", b"2").unwrap();
        let refused = transaction.lock(&table, &[b"k"]).unwrap_err();
        let is_conflict = |error: &Error| {
            matches!(error, Error::Conflict { table, key: Some(key), kind: ConflictKind::Written }
                if table == "t" && key == b"k")
        };
        assert!(is_conflict(&refused), "{refused}");
        assert_eq!(db.occupancy().locks, 0, "others need not wait for it");
        assert!(is_conflict(&transaction.get(&table, b"k").unwrap_err()));
        assert!(is_conflict(
            &transaction.range(&table, ..).next().unwrap().unwrap_err()
        ));
        assert!(is_conflict(&transaction.commit().unwrap_err()));
        // The other way round there is no conflict.
        let mut transaction = db.begin(at(isolation)).unwrap();
        table.put(b"k", b"3").unwrap();
        let value = transaction.get_for_update(&table, b"k").unwrap();
        assert_eq!(value.as_deref(), Some(&b"3"[..]));
        transaction.put(&table, b"k", b"4").unwrap();
        transaction.commit().unwrap();
    }
}

/// Tables change as a whole without stripes: a thread of the engine meets the lock, and goes on
/// with other work.
#[test]
fn a_change_of_a_table_waits_for_locks_in_it() {
    let (db, table) = open(SHORT);
    table.put(b"k", b"1").unwrap();
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    assert_timeout(db.drop_table("t"), Some(b"k"));
    assert_timeout(db.clear_tables(&[&table]), Some(b"k"));
    db.table("another").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    thread::scope(|scope| {
        let waits = db.statistics().get(Ticker::RestartsLock);
        let cleared = scope.spawn(|| db.clear_tables(&[&table]));
        wait_for_waits(&db, waits + 1);
        db.table("a third").unwrap();
        holder.put(&table, b"k", b"2").unwrap();
        holder.commit().unwrap();
        cleared.join().unwrap().unwrap();
    });
    assert_eq!(table.len(), 0);
    assert_eq!(db.occupancy().locks, 0);
    // A locker that waited while the table got another tree locks the key of that.
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    thread::scope(|scope| {
        let waits = db.statistics().get(Ticker::RestartsLock);
        let cleared = scope.spawn(|| db.clear_tables(&[&table]));
        wait_for_waits(&db, waits + 1);
        let second = scope.spawn(|| {
            let mut second = db
                .begin(TransactionOptions::default().lock_timeout(LONG))
                .unwrap();
            second.lock(&table, &[b"k"]).unwrap();
            second
        });
        wait_for_waits(&db, waits + 2);
        holder.rollback();
        cleared.join().unwrap().unwrap();
        let second = second.join().unwrap();
        assert_timeout(table.put(b"k", b"3"), Some(b"k"));
        drop(second);
    });
    table.put(b"k", b"3").unwrap();
    assert_eq!(db.occupancy().locks, 0);
}

/// Loses always without precedence: others write into the range all the time, and it is slow.
#[test]
fn a_transaction_that_always_loses_gets_its_turn() {
    let (db, table) = open(LONG);
    let counts = db.table("counts").unwrap();
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (table, ended, written) = (&table, &ended, &written);
            scope.spawn(move || {
                let mut random = Rng::with_seed(writer.into());
                while !ended.load(Ordering::Relaxed) {
                    let key = [random.u8(..), random.u8(..)];
                    table.put_with(&key, &[writer; 8], NONE).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop(&ended);
        let mut most = 0;
        for _ in 0..5 {
            let mut runs = 0;
            db.transact(|transaction| {
                runs += 1;
                let count = count_of(transaction, &table)?;
                // More than one of each writer: some have begun since. In its turn there are none,
                // and on a busy machine it takes long to yield.
                let enough = written.load(Ordering::Relaxed) + 10;
                for _ in 0..200 {
                    if written.load(Ordering::Relaxed) < enough {
                        thread::yield_now();
                    }
                }
                transaction.put(&counts, b"count", &count.to_le_bytes())
            })
            .unwrap();
            assert!(runs <= 11, "{runs} runs");
            most = most.max(runs);
        }
        assert!(most >= 9, "it has never needed its turn: {most} runs");
    });
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// Many of them at once, and each touches a table that it finds out about late.
#[test]
fn turns_come_one_after_the_other() {
    let (db, table) = open(LONG);
    let others: Vec<Table> = (0..4)
        .map(|n| db.table(&format!("o{n}")).unwrap())
        .collect();
    thread::scope(|scope| {
        for seed in 0..8 {
            let (db, table, others) = (&db, &table, &others);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                for _ in 0..5 {
                    let other = &others[random.usize(..4)];
                    db.transact(|transaction| {
                        let count = count_of(transaction, table)?;
                        let in_other = count_of(transaction, other)?;
                        thread::yield_now();
                        let key = (count << 32 | in_other).to_le_bytes();
                        transaction.put(table, &key, b"")?;
                        transaction.put(other, &key, b"")
                    })
                    .unwrap();
                }
            });
        }
    });
    // Each has seen those before it, so that all keys differ.
    assert_eq!(table.len(), 40);
    assert_eq!(others.iter().map(Table::len).sum::<u64>(), 40);
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// Whoever keeps its turn for too long lets others pass, and is told.
#[test]
fn a_turn_ends_in_time() {
    let (db, table) = open(SHORT);
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in (0..u64::MAX).take_while(|_| !ended.load(Ordering::Relaxed)) {
                // It waits for the turn, and then nobody holds it up.
                table.put_with(&number.to_le_bytes(), b"", NONE).unwrap();
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = Stop(&ended);
        let lost = db.transact(|transaction| {
            let begun = time::now();
            let count = count_of(transaction, &table)?;
            // The second write from here on has begun since: it conflicts, when it comes at last.
            let before = written.load(Ordering::Relaxed);
            while begun.elapsed() < 4 * SHORT || written.load(Ordering::Relaxed) < before + 2 {
                assert!(!writer.is_finished(), "the writer was let pass too late");
                thread::yield_now();
            }
            transaction.put(&table, b"count", &count.to_le_bytes())
        });
        let lost = lost.unwrap_err();
        // The second if the writes since need more memory than there is.
        assert!(
            matches!(
                lost,
                Error::Conflict {
                    kind: ConflictKind::Range,
                    ..
                } | Error::SnapshotEnded
            ),
            "{lost}"
        );
    });
    assert_eq!(db.occupancy(), Occupancy::default());
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn futures_wait_for_locks() {
    let (db, table) = open(2 * SHORT);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    // Nobody gives the lock back: the future is woken to find that out.
    assert_timeout(block_on(table.put_async(b"k", b"1")), Some(b"k"));
    let mut waiting = table.put_async(b"k", b"2");
    assert!(poll(&mut waiting, Waker::noop()).is_pending());
    let mut dropped = table.put_async(b"k", b"3");
    assert!(poll(&mut dropped, Waker::noop()).is_pending());
    drop(dropped);
    holder.rollback();
    block_on(&mut waiting).unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// A future that is never polled again must not keep lockers out for good.
#[test]
fn nobody_waits_for_a_write_that_was_forgotten() {
    let (db, table) = open(LONG);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let mut forgotten = table.put_async(b"k", b"1");
    assert!(poll(&mut forgotten, Waker::noop()).is_pending());
    holder.rollback();
    let begun = time::now();
    let mut second = db
        .begin(TransactionOptions::default().lock_timeout(Duration::from_secs(20)))
        .unwrap();
    second.lock(&table, &[b"k"]).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    second.rollback();
    block_on(forgotten).unwrap();
    assert_eq!(db.occupancy(), Occupancy::default());
}

#[test]
fn event_loops_wait_for_locks() {
    let (db, table) = open(2 * SHORT);
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let mut batch = ValidatedBatch::new(&db);
    batch.put(&table, b"k", b"1").unwrap();
    let refused = {
        let mut refused = None;
        run(&mut reactor, |reactor| match batch.try_commit(reactor) {
            Ok(Polled::Ready(_)) => Polled::Ready(()),
            Ok(Polled::Pending(pending)) => Polled::Pending(pending),
            Err(error) => {
                refused = Some(error);
                Polled::Ready(())
            }
        });
        Err::<(), _>(refused.unwrap())
    };
    assert_timeout(refused, Some(b"k"));
    let waits = db.statistics().get(Ticker::RestartsLock);
    thread::scope(|scope| {
        scope.spawn(|| {
            wait_for_waits(&db, waits + 1);
            holder.rollback();
        });
        let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
        assert!(matches!(outcome, Outcome::Committed(Some(_))));
    });
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.occupancy().locks, 0);
}

/// Locks `key` again and again, holds it for a moment, and changes it.
fn lock_and_change(db: &Db, table: &Table, key: &[u8], ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let options = at(Isolation::ReadCommitted).durability(pandodb::Durability::None);
        let mut transaction = db.begin(options).unwrap();
        let value = number(transaction.get_for_update(table, key).unwrap());
        let begun = time::now();
        while begun.elapsed() < Duration::from_millis(2) {
            thread::yield_now();
        }
        let next = (value + 1).to_le_bytes();
        transaction.put(table, key, &next).unwrap();
        transaction.commit().unwrap();
    }
}

/// Whatever they wait for has changed what they had read, or another lock is held again meanwhile.
#[test]
fn writes_between_lockers_end() {
    let (db, table) = open(Duration::from_secs(20));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        for locker in 0..6 {
            let (db, table, ended) = (&db, &table, &ended);
            let key: &[u8] = if locker % 2 == 0 { b"a" } else { b"b" };
            scope.spawn(move || lock_and_change(db, table, key, ended));
        }
        for _ in 0..5 {
            let mut runs = 0;
            let changed = table.update(b"a", |old| {
                runs += 1;
                let value = number(old.map(<[u8]>::to_vec));
                Some((value + 1).to_le_bytes().to_vec())
            });
            changed.unwrap();
            assert!(runs < 100, "{runs} runs");
            let mut batch = Batch::new();
            for key in [b"a", b"b"] {
                batch.put(&table, key, &0_u64.to_le_bytes());
            }
            db.write(&mut batch, NONE).unwrap();
            db.clear_tables(&[&table]).unwrap();
        }
    });
    assert_eq!(db.statistics().get(Ticker::LockTimeouts), 0);
    assert_eq!(db.occupancy().locks, 0);
}

/// The time is that of a call, however many locks it meets.
#[test]
fn a_call_waits_once() {
    let (db, table) = open(4 * SHORT);
    let keys: Vec<[u8; 1]> = (0..6).map(|key| [key]).collect();
    let mut holders: Vec<Transaction> = (0..6).map(|_| begin(&db)).collect();
    for (holder, key) in holders.iter_mut().zip(&keys) {
        holder.lock(&table, &[key]).unwrap();
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        scope.spawn(|| {
            // Each is given back before the time for one of them is over.
            for holder in holders {
                let begun = time::now();
                while begun.elapsed() < 2 * SHORT && !ended.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(holder);
            }
        });
        let mut batch = Batch::new();
        for key in &keys {
            batch.put(&table, key, b"");
        }
        let begun = time::now();
        let refused = db.write(&mut batch, NONE);
        assert!(
            matches!(refused, Err(Error::LockTimeout { .. })),
            "{refused:?}"
        );
        assert!(begun.elapsed() < 8 * SHORT);
    });
}

#[test]
fn a_transaction_that_has_locked_nothing_waits_for_as_long_as_it_was_told() {
    let (db, table) = open(LONG);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let options = TransactionOptions::default().lock_timeout(SHORT);
    let mut other = db.begin(options).unwrap();
    other.put(&table, b"k", b"1").unwrap();
    let begun = time::now();
    assert_timeout(other.commit(), Some(b"k"));
    assert!(begun.elapsed() < LONG / 4);
}

/// They lock what they have lost, and the last in the queue waits for longer than a write would.
#[test]
fn a_crowd_that_reads_and_writes_one_key_gets_through() {
    let (db, table) = open(4 * SHORT);
    thread::scope(|scope| {
        for _ in 0..60 {
            scope.spawn(|| {
                db.transact(|transaction| {
                    let value = number(transaction.get(&table, b"k")?);
                    let begun = time::now();
                    while begun.elapsed() < Duration::from_millis(8) {
                        thread::yield_now();
                    }
                    transaction.put(&table, b"k", &(value + 1).to_le_bytes())
                })
                .unwrap();
            });
        }
    });
    assert_eq!(number(table.get(b"k").unwrap()), 60);
    assert_eq!(db.occupancy().locks, 0);
}

/// What precedence locks ends in time: a write waits for a slow transaction, and does not fail.
#[test]
fn plain_writes_beside_a_slow_transaction_do_not_fail() {
    let (db, table) = open(2 * SHORT);
    let (ended, written) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        let writer = scope.spawn(|| {
            for value in 0..u64::MAX {
                if ended.load(Ordering::Relaxed) {
                    break;
                }
                table.put_with(b"k", &value.to_le_bytes(), NONE).unwrap();
                written.store(value, Ordering::Relaxed);
            }
        });
        let mut runs = 0;
        let lost = db.transact(|transaction| {
            runs += 1;
            transaction.get(&table, b"k")?;
            let (begun, before) = (time::now(), written.load(Ordering::Relaxed));
            // What is locked for it is locked for less than this, so that a write comes, however
            // late. One write may have been committed before the read, and be counted after it.
            let has_come = || written.load(Ordering::Relaxed) >= before + 2;
            while begun.elapsed() < 3 * SHORT || !(has_come() || writer.is_finished()) {
                thread::yield_now();
            }
            transaction.put(&table, b"sum", b"1")
        });
        let lost = lost.unwrap_err();
        assert!(
            matches!(
                lost,
                Error::Conflict {
                    kind: ConflictKind::Read,
                    ..
                }
            ),
            "{lost}"
        );
        assert_eq!(runs, 9);
    });
}

/// The helper thread of futures writes large values, one after the other. If it waited for a lock,
/// the holder would wait for it in turn.
#[test]
fn the_helper_of_futures_waits_for_no_lock() {
    let (db, table) = open(LONG);
    let large = vec![1; 6 << 20];
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let mut waiting: Vec<_> = (0..3).map(|_| table.put_async(b"k", &large)).collect();
    let waker = pando_sync::thread_waker();
    while db.statistics().get(Ticker::RestartsLock) < 3 {
        for future in &mut waiting {
            assert!(poll(future, &waker).is_pending());
        }
        thread::yield_now();
    }
    block_on(table.put_async(b"another", &large)).unwrap();
    holder.put(&table, b"k", b"1").unwrap();
    holder.commit().unwrap();
    for future in waiting {
        block_on(future).unwrap();
    }
    assert_eq!(db.statistics().get(Ticker::LockTimeouts), 0);
    // Nor does the end of the store wait for one.
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    let before = db.statistics().get(Ticker::RestartsLock);
    let mut last = table.put_async(b"k", &large);
    while db.statistics().get(Ticker::RestartsLock) == before {
        assert!(poll(&mut last, &waker).is_pending());
        thread::yield_now();
    }
    let begun = time::now();
    db.close().unwrap();
    assert!(begun.elapsed() < LONG / 4);
    assert!(matches!(block_on(last), Err(Error::Closed)));
}

/// No time is too long.
#[test]
fn a_timeout_without_end_is_allowed() {
    let (db, table) = open(Duration::MAX);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| table.put(b"k", b"1"));
        wait_for_waits(&db, 1);
        holder.rollback();
        writer.join().unwrap().unwrap();
    });
}

/// A thousand transactions that hold something wait for one lock: none of them searches for cycles
/// through all pairs of the others.
#[test]
fn many_waiters_that_hold_something_are_searched_in_time() {
    let (db, table) = open(LONG);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"hot"]).unwrap();
    thread::scope(|scope| {
        for own in 0..1000_u32 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut transaction = begin(db);
                transaction.lock(table, &[&own.to_be_bytes()]).unwrap();
                transaction.lock(table, &[b"hot"]).unwrap();
            });
        }
        let begun = time::now();
        wait_for_waits(&db, 1000);
        holder.rollback();
        assert!(begun.elapsed() < LONG / 4, "{:?}", begun.elapsed());
    });
    assert_eq!(db.statistics().get(Ticker::Deadlocks), 0);
    assert_eq!(db.occupancy().locks, 0);
}

/// A thousand threads, 16 MiB, one key.
#[test]
fn a_crowd_locks_one_key() {
    let (db, table) = open(LONG);
    thread::scope(|scope| {
        for turn in 0..1000 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                if turn % 4 == 0 {
                    table
                        .put_with(&[b'p', (turn % 256) as u8], b"", NONE)
                        .unwrap();
                }
                let options = at(Isolation::ReadCommitted).durability(pandodb::Durability::None);
                let mut transaction = db.begin(options).unwrap();
                let value = number(transaction.get_for_update(table, b"k").unwrap());
                let next = (value + 1).to_le_bytes();
                transaction.put(table, b"k", &next).unwrap();
                transaction.commit().unwrap();
            });
        }
    });
    assert_eq!(number(table.get(b"k").unwrap()), 1000);
    assert_eq!(db.occupancy(), Occupancy::default());
}

/// Those who wait for a lock leave the frames that they had pinned to whoever holds it.
#[test]
fn whoever_waits_for_a_lock_pins_nothing() {
    let options = Db::builder().max_memory(16 << 20).frames(96);
    let db = options.lock_timeout(LONG).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..4_000, |number| {
        (padded_key(number), [number as u8; 1000])
    });
    db.checkpoint().unwrap();
    let batch_of = |seed: u64, transaction: &mut Batch| {
        let mut random = Rng::with_seed(seed);
        for _ in 0..30 {
            transaction.put(
                &table,
                &padded_key(random.u32(..4_000)),
                &seed.to_le_bytes(),
            );
        }
        transaction.put(&table, b"k", &seed.to_le_bytes());
    };
    for turn in 0..4 {
        let mut holder = begin(&db);
        holder.lock(&table, &[b"k"]).unwrap();
        let before = db.statistics().get(Ticker::RestartsLock);
        thread::scope(|scope| {
            for seed in 0..24 {
                let (db, batch_of) = (&db, &batch_of);
                scope.spawn(move || {
                    let mut batch = Batch::new();
                    batch_of(turn * 100 + seed, &mut batch);
                    db.write(&mut batch, NONE).unwrap();
                });
            }
            wait_for_waits(&db, before + 24);
            let begun = time::now();
            while db.occupancy().pin_frames != 0 {
                assert!(begun.elapsed() < LONG / 2, "they wait for each other");
                thread::yield_now();
            }
            let mut random = Rng::with_seed(turn);
            for _ in 0..60 {
                let key = padded_key(random.u32(..4_000));
                holder.put(&table, &key, b"of the holder").unwrap();
            }
            holder.commit().unwrap();
        });
        assert_eq!(db.statistics().get(Ticker::LockTimeouts), 0);
    }
    assert_eq!(db.occupancy().locks, 0);
}

/// Waits that go on when the store is closed end with an error.
#[test]
fn a_closed_store_ends_waits() {
    let (db, table) = open(LONG);
    let mut holder = begin(&db);
    holder.lock(&table, &[b"k"]).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| table.put(b"k", b"1"));
        let locker = scope.spawn(|| {
            let mut locker = begin(&db);
            let ended = locker.lock(&table, &[b"k"]);
            // The wait was cut off, and another call begins none.
            assert!(matches!(locker.lock(&table, &[b"l"]), Err(Error::Closed)));
            ended
        });
        let clearer = scope.spawn(|| db.clear_tables(&[&table]));
        wait_for_waits(&db, 3);
        db.clone().close().unwrap();
        let ends = [writer, locker, clearer].map(|one| one.join().unwrap());
        for end in ends {
            assert!(matches!(end, Err(Error::Closed)), "{end:?}");
        }
    });
    assert!(matches!(holder.lock(&table, &[b"l"]), Err(Error::Closed)));
}
