//! Interactive transactions of event loops: the same as those of threads, and batches as their
//! steps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::nonblocking::{
    Opened, Outcome, Polled, Reactor, Reads, ScanPage, Transaction, ValidatedBatch, ValueSource,
};
use pandodb::{ConflictKind, Db, Error, Isolation, Lsn, Table, TransactionOptions};

use crate::fixture::{NONE, fill};
use crate::nonblocking::run;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn at(isolation: Isolation) -> TransactionOptions {
    TransactionOptions::default().isolation(isolation)
}

pub(crate) fn reactor_of(db: &Db) -> Reactor {
    Reactor::new(db, pando_sync::thread_waker()).unwrap()
}

/// Runs a call that may fail, until it has ended.
pub(crate) fn ended<T>(
    reactor: &mut Reactor,
    mut call: impl FnMut() -> pandodb::Result<Polled<T>>,
) -> pandodb::Result<T> {
    run(reactor, |_| match call() {
        Ok(Polled::Ready(value)) => Polled::Ready(Ok(value)),
        Ok(Polled::Pending(pending)) => Polled::Pending(pending),
        Err(error) => Polled::Ready(Err(error)),
    })
}

fn get(reactor: &mut Reactor, of: &mut Transaction, table: &Table, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let found = ended(reactor, || of.get(table, key, &mut out)).unwrap();
    found.then_some(out)
}

fn commit(reactor: &mut Reactor, of: &mut Transaction) -> pandodb::Result<Option<Lsn>> {
    ended(reactor, || of.try_commit())
}

/// All entries from `from` on, or up to it, as the transaction sees them.
fn scan(
    reactor: &mut Reactor,
    of: &mut Transaction,
    table: &Table,
    (from, is_forward): (&[u8], bool),
) -> Model {
    let (mut page, mut found) = (ScanPage::default(), Model::new());
    let mut next = Some(Bound::Included(from.to_vec()));
    while let Some(bound) = next {
        let bound = bound.as_ref().map(|key| &key[..]);
        ended(reactor, || match is_forward {
            true => of.scan(table, bound, &mut page),
            false => of.scan_back(table, bound, &mut page),
        })
        .unwrap();
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            let value = match value {
                Some(value) => value.to_vec(),
                None => get(reactor, of, table, key).unwrap(),
            };
            let is_behind = match is_forward {
                true => found
                    .last_key_value()
                    .is_none_or(|(last, _)| last[..] < *key),
                false => found
                    .first_key_value()
                    .is_none_or(|(last, _)| last[..] > *key),
            };
            assert!(is_behind, "not in the order of the scan");
            found.insert(key.to_vec(), value);
        }
        next = page.next.take().map(|key| match is_forward {
            true => Bound::Included(key),
            false => Bound::Excluded(key),
        });
    }
    found
}

fn get_many(
    reactor: &mut Reactor,
    of: &mut Transaction,
    table: &Table,
    keys: &[[u8; 4]],
) -> Vec<Option<Vec<u8>>> {
    let texts: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let mut values = vec![None];
    ended(reactor, || of.get_many(table, &texts, &mut values)).unwrap();
    values
}

/// A store with few frames, so that much has to be read.
fn small(directory: &std::path::Path, keys: u32) -> (Db, Table, Model) {
    let options = Db::builder().max_memory(4 << 20).frames(64);
    let db = options.open(directory).unwrap();
    let table = db.table("t").unwrap();
    let entry = |number: u32| (number.to_be_bytes(), [number as u8; 200]);
    fill(&table, 0..keys, entry);
    let model = (0..keys).map(entry);
    let model = model.map(|(key, value)| (key.to_vec(), value.to_vec()));
    let model = model.collect();
    (db, table, model)
}

fn write(transaction: &mut Transaction, table: &Table, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => transaction.put(table, key, value).unwrap(),
        None => transaction.delete(table, key).unwrap(),
    }
}

