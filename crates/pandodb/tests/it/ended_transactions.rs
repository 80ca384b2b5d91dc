//! Transactions whose snapshot was ended, since old versions had no room: one of which a read has
//! failed has to be run again, whatever its caller makes of that error.

use std::ops::Bound;

use pando_sync::time::Duration;
use pandodb::nonblocking::{self, Reactor, ScanPage, ValidatedBatch};
use pandodb::{Db, Error, Isolation, Result, Table, Transaction, TransactionOptions};

use crate::fixture::{fill, text_key};
use crate::futures::block_on;
use crate::steps::{ended, reactor_of};

/// So few that most stripes stay as they are.
const KEYS: u32 = 4_000;
/// Keys of the table that nobody else writes.
const QUIET: u32 = 10;

struct Place {
    db: Db,
    busy: Table,
    /// Nobody else writes it.
    quiet: Table,
}

impl Place {
    /// Old versions have little memory, and no snapshot goes on on disk.
    fn new() -> Self {
        let options = Db::builder()
            .max_memory(16 << 20)
            .settle_snapshots_after(Duration::MAX);
        let db = options.open_in_memory().unwrap();
        let (busy, quiet) = (db.table("busy").unwrap(), db.table("quiet").unwrap());
        let place = Self { db, busy, quiet };
        place.crowd_out(0);
        fill(&place.quiet, 0..QUIET, |number| (text_key(number), b"old"));
        place
    }

    /// Overwrites more than old versions have room for.
    fn crowd_out(&self, round: u8) {
        fill(&self.busy, 0..KEYS, |number| {
            (text_key(number), [round; 2_000])
        });
    }

    fn begin(&self, isolation: Isolation, number: u32, writes: bool) -> Transaction {
        let options = TransactionOptions::default().isolation(isolation);
        let mut transaction = self.db.begin(options).unwrap();
        let known = transaction.get(&self.quiet, &text_key(number)).unwrap();
        assert_eq!(known.as_deref(), Some(&b"old"[..]));
        if writes {
            transaction.put(&self.quiet, b"written", b"new").unwrap();
        }
        transaction
    }
}

type Read = fn(&mut Transaction, &Table) -> Result<()>;

/// The ways to read.
const READS: [(&str, Read); 12] = [
    ("get", |of, table| of.get(table, b"k").map(drop)),
    ("contains", |of, table| of.contains(table, b"k").map(drop)),
    ("get_many", |of, table| {
        of.get_many(table, &[b"k", b"l"]).map(drop)
    }),
    ("get_reader", |of, table| {
        of.get_reader(table, b"k").map(drop)
    }),
    ("get_for_update", |of, table| {
        of.get_for_update(table, b"k").map(drop)
    }),
    ("range", |of, table| {
        of.iter(table).next().transpose().map(drop)
    }),
    ("range, backwards", |of, table| {
        of.iter(table).next_back().transpose().map(drop)
    }),
    ("delete_range", |of, table| {
        of.delete_range(table, ..).map(drop)
    }),
    ("get_async", |of, table| {
        block_on(of.get_async(table, b"k")).map(drop)
    }),
    ("get_many_async", |of, table| {
        block_on(of.get_many_async(table, &[b"k", b"l"])).map(drop)
    }),
    ("range_async", |of, table| {
        let all = block_on(of.range_async(table, ..));
        block_on(all?.next_async()).transpose().map(drop)
    }),
    ("range_async, backwards", |of, table| {
        let all = block_on(of.range_async(table, ..));
        block_on(all?.next_back_async()).transpose().map(drop)
    }),
];

fn check_ended<T: std::fmt::Debug>(what: &str, result: Result<T>) {
    assert!(
        matches!(result, Err(Error::SnapshotEnded)),
        "{what}: {result:?}"
    );
}

#[test]
fn a_transaction_whose_read_has_failed_does_not_commit() {
    let place = Place::new();
    let mut begun = Vec::new();
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for writes in [true, false] {
            for (number, read) in (0..QUIET).cycle().zip(READS) {
                begun.push((read, writes, place.begin(isolation, number, writes)));
            }
        }
    }
    place.crowd_out(1);
    for (at, ((name, read), writes, mut transaction)) in begun.into_iter().enumerate() {
        let what = format!("{name}, {:?}, {writes}", transaction.isolation());
        check_ended(&what, read(&mut transaction, &place.quiet));
        // What it has written itself it would know, but none of it will be.
        check_ended(&what, transaction.get(&place.quiet, b"written"));
        check_ended(&what, transaction.put(&place.quiet, b"written", b"newer"));
        let committed = match at % 2 {
            0 => transaction.commit(),
            _ => block_on(transaction.commit_async()),
        };
        check_ended(&what, committed);
    }
    assert_eq!(place.quiet.get(b"written").unwrap(), None);
}

/// An iterator that was begun before fails in the middle.
#[test]
fn a_range_that_fails_in_the_middle_ends_its_transaction() {
    let place = Place::new();
    for is_async in [false, true] {
        let mut transaction = place.begin(Isolation::Serializable, 1, true);
        let mut all = transaction.iter(&place.busy);
        assert!(matches!(all.next(), Some(Ok(_))));
        place.crowd_out(2);
        // It has a copy of one leaf.
        let left = match is_async {
            false => all.find(Result::is_err),
            true => block_on(async {
                loop {
                    match all.next_async().await {
                        Some(Ok(_)) => {}
                        other => break other,
                    }
                }
            }),
        };
        check_ended("the range", left.transpose());
        assert!(all.next().is_none(), "it goes on behind its error");
        drop(all);
        check_ended("its transaction", transaction.commit());
        assert_eq!(place.quiet.get(b"written").unwrap(), None);
    }
}

