//! Gets and commits as futures, in all forms, including futures that are forgotten or dropped.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Wake, Waker};

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::{Arc, Mutex, Rank, park, thread, thread_waker};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::statistics::Ticker;
use pandodb::{Batch, Db, Error, Isolation, Occupancy, Table, TransactionOptions};

use crate::fixture::{NONE, fill};

const KEYS: u32 = 3000;

/// Polls a future on this thread until it ends.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = thread_waker();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

/// Polls a future once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

struct Woken {
    queue: Mutex<VecDeque<usize>>,
    executor: Waker,
}

struct TaskWake(usize, Arc<Woken>);

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.1.queue.lock().push_back(self.0);
        self.1.executor.wake_by_ref();
    }
}

/// Polls many futures on this thread until all have ended, in the order in which they were woken.
pub(crate) fn run_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let woken = Arc::new(Woken {
        queue: Mutex::new(Rank::Waker, (0..futures.len()).collect()),
        executor: thread_waker(),
    });
    let wakers: Vec<Waker> = (0..futures.len())
        .map(|at| Waker::from(Arc::new(TaskWake(at, woken.clone()))))
        .collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    let mut left = futures.len();
    while left > 0 {
        let next = woken.queue.lock().pop_front();
        let Some(at) = next else {
            park();
            continue;
        };
        if outputs[at].is_none() {
            let mut context = Context::from_waker(&wakers[at]);
            if let Poll::Ready(output) = Pin::new(&mut futures[at]).poll(&mut context) {
                outputs[at] = Some(output);
                left -= 1;
            }
        }
    }
    outputs.into_iter().map(Option::unwrap).collect()
}

fn key_of(number: u32) -> Vec<u8> {
    let mut key = number.to_be_bytes().to_vec();
    // Some keys fit in the future, and others need a pooled buffer.
    key.resize(if number.is_multiple_of(2) { 16 } else { 100 }, b'k');
    key
}

fn value_of(number: u32) -> Vec<u8> {
    vec![number as u8; if number % 100 == 99 { 20_000 } else { 300 }]
}

fn filled(db: &Db) -> Table {
    let table = db.table("t").unwrap();
    fill(&table, 0..KEYS, |number| (key_of(number), value_of(number)));
    db.checkpoint().unwrap();
    table
}

struct Place {
    db: Db,
    table: Table,
    _directory: tempfile::TempDir,
}

fn small() -> Place {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::builder().max_memory(16 << 20).frames(64);
    let db = options.open(directory.path()).unwrap();
    let table = filled(&db);
    Place {
        db,
        table,
        _directory: directory,
    }
}

/// Waits until nothing is in use any longer.
fn rest(db: &Db) {
    while db.occupancy() != Occupancy::default() {
        thread::yield_now();
    }
}

#[test]
fn all_forms_of_a_get_find_what_is_there() {
    let place = small();
    let table = &place.table;
    let before = place.db.statistics();
    for number in (0..KEYS).step_by(37).chain([99, 1099]) {
        let (key, value) = (key_of(number), value_of(number));
        let got = block_on(table.get_async(&key)).unwrap();
        assert_eq!(got.as_ref(), Some(&value));
        let far = key_of((number + KEYS / 2) % KEYS);
        let mut out = vec![1, 2, 3];
        assert!(block_on(table.get_into_async(&far, &mut out)).unwrap());
        assert_eq!(out, value_of((number + KEYS / 2) % KEYS));
        let length = block_on(table.get_with_async(&key, |value| value.len())).unwrap();
        assert_eq!(length, Some(value.len()));
    }
    let counted = place.db.statistics().since(&before);
    let (gets, missed) = (counted.get(Ticker::Gets), counted.get(Ticker::GetsMissed));
    assert!(missed > 0 && missed <= gets, "{missed} of {gets}");
    assert_eq!(block_on(table.get_async(b"none")).unwrap(), None);
    let mut out = vec![1];
    assert!(!block_on(table.get_into_async(b"none", &mut out)).unwrap());
    let called = block_on(table.get_with_async(b"none", |_| panic!("there is none")));
    assert!(called.unwrap().is_none());
    rest(&place.db);
}

