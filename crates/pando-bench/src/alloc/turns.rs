//! What a thread does: it allocates 64 blocks, then frees as many, over and over, so that the space
//! stays as full as it was. In a fragmented space it frees blocks from all over the space, else
//! those that it has held longest.
//!
//! In the first part of a run the clock is read before and after the 64 calls; in the second part
//! around each single call, and the cost of the clock itself is subtracted.

use pando_format::cast::{u32_of_len, usize_of};
use pando_stats::Histogram;
use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::thread;
use pando_sync::time::{self, Duration, Instant};

use super::allocator::{Allocator, wrong};
use crate::counters::{Counters, Counts};
use crate::error::{Error, Result};
use crate::random::Random;

/// Number of blocks that are allocated one after the other, then freed.
pub(crate) const BATCH: usize = 64;
/// Number of blocks that a thread holds in a space that is not fragmented.
const HELD: usize = 4096;
/// Number of calls of the clock that are timed to find its cost.
const CLOCK_CALLS: usize = 10_001;

/// Results of a run.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    /// Times of batches of allocations, in nanoseconds.
    pub(crate) batches: Histogram,
    /// Times of batches of frees, in nanoseconds.
    pub(crate) free_batches: Histogram,
    /// Times of single allocations without the clock, in nanoseconds.
    pub(crate) singles: Histogram,
    /// Number of allocations and frees in the first part.
    pub(crate) ops: u64,
    /// Length of the first part.
    pub(crate) elapsed: Duration,
    /// Hardware counters of the first part.
    pub(crate) counts: Option<Counts>,
}

/// Runs both parts on `threads` threads. Each has its share of `sample`, and of `num` allocations
/// for each part. Afterwards `sample` has as many allocated blocks as before, but others.
pub(crate) fn run(
    allocator: &impl Allocator,
    sample: &mut Vec<u32>,
    threads: usize,
    num: u64,
    seed: u64,
) -> Result<Timed> {
    let batches = num.div_ceil((threads * BATCH) as u64);
    let clock_ns = clock_ns();
    let mut shares: Vec<Vec<u32>> = vec![Vec::new(); threads];
    for (index, block) in sample.drain(..).enumerate() {
        shares[index % threads].push(block);
    }
    let waiting = AtomicU32::new(u32_of_len(threads));
    let results: Vec<_> = thread::scope(|scope| {
        let handles: Vec<_> = (0_u64..)
            .zip(shares)
            .map(|(index, held)| {
                let waiting = &waiting;
                scope.spawn(move || {
                    let mut turns = BatchTurns {
                        allocator,
                        is_fragmented: !held.is_empty(),
                        held,
                        oldest: 0,
                        random: Random::new(seed, index),
                        taken: [0; BATCH],
                    };
                    let filled = turns.fill();
                    // Relaxed: no thread reads what another one wrote before this.
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    while waiting.load(Ordering::Relaxed) > 0 {
                        thread::yield_now();
                    }
                    filled?;
                    let timed = turns.time(batches, clock_ns);
                    timed.map(|timed| (timed, turns.rest()))
                })
            })
            .collect();
        let handles = handles.into_iter();
        handles
            .map(|handle| handle.join().expect("a thread panicked"))
            .collect()
    });
    let mut all = Timed::default();
    for result in results {
        let (timed, rest) = result?;
        all.add(&timed);
        sample.extend(rest);
    }
    Ok(all)
}

impl Timed {
    fn add(&mut self, other: &Self) {
        self.batches.merge(&other.batches);
        self.free_batches.merge(&other.free_batches);
        self.singles.merge(&other.singles);
        self.ops += other.ops;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.counts = match (&self.counts, &other.counts) {
            (Some(one), Some(other)) => Some(one.and(other)),
            (one, other) => one.or(*other),
        };
    }
}

struct BatchTurns<'a, A> {
    allocator: &'a A,
    is_fragmented: bool,
    /// Blocks that may be freed.
    held: Vec<u32>,
    /// Index of the next one in `held`, unless it is chosen at random.
    oldest: usize,
    random: Random,
    taken: [u32; BATCH],
}

