//! Operations of event loops: cold reads, conflicts, changes of tables, and durability.

use std::ops::Bound;

use pandodb::nonblocking::{Outcome, Pending, Polled, Reactor, Reads, ScanPage, ValidatedBatch};
use pandodb::{Batch, Db, Durability, Error, TableOptions, WriteOptions};

use crate::fixture::fill;

/// Runs an operation as a loop with one connection would.
pub(crate) fn run<T>(reactor: &mut Reactor, mut step: impl FnMut(&mut Reactor) -> Polled<T>) -> T {
    let waker = pando_sync::thread_waker();
    loop {
        match step(reactor) {
            Polled::Ready(value) => return value,
            Polled::Pending(pending) => wait(reactor, pending, &waker),
        }
    }
}

fn wait(reactor: &mut Reactor, pending: Pending, waker: &std::task::Waker) {
    reactor.park(pending, waker).unwrap();
    reactor.flush();
    match reactor.completion_fd() {
        None => pando_sync::park(),
        // This polls repeatedly instead of waiting for the descriptor.
        Some(_) => pando_sync::thread::yield_now(),
    }
    reactor.poll().unwrap();
}

fn filled(directory: &std::path::Path) -> Db {
    let db = Db::builder()
        .max_memory(4 << 20)
        .frames(64)
        .open(directory)
        .unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..3000, |number| {
        (number.to_be_bytes(), [number as u8; 200])
    });
    db
}

#[test]
fn cold_reads_and_scans_complete_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut out = Vec::new();
    for number in (0..3000_u32).rev() {
        let key = number.to_be_bytes();
        assert!(run(&mut reactor, |_| Reads::of(&table)
            .get(&key, &mut out, &mut None)
            .unwrap()));
        assert_eq!(out, [number as u8; 200]);
    }
    let mut page = ScanPage::default();
    let (mut from, mut count) = (Some(Vec::new()), 0);
    while let Some(start) = from {
        run(&mut reactor, |_| {
            Reads::of(&table)
                .scan(Bound::Included(&start), &mut page)
                .unwrap()
        });
        count += page.len();
        from = page.next.take();
    }
    assert_eq!(count, 3000);
    let mut from = Some(Bound::Unbounded);
    while let Some(bound) = from {
        let bound = bound.as_ref().map(|key: &Vec<u8>| &key[..]);
        run(&mut reactor, |_| {
            Reads::of(&table).scan_back(bound, &mut page).unwrap()
        });
        for index in 0..page.len() {
            count -= 1;
            let (key, value) = page.entry(index);
            let expected = u32::try_from(count).unwrap().to_be_bytes();
            assert_eq!((key, value.is_some()), (&expected[..], true));
        }
        from = page.next.take().map(Bound::Excluded);
    }
    assert_eq!(count, 0);
    assert_eq!(reactor.in_flight(), 0);
}

#[test]
fn transactions_conflict_exactly_when_what_they_read_has_changed() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let (mut one, mut two) = (ValidatedBatch::new(&db), ValidatedBatch::new(&db));
    let mut out = Vec::new();
    let key = 5_u32.to_be_bytes();
    run(&mut reactor, |_| one.get(&table, &key, &mut out).unwrap());
    one.put(&table, &key, b"one").unwrap();
    run(&mut reactor, |_| two.get(&table, &key, &mut out).unwrap());
    two.put(&table, &key, b"two").unwrap();
    let first = run(&mut reactor, |reactor| one.try_commit(reactor).unwrap());
    assert!(matches!(first, Outcome::Committed(Some(_))));
    let second = run(&mut reactor, |reactor| two.try_commit(reactor).unwrap());
    assert_eq!(second, Outcome::Conflict { watched: false });
    assert_eq!(two.changed_key(&table), Some(&key[..]));
    assert_eq!(table.get(&key).unwrap().unwrap(), b"one");
    one.reset();
    let watch = run(&mut reactor, |_| one.watch(&table, &key));
    table.put(&key, b"three").unwrap();
    one.expect(&watch);
    one.put(&table, b"other", b"x").unwrap();
    let watched = run(&mut reactor, |reactor| one.try_commit(reactor).unwrap());
    assert_eq!(watched, Outcome::Conflict { watched: true });
    assert!(!table.contains(b"other").unwrap());
    two.reset();
    run(&mut reactor, |_| two.get(&table, &key, &mut out).unwrap());
    let read = run(&mut reactor, |reactor| two.try_commit(reactor).unwrap());
    assert_eq!(read, Outcome::Committed(None));
}

