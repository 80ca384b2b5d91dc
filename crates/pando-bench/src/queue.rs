//! `queue`: a push at the tail and a pop at the head, over and over, with a constant number of
//! entries.
//!
//! Entries are deleted where the next pop looks first, and written where none were. So the figures
//! are reported for each tenth of the run: if a store keeps deleted entries, it grows and its pops
//! slow down for as long as it runs.

use std::path::Path;

use pando_stats::Histogram;
use pando_sync::time::{self, Duration};
use pando_sync::{Mutex, Rank};
use pandodb::{Batch, Db, Iter, Table, ValueStream, WriteOptions};

use crate::error::Result;
use crate::kv_record::kv_record;
use crate::operations::{KvPlan, check_value};
use crate::options::KvOptions;
use crate::phase::{self, Calls, Done, Observer, Phase};
use crate::record::Record;
use crate::store::{Store, disk_bytes};
use crate::values::Values;
use crate::workload::Workload;

/// Number of parts of a run that have figures of their own.
const PARTS: u64 = 10;
/// Number of times that the size of the store is read in each part.
const LOOKS: u64 = 50;
/// Name of the table, besides the queue, that the old reader reads.
const OLD_TABLE: &str = "old";
const OLD_KEY: &[u8] = b"value";
/// Length of the value that it reads: several chunks.
const OLD_BYTES: usize = 4 << 20;
/// Number of its bytes that are read before the run.
const OLD_BEGIN: usize = 4096;

/// Runs it on `table` of an open store, which is empty before and after.
pub(crate) fn run(
    options: &KvOptions,
    store: &Store,
    values: &Values,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let table = &store.table;
    store.db.clear_tables(&[table])?;
    let plan = KvPlan::new(options, Workload::Queue, table, values, 0);
    fill(&plan)?;
    let old_table = match options.old_reader {
        true => Some(old_table(&plan, store)?),
        false => None,
    };
    let phase = Phase {
        name: Workload::Queue.name(),
        threads: 1,
        beside: false,
        total: Some(plan.pops()),
        duration: None,
        warmup: Duration::ZERO,
        interval: options.interval,
        rate: options.rate,
        call_ops: 1,
    };
    let parts = Mutex::new(Rank::Leaf, Vec::new());
    let before = store.db.statistics();
    let (db, path) = (&store.db, store.path());
    let make = |_| {
        Ok(Queue {
            plan: &plan,
            db,
            path,
            old: old_table
                .as_ref()
                .map(|old| Old::new(&plan, old))
                .transpose()?,
            popped: 0,
            key: Vec::new(),
            value: Vec::new(),
            scratch: Vec::new(),
            times: Histogram::default(),
            part: Part::default(),
            parts: &parts,
        })
    };
    let measured = phase::run(&phase, make, observer, &mut || ())?;
    let counted = store.db.statistics().since(&before);
    store.db.clear_tables(&[table])?;
    store.set_fresh_start(None);
    if old_table.is_some() {
        store.db.drop_table(OLD_TABLE)?;
    }
    let mut record = kv_record(&plan, store, &measured, &counted);
    record.found = Some(measured.found);
    record.queue_length = Some(options.queue_length);
    record.old_reader = Some(options.old_reader);
    let parts = std::mem::take(&mut *parts.lock());
    record.part_pop_mean_us = Some(parts.iter().map(Part::mean_us).collect());
    let sizes = |figure: fn(&Part) -> u64| parts.iter().map(figure).collect::<Vec<u64>>();
    record.part_data_bytes_max = Some(sizes(|part| part.data_bytes));
    record.part_data_used_bytes_max = Some(sizes(|part| part.used_bytes));
    record.part_disk_bytes_max = store.path().map(|_| sizes(|part| part.disk_bytes));
    record.pop_last_to_first = last_to_first(&parts);
    Ok(record)
}

/// Returns the mean time of a pop in the last fifth, relative to that in the first fifth.
fn last_to_first(parts: &[Part]) -> Option<f64> {
    let mean = |parts: &[Part]| {
        let ns: u64 = parts.iter().map(|part| part.ns).sum();
        let pops: u64 = parts.iter().map(|part| part.pops).sum();
        (pops > 0).then(|| ns as f64 / pops as f64)
    };
    let fifth = parts.len().div_ceil(5);
    let last = mean(&parts[parts.len() - fifth..])?;
    Some(last / mean(&parts[..fifth])?)
}

impl KvPlan<'_> {
    /// Returns the number of pops in the whole run.
    fn pops(&self) -> u64 {
        self.options.ops.unwrap_or(self.options.num)
    }
}

/// Pushes the entries that the queue keeps.
fn fill(plan: &KvPlan<'_>) -> Result<()> {
    let (mut key, mut value, mut batch) = (Vec::new(), Vec::new(), Batch::new());
    for number in 0..plan.options.queue_length {
        plan.keys.write(number, &mut key);
        plan.values.write(number, 0, &mut value);
        batch.put(plan.table, &key, &value);
        if batch.len() as u64 >= plan.options.batch {
            plan.table.db().write(&mut batch, WriteOptions::default())?;
            batch.clear();
        }
    }
    Ok(plan.table.db().write(&mut batch, WriteOptions::default())?)
}

fn old_value(plan: &KvPlan<'_>) -> Vec<u8> {
    let values = Values::new(OLD_BYTES, 1.0, plan.options.seed);
    let mut value = Vec::new();
    values.write(0, 0, &mut value);
    value
}

/// Creates a table with a value in chunks.
fn old_table(plan: &KvPlan<'_>, store: &Store) -> Result<Table> {
    let table = store.db.table(OLD_TABLE)?;
    table.put(OLD_KEY, &old_value(plan))?;
    Ok(table)
}