#[test]
fn a_get_that_is_polled_once_holds_up_nobody() {
    let place = small();
    let (table, db) = (&place.table, &place.db);
    thread::scope(|scope| {
        let blocker = scope.spawn(|| {
            let mut futures: Vec<_> = (0..KEYS).map(|n| table.get_async(&key_of(n))).collect();
            let pending = futures
                .iter_mut()
                .filter_map(|future| poll_once(future).is_pending().then_some(()));
            assert!(pending.count() > 100);
            // The task holds all futures and sleeps until the others have done all their work.
            park_until(db, KEYS);
            drop(futures);
        });
        for number in 0..KEYS {
            let found = table
                .get_with(&key_of(number), |value| value.len())
                .unwrap();
            assert_eq!(found, Some(value_of(number).len()));
            table
                .put_with(&key_of(number), &value_of(number), NONE)
                .unwrap();
        }
        // No read is in flight although all futures exist.
        rest(db);
        table.put_with(b"done", b"", NONE).unwrap();
        blocker.thread().unpark();
        blocker.join().unwrap();
    });
    rest(db);
}

fn park_until(db: &Db, entries: u32) {
    let table = db.existing_table("t").unwrap();
    while table.len() <= u64::from(entries) {
        park();
    }
}

#[test]
fn a_get_goes_on_after_the_thread_that_polled_it_has_ended() {
    let place = small();
    for round in 0..20 {
        let table = place.table.clone();
        let numbers = (0..40).map(move |at| (at * 71 + round * 13) % KEYS);
        let of_thread = numbers.clone();
        let futures = thread::spawn(move || {
            let mut futures: Vec<_> = of_thread.map(|n| table.get_async(&key_of(n))).collect();
            futures.retain_mut(|future| poll_once(future).is_pending());
            futures
        });
        let futures = futures.join().unwrap();
        let values: Vec<Vec<u8>> = numbers.map(value_of).collect();
        for found in run_all(futures) {
            assert!(values.contains(&found.unwrap().unwrap()));
        }
    }
    rest(&place.db);
}

#[test]
fn ten_thousand_gets_polled_once_and_forgotten_hold_nothing() {
    let place = small();
    let table = &place.table;
    let mut forgotten = Vec::new();
    for turn in 0..10_000_u32 {
        let mut future = table.get_async(&key_of((turn * 7) % KEYS));
        if poll_once(&mut future).is_pending() {
            forgotten.push(future);
        }
    }
    assert!(forgotten.len() > 1000, "{}", forgotten.len());
    rest(&place.db);
    // The whole pool is available to others.
    assert_eq!(table.iter().count(), KEYS as usize);
    for number in (0..KEYS).step_by(11) {
        table
            .put_with(&key_of(number), &value_of(number), NONE)
            .unwrap();
    }
    // The forgotten futures can still be run to their end, all at once, on 64 frames.
    let ends = run_all(forgotten);
    assert!(ends.into_iter().all(|found| found.unwrap().is_some()));
    rest(&place.db);
}

/// If the pages of a get are always evicted before the next poll, a helper thread finishes it.
#[test]
fn a_get_whose_pages_always_leave_in_time_ends_by_the_helper() {
    let place = small();
    let table = &place.table;
    let mut future = table.get_async(&key_of(5));
    let mut polls = 0;
    let value = loop {
        if let Poll::Ready(value) = poll_once(&mut future) {
            break value;
        }
        polls += 1;
        assert!(polls < 100, "no progress");
        rest_of_reads(&place.db);
        // All pages that the get has read are evicted before it is polled again.
        for number in (200..KEYS).step_by(3) {
            table.get_with(&key_of(number), |_| ()).unwrap();
        }
    };
    assert_eq!(value.unwrap(), Some(value_of(5)));
    assert!(polls >= 16, "{polls}: the pages were not evicted");
    rest(&place.db);
}

fn rest_of_reads(db: &Db) {
    while db.occupancy().read_requests > 0 {
        thread::yield_now();
    }
}

