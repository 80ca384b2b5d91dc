//! A whole run of `bench kv`: opens the store, runs the workloads one after the other, closes it.

use pando_stats::Ticker;

use crate::error::Result;
use crate::operations::Plan;
use crate::options::{KvOptions, Workload};
use crate::phase::{self, Measured, Observer};
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
    let values = Values::new(options.value_bytes, options.value_compress, options.seed);
    for workload in &options.workloads {
        let record = run_one(options, *workload, &store, &values, observer)?;
        observer.record(&record)?;
    }
    store.close()
}

fn run_one(
    options: &KvOptions,
    workload: Workload,
    store: &Store,
    values: &Values,
    observer: &mut dyn Observer,
) -> Result<Record> {
    // A fill starts from nothing, so that each one of a list measures the same.
    if workload.is_fill() && !options.use_existing_db && !store.table.is_empty() {
        store.db.clear_tables(&[&store.table])?;
    }
    let plan = Plan::new(options, workload, &store.table, values);
    let mut before = store.db.statistics();
    let measured = phase::run(&plan, observer, &mut || before = store.db.statistics())?;
    let counted = store.db.statistics().since(&before);
    Ok(record(&plan, store, &measured, &counted))
}

fn record(
    plan: &Plan<'_>,
    store: &Store,
    measured: &Measured,
    counted: &pando_stats::Snapshot,
) -> Record {
    let (options, workload) = (plan.options, plan.workload);
    let report = store.db.report();
    let elapsed_s = measured.elapsed.as_secs_f64();
    let us = |share| measured.calls.percentile(share) as f64 / 1e3;
    let per_op = |ticker| counted.get(ticker) as f64 / measured.keys.max(1) as f64;
    let reads = matches!(
        workload,
        Workload::ReadRandom
            | Workload::ReadMissing
            | Workload::MultiReadRandom
            | Workload::SeekRandom
            | Workload::UpdateRandom
    );
    let writes = matches!(workload, Workload::Overwrite | Workload::DeleteRandom);
    let chooses =
        !workload.is_fill() && !matches!(workload, Workload::ReadSeq | Workload::ReadReverse);
    Record {
        workload: workload.name(),
        variant: "ours",
        threads: options.threads,
        ops_per_s: measured.keys as f64 / elapsed_s.max(1e-9),
        p50_us: us(0.5),
        p99_us: us(0.99),
        p999_us: us(0.999),
        mean_us: measured.calls.mean() / 1e3,
        max_us: measured.calls.max() as f64 / 1e3,
        io_backend: report.io_backend,
        queue_depth: report.queue_depth,
        page_size: report.page_size,
        max_memory: report.max_memory,
        page_reads_per_op: per_op(Ticker::PageReads),
        page_writes_per_op: per_op(Ticker::PageWrites),
        hits_per_op: reads.then(|| (1.0 - per_op(Ticker::Faults)).max(0.0)),
        ops: measured.keys,
        found: (!workload.is_fill() && !writes).then_some(measured.found),
        elapsed_s,
        num: options.num,
        key_size_bytes: options.key_bytes,
        value_size_bytes: options.value_bytes,
        key_kind: options.key_kind.name(),
        batch: (plan.call_keys() > 1).then_some(options.batch),
        durability: options.durability_name(),
        distribution: chooses.then(|| options.distribution.name()),
        seed: options.seed,
        rate_ops_per_s: options.rate,
        interval_s: options.interval.map(|interval| interval.as_secs_f64()),
        interval_ops_per_s: options.interval.map(|_| measured.series.clone()),
        tickers: counted
            .iter()
            .map(|(ticker, count)| (ticker.name(), ticker.unit(), count))
            .collect(),
    }
}
