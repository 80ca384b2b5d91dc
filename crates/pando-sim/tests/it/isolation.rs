//! Histories of transactions at all levels, judged by the isolation checker: many open at the same
//! time in one thread, step by step, which a seed repeats exactly; and in threads.

use fastrand::Rng;
use pando_sim::isolation::{
    Bounds, Kind, Level, Operation, Report, TableKey, Transaction as Record, TransactionHistory,
    check,
};
use pando_sim::panics;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::Duration;
use pandodb::{Builder, Db, Error, Isolation, Table, Transaction, TransactionOptions};

use crate::number;

/// Keys of each table.
const KEYS: u8 = 12;

/// What the transactions of one history share.
struct Store {
    db: Db,
    /// Values that are written and deleted; `ids` names them.
    registers: [Table; 2],
    /// Lists that are appended to.
    lists: Table,
    clock: AtomicU64,
    ids: AtomicU64,
}

/// A transaction that is open.
struct Open {
    transaction: Transaction,
    record: Record,
    /// Steps that are left before its end.
    steps: u32,
}

impl Store {
    fn new(max_memory: u64) -> Self {
        Self::with(max_memory, |options| options)
    }

    fn with(max_memory: u64, set: impl FnOnce(Builder) -> Builder) -> Self {
        let options = Db::builder().max_memory(max_memory).page_size(4096);
        panics::watch("a store");
        let db = set(options).open_in_memory().unwrap();
        let table = |name| db.table(name).unwrap();
        Self {
            registers: [table("0"), table("1")],
            lists: table("lists"),
            db,
            clock: AtomicU64::new(1),
            ids: AtomicU64::new(1),
        }
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns a number that names a transaction, a value or an element.
    fn next(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    fn begin(&self, client: u64, random: &mut Rng) -> Open {
        let (isolation, level) = match random.u8(..4) {
            0 => (Isolation::ReadCommitted, Level::ReadCommitted),
            1 => (Isolation::Snapshot, Level::Snapshot),
            _ => (Isolation::Serializable, Level::Serializable),
        };
        let mut record = Record::new(self.next()).client(client).level(level);
        record.invoked = self.now();
        let options = TransactionOptions::default()
            .isolation(isolation)
            .read_set_bytes(if random.bool() { 1 << 20 } else { 200 });
        Open {
            transaction: self.db.begin(options).unwrap(),
            record,
            steps: random.u32(1..8),
        }
    }

    /// Makes one random step of a transaction. Returns false if it has failed and must end.
    fn step(&self, open: &mut Open, random: &mut Rng) -> pandodb::Result<()> {
        let Open {
            transaction,
            record,
            ..
        } = open;
        let which = random.usize(..2);
        let table = &self.registers[which];
        let bytes = [random.u8(..KEYS)];
        let key = TableKey::new(which.to_string(), bytes);
        let operation = match random.u8(..10) {
            0..3 => {
                let found = transaction.get(table, &bytes)?;
                Operation::Read(key, found.as_deref().map(of_bytes))
            }
            3..5 => {
                let value = self.next();
                transaction.put(table, &bytes, &value.to_be_bytes())?;
                Operation::Write(key, value)
            }
            5 => {
                transaction.delete(table, &bytes)?;
                Operation::Delete(key)
            }
            6 | 7 => range(transaction, table, which, random)?,
            // At a level that loses updates, elements would be lost.
            _ if transaction.isolation() == Isolation::ReadCommitted => return Ok(()),
            choice => {
                let key = TableKey::new("lists", bytes);
                let list = transaction.get(&self.lists, &bytes)?.unwrap_or_default();
                let elements = list.chunks(8).map(of_bytes).collect();
                record
                    .operations
                    .push(Operation::ReadList(key.clone(), elements));
                if choice == 8 {
                    return Ok(());
                }
                let element = self.next();
                let list = [&list[..], &element.to_be_bytes()].concat();
                transaction.put(&self.lists, &bytes, &list)?;
                Operation::Append(key, element)
            }
        };
        record.operations.push(operation);
        Ok(())
    }

    /// Ends a transaction: commits it, or rolls it back.
    fn end(&self, open: Open, commits: bool) -> Record {
        let Open {
            transaction,
            mut record,
            ..
        } = open;
        record.snapshot_lsn = transaction.snapshot_lsn().map(|lsn| lsn.0);
        let committed = match commits {
            true => transaction.commit(),
            false => Err(Error::aborted("at random")),
        };
        record.completed = Some(self.now());
        match committed {
            Ok(lsn) => {
                record.commit_lsn = lsn.map(|lsn| lsn.0);
                record
            }
            Err(Error::Conflict { .. } | Error::SnapshotEnded | Error::Aborted { .. }) => {
                record.aborted()
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn of_bytes(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Reads a part of a table, or as much as there is of it.
fn range(
    transaction: &mut Transaction,
    table: &Table,
    which: usize,
    random: &mut Rng,
) -> pandodb::Result<Operation> {
    let from = [random.u8(..KEYS)];
    let most = random.usize(1..=usize::from(KEYS));
    let range = transaction.range(table, &from[..]..);
    let rows = range.take(most).collect::<pandodb::Result<Vec<_>>>()?;
    let to = match rows.last() {
        Some((last, _)) if rows.len() == most => Some([&last[..], &[0]].concat()),
        _ => None,
    };
    let bounds = Bounds {
        table: which.to_string(),
        from: from.to_vec(),
        to,
    };
    let row = |(key, value): (Vec<u8>, Vec<u8>)| {
        (TableKey::new(which.to_string(), key), of_bytes(&value))
    };
    Ok(Operation::ReadRange(
        bounds,
        rows.into_iter().map(row).collect(),
    ))
}

/// Checks a history.
fn judge(records: Vec<Record>, seed: u64) -> Report {
    let history = TransactionHistory {
        transactions: records,
    };
    check(&history, Level::Serializable).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"))
}

/// Up to eight open transactions take steps in turn, by chance.
#[test]
fn interleaved_transactions_keep_what_their_levels_promise() {
    let seeds = number("PANDO_SEEDS", 4);
    for seed in 0..seeds {
        let mut random = Rng::with_seed(seed);
        let store = Store::new(32 << 20);
        let mut open: Vec<Open> = Vec::new();
        let mut records = Vec::new();
        while records.len() < 3000 {
            if open.len() < random.usize(1..=8) {
                open.push(store.begin(seed, &mut random));
                // Each is a client of its own: they overlap.
                let last = open.last_mut().unwrap();
                last.record.client = last.record.id;
            }
            let at = random.usize(..open.len());
            let is_over = open[at].steps == 0;
            if !is_over {
                open[at].steps -= 1;
                let step = store.step(&mut open[at], &mut random);
                assert!(step.is_ok(), "seed {seed}: {step:?}");
                continue;
            }
            let commits = random.u8(..10) > 0;
            records.push(store.end(open.swap_remove(at), commits));
            if random.u32(..100) == 0 {
                // Other work that changes leaves and no keys.
                store.db.checkpoint().unwrap();
            }
        }
        let report = judge(records, seed);
        let committed = report.committed;
        assert!((1000..2900).contains(&committed), "{committed} committed");
        // Lower levels allow some, and so many transactions at once meet them.
        let has_met = |kind| report.allowed.iter().any(|anomaly| anomaly.kind == kind);
        assert!(has_met(Kind::G2Item) && has_met(Kind::GSingle));
    }
}

/// The same in threads, with so little memory that snapshots are ended.
#[test]
fn transactions_of_threads_keep_what_their_levels_promise() {
    for seed in 0..number("PANDO_SEEDS", 4) {
        let store = Store::new(2 << 20);
        let records = run_clients(&store, seed, |_| ());
        let committed = judge(records, seed).committed;
        assert!(committed > 600, "{committed} committed");
    }
}

/// Stops a thread when it is dropped, also by a panic.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Somebody else takes the memory for old versions. Some transactions wait until one of them goes
/// on on disk.
#[test]
fn transactions_that_go_on_on_disk_keep_what_their_levels_promise() {
    for seed in 100..100 + number("PANDO_SEEDS", 4) {
        let store = Store::with(64 << 20, |options| {
            options.settle_snapshots_after(Duration::from_nanos(1))
        });
        let noise = store.db.table("noise").unwrap();
        let (over, settled) = (AtomicBool::new(false), AtomicU64::new(0));
        let records = thread::scope(|scope| {
            let stop = Stop(&over);
            let (noise, over) = (&noise, &over);
            scope.spawn(move || {
                for number in (0..8_000_u32).cycle() {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    noise.put(&number.to_be_bytes(), &[7; 300]).unwrap();
                }
            });
            let records = run_clients(&store, seed, |random| {
                if random.u32(..150) > 0 {
                    return;
                }
                for _ in 0..100_000 {
                    if store.db.snapshot_stat().settled > 0 {
                        settled.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    thread::yield_now();
                }
            });
            drop(stop);
            records
        });
        let committed = judge(records, seed).committed;
        assert!(committed > 600, "{committed} committed");
        let settled = settled.load(Ordering::Relaxed);
        assert!(
            settled > 10,
            "{settled} transactions saw another one go on on disk"
        );
    }
}

/// Runs six clients in threads, which call `pause` after some steps.
fn run_clients(store: &Store, seed: u64, pause: impl Fn(&mut Rng) + Sync) -> Vec<Record> {
    thread::scope(|scope| {
        let pause = &pause;
        let run = |client: u64| {
            move || {
                let mut random = Rng::with_seed(seed * 1000 + client);
                let mut records = Vec::new();
                for _ in 0..400 {
                    let mut open = store.begin(client, &mut random);
                    let mut is_ended = false;
                    while open.steps > 0 && !is_ended {
                        open.steps -= 1;
                        is_ended = match store.step(&mut open, &mut random) {
                            Ok(()) => false,
                            Err(Error::SnapshotEnded) => true,
                            Err(other) => panic!("{other}"),
                        };
                        pause(&mut random);
                        if random.u8(..4) == 0 {
                            thread::yield_now();
                        }
                    }
                    let commits = !is_ended && random.u8(..10) > 0;
                    records.push(store.end(open, commits));
                }
                records
            }
        };
        let threads: Vec<_> = (0..6).map(|client| scope.spawn(run(client))).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    })
}