impl<A: Allocator> BatchTurns<'_, A> {
    fn fill(&mut self) -> Result<()> {
        if !self.is_fragmented {
            for _ in 0..HELD {
                let block = self.allocator.allocate();
                self.held.push(block.ok_or_else(nothing_left)?);
            }
        }
        Ok(())
    }

    fn time(&mut self, batches: u64, clock_ns: u64) -> Result<Timed> {
        let mut timed = Timed::default();
        let mut counters = Counters::of_this_thread();
        counters.begin();
        let start = time::now();
        let mut begun = start;
        for _ in 0..batches {
            for taken in &mut self.taken {
                *taken = self.allocator.allocate().ok_or_else(nothing_left)?;
            }
            let allocated = time::now();
            timed.batches.add(since(begun, allocated));
            self.choose();
            let chosen = time::now();
            self.free();
            begun = time::now();
            timed.free_batches.add(since(chosen, begun));
        }
        timed.elapsed = begun.saturating_duration_since(start);
        timed.counts = Some(counters.end());
        timed.ops = 2 * batches * BATCH as u64;
        for _ in 0..batches {
            for taken in &mut self.taken {
                let begun = time::now();
                let block = self.allocator.allocate();
                let ns = since(begun, time::now());
                timed.singles.add(ns.saturating_sub(clock_ns));
                *taken = block.ok_or_else(nothing_left)?;
            }
            self.choose();
            self.free();
        }
        Ok(timed)
    }

    /// Swaps the taken blocks with held ones, which are freed next.
    fn choose(&mut self) {
        for taken in &mut self.taken {
            let index = match self.is_fragmented {
                true => usize_of(self.random.below(self.held.len() as u64)),
                false => {
                    self.oldest = (self.oldest + 1) % self.held.len();
                    self.oldest
                }
            };
            std::mem::swap(taken, &mut self.held[index]);
        }
    }

    fn free(&mut self) {
        for block in self.taken {
            self.allocator.free(block);
        }
    }

    /// Returns the blocks that another run may free.
    fn rest(self) -> Vec<u32> {
        if self.is_fragmented {
            return self.held;
        }
        self.held
            .iter()
            .for_each(|block| self.allocator.free(*block));
        Vec::new()
    }
}

fn nothing_left() -> Error {
    wrong("no block is left, though some are free".to_owned())
}

fn since(begun: Instant, ended: Instant) -> u64 {
    let ns = ended.saturating_duration_since(begun).as_nanos();
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// Returns the median difference of two readings of the clock, one right after the other.
fn clock_ns() -> u64 {
    let mut apart: Vec<u64> = (0..CLOCK_CALLS)
        .map(|_| {
            let begun = time::now();
            since(begun, time::now())
        })
        .collect();
    apart.sort_unstable();
    apart[CLOCK_CALLS / 2]
}

#[cfg(test)]
mod tests {
    use super::super::allocator::ours;
    use super::super::state::State;
    use super::*;

    #[test]
    fn a_space_is_as_full_behind_the_turns_as_before() {
        for fragmented in [false, true] {
            let blocks = 2_000_000;
            let space = ours(blocks);
            let state = State {
                blocks,
                fill_percent: 90,
                fragmented,
                seed: 1,
            };
            let mut sample = state.build(&space).unwrap();
            let (free, count) = (space.free_blocks(), sample.len());
            for threads in [1, 3] {
                let timed = run(&space, &mut sample, threads, 10_000, 1).unwrap();
                assert_eq!(space.free_blocks(), free);
                assert_eq!(sample.len(), count);
                assert!(timed.ops >= 20_000 && timed.singles.count() >= 10_000);
                assert_eq!(timed.batches.count(), timed.ops / 2 / BATCH as u64);
            }
            space.check_invariants();
        }
    }

    /// An allocator that may have fewer blocks than the run needs.
    struct Short(pando_sync::Mutex<Vec<u32>>);

    impl Allocator for Short {
        fn allocate(&self) -> Option<u32> {
            self.0.lock().pop()
        }

        fn free(&self, block: u32) {
            self.0.lock().push(block);
        }

        fn mark(&self, _start: u32, _count: u32) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_block_that_is_missing_ends_the_run() {
        let enough = (0..(2 * (HELD + BATCH)) as u32).collect();
        let short = Short(pando_sync::Mutex::new(pando_sync::Rank::Leaf, enough));
        assert!(run(&short, &mut Vec::new(), 2, 1000, 1).is_ok());
        short.0.lock().truncate(2 * HELD - 1);
        assert!(run(&short, &mut Vec::new(), 2, 1000, 1).is_err());
    }
}
