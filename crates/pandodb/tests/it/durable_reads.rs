//! A durable store shows only durable data: a read waits for the commit whose effect it has seen.

use std::ops::Bound;
use std::task::Waker;

use crate::futures::block_on;
use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_sync::thread_waker;
use pandodb::nonblocking::{Foreseen, Outcome, Polled, Reactor, Reads, ScanPage, ValidatedBatch};
use pandodb::{
    Builder, Db, Durability, Error, Isolation, Lsn, Table, Transaction, TransactionOptions,
    WriteOptions,
};

struct Store {
    db: Db,
    table: Table,
    reactor: Reactor,
    device: FaultyDevice,
}

impl Store {
    fn new(options: Builder) -> Self {
        let device = FaultyDevice::new(1);
        let db = Db::open_device(options.max_memory(8 << 20), device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        table.put(b"old", b"1").unwrap();
        db.flush().unwrap();
        Self {
            reactor: Reactor::new(&db, thread_waker()).unwrap(),
            db,
            table,
            device,
        }
    }

    fn durable() -> Self {
        Self::new(Db::builder())
    }

    /// Makes a commit whose caller has not waited for the log.
    fn commit(&mut self, key: &[u8], value: Option<&[u8]>) -> Lsn {
        let mut transaction = ValidatedBatch::new(&self.db);
        match value {
            Some(value) => transaction.put(&self.table, key, value).unwrap(),
            None => transaction.delete(&self.table, key),
        }
        loop {
            match transaction.try_commit(&mut self.reactor).unwrap() {
                Polled::Ready(Outcome::Committed(lsn)) => return lsn.unwrap(),
                Polled::Ready(Outcome::Conflict { .. }) => unreachable!("no other thread writes"),
                Polled::Pending(pending) => {
                    self.reactor.park(pending, &thread_waker()).unwrap();
                    self.reactor.poll().unwrap();
                }
            }
        }
    }

    fn is_durable(&self, lsn: Lsn) -> bool {
        self.db.durable_lsn() >= lsn
    }
}

type Read = fn(&Table);

#[test]
fn a_read_waits_until_what_it_has_found_is_durable() {
    let reads: [(&str, Read); 11] = [
        ("get", |table| {
            assert_eq!(table.get(b"new").unwrap().unwrap(), b"2");
        }),
        ("contains", |table| assert!(table.contains(b"new").unwrap())),
        ("get of one that is gone", |table| {
            assert_eq!(table.get(b"gone").unwrap(), None);
        }),
        ("get_many", |table| {
            assert!(table.get_many(&[b"old", b"new"]).unwrap()[1].is_some());
        }),
        ("range", |table| assert_eq!(table.iter().count(), 2)),
        ("compare and put", |table| {
            assert!(!table.compare_and_put(b"new", None, None).unwrap());
        }),
        ("delete of one that is gone", |table| {
            assert!(!table.delete(b"gone").unwrap());
        }),
        ("future", |table| {
            let value = block_on(table.get_async(b"new")).unwrap();
            assert_eq!(value.unwrap(), b"2");
        }),
        ("future of a range", |table| {
            let mut entries = table.range(&b"new"[..]..);
            let (_, value) = block_on(entries.next_async()).unwrap().unwrap();
            assert_eq!(value, b"2");
        }),
        ("future of many", |table| {
            let values = block_on(table.get_many_async(&[b"old", b"new"])).unwrap();
            assert!(values[1].is_some());
        }),
        ("future of a delete", |table| {
            assert!(!block_on(table.delete_async(b"gone")).unwrap());
        }),
    ];
    for (name, read) in reads {
        let mut store = Store::durable();
        store.table.put(b"gone", b"0").unwrap();
        store.commit(b"gone", None);
        let lsn = store.commit(b"new", Some(b"2"));
        assert!(
            !store.is_durable(Lsn(lsn.0 - 1)),
            "{name}: no caller has waited"
        );
        let seen = if name.contains("gone") {
            Lsn(lsn.0 - 48)
        } else {
            lsn
        };
        read(&store.table);
        assert!(store.is_durable(seen), "{name} has shown what may be lost");
    }
}

/// Begins a transaction of this level.
fn begin(table: &Table, isolation: Isolation) -> Transaction {
    let options = TransactionOptions::default().isolation(isolation);
    table.db().begin(options).unwrap()
}

#[test]
fn so_does_a_read_at_a_snapshot_of_a_transaction_and_of_a_part() {
    wait_for_what_they_show(&[
        ("snapshot", |table| {
            let snapshot = table.db().snapshot().unwrap();
            assert_eq!(snapshot.get(table, b"new").unwrap().unwrap(), b"2");
        }),
        ("range of a snapshot", |table| {
            let snapshot = table.db().snapshot().unwrap();
            assert_eq!(snapshot.iter(table).count(), 2);
        }),
        ("future of a snapshot", |table| {
            let snapshot = table.db().snapshot().unwrap();
            let value = block_on(snapshot.get_async(table, b"new")).unwrap();
            assert_eq!(value.unwrap(), b"2");
        }),
        ("transaction", |table| {
            let mut transaction = begin(table, Isolation::Serializable);
            assert!(transaction.contains(table, b"new").unwrap());
        }),
        ("transaction without a snapshot", |table| {
            let mut transaction = begin(table, Isolation::ReadCommitted);
            assert!(transaction.contains(table, b"new").unwrap());
        }),
        ("range of a transaction", |table| {
            let mut transaction = begin(table, Isolation::Snapshot);
            assert_eq!(transaction.iter(table).count(), 2);
        }),
        ("future of a transaction", |table| {
            let mut transaction = begin(table, Isolation::Serializable);
            let value = block_on(transaction.get_async(table, b"new")).unwrap();
            assert_eq!(value.unwrap(), b"2");
        }),
        ("length", |table| {
            assert_eq!(table.value_len(b"new").unwrap(), Some(1));
        }),
        ("a part", |table| {
            let mut part = [0];
            assert_eq!(table.get_range(b"new", 0, &mut part).unwrap(), Some(1));
        }),
        ("reader", |table| {
            assert!(table.get_reader(b"new").unwrap().is_some());
        }),
    ]);
}

#[test]
fn so_do_ranges_and_reads_of_many_keys_as_futures() {
    wait_for_what_they_show(&[
        ("future of a range of a snapshot", |table| {
            let snapshot = table.db().snapshot().unwrap();
            let mut entries = snapshot.iter(table);
            let (key, _) = block_on(entries.next_async()).unwrap().unwrap();
            assert_eq!(key, b"new");
        }),
        ("future of many at a snapshot", |table| {
            let snapshot = table.db().snapshot().unwrap();
            let values = block_on(snapshot.get_many_async(table, &[b"old", b"new"]));
            assert!(values.unwrap()[1].is_some());
        }),
        ("future of a range of a transaction", |table| {
            let mut transaction = begin(table, Isolation::Serializable);
            let mut entries = block_on(transaction.range_async(table, ..)).unwrap();
            let (key, _) = block_on(entries.next_async()).unwrap().unwrap();
            assert_eq!(key, b"new");
        }),
        ("future of many of a transaction", |table| {
            let mut transaction = begin(table, Isolation::ReadCommitted);
            let values = block_on(transaction.get_many_async(table, &[b"old", b"new"]));
            assert!(values.unwrap()[1].is_some());
        }),
    ]);
}

/// Makes reads, each of which sees a commit that is not durable yet.
fn wait_for_what_they_show(reads: &[(&str, Read)]) {
    for (name, read) in reads {
        let mut store = Store::durable();
        let lsn = store.commit(b"new", Some(b"2"));
        assert!(!store.is_durable(lsn), "{name}: no caller has waited");
        read(&store.table);
        assert!(store.is_durable(lsn), "{name} has shown what may be lost");
    }
}

#[test]
fn a_power_cut_takes_back_nothing_that_was_seen() {
    let mut store = Store::durable();
    store.commit(b"new", Some(b"2"));
    assert!(store.table.get(b"new").unwrap().is_some());
    store.device.crash_now();
    let device = store.device.after_crash(7, CrashMode::AllLost);
    // The store's threads find that nothing can be written any longer.
    drop(store);
    let db = Db::open_device(Db::builder().max_memory(8 << 20), device.into()).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(table.get(b"new").unwrap().unwrap(), b"2");
}

#[test]
fn event_loops_learn_when_they_may_show_what_they_have_read() {
    let mut store = Store::durable();
    let table = store.table.clone();
    let lsn = store.commit(b"new", Some(b"2"));
    let (mut out, mut shown_from) = (Vec::new(), None);
    let read = Reads::of(&table)
        .get(b"new", &mut out, &mut shown_from)
        .unwrap();
    assert!(matches!(read, Polled::Ready(true)));
    assert_eq!(shown_from, Some(lsn));
    let (mut bytes, mut values, mut shown_from) = (Vec::new(), Vec::new(), None);
    Reads::of(&table)
        .get_group(&[b"old", b"new"], &mut bytes, &mut values, &mut shown_from)
        .unwrap();
    assert_eq!((values.len(), shown_from), (2, Some(lsn)));
    let (mut foreseen, mut shown_from) = (Foreseen::default(), None);
    foreseen.look_for(&table, &[b"new", b"old"]);
    let what = (&b"new"[..], 9);
    let found = Reads::of(&table).get_foreseen(&mut foreseen, what, &mut out, &mut shown_from);
    assert_eq!((found, shown_from), (Some(Some(1)), Some(lsn)));
    let mut page = ScanPage::default();
    let scanned = Reads::of(&table).scan(Bound::Unbounded, &mut page).unwrap();
    assert!(matches!(scanned, Polled::Ready(())));
    assert_eq!(page.shown_from, Some(lsn));
    let mut transaction = ValidatedBatch::new(&store.db);
    let read = transaction.get(&table, b"new", &mut out).unwrap();
    assert!(matches!(read, Polled::Ready(true)));
    assert_eq!(transaction.shown_from(), Some(lsn));
    assert!(!store.is_durable(lsn), "nothing has waited");
    let _asked = store.db.when_durable(lsn, Waker::noop()).unwrap();
    store.db.flush().unwrap();
    let mut shown_from = None;
    let read = Reads::of(&table)
        .get(b"new", &mut out, &mut shown_from)
        .unwrap();
    assert!(matches!(read, Polled::Ready(true)));
    assert_eq!(shown_from, None);
}

/// Another value in the leaf has changed.
#[test]
fn a_get_does_not_wait_for_its_neighbours() {
    let mut store = Store::durable();
    let lsn = store.commit(b"new", Some(b"2"));
    assert!(store.table.get(b"old").unwrap().is_some());
    assert!(!store.is_durable(lsn));
}

#[test]
fn nobody_waits_for_commits_that_wait_for_nobody() {
    let quick = WriteOptions::durability(Durability::None);
    let mut store = Store::durable();
    store.table.put_with(b"new", b"2", quick).unwrap();
    let newest = store.db.newest_lsn();
    assert!(store.table.get(b"new").unwrap().is_some());
    assert_eq!(store.table.iter().count(), 2);
    assert!(!store.is_durable(newest), "a commit that asks for less");
    // A commit that waits is followed by one that does not, and the read waits for the former.
    let awaited = store.commit(b"newer", Some(b"3"));
    store.table.put_with(b"newer", b"4", quick).unwrap();
    assert!(store.table.get(b"newer").unwrap().is_some());
    assert!(store.is_durable(awaited));
    let less = [
        Db::builder().durability(Durability::None),
        Db::builder().durability(Durability::Periodic),
        Db::builder().durable_reads(false),
    ];
    for options in less {
        let mut store = Store::new(options);
        let lsn = store.commit(b"new", Some(b"2"));
        assert!(store.table.get(b"new").unwrap().is_some());
        assert_eq!(store.table.iter().count(), 2);
        assert!(!store.is_durable(lsn));
    }
}

#[test]
fn the_durability_of_a_store_can_be_changed_while_it_is_open() {
    let mut store = Store::new(Db::builder().durability(Durability::None));
    store.db.set_durability(Durability::Durable);
    let lsn = store.commit(b"new", Some(b"2"));
    assert!(store.table.get(b"new").unwrap().is_some());
    assert!(store.is_durable(lsn));
    store.db.set_durability(Durability::None);
    let lsn = store.commit(b"new", Some(b"3"));
    assert!(store.table.get(b"new").unwrap().is_some());
    assert!(!store.is_durable(lsn));
}

#[test]
fn what_will_never_be_durable_is_not_shown() {
    let mut store = Store::durable();
    store.commit(b"new", Some(b"2"));
    store.device.crash_now();
    let read = store.table.get(b"new");
    assert!(matches!(read, Err(Error::Poisoned { .. })), "{read:?}");
    assert_eq!(store.table.get(b"old").unwrap().unwrap(), b"1");
}
