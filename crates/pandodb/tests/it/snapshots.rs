//! Snapshots: every open one shows the state of its LSN, whatever is done to the store since.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::Bound;
use std::path::Path;

use fastrand::Rng;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::nonblocking::{Polled, Reactor, ValidatedBatch};
use pandodb::statistics::Ticker;
use pandodb::{
    Batch, Builder, Db, Durability, Error, Outcome, Snapshot, Table, ValueStream, WriteOptions,
};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;
/// The state of a store: tables by name.
pub(crate) type State = BTreeMap<String, Entries>;

const QUICK: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A store, and what it should have.
pub(crate) struct Model {
    pub(crate) db: Db,
    pub(crate) now: State,
    pub(crate) random: Rng,
}

impl Model {
    fn new(options: Builder, seed: u64) -> Self {
        Self::of(options.open_in_memory().unwrap(), seed)
    }

    /// Makes the tables of a store that has none.
    pub(crate) fn of(db: Db, seed: u64) -> Self {
        let mut now = State::new();
        for name in NAMES {
            db.table(name).unwrap();
            now.insert(name.to_owned(), Entries::new());
        }
        Self {
            db,
            now,
            random: Rng::with_seed(seed),
        }
    }

    fn key(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        match random.u32(..4) {
            0 => vec![b'k'; random.usize(..40)],
            _ => format!("key {:05}", random.u32(..600)).into_bytes(),
        }
    }

    /// A value in its leaf, in overflow pages, or in chunks.
    fn value(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let len = match random.u32(..20) {
            0 => random.usize(20_000..60_000),
            1 | 2 => random.usize(3_000..16_000),
            3 => random.usize(1_000..2_100),
            _ => random.usize(..60),
        };
        let byte = random.u8(..);
        let mut value = vec![byte; len];
        for place in value.iter_mut().step_by(97) {
            *place = random.u8(..);
        }
        value
    }

    fn table(&mut self) -> Option<(String, Table)> {
        let name = NAMES[self.random.usize(..NAMES.len())];
        let table = self.db.existing_table(name)?;
        assert!(self.now.contains_key(name), "{name} was dropped");
        Some((name.to_owned(), table))
    }

    /// One random change.
    pub(crate) fn change(&mut self) {
        let Some((name, table)) = self.table() else {
            let name = NAMES[self.random.usize(..NAMES.len())];
            self.db.table(name).unwrap();
            self.now.entry(name.to_owned()).or_default();
            return;
        };
        match self.random.u32(..200) {
            0 => {
                self.db.drop_table(&name).unwrap();
                self.now.remove(&name);
            }
            1 => {
                self.db.clear_tables(&[&table]).unwrap();
                self.now.get_mut(&name).unwrap().clear();
            }
            2 => self.db.checkpoint().unwrap(),
            3 | 4 => self.swap(&name, &table),
            5..80 => {
                let (key, value) = (self.key(), self.value());
                table.put_with(&key, &value, QUICK).unwrap();
                self.now.get_mut(&name).unwrap().insert(key, value);
            }
            80..140 => {
                let key = self.key();
                table.delete_with(&key, QUICK).unwrap();
                self.now.get_mut(&name).unwrap().remove(&key);
            }
            _ => self.batch(),
        }
    }

    /// Swaps the table with another one, if there is one.
    fn swap(&mut self, name: &str, table: &Table) {
        let Some((other_name, other)) = self.table().filter(|(other, _)| other != name) else {
            return;
        };
        self.db.swap_tables(&[(table, &other)]).unwrap();
        let entries = self.now.remove(name).unwrap();
        let others = self.now.insert(other_name, entries).unwrap();
        self.now.insert(name.to_owned(), others);
    }

    /// A batch in all tables; sometimes it changes one of them as a whole, too.
    fn batch(&mut self) {
        let mut batch = Batch::new();
        for _ in 0..self.random.usize(1..40) {
            let Some((name, table)) = self.table() else {
                continue;
            };
            let key = self.key();
            let entries = self.now.get_mut(&name).unwrap();
            if self.random.u32(..3) == 0 {
                batch.delete(&table, &key);
                entries.remove(&key);
            } else {
                let value = vec![self.random.u8(..); self.random.usize(..500)];
                batch.put(&table, &key, &value);
                entries.insert(key, value);
            }
        }
        self.db.write(&mut batch, QUICK).unwrap();
    }

