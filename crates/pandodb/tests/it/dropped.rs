//! Tables that are dropped while others read them, and the wiring of their roots.

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pandodb::{Db, Durability, Error, Table};

use crate::fixture::{fill, verified, wait_for_garbage};

const KEYS: u32 = 300;

fn small(frames: usize) -> (tempfile::TempDir, Db) {
    let directory = tempfile::tempdir().unwrap();
    let db = open(directory.path(), frames);
    (directory, db)
}

fn open(directory: &std::path::Path, frames: usize) -> Db {
    let builder = Db::builder().max_memory(8 << 20).frames(frames);
    builder
        .durability(Durability::None)
        .open(directory)
        .unwrap()
}

fn value(number: u32) -> Vec<u8> {
    // Some values are longer than a leaf.
    number
        .to_be_bytes()
        .repeat(if number % 20 == 3 { 2000 } else { 40 })
}

fn fill_all(table: &Table) {
    fill(table, 0..KEYS, |number| {
        (number.to_be_bytes(), value(number))
    });
}

/// Checks that what was read is right, or that the table is gone. Returns false if the table is
/// gone.
fn check_read<T>(result: pandodb::Result<T>, check: impl FnOnce(T)) -> bool {
    match result {
        Ok(read) => check(read),
        Err(Error::NoSuchTable { .. }) => return false,
        Err(other) => panic!("{other}"),
    }
    true
}

fn check_value(number: u32, found: Option<&[u8]>) {
    assert_eq!(found, Some(&value(number)[..]), "{number}");
}

fn read_all_ways(table: &Table, number: u32) -> bool {
    let key = number.to_be_bytes();
    let ones = (number..number + 60).all(|number| {
        let number = number % KEYS;
        check_read(table.get(&number.to_be_bytes()), |found| {
            check_value(number, found.as_deref());
        })
    });
    let many = check_read(table.get_many(&[&key, &[0, 0, 0, 7]]), |found| {
        check_value(number, found[0].as_deref());
        check_value(7, found[1].as_deref());
    });
    let entry = |entry: (Vec<u8>, Vec<u8>)| {
        let number = u32::from_be_bytes(entry.0[..].try_into().unwrap());
        check_value(number, Some(&entry.1));
    };
    let mut scans = table
        .range(&key[..]..)
        .take(60)
        .map(|e| check_read(e, entry));
    let forward = scans.all(|there| there);
    let mut scans = table.iter().rev().take(60).map(|e| check_read(e, entry));
    ones && many && forward && scans.all(|there| there)
}

