//! `query` of `stats`: sums of all tickers, taken while many threads tick a thousand times and
//! sleep a millisecond, over and over.
//!
//! The time between two queries is enough for others to write to what the next one reads. Its
//! processor time is that of the thread that asks, less what asking the clock costs. Many live
//! threads leave the thread that asks little of the processors: a turn has an end by time, too.
//!
//! What interrupts the thread that asks is charged to it, such as the timers of thousands that
//! sleep. So in turn with queries it works as long as the fastest one takes, in registers alone;
//! that is measured alike.

use std::hint::black_box;

use pando_stats::Histogram;
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Mutex, Rank, thread};

use super::counters::{CountingWay, SharedCounters, TICKED, TICKERS, Work, with};
use super::options::AblationOptions;
use crate::error::{Error, Result};
use crate::record::Record;

const TICKS_PER_SLEEP: usize = 1000;
const SLEEP: Duration = Duration::from_millis(1);
/// Time between two queries.
const PAUSE: Duration = Duration::from_millis(1);
/// Queries of a turn, unless options say how long it is, at most.
const QUERIES_MAX: u64 = 200;
/// Time of such a turn, at most.
const LENGTH_MAX: Duration = Duration::from_secs(3);
/// Stack of a live thread.
const STACK_BYTES: usize = 64 << 10;
/// Turns that tell how long one takes.
const SPIN_TURNS: u64 = 1000;
/// Queries that tell how long the fastest takes: few, since those of some ways are long.
const QUERY_CALLS: usize = 20;
/// Calls that tell what the clock and turns cost at least.
const CLOCK_CALLS: usize = 1000;

/// Runs a turn with `live` threads.
pub(super) fn query(options: &AblationOptions, way: CountingWay, threads: usize) -> Result<Record> {
    let asking = Asking {
        live: threads,
        queries: match options.duration {
            Some(_) => u64::MAX,
            None => options.num().min(QUERIES_MAX),
        },
        length: options.duration.unwrap_or(LENGTH_MAX),
    };
    let queried = with::<TICKERS, _>(way, asking)??;
    let mut record = Record::new("query", "ours", threads, options.seed);
    queried.report(&mut record);
    Ok(record)
}

/// Takes sums while `live` threads tick and sleep.
struct Asking {
    live: usize,
    queries: u64,
    length: Duration,
}

/// The times of queries.
#[derive(Default)]
struct Queried {
    /// In nanoseconds of the wall clock.
    wall: Histogram,
    wall_min_ns: u64,
    /// Processor time of the thread that asked, in nanoseconds.
    used: Histogram,
    /// The same where it worked as long without memory.
    spin: Histogram,
    elapsed: Duration,
}

impl Queried {
    fn report(&self, record: &mut Record) {
        let us = |ns: u64| ns as f64 / 1e3;
        record.ops = self.used.count();
        record.elapsed_s = self.elapsed.as_secs_f64();
        record.mean_us = self.used.mean() / 1e3;
        record.p50_us = us(self.used.percentile(0.5));
        record.p99_us = us(self.used.percentile(0.99));
        record.p999_us = us(self.used.percentile(0.999));
        record.max_us = us(self.used.max());
        // The most queries of one thread that does nothing else.
        record.ops_per_s = 1e6 / record.mean_us.max(1e-3);
        record.wall_min_us = Some(us(self.wall_min_ns));
        record.wall_mean_us = Some(self.wall.mean() / 1e3);
        record.wall_p95_us = Some(us(self.wall.percentile(0.95)));
        record.wall_max_us = Some(us(self.wall.max()));
        record.spin_mean_us = Some(self.spin.mean() / 1e3);
        record.spin_p50_us = Some(us(self.spin.percentile(0.5)));
        record.spin_max_us = Some(us(self.spin.max()));
    }
}

impl Work for Asking {
    type Output = Result<Queried>;

