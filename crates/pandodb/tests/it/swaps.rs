//! Swaps of tables: compared with a map of maps over restarts and crashes, seen by nobody in part,
//! and noticed by whoever has read or written one of the tables.

use std::collections::BTreeMap;

use fastrand::Rng;
use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{thread, thread_waker};
use pandodb::device::MemoryDevice;
use pandodb::nonblocking::{Outcome, Polled, Reactor, Reads, ValidatedBatch, Watch};
use pandodb::{
    Batch, Builder, ConflictKind, Db, Durability, Error, Isolation, SalvageReport, Table,
    TableOptions, TransactionOptions, VerifyReport,
};

use crate::fixture::{NONE, open_on};
use crate::nonblocking::run;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// The last two are counted.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "counted/a", "counted/b"];

fn options() -> Builder {
    let options = Db::builder().max_memory(8 << 20).frames(64);
    options.chunk_size(8192).chunk_values_over(50_000)
}

fn tables_of(db: &Db) -> Vec<Table> {
    let table = |name: &&str| {
        let options = TableOptions::new().counted(name.starts_with("counted"));
        db.table_with(name, options).unwrap()
    };
    NAMES.iter().map(table).collect()
}

fn check_all(tables: &[Table], twins: &[Rows]) {
    for (table, twin) in tables.iter().zip(twins) {
        let name = table.name();
        assert_eq!(table.len(), twin.len() as u64, "{name}");
        assert!(table.iter().map(Result::unwrap).eq(twin.clone()), "{name}");
        for (rank, key) in (0..).zip(twin.keys()) {
            assert_eq!(table.get(key).unwrap().as_ref(), twin.get(key), "{name}");
            if table.is_counted() {
                assert_eq!(table.rank(key).unwrap(), rank, "{name}");
            }
        }
    }
}

/// A swap changes rows of the catalogue, which stay as long as they are: hundreds of them need no
/// more of the disk than the leaves of these rows.
#[test]
fn many_tables_are_swapped_at_once_on_a_small_disk() {
    let device = MemoryDevice::new(12 << 20);
    let options = Db::builder().max_memory(32 << 20).log_bytes(2 << 20);
    let db = Db::open_device(options, device.into()).unwrap();
    let make = |number: u32| {
        let table = db.table(&format!("table {number}")).unwrap();
        table.put_with(b"k", &number.to_be_bytes(), NONE).unwrap();
        table
    };
    let tables: Vec<Table> = (0..800).map(make).collect();
    let (first, second) = tables.split_at(400);
    let pairs: Vec<(&Table, &Table)> = first.iter().zip(second).collect();
    db.swap_tables(&pairs).unwrap();
    for (number, table) in (0_u32..).zip(&tables) {
        let other = (number + 400) % 800;
        assert_eq!(table.get(b"k").unwrap(), Some(other.to_be_bytes().to_vec()));
    }
}

/// Returns one pair of tables, or two pairs.
fn random_pairs(random: &mut Rng) -> Vec<[usize; 2]> {
    let mut plain = [0, 1, 2, 3];
    random.shuffle(&mut plain);
    let [a, b, c, d] = plain;
    match random.u32(..4) {
        0 => vec![[a, b], [c, d]],
        1 => vec![[a, b], [5, 4]],
        2 => vec![[4, 5]],
        _ => vec![[a, b]],
    }
}

/// A value in its leaf, in overflow pages, or in chunks.
fn random_value(random: &mut Rng) -> Vec<u8> {
    let bytes = match random.u32(..30) {
        0 => random.usize(50_001..60_000),
        1 => random.usize(3_000..9_000),
        _ => random.usize(..100),
    };
    vec![random.u8(..); bytes]
}

/// A store, and what its tables should have.
struct Place {
    device: FaultyDevice,
    db: Db,
    tables: Vec<Table>,
    twins: Vec<Rows>,
}

