//! The record of a workload over an open store.

use pando_stats::Ticker;

use crate::measured::Measured;
use crate::operations::KvPlan;
use crate::options::Workload;
use crate::record::Record;
use crate::store::Store;

/// Returns true if the pages that are read belong to the operations that are counted.
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

/// Returns the record of `plan`, run on `store`.
pub(crate) fn kv_record(
    plan: &KvPlan<'_>,
    store: &Store,
    measured: &Measured,
    counted: &pando_stats::Totals,
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
        // Writes read pages, too, but count no misses.
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
