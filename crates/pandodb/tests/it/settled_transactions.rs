//! Transactions that outlast the memory for old versions: they go on on disk, and what they cannot
//! know at their commit counts as a conflict.

use std::ops::Bound;

use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::nonblocking::{self, Opened, Polled, Reactor, ScanPage, ValidatedBatch};
use pandodb::{ConflictKind, Db, Error, Isolation, Table, Transaction, TransactionOptions};

use crate::fixture::{fill, text_key};
use crate::futures::block_on;

use crate::snapshots::read_all;
use crate::steps::{ended, reactor_of};

const KEYS: u32 = 2_000;
/// Keys of the table that nobody writes but the transactions.
const QUIET: u32 = 10;

fn value_of(number: u32, round: u32) -> Vec<u8> {
    let len = match number % 50 {
        0 => 30_000,
        1 => 6_000,
        _ => 150,
    };
    let mut value = vec![number as u8; len];
    value[..8].copy_from_slice(&(u64::from(number) << 32 | u64::from(round)).to_le_bytes());
    value
}

struct Place {
    db: Db,
    busy: Table,
    quiet: Table,
    round: u32,
}

impl Place {
    /// Old versions have little memory, and no transaction is too young to go on on disk.
    fn new() -> Self {
        let options = Db::builder()
            .max_memory(16 << 20)
            .log_bytes(4 << 20)
            .chunk_values_over(16 << 10)
            .settle_snapshots_after(Duration::from_nanos(1));
        let db = options.open_in_memory().unwrap();
        let (busy, quiet) = (db.table("busy").unwrap(), db.table("quiet").unwrap());
        let mut place = Self {
            db,
            busy,
            quiet,
            round: 0,
        };
        place.write(0);
        fill(&place.quiet, 0..QUIET, |number| (text_key(number), b"old"));
        place
    }

    fn write(&mut self, round: u32) {
        self.round = round;
        fill(&self.busy, 0..KEYS, |number| {
            (text_key(number), value_of(number, round))
        });
    }

    /// Writes until the transaction that is open goes on on disk.
    fn crowd_out(&mut self) {
        while self.db.snapshot_stat().settled == 0 {
            self.write(self.round + 1);
            thread::yield_now();
        }
        self.write(self.round + 1);
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        let options = TransactionOptions::default().isolation(isolation);
        self.db.begin(options).unwrap()
    }
}

fn conflict<T: std::fmt::Debug>(result: pandodb::Result<T>) -> (Option<Vec<u8>>, ConflictKind) {
    match result {
        Err(Error::Conflict { key, kind, .. }) => (key, kind),
        other => panic!("no conflict: {other:?}"),
    }
}

