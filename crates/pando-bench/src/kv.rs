//! A whole run of `bench kv`: opens the store, runs the workloads one after the other, closes it.

use pando_stats::Ticker;
use pando_sync::CachePadded;
use pando_sync::time::Duration;

use crate::error::Result;
use crate::operations::{Operations, Plan};
use crate::options::{KvOptions, Workload};
use crate::phase::{self, Calls, Done, Kind, Measured, Observer, Phase};
use crate::queue;
use crate::record::Record;
use crate::store::Store;
use crate::values::Values;

/// Runs all workloads of `options`; `observer` is told of each.
///
/// # Errors
/// Options that make no sense, errors of the engine, and reads that return something else than was
/// written: the run ends there.
pub fn run(options: &KvOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let store = Store::open(options)?;
    let values = Values::sized(options.value_sizes, options.value_compress, options.seed);
    for workload in &options.workloads {
        let record = match workload {
            Workload::Queue => queue::run(options, &store, &values, observer)?,
            _ => run_one(options, *workload, &store, &values, &Plainly, observer)?,
        };
        observer.record(&record)?;
    }
    store.close()
}

/// A way of doing the calls of a thread.
pub(crate) trait Way: Sync {
    /// What a thread keeps from call to call.
    type State: Default + Send;

    /// The next call.
    fn call(
        &self,
        state: &mut Self::State,
        operations: &mut Operations<'_>,
        limit: u64,
    ) -> Result<Option<Done>>;
}

/// The calls and nothing else.
pub(crate) struct Plainly;

impl Way for Plainly {
    type State = ();

    fn call(
        &self,
        _state: &mut (),
        operations: &mut Operations<'_>,
        limit: u64,
    ) -> Result<Option<Done>> {
        operations.call(limit)
    }
}

/// The calls of a thread, done in a way.
struct Called<'a, W: Way> {
    operations: Operations<'a>,
    way: &'a W,
    state: W::State,
}

impl<W: Way> Calls for Called<'_, W> {
    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        self.way.call(&mut self.state, &mut self.operations, limit)
    }

    fn kind(&self) -> Option<Kind> {
        self.operations.kind()
    }

    fn turn(&self) -> Option<u64> {
        let plan = self.operations.plan;
        plan.options.checkpoint_interval?;
        Some(plan.table.db().checkpoint_progress().turn)
    }
}

/// Runs one workload on an open store.
pub(crate) fn run_one(
    options: &KvOptions,
    workload: Workload,
    store: &Store,
    values: &Values,
    way: &impl Way,
    observer: &mut dyn Observer,
) -> Result<Record> {
    // A fill starts from nothing, so that each one of a list measures the same.
    if workload.is_fill() && !options.use_existing_db && !store.table.is_empty() {
        store.db.clear_tables(&[&store.table])?;
        store.set_fresh_start(None);
    }
    let fresh_start = match workload.inserts() {
        true => store.fresh_start(options)?,
        false => options.num,
    };
    let plan = CachePadded(Plan::new(
        options,
        workload,
        &store.table,
        values,
        fresh_start,
    ));
    let record = measure(std::slice::from_ref(&plan), store, way, observer)?;
    if workload.inserts() {
        store.set_fresh_start(Some(plan.fresh.end()));
    }
    Ok(record)
}

/// Runs one workload as `plans` say, which are the same but for their handles: a thread uses the
/// one of its index, and one without goes round.
pub(crate) fn measure(
    plans: &[CachePadded<Plan<'_>>],
    store: &Store,
    way: &impl Way,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let plan: &Plan<'_> = &plans[0];
    let (options, workload) = (plan.options, plan.workload);
    let phase = Phase {
        name: workload.name(),
        threads: options.threads,
        beside: workload.is_beside(),
        total: match (workload.is_fill(), options.duration) {
            (true, _) => Some(options.num),
            (false, None) => Some(options.ops.unwrap_or(options.num)),
            (false, Some(_)) => None,
        },
        duration: options.duration.filter(|_| !workload.is_fill()),
        warmup: match workload.is_fill() {
            true => Duration::ZERO,
            false => options.warmup,
        },
        interval: options.interval,
        rate: options.rate,
        call_ops: plan.call_keys(),
    };
    let mut before = store.db.statistics();
    let make = |index: usize| {
        Ok(Called {
            operations: Operations::new(&plans[index % plans.len()], index),
            way,
            state: Default::default(),
        })
    };
    let measured = phase::run(&phase, make, observer, &mut || {
        before = store.db.statistics()
    })?;
    let counted = store.db.statistics().since(&before);
    Ok(record(plan, store, &measured, &counted))
}

/// Whether pages that are read belong to the operations that are counted.
fn reads_keys(workload: Workload) -> bool {
    matches!(
        workload,
        Workload::ReadRandom
            | Workload::ReadMissing
            | Workload::MultiReadRandom
            | Workload::SeekRandom
            | Workload::UpdateRandom
            | Workload::YcsbA
            | Workload::YcsbB
            | Workload::YcsbC
            | Workload::YcsbD
            | Workload::YcsbF
    )
}

/// The record of `plan`, run on `store`.
pub(crate) fn record(
    plan: &Plan<'_>,
    store: &Store,
    measured: &Measured,
    counted: &pando_stats::Snapshot,
) -> Record {
    let (options, workload) = (plan.options, plan.workload);
    let report = store.db.report();
    let all = (measured.ops + measured.beside_ops).max(1);
    let per_op = |ticker| counted.get(ticker) as f64 / all as f64;
    let writes = matches!(workload, Workload::Overwrite | Workload::DeleteRandom);
    let chooses = !workload.is_fill()
        && !matches!(
            workload,
            Workload::ReadSeq | Workload::ReadReverse | Workload::Queue
        );
    let mut record = Record::new(workload.name(), "ours", options.threads, options.seed);
    record.set_measured(measured);
    record.set_engine(&report);
    record.page_reads_per_op = Some(per_op(Ticker::PageReads));
    record.page_writes_per_op = Some(per_op(Ticker::PageWrites));
    let (gets, missed) = (
        counted.get(Ticker::Gets) as f64,
        counted.get(Ticker::GetsMissed) as f64,
    );
    if reads_keys(workload) && gets > 0.0 {
        record.hits_per_op = Some((1.0 - missed / gets).max(0.0));
        // Writes read pages, too, and count no misses.
        let is_plain = missed > 0.0 && measured.writes.count() == 0;
        record.page_reads_per_miss =
            is_plain.then(|| counted.get(Ticker::PageReads) as f64 / missed);
    }
    record.found = (!workload.is_fill() && !writes).then_some(measured.found);
    record.beside_ops_per_s = workload
        .is_beside()
        .then(|| measured.beside_ops as f64 / measured.elapsed.as_secs_f64().max(1e-9));
    record.num = Some(options.num);
    record.key_size_bytes = Some(options.key_bytes);
    record.set_value_sizes(options.value_sizes);
    record.key_kind = Some(options.key_kind.name());
    record.batch = (plan.call_keys() > 1).then_some(options.batch);
    record.durability = Some(options.durability_name());
    record.distribution = chooses.then(|| plan.chooser.distribution().name());
    record.rate_ops_per_s = options.rate;
    record.interval_s = options.interval.map(|interval| interval.as_secs_f64());
    record.checkpoint_interval_s = options.checkpoint_interval.map(|every| every.as_secs_f64());
    record.tickers = counted
        .iter()
        .map(|(ticker, count)| (ticker.name(), ticker.unit(), count))
        .collect();
    record
}
