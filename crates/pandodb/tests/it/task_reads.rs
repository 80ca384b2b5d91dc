//! Ranges and reads of many keys as futures, of tables, snapshots and transactions, beside a naive
//! twin; futures are dropped on their way, and begun again.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::task::{Context, Poll, Waker};

use fastrand::Rng;
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::statistics::Ticker;
use pandodb::{Builder, ConflictKind, Db, Error, Isolation, Table, TransactionOptions};

use crate::fixture::{NONE, fill, open_on, text_key};
use crate::futures::block_on;

const KEYS: u32 = 3000;

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

/// Some values lie in overflow pages, and some in chunks.
fn value_of(number: u32, round: u8) -> Vec<u8> {
    let len = match number % 300 {
        7 => 40_000,
        99 => 9_000,
        _ => 250,
    };
    let mut value = vec![round; len];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}

fn options() -> Builder {
    Db::builder()
        .max_memory(64 << 20)
        .frames(64)
        .log_bytes(4 << 20)
        .chunk_values_over(16 << 10)
}

fn fill_all(table: &Table) -> Twin {
    fill(table, 0..KEYS, |number| {
        (text_key(number), value_of(number, 0))
    });
    table.db().checkpoint().unwrap();
    (0..KEYS)
        .map(|number| (text_key(number), value_of(number, 0)))
        .collect()
}

struct Place {
    db: Db,
    table: Table,
    twin: Twin,
    _directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let db = options().open(directory.path()).unwrap();
        let table = db.table("t").unwrap();
        let twin = fill_all(&table);
        Self {
            db,
            table,
            twin,
            _directory: directory,
        }
    }
}

/// Awaits a call that takes something; some of its futures are dropped before their end.
macro_rules! taken {
    ($random:expr, $call:expr) => {
        loop {
            if $random.bool() {
                break block_on($call);
            }
            let mut future = Box::pin($call);
            let mut polled = Poll::Pending;
            for _ in 0..$random.u32(1..4) {
                polled = future
                    .as_mut()
                    .poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_ready() {
                    break;
                }
            }
            if let Poll::Ready(output) = polled {
                break output;
            }
        }
    };
}

/// Takes entries of an iterator at random ends, and compares them with those of a twin.
macro_rules! compare_range {
    ($random:expr, $entries:expr, $expected:expr) => {{
        let (mut entries, mut expected) = ($entries, $expected);
        loop {
            let (found, sought) = match $random.u32(..3) {
                0 => (
                    taken!($random, entries.next_back_async()),
                    expected.next_back(),
                ),
                _ => (taken!($random, entries.next_async()), expected.next()),
            };
            let found = found.transpose().unwrap();
            assert!(
                found.as_ref().map(|(key, value)| (key, value)) == sought,
                "{:?} instead of {:?}",
                found.map(|(key, _)| key),
                sought.map(|(key, _)| key),
            );
            if found.is_none() {
                break;
            }
        }
    }};
}

/// Some keys, most of which exist, some twice.
fn some_keys(random: &mut Rng) -> Vec<Vec<u8>> {
    let count = random.usize(..300);
    (0..count)
        .map(|_| text_key(random.u32(..KEYS + KEYS / 10)))
        .collect()
}

/// Two bounds in order, or none.
fn some_range(random: &mut Rng) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let (one, other) = (random.u32(..KEYS), random.u32(..KEYS));
    let bound = |number: u32| match number % 3 {
        0 => Bound::Excluded(text_key(number)),
        _ => Bound::Included(text_key(number)),
    };
    match random.u32(..5) {
        0 => (Bound::Unbounded, Bound::Unbounded),
        1 => (bound(one), Bound::Unbounded),
        _ => (bound(one.min(other)), bound(one.max(other) + 1)),
    }
}

fn borrowed(range: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (
        range.0.as_ref().map(|key| &key[..]),
        range.1.as_ref().map(|key| &key[..]),
    )
}

fn expected_of(twin: &Twin, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    keys.iter().map(|key| twin.get(key).cloned()).collect()
}

fn needs_send<F: Future + Send>(future: F) -> F {
    future
}

