//! Runs one workload on its threads: warm-up, measured part, clock, progress.
//!
//! [`Calls`] hides what a thread does, so that every layer is timed in the same way. Each thread
//! counts in a cache line of its own; the caller's thread reads these lines for progress and for
//! the series over time, and ends warm-up and run.

use pando_stats::Histogram;
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::time::{self, Duration, Instant};
use pando_sync::{CachePadded, thread};

use crate::counters::{Counters, Counts};
use crate::cpu;
use crate::error::Result;
pub use crate::measured::{Kind, Measured, Split, Times};
pub use crate::observer::Observer;

/// Interval at which progress is read.
const TICK: Duration = Duration::from_millis(20);
/// An open loop sleeps until this long before a call is due, and then spins.
const SPIN: Duration = Duration::from_micros(100);

/// Result of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Number of operations: keys, reads or writes of the device, commands.
    pub ops: u64,
    /// Number of operations that found what they asked for.
    pub found: u64,
}

/// The work of one thread.
pub trait Calls {
    /// Makes the next call, for at most `limit` operations; `None`: nothing is left to do.
    ///
    /// # Errors
    /// Those of the call; they end the run.
    fn call(&mut self, limit: u64) -> Result<Option<Done>>;

    /// Returns the kind of the previous call; `None` if the workload is not mixed.
    fn kind(&self) -> Option<Kind> {
        None
    }

    /// Returns a number that is even while there is no background work whose effect on calls is of
    /// interest, and is incremented whenever such work begins or ends. `None`: the effect is not
    /// asked for.
    fn turn(&self) -> Option<u64> {
        None
    }

    /// Called when the measured part begins, at `start`.
    fn begin(&mut self, start: Instant) {
        let _ = start;
    }

    /// Called when the measured part has ended: waits for operations in flight, which are not
    /// counted.
    ///
    /// # Errors
    /// They fail the run.
    fn end(&mut self) -> Result<()> {
        Ok(())
    }

    /// Returns the times of the operations of the measured part, if this has several in flight at
    /// once and times each itself. `None`: calls are timed from outside.
    fn times(&mut self) -> Option<Histogram> {
        None
    }
}

/// How a workload runs, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Name of the workload.
    pub name: &'static str,
    /// Number of threads whose operations are counted.
    pub threads: usize,
    /// Runs a companion thread, too, for as long as the others run; it is counted separately.
    pub beside: bool,
    /// Number of operations of all counted threads, if it is limited.
    pub total: Option<u64>,
    /// Length of the measured part, if it is limited by time.
    pub duration: Option<Duration>,
    /// Unmeasured time before the measured part.
    pub warmup: Duration,
    /// Length of the steps of the series over time.
    pub interval: Option<Duration>,
    /// Operations per second of an open loop, whose calls are timed from outside.
    pub rate: Option<f64>,
    /// Operations per call, for the open loop.
    pub call_ops: u64,
}

impl Phase {
    /// Returns the share of `total` that belongs to `thread`.
    pub fn share(&self, total: u64, thread: usize) -> std::ops::Range<u64> {
        share(total, self.threads, thread)
    }
}

/// Returns the part of `0..total` that belongs to `thread` of `threads`.
pub fn share(total: u64, threads: usize, thread: usize) -> std::ops::Range<u64> {
    let (threads, thread) = (threads as u128, thread as u128);
    let at = |part: u128| u64::try_from(u128::from(total) * part / threads).expect("at most all");
    at(thread)..at(thread + 1)
}

/// How a call overlapped with background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Met {
    Nothing,
    /// The work was in progress when the call was due.
    Before,
    /// The work began during the call.
    Within,
}

/// Returns how often there was background work between two values of the turn, completely or in
/// part.
fn times_between(first: u64, last: u64) -> u64 {
    last.div_ceil(2) - first / 2
}

/// Decides on one thread which calls overlapped with background work.
#[derive(Debug)]
struct Beside {
    turn: u64,
    /// End of the last call that met background work: a call of an open loop that was due before it
    /// has waited for that call.
    until: Instant,
}

impl Beside {
    fn new(turn: u64, now: Instant) -> Self {
        Self { turn, until: now }
    }

    /// Classifies a call that was due at `begun` and has ended at `now`, when the turn was `turn`.
    fn met(&mut self, turn: u64, begun: Instant, now: Instant) -> Met {
        let met = match () {
            () if self.turn % 2 == 1 || begun < self.until => Met::Before,
            () if turn != self.turn => Met::Within,
            () => Met::Nothing,
        };
        if met != Met::Nothing {
            self.until = now;
        }
        self.turn = turn;
        met
    }
}

