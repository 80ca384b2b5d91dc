//! A whole run of `bench pool`.

use pando_device::{ChannelOptions, Device};
use pando_format::PageSize;
use pando_stats::Ticker;

use super::null::NullChannel;
use super::options::{PoolOptions, PoolWorkload};
use super::pages::Pages;
use super::parking::Slots;
use super::pending::{Pending, PoolPlan};
use crate::error::{Error, Result};
use crate::phase::{self, Observer, Phase};
use crate::record::Record;

/// Runs all workloads of `options`, and reports each to `observer`.
///
/// # Errors
/// Options that make no sense, and pages with wrong contents; the run ends there.
pub fn run(options: &PoolOptions, observer: &mut dyn Observer) -> Result<()> {
    let page_size = options.check()?;
    for workload in &options.workloads {
        let record = run_one(options, page_size, *workload, observer)?;
        observer.record(&record)?;
    }
    Ok(())
}

fn run_one(
    options: &PoolOptions,
    page_size: PageSize,
    workload: PoolWorkload,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let pages = Pages::new(options, page_size, workload, observer)?;
    let plan = PoolPlan {
        workload,
        pages: &pages,
        pages_count: options.pages(),
        page_bytes: options.page_bytes,
        queue_depth: options.queue_depth,
        seed: options.seed,
    };
    let phase = Phase {
        name: workload.name(),
        threads: options.threads,
        beside: false,
        total: options.duration.is_none().then_some(options.num),
        duration: options.duration,
        warmup: options.warmup,
        interval: options.interval,
        rate: None,
        call_ops: 1,
    };
    let statistics = || pages.pool.statistics().totals();
    let mut before = statistics();
    let mut measuring = || before = statistics();
    let depth = options.queue_depth;
    let measured = match workload {
        PoolWorkload::Null => {
            let make = |index| {
                let parking = Slots::new(depth);
                Ok(Pending::new(&plan, NullChannel::new(depth), parking, index))
            };
            phase::run(&phase, make, observer, &mut measuring)?
        }
        PoolWorkload::Memory => {
            let make = |index| {
                let how = ChannelOptions::new(depth);
                let channel = pages
                    .device
                    .channel(how)
                    .map_err(Error::device("making an I/O channel"))?;
                Ok(Pending::new(&plan, channel, Slots::new(depth), index))
            };
            phase::run(&phase, make, observer, &mut measuring)?
        }
    };
    let counted = statistics().since(&before);
    let reads = counted.get(Ticker::PageReads) as f64;
    let mut record = Record::new(workload.name(), "ours", options.threads, options.seed);
    record.set_measured(&measured);
    record.io_backend = Some(workload.name().to_owned());
    record.queue_depth = Some(depth);
    record.page_size = Some(options.page_bytes);
    record.max_memory = Some(options.max_memory);
    record.size_bytes = Some(options.pages() * options.page_bytes as u64);
    record.frames = Some(options.frames());
    record.page_reads_per_op = Some(reads / measured.ops.max(1) as f64);
    // Look-ups that found their page at once are not operations here.
    let looks = measured.ops + measured.found;
    record.hits_per_look = Some(measured.found as f64 / looks.max(1) as f64);
    record.interval_s = options.interval.map(|interval| interval.as_secs_f64());
    record.tickers = counted
        .iter()
        .map(|(ticker, count)| (ticker.name(), ticker.unit(), count))
        .collect();
    Ok(record)
}