/// What was read and written since the savepoint is neither validated nor committed; what was
/// before it is.
/// Key and value of what a scan of a batch shows, leaf by leaf.
fn scanned(
    reactor: &mut Reactor,
    batch: &mut ValidatedBatch,
    table: &pandodb::Table,
    (is_backwards, most): (bool, usize),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut page, mut all) = (ScanPage::default(), Vec::new());
    let mut from: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let bound = from.as_ref().map(Vec::as_slice);
        run(reactor, |_| match is_backwards {
            false => batch
                .scan(table, (bound, Bound::Unbounded), most, &mut page)
                .unwrap(),
            true => batch
                .scan_back(table, (bound, Bound::Unbounded), most, &mut page)
                .unwrap(),
        });
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            all.push((key.to_vec(), value.unwrap().to_vec()));
        }
        from = match page.next.take() {
            None => return all,
            Some(next) if is_backwards => Bound::Excluded(next),
            Some(next) => Bound::Included(next),
        };
    }
}

#[test]
fn a_batch_scans_a_table_with_its_own_writes() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut model: std::collections::BTreeMap<Vec<u8>, Vec<u8>> = (0..3000_u32)
        .map(|n| (n.to_be_bytes().to_vec(), vec![n as u8; 200]))
        .collect();
    let mut batch = ValidatedBatch::new(&db);
    let key = |n: u32| n.to_be_bytes();
    let from = |n: &'static [u8; 4]| Bound::Included(&n[..]);
    assert!(!batch.writes_between(&table, Bound::Unbounded, Bound::Unbounded));
    batch.put(&other, &key(7), b"of another table").unwrap();
    assert!(!batch.writes_between(&table, Bound::Unbounded, Bound::Unbounded));
    for n in (0..4000_u32).step_by(7) {
        match n % 3 {
            0 => {
                batch.delete(&table, &key(n));
                model.remove(&key(n)[..]);
            }
            _ => {
                let long = [&key(n)[..], b"x"].concat();
                batch.put(&table, &long, b"new").unwrap();
                model.insert(long, b"new".to_vec());
            }
        }
    }
    let forward: Vec<_> = model.into_iter().collect();
    let backward: Vec<_> = forward.iter().rev().cloned().collect();
    for most in [0, 1, 2, 7, usize::MAX] {
        assert!(scanned(&mut reactor, &mut batch, &table, (false, most)) == forward);
        assert!(scanned(&mut reactor, &mut batch, &table, (true, most)) == backward);
    }
    let savepoint = batch.savepoint();
    for n in (1..4000_u32).step_by(3) {
        match n % 2 {
            0 => batch.delete(&table, &key(n)),
            _ => batch.put(&table, &[0, n as u8], b"newer").unwrap(),
        }
        if n % 500 == 1 {
            let all = scanned(&mut reactor, &mut batch, &table, (false, usize::MAX));
            assert!(all.iter().any(|(_, value)| value == b"newer"));
        }
    }
    batch.rollback_to(savepoint);
    assert!(scanned(&mut reactor, &mut batch, &table, (false, 5)) == forward);
    let mut page = ScanPage::default();
    let range = (Bound::Unbounded, Bound::Unbounded);
    run(&mut reactor, |_| {
        batch.scan(&table, range, 3, &mut page).unwrap()
    });
    assert_eq!(page.len(), 3, "no more than was asked for");
    assert!(batch.writes_between(&table, from(&[0, 0, 0, 7]), from(&[0, 0, 0, 8])));
    assert!(!batch.writes_between(&table, from(&[0, 0, 0, 8]), from(&[0, 0, 0, 13])));
}

