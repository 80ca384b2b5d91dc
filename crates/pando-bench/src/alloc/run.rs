//! A whole run of `bench alloc`.

use super::allocator::{Allocator, WORKLOAD, ours};
use super::options::AllocOptions;
use super::state::State;
use super::turns::{self, BATCH, Timed};
use crate::error::Result;
use crate::phase::{Measured, Observer};
use crate::record::Record;

/// Runs all fills, fragmentations and numbers of threads of `options`, and reports each to
/// `observer`.
///
/// # Errors
/// Options that make no sense, and an allocator that finds no block although some are free.
pub fn run(options: &AllocOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let blocks = options.blocks();
    for fragmented in &options.fragmented {
        for fill_percent in &options.fill_percent {
            let state = State {
                blocks,
                fill_percent: *fill_percent,
                fragmented: *fragmented,
                seed: options.seed,
            };
            let space = ours(blocks);
            let mut sample = state.build(&space)?;
            for threads in &options.threads {
                let record = run_one(options, &state, &space, &mut sample, *threads)?;
                observer.record(&record)?;
            }
        }
    }
    Ok(())
}

/// Measures `allocator`, which is in `state`, with `threads` threads.
pub(crate) fn run_one(
    options: &AllocOptions,
    state: &State,
    allocator: &impl Allocator,
    sample: &mut Vec<u32>,
    threads: usize,
) -> Result<Record> {
    let bounded = allocator.searches_bounded();
    let timed = turns::run(allocator, sample, threads, options.num, options.seed)?;
    let mut record = record_of(&timed, threads, options.seed);
    record.fill_percent = Some(state.fill_percent);
    record.fragmented = Some(state.fragmented);
    record.size_bytes = Some(options.size_bytes);
    record.block_size_bytes = usize::try_from(options.block_bytes).ok();
    record.searches_bounded = allocator
        .searches_bounded()
        .zip(bounded)
        .map(|(after, before)| after - before);
    Ok(record)
}

fn record_of(timed: &Timed, threads: usize, seed: u64) -> Record {
    let measured = Measured {
        ops: timed.ops,
        elapsed: timed.elapsed,
        calls: timed.singles.clone(),
        counts: timed.counts,
        ..Measured::default()
    };
    let mut record = Record::new(WORKLOAD, "ours", threads, seed);
    record.set_measured(&measured);
    let of_batch = |ns: u64| Some(ns as f64 / BATCH as f64);
    record.p50_ns = of_batch(timed.batches.percentile(0.5));
    record.p999_ns = Some(timed.singles.percentile(0.999) as f64);
    record.free_p50_ns = of_batch(timed.free_batches.percentile(0.5));
    record
}