impl Measured {
    fn add(&mut self, result: &ThreadResult, span: &mut Option<(Instant, Instant)>) {
        if result.beside {
            self.beside_ops += result.ops;
            return;
        }
        let mut all = Times {
            calls: std::mem::take(&mut self.calls),
            reads: std::mem::take(&mut self.reads),
            writes: std::mem::take(&mut self.writes),
        };
        all.merge_thread(&result.times);
        if let Some(split) = &result.split {
            all.merge_thread(&split.busy);
            all.merge_thread(&split.caught);
            let into = self.split.get_or_insert_default();
            into.quiet.merge_thread(&result.times);
            into.busy.merge_thread(&split.busy);
            into.caught.merge_thread(&split.caught);
            into.times = into.times.max(split.times);
        }
        (self.calls, self.reads, self.writes) = (all.calls, all.reads, all.writes);
        self.ops += result.ops;
        self.found += result.found;
        self.counts = Some(match self.counts {
            Some(counts) => counts.and(&result.counts),
            None => result.counts,
        });
        *span = match (*span, result.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
    }
}

/// State that the threads and the caller share.
struct Shared<'a> {
    phase: &'a Phase,
    /// Numbers of operations done; each is written by one thread.
    done: Vec<CachePadded<AtomicU64>>,
    /// The warm-up is over; set by the caller.
    warm: AtomicBool,
    /// The run is over; set by the caller, and by a thread that fails.
    stop: AtomicBool,
    /// Number of counted threads that have not ended.
    running: AtomicUsize,
}

struct ThreadResult {
    /// All times, or those of calls without background work if these are separated.
    times: Times,
    /// The times of the other calls; its own `quiet` is empty.
    split: Option<Split>,
    ops: u64,
    found: u64,
    counts: Counts,
    beside: bool,
    span: Option<(Instant, Instant)>,
}

/// Runs `phase`. `make` makes the calls of the thread with an index, on that thread (the companion
/// thread has the index `threads`). `measuring` is called when the measured part begins.
///
/// # Errors
/// Those of `make` and of the calls.
pub fn run<C: Calls>(
    phase: &Phase,
    make: impl Fn(usize) -> Result<C> + Sync,
    observer: &mut dyn Observer,
    measuring: &mut dyn FnMut(),
) -> Result<Measured> {
    let threads = phase.threads;
    let is_cold = !phase.warmup.is_zero();
    let shared = Shared {
        phase,
        done: (0..threads).map(|_| CachePadded::default()).collect(),
        warm: AtomicBool::new(!is_cold),
        stop: AtomicBool::new(false),
        running: AtomicUsize::new(threads),
    };
    let mut cpu_before = cpu::used();
    if !is_cold {
        measuring();
    }
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads + usize::from(phase.beside))
            .map(|index| {
                let (shared, make) = (&shared, &make);
                scope.spawn(move || run_thread(shared, index, make))
            })
            .collect();
        if is_cold {
            wait(&shared, time::now() + phase.warmup);
            measuring();
            cpu_before = cpu::used();
            // Relaxed, as for all flags here: they order nothing, and seeing one late costs one
            // call.
            shared.warm.store(true, Ordering::Relaxed);
        }
        let series = watch(&shared, observer);
        let mut measured = Measured {
            series,
            ..Measured::default()
        };
        let (mut span, mut failed) = (None, None);
        for handle in handles {
            match handle.join().expect("a benchmark thread panicked") {
                Ok(result) => measured.add(&result, &mut span),
                Err(error) => failed = Some(error),
            }
        }
        measured.elapsed = span.map_or(Duration::ZERO, |(start, end)| end - start);
        measured.cpu = cpu_before
            .zip(cpu::used())
            .map(|(before, after)| after.saturating_sub(before));
        if let Some(line) = measured.counts.and_then(|counts| counts.absent()) {
            observer.note(&line);
        }
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
    let phase = shared.phase;
    let start = time::now();
    let ops = || -> u64 {
        shared
            .done
            .iter()
            .map(|done| done.load(Ordering::Relaxed))
            .sum()
    };
    let mut series = Vec::new();
    let mut before = (start, ops());
    while shared.running.load(Ordering::Relaxed) > 0 {
        let now = time::now();
        let elapsed = now - start;
        if phase.duration.is_some_and(|duration| elapsed >= duration) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let all = ops();
        if let Some(interval) = phase.interval
            && now - before.0 >= interval
        {
            let rate = (all - before.1) as f64 / (now - before.0).as_secs_f64();
            series.push(rate);
            observer.step(phase.name, elapsed, rate);
            before = (now, all);
        }
        let share = match (phase.duration, phase.total) {
            (Some(duration), _) => elapsed.as_secs_f64() / duration.as_secs_f64(),
            (None, Some(total)) => all as f64 / total as f64,
            (None, None) => 0.0,
        };
        let rate = all as f64 / elapsed.as_secs_f64().max(1e-9);
        observer.progress(phase.name, share.min(1.0), rate);
        let tick = TICK.min(phase.interval.unwrap_or(TICK));
        let left = phase
            .duration
            .map_or(tick, |duration| duration.saturating_sub(elapsed));
        thread::sleep(tick.min(left).max(Duration::from_micros(100)));
    }
    // The companion thread ends after the others have.
    shared.stop.store(true, Ordering::Relaxed);
    series
}

fn run_thread<C: Calls>(
    shared: &Shared<'_>,
    index: usize,
    make: &(impl Fn(usize) -> Result<C> + Sync),
) -> Result<ThreadResult> {
    let mut ending = Ending {
        shared,
        counts: index < shared.phase.threads,
        is_well: false,
    };
    let result = make(index).and_then(|calls| measure(shared, index, calls));
    ending.is_well = result.is_ok();
    result
}