impl Place {
    fn new(seed: u64) -> Self {
        let device = FaultyDevice::new(seed);
        let db = open_on(&device, options());
        Self {
            tables: tables_of(&db),
            twins: vec![Rows::new(); NAMES.len()],
            db,
            device,
        }
    }

    /// Opens the store again: after a crash, whose seed that is, or after a close.
    fn reopen(self, crash: Option<u64>) -> Self {
        let Self {
            mut device,
            db,
            tables,
            twins,
        } = self;
        drop(tables);
        match crash {
            Some(seed) => {
                db.flush().unwrap();
                device = device.after_crash(seed, CrashMode::AllLost);
            }
            None => db.close().unwrap(),
        }
        let db = open_on(&device, options());
        let tables = tables_of(&db);
        check_all(&tables, &twins);
        Self {
            device,
            db,
            tables,
            twins,
        }
    }

    fn swap(&mut self, pairs: &[[usize; 2]]) {
        let pair = |pair: &[usize; 2]| (&self.tables[pair[0]], &self.tables[pair[1]]);
        let handles: Vec<_> = pairs.iter().map(pair).collect();
        self.db.swap_tables(&handles).unwrap();
        for [one, two] in pairs {
            self.twins.swap(*one, *two);
        }
    }

    fn step(&mut self, random: &mut Rng) {
        let at = random.usize(..NAMES.len());
        let key = random.u16(..400).to_be_bytes();
        let (table, twin) = (&self.tables[at], &mut self.twins[at]);
        match random.u32(..100) {
            0..60 => {
                let value = random_value(random);
                table.put_with(&key, &value, NONE).unwrap();
                twin.insert(key.to_vec(), value);
            }
            60..75 => {
                let there = table.delete_with(&key, NONE).unwrap();
                assert_eq!(there, twin.remove(&key[..]).is_some());
            }
            75..84 => self.swap(&random_pairs(random)),
            84..87 => {
                self.db.clear_tables(&[table]).unwrap();
                twin.clear();
            }
            87 => {
                self.db.drop_table(NAMES[at]).unwrap();
                twin.clear();
                self.tables = tables_of(&self.db);
            }
            88..91 => self.db.checkpoint().unwrap(),
            _ => {
                let found = table.get(&key).unwrap();
                assert_eq!(found.as_ref(), twin.get(&key[..]));
            }
        }
    }
}

#[test]
fn tables_hold_what_a_map_holds_over_swaps_restarts_and_crashes() {
    for seed in 0..8 {
        let mut random = Rng::with_seed(seed);
        let mut place = Place::new(seed);
        for step in 0..1200 {
            place.step(&mut random);
            match random.u32(..150) {
                0 => place = place.reopen(None),
                1 => place = place.reopen(Some(step)),
                _ => {}
            }
        }
        let device = place.reopen(None).device;
        let report = VerifyReport::of_device(&device.into()).unwrap();
        assert!(report.damages.is_empty(), "{:?}", report.damages);
    }
}

fn open(tables: &[&str]) -> (Db, Vec<Table>) {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let tables = tables.iter().map(|name| db.table(name).unwrap());
    let tables = tables.collect();
    (db, tables)
}

fn reactor(db: &Db) -> Reactor {
    Reactor::new(db, thread_waker()).unwrap()
}