    pub(crate) fn check(&mut self, snapshot: &Snapshot, state: &State) {
        for name in NAMES {
            let Some(entries) = state.get(name) else {
                let Err(missing) = snapshot.table(name) else {
                    panic!("{name} was not there at {}", snapshot.lsn());
                };
                assert!(matches!(missing, Error::NoSuchTable { .. }), "{missing}");
                continue;
            };
            let table = snapshot.table(name).unwrap();
            for _ in 0..20 {
                let key = self.key();
                let found = snapshot.get(&table, &key).unwrap();
                assert_eq!(found.as_ref(), entries.get(&key), "{name} {key:?}");
                let found = snapshot.get_reader(&table, &key).unwrap().map(read_all);
                assert_eq!(found.as_ref(), entries.get(&key), "{name} {key:?}");
            }
            let keys: Vec<_> = (0..self.random.usize(..100)).map(|_| self.key()).collect();
            let texts: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            let found = snapshot.get_many(&table, &texts).unwrap();
            let expected = keys.iter().map(|key| entries.get(key));
            assert!(found.iter().map(Option::as_ref).eq(expected), "{name}");
            let found = snapshot.iter(&table).map(Result::unwrap);
            assert!(found.eq(entries.clone()), "{name} at {}", snapshot.lsn());
            let (one, other) = (self.key(), self.key());
            let (low, high) = (one.clone().min(other.clone()), one.max(other));
            let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
            let found = snapshot.range(&table, range).rev().map(Result::unwrap);
            let expected = entries.range::<[u8], _>(range).rev();
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            assert!(found.eq(expected), "{name} {low:?} to {high:?}, backwards");
        }
    }
}

pub(crate) fn read_all(mut stream: ValueStream) -> Vec<u8> {
    let mut value = Vec::new();
    stream.read_to_end(&mut value).unwrap();
    assert_eq!(value.len() as u64, stream.len());
    value
}

/// `settles`: some snapshots are settled from the beginning. Returns how often a settled one was
/// checked.
fn run(options: Builder, seed: u64, steps: usize, settles: bool) -> u32 {
    let mut model = Model::new(options, seed);
    let mut open: Vec<(Snapshot, State)> = Vec::new();
    // As many kept checkpoints as there is memory for.
    let (most, life) = if steps > 2000 { (3, 300) } else { (15, 60) };
    let mut settled = 0;
    for step in 0..steps {
        model.change();
        if model.random.u32(..25) == 0 && open.len() < most {
            let snapshot = match model.random.u32(..3) {
                0 if settles => model.db.snapshot_settled(),
                _ => model.db.snapshot(),
            };
            match snapshot {
                Ok(snapshot) => open.push((snapshot, model.now.clone())),
                // Others have the memory.
                Err(Error::Full { .. }) => drop(open.remove(0)),
                Err(error) => panic!("{error}"),
            }
        }
        if model.random.u32(..life) == 0 && !open.is_empty() {
            let at = model.random.usize(..open.len());
            open.swap_remove(at);
        }
        if step % 100 == 99 {
            for (snapshot, state) in &open {
                settled += u32::from(snapshot.is_settled());
                model.check(snapshot, state);
            }
        }
    }
    drop(open);
    while model.db.garbage_left() {
        thread::yield_now();
    }
    for (name, entries) in &model.now {
        let table = model.db.existing_table(name).unwrap();
        assert!(table.iter().map(Result::unwrap).eq(entries.clone()));
    }
    settled
}

#[test]
fn every_open_snapshot_shows_the_state_of_its_moment() {
    for seed in 0..6 {
        let options = Db::builder()
            .max_memory(512 << 20)
            .chunk_values_over(16 << 10);
        let settled = run(options, seed, 1500, seed % 2 == 0);
        assert_eq!(settled > 0, seed % 2 == 0);
    }
}

/// Leaves and overflow pages leave memory and come back.
#[test]
fn snapshots_of_data_larger_than_memory_show_their_moment() {
    for seed in 10..13 {
        let options = Db::builder()
            .max_memory(512 << 20)
            .frames(128)
            .chunk_values_over(16 << 10);
        assert!(run(options, seed, 1200, true) > 0);
    }
}

