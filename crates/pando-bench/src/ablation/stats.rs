//! `stats`: counters by core with a lock prefix and without, beside one for all threads and one for
//! each thread.
//!
//! `tick` adds to eight tickers in turn, `measure` adds to a histogram, `query` (in `queries`) sums
//! all tickers up while many threads tick. What an addition costs is the processor time of the
//! threads that add, so that threads beyond the cores do not count as slow. Nothing is lost: the
//! sums are looked at.

use std::cell::Cell;
use std::hint::black_box;

use pando_stats::scale::{BUCKETS, bucket_of};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration};

use super::counters::{CountingWay, SharedCounters, TICKED, TICKERS, Work, with};
use super::options::AblationOptions;
use super::queries;
use super::rounds::{self, Variant};
use crate::error::{Error, Result};
use crate::phase::{Measured, Observer};
use crate::record::Record;

/// A histogram: buckets and a sum.
pub(super) const RECORDER: usize = BUCKETS + 1;
/// Threads of `tick` and `measure`, unless options say.
const THREADS: [usize; 3] = [1, 2, 32];
/// Live threads of `query`, unless options say.
const LIVE: [usize; 4] = [1, 64, 1024, 4096];

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let ways: Vec<CountingWay> = CountingWay::ALL
        .into_iter()
        .filter(|way| way.is_here())
        .collect();
    for way in CountingWay::ALL
        .into_iter()
        .filter(|way| !ways.contains(way))
    {
        let (name, about) = way.names();
        observer.note(&format!("absent on this machine: {name} ({about})"));
    }
    let chosen = |defaults: &[usize]| match options.threads.is_empty() {
        true => defaults.to_vec(),
        false => options.threads.clone(),
    };
    type Turn = fn(&AblationOptions, CountingWay, usize) -> Result<Record>;
    let workloads: [(Turn, &[usize]); 3] = [
        (tick, &THREADS),
        (measure, &THREADS),
        (queries::query, &LIVE),
    ];
    for (turn, defaults) in workloads {
        for threads in chosen(defaults) {
            let variants = variants(&ways);
            let mut turn = |index: usize, _: &mut dyn Observer| turn(options, ways[index], threads);
            rounds::run(options, &variants, &mut turn, observer)?;
        }
    }
    Ok(())
}

/// The last one is the product's.
fn variants(ways: &[CountingWay]) -> Vec<Variant> {
    let variant = |(index, way): (usize, &CountingWay)| {
        let (name, about) = way.names();
        Variant {
            name,
            about,
            is_ours: index + 1 == ways.len(),
        }
    };
    ways.iter().enumerate().map(variant).collect()
}

/// Calls `each` on all threads at once; the processor time that it took them, and the whole time.
fn on_threads(threads: usize, each: impl Fn() + Sync) -> (Duration, Duration) {
    let timed = || {
        let before = time::used_by_thread();
        each();
        time::used_by_thread() - before
    };
    let begun = time::now();
    let used = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(timed)).collect();
        // Joined, so that what ends with a thread has ended.
        let used = |handle: thread::ScopedJoinHandle<'_, _>| handle.join().expect("no panic");
        handles.into_iter().map(used).sum::<Duration>()
    });
    (used, begun.elapsed())
}

/// Adds one to each of the eight tickers in turn, `each` times in all. The words are constants, as
/// they are in the product.
#[inline(always)]
fn turns(each: u64, add: impl Fn(usize)) {
    for _ in 0..each / TICKED as u64 {
        add(0);
        add(1);
        add(2);
        add(3);
        add(4);
        add(5);
        add(6);
        add(7);
    }
}

/// Ticks `each` times on each thread.
struct Ticking {
    threads: usize,
    each: u64,
}

impl Work for Ticking {
    type Output = (Duration, Duration, u64);

    fn run(self, counters: &impl SharedCounters) -> Self::Output {
        let (used, elapsed) = on_threads(self.threads, || {
            turns(self.each, |word| counters.add(word, 1));
        });
        let mut sums = [0; TICKERS];
        counters.add_sums(&mut sums);
        (used, elapsed, sums.iter().sum())
    }
}

/// Records `each` values on each thread.
struct Measuring {
    threads: usize,
    each: u64,
}