/// One that has read all it wanted before, keys and no ranges, is checked by stamps: it commits
/// unless somebody has written to the stripe of such a key.
#[test]
fn a_transaction_that_has_read_before_its_snapshot_was_ended_commits() {
    let place = Place::new();
    let begun: Vec<Transaction> = (0..QUIET)
        .map(|number| {
            let options = TransactionOptions::default();
            let mut transaction = place.db.begin(options).unwrap();
            assert!(
                transaction
                    .contains(&place.quiet, &text_key(number))
                    .unwrap()
            );
            transaction
                .put(&place.quiet, &text_key(number), b"new")
                .unwrap();
            transaction
        })
        .collect();
    let mut witness = place.begin(Isolation::Serializable, 1, false);
    let reader = place.begin(Isolation::Serializable, 1, false);
    place.crowd_out(2);
    let ended = witness.get(&place.quiet, b"k");
    check_ended("one that reads again", ended);
    assert_eq!(reader.commit().unwrap(), None);
    let committed = begun.into_iter().map(Transaction::commit);
    let committed = committed.filter(|committed| match committed {
        Ok(_) | Err(Error::SnapshotEnded) => committed.is_ok(),
        Err(other) => panic!("{other}"),
    });
    let committed = committed.count();
    assert!(committed > 0, "none of ten was committed");
    let all = place.quiet.iter().map(|entry| entry.unwrap().1);
    assert_eq!(all.filter(|value| value == b"new").count(), committed);
}

#[test]
fn a_function_that_ignores_the_error_is_run_again() {
    let place = Place::new();
    let mut runs = 0;
    let seen = place.db.transact(|transaction| {
        runs += 1;
        transaction.get(&place.quiet, &text_key(0))?;
        if runs == 1 {
            place.crowd_out(4);
        }
        let seen = transaction.get(&place.quiet, &text_key(2)).ok().flatten();
        transaction
            .put(&place.quiet, b"seen", &[seen.is_some().into()])
            .or(Ok(()))
            .map(|()| seen)
    });
    assert_eq!(seen.unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(place.quiet.get(b"seen").unwrap(), Some(vec![1]));
    assert_eq!(runs, 2);
}

type Step = fn(&mut Reactor, &mut nonblocking::Transaction, &Table) -> Result<()>;

/// The ways in which an event loop reads.
const STEPS: [(&str, Step); 4] = [
    ("get", |reactor, of, table| {
        ended(reactor, || of.get(table, b"k", &mut Vec::new())).map(drop)
    }),
    ("get_many", |reactor, of, table| {
        ended(reactor, || {
            of.get_many(table, &[b"k", b"l"], &mut Vec::new())
        })
    }),
    ("open", |reactor, of, table| {
        ended(reactor, || of.open(table, b"k", &mut Vec::new())).map(drop)
    }),
    ("scan", |reactor, of, table| {
        let mut page = ScanPage::default();
        ended(reactor, || of.scan(table, Bound::Unbounded, &mut page))
    }),
];

#[test]
fn a_transaction_of_an_event_loop_whose_read_has_failed_does_not_commit() {
    let place = Place::new();
    let mut reactor = reactor_of(&place.db);
    let mut begun = Vec::new();
    for is_batch in [false, true] {
        for (number, step) in (0..QUIET).cycle().zip(STEPS) {
            let options = TransactionOptions::default();
            let transaction = nonblocking::Transaction::begin(&place.db, options, &reactor);
            let (mut transaction, mut out) = (transaction.unwrap(), Vec::new());
            ended(&mut reactor, || {
                transaction.get(&place.quiet, &text_key(number), &mut out)
            })
            .unwrap();
            transaction.put(&place.quiet, b"written", b"new").unwrap();
            begun.push((step, is_batch, Box::new(transaction)));
        }
    }
    place.crowd_out(5);
    for ((name, step), is_batch, mut transaction) in begun {
        if is_batch {
            let mut batch = ValidatedBatch::new(&place.db);
            batch.enter(transaction);
            let read = ended(&mut reactor, || match name {
                "open" => batch.open(&place.quiet, b"k", &mut Vec::new()).map(drop_it),
                _ => batch.get(&place.quiet, b"k", &mut Vec::new()).map(drop_it),
            });
            check_ended(name, read);
            transaction = batch.leave().unwrap();
        } else {
            check_ended(name, step(&mut reactor, &mut transaction, &place.quiet));
        }
        let committed = ended(&mut reactor, || transaction.try_commit());
        check_ended(name, committed);
    }
    assert_eq!(place.quiet.get(b"written").unwrap(), None);
}

fn drop_it<T>(polled: nonblocking::Polled<T>) -> nonblocking::Polled<()> {
    match polled {
        nonblocking::Polled::Ready(_) => nonblocking::Polled::Ready(()),
        nonblocking::Polled::Pending(pending) => nonblocking::Polled::Pending(pending),
    }
}
