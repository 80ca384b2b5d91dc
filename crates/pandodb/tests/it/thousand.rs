//! A thousand threads with 16 MiB do everything at once: puts, deletes, gets, scans, batches,
//! transactions that conflict, large values, snapshots and iterators that stay open.
//!
//! Each thread owns the keys that begin with its number, and has a twin of them. Sums of shared
//! accounts stay the same, whoever moves money. Nobody may wait for ever, and all is there when the
//! store is opened again.

use std::collections::BTreeMap;
use std::io::Read;

use fastrand::Rng;
use pando_sync::{Arc, thread};
use pandodb::{
    Batch, Builder, Db, Durability, Error, Isolation, Iter, Snapshot, Table, TransactionOptions,
    WriteOptions,
};

use crate::fixture::{NONE, verified};
use crate::progress::Progress;

const ACCOUNTS: u32 = 40;
const MONEY: u64 = 1000;
/// Longest of the values that are large.
const LARGE_BYTES: usize = 300_000;

type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

fn options() -> Builder {
    Db::builder()
        .max_memory(16 << 20)
        .durability(Durability::None)
        .chunk_values_over(20_000)
}

fn account(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn money(value: Option<Vec<u8>>) -> u64 {
    u64::from_le_bytes(value.unwrap().try_into().unwrap())
}

/// A snapshot, and what its thread had then.
type Look = (Snapshot, Twin);

struct Worker<'a> {
    number: u32,
    random: Rng,
    rows: &'a Table,
    accounts: &'a Table,
    twin: Twin,
    look: Option<Look>,
    /// An iterator over this thread's keys that stays open.
    open: Option<Iter<'a>>,
    conflicts: u32,
}

impl<'a> Worker<'a> {
    fn prefix(&self) -> Vec<u8> {
        self.number.to_be_bytes().to_vec()
    }

    fn key(&mut self) -> Vec<u8> {
        let key = self.random.u16(..60);
        [&self.prefix()[..], &key.to_be_bytes()].concat()
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.u32(..30) {
            0 => self.random.usize(..LARGE_BYTES),
            1..4 => self.random.usize(..20_000),
            _ => self.random.usize(..600),
        };
        let first = self.random.u8(..);
        vec![first; bytes]
    }

    fn write(&mut self) {
        let mut batch = Batch::new();
        for _ in 0..self.random.u32(1..12) {
            let key = self.key();
            if self.random.u32(..4) == 0 {
                batch.delete(self.rows, &key);
                self.twin.remove(&key);
            } else {
                let value = self.value();
                batch.put(self.rows, &key, &value[..value.len().min(2000)]);
                self.twin
                    .insert(key, value[..value.len().min(2000)].to_vec());
            }
        }
        self.rows.db().write(&mut batch, NONE).unwrap();
    }

    fn put(&mut self) {
        let (key, value) = (self.key(), self.value());
        let how = match self.random.u32(..50) {
            0 => WriteOptions::durability(Durability::Durable),
            _ => NONE,
        };
        match value.len() {
            20_001.. => self
                .rows
                .put_streamed_with(&key, value.len() as u64, &value[..], how)
                .unwrap(),
            _ => self.rows.put_with(&key, &value, how).unwrap(),
        }
        self.twin.insert(key, value);
    }

    fn get(&mut self) {
        let key = self.key();
        let mut found = None;
        if let Some(mut reader) = self.rows.get_reader(&key).unwrap() {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            found = Some(bytes);
        }
        assert!(
            found.as_ref() == self.twin.get(&key),
            "thread {}",
            self.number
        );
    }

    /// Moves money between two accounts. Anybody else may do so.
    fn transfer(&mut self) {
        let (from, to) = (self.random.u32(..ACCOUNTS), self.random.u32(..ACCOUNTS));
        let isolation = match self.random.u32(..2) {
            0 => Isolation::Snapshot,
            _ => Isolation::Serializable,
        };
        let locks = self.random.bool();
        let mut transaction = self
            .rows
            .db()
            .begin(TransactionOptions::default().isolation(isolation))
            .unwrap();
        let accounts = self.accounts;
        let mut moved = || {
            if locks {
                transaction.lock(accounts, &[&account(from), &account(to)])?;
            }
            let left = money(transaction.get(accounts, &account(from))?);
            if left == 0 || from == to {
                return Ok(());
            }
            let right = money(transaction.get(accounts, &account(to))?);
            transaction.put(accounts, &account(from), &(left - 1).to_le_bytes())?;
            transaction.put(accounts, &account(to), &(right + 1).to_le_bytes())
        };
        let outcome = moved().and_then(|()| transaction.commit().map(drop));
        self.judge(outcome);
    }

    fn judge(&mut self, outcome: pandodb::Result<()>) {
        match outcome {
            Ok(()) => {}
            Err(error) if error.is_conflict() => self.conflicts += 1,
            Err(Error::LockTimeout { .. } | Error::Full { .. }) => self.conflicts += 1,
            Err(error) => panic!("{error}"),
        }
    }

