//! Transactions and snapshots of tasks: their calls as futures.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Db, Error, Isolation, Table, TransactionOptions};

use crate::fixture::{NONE, fill};
use crate::futures::{block_on, run_all};

fn at(isolation: Isolation) -> TransactionOptions {
    TransactionOptions::default().isolation(isolation)
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// A store with few frames, so that much has to be read, with `keys` keys.
fn small(directory: &std::path::Path, keys: u32) -> (Db, Table) {
    let options = Db::builder().max_memory(4 << 20).frames(64);
    let db = options.open(directory).unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..keys, |number| (number.to_be_bytes(), [100; 200]));
    (db, table)
}

/// Moves something from one entry to another.
async fn transfer(db: Db, table: Table, from: u32, to: u32) -> pandodb::Result<()> {
    let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
    db.transact_async(async move |transaction| {
        let mut less = transaction.get_async(&table, &from).await?.unwrap();
        less[0] = less[0].wrapping_sub(1);
        transaction.put(&table, &from, &less)?;
        let mut more = transaction.get_async(&table, &to).await?.unwrap();
        more[0] = more[0].wrapping_add(1);
        transaction.put(&table, &to, &more)
    })
    .await
}

fn sum_of(db: &Db, table: &Table) -> u64 {
    loop {
        let snapshot = db.snapshot().unwrap();
        let values = snapshot.iter(table).map(|entry| Ok(u64::from(entry?.1[0])));
        match values.sum::<pandodb::Result<u64>>() {
            Ok(sum) => return sum % 256,
            // Its memory is small.
            Err(error) => assert!(matches!(error, Error::SnapshotEnded), "{error}"),
        }
    }
}

fn needs_send<F: Future + Send>(future: F) -> F {
    future
}

/// Many tasks of two threads, some of which are dropped on their way: no change is lost or made in
/// part, and all that go on end.
#[test]
fn tasks_transfer_beside_each_other_with_few_frames() {
    const KEYS: u32 = 2000;
    let directory = tempfile::tempdir().unwrap();
    let (db, table) = small(directory.path(), KEYS);
    let expected = sum_of(&db, &table);
    let committed = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (db, table, committed) = (&db, &table, &committed);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                for _ in 0..4 {
                    // Few keys are hot.
                    let mut key = || match random.bool() {
                        true => random.u32(..20),
                        false => random.u32(..KEYS),
                    };
                    let tasks: Vec<_> = (0..150)
                        .map(|_| {
                            Box::pin(needs_send(transfer(
                                db.clone(),
                                table.clone(),
                                key(),
                                key(),
                            )))
                        })
                        .collect();
                    for mut left in
                        (0..50).map(|_| Box::pin(transfer(db.clone(), table.clone(), key(), key())))
                    {
                        let mut polls = 0..3;
                        while polls.next().is_some() && poll(left.as_mut()).is_pending() {}
                    }
                    for ended in run_all(tasks) {
                        // The memory for old versions is small, and a machine may have little time.
                        match ended {
                            Err(Error::SnapshotEnded) => {}
                            other => {
                                other.unwrap();
                                committed.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                }
            });
        }
        for _ in 0..20 {
            assert_eq!(sum_of(&db, &table), expected);
        }
    });
    let committed = committed.into_inner();
    assert!(committed > 600, "{committed} of 1200");
    assert_eq!(sum_of(&db, &table), expected);
    assert_eq!(db.occupancy().locks, 0);
}

/// Values of all lengths, as they were, with own writes on top.
#[test]
fn tasks_read_what_threads_read() {
    let directory = tempfile::tempdir().unwrap();
    let (db, table) = small(directory.path(), 1000);
    let lengths = [0, 100, 5000, 60_000, 3 << 20];
    for (number, length) in lengths.into_iter().enumerate() {
        table.put(&[number as u8], &vec![1; length]).unwrap();
    }
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        let snapshot = db.snapshot().unwrap();
        let mut transaction = db.begin(at(level)).unwrap();
        let absent = block_on(transaction.get_async(&table, b"absent")).unwrap();
        assert_eq!(absent, None);
        for (number, length) in lengths.into_iter().enumerate() {
            table.put(&[number as u8], &vec![2; length]).unwrap();
        }
        for (number, length) in lengths.into_iter().enumerate() {
            let key = [number as u8];
            let expected = Some(vec![1; length]);
            assert_eq!(
                block_on(snapshot.get_async(&table, &key)).unwrap(),
                expected
            );
            let found = block_on(transaction.get_async(&table, &key)).unwrap();
            assert_eq!(found, expected);
            transaction.put(&table, &key, b"own").unwrap();
            let found = block_on(transaction.get_async(&table, &key)).unwrap();
            assert_eq!(found.as_deref(), Some(&b"own"[..]));
        }
        let refused = block_on(transaction.commit_async());
        assert!(
            matches!(refused, Err(Error::Conflict { .. })),
            "{refused:?}"
        );
        for (number, length) in lengths.into_iter().enumerate() {
            table.put(&[number as u8], &vec![1; length]).unwrap();
        }
    }
    let mut newest = db.begin(at(Isolation::ReadCommitted)).unwrap();
    let large = block_on(newest.get_async(&table, &[4])).unwrap();
    assert_eq!(large.map(|value| value.len()), Some(3 << 20));
}