/// Snapshots go on on disk while they are read: after a moment, or when commits need the memory.
#[test]
fn snapshots_that_are_settled_show_their_moment() {
    let mut settled = [0, 0];
    for seed in 20..26 {
        let options = Db::builder().log_bytes(8 << 20).chunk_values_over(16 << 10);
        let options = match seed % 2 {
            0 => options
                .max_memory(512 << 20)
                .frames(128)
                .settle_snapshots_after(Duration::ZERO),
            // The versions have 1 MiB, and three checkpoints can be kept.
            _ => options.max_memory(40 << 20).frames(512),
        };
        settled[(seed % 2) as usize] += run(options, seed, 2500, false);
    }
    assert!(settled.iter().all(|checked| *checked > 0), "{settled:?}");
}

const ACCOUNTS: u32 = 400;

fn account_key(account: u32) -> Vec<u8> {
    format!("account {account:06}").into_bytes()
}

fn amount_of(value: &[u8]) -> i64 {
    i64::from_le_bytes(value[..8].try_into().unwrap())
}

/// A value that has `amount`, and `len` more bytes.
fn with_amount(amount: i64, len: usize) -> Vec<u8> {
    let mut value = amount.to_le_bytes().to_vec();
    value.resize(8 + len, 7);
    value
}

/// Moves amounts between accounts until `done`. Each writer has accounts of its own, so that it
/// needs no reads that are validated.
fn transfer(db: &Db, tables: &[Table; 2], writer: u32, done: &AtomicBool) {
    let mut random = Rng::with_seed(writer.into());
    let mut own = vec![[100, 100]; ACCOUNTS as usize];
    while !done.load(Ordering::Relaxed) {
        let mut batch = Batch::new();
        let amount = random.i64(1..50);
        let mut account = || random.u32(..ACCOUNTS / 3) * 3 + writer;
        let (from, to) = (account(), account());
        let sides = [random.usize(..2), random.usize(..2)];
        own[from as usize][sides[0]] -= amount;
        own[to as usize][sides[1]] += amount;
        for (account, side) in [(from, sides[0]), (to, sides[1])] {
            // In its leaf, or in overflow pages.
            let len = [0, 100, 3000][random.usize(..3)];
            let value = with_amount(own[account as usize][side], len);
            batch.put(&tables[side], &account_key(account), &value);
        }
        db.write(&mut batch, QUICK).unwrap();
    }
}

/// Adds all accounts up, by scans in both directions.
fn sum_of_scans(snapshot: &Snapshot, tables: &[Table; 2]) -> Result<i64, Error> {
    let entries = |index: usize| snapshot.iter(&tables[index]);
    let forward = entries(0).map(|entry| Ok(amount_of(&entry?.1)));
    let backward = entries(1).rev().map(|entry| Ok(amount_of(&entry?.1)));
    forward.chain(backward).sum()
}

/// Adds all accounts up, one by one.
fn sum_of_gets(snapshot: &Snapshot, tables: &[Table; 2]) -> Result<i64, Error> {
    let keys = (0..ACCOUNTS).map(account_key);
    let all = keys.flat_map(|key| [(key.clone(), &tables[0]), (key, &tables[1])]);
    let amounts = all.map(|(key, table)| {
        let value = snapshot.get(table, &key)?;
        Ok(amount_of(&value.expect("it always exists")))
    });
    amounts.sum()
}

