//! A whole run of `bench report`.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{CachePadded, thread};

use super::memory;
use super::options::ReportOptions;
use super::scan::{Found, Scan, Scanned, all_of};
use crate::error::{Error, Result};
use crate::kv::{self, CallWay, Plainly};
use crate::operations::{KvPlan, Operations};
use crate::options::{KvOptions, Workload};
use crate::phase::{Done, Observer};
use crate::record::Record;
use crate::store::Store;
use crate::values::Values;

/// Name of the workload in records.
const REPORT: &str = "report";

/// Fills a store, unless there is one; lets the writers run alone; reads all entries; lets the
/// writers run beside scans at a snapshot of these entries. Reports the three turns to `observer`.
///
/// # Errors
/// Options that make no sense, errors of the engine, a snapshot that ends, and a pass that finds
/// other entries than those of its moment.
pub fn run(options: &ReportOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let kv = options.turn();
    let store = Store::open(&kv)?;
    let values = Values::sized(kv.value_sizes, kv.value_compress, kv.seed);
    if !kv.use_existing_db {
        let once = KvOptions {
            workloads: vec![Workload::FillSeq],
            threads: 1,
            batch: options.kv.batch,
            rate: None,
            interval: None,
            ..kv.clone()
        };
        let fill = Workload::FillSeq;
        kv::run_one(&once, fill, &store, &values, &Plainly, observer)?;
    }
    let turns = Turns {
        settled: options.settled,
        kv: &kv,
        store: &store,
        values: &values,
    };
    let alone = turns.alone(observer)?;
    observer.record(&alone)?;
    let (expected, scan) = turns.scan_alone(observer)?;
    observer.record(&scan)?;
    let beside = turns.beside(expected, &alone, observer)?;
    observer.record(&beside)?;
    store.close()
}

struct Turns<'a> {
    settled: bool,
    kv: &'a KvOptions,
    store: &'a Store,
    values: &'a Values,
}

impl Turns<'_> {
    /// The writers, and nobody else.
    fn alone(&self, observer: &mut dyn Observer) -> Result<Record> {
        let mut record = self.write(&AtomicBool::new(false), observer)?;
        record.variant = "alone";
        Ok(record)
    }

    /// One pass while nobody writes: what is there.
    fn scan_alone(&self, observer: &mut dyn Observer) -> Result<(Found, Record)> {
        self.store.db.checkpoint()?;
        memory::forget_peak();
        let (start, num) = (time::now(), self.kv.num.max(1));
        let found = all_of(&self.store.table, |entries| {
            let rate = entries as f64 / start.elapsed().as_secs_f64().max(1e-9);
            let share = (entries as f64 / num as f64).min(1.0);
            observer.progress("reading all entries", share, rate);
        })?;
        let elapsed = start.elapsed();
        if !self.kv.use_existing_db && found.entries != self.kv.num {
            let what = format!("{} entries of {} are there", found.entries, self.kv.num);
            return Err(Error::Wrong {
                workload: REPORT,
                what,
            });
        }
        let mut record = Record::new(REPORT, "scan-alone", 1, self.kv.seed);
        record.set_engine(&self.store.db.report());
        record.num = Some(self.kv.num);
        record.resident_bytes_max = memory::peak();
        let scanned = Scanned {
            passes: 1,
            entries: found.entries,
            elapsed,
            settled_after: None,
            checked: 0,
        };
        record.elapsed_s = elapsed.as_secs_f64();
        record.ops = found.entries;
        record.ops_per_s = found.entries as f64 / record.elapsed_s.max(1e-9);
        set_scanned(&mut record, &scanned);
        Ok((found, record))
    }

    /// The writers beside a thread that scans at a snapshot, which must find `expected`.
    fn beside(
        &self,
        expected: Found,
        alone: &Record,
        observer: &mut dyn Observer,
    ) -> Result<Record> {
        let db = &self.store.db;
        let snapshot = match self.settled {
            true => db.snapshot_settled()?,
            false => db.snapshot()?,
        };
        let (is_over, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        let scan = Scan {
            table: &self.store.table,
            snapshot: &snapshot,
            expected,
            is_over: &is_over,
            has_failed: &has_failed,
        };
        let (record, held_bytes, scanned) = thread::scope(|scope| {
            let scanning = scope.spawn(|| scan.run());
            let record = {
                let _over = Over(&is_over);
                self.write(&has_failed, observer)
            };
            let held_bytes = db.snapshot_stat().held_bytes;
            (record, held_bytes, scanning.join())
        });
        let scanned = scanned.expect("the scanning thread panicked")?;
        let mut record = record?;
        record.variant = match self.settled {
            true => "settled",
            false => "young",
        };
        record.speed_to_first_variant = Some(record.ops_per_s / alone.ops_per_s.max(1e-9));
        record.held_bytes_max = Some(held_bytes);
        set_scanned(&mut record, &scanned);
        let checked = scanned.checked;
        observer.note(&format!("{checked} passes had the entries of the snapshot"));
        Ok(record)
    }

    /// Lets the writers run for the duration.
    fn write(&self, has_failed: &AtomicBool, observer: &mut dyn Observer) -> Result<Record> {
        self.store.db.checkpoint()?;
        memory::forget_peak();
        let table = &self.store.table;
        let workload = Workload::Overwrite;
        let plan = KvPlan::new(self.kv, workload, table, self.values, self.kv.num);
        let plans = [CachePadded(plan)];
        let mut record = kv::measure(&plans, self.store, &Puts { has_failed }, observer)?;
        record.workload = REPORT;
        record.resident_bytes_max = memory::peak();
        Ok(record)
    }
}

fn set_scanned(record: &mut Record, scanned: &Scanned) {
    let seconds = |time: Duration| time.as_secs_f64();
    record.scan_passes = Some(scanned.passes);
    record.scan_entries = Some(scanned.entries);
    record.scan_entries_per_s = Some(scanned.entries as f64 / seconds(scanned.elapsed).max(1e-9));
    record.settled_after_s = scanned.settled_after.map(seconds);
}

/// Ends the scan on drop.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts of random keys, a commit each, until a pass has failed.
struct Puts<'a> {
    has_failed: &'a AtomicBool,
}

impl CallWay for Puts<'_> {
    type State = ();

    fn call(
        &self,
        _state: &mut (),
        operations: &mut Operations<'_>,
        _limit: u64,
    ) -> Result<Option<Done>> {
        match self.has_failed.load(Ordering::Relaxed) {
            true => Ok(None),
            false => operations.put_chosen().map(Some),
        }
    }
}