/// A commit whose value goes to chunks is run by a helper, which hands it back to wait for a lock.
#[test]
fn a_large_commit_waits_for_a_lock_as_a_task() {
    let db = Db::builder().max_memory(32 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut holder = db.begin(TransactionOptions::default()).unwrap();
    holder.lock(&table, &[b"k"]).unwrap();
    let mut writer = db.begin(TransactionOptions::default()).unwrap();
    writer.put(&table, b"k", &vec![7; 3 << 20]).unwrap();
    let mut commit = Box::pin(writer.commit_async());
    for _ in 0..100 {
        assert!(poll(commit.as_mut()).is_pending());
        thread::yield_now();
    }
    // The helper is free for others.
    table.put(b"large", &vec![1; 3 << 20]).unwrap();
    let snapshot = db.snapshot().unwrap();
    let large = block_on(snapshot.get_async(&table, b"large")).unwrap();
    assert_eq!(large.map(|value| value.len()), Some(3 << 20));
    holder.put(&table, b"other", b"1").unwrap();
    holder.commit().unwrap();
    assert!(block_on(commit).unwrap().is_some());
    assert_eq!(table.get(b"k").unwrap().unwrap().len(), 3 << 20);

    // It gives up, too.
    let mut holder = db.begin(TransactionOptions::default()).unwrap();
    holder.lock(&table, &[b"k"]).unwrap();
    let short = TransactionOptions::default().lock_timeout(Duration::from_millis(20));
    let mut writer = db.begin(short).unwrap();
    writer.put(&table, b"k", &vec![8; 3 << 20]).unwrap();
    let late = block_on(writer.commit_async());
    assert!(matches!(late, Err(Error::LockTimeout { .. })), "{late:?}");
    assert_eq!(table.get(b"k").unwrap().unwrap()[0], 7);
}

/// A task that waits for a lock is woken in its turn; one that is dropped leaves the queue.
#[test]
fn tasks_wait_for_locks() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let begin = || db.begin(TransactionOptions::default()).unwrap();
    let (mut one, mut two, mut three) = (begin(), begin(), begin());
    block_on(one.lock_async(&table, &[b"b", b"a"])).unwrap();
    let mut dropped = Box::pin(two.lock_async(&table, &[b"a"]));
    assert!(poll(dropped.as_mut()).is_pending());
    drop(dropped);
    // Another call of the transaction takes its first one out of the queue.
    block_on(two.lock_async(&table, &[b"c"])).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            one.put(&table, b"a", b"1").unwrap();
            block_on(one.commit_async()).unwrap();
        });
        let found = block_on(three.get_for_update_async(&table, b"a")).unwrap();
        assert_eq!(found.as_deref(), Some(&b"1"[..]));
    });
    drop((two, three));
    assert_eq!(db.occupancy().locks, 0);
}

/// A task that reads keys that others keep writing ends all the same, since it gets locks.
#[test]
fn a_slow_task_ends_beside_writers() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..20, |number| (number.to_be_bytes(), b"0"));
    let (stop, runs) = (AtomicBool::new(false), AtomicU64::new(0));
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let end = Stop(&stop);
        for seed in 0..3 {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let key = random.u32(..20).to_be_bytes();
                    table.put_with(&key, b"1", NONE).unwrap();
                }
            });
        }
        let slow = async |transaction: &mut pandodb::Transaction| {
            runs.fetch_add(1, Ordering::Relaxed);
            for number in 0..20_u32 {
                transaction.get_async(&table, &number.to_be_bytes()).await?;
                thread::park_timeout(Duration::from_millis(1));
            }
            transaction.put(&table, b"slow", b"done")
        };
        block_on(db.transact_async(slow)).unwrap();
        drop(end);
    });
    assert!(runs.into_inner() > 3, "nobody was in its way");
    assert_eq!(table.get(b"slow").unwrap().unwrap(), b"done");
    assert_eq!(db.occupancy().locks, 0);
}

/// What is dropped while a helper works on it does not keep the store, nor end it in the helper.
#[test]
fn a_store_closes_while_commits_of_tasks_are_dropped() {
    for turn in 0..20 {
        let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        table.put(b"large", &vec![1; 3 << 20]).unwrap();
        let mut writer = db.begin(TransactionOptions::default()).unwrap();
        writer.put(&table, b"k", &vec![7; 3 << 20]).unwrap();
        let mut commit = Box::pin(writer.commit_async());
        let snapshot = db.snapshot().unwrap();
        let mut get = Box::pin(async { snapshot.get_async(&table, b"large").await });
        drop(poll(get.as_mut()));
        let is_done = poll(commit.as_mut()).is_ready();
        match turn % 3 {
            0 => drop((commit, is_done)),
            1 => db.close().unwrap(),
            _ => {}
        }
    }
}
