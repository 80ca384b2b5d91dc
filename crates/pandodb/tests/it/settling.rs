//! Snapshots in memory that go on on disk, and what could be lost or left on the way.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::Db;
use pandodb::device::faulty::FaultyDevice;

use crate::fixture::{NONE, fill, open_on, text_key};
use crate::snapshots::Stop;

/// Snapshots of the same moment share what is written for them.
#[test]
fn many_snapshots_take_as_much_disk_as_one() {
    let options = Db::builder()
        .max_memory(256 << 20)
        .settle_snapshots_after(Duration::from_millis(1500));
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..5_000, |number| (text_key(number), [1; 400]));
    db.checkpoint().unwrap();
    let before = db.report().data_bytes;
    let open: Vec<_> = (0..200).map(|_| db.snapshot().unwrap()).collect();
    fill(&table, 0..5_000, |number| (text_key(number), [2; 400]));
    let began = time::now();
    while !open.iter().all(|one| one.is_settled()) && began.elapsed() < Duration::from_secs(40) {
        thread::park_timeout(Duration::from_millis(10));
    }
    db.checkpoint().unwrap();
    let after = db.report().data_bytes;
    assert!(open.iter().all(|one| one.is_settled()));
    assert!(after < 4 * before, "{before} {after}");
}

/// Transactions whose old versions have no room wait until a snapshot goes on on disk.
#[test]
fn large_transactions_end_no_snapshot_that_can_go_on_on_disk() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..20_000, |number| (text_key(number), [1; 100]));
    for round in 2..8 {
        let snapshot = db.snapshot().unwrap();
        for from in (0..20_000).step_by(200) {
            db.transact(|transaction| {
                transaction.get(&table, &text_key(0))?;
                (from..from + 200).try_for_each(|number| {
                    transaction.put(&table, &text_key(number), &[round; 100])
                })
            })
            .unwrap();
        }
        for number in (0..20_000).step_by(97) {
            let value = snapshot.get(&table, &text_key(number)).unwrap();
            assert_eq!(value, Some(vec![round - 1; 100]), "{number}");
        }
    }
}

/// The thread that cares for snapshots sleeps while there are none, and nothing else wakes it here.
#[test]
fn a_snapshot_is_cared_for_although_the_store_has_nothing_else_to_do() {
    let options = Db::builder()
        .max_memory(64 << 20)
        .settle_snapshots_after(Duration::from_millis(300));
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..500, |number| (text_key(number), [1; 100]));
    thread::sleep(Duration::from_secs(1));
    let within = |what: &str, is_there: &dyn Fn() -> bool| {
        let began = time::now();
        while !is_there() {
            assert!(began.elapsed() < Duration::from_secs(20), "{what}");
            thread::park_timeout(Duration::from_millis(10));
        }
    };
    let snapshot = db.snapshot().unwrap();
    fill(&table, 0..500, |number| (text_key(number), [2; 100]));
    assert!(db.memory().old_versions.used_bytes > 0);
    within("it is old, and in memory", &|| snapshot.is_settled());
    drop(snapshot);
    within("nobody reads what is kept", &|| {
        db.memory().old_versions.used_bytes == 0
    });
}

/// What the readers of a kept checkpoint take is given back when they end.
#[test]
fn the_memory_of_snapshots_that_have_ended_is_not_counted() {
    let options = Db::builder()
        .max_memory(64 << 20)
        .settle_snapshots_after(Duration::ZERO);
    let db = options.open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    table.put(b"key", b"value").unwrap();
    let settled = || {
        let snapshot = db.snapshot().unwrap();
        let began = time::now();
        while !snapshot.is_settled() {
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{:?}",
                db.snapshot_stat()
            );
            thread::park_timeout(Duration::from_millis(1));
        }
        snapshot
    };
    let _kept = settled();
    let before = db.snapshot_stat().settled_memory_bytes;
    for _ in 0..80 {
        drop(settled());
    }
    assert_eq!(db.snapshot_stat().settled_memory_bytes, before);
}