/// Ends the writers, also when a check fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The sum of all accounts never changes, at no moment.
#[test]
fn snapshots_beside_writers_see_whole_batches() {
    let options = Db::builder().max_memory(64 << 20).frames(96);
    let db = options.open_in_memory().unwrap();
    let tables = [db.table("one").unwrap(), db.table("other").unwrap()];
    for table in &tables {
        for account in 0..ACCOUNTS {
            let value = with_amount(100, 0);
            table
                .put_with(&account_key(account), &value, QUICK)
                .unwrap();
        }
    }
    let whole = i64::from(ACCOUNTS) * 200;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..3 {
            let (db, tables, done) = (&db, &tables, &done);
            scope.spawn(move || transfer(db, tables, writer, done));
        }
        let _stop = Stop(&done);
        let (mut right, mut ended) = (0, 0);
        let mut kept = Vec::new();
        while right < 300 {
            let snapshot = db.snapshot().unwrap();
            for sum in [
                sum_of_scans(&snapshot, &tables),
                sum_of_gets(&snapshot, &tables),
            ] {
                match sum {
                    Ok(sum) => {
                        assert_eq!(sum, whole, "at {}", snapshot.lsn());
                        right += 1;
                    }
                    Err(Error::SnapshotEnded) => ended += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            kept.push(snapshot);
            if kept.len() > 5 {
                kept.remove(0);
            }
        }
        assert!(ended < right, "{ended} of {right} were ended");
    });
}

/// Commits get the memory that they need, and snapshots end with an error and no wrong value.
#[test]
fn snapshots_that_may_not_settle_end_when_commits_need_the_memory() {
    let options = Db::builder().settle_snapshots_after(Duration::MAX);
    let db = options.max_memory(8 << 20).open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    let put = |number: u32, byte: u8| {
        let value = [byte; 200];
        table
            .put_with(&number.to_be_bytes(), &value, QUICK)
            .unwrap();
    };
    (0..5000).for_each(|number| put(number, 1));
    let old = db.snapshot().unwrap();
    (0..500).for_each(|number| put(number, 2));
    let young = db.snapshot().unwrap();
    for number in 0..5000 {
        put(number, 3);
        for (snapshot, byte) in [(&old, 1), (&young, if number < 500 { 2 } else { 1 })] {
            match snapshot.get(&table, &number.to_be_bytes()) {
                Ok(value) => assert_eq!(value, Some(vec![byte; 200])),
                Err(Error::SnapshotEnded) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    let ended = old.get(&table, b"key").unwrap_err();
    assert!(matches!(ended, Error::SnapshotEnded), "{ended}");
    assert!(old.iter(&table).next().unwrap().is_err());
    let ends = || db.statistics().get(Ticker::SnapshotsEnded);
    let before = ends();
    assert!((1..=2).contains(&before), "{before}");
    // A batch that needs more than all the memory is committed, too.
    let snapshot = db.snapshot().unwrap();
    let mut batch = Batch::new();
    for number in 0..1500_u32 {
        batch.put(&table, &number.to_be_bytes(), &[4; 200]);
    }
    db.write(&mut batch, QUICK).unwrap();
    match snapshot.get(&table, &7_u32.to_be_bytes()) {
        Err(Error::SnapshotEnded) => assert!(ends() > before),
        shown => assert_eq!(shown.unwrap(), Some(vec![3; 200])),
    }
    assert_eq!(table.get(&7_u32.to_be_bytes()).unwrap(), Some(vec![4; 200]));
}

#[test]
fn a_snapshot_has_what_was_committed_before_it_and_knows_its_store() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    for number in 0..200_u32 {
        table.put(b"key", &number.to_le_bytes()).unwrap();
        let snapshot = db.snapshot().unwrap();
        assert!(snapshot.lsn() >= db.newest_lsn(), "nothing else commits");
        let found = snapshot.get(&table, b"key").unwrap();
        assert_eq!(found, Some(number.to_le_bytes().to_vec()));
    }
    let snapshot = db.snapshot().unwrap();
    let other = Db::builder().open_in_memory().unwrap();
    let foreign = other.table("t").unwrap();
    let error = snapshot.get(&foreign, b"key").unwrap_err();
    assert!(matches!(error, Error::OtherStore), "{error}");
    let error = snapshot.iter(&foreign).next().unwrap().unwrap_err();
    assert!(matches!(error, Error::OtherStore), "{error}");
    let clone = snapshot.clone();
    let iterator = snapshot.iter(&table).into_owned();
    drop(snapshot);
    table.delete(b"key").unwrap();
    assert!(clone.contains(&table, b"key").unwrap());
    assert_eq!(iterator.count(), 1);
    let late = db.table("late").unwrap();
    let error = clone.get(&late, b"key").unwrap_err();
    assert!(matches!(error, Error::NoSuchTable { .. }), "{error}");
    db.close().unwrap();
    let error = clone.db().snapshot().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

/// Copies the files of a store, as a process that is killed leaves them.
fn copy_of(directory: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let to = copy.path().join(path.strip_prefix(directory).unwrap());
            if path.is_dir() {
                std::fs::create_dir(to).unwrap();
                folders.push(path);
            } else {
                std::fs::copy(&path, to).unwrap();
            }
        }
    }
    copy
}

/// What a snapshot has kept on disk is freed after the end of its process, and nothing is lost.
#[test]
fn what_a_snapshot_keeps_is_freed_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let options = || {
        Db::builder()
            .max_memory(32 << 20)
            .chunk_values_over(16 << 10)
    };
    let value = |byte: u8, len: usize| vec![byte; len];
    let db = options().open(directory.path()).unwrap();
    let (table, dropped) = (db.table("t").unwrap(), db.table("dropped").unwrap());
    for number in 0..30_u8 {
        for (len, kind) in [(5_000, b'o'), (40_000, b'c')] {
            let value = value(number, len);
            table.put_with(&[kind, number], &value, QUICK).unwrap();
            dropped.put_with(&[kind, number], &value, QUICK).unwrap();
        }
    }
    let snapshot = db.snapshot().unwrap();
    for number in 0..30_u8 {
        let new = value(100, 6_000);
        table.put_with(&[b'o', number], &new, QUICK).unwrap();
        table.delete_with(&[b'c', number], QUICK).unwrap();
    }
    db.drop_table("dropped").unwrap();
    db.checkpoint().unwrap();
    for number in 0..30_u8 {
        let kept = snapshot.get(&table, &[b'o', number]).unwrap();
        assert_eq!(kept, Some(value(number, 5_000)));
        let kept = snapshot.get(&dropped, &[b'c', number]).unwrap();
        assert_eq!(kept, Some(value(number, 40_000)));
    }
    assert!(db.garbage_left(), "the snapshot needs it");
    let copy = copy_of(directory.path());
    let stored = pandodb::verify(copy.path(), |_, _| {}).unwrap();
    assert!(stored.damages.is_empty(), "{:?}", stored.damages);
    let kept_pages = {
        let db = options().open(copy.path()).unwrap();
        while db.garbage_left() {
            thread::yield_now();
        }
        let table = db.table("t").unwrap();
        let entries = table.iter().map(Result::unwrap);
        let expected = (0..30_u8).map(|number| (vec![b'o', number], value(100, 6_000)));
        assert!(entries.eq(expected));
        drop(table);
        db.close().unwrap();
        let after = pandodb::verify(copy.path(), |_, _| {}).unwrap();
        assert!(after.damages.is_empty(), "{:?}", after.damages);
        (stored.pages_checked, after.pages_checked)
    };
    assert!(kept_pages.0 >= kept_pages.1 + 60, "{kept_pages:?}");
    drop(snapshot);
    while db.garbage_left() {
        thread::yield_now();
    }
}

