//! A whole run of `bench kv`: opens the store, runs the workloads one after the other, closes it.

use pando_sync::CachePadded;
use pando_sync::time::Duration;

use crate::error::Result;
use crate::kv_record::kv_record;
use crate::operations::{KvPlan, Operations};
use crate::options::{KvOptions, Workload};
use crate::phase::{self, Calls, Done, Kind, Observer, Phase};
use crate::queue;
use crate::record::Record;
use crate::store::Store;
use crate::values::Values;

/// Runs all workloads of `options`, and reports each to `observer`.
///
/// # Errors
/// Options that make no sense, errors of the engine, and reads that return something other than
/// what was written; the run ends there.
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

/// A way of making the calls of a thread; ablations have others.
pub(crate) trait CallWay: Sync {
    /// State that a thread keeps from call to call.
    type State: Default + Send;

    /// Makes the next call.
    fn call(
        &self,
        state: &mut Self::State,
        operations: &mut Operations<'_>,
        limit: u64,
    ) -> Result<Option<Done>>;
}

/// Makes the calls and nothing else.
pub(crate) struct Plainly;

impl CallWay for Plainly {
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

/// The calls of a thread, made in a way.
struct Called<'a, W: CallWay> {
    operations: Operations<'a>,
    way: &'a W,
    state: W::State,
}

impl<W: CallWay> Calls for Called<'_, W> {
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
    way: &impl CallWay,
    observer: &mut dyn Observer,
) -> Result<Record> {
    // A fill starts from an empty table, so that each fill in a list measures the same.
    if workload.is_fill() && !options.use_existing_db && !store.table.is_empty() {
        store.db.clear_tables(&[&store.table])?;
        store.set_fresh_start(None);
    }
    let fresh_start = match workload.inserts() {
        true => store.fresh_start(options)?,
        false => options.num,
    };
    let plan = CachePadded(KvPlan::new(
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

/// Runs one workload on `plans`, which differ only in their handles: a thread uses the plan at its
/// index, modulo their number.
pub(crate) fn measure(
    plans: &[CachePadded<KvPlan<'_>>],
    store: &Store,
    way: &impl CallWay,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let plan: &KvPlan<'_> = &plans[0];
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
    Ok(kv_record(plan, store, &measured, &counted))
}