/// Makes attempts until one ends: keys share their stripes with others, which may say of a key that
/// it was written when it was not.
fn until_no_conflict(mut attempt: impl FnMut() -> pandodb::Result<()>) {
    for _ in 0..50 {
        match attempt() {
            Ok(()) => return,
            Err(Error::Conflict { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("each attempt met a conflict");
}

#[test]
fn a_transaction_goes_on_on_disk_and_commits() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        until_no_conflict(|| go_on_and_commit(isolation));
    }
}

fn go_on_and_commit(isolation: Isolation) -> pandodb::Result<()> {
    let mut place = Place::new();
    let mut transaction = place.begin(isolation);
    let (busy, quiet) = (place.busy.clone(), place.quiet.clone());
    assert!(transaction.contains(&quiet, &text_key(1)).unwrap());
    place.crowd_out();
    if isolation == Isolation::Snapshot {
        for number in (0..KEYS).step_by(7) {
            let value = transaction.get(&busy, &text_key(number)).unwrap();
            assert!(value == Some(value_of(number, 0)), "{number}");
        }
        transaction.put(&busy, b"own", b"1").unwrap();
        let found = transaction.iter(&busy).map(Result::unwrap);
        let own = std::iter::once((b"own".to_vec(), b"1".to_vec()));
        let expected = (0..KEYS).map(|number| (text_key(number), value_of(number, 0)));
        let mut expected: Vec<_> = expected.chain(own).collect();
        expected.sort_unstable();
        assert!(found.eq(expected));
        let large = transaction
            .get_reader(&busy, &text_key(50))
            .unwrap()
            .unwrap();
        assert!(large.is_chunked() && read_all(large) == value_of(50, 0));
    }
    transaction.put(&quiet, &text_key(2), b"new").unwrap();
    transaction.commit()?;
    assert_eq!(
        quiet.get(&text_key(2)).unwrap().as_deref(),
        Some(&b"new"[..])
    );
    assert_eq!(place.db.snapshot_stat().settled, 0);
    Ok(())
}

/// What was written since is a conflict, and so is a range of which nobody knows.
#[test]
fn a_transaction_that_has_gone_on_on_disk_misses_no_conflict() {
    let mut place = Place::new();
    let (busy, quiet) = (place.busy.clone(), place.quiet.clone());
    let key = text_key(3);

    let mut transaction = place.begin(Isolation::Snapshot);
    assert!(transaction.contains(&quiet, &key).unwrap());
    place.crowd_out();
    transaction.put(&busy, &key, b"mine").unwrap();
    let lost = conflict(transaction.commit());
    assert_eq!(lost, (Some(key.clone()), ConflictKind::Written));

    let mut transaction = place.begin(Isolation::Serializable);
    assert!(transaction.contains(&busy, &key).unwrap());
    place.crowd_out();
    transaction.put(&quiet, &key, b"mine").unwrap();
    let lost = conflict(transaction.commit());
    assert_eq!(lost, (Some(key.clone()), ConflictKind::Read));

    // Read before it went on on disk, and after.
    let mut transaction = place.begin(Isolation::Serializable);
    let one = text_key(1);
    let range = (Bound::Included(&one[..]), Bound::Included(&key[..]));
    assert_eq!(transaction.range(&quiet, range).count(), 3);
    place.crowd_out();
    transaction.put(&quiet, &text_key(9), b"mine").unwrap();
    assert_eq!(conflict(transaction.commit()), (None, ConflictKind::Range));
    let mut transaction = place.begin(Isolation::Serializable);
    assert!(transaction.contains(&quiet, &key).unwrap());
    place.crowd_out();
    assert_eq!(transaction.range(&quiet, range).count(), 3);
    transaction.put(&quiet, &text_key(9), b"mine").unwrap();
    assert_eq!(conflict(transaction.commit()), (None, ConflictKind::Range));

    // A key that is locked after it was written.
    let mut transaction = place.begin(Isolation::Serializable);
    assert!(transaction.contains(&quiet, &key).unwrap());
    place.crowd_out();
    let lost = conflict(transaction.lock(&busy, &[&key]));
    assert_eq!(lost, (Some(key.clone()), ConflictKind::Written));

    drop(transaction);

    // A table that was made, and one that was emptied, since.
    let mut transaction = place.begin(Isolation::Snapshot);
    assert!(transaction.contains(&quiet, &key).unwrap());
    let fresh = place.db.table("fresh").unwrap();
    place.db.clear_tables(&[&quiet]).unwrap();
    place.crowd_out();
    assert!(transaction.contains(&quiet, &key).unwrap());
    let lost = conflict(transaction.get(&fresh, &key));
    assert_eq!(lost, (None, ConflictKind::Table));
    transaction.put(&quiet, &key, b"mine").unwrap();
    assert_eq!(conflict(transaction.commit()), (None, ConflictKind::Table));
}

/// `transact` ends all the same: at last others wait for it.
#[test]
fn a_repeated_transaction_that_reads_all_ends_beside_writers() {
    let mut place = Place::new();
    let (db, busy) = (place.db.clone(), place.busy.clone());
    let mut runs = 0;
    let sum = db.transact(|transaction| {
        runs += 1;
        let entries = transaction.iter(&busy).map(|entry| Ok(entry?.1.len()));
        let sum: usize = entries.sum::<pandodb::Result<_>>()?;
        if runs == 1 {
            place.crowd_out();
        }
        let at_last = transaction.contains(&busy, &text_key(1))?;
        assert!(at_last);
        transaction.put(&busy, b"sum", &sum.to_be_bytes())?;
        Ok(sum)
    });
    assert_eq!(runs, 2);
    let stored = busy.get(b"sum").unwrap().unwrap();
    assert_eq!(stored, sum.unwrap().to_be_bytes());
}

#[test]
fn tasks_go_on_on_disk() {
    until_no_conflict(task_goes_on);
}

fn task_goes_on() -> pandodb::Result<()> {
    let mut place = Place::new();
    let (busy, quiet) = (place.busy.clone(), place.quiet.clone());
    let mut transaction = place.begin(Isolation::Serializable);
    let key = text_key(1);
    assert!(
        block_on(transaction.get_async(&quiet, &key))
            .unwrap()
            .is_some()
    );
    place.crowd_out();
    for number in [2, 50, 51] {
        let read = block_on(transaction.get_async(&quiet, &text_key(number % 10)));
        assert_eq!(read.unwrap().as_deref(), Some(&b"old"[..]));
    }
    transaction.put(&quiet, &key, b"new").unwrap();
    block_on(transaction.commit_async())?;
    assert_eq!(quiet.get(&key).unwrap().as_deref(), Some(&b"new"[..]));

    let mut transaction = place.begin(Isolation::Snapshot);
    let before = place.round;
    assert!(
        block_on(transaction.get_async(&quiet, &key))
            .unwrap()
            .is_some()
    );
    place.crowd_out();
    for number in [2, 50, 51] {
        let read = block_on(transaction.get_async(&busy, &text_key(number)));
        assert!(read.unwrap() == Some(value_of(number, before)), "{number}");
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(7).map(text_key).collect();
    let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let values = block_on(transaction.get_many_async(&busy, &texts)).unwrap();
    for (number, value) in (0..KEYS).step_by(7).zip(values) {
        assert!(value == Some(value_of(number, before)), "{number}");
    }
    transaction.put(&busy, &key, b"new").unwrap();
    let lost = conflict(block_on(transaction.commit_async()));
    assert_eq!(lost, (Some(key), ConflictKind::Written));
    Ok(())
}

/// A range of a task that is under way when its transaction goes on on disk.
#[test]
fn ranges_of_tasks_go_on_on_disk() {
    let mut place = Place::new();
    let busy = place.busy.clone();
    let mut transaction = place.begin(Isolation::Snapshot);
    let mut entries = block_on(transaction.range_async(&busy, ..)).unwrap();
    let mut expect = |number: u32| {
        let (key, value) = block_on(entries.next_async()).unwrap().unwrap();
        assert_eq!(key, text_key(number));
        assert!(value == value_of(number, 0), "{number}");
    };
    (0..KEYS / 2).for_each(&mut expect);
    place.crowd_out();
    (KEYS / 2..KEYS).for_each(expect);
    assert!(block_on(entries.next_async()).is_none());
}

/// An event loop waits for answers of the helper: for values of each kind, and for leaves.
#[test]
fn event_loops_go_on_on_disk() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        until_no_conflict(|| event_loop_goes_on(isolation));
    }
}

/// Scans the busy table in both directions: all values are those of `round`.
fn scan_all(
    reactor: &mut Reactor,
    transaction: &mut nonblocking::Transaction,
    busy: &Table,
    round: u32,
) {
    for is_forward in [true, false] {
        let (mut page, mut seen) = (ScanPage::default(), 0);
        let mut from = Some(Bound::Unbounded);
        while let Some(bound) = from {
            let bound = bound.as_ref().map(|key: &Vec<u8>| &key[..]);
            ended(reactor, || match is_forward {
                true => transaction.scan(busy, bound, &mut page),
                false => transaction.scan_back(busy, bound, &mut page),
            })
            .unwrap();
            for index in 0..page.len() {
                let (key, value) = page.entry(index);
                let number = if is_forward { seen } else { KEYS - 1 - seen };
                assert_eq!(key, text_key(number));
                let expected = value_of(number, round);
                assert!(value.is_none_or(|value| value == expected), "{number}");
                seen += 1;
            }
            from = page.next.take().map(|key| match is_forward {
                true => Bound::Included(key),
                false => Bound::Excluded(key),
            });
        }
        assert_eq!(seen, KEYS);
    }
}

fn event_loop_goes_on(isolation: Isolation) -> pandodb::Result<()> {
    let mut place = Place::new();
    let (busy, quiet) = (place.busy.clone(), place.quiet.clone());
    let mut reactor = reactor_of(&place.db);
    let options = TransactionOptions::default().isolation(isolation);
    let begun = nonblocking::Transaction::begin(&place.db, options, &reactor);
    let mut transaction = begun.unwrap();
    let (key, mut out) = (text_key(1), Vec::new());
    let found = ended(&mut reactor, || transaction.get(&quiet, &key, &mut out));
    assert!(found.unwrap());
    let before = place.round;
    place.crowd_out();
    let missing = ended(&mut reactor, || {
        transaction.get(&busy, b"no such key", &mut out)
    });
    assert!(!missing.unwrap() && out.is_empty());
    // A call that was given up: its answer is for nobody.
    let _given_up = transaction.get(&busy, &text_key(7), &mut out).unwrap();
    for number in [51, 2] {
        let found = ended(&mut reactor, || {
            transaction.get(&busy, &text_key(number), &mut out)
        });
        assert!(
            found.unwrap() && out == value_of(number, before),
            "{number}"
        );
    }
    let chunked = ended(&mut reactor, || {
        transaction.get(&busy, &text_key(50), &mut out)
    });
    assert!(matches!(chunked, Err(Error::InChunks)), "{chunked:?}");
    // As a step of the transaction.
    let mut batch = ValidatedBatch::new(&place.db);
    batch.enter(Box::new(transaction));
    let opened = ended(&mut reactor, || batch.open(&busy, &text_key(50), &mut out));
    let Opened::Large(stream) = opened.unwrap() else {
        panic!("it is a large value");
    };
    assert!(read_all(stream) == value_of(50, before));
    let mut transaction = *batch.leave().unwrap();
    let keys: Vec<Vec<u8>> = (1..50).map(text_key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut values = Vec::new();
    let call = || transaction.get_many(&busy, &keys, &mut values);
    ended(&mut reactor, call).unwrap();
    for (number, value) in (1..).zip(&values) {
        assert!(
            value.as_deref() == Some(&value_of(number, before)[..]),
            "{number}"
        );
    }
    assert_eq!(values.len(), 49);
    let large = ended(&mut reactor, || {
        transaction.get_many(&busy, &[&text_key(3), &text_key(50)], &mut values)
    });
    assert!(matches!(large, Err(Error::InChunks)), "{large:?}");
    scan_all(&mut reactor, &mut transaction, &busy, before);
    transaction.put(&quiet, &key, b"new").unwrap();
    let committed = ended(&mut reactor, || transaction.try_commit());
    match isolation {
        Isolation::Serializable => {
            let lost = conflict(committed);
            assert!(lost.1 == ConflictKind::Read || lost.1 == ConflictKind::Range);
        }
        _ => assert!(committed?.is_some()),
    }
    Ok(())
}

/// A step that opens more large values than answers are kept comes to its end, though each answer
/// has it begin again.
#[test]
fn a_step_that_needs_many_answers_ends() {
    const LONG: u32 = 1_100;
    let mut place = Place::new();
    let long = place.db.table("long").unwrap();
    fill(&long, 0..LONG, |number| {
        (text_key(number), vec![1_u8; 17_000])
    });
    let mut reactor = reactor_of(&place.db);
    let options = TransactionOptions::default();
    let begun = nonblocking::Transaction::begin(&place.db, options, &reactor);
    let (mut transaction, mut out) = (begun.unwrap(), Vec::new());
    ended(&mut reactor, || {
        transaction.get(&place.quiet, &text_key(1), &mut out)
    })
    .unwrap();
    place.crowd_out();
    let mut batch = ValidatedBatch::new(&place.db);
    batch.enter(Box::new(transaction));
    let mut runs = 0;
    ended(&mut reactor, || {
        runs += 1;
        assert!(runs < 2 * LONG, "it begins again and again");
        batch.rewind();
        for number in 0..LONG {
            match batch.open(&long, &text_key(number), &mut out)? {
                Polled::Ready(Opened::Large(_)) => {}
                Polled::Ready(_) => panic!("it is a large value"),
                Polled::Pending(pending) => return Ok(Polled::Pending(pending)),
            }
        }
        Ok(Polled::Ready(()))
    })
    .unwrap();
}