/// A scan of a range ends where the range does, however much that the snapshot does not show lies
/// behind it.
#[test]
fn a_scan_of_a_range_does_not_read_what_lies_behind_it() {
    let db = Db::builder().open_in_memory().unwrap();
    let table = db.table("t").unwrap();
    table.put(b"a", b"1").unwrap();
    let snapshot = db.snapshot().unwrap();
    for number in 0..20_000_u32 {
        let key = [&b"k"[..], &number.to_be_bytes()].concat();
        table.put_with(&key, &[7; 50], QUICK).unwrap();
    }
    let leaves = || db.statistics().get(Ticker::ScanLeaves);
    for (low, high) in [(&b"a"[..], &b"b"[..]), (b"y", b"z")] {
        for backward in [false, true] {
            let before = leaves();
            let range = snapshot.range(&table, low..high);
            let count = match backward {
                false => range.count(),
                true => range.rev().count(),
            };
            assert_eq!(count, usize::from(low == b"a"));
            assert!(leaves() - before <= 3, "{} leaves", leaves() - before);
        }
    }
}

/// Commits that wait for memory while the store is closed end.
#[test]
fn nobody_waits_for_memory_of_a_store_that_is_closed() {
    for turn in 0..10 {
        let db = Db::builder().max_memory(4 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        for number in 0..600_u32 {
            table
                .put_with(&number.to_be_bytes(), &[1; 300], QUICK)
                .unwrap();
        }
        thread::scope(|scope| {
            for writer in 0..4_u32 {
                let (db, table) = (&db, &table);
                scope.spawn(move || {
                    for round in 0.. {
                        let kept = db.snapshot();
                        let mut batch = Batch::new();
                        for number in 0..150 {
                            let key = (number * 4 + writer).to_be_bytes();
                            batch.put(table, &key, &[round as u8; 300]);
                        }
                        match db.write(&mut batch, QUICK) {
                            Ok(()) => drop(kept),
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        }
                    }
                });
            }
            thread::park_timeout(Duration::from_millis(30 + 10 * turn));
            db.clone().close().unwrap();
        });
    }
}

/// Such a batch is applied with the gate closed, and holds no stripe.
#[test]
fn a_batch_that_empties_a_table_and_writes_to_another_is_not_seen() {
    let db = Db::builder().max_memory(64 << 20).open_in_memory().unwrap();
    let (table, emptied) = (db.table("t").unwrap(), db.table("emptied").unwrap());
    let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
    let long = |byte: u8| vec![byte; 9_000];
    for round in 0..20_u8 {
        table.put(b"long", &long(round)).unwrap();
        table.put(b"short", &[round]).unwrap();
        emptied.put(b"key", &[round]).unwrap();
        let snapshot = db.snapshot().unwrap();
        let mut batch = ValidatedBatch::new(&db);
        batch.clear_table(&emptied);
        batch.put(&table, b"long", &long(100)).unwrap();
        batch.put(&table, b"new", b"1").unwrap();
        batch.delete(&table, b"short");
        let outcome = loop {
            match batch.try_commit(&mut reactor).unwrap() {
                Polled::Ready(outcome) => break outcome,
                Polled::Pending(_) => thread::yield_now(),
            }
        };
        assert!(matches!(outcome, Outcome::Committed(Some(_))));
        // What the batch has replaced would be used again.
        table.put(b"other", &long(200)).unwrap();
        assert_eq!(snapshot.get(&table, b"long").unwrap(), Some(long(round)));
        assert_eq!(snapshot.get(&table, b"short").unwrap(), Some(vec![round]));
        assert_eq!(snapshot.get(&table, b"new").unwrap(), None);
        let kept = snapshot.get(&emptied, b"key").unwrap();
        assert_eq!(kept, Some(vec![round]));
        assert_eq!(emptied.iter().count(), 0);
        table.delete(b"new").unwrap();
        table.delete(b"other").unwrap();
    }
}

/// What a thread remembers of the versions of one store is not believed of those of another, which
/// have the same tree, the same pages and, sooner or later, the same versions of latches.
#[test]
fn a_thread_that_writes_to_two_stores_mixes_nothing_up() {
    for more in 0..2 {
        let open = || Db::builder().durability(Durability::None).open_in_memory();
        let stores = [open().unwrap(), open().unwrap()];
        let [small, large] = stores.each_ref().map(|db| db.table("t").unwrap());
        let key = |number: u32| number.to_be_bytes();
        for number in 0..800 {
            small.put(&key(number), b"x").unwrap();
            large.put(&key(number), &[7; 700]).unwrap();
        }
        let snapshots = stores.each_ref().map(|db| db.snapshot().unwrap());
        // The root of the versions of the second store is split, that of the first is a leaf.
        for number in 0..60 {
            large.put(&key(number), b"new").unwrap();
        }
        for number in 700..700 + more {
            small.put(&key(number), b"y").unwrap();
        }
        for number in 0..300 {
            small.put(&key(2 * number), b"y").unwrap();
            small.put(&key(2 * number + 1), b"y").unwrap();
            large.put(&key(60 + number), b"new").unwrap();
        }
        for number in 0..360 {
            let value = snapshots[1].get(&large, &key(number)).unwrap();
            assert_eq!(value.as_deref(), Some(&[7; 700][..]), "{number}");
            let value = snapshots[0].get(&small, &key(number)).unwrap();
            assert_eq!(value.as_deref(), Some(&b"x"[..]), "{number}");
        }
    }
}
