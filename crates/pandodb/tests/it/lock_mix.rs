//! All that takes locks or meets them, at once: everything ends, and no lock is left.

use fastrand::Rng;
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{
    Batch, ConflictKind, Db, Durability, Error, Isolation, Result, Table, TransactionOptions,
};

use crate::fixture::NONE;
use crate::futures::{block_on, poll_once};

const THREADS: u64 = 8;
/// Operations of one thread in one round.
const OPERATIONS: usize = 120;

/// The store and its two tables.
struct Place {
    db: Db,
    tables: [Table; 2],
}

impl Place {
    fn table(&self, random: &mut Rng) -> &Table {
        &self.tables[random.usize(..2)]
    }
}

/// One of few keys, so that everybody meets everybody.
fn key(random: &mut Rng) -> [u8; 1] {
    [b'a' + random.u8(..4)]
}

/// Locks up to three keys in any order, writes them, and commits or gives up.
fn locks(place: &Place, random: &mut Rng) -> Result<()> {
    let level = match random.u8(..3) {
        0 => Isolation::ReadCommitted,
        1 => Isolation::Snapshot,
        _ => Isolation::Serializable,
    };
    let options = TransactionOptions::default().isolation(level);
    let mut transaction = place.db.begin(options.durability(Durability::None))?;
    for _ in 0..random.usize(1..4) {
        let (table, key) = (place.table(random), key(random));
        transaction.get_for_update(table, &key)?;
        transaction.put(table, &key, b"locked")?;
        thread::yield_now();
    }
    // Of a key that it has perhaps not locked.
    transaction.put(place.table(random), &key(random), b"unlocked")?;
    match random.bool() {
        true => transaction.commit().map(drop),
        false => Ok(()),
    }
}

/// Loses often enough to get precedence, and reads ranges.
fn transacts(place: &Place, random: &mut Rng) -> Result<()> {
    let (table, key, losses) = (place.table(random), key(random), random.usize(..10));
    let mut runs = 0;
    place.db.transact(|transaction| {
        runs += 1;
        let count = transaction.iter(table).count() as u64;
        transaction.put(table, &key, &count.to_le_bytes())?;
        match runs <= losses {
            true => Err(Error::Conflict {
                table: table.name().to_owned(),
                key: Some(key.to_vec()),
                kind: ConflictKind::Read,
            }),
            false => Ok(()),
        }
    })
}

/// Puts as a future, which is awaited, dropped, or forgotten until the end of the thread.
fn awaits(
    place: &Place,
    random: &mut Rng,
    forgotten: &mut Vec<pandodb::futures::WriteAsync>,
) -> Result<()> {
    let mut future = place.table(random).put_async(&key(random), b"future");
    if let std::task::Poll::Ready(result) = poll_once(&mut future) {
        return result;
    }
    match random.u8(..3) {
        0 => return block_on(future),
        1 => forgotten.push(future),
        _ => {}
    }
    Ok(())
}

fn batch(place: &Place, random: &mut Rng) -> Result<()> {
    let mut batch = Batch::new();
    for table in &place.tables {
        for _ in 0..random.usize(1..4) {
            batch.put(table, &key(random), b"batch");
        }
    }
    place.db.write(&mut batch, NONE)
}

fn anything(
    place: &Place,
    random: &mut Rng,
    forgotten: &mut Vec<pandodb::futures::WriteAsync>,
) -> Result<()> {
    let key = key(random);
    match random.u8(..9) {
        0..3 => locks(place, random),
        3 => place.table(random).put_with(&key, b"put", NONE),
        4 => batch(place, random),
        5 => place.db.clear_tables(&[place.table(random)]),
        6 => awaits(place, random, forgotten),
        7 => transacts(place, random),
        _ => {
            let update = |_: Option<&[u8]>| Some(b"update".to_vec());
            place.table(random).update(&key, update).map(drop)
        }
    }
}

#[test]
fn everything_at_once_ends_and_leaves_no_lock() {
    for round in 0..12 {
        let timeout = Duration::from_millis([3, 30, 300][round as usize % 3]);
        let options = Db::builder().max_memory(16 << 20).lock_timeout(timeout);
        let db = options.open_in_memory().unwrap();
        let tables = ["t", "u"].map(|name| db.table(name).unwrap());
        let place = Place { db, tables };
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let place = &place;
                scope.spawn(move || {
                    let mut random = Rng::with_seed(round * THREADS + thread);
                    let mut forgotten = Vec::new();
                    for _ in 0..OPERATIONS {
                        match anything(place, &mut random, &mut forgotten) {
                            Err(Error::Closed) => return,
                            Err(error) => assert!(
                                error.is_conflict() || matches!(error, Error::LockTimeout { .. }),
                                "{error}"
                            ),
                            Ok(()) => {}
                        }
                    }
                    if round % 2 == 1 && thread == 0 {
                        // In the midst of what the others do.
                        place.db.clone().close().unwrap();
                    }
                });
            }
        });
        assert_eq!(place.db.occupancy().locks, 0, "round {round}");
    }
}