fn end(batch: &mut ValidatedBatch, reactor: &mut Reactor) -> Outcome {
    run(reactor, |reactor| batch.try_commit(reactor).unwrap())
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// The content with the number n is shown by swap n, in both tables. Before that, it is made where
/// nobody looks.
#[test]
fn nobody_sees_a_swap_in_part() {
    const SWAPS: u64 = 600;
    // On a busy machine the others may begin late.
    const SWAPS_MAX: u64 = 100 * SWAPS;
    let (db, tables) = open(&["shown/a", "made/a", "shown/b", "made/b"]);
    let [shown_a, made_a, shown_b, made_b] = &tables[..] else {
        unreachable!("there are four");
    };
    let zero = 0_u64.to_be_bytes();
    tables
        .iter()
        .for_each(|table| table.put(b"n", &zero).unwrap());
    let (ended, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let committed = AtomicU64::new(0);
    let have_looked = || [&looks, &committed].map(|count| count.load(Ordering::Relaxed) > 0);
    let get = |table: &Table| number(&table.get(b"n").unwrap().unwrap());
    thread::scope(|scope| {
        // One after the other, and in the other order.
        for [one, two] in [[shown_a, shown_b], [shown_b, shown_a]] {
            let (ended, looks) = (&ended, &looks);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let (first, second) = (get(one), get(two));
                    assert!(first <= second, "{first} and then {second}");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Together.
        scope.spawn(|| {
            let mut reactor = reactor(&db);
            while !ended.load(Ordering::Relaxed) {
                let mut batch = ValidatedBatch::new(&db);
                let read = [shown_a, shown_b].map(|table| {
                    let mut value = Vec::new();
                    run(&mut reactor, |_| {
                        batch.get(table, b"n", &mut value).unwrap()
                    });
                    number(&value)
                });
                if let Outcome::Committed(_) = end(&mut batch, &mut reactor) {
                    assert_eq!(read[0], read[1]);
                    committed.fetch_add(1, Ordering::Relaxed);
                }
                let snapshot = db.snapshot().unwrap();
                let read = ["shown/a", "shown/b"].map(|name| {
                    let table = snapshot.table(name).unwrap();
                    number(&snapshot.get(&table, b"n").unwrap().unwrap())
                });
                assert_eq!(read[0], read[1], "at {}", snapshot.lsn());
            }
        });
        for swap in 1..=SWAPS_MAX {
            if swap > SWAPS && have_looked() == [true; 2] {
                break;
            }
            let mut batch = Batch::new();
            batch.put(made_a, b"n", &swap.to_be_bytes());
            batch.put(made_b, b"n", &swap.to_be_bytes());
            // Numbers of entries go along.
            for row in 0..swap % 7 {
                batch.put(made_a, &row.to_be_bytes(), b"");
            }
            for row in swap % 7..7 {
                batch.delete(made_a, &row.to_be_bytes());
            }
            db.write(&mut batch, NONE).unwrap();
            db.swap_tables(&[(shown_a, made_a), (made_b, shown_b)])
                .unwrap();
            assert_eq!(shown_a.len(), 1 + swap % 7);
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(have_looked(), [true; 2], "looks and commits");
}

/// The number of entries of a table is that of one of its contents, also in the middle of a swap.
#[test]
fn a_number_of_entries_is_that_of_one_content() {
    let (db, tables) = open(&["a", "b"]);
    for (table, count) in [(&tables[0], 7_u32), (&tables[1], 1000)] {
        for number in 0..count {
            table.put_with(&number.to_be_bytes(), b"", NONE).unwrap();
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let len = tables[0].len();
                assert!(len == 7 || len == 1000, "{len}");
            }
        });
        for _ in 0..400 {
            db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// What a batch has read, and what has to happen to its commit.
struct Case {
    swaps: usize,
    read_first: bool,
    read_between: bool,
    conflicts: bool,
}

/// A batch reads before a swap, between two, or both. Two swaps bring the tree back.
#[test]
fn a_batch_that_has_read_one_of_the_tables_conflicts() {
    let case = |swaps, read_first, read_between| Case {
        swaps,
        read_first,
        read_between,
        conflicts: swaps > 0 && read_first || swaps > 1 && read_between,
    };
    let cases = [
        case(0, true, false),
        case(1, true, false),
        case(1, false, true),
        case(1, true, true),
        case(2, true, false),
        case(2, false, true),
        case(2, true, true),
    ];
    for Case {
        swaps,
        read_first,
        read_between,
        conflicts,
    } in cases
    {
        for writes in [false, true] {
            let (db, tables) = open(&["a", "b", "result"]);
            tables[0].put(b"one", b"a").unwrap();
            tables[1].put(b"two", b"b").unwrap();
            let mut reactor = reactor(&db);
            let mut batch = ValidatedBatch::new(&db);
            let mut out = Vec::new();
            let swap = |number: usize| {
                if swaps >= number {
                    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
                }
            };
            if read_first {
                let found = run(&mut reactor, |_| {
                    batch.get(&tables[0], b"one", &mut out).unwrap()
                });
                assert!(found);
            }
            swap(1);
            if read_between {
                let found = run(&mut reactor, |_| {
                    batch.get(&tables[0], b"two", &mut out).unwrap()
                });
                assert_eq!(found, swaps > 0);
            }
            swap(2);
            if writes {
                batch.put(&tables[2], b"k", b"v").unwrap();
            }
            let outcome = end(&mut batch, &mut reactor);
            let what = format!("{swaps} {read_first} {read_between} {writes}");
            let conflicted = matches!(outcome, Outcome::Conflict { watched: false });
            assert_eq!(conflicted, conflicts, "{what}: {outcome:?}");
        }
    }
}

/// A batch that was made while two tables were swapped knows one tree for both.
#[test]
fn a_batch_that_writes_a_key_in_both_tables_meets_a_swap_in_between() {
    let (db, tables) = open(&["a", "b"]);
    let mut reactor = reactor(&db);
    let mut batch = ValidatedBatch::new(&db);
    batch.put(&tables[0], b"k", b"a").unwrap();
    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
    batch.put(&tables[1], b"k", b"b").unwrap();
    let outcome = end(&mut batch, &mut reactor);
    assert_eq!(outcome, Outcome::Conflict { watched: false });
    let mut blind = Batch::new();
    blind.put(&tables[0], b"k", b"a");
    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
    blind.put(&tables[1], b"k", b"b");
    db.write(&mut blind, NONE).unwrap();
    let found = [0, 1].map(|at: usize| tables[at].get(b"k").unwrap().unwrap());
    assert_eq!(found, [b"a", b"b"]);
}

/// A blind write is one to the name.
#[test]
fn what_is_written_behind_a_swap_goes_to_what_the_table_has_got() {
    let (db, tables) = open(&["a", "b"]);
    tables[0].put(b"of", b"a").unwrap();
    let mut blind = Batch::new();
    blind.put(&tables[0], b"blind", b"1");
    let mut transaction = db.begin(TransactionOptions::default()).unwrap();
    transaction.put(&tables[0], b"transaction", b"1").unwrap();
    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
    db.write(&mut blind, NONE).unwrap();
    transaction.commit().unwrap();
    let keys = |table: &Table| {
        let keys = table.iter().map(|entry| entry.unwrap().0);
        keys.map(|key| String::from_utf8(key).unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&tables[0]), ["blind", "transaction"]);
    assert_eq!(keys(&tables[1]), ["of"]);
}

/// A transaction reads what was there when it began. Its commit conflicts, unless its tables have
/// what they had then.
#[test]
fn a_transaction_that_has_read_one_of_the_tables_conflicts() {
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        for swaps in 0..3 {
            let (db, tables) = open(&["a", "b"]);
            tables[0].put(b"k", b"a").unwrap();
            tables[1].put(b"k", b"b").unwrap();
            let options = TransactionOptions::default().isolation(isolation);
            let mut transaction = db.begin(options).unwrap();
            let reads = |transaction: &mut pandodb::Transaction, at: usize, value: &[u8]| {
                let found = transaction.get(&tables[at], b"k").unwrap();
                assert_eq!(found.as_deref(), Some(value));
            };
            reads(&mut transaction, 0, b"a");
            for _ in 0..swaps {
                db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
            }
            reads(&mut transaction, 0, b"a");
            reads(&mut transaction, 1, b"b");
            let entries: Vec<_> = transaction.iter(&tables[1]).map(Result::unwrap).collect();
            assert_eq!(entries, [(b"k".to_vec(), b"b".to_vec())]);
            transaction.put(&tables[0], b"k", b"written").unwrap();
            match transaction.commit() {
                Ok(_) => assert_ne!(swaps, 1),
                Err(Error::Conflict { kind, .. }) => {
                    assert_eq!((swaps, kind), (1, ConflictKind::Table));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn watch(table: &Table, key: &[u8]) -> Watch {
    match ValidatedBatch::new(table.db()).watch(table, key) {
        Polled::Ready(watch) => watch,
        Polled::Pending(_) => panic!("nobody writes the key"),
    }
}

#[test]
fn a_swap_changes_all_watched_keys_of_both_tables_and_no_others() {
    let (db, tables) = open(&["a", "b", "c"]);
    tables
        .iter()
        .for_each(|table| table.put(b"k", b"").unwrap());
    let mut reactor = reactor(&db);
    for swaps in 0..3 {
        for (table, key) in [
            (0, b"k"),
            (0, b"-"),
            (1, b"k"),
            (1, b"-"),
            (2, b"k"),
            (2, b"-"),
        ] {
            let watched = watch(&tables[table], key);
            for _ in 0..swaps {
                db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
            }
            // Expected before the last swap, and behind it.
            for late in [false, true] {
                let mut batch = ValidatedBatch::new(&db);
                let mut expect = |batch: &mut ValidatedBatch| match key {
                    b"k" => batch.expect(&watched),
                    _ => run(&mut reactor, |_| batch.expect_absent(&watched)),
                };
                expect(&mut batch);
                batch.put(&tables[2], b"result", b"").unwrap();
                if late {
                    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
                }
                let outcome = end(&mut batch, &mut reactor);
                let kept = table == 2 || swaps == 0 && !late;
                let what = format!("{swaps} {table} {key:?} {late}: {outcome:?}");
                match outcome {
                    Outcome::Committed(_) => assert!(kept, "{what}"),
                    Outcome::Conflict { watched } => assert!(watched && !kept, "{what}"),
                }
            }
        }
    }
}

/// Whoever sees a swap sees something durable, without a wait of his own.
#[test]
fn a_swap_is_durable_before_anybody_sees_it() {
    for durability in [Durability::Durable, Durability::None] {
        let device = FaultyDevice::new(3);
        let options = Db::builder().max_memory(8 << 20).durability(durability);
        let db = open_on(&device, options);
        let [a, b] = ["a", "b"].map(|name| db.table(name).unwrap());
        b.put(b"of", b"b").unwrap();
        let mut reactor = reactor(&db);
        let mut batch = ValidatedBatch::new(&db);
        batch.swap_tables(&a, &b);
        let Outcome::Committed(Some(lsn)) = end(&mut batch, &mut reactor) else {
            panic!("nobody else changes tables");
        };
        let is_durable = db.durable_lsn() >= lsn;
        assert_eq!(is_durable, durability == Durability::Durable);
        let (mut out, mut owes) = (Vec::new(), None);
        let found = run(&mut reactor, |_| {
            Reads::of(&a).get(b"of", &mut out, &mut owes).unwrap()
        });
        assert!(found && owes.is_none(), "{owes:?}");
    }
}

#[test]
fn a_swap_waits_for_locks_in_both_tables() {
    for locked in 0..2 {
        let db = Db::builder().max_memory(8 << 20);
        let db = db.lock_timeout(pando_sync::time::Duration::from_millis(10));
        let db = db.open_in_memory().unwrap();
        let tables = ["a", "b"].map(|name| db.table(name).unwrap());
        let mut holder = db.begin(TransactionOptions::default()).unwrap();
        holder.lock(&tables[locked], &[b"k"]).unwrap();
        let swapped = db.swap_tables(&[(&tables[0], &tables[1])]);
        assert!(
            matches!(swapped, Err(Error::LockTimeout { .. })),
            "{swapped:?}"
        );
        holder.rollback();
        db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
    }
}

#[test]
fn tables_of_two_kinds_and_tables_that_are_gone_are_refused() {
    let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
    let tables = tables_of(&db);
    let (plain, counted) = (&tables[0], &tables[4]);
    let weighted = &db.table_with("w", TableOptions::new().weighted(true));
    let weighted = weighted.as_ref().unwrap();
    for (other, name) in [(counted, "counted"), (plain, "a")] {
        for pair in [(other, weighted), (weighted, other)] {
            let refused = db.swap_tables(&[(&tables[1], &tables[2]), pair]);
            let Err(Error::NotWeighted { name: found }) = refused else {
                panic!("{refused:?}");
            };
            assert!(found.starts_with(name), "{found}");
        }
    }
    for (pair, name) in [((plain, counted), "a"), ((counted, plain), "a")] {
        let refused = db.swap_tables(&[(&tables[1], &tables[2]), pair]);
        let Err(Error::NotCounted { name: found }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(found, name);
    }
    db.drop_table("b").unwrap();
    for pair in [(plain, &tables[1]), (&tables[1], plain)] {
        let refused = db.swap_tables(&[pair]);
        let Err(Error::NoSuchTable { name }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(name, "b");
    }
    db.swap_tables(&[]).unwrap();
}

#[test]
#[should_panic(expected = "a table is swapped once")]
fn a_table_is_in_one_pair() {
    let (db, tables) = open(&["a", "b", "c"]);
    let _never = db.swap_tables(&[(&tables[0], &tables[1]), (&tables[1], &tables[2])]);
}

#[test]
#[should_panic(expected = "a table is swapped with another one")]
fn a_table_is_not_swapped_with_itself() {
    let (db, tables) = open(&["a"]);
    let _never = db.swap_tables(&[(&tables[0], &tables[0])]);
}

/// A scan goes on in what the table has got, behind the last key; a load goes to the table.
#[test]
fn scans_and_loads_go_on_with_what_the_table_has_got() {
    let (db, tables) = open(&["a", "b", "c", "d"]);
    for number in 0..3000_u32 {
        let key = number.to_be_bytes();
        tables[0].put_with(&key, b"a", NONE).unwrap();
        if number % 2 == 0 {
            tables[1].put_with(&key, b"b", NONE).unwrap();
        }
    }
    let mut entries = tables[0].iter();
    assert_eq!(entries.next().unwrap().unwrap().1, b"a");
    db.swap_tables(&[(&tables[0], &tables[1])]).unwrap();
    let rest: Vec<_> = entries.map(Result::unwrap).collect();
    assert!(rest.is_sorted() && rest.last().unwrap().1 == b"b");
    let mut loader = tables[2].loader().unwrap();
    loader.put(b"loaded", b"1").unwrap();
    db.swap_tables(&[(&tables[2], &tables[3])]).unwrap();
    assert_eq!(loader.finish().unwrap(), 1);
    assert_eq!((tables[2].len(), tables[3].len()), (1, 0));
    let mut loader = tables[3].loader().unwrap();
    loader.put(b"loaded", b"1").unwrap();
    db.swap_tables(&[(&tables[2], &tables[3])]).unwrap();
    assert!(matches!(loader.finish(), Err(Error::NotEmpty { .. })));
}

/// A salvage applies the log as recovery does.
#[test]
fn a_salvage_finds_swapped_tables_where_they_are() {
    let mut random = Rng::with_seed(77);
    let mut place = Place::new(77);
    for _ in 0..300 {
        place.step(&mut random);
    }
    place.db.checkpoint().unwrap();
    for _ in 0..300 {
        place.step(&mut random);
    }
    place.swap(&[[0, 1], [4, 5]]);
    place.db.flush().unwrap();
    let left = place.device.after_crash(1, CrashMode::AllLost);
    let into = FaultyDevice::new(78);
    let (from, to) = (left.into(), into.clone().into());
    let report = SalvageReport::of_devices(&from, to, options()).unwrap();
    assert_eq!(report.lost, []);
    let db = open_on(&into, options());
    check_all(&tables_of(&db), &place.twins);
    for table in &report.tables {
        let at = NAMES.iter().position(|name| *name == table.name).unwrap();
        assert_eq!(table.rows, place.twins[at].len() as u64, "{}", table.name);
    }
}