/// Overwrites a third of the keys, and deletes another one.
fn change(table: &Table) {
    for number in 0..KEYS {
        match number % 3 {
            0 => table.put_with(&text_key(number), b"new", NONE).unwrap(),
            1 => drop(table.delete_with(&text_key(number), NONE).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn tasks_scan_tables_and_snapshots() {
    let place = Place::new();
    let mut random = Rng::with_seed(1);
    let settled = place.db.snapshot_settled().unwrap();
    let young = place.db.snapshot().unwrap();
    let mut compare = |twin: &Twin, is_changed: bool| {
        for _ in 0..8 {
            let range = some_range(&mut random);
            let keys = some_keys(&mut random);
            let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            if !is_changed {
                let (low, high) = borrowed(&range);
                compare_range!(
                    random,
                    place.table.range((low, high)),
                    twin.range(range.clone())
                );
                let found = block_on(needs_send(place.table.get_many_async(&texts)));
                assert!(found.unwrap() == expected_of(twin, &keys));
            }
            for snapshot in [&settled, &young] {
                let (low, high) = borrowed(&range);
                compare_range!(
                    random,
                    snapshot.range(&place.table, (low, high)),
                    twin.range(range.clone())
                );
                let found = taken!(random, snapshot.get_many_async(&place.table, &texts));
                assert!(found.unwrap() == expected_of(twin, &keys));
            }
        }
    };
    compare(&place.twin, false);
    change(&place.table);
    compare(&place.twin, true);
    assert!(settled.is_settled());
    drop(needs_send(
        place.table.clone().iter().into_owned().next_async(),
    ));
}

#[test]
fn tasks_scan_with_own_writes_on_top() {
    let place = Place::new();
    let mut random = Rng::with_seed(2);
    for isolation in [
        Isolation::ReadCommitted,
        Isolation::Snapshot,
        Isolation::Serializable,
    ] {
        let mut twin = place.twin.clone();
        let options = TransactionOptions::default().isolation(isolation);
        let mut transaction = place.db.begin(options).unwrap();
        for turn in 0..20 {
            let range = some_range(&mut random);
            let (low, high) = borrowed(&range);
            let begun = taken!(random, transaction.range_async(&place.table, (low, high)));
            compare_range!(random, begun.unwrap(), twin.range(range.clone()));
            let keys = some_keys(&mut random);
            let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            let found = taken!(random, transaction.get_many_async(&place.table, &texts));
            assert!(found.unwrap() == expected_of(&twin, &keys));
            for _ in 0..20 {
                let key = text_key(random.u32(..KEYS + 10));
                if random.bool() {
                    transaction.delete(&place.table, &key).unwrap();
                    twin.remove(&key);
                } else {
                    transaction.put(&place.table, &key, &[turn]).unwrap();
                    twin.insert(key, vec![turn]);
                }
            }
        }
        transaction.rollback();
    }
}

/// What futures have read counts as read, as far as they have read it.
#[test]
fn what_tasks_read_is_protected() {
    let db = options().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill_all(&table);
    let conflict = |number: u32, is_range: bool| {
        let mut transaction = db.begin(TransactionOptions::default()).unwrap();
        let (from, until) = (text_key(100), text_key(200));
        if is_range {
            let range = &from[..]..&until[..];
            let mut entries = block_on(transaction.range_async(&table, range)).unwrap();
            for expected in 100..=110 {
                let (key, _) = block_on(entries.next_async()).unwrap().unwrap();
                assert_eq!(key, text_key(expected));
            }
        } else {
            let keys: [&[u8]; 2] = [&from, &until];
            let found = block_on(transaction.get_many_async(&table, &keys)).unwrap();
            assert!(found.iter().all(Option::is_some));
        }
        table.put(&text_key(number), b"other").unwrap();
        transaction.put(&table, b"mine", b"").unwrap();
        match block_on(transaction.commit_async()) {
            Ok(_) => None,
            Err(Error::Conflict { kind, .. }) => Some(kind),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(conflict(110, true), Some(ConflictKind::Range));
    assert_eq!(conflict(200, false), Some(ConflictKind::Read));
    // Behind the last entry that was taken; another stripe's keys may be in the way of a single
    // key, but not of a range.
    assert_eq!(conflict(111, true), None);
}

/// A scan and a read of many keys whose pages are evicted again and again end with the helper.
#[test]
fn reads_of_slow_tasks_end() {
    let place = Place::new();
    let keys: Vec<Vec<u8>> = (0..40).map(|number| text_key(number * 70)).collect();
    let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let snapshot = place.db.snapshot().unwrap();
    change(&place.table);
    let evict = || {
        for number in (0..KEYS).step_by(5) {
            place.table.contains(&text_key(number)).unwrap();
        }
    };
    let mut entries = snapshot.range(&place.table, &keys[3][..]..);
    let mut next = Box::pin(entries.next_async());
    let mut many = Box::pin(snapshot.get_many_async(&place.table, &texts));
    let (mut entry, mut values) = (None, None);
    let mut rounds = 0;
    while entry.is_none() || values.is_none() {
        evict();
        let mut context = Context::from_waker(Waker::noop());
        if entry.is_none()
            && let Poll::Ready(read) = next.as_mut().poll(&mut context)
        {
            entry = Some(read.unwrap().unwrap());
        }
        if values.is_none()
            && let Poll::Ready(read) = many.as_mut().poll(&mut context)
        {
            values = Some(read.unwrap());
        }
        rounds += 1;
        assert!(rounds < 10_000, "it does not end");
    }
    assert!(entry.unwrap() == (keys[3].clone(), value_of(210, 0)));
    assert!(values.unwrap() == expected_of(&place.twin, &keys));
}

#[test]
fn failed_reads_are_told_once_and_made_again() {
    let device = FaultyDevice::new(7);
    let db = open_on(&device, options());
    let table = db.table("t").unwrap();
    let twin = fill_all(&table);
    for number in 500..KEYS {
        table.contains(&text_key(number)).unwrap();
    }
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    let mut entries = table.iter();
    let error = block_on(entries.next_async()).unwrap().unwrap_err();
    assert!(error.to_string().contains("reading it"), "{error}");
    assert!(block_on(entries.next_async()).is_none());
    let keys: Vec<Vec<u8>> = (0..100).map(text_key).collect();
    let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let error = block_on(table.get_many_async(&texts)).unwrap_err();
    assert!(error.to_string().contains("reading it"), "{error}");
    device.clear_faults();
    let before = db.statistics();
    let values = block_on(table.get_many_async(&texts)).unwrap();
    assert!(values == expected_of(&twin, &keys));
    let counted = db.statistics().since(&before);
    assert_eq!(counted.get(Ticker::Gets), 100);
    let missed = counted.get(Ticker::GetsMissed);
    assert!((1..=100).contains(&missed), "{missed} misses");
    let mut entries = table.iter();
    for (key, value) in &twin {
        let found = block_on(entries.next_ref_async()).unwrap().unwrap();
        assert!(found == (&key[..], &value[..]));
    }
    assert!(block_on(entries.next_ref_async()).is_none());
    assert!(block_on(entries.next_back_ref_async()).is_none());
}