#[test]
fn futures_may_be_dropped_or_outlive_table_and_store() {
    for round in 0..10_usize {
        let place = small();
        let mut futures = Vec::new();
        for turn in 0..500_u32 {
            let mut future = place.table.get_async(&key_of((turn * 7) % KEYS));
            let _: Poll<_> = poll_once(&mut future);
            // Every other future is dropped with its read in flight.
            if turn.is_multiple_of(2) {
                futures.push(future);
            }
        }
        let mut writes: Vec<_> = (0..50)
            .map(|number| place.table.put_async(&key_of(number * 60), b"new"))
            .collect();
        writes.retain_mut(|write| poll_once(write).is_pending());
        let Place { db, table, .. } = place;
        drop(table);
        if round.is_multiple_of(2) {
            db.close().unwrap();
        } else {
            drop(db);
        }
        let pending = futures.into_iter().filter_map(|mut future| {
            // The futures that had ended were taken above.
            let poll = std::panic::catch_unwind(AssertUnwindSafe(|| poll_once(&mut future)));
            poll.is_ok_and(|poll| poll.is_pending()).then_some(future)
        });
        for end in run_all(pending.collect()) {
            assert!(matches!(end, Ok(Some(_)) | Err(Error::Closed)), "{end:?}");
        }
        for end in run_all(writes) {
            assert!(matches!(end, Ok(()) | Err(Error::Closed)), "{end:?}");
        }
    }
}

#[test]
fn everybody_who_waits_for_a_page_learns_of_its_error() {
    let device = FaultyDevice::new(5);
    let options = Db::builder().max_memory(16 << 20).frames(64);
    let db = Db::open_device(options, device.clone().into()).unwrap();
    let table = filled(&db);
    for number in 200..KEYS {
        table.get_with(&key_of(number), |_| ()).unwrap();
    }
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    let before = db.statistics();
    block_on(table.get_async(&key_of(3))).unwrap_err();
    // One more failure may be that of the maintenance thread.
    let failed = db.statistics().since(&before).get(Ticker::FaultsFailed);
    assert!(failed <= 2, "{failed} tries");
    let futures: Vec<_> = (0..20).map(|_| table.get_async(&key_of(3))).collect();
    for end in run_all(futures) {
        let error = end.unwrap_err();
        assert!(error.to_string().contains("reading it"), "{error}");
    }
    device.clear_faults();
    rest(&db);
    assert_eq!(
        block_on(table.get_async(&key_of(3))).unwrap(),
        Some(value_of(3))
    );
}

#[test]
fn a_closure_that_panics_or_calls_the_store_loses_nothing() {
    let place = small();
    let table = &place.table;
    for number in (0..KEYS).step_by(101) {
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            // The panic happens in this call or in a later poll.
            block_on(table.get_with_async(&key_of(number), |_| panic!("on purpose")))
        }));
        assert!(panicked.is_err());
        let other = key_of((number + 1500) % KEYS);
        let nested = table.get_with_async(&key_of(number), |value| {
            let inner = block_on(table.get_with_async(&other, <[u8]>::len)).unwrap();
            (value.len(), inner.unwrap())
        });
        let (outer, _) = block_on(nested).unwrap().unwrap();
        assert_eq!(outer, value_of(number).len());
    }
    rest(&place.db);
}

#[test]
fn writes_happen_once_and_are_as_durable_as_asked() {
    let place = small();
    let (db, table) = (&place.db, &place.table);
    block_on(table.put_async(b"a", b"1")).unwrap();
    assert!(
        db.durable_lsn() >= db.newest_lsn(),
        "the store's default is durable"
    );
    assert!(block_on(table.delete_async(b"a")).unwrap());
    assert!(!block_on(table.delete_async(b"a")).unwrap());
    let unpolled = table.put_async(b"never", b"");
    drop(unpolled);
    assert_eq!(table.get(b"never").unwrap(), None);
    let mut batch = Batch::new();
    for number in 0..100 {
        batch.put(table, &key_of(number * 30), b"batch");
        batch.delete(table, &key_of(number * 30 + 1));
    }
    let before = db.statistics().get(Ticker::Commits);
    block_on(db.write_async(batch, NONE)).unwrap();
    assert_eq!(db.statistics().get(Ticker::Commits) - before, 1);
    assert_eq!(table.get(&key_of(30)).unwrap().unwrap(), b"batch");
    assert_eq!(table.get(&key_of(31)).unwrap(), None);
    let too_long = block_on(table.put_async(&[0; 5000], b""));
    assert!(matches!(too_long, Err(Error::KeyTooLong { .. })));
    rest(db);
}

