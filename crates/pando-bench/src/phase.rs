//! Runs one workload on its threads: warm-up, measured part, clock, progress.
//!
//! Each thread counts into a line of its own; the caller's thread looks at these for progress and
//! for the series over time, and says when warm-up and run end.

use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::time::{self, Duration, Instant};
use pando_sync::{CachePadded, thread};

use crate::error::Result;
use crate::histogram::Histogram;
use crate::operations::{Operations, Plan};

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(20);
/// An open loop sleeps until this long before a call is due, and spins from there.
const SPIN: Duration = Duration::from_micros(100);

/// Is told how a run goes.
pub trait Observer {
    /// Called now and then during a workload: `share` (0 to 1) is done, at `ops_per_s`.
    fn progress(&mut self, workload: &str, share: f64, ops_per_s: f64);

    /// Called with each step of the series over time, if one was asked for.
    fn step(&mut self, workload: &str, at: Duration, ops_per_s: f64);

    /// Called when a workload has ended, with its record.
    ///
    /// # Errors
    /// When it cannot be written down; ends the run.
    fn record(&mut self, record: &crate::Record) -> Result<()>;
}

/// What a workload came to.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) calls: Histogram,
    pub(crate) keys: u64,
    pub(crate) found: u64,
    pub(crate) elapsed: Duration,
    pub(crate) series: Vec<f64>,
}

/// What threads and the caller share.
struct Shared<'a> {
    plan: &'a Plan<'a>,
    /// Keys done, written by one thread each.
    done: Vec<CachePadded<AtomicU64>>,
    warm: AtomicBool,
    stop: AtomicBool,
    running: AtomicUsize,
}

struct ThreadResult {
    calls: Histogram,
    keys: u64,
    found: u64,
    span: Option<(Instant, Instant)>,
}

/// Runs `plan`. `measuring` is called when the measured part begins.
pub(crate) fn run(
    plan: &Plan<'_>,
    observer: &mut dyn Observer,
    measuring: &mut dyn FnMut(),
) -> Result<Measured> {
    let threads = plan.options.threads;
    let warmup =
        (!plan.workload.is_fill() && !plan.options.warmup.is_zero()).then_some(plan.options.warmup);
    let shared = Shared {
        plan,
        done: (0..threads).map(|_| CachePadded::default()).collect(),
        warm: AtomicBool::new(warmup.is_none()),
        stop: AtomicBool::new(false),
        running: AtomicUsize::new(threads),
    };
    if warmup.is_none() {
        measuring();
    }
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|index| {
                let shared = &shared;
                scope.spawn(move || run_thread(shared, index))
            })
            .collect();
        if let Some(warmup) = warmup {
            wait(&shared, time::now() + warmup);
            measuring();
            // Relaxed, as all flags here: they order nothing, and a late look costs one call.
            shared.warm.store(true, Ordering::Relaxed);
        }
        let series = watch(&shared, observer);
        let mut measured = Measured {
            series,
            ..Measured::default()
        };
        let mut span: Option<(Instant, Instant)> = None;
        let mut failed = None;
        for handle in handles {
            match handle.join().expect("a benchmark thread panicked") {
                Ok(result) => {
                    measured.calls.merge(&result.calls);
                    measured.keys += result.keys;
                    measured.found += result.found;
                    span = match (span, result.span) {
                        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                        (one, other) => one.or(other),
                    };
                }
                Err(error) => failed = Some(error),
            }
        }
        measured.elapsed = span.map_or(Duration::ZERO, |(start, end)| end - start);
        failed.map_or(Ok(measured), Err)
    })
}

/// Sleeps until `end`, or until all threads have ended.
fn wait(shared: &Shared<'_>, end: Instant) {
    loop {
        let left = end.saturating_duration_since(time::now());
        if left.is_zero() || shared.running.load(Ordering::Relaxed) == 0 {
            return;
        }
        thread::sleep(left.min(TICK));
    }
}