/// After some conflicts a run is answered with what its commit found, and a run that writes nothing
/// is of that moment. What it scans and counts is not.
#[test]
fn what_is_scanned_after_conflicts_is_of_the_same_moment_as_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().open(directory.path().join("db")).unwrap();
    let counted = TableOptions::new().counted(true);
    let (heads, rows) = (db.table("h").unwrap(), db.table_with("r", counted).unwrap());
    let write = |number: u32| {
        let mut both = Batch::new();
        both.put(&heads, b"count", &number.to_be_bytes());
        both.put(&rows, &number.to_be_bytes(), b"row");
        db.write(&mut both, WriteOptions::default()).unwrap();
    };
    write(1);
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let all = (Bound::Unbounded, Bound::Unbounded);
    for (counts, again) in [(false, false), (true, false), (false, true)] {
        let (mut batch, mut head) = (ValidatedBatch::new(&db), Vec::new());
        for run in 0..20 {
            let found = batch.get(&heads, b"count", &mut head).unwrap();
            assert!(matches!(found, Polled::Ready(true)));
            // The writer stops at last.
            if run < 12 {
                write(u32::try_from(rows.len()).unwrap() + 1);
            }
            let shown = match counts {
                true => match batch.count(&rows, all.0, all.1).unwrap() {
                    Polled::Ready(count) => count,
                    Polled::Pending(_) => panic!("all is in memory"),
                },
                false => {
                    let mut page = ScanPage::default();
                    let scanned = batch.scan(&rows, all, usize::MAX, &mut page).unwrap();
                    assert!(matches!(scanned, Polled::Ready(())));
                    page.len() as u64
                }
            };
            if again {
                // A later run of the same attempt keeps what this one has scanned.
                batch.rewind();
                let found = batch.get(&heads, b"count", &mut head).unwrap();
                assert!(matches!(found, Polled::Ready(true)));
            }
            match batch.try_commit(&mut reactor).unwrap() {
                Polled::Ready(Outcome::Conflict { .. }) => batch.begin_again(),
                Polled::Ready(Outcome::Committed(_)) => {
                    let told = u32::from_be_bytes(head[..].try_into().unwrap());
                    assert_eq!(shown, u64::from(told), "run {run}");
                    break;
                }
                Polled::Pending(_) => panic!("nothing is in the way"),
            }
            assert!(run < 15, "it never ends");
        }
    }
}

#[test]
fn a_batch_goes_back_to_a_savepoint() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let key = |number: u32| number.to_be_bytes();
    let mut out = Vec::new();
    for (changed, is_conflict) in [(1, true), (2, false), (3, false)] {
        let mut batch = ValidatedBatch::new(&db);
        let mut get = |batch: &mut ValidatedBatch, number| {
            run(&mut reactor, |_| {
                batch.get(&table, &key(number), &mut out).unwrap()
            });
            out.clone()
        };
        get(&mut batch, 1);
        batch.put(&table, b"replaced", b"first").unwrap();
        let savepoint = batch.savepoint();
        get(&mut batch, 2);
        batch.put(&table, b"replaced", b"second").unwrap();
        batch.put(&table, b"undone", b"").unwrap();
        batch.rollback_to(savepoint);
        get(&mut batch, 3);
        assert_eq!(batch.reads_done(), 2);
        let savepoint = batch.savepoint();
        get(&mut batch, 3);
        batch.delete(&table, b"replaced");
        batch.rollback_to(savepoint);
        assert!(batch.touches(&table) && batch.written_bytes() > 0);
        if changed < 3 {
            table.put(&key(changed), b"changed").unwrap();
        }
        let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
        let expected = Outcome::Conflict { watched: false };
        assert_eq!(outcome == expected, is_conflict, "{changed}");
        assert_eq!(table.contains(b"replaced").unwrap(), !is_conflict);
        assert!(!table.contains(b"undone").unwrap());
    }
    assert_eq!(table.get(b"replaced").unwrap().unwrap(), b"first");
}

#[test]
fn a_transaction_may_empty_a_table_and_write_to_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut transaction = ValidatedBatch::new(&db);
    transaction.put(&table, b"before", b"lost").unwrap();
    transaction.clear_table(&table);
    transaction.put(&table, b"after", b"kept").unwrap();
    let mut out = Vec::new();
    let found = |t: &mut ValidatedBatch, key: &[u8], out: &mut Vec<u8>| {
        matches!(t.get(&table, key, out).unwrap(), Polled::Ready(true))
    };
    assert!(!found(&mut transaction, b"before", &mut out));
    assert!(found(&mut transaction, b"after", &mut out));
    let done = run(&mut reactor, |reactor| {
        transaction.try_commit(reactor).unwrap()
    });
    let Outcome::Committed(Some(lsn)) = done else {
        panic!("{done:?}")
    };
    assert_eq!((table.len(), table.iter().count()), (1, 1));
    let waker = pando_sync::thread_waker();
    while !db.when_durable(lsn, &waker).unwrap() {
        pando_sync::park();
    }
    assert!(db.durable_lsn() >= lsn);
}

