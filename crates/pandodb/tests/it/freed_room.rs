//! Who needs room finds that of dropped tables and of deleted keys, even if it has not been freed
//! yet (decision 133).

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use pandodb::device::MemoryDevice;
use pandodb::{Builder, Db, Error, Snapshot, Table, TransactionOptions};

use crate::fixture::NONE;

/// A store on a disk of 32 MiB.
fn store() -> (Db, Table) {
    store_with(Db::builder())
}

fn store_with(options: Builder) -> (Db, Table) {
    let options = options.max_memory(16 << 20).log_bytes(4 << 20);
    let device = MemoryDevice::new(32 << 20);
    let db = Db::open_device(options, device.into()).unwrap();
    let table = db.table("t").unwrap();
    (db, table)
}

/// Puts keys until the disk is full; returns their number.
fn fill(table: &Table, value: &[u8]) -> u64 {
    let refused = (0_u64..).find_map(|number| {
        let put = table.put_with(&number.to_be_bytes(), value, NONE);
        put.err().map(|error| (number, error))
    });
    match refused.unwrap() {
        (number, Error::Full { .. }) => number,
        (_, other) => panic!("{other}"),
    }
}

/// Puts `keys` keys, of which none is refused.
fn fill_again(table: &Table, keys: u64, value: &[u8], round: u32) {
    for number in 0..keys {
        let put = table.put_with(&number.to_be_bytes(), value, NONE);
        let bytes = value.len();
        put.unwrap_or_else(|error| panic!("{bytes} bytes, {round}, {number}: {error}"));
    }
}

/// Whoever empties a table on a full disk can use the room at once, and over and over again.
#[test]
fn an_emptied_table_is_filled_again_at_once() {
    for bytes in [100, 3000, 100_000] {
        let (db, table) = store();
        let value = vec![7; bytes];
        let fitted = fill(&table, &value);
        for round in 0..4 {
            db.clear_tables(&[&table]).unwrap();
            fill_again(&table, fitted * 2 / 3, &value, round);
        }
    }
}

/// The same for values that are handed over in pieces, for what a transaction writes, and for a
/// sorted load.
#[test]
fn other_writers_find_the_room_of_an_emptied_table() {
    let writers: [fn(&Db, &Table); 3] = [
        |_, table| {
            let value = std::io::repeat(3);
            table.put_streamed_with(b"k", 8 << 20, value, NONE).unwrap();
        },
        |db, table| {
            for number in 0..1000_u32 {
                let mut transaction = db.begin(TransactionOptions::default()).unwrap();
                let value = [number as u8; 8000];
                transaction
                    .put(table, &number.to_be_bytes(), &value)
                    .unwrap();
                transaction.commit().unwrap();
            }
        },
        |_, table| {
            let entries = (0..2000_u32).map(|number| (number.to_be_bytes(), [1; 4000]));
            table.load_sorted(entries).unwrap();
        },
    ];
    for writer in writers {
        let (db, table) = store();
        fill(&table, &[7; 3000]);
        db.clear_tables(&[&table]).unwrap();
        writer(&db, &table);
    }
}

/// Whoever deletes keys on a full disk can put as many again at once.
#[test]
fn room_of_deleted_keys_is_waited_for() {
    for bytes in [100, 1000, 20_000] {
        let (db, table) = store();
        let value = vec![7; bytes];
        let fitted = fill(&table, &value);
        for round in 0..4 {
            for number in 0..fitted {
                table.delete_with(&number.to_be_bytes(), NONE).unwrap();
            }
            fill_again(&table, fitted / 2, &value, round);
            fill(&table, &value);
        }
        drop(table);
        db.close().unwrap();
    }
}

/// A snapshot that keeps what was dropped is ended, and others go on.
#[test]
fn a_snapshot_that_keeps_what_was_dropped_is_ended() {
    let (db, table) = store();
    let fitted = fill(&table, &[7; 3000]);
    let old = db.snapshot().unwrap();
    db.clear_tables(&[&table]).unwrap();
    let young = db.snapshot().unwrap();
    assert!(old.get(&table, &0_u64.to_be_bytes()).unwrap().is_some());
    fill_again(&table, fitted * 2 / 3, &[8; 3000], 0);
    let ended = old.get(&table, &0_u64.to_be_bytes());
    assert!(matches!(ended, Err(Error::SnapshotEnded)), "{ended:?}");
    assert!(young.get(&table, &0_u64.to_be_bytes()).unwrap().is_none());
}

/// Where the options keep it, it makes no room, however often others begin and end.
#[test]
fn a_put_is_refused_while_a_snapshot_keeps_what_was_dropped() {
    let (db, table) = store_with(Db::builder().keep_settled_snapshots(true));
    let fitted = fill(&table, &[7; 3000]);
    let kept: Snapshot = db.snapshot().unwrap();
    db.clear_tables(&[&table]).unwrap();
    let (done, begun) = (AtomicBool::new(false), time::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                drop(db.snapshot().unwrap());
            }
        });
        let again = fill(&table, &[8; 3000]);
        done.store(true, Ordering::Relaxed);
        assert!(again < fitted / 2, "{again} of {fitted}");
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "it waited");
    assert!(kept.get(&table, &0_u64.to_be_bytes()).unwrap().is_some());
    // From its end on that is room to come.
    drop(kept);
    assert!(fill(&table, &[9; 3000]) > fitted / 2);
}