    fn sum(&mut self) {
        let Ok(snapshot) = self.rows.db().snapshot() else {
            self.conflicts += 1;
            return;
        };
        let all: pandodb::Result<Vec<_>> = snapshot.iter(self.accounts).collect();
        let sum = all.map(|all| all.into_iter().map(|(_, value)| money(Some(value))).sum());
        match sum {
            Ok(sum) => assert_eq!(MONEY * u64::from(ACCOUNTS), sum),
            Err(error) => self.judge(Err(error)),
        }
    }

    /// Looks at what was, by a snapshot of some steps ago.
    fn look_back(&mut self) {
        if let Some((snapshot, twin)) = self.look.take() {
            for _ in 0..5 {
                let key = self.key();
                match snapshot.get(self.rows, &key) {
                    Ok(found) => assert!(found.as_ref() == twin.get(&key), "a snapshot changed"),
                    Err(Error::InChunks) => assert!(twin[&key].len() > 20_000),
                    Err(error) => return self.judge(Err(error)),
                }
            }
            if self.random.bool() {
                self.look = Some((snapshot, twin));
                return;
            }
        }
        match self.rows.db().snapshot() {
            Ok(snapshot) => self.look = Some((snapshot, self.twin.clone())),
            Err(error) => self.judge(Err(error)),
        }
    }

    /// Takes some entries of an iterator that was opened some steps ago.
    fn go_on(&mut self) {
        let prefix = self.prefix();
        let rows = self.rows;
        let iter = self.open.get_or_insert_with(|| rows.range(&prefix[..]..));
        for _ in 0..3 {
            match iter.next() {
                Some(Ok(_) | Err(Error::InChunks)) => {}
                Some(Err(error)) => panic!("{error}"),
                None => {
                    self.open = None;
                    break;
                }
            }
        }
    }

    fn step(&mut self) {
        match self.random.u32(..100) {
            0..25 => self.put(),
            25..40 => self.write(),
            40..60 => self.get(),
            60..75 => self.transfer(),
            75..80 => self.sum(),
            80..90 => self.look_back(),
            90..97 => self.go_on(),
            _ => {
                let key = self.key();
                let existed = self.rows.delete_with(&key, NONE).unwrap();
                assert_eq!(existed, self.twin.remove(&key).is_some());
            }
        }
    }
}

fn work(number: u32, steps: u32, tables: [Table; 2], progress: &Progress) -> (Twin, u32) {
    let [rows, accounts] = &tables;
    let mut worker = Worker {
        number,
        random: Rng::with_seed(number.into()),
        rows,
        accounts,
        twin: Twin::new(),
        look: None,
        open: None,
        conflicts: 0,
    };
    for _ in 0..steps {
        worker.step();
        progress.step();
    }
    (worker.twin, worker.conflicts)
}

fn check(db: &Db, twins: &[Twin]) {
    let (rows, accounts) = (db.table("rows").unwrap(), db.table("accounts").unwrap());
    let sum: u64 = (0..ACCOUNTS)
        .map(|number| money(accounts.get(&account(number)).unwrap()))
        .sum();
    assert_eq!(sum, MONEY * u64::from(ACCOUNTS));
    let mut all = 0;
    for (key, value) in twins.iter().flatten() {
        let mut reader = rows.get_reader(key).unwrap().unwrap();
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        assert!(bytes == *value);
        all += 1;
    }
    assert_eq!(rows.len(), all);
}

#[test]
fn a_thousand_threads_do_everything_at_once_with_16_mib() {
    let threads = 1000;
    let steps = std::env::var("PANDO_STEPS").map_or(20, |steps| steps.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let db = options().open(directory.path()).unwrap();
    let tables = [db.table("rows").unwrap(), db.table("accounts").unwrap()];
    for number in 0..ACCOUNTS {
        tables[1]
            .put(&account(number), &MONEY.to_le_bytes())
            .unwrap();
    }
    let progress = Arc::new(Progress::default());
    let workers: Vec<_> = (0..threads)
        .map(|number| {
            let (tables, progress) = (tables.clone(), progress.clone());
            thread::spawn(move || work(number, steps, tables, &progress))
        })
        .collect();
    progress.wait_for(u64::from(threads * steps));
    let mut conflicts = 0;
    let mut twins = Vec::new();
    for worker in workers {
        let (twin, met) = worker.join().unwrap();
        twins.push(twin);
        conflicts += met;
    }
    assert!(conflicts > 0, "no transaction met another");
    check(&db, &twins);
    assert_eq!(db.occupancy(), pandodb::Occupancy::default());
    drop(tables);
    db.close().unwrap();
    verified(directory.path());
    let db = options().open(directory.path()).unwrap();
    check(&db, &twins);
    db.close().unwrap();
}