/// A reader that begins before the first pop and ends after the last one: an iterator over the
/// queue, and a reader of a value in chunks that is deleted in the meantime.
struct Old<'a> {
    iter: Iter<'a>,
    first: Vec<u8>,
    stream: ValueStream,
    expected: Vec<u8>,
}

impl<'a> Old<'a> {
    fn new(plan: &KvPlan<'a>, table: &Table) -> Result<Self> {
        let mut iter = plan.table.iter();
        let first = iter.next().transpose()?;
        let stream = table.get_reader(OLD_KEY)?;
        let (Some((first, _)), Some(mut stream)) = (first, stream) else {
            return Err(plan.wrong("an old reader finds nothing".to_owned()));
        };
        stream.read_at(0, &mut [0; OLD_BEGIN])?;
        table.delete(OLD_KEY)?;
        Ok(Self {
            iter,
            first,
            stream,
            expected: old_value(plan),
        })
    }

    /// Continues to read where it stopped.
    fn end(mut self, plan: &KvPlan<'_>) -> Result<()> {
        let mut value = vec![0; self.expected.len()];
        let bytes = self.stream.read_at(0, &mut value)?;
        if bytes != value.len() || value != self.expected {
            return Err(plan.wrong(format!("an old reader read {bytes} bytes of another value")));
        }
        let rest = (&mut self.iter).map(|entry| entry.map(|(key, _)| key));
        let rest = rest.collect::<pandodb::Result<Vec<_>>>()?;
        let is_there = |key: &Vec<u8>| *key > self.first;
        if !rest.is_sorted() || !rest.iter().all(is_there) {
            return Err(plan.wrong(format!("an old iterator went from {:?} back", self.first)));
        }
        Ok(())
    }
}

/// Figures of a part of the run.
#[derive(Debug, Clone, Default)]
struct Part {
    pops: u64,
    /// Time of its pops, without the pushes between them.
    ns: u64,
    /// Size of the data file.
    data_bytes: u64,
    /// Bytes of it that are not free.
    used_bytes: u64,
    /// Size of all files of the store, as the file system reports it.
    disk_bytes: u64,
}

impl Part {
    fn mean_us(&self) -> f64 {
        self.ns as f64 / 1e3 / self.pops.max(1) as f64
    }

    /// Records the size of the store.
    fn look(&mut self, db: &Db, path: Option<&Path>) -> Result<()> {
        let report = db.report();
        self.data_bytes = self.data_bytes.max(report.data_bytes);
        let used = report.data_bytes.saturating_sub(report.data_free_bytes);
        self.used_bytes = self.used_bytes.max(used);
        if let Some(path) = path {
            self.disk_bytes = self.disk_bytes.max(disk_bytes(path)?);
        }
        Ok(())
    }
}

/// The calls of the only thread: each is a push and a pop, timed by the pop.
struct Queue<'a> {
    plan: &'a KvPlan<'a>,
    db: &'a Db,
    path: Option<&'a Path>,
    old: Option<Old<'a>>,
    popped: u64,
    key: Vec<u8>,
    value: Vec<u8>,
    scratch: Vec<u8>,
    times: Histogram,
    /// The current part.
    part: Part,
    /// The earlier parts.
    parts: &'a Mutex<Vec<Part>>,
}

impl Queue<'_> {
    fn push(&mut self, number: u64) -> Result<()> {
        self.plan.keys.write(number, &mut self.key);
        self.plan.values.write(number, 0, &mut self.value);
        Ok(self.plan.table.put(&self.key, &self.value)?)
    }

    /// Reads and deletes the first entry, which must be entry `number`.
    fn pop(&mut self, number: u64) -> Result<()> {
        let plan = self.plan;
        let first = plan.table.iter().next().transpose()?;
        let Some((key, value)) = first else {
            return Err(plan.wrong(format!("the queue is empty before entry {number}")));
        };
        if plan.keys.number(&key) != Some(number) {
            return Err(plan.wrong(format!("{key:?} came in the place of entry {number}")));
        }
        if !plan.table.delete(&key)? {
            return Err(plan.wrong(format!("entry {number} was gone when it was popped")));
        }
        check_value(plan, number, &value, &mut self.scratch)
    }

    /// Called after each pop: reads sizes now and then, and ends the part.
    fn look(&mut self) -> Result<()> {
        let pops = self.plan.pops();
        let part_of = |pop: u64| u128::from(pop) * u128::from(PARTS) / u128::from(pops);
        let step = (pops / (PARTS * LOOKS)).max(1);
        let ends = part_of(self.popped) != part_of(self.popped - 1);
        if ends || self.popped.is_multiple_of(step) {
            self.part.look(self.db, self.path)?;
        }
        if ends {
            self.parts.lock().push(std::mem::take(&mut self.part));
        }
        Ok(())
    }
}

impl Calls for Queue<'_> {
    fn call(&mut self, _limit: u64) -> Result<Option<Done>> {
        if self.popped == self.plan.pops() {
            return Ok(None);
        }
        self.push(self.plan.options.queue_length + self.popped)?;
        let start = time::now();
        self.pop(self.popped)?;
        let ns = start.elapsed().as_nanos();
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        self.times.add(ns);
        self.popped += 1;
        self.part.pops += 1;
        self.part.ns += ns;
        self.look()?;
        Ok(Some(Done { ops: 1, found: 1 }))
    }

    fn end(&mut self) -> Result<()> {
        match self.old.take() {
            Some(old) => old.end(self.plan),
            None => Ok(()),
        }
    }

    fn times(&mut self) -> Option<Histogram> {
        Some(std::mem::take(&mut self.times))
    }
}