#[test]
fn many_tasks_that_write_the_same_keys_agree_with_a_twin() {
    let place = small();
    let (db, table) = (&place.db, &place.table);
    let mut twin: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    for round in 0..5_u32 {
        // Several tasks delete the same keys, and each existing key is deleted once.
        let keys: Vec<Vec<u8>> = (0..100).map(|at| key_of(at * 29)).collect();
        for key in &keys {
            twin.insert(key.clone(), 0);
        }
        let puts = keys
            .iter()
            .map(|key| table.put_async(key, &round.to_be_bytes()));
        for end in run_all(puts.collect()) {
            end.unwrap();
        }
        let deletes = keys.iter().chain(&keys).chain(&keys);
        let deletes: Vec<_> = deletes.map(|key| table.delete_async(key)).collect();
        let existed = run_all(deletes);
        for (at, existed) in existed.into_iter().enumerate() {
            *twin.get_mut(&keys[at % keys.len()]).unwrap() += u32::from(existed.unwrap());
        }
        assert!(twin.values().all(|deleted| *deleted == 1), "{twin:?}");
        assert_eq!(table.len(), u64::from(KEYS) - 100);
    }
    rest(db);
}

#[test]
fn futures_of_many_threads_beside_blocking_calls_leave_nothing_behind() {
    let place = small();
    let (db, table) = (&place.db, &place.table);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            let done = &done;
            scope.spawn(move || {
                for round in 0..30 {
                    let number = |at: u32| (at * 37 + round * 11 + thread * 700) % KEYS;
                    let gets = (0..32).map(|at| table.get_async(&key_of(number(at))));
                    let mut gets: Vec<_> = gets.collect();
                    // Some futures are forgotten.
                    gets.truncate(28);
                    let ended = run_all(gets).into_iter().filter(|end| {
                        let end = end.as_ref().unwrap();
                        end.is_some()
                    });
                    done.fetch_add(ended.count() as u64, Ordering::Relaxed);
                    let put = table.put_with(&key_of(number(3)), &value_of(number(3)), NONE);
                    put.unwrap();
                }
            });
        }
    });
    assert_eq!(done.load(Ordering::Relaxed), 4 * 30 * 28);
    rest(db);
}

/// A put and a commit whose futures are dropped while the helper has them, or is about to, and what
/// is put next: that stays.
#[test]
fn what_is_dropped_replaces_nothing_that_comes_later() {
    let Place { db, table, .. } = small();
    let long = vec![1; db.plain_bytes_max() + 1];
    for round in 0..60 {
        let mut put = table.put_async(b"k", &long);
        assert!(poll_once(&mut put).is_pending(), "the helper has it");
        let read_committed = TransactionOptions::default().isolation(Isolation::ReadCommitted);
        let mut transaction = db.begin(read_committed).unwrap();
        transaction.put(&table, b"l", &long).unwrap();
        let mut commit = Box::pin(transaction.commit_async());
        assert!(poll_once(&mut commit).is_pending(), "the helper has it");
        // The helper has not begun, or is somewhere in the first, or in the second.
        thread::sleep(Duration::from_millis(round / 4));
        drop((put, commit));
        for key in [b"k", b"l"] {
            table.put(key, b"later").unwrap();
        }
        while db.occupancy().helped > 0 {
            thread::yield_now();
        }
        for key in [b"k", b"l"] {
            let value = table.get(key).unwrap().unwrap();
            assert!(value == b"later", "round {round}: {} bytes", value.len());
        }
    }
}