/// Waits for the end of the measured part; returns the series over time.
fn watch(shared: &Shared<'_>, observer: &mut dyn Observer) -> Vec<f64> {
    let options = shared.plan.options;
    let name = shared.plan.workload.name();
    let duration = options.duration.filter(|_| !shared.plan.workload.is_fill());
    let start = time::now();
    let keys = || -> u64 {
        shared
            .done
            .iter()
            .map(|done| done.load(Ordering::Relaxed))
            .sum()
    };
    let mut series = Vec::new();
    let mut before = (start, keys());
    while shared.running.load(Ordering::Relaxed) > 0 {
        let now = time::now();
        let elapsed = now - start;
        if duration.is_some_and(|duration| elapsed >= duration) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let all = keys();
        if let Some(interval) = options.interval
            && now - before.0 >= interval
        {
            let rate = (all - before.1) as f64 / (now - before.0).as_secs_f64();
            series.push(rate);
            observer.step(name, elapsed, rate);
            before = (now, all);
        }
        let share = match duration {
            Some(duration) => elapsed.as_secs_f64() / duration.as_secs_f64(),
            None => all as f64 / options.num as f64,
        };
        let rate = all as f64 / elapsed.as_secs_f64().max(1e-9);
        observer.progress(name, share.min(1.0), rate);
        let tick = TICK.min(options.interval.unwrap_or(TICK));
        let left = duration.map_or(tick, |duration| duration.saturating_sub(elapsed));
        thread::sleep(tick.min(left).max(Duration::from_micros(100)));
    }
    series
}

fn run_thread(shared: &Shared<'_>, index: usize) -> Result<ThreadResult> {
    let result = measure(shared, index);
    if result.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
    result
}

fn measure(shared: &Shared<'_>, index: usize) -> Result<ThreadResult> {
    let plan = shared.plan;
    let limited = plan.options.duration.is_none() || plan.workload.is_fill();
    let share = plan.share(plan.options.num, index);
    let mut left = if limited {
        share.end - share.start
    } else {
        u64::MAX
    };
    let mut operations = Operations::new(plan, index);
    while !shared.warm.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
        operations.call(left)?;
    }
    let mut result = ThreadResult {
        calls: Histogram::default(),
        keys: 0,
        found: 0,
        span: None,
    };
    let start = time::now();
    let mut schedule = Schedule::new(plan, start, index);
    let mut before = start;
    while left > 0 && !shared.stop.load(Ordering::Relaxed) {
        let begun = schedule.wait().unwrap_or(before);
        let Some(done) = operations.call(left)? else {
            break;
        };
        let now = time::now();
        let ns = now.saturating_duration_since(begun).as_nanos();
        result.calls.add(u64::try_from(ns).unwrap_or(u64::MAX));
        before = now;
        left = left.saturating_sub(done.keys);
        result.keys += done.keys;
        result.found += done.found;
        shared.done[index].store(result.keys, Ordering::Relaxed);
    }
    result.span = Some((start, before));
    Ok(result)
}

/// When the calls of an open loop are due.
struct Schedule {
    next: Option<Instant>,
    step: Duration,
}

impl Schedule {
    fn new(plan: &Plan<'_>, start: Instant, index: usize) -> Self {
        let Some(rate) = plan.options.rate else {
            return Self {
                next: None,
                step: Duration::ZERO,
            };
        };
        let threads = plan.options.threads as f64;
        let between = plan.call_keys() as f64 / rate;
        Self {
            // Threads take turns.
            next: Some(start + Duration::from_secs_f64(between * index as f64)),
            step: Duration::from_secs_f64(between * threads),
        }
    }

    /// Waits until the next call is due, and says when that was; None in a closed loop.
    fn wait(&mut self) -> Option<Instant> {
        let due = self.next?;
        self.next = Some(due + self.step);
        loop {
            let left = due.saturating_duration_since(time::now());
            if left.is_zero() {
                return Some(due);
            }
            match left.checked_sub(SPIN) {
                Some(sleep) if !sleep.is_zero() => thread::sleep(sleep),
                _ => thread::spin_loop(),
            }
        }
    }
}