    fn run(self, counters: &impl SharedCounters) -> Self::Output {
        let is_over = AtomicBool::new(false);
        let start = Mutex::new(Rank::Caller, ());
        thread::scope(|scope| {
            // Nobody ticks before all are there: starting the rest would take very long.
            let starting = start.lock();
            let mut handles = Vec::with_capacity(self.live);
            let mut refused = None;
            for _ in 0..self.live {
                let (start, is_over) = (&start, &is_over);
                let builder = thread::Builder::new().stack_size(STACK_BYTES);
                match builder.spawn_scoped(scope, move || live(counters, start, is_over)) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        refused = Some(Error::option("threads", format!("no more: {error}")));
                        break;
                    }
                }
            }
            drop(starting);
            let queried = match refused {
                None => self.ask(counters),
                Some(error) => Err(error),
            };
            // Release: pairs with the Acquire of those who live.
            is_over.store(true, Ordering::Release);
            let join = |handle: thread::ScopedJoinHandle<'_, u64>| handle.join().expect("no panic");
            let ticks = handles.into_iter().map(join).sum::<u64>();
            let mut sums = [0; TICKERS];
            counters.add_sums(&mut sums);
            let counted = sums.iter().sum::<u64>();
            match counted == ticks {
                true => queried,
                false => Err(wrong(format!("{counted} were counted of {ticks}"))),
            }
        })
    }
}

/// Ticks once to be known, and from the start on ticks and sleeps until it is over. Returns how
/// often it ticked.
fn live(counters: &impl SharedCounters, start: &Mutex<()>, is_over: &AtomicBool) -> u64 {
    counters.add(0, 1);
    let mut ticks = 1;
    drop(start.lock());
    // Acquire: pairs with the Release of the thread that asks.
    while !is_over.load(Ordering::Acquire) {
        for number in 0..TICKS_PER_SLEEP {
            counters.add(number % TICKED, 1);
        }
        ticks += TICKS_PER_SLEEP as u64;
        thread::sleep(SLEEP);
    }
    ticks
}

impl Asking {
    fn ask(&self, counters: &impl SharedCounters) -> Result<Queried> {
        let clock = least_of(CLOCK_CALLS, || ());
        let fastest = least_of(QUERY_CALLS, || {
            let mut sums = [0; TICKERS];
            counters.add_sums(&mut sums);
            black_box(sums);
        });
        let spinning = least_of(CLOCK_CALLS, || spin(SPIN_TURNS)).saturating_sub(clock);
        let share = nanoseconds(fastest.saturating_sub(clock)) * SPIN_TURNS;
        let turns = share / nanoseconds(spinning).max(1);
        let mut queried = Queried {
            wall_min_ns: u64::MAX,
            ..Queried::default()
        };
        let (mut last, begun) = ([0; TICKERS], time::now());
        while queried.used.count() < self.queries {
            thread::sleep(PAUSE);
            let asked = time::now();
            let before = time::used_by_thread();
            let mut sums = [0; TICKERS];
            counters.add_sums(&mut sums);
            let used = time::used_by_thread() - before;
            let wall = nanoseconds(asked.elapsed());
            if sums.iter().zip(&last).any(|(now, then)| now < then) {
                return Err(wrong("a sum went back".to_owned()));
            }
            last = sums;
            queried.used.add(nanoseconds(used.saturating_sub(clock)));
            queried.wall.add(wall);
            queried.wall_min_ns = queried.wall_min_ns.min(wall);
            thread::sleep(PAUSE);
            let before = time::used_by_thread();
            spin(turns);
            let used = time::used_by_thread() - before;
            queried.spin.add(nanoseconds(used.saturating_sub(clock)));
            if begun.elapsed() >= self.length {
                break;
            }
        }
        queried.elapsed = begun.elapsed();
        Ok(queried)
    }
}

/// Returns the shortest time of `work` and a reading of the clock.
fn least_of(calls: usize, work: impl Fn()) -> Duration {
    let once = |_| {
        let before = time::used_by_thread();
        work();
        time::used_by_thread() - before
    };
    (0..calls).map(once).min().unwrap_or_default()
}

/// Works without accessing memory; each step depends on the one before.
fn spin(turns: u64) {
    let mut number = turns;
    for _ in 0..turns {
        number = (number ^ (number >> 7)).wrapping_mul(3);
    }
    black_box(number);
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn wrong(what: String) -> Error {
    Error::Wrong {
        workload: "query",
        what,
    }
}