/// Makes `key` the same in `to` as in `from`.
fn copy(from: &Model, to: &mut Model, key: &[u8]) {
    match from.get(key) {
        Some(value) => to.insert(key.to_vec(), value.clone()),
        None => to.remove(key),
    };
}

/// Reads a key by a batch, which finds `expected`, writes it, and reads it again.
fn step_by_batch(
    reactor: &mut Reactor,
    batch: &mut ValidatedBatch,
    table: &Table,
    (key, value): (&[u8], &[u8]),
    expected: Option<Vec<u8>>,
) {
    let mut out = Vec::new();
    let found = run(reactor, |_| batch.get(table, key, &mut out).unwrap());
    assert_eq!(found.then(|| out.clone()), expected);
    batch.put(table, key, value).unwrap();
    run(reactor, |_| batch.get(table, key, &mut out).unwrap());
    assert_eq!(out, value);
}

/// Compares scans from a random key, and many keys, with what the transaction is to see.
fn compare_many(
    reactor: &mut Reactor,
    of: &mut Transaction,
    table: &Table,
    expected: &Model,
    random: &mut Rng,
) {
    let keys: Vec<_> = (0..random.usize(1..200))
        .map(|_| random.u32(..2200).to_be_bytes())
        .collect();
    let found = scan(reactor, of, table, (&keys[0], true));
    assert!(found.iter().eq(expected.range(keys[0].to_vec()..)));
    let found = scan(reactor, of, table, (&keys[0], false));
    assert!(found.iter().eq(expected.range(..=keys[0].to_vec())));
    let values = get_many(reactor, of, table, &keys);
    let expected = keys.iter().map(|key| expected.get(&key[..]));
    assert!(values.iter().map(Option::as_ref).eq(expected));
}

