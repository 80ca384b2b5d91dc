//! Deletes of what no snapshot reads: nothing is kept for those that are of a later moment, and all
//! for the others.

use pandodb::nonblocking::{Outcome, Reactor, Reads, ValidatedBatch};
use pandodb::{Db, Lsn, Snapshot, Table};

use crate::fixture::fill;
use crate::nonblocking::run;

const ROWS: u32 = 4000;

fn dead(number: u32) -> Vec<u8> {
    format!("a{number:05}").into_bytes()
}

/// Its key lies beside that of a row that goes, in the same leaf.
fn alive(number: u32) -> Vec<u8> {
    format!("a{number:05}+").into_bytes()
}

/// Deletes rows in batches, as of which somebody says since when nothing leads to them.
fn delete(db: &Db, table: &Table, rows: std::ops::Range<u32>, since: Option<Lsn>) {
    let mut reactor = Reactor::new(db, pando_sync::thread_waker()).unwrap();
    let mut batch = ValidatedBatch::new(db);
    let rows: Vec<u32> = rows.collect();
    for some in rows.chunks(100) {
        loop {
            batch.reset();
            for number in some {
                batch.delete(table, &dead(*number));
            }
            if let Some(since) = since {
                batch.unread_since(since);
            }
            let done = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
            if matches!(done, Outcome::Committed(_)) {
                break;
            }
        }
    }
}

fn check_alive(snapshot: &Snapshot, table: &Table, byte: u8) {
    for number in (0..ROWS).step_by(7) {
        let value = snapshot.get(table, &alive(number)).unwrap();
        assert_eq!(value, Some(vec![byte; 40]), "{number}");
    }
    let rows = snapshot.iter(table).map(Result::unwrap);
    let of_alive = rows.filter(|(key, _)| key.ends_with(b"+"));
    assert!(of_alive.eq((0..ROWS).map(|number| (alive(number), vec![byte; 40]))));
}

#[test]
fn what_nothing_leads_to_is_kept_for_older_snapshots_alone() {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..ROWS, |number| (dead(number), [1; 200]));
    fill(&table, 0..ROWS, |number| (alive(number), [2; 40]));
    table.put(b"head", b"").unwrap();
    let before = db.snapshot().unwrap();
    table.delete(b"head").unwrap();
    let since = Reads::of(&table).last_write(b"head").unwrap();
    let after = db.snapshot().unwrap();
    assert!(before.lsn() < since && after.lsn() >= since);
    // Both are there.
    delete(&db, &table, 0..1000, Some(since));
    for number in 0..ROWS {
        let value = before.get(&table, &dead(number)).unwrap();
        assert_eq!(value, Some(vec![1; 200]), "{number}");
    }
    check_alive(&before, &table, 2);
    drop(before);
    // Only the later one is.
    delete(&db, &table, 1000..3000, Some(since));
    for number in 1000..3000 {
        assert_eq!(
            after.get(&table, &dead(number)).unwrap(),
            None,
            "it was kept"
        );
    }
    check_alive(&after, &table, 2);
    // Of other rows it keeps all, in the same leaves, before and behind such deletes.
    fill(&table, 0..ROWS, |number| (alive(number), [3; 40]));
    check_alive(&after, &table, 2);
    delete(&db, &table, 3000..3500, Some(since));
    check_alive(&after, &table, 2);
    // Those are like any others again.
    delete(&db, &table, 3500..ROWS, None);
    assert_eq!(after.get(&table, &dead(3600)).unwrap(), Some(vec![1; 200]));
    check_alive(&db.snapshot().unwrap(), &table, 3);
    assert_eq!(table.len(), u64::from(ROWS));
}

/// A settled snapshot, too, shows what it should of leaves that have lost such rows.
#[test]
fn snapshots_that_go_on_on_disk_miss_nothing_else() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..ROWS, |number| (dead(number), [1; 200]));
    fill(&table, 0..ROWS, |number| (alive(number), [2; 40]));
    table.put(b"head", b"").unwrap();
    let since = Reads::of(&table).last_write(b"head").unwrap();
    let snapshot = db.snapshot().unwrap();
    let other = db.table("other").unwrap();
    for round in 0..8 {
        delete(&db, &table, round * 500..round * 500 + 500, Some(since));
        fill(&table, 0..ROWS, |number| {
            (alive(number), [3 + round as u8; 40])
        });
        fill(&other, 0..2000, |number| {
            (number.to_be_bytes(), [round as u8; 300])
        });
        check_alive(&snapshot, &table, 2);
    }
    assert!(
        db.snapshot_stat().settled > 0,
        "what it reads had room in memory"
    );
}

#[test]
fn a_batch_is_like_any_other_after_it_was_reset() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    fill(&table, 0..10, |number| (dead(number), [1; 200]));
    let snapshot = db.snapshot().unwrap();
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut batch = ValidatedBatch::new(&db);
    batch.unread_since(Lsn::default());
    for (number, is_kept) in [(1, false), (2, true)] {
        batch.delete(&table, &dead(number));
        let done = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
        assert!(matches!(done, Outcome::Committed(Some(_))), "{done:?}");
        batch.reset();
        let is_there = snapshot.contains(&table, &dead(number)).unwrap();
        assert_eq!(is_there, is_kept, "{number}");
    }
}

#[test]
fn the_last_write_of_a_key_is_that_of_its_commit() {
    let db = Db::builder().max_memory(16 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let newest = || db.newest_lsn();
    table.put(b"key", b"1").unwrap();
    let first = Reads::of(&table).last_write(b"key").unwrap();
    assert_eq!(first, newest());
    table.put(b"key", b"2").unwrap();
    let second = Reads::of(&table).last_write(b"key").unwrap();
    assert!(second > first && second == newest());
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let mut batch = ValidatedBatch::new(&db);
    batch.delete(&table, b"key");
    let committed = run(&mut reactor, |reactor| batch.try_commit(reactor).unwrap());
    let Outcome::Committed(Some(lsn)) = committed else {
        panic!("{committed:?}");
    };
    assert_eq!(Reads::of(&table).last_write(b"key"), Some(lsn));
}