impl Work for Measuring {
    type Output = (Duration, Duration, u64);

    fn run(self, counters: &impl SharedCounters) -> Self::Output {
        let (used, elapsed) = on_threads(self.threads, || {
            for number in 0..self.each {
                // From 1 to 17 microseconds.
                record(counters, 1000 + (number & 0x3fff));
            }
        });
        let mut sums = vec![0; RECORDER];
        counters.add_sums(&mut sums);
        (used, elapsed, sums[..BUCKETS].iter().sum())
    }
}

/// Adds `value` to a histogram, as the product does.
#[inline(always)]
pub(super) fn record(counters: &impl SharedCounters, value: u64) {
    counters.add(bucket_of(value), 1);
    counters.add(BUCKETS, value);
}

fn tick(options: &AblationOptions, way: CountingWay, threads: usize) -> Result<Record> {
    let each = (options.num() / threads as u64).next_multiple_of(TICKED as u64);
    let (used, elapsed, counted) = with::<TICKERS, _>(way, Ticking { threads, each })?;
    let ops = each * threads as u64;
    check("tick", counted, ops)?;
    let mut record = of_adding("tick", options, threads, ops, elapsed);
    record.ns_per_op = Some(ns_per_op(used, ops));
    record.plain_ns_per_op = Some(ns_per_op(plain(threads, each), ops));
    record.lock_add_ns_per_op = Some(ns_per_op(lock_add(threads, each), ops));
    Ok(record)
}

thread_local! {
    static PLAIN: [Cell<u64>; TICKED] = const { [const { Cell::new(0) }; TICKED] };
}

/// Increments of the thread's own words, which nobody else can read.
fn plain(threads: usize, each: u64) -> Duration {
    let count = || {
        PLAIN.with(|words| black_box(words)[0].set(0));
        turns(each, |word| {
            PLAIN.with(|words| words[word].set(words[word].get() + 1));
            // The compiler must not make one addition of several.
            black_box(());
        });
    };
    on_threads(threads, count).0
}

/// Increments of the thread's own words, each with a lock prefix.
fn lock_add(threads: usize, each: u64) -> Duration {
    let count = || {
        let words = [const { AtomicU64::new(0) }; TICKED];
        let words = black_box(&words);
        turns(each, |word| {
            // Relaxed: counters order nothing.
            words[word].fetch_add(1, Ordering::Relaxed);
        });
    };
    on_threads(threads, count).0
}

fn measure(options: &AblationOptions, way: CountingWay, threads: usize) -> Result<Record> {
    let each = options.num().div_ceil(threads as u64);
    let (used, elapsed, counted) = with::<RECORDER, _>(way, Measuring { threads, each })?;
    let ops = each * threads as u64;
    check("measure", counted, ops)?;
    let mut record = of_adding("measure", options, threads, ops, elapsed);
    record.ns_per_op = Some(ns_per_op(used, ops));
    Ok(record)
}

fn check(workload: &'static str, counted: u64, expected: u64) -> Result<()> {
    match counted == expected {
        true => Ok(()),
        false => Err(Error::Wrong {
            workload,
            what: format!("{counted} were counted of {expected}"),
        }),
    }
}

fn ns_per_op(used: Duration, ops: u64) -> f64 {
    used.as_secs_f64() * 1e9 / ops as f64
}

/// Without times of calls, which would be longer to take than the calls are.
fn of_adding(
    workload: &'static str,
    options: &AblationOptions,
    threads: usize,
    ops: u64,
    elapsed: Duration,
) -> Record {
    let measured = Measured {
        ops,
        elapsed,
        ..Measured::default()
    };
    let mut record = Record::new(workload, "ours", threads, options.seed);
    record.set_measured(&measured);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_words_are_added_to_in_turn() {
        let words: [Cell<u64>; TICKED] = Default::default();
        turns(24, |word| words[word].set(words[word].get() + 1));
        assert!(words.iter().all(|word| word.get() == 3));
    }

    /// A variant that has lost counts is an error, not a result.
    #[test]
    fn what_is_lost_ends_the_run() {
        assert!(check("tick", 8, 8).is_ok());
        assert!(matches!(check("tick", 7, 8), Err(Error::Wrong { .. })));
    }
}