/// Each transaction is compared with a map, step by step, while others change the store. Batches
/// are some of the steps; some are forgotten before they end.
#[test]
fn steps_show_and_do_what_a_map_does() {
    let directory = tempfile::tempdir().unwrap();
    let (db, table, mut stored) = small(directory.path(), 2000);
    let mut reactor = reactor_of(&db);
    let mut batch = ValidatedBatch::new(&db);
    let mut random = Rng::with_seed(7);
    for turn in 0..200 {
        let level = [Isolation::Snapshot, Isolation::Serializable][turn % 2];
        let mut transaction = Box::new(Transaction::begin(&db, at(level), &reactor).unwrap());
        let key = |random: &mut Rng| random.u32(..2200).to_be_bytes();
        // From this read on, it sees what is stored now.
        get(&mut reactor, &mut transaction, &table, &key(&mut random));
        let (before, mut own) = (stored.clone(), stored.clone());
        let mut points = Vec::new();
        let mut touched = BTreeSet::new();
        for _ in 0..random.usize(..40) {
            let (key, value) = (key(&mut random), [random.u8(..); 150]);
            match random.u8(..12) {
                0..=3 => {
                    let found = get(&mut reactor, &mut transaction, &table, &key);
                    assert_eq!(found.as_ref(), own.get(&key[..]));
                }
                4 | 5 => {
                    let value = random.bool().then_some(&value[..]);
                    write(&mut transaction, &table, &key, value);
                    own.remove(&key[..]);
                    own.extend(value.map(|value| (key.to_vec(), value.to_vec())));
                    touched.insert(key.to_vec());
                }
                6 => {
                    compare_many(&mut reactor, &mut transaction, &table, &own, &mut random);
                }
                7 => points.push((transaction.savepoint(), own.clone(), touched.clone())),
                8 if points.is_empty() => {}
                8 => {
                    let (point, then, written) = &points[points.len() - 1];
                    transaction.rollback_to(*point).unwrap();
                    (own, touched) = (then.clone(), written.clone());
                }
                9 => {
                    // Somebody else.
                    table.put_with(&key, &value, NONE).unwrap();
                    stored.insert(key.to_vec(), value.to_vec());
                }
                _ => {
                    let expected = own.get(&key[..]).cloned();
                    let entry = (&key[..], &value[..]);
                    batch.reset();
                    batch.enter(transaction);
                    step_by_batch(&mut reactor, &mut batch, &table, entry, expected);
                    if random.bool() {
                        let done = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
                        assert_eq!(done, Outcome::Committed(None));
                        own.insert(key.to_vec(), value.to_vec());
                        touched.insert(key.to_vec());
                    }
                    transaction = batch.leave().unwrap();
                }
            }
        }
        match commit(&mut reactor, &mut transaction) {
            Ok(_) => touched.iter().for_each(|key| copy(&own, &mut stored, key)),
            Err(Error::Conflict { key: Some(key), .. }) => {
                assert_ne!(before.get(&key), stored.get(&key), "nobody wrote {key:?}");
                let again = commit(&mut reactor, &mut transaction);
                assert!(matches!(again, Err(Error::Conflict { .. })));
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut check = Transaction::begin(&db, at(Isolation::Snapshot), &reactor).unwrap();
    assert_eq!(scan(&mut reactor, &mut check, &table, (&[], true)), stored);
}

/// A call of many keys that has met a value in chunks has ended: the next one reads what it asks
/// for.
#[test]
fn many_keys_are_read_after_a_call_that_met_chunks() {
    let options = Db::builder()
        .max_memory(16 << 20)
        .chunk_values_over(16 << 10);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let key = |number: u32| number.to_be_bytes();
    for number in 0..3 {
        table.put(&key(number), &key(number)).unwrap();
    }
    table.put(&key(3), &vec![3; 40_000]).unwrap();
    let mut reactor = reactor_of(&db);
    let options = at(Isolation::Serializable);
    let mut transaction = Transaction::begin(&db, options, &reactor).unwrap();
    let (zero, large, mut values) = (key(0), key(3), Vec::new());
    for _ in 0..2 {
        let both: [&[u8]; 2] = [&zero, &large];
        let met = ended(&mut reactor, || {
            transaction.get_many(&table, &both, &mut values)
        });
        assert!(matches!(met, Err(Error::InChunks)), "{met:?}");
        let other = get_many(&mut reactor, &mut transaction, &table, &[key(1)]);
        assert_eq!(other, [Some(key(1).to_vec())]);
        transaction.put(&table, &zero, b"own").unwrap();
        let own = get_many(&mut reactor, &mut transaction, &table, &[zero]);
        assert_eq!(own, [Some(b"own".to_vec())]);
    }
    table.put(&key(1), b"changed").unwrap();
    let lost = commit(&mut reactor, &mut transaction);
    assert!(matches!(lost, Err(Error::Conflict { .. })), "{lost:?}");
}

/// What each level says of a lost update, a write skew, and a phantom.
#[test]
fn steps_conflict_as_their_level_says() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut reactor = reactor_of(&db);
    let kinds = [
        (Isolation::ReadCommitted, [None; 5]),
        (
            Isolation::Snapshot,
            [Some(ConflictKind::Written), None, None, None, None],
        ),
        (
            Isolation::Serializable,
            [
                Some(ConflictKind::Read),
                Some(ConflictKind::Read),
                Some(ConflictKind::Range),
                Some(ConflictKind::Range),
                Some(ConflictKind::Read),
            ],
        ),
    ];
    for (level, expected) in kinds {
        for (case, expected) in expected.into_iter().enumerate() {
            for number in 0..200_u32 {
                table.put(&number.to_be_bytes(), b"old").unwrap();
            }
            let (own, other) = (0_u32.to_be_bytes(), 100_u32.to_be_bytes());
            let mut transaction = Transaction::begin(&db, at(level), &reactor).unwrap();
            let (reads, writes) = match case {
                0 => (other, other),
                _ => (other, own),
            };
            match case {
                2 | 3 => {
                    let from: (&[u8], bool) = [(&[0, 0][..], true), (&[1], false)][case - 2];
                    drop(scan(&mut reactor, &mut transaction, &table, from));
                }
                4 => drop(get_many(
                    &mut reactor,
                    &mut transaction,
                    &table,
                    &[own, reads],
                )),
                _ => drop(get(&mut reactor, &mut transaction, &table, &reads)),
            }
            table.put(&reads, b"new").unwrap();
            transaction.put(&table, &writes, b"mine").unwrap();
            let committed = commit(&mut reactor, &mut transaction);
            let found = match &committed {
                Ok(Some(_)) => None,
                Err(Error::Conflict { key, kind, .. }) => {
                    assert_eq!(key.as_deref(), Some(&reads[..]));
                    Some(*kind)
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(found, expected, "{level:?}, case {case}");
            let written = table.get(&writes).unwrap().unwrap();
            assert_eq!(written == b"mine", expected.is_none());
        }
    }
}

/// Two transactions of one loop lock the same keys: one waits, times out, or is in a cycle.
#[test]
fn steps_wait_for_locks_in_turn() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let mut reactor = reactor_of(&db);
    let keys: Vec<[u8; 1]> = (0..50).map(|number| [number]).collect();
    let all: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let short = TransactionOptions::default().lock_timeout(Duration::from_millis(30));
    let begin = |options, reactor: &Reactor| Transaction::begin(&db, options, reactor).unwrap();
    let mut one = begin(TransactionOptions::default(), &reactor);
    ended(&mut reactor, || one.lock(&table, &all[20..30])).unwrap();
    assert!(one.memory() > 10);

    // It gets the first keys, waits, and gets the others when they are free.
    let mut two = begin(TransactionOptions::default(), &reactor);
    let waits = two.lock(&table, &all).unwrap();
    assert!(matches!(waits, Polled::Pending(_)));
    one.put(&table, all[25], b"one").unwrap();
    assert!(commit(&mut reactor, &mut one).unwrap().is_some());
    drop(waits);
    ended(&mut reactor, || two.lock(&table, &all)).unwrap();
    assert_eq!(
        get(&mut reactor, &mut two, &table, all[25]).unwrap(),
        b"one"
    );

    // A lock that times out leaves what was locked before; the commit of a key does, too.
    let mut three = begin(short, &reactor);
    ended(&mut reactor, || three.lock(&table, &[b"free"])).unwrap();
    let late = ended(&mut reactor, || three.lock(&table, &all[..1]));
    assert!(matches!(late, Err(Error::LockTimeout { .. })), "{late:?}");
    three.put(&table, all[1], b"three").unwrap();
    let late = commit(&mut reactor, &mut three);
    assert!(matches!(late, Err(Error::LockTimeout { .. })), "{late:?}");
    let again = commit(&mut reactor, &mut three);
    assert!(matches!(again, Err(Error::LockTimeout { .. })), "{again:?}");
    assert_eq!(table.get(all[1]).unwrap(), None);

    // A cycle: the younger one is told, by each call from then on.
    let mut four = begin(TransactionOptions::default(), &reactor);
    ended(&mut reactor, || four.lock(&table, &[b"x"])).unwrap();
    let waits = two.lock(&table, &[b"x"]).unwrap();
    assert!(matches!(waits, Polled::Pending(_)));
    let cycle = ended(&mut reactor, || four.lock(&table, &all[..1]));
    assert!(matches!(cycle, Err(Error::Deadlock { .. })), "{cycle:?}");
    let again = four.put(&table, b"x", b"four");
    assert!(matches!(again, Err(Error::Deadlock { .. })), "{again:?}");
    drop(waits);
    ended(&mut reactor, || two.lock(&table, &[b"x"])).unwrap();
    drop(two);
    drop(four);
    assert_eq!(db.occupancy().locks, 0);
}

/// A large value that was replaced since can be opened, and is read to its end after the
/// transaction has ended.
#[test]
fn steps_open_large_values_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let options = Db::builder().max_memory(16 << 20);
    let db = options.open(directory.path()).unwrap();
    let table = db.table("t").unwrap();
    let (old, new) = (vec![1; 3 << 20], vec![2; 2 << 20]);
    table.put(b"large", &old).unwrap();
    table.put(b"now", b"short").unwrap();
    let mut reactor = reactor_of(&db);
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        table.put(b"large", &old).unwrap();
        let transaction = Transaction::begin(&db, at(level), &reactor).unwrap();
        let mut batch = ValidatedBatch::new(&db);
        batch.enter(Box::new(transaction));
        let mut out = Vec::new();
        run(&mut reactor, |_| {
            batch.get(&table, b"now", &mut out).unwrap()
        });
        table.put(b"large", &new).unwrap();
        let refused = ended(&mut reactor, || batch.get(&table, b"large", &mut out));
        assert!(matches!(refused, Err(Error::InChunks)), "{refused:?}");
        let opened = run(&mut reactor, |_| {
            batch.open(&table, b"large", &mut out).unwrap()
        });
        let Opened::Large(stream) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(stream.len(), old.len() as u64);
        drop(batch);
        // Nothing keeps the old chunks now but the stream. What is freed is used again.
        for byte in 3..8 {
            db.checkpoint().unwrap();
            table.put(&[byte], &vec![byte; 3 << 20]).unwrap();
        }
        let mut source = ValueSource::new(stream, 0..old.len() as u64);
        let (mut read, waker) = (0, pando_sync::thread_waker());
        while source.left() > 0 {
            let piece = source.piece(&waker).unwrap();
            assert!(piece.iter().all(|byte| *byte == 1));
            let count = piece.len();
            read += count;
            source.consume(count);
            if count == 0 {
                pando_sync::park();
            }
        }
        assert_eq!(read, old.len());
    }
}

/// The commit of a range closes the gate while others are inside, some of which wait for pages that
/// this loop reads.
#[test]
fn a_loop_that_closes_the_gate_serves_those_inside() {
    let directory = tempfile::tempdir().unwrap();
    let (db, table, _) = small(directory.path(), 3000);
    let stop = AtomicBool::new(false);
    let mut committed = 0;
    thread::scope(|scope| {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let end = Stop(&stop);
        for seed in 0..6 {
            let (table, stop) = (&table, &stop);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    let key = random.u32(1000..3000).to_be_bytes();
                    table.put_with(&key, &[3; 200], NONE).unwrap();
                }
            });
        }
        let mut reactor = reactor_of(&db);
        let mut random = Rng::with_seed(9);
        for turn in 0..300_u32 {
            let options = at(Isolation::Serializable);
            let mut transaction = Transaction::begin(&db, options, &reactor).unwrap();
            let mut page = ScanPage::default();
            let from = random.u32(..500).to_be_bytes();
            let call = || transaction.scan(&table, Bound::Included(&from), &mut page);
            match ended(&mut reactor, call) {
                // The writers have taken the memory for old versions.
                Err(Error::SnapshotEnded) => continue,
                other => other.unwrap(),
            }
            // Reads that are left in flight.
            for _ in 0..8 {
                let key = random.u32(..3000).to_be_bytes();
                if let Polled::Pending(pending) = Reads::of(&table)
                    .prefetch(&key, 100, &mut Vec::new())
                    .unwrap()
                {
                    reactor.prefetch(pending).unwrap();
                }
            }
            reactor.flush();
            transaction
                .put(&table, b"turn", &turn.to_be_bytes())
                .unwrap();
            committed += u32::from(commit(&mut reactor, &mut transaction).is_ok());
        }
        drop(end);
    });
    assert!(committed > 200, "{committed} of 300");
}