/// Stops the readers, also if a writer panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_table_dropped_under_readers_is_read_as_it_was_or_is_gone() {
    let (directory, db) = small(128);
    let (stop, whole) = (AtomicBool::new(false), AtomicU64::new(0));
    // The state is odd while the table holds all keys, and never repeats.
    let state = AtomicU64::new(0);
    thread::scope(|scope| {
        let read = |reader: u32| {
            let (db, stop, whole, state) = (&db, &stop, &whole, &state);
            scope.spawn(move || {
                let mut number = reader;
                while !stop.load(Ordering::Relaxed) {
                    let before = state.load(Ordering::SeqCst);
                    let table = db.existing_table("t");
                    let (Some(table), true) = (table, before % 2 == 1) else {
                        continue;
                    };
                    if state.load(Ordering::SeqCst) != before {
                        continue;
                    }
                    // The same handle is used until it reports that the table is gone.
                    while !stop.load(Ordering::Relaxed) && read_all_ways(&table, number % KEYS) {
                        number = number.wrapping_add(31);
                        whole.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        };
        let readers: Vec<_> = (0..8).map(read).collect();
        let _stopping = StopOnDrop(&stop);
        // The pages of the dropped table become those of another tree.
        let other = db.table("other").unwrap();
        for _ in 0..120 {
            fill_all(&db.table("t").unwrap());
            state.fetch_add(1, Ordering::SeqCst);
            let before = whole.load(Ordering::Relaxed);
            while whole.load(Ordering::Relaxed) == before {
                // The scope reports the failure of a reader.
                if readers.iter().any(|reader| reader.is_finished()) {
                    return;
                }
                thread::yield_now();
            }
            state.fetch_add(1, Ordering::SeqCst);
            db.drop_table("t").unwrap();
            fill_all(&other);
            db.clear_tables(&[&other]).unwrap();
        }
    });
    wait_for_garbage(&db);
    db.close().unwrap();
    verified(directory.path());
}

#[test]
fn an_iterator_whose_table_is_dropped_ends_with_an_error_also_under_a_new_one_of_its_name() {
    let (_directory, db) = small(128);
    let table = db.table("t").unwrap();
    fill_all(&table);
    let (mut forward, mut back) = (table.iter(), table.iter().into_owned());
    assert!(forward.next().unwrap().is_ok());
    assert!(back.next_back().unwrap().is_ok());
    db.drop_table("t").unwrap();
    fill_all(&db.table("t").unwrap());
    let rest = forward.by_ref().take_while(Result::is_ok).count();
    assert!(rest < KEYS as usize / 2, "only what was copied");
    assert!(forward.next().is_none(), "an error ends it");
    let rest = back.by_ref().rev().take_while(Result::is_ok).count();
    assert!(rest < KEYS as usize / 2, "only what was copied");
    assert!(back.next_back().is_none(), "an error ends it");
    assert!(matches!(table.get(&[0; 4]), Err(Error::NoSuchTable { .. })));
    let new = db.existing_table("t").unwrap();
    assert_eq!(
        (&new).into_iter().filter(Result::is_ok).count(),
        KEYS as usize
    );
}

#[test]
fn roots_are_wired_up_to_the_cap_and_unwired_once_when_their_tables_go() {
    const TABLES: usize = 40;
    let (directory, db) = small(64);
    let of_the_store = db.report().wired_frames;
    let names: Vec<String> = (0..TABLES)
        .map(|number| format!("table {number}"))
        .collect();
    for (number, name) in names.iter().enumerate() {
        let table = db.table(name).unwrap();
        table.put(b"key", name.as_bytes()).unwrap();
        let wired = db.report().wired_frames;
        assert_eq!(
            wired,
            16.min(of_the_store + number as u64 + 1),
            "a quarter of 64"
        );
    }
    // Tables whose root is not wired work as others do.
    let check = |db: &Db| {
        for name in &names {
            let table = db.existing_table(name).unwrap();
            assert_eq!(table.get(b"key").unwrap().as_deref(), Some(name.as_bytes()));
        }
    };
    check(&db);
    db.close().unwrap();
    let db = open(directory.path(), 64);
    assert_eq!(db.report().wired_frames, 16, "counted anew, once");
    check(&db);
    for name in &names {
        db.drop_table(name).unwrap();
    }
    wait_for_garbage(&db);
    assert_eq!(db.report().wired_frames, of_the_store);
    db.table("new").unwrap().put(b"key", b"value").unwrap();
    assert_eq!(db.report().wired_frames, of_the_store + 1);
    db.close().unwrap();
}

/// A drop and a clear at the same time happen one after the other.
#[test]
fn a_table_that_is_emptied_meanwhile_is_dropped() {
    let builder = Db::builder().max_memory(4 << 20);
    let db = builder.durability(Durability::None).open_in_memory();
    let db = db.unwrap();
    for round in 0..600 {
        let table = db.table("t").unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                let cleared = (0..).find_map(|_| db.clear_tables(&[&table]).err());
                assert!(matches!(cleared, Some(Error::NoSuchTable { .. })));
            });
            db.drop_table("t").unwrap();
            assert_eq!(db.tables(), [""; 0], "round {round}");
        });
    }
}

/// A caller that asks for a table gets one, even if others drop the table of this name.
#[test]
fn a_table_that_others_drop_is_made_again() {
    const DROPS: u32 = 500;
    let builder = Db::builder().max_memory(4 << 20);
    let db = builder.durability(Durability::None).open_in_memory();
    let db = db.unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut dropped = 0;
                while dropped < DROPS && !done.load(Ordering::Relaxed) {
                    match db.drop_table("t") {
                        Ok(()) => dropped += 1,
                        Err(Error::NoSuchTable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
        let makers = [(); 4].map(|()| {
            scope.spawn(|| {
                let mut made = Ok(());
                while made.is_ok() && !done.load(Ordering::Relaxed) {
                    made = db.table("t").map(drop);
                }
                done.store(true, Ordering::Relaxed);
                made
            })
        });
        for maker in makers {
            maker.join().unwrap().unwrap();
        }
    });
}