/// Who empties all tables of a group must not miss one that is made meanwhile.
#[test]
fn a_batch_that_expects_no_table_conflicts_when_there_is_one() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("group/keys").unwrap();
    table.put(b"key", b"value").unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut batch = ValidatedBatch::new(&db);
    batch.clear_table(&table);
    batch.expect_no_table("group/rest");
    let rest = db.table("group/rest").unwrap();
    rest.put(b"key", b"value").unwrap();
    let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    assert_eq!(outcome, Outcome::Conflict { watched: false });
    assert_eq!((table.len(), rest.len()), (1, 1));
    batch.begin_again();
    batch.clear_table(&table);
    batch.clear_table(&rest);
    batch.expect_no_table("group/other");
    let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    assert!(matches!(outcome, Outcome::Committed(Some(_))));
    assert_eq!((table.len(), rest.len()), (0, 0));
    // What one batch expects, the next one does not.
    db.table("group/other").unwrap();
    batch.reset();
    batch.put(&table, b"key", b"value").unwrap();
    let outcome = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    assert!(matches!(outcome, Outcome::Committed(Some(_))));
}

#[test]
fn a_commit_that_needs_a_page_of_its_own_reads_in_flight_takes_it() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    let none = WriteOptions::durability(Durability::None);
    for round in 0..20_u8 {
        let key = [b"long".as_slice(), &[round]].concat();
        table.put_with(&key, &vec![round; 90_000], none).unwrap();
        // Everything else passes through the pool, so the long value is cold, and its leaf may be,
        // too.
        for number in 0..3000_u32 {
            table.get(&number.to_be_bytes()).unwrap();
        }
        let leaf_is_there = table.contains(&key).unwrap();
        assert!(leaf_is_there);
        let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
        let mut out = Vec::new();
        let waker = pando_sync::thread_waker();
        if let Polled::Pending(pending) = Reads::of(&table).get(&key, &mut out, &mut None).unwrap()
        {
            reactor.park(pending, &waker).unwrap();
        }
        // The loop does not poll meanwhile. The commit frees pages that are being read for the
        // parked get.
        let mut transaction = ValidatedBatch::new(&db);
        transaction.put(&table, &key, b"short").unwrap();
        run(&mut reactor, |reactor| {
            transaction.try_commit(reactor).unwrap()
        });
        assert_eq!(table.get(&key).unwrap().unwrap(), b"short");
    }
}

/// Some keys do not exist, some values are long, and some pages are not in memory.
#[test]
fn a_group_is_read_as_far_as_single_reads_would_get() {
    let directory = tempfile::tempdir().unwrap();
    let db = filled(directory.path());
    let table = db.table("t").unwrap();
    for number in (0..3000_u32).step_by(97) {
        table.put(&number.to_be_bytes(), &[7; 9000]).unwrap();
    }
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let (mut together, mut alone, mut out) = (0, 0, Vec::new());
    let (mut bytes, mut values) = (Vec::new(), Vec::new());
    for round in 0..400_u32 {
        // The keys are neighbours, or lie apart.
        let step = [1, 2, 211][round as usize % 3];
        let count = round % (Reads::GROUP_MAX as u32 + 1);
        let numbers = (0..count).map(|n| (round * 31 + n * step) % 3100);
        let keys: Vec<[u8; 4]> = numbers.map(u32::to_be_bytes).collect();
        let mut keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        while !keys.is_empty() {
            bytes.clear();
            values.clear();
            Reads::of(&table)
                .get_group(&keys, &mut bytes, &mut values, &mut None)
                .unwrap();
            assert!(values.len() <= keys.len());
            for (key, value) in keys.iter().zip(&values) {
                let value = value.clone().map(|range| bytes[range].to_vec());
                assert!(value.as_ref().is_none_or(|value| value.len() < 9000));
                assert_eq!(value, table.get(key).unwrap(), "{key:?}");
            }
            together += values.len();
            keys.drain(..values.len());
            if !keys.is_empty() {
                let key = keys.remove(0);
                let found = run(&mut reactor, |_| {
                    Reads::of(&table).get(key, &mut out, &mut None).unwrap()
                });
                assert_eq!(found.then_some(&out), table.get(key).unwrap().as_ref());
                alone += 1;
            }
        }
    }
    assert!(
        together > 1000 && alone > 50,
        "{together} together, {alone} alone"
    );
}

#[test]
fn a_group_of_a_table_that_is_gone_is_an_error() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    db.drop_table("t").unwrap();
    let read =
        Reads::of(&table).get_group(&[b"a", b"b"], &mut Vec::new(), &mut Vec::new(), &mut None);
    assert!(matches!(read, Err(Error::NoSuchTable { .. })));
}