/// Counts the end of a thread, and stops the others after an error or a panic, so that the caller
/// learns of it.
struct Ending<'a> {
    shared: &'a Shared<'a>,
    counts: bool,
    is_well: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if !self.is_well {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        if self.counts {
            self.shared.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn measure(shared: &Shared<'_>, index: usize, calls: impl Calls) -> Result<ThreadResult> {
    let phase = shared.phase;
    let beside = index >= phase.threads;
    // On cache lines of its own, wherever the stacks of the threads lie.
    let mut calls = CachePadded(calls);
    let mut counters = Counters::of_this_thread();
    let mut left = match phase.total {
        Some(total) if !beside => {
            let share = phase.share(total, index);
            share.end - share.start
        }
        _ => u64::MAX,
    };
    while !shared.warm.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
        if calls.call(left)?.is_none() {
            break;
        }
    }
    let mut result = ThreadResult {
        times: Times::default(),
        split: None,
        ops: 0,
        found: 0,
        counts: Counts::default(),
        beside,
        span: None,
    };
    counters.begin();
    let start = time::now();
    calls.begin(start);
    let mut schedule = Schedule::new(phase, start, index);
    let mut before = start;
    let first_turn = calls.turn();
    let mut background = first_turn.map(|turn| Beside::new(turn, start));
    while left > 0 && !shared.stop.load(Ordering::Relaxed) {
        let begun = schedule.wait().unwrap_or(before);
        let Some(done) = calls.call(left)? else {
            break;
        };
        let now = time::now();
        let ns = now.saturating_duration_since(begun).as_nanos();
        let turn = calls.turn();
        let met = match (&mut background, turn) {
            (Some(background), Some(turn)) => background.met(turn, begun, now),
            _ => Met::Nothing,
        };
        let times = match met {
            Met::Nothing => &mut result.times,
            Met::Before => &mut result.split.get_or_insert_default().busy,
            Met::Within => &mut result.split.get_or_insert_default().caught,
        };
        times.add(calls.kind(), u64::try_from(ns).unwrap_or(u64::MAX));
        before = now;
        left = left.saturating_sub(done.ops);
        result.ops += done.ops;
        result.found += done.found;
        if !beside {
            shared.done[index].store(result.ops, Ordering::Relaxed);
        }
    }
    result.counts = counters.end();
    result.span = Some((start, before));
    if let (Some(first), Some(last)) = (first_turn, calls.turn()) {
        result.split.get_or_insert_default().times = times_between(first, last);
    }
    if let Some(times) = calls.times() {
        result.times.calls = times;
    }
    calls.end()?;
    Ok(result)
}

/// The times at which calls of an open loop are due.
struct Schedule {
    next: Option<Instant>,
    step: Duration,
}

impl Schedule {
    fn new(phase: &Phase, start: Instant, index: usize) -> Self {
        let rate = phase.rate.filter(|_| index < phase.threads);
        let Some(rate) = rate else {
            return Self {
                next: None,
                step: Duration::ZERO,
            };
        };
        let threads = phase.threads as f64;
        let between = phase.call_ops as f64 / rate;
        Self {
            // Threads take turns.
            next: Some(start + Duration::from_secs_f64(between * index as f64)),
            step: Duration::from_secs_f64(between * threads),
        }
    }

    /// Waits until the next call is due, and returns that time; `None` in a closed loop.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint that runs at the beginning or the end of an interval counts as being in it.
    #[test]
    fn what_runs_at_the_beginning_or_the_end_counts() {
        for (first, last, times) in [
            (4, 4, 0),
            (4, 5, 1),
            (4, 6, 1),
            (5, 5, 1),
            (5, 6, 1),
            (5, 7, 2),
            (5, 8, 2),
        ] {
            assert_eq!(times_between(first, last), times, "from {first} to {last}");
        }
    }

    /// A call that was due during a checkpoint counts with it, even if it was made later.
    #[test]
    fn a_call_belongs_to_what_went_on_when_it_was_due() {
        let start = time::now();
        let at = |us| start + Duration::from_micros(us);
        let mut beside = Beside::new(4, start);
        for (turn, begun, now, met, why) in [
            (4, 0, 10, Met::Nothing, "nothing ran"),
            (5, 10, 20, Met::Within, "it began meanwhile"),
            (5, 20, 30, Met::Before, "it runs"),
            (6, 30, 40, Met::Before, "it ended meanwhile"),
            (
                6,
                35,
                50,
                Met::Before,
                "it was due before that, and has waited",
            ),
            (6, 50, 60, Met::Nothing, "nothing ran"),
            (8, 60, 70, Met::Within, "one began and ended meanwhile"),
            (
                8,
                65,
                75,
                Met::Before,
                "it has waited for a call that met one",
            ),
            (8, 75, 80, Met::Nothing, "nothing ran"),
        ] {
            assert_eq!(beside.met(turn, at(begun), at(now)), met, "{why}");
        }
    }
}
