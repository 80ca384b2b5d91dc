//! A whole run of `bench iso`.

use pando_sync::CachePadded;
use pando_sync::time::Duration;
use pandodb::Table;

use super::options::{IsoOptions, IsoVariant};
use crate::error::Result;
use crate::kv::{self, Plainly};
use crate::operations::Plan;
use crate::options::{KvOptions, Workload};
use crate::phase::Observer;
use crate::record::Record;
use crate::store::Store;
use crate::values::Values;

/// Fills a store, or reads all of one that is there, and measures both variants with each number
/// of threads; `observer` is told of each turn.
///
/// # Errors
/// Options that make no sense, errors of the engine, and reads that return something else than was
/// written: the run ends there.
pub fn run(options: &IsoOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let once = KvOptions {
        duration: None,
        ops: None,
        warmup: Duration::ZERO,
        rate: None,
        interval: None,
        ..options.turn(1)
    };
    let store = Store::open(&once)?;
    let values = Values::sized(once.value_sizes, once.value_compress, once.seed);
    let first = match once.use_existing_db {
        true => Workload::ReadSeq,
        false => Workload::FillSeq,
    };
    kv::run_one(&once, first, &store, &values, &Plainly, observer)?;
    let mut of_one: [Option<f64>; 2] = [None, None];
    for threads in &options.threads {
        let turn = options.turn(*threads);
        for (variant, of_one) in IsoVariant::ALL.into_iter().zip(&mut of_one) {
            let mut record = run_one(&turn, variant, &store, &values, observer)?;
            if *threads == 1 {
                *of_one = Some(record.ops_per_s);
            }
            record.speed_to_one_thread = of_one.map(|one| record.ops_per_s / one.max(1e-9));
            if record.hits_per_op.is_some_and(|hits| hits < 1.0) {
                let more = "a larger --max-memory answers all of them";
                observer.note(&format!("some reads went to the device: {more}"));
            }
            observer.record(&record)?;
        }
    }
    store.close()
}

fn run_one(
    options: &KvOptions,
    variant: IsoVariant,
    store: &Store,
    values: &Values,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let own: Vec<CachePadded<Table>> = match variant {
        IsoVariant::SharedHandle => Vec::new(),
        IsoVariant::OwnHandle => (0..options.threads)
            .map(|_| store.handle().map(CachePadded))
            .collect::<Result<_>>()?,
    };
    let plan = |table| {
        let plan = Plan::new(options, Workload::ReadRandom, table, values, options.num);
        CachePadded(plan)
    };
    let plans: Vec<_> = match variant {
        IsoVariant::SharedHandle => vec![plan(&store.table)],
        IsoVariant::OwnHandle => own.iter().map(|table| plan(table)).collect(),
    };
    let mut record = kv::measure(&plans, store, &Plainly, observer)?;
    record.variant = variant.name();
    Ok(record)
}