/// Another process may open the store then, and use the blocks: also if a checkpoint begins while
/// that of the close runs.
#[test]
fn no_snapshot_is_settled_after_the_close() {
    for round in 0..10 {
        let options = Db::builder().max_memory(128 << 20);
        let options = options.settle_snapshots_after(Duration::ZERO);
        let db = open_on(&FaultyDevice::new(1), options);
        let table = db.table("t").unwrap();
        // The mode goes on.
        drop(db.snapshot().unwrap());
        fill(&table, 0..20_000, |number| (text_key(number), [1; 800]));
        thread::park_timeout(Duration::from_millis(100 + round * 12));
        fill(&table, 0..20_000, |number| (text_key(number), [2; 800]));
        let snapshot = db.snapshot().unwrap();
        db.close().unwrap();
        let read = snapshot.get(&table, &text_key(1));
        assert!(read.is_err() || !snapshot.is_settled(), "round {round}");
    }
}

/// Tables change as a whole while snapshots are settled.
#[test]
fn snapshots_that_are_settled_beside_changes_of_tables_see_their_trees() {
    let options = Db::builder()
        .max_memory(64 << 20)
        .settle_snapshots_after(Duration::from_millis(200));
    let db = options.open_in_memory().unwrap();
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    let rows = db.table("rows").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.clear_tables(&[&other]).unwrap();
                // While snapshots read, ids of pages do not come back as fast as this takes them.
                thread::park_timeout(Duration::from_micros(200));
            }
        });
        for round in 0..10_u32 {
            let mut open = Vec::new();
            for number in 0..10 {
                let value = (round * 10 + number).to_be_bytes();
                db.clear_tables(&[&table]).unwrap();
                table.put(b"key", &value).unwrap();
                open.push((db.snapshot().unwrap(), value));
                // What makes settling take a moment.
                fill(&rows, 0..300, |row| (text_key(row), [number as u8; 300]));
            }
            db.clear_tables(&[&table]).unwrap();
            let began = time::now();
            while !open.iter().all(|(one, _)| one.is_settled())
                && began.elapsed() < Duration::from_secs(3)
            {
                thread::park_timeout(Duration::from_millis(5));
            }
            for (snapshot, value) in &open {
                if !snapshot.is_settled() {
                    continue;
                }
                let read = snapshot.get(&table, b"key");
                assert_eq!(read.unwrap().as_deref(), Some(&value[..]));
            }
        }
    });
}

/// What was written for a snapshot is free when a full disk ends it, whoever has a handle of it.
#[test]
fn the_run_of_a_snapshot_that_a_full_disk_has_ended_is_free() {
    let device = FaultyDevice::new(1);
    let options = Db::builder()
        .max_memory(128 << 20)
        .log_bytes(1 << 20)
        .settle_snapshots_after(Duration::from_secs(2));
    let db = open_on(&device, options);
    let table = db.table("t").unwrap();
    fill(&table, 0..8_000, |number| (text_key(number), [1; 400]));
    let snapshot = db.snapshot().unwrap();
    fill(&table, 0..8_000, |number| (text_key(number), [2; 400]));
    while !snapshot.is_settled() {
        thread::park_timeout(Duration::from_millis(10));
    }
    device.set_capacity(1 << 20);
    let ended = || snapshot.get(&table, &text_key(1)).is_err();
    for number in 0..200_000 {
        let put = table.put_with(&text_key(8_000 + number), &[3; 1000], NONE);
        if put.is_err() || ended() {
            break;
        }
    }
    assert!(ended());
    thread::park_timeout(Duration::from_millis(300));
    db.checkpoint().unwrap();
    let before = db.report().data_free_bytes;
    drop(snapshot);
    let after = db.report().data_free_bytes;
    assert!(
        after <= before + 65536,
        "{before} -> {after} when the handle is dropped"
    );
}
