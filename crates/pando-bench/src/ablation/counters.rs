//! Ways to count, behind one trait: the product's, and the three that were rejected for it.
//!
//! All have the same counters. Many threads add to them, and any thread sums them up. None loses
//! what a thread that has ended has counted. Words of a way that are next to each other are added
//! to as the product's are: by a constant number where the caller has one.

use std::cell::{Cell, RefCell};

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Addition, Arc, CoreWords, Mutex, Rank, audit};

use crate::error::{Error, Result};

/// Tickers to which a workload adds, one after the other.
pub(super) const TICKED: usize = 8;
/// Tickers in all, as many as the lines of the product have room for.
pub(super) const TICKERS: usize = 128;

/// Counters to which all threads add.
pub(super) trait SharedCounters: Sync {
    /// Adds `count` to word `word`.
    fn add(&self, word: usize, count: u64);

    /// Adds the sum of each word to the element of `sums` with its number.
    fn add_sums(&self, sums: &mut [u64]);
}

impl<const WORDS: usize> SharedCounters for CoreWords<WORDS> {
    #[inline]
    fn add(&self, word: usize, count: u64) {
        CoreWords::add(self, word, count);
    }

    fn add_sums(&self, sums: &mut [u64]) {
        CoreWords::add_sums(self, sums);
    }
}

/// One word for all threads.
pub(super) struct Global(Box<[AtomicU64]>);

impl Global {
    pub(super) fn new(words: usize) -> Self {
        let block = zeros(words);
        audit::name("global", &*block);
        Self(block)
    }
}

impl SharedCounters for Global {
    #[inline]
    fn add(&self, word: usize, count: u64) {
        // Relaxed: counters order nothing.
        self.0[word].fetch_add(count, Ordering::Relaxed);
    }

    fn add_sums(&self, sums: &mut [u64]) {
        add_block(&self.0, sums);
    }
}

fn zeros(words: usize) -> Box<[AtomicU64]> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

fn add_block(block: &[AtomicU64], sums: &mut [u64]) {
    for (sum, word) in sums.iter_mut().zip(block) {
        // Relaxed: as of some moment during the call.
        *sum += word.load(Ordering::Relaxed);
    }
}

/// The words of a thread. They outlive it: the next thread gets them.
type Block = &'static [AtomicU64];

/// Words of each thread, added together when it ends.
pub(super) struct ThreadLocal {
    shared: Arc<Mutex<Threads>>,
    words: usize,
}

struct Threads {
    live: Vec<Block>,
    spare: Vec<Block>,
    /// Sums of threads that have ended.
    ended: Vec<u64>,
}

thread_local! {
    static OWN: Cell<Option<Block>> = const { Cell::new(None) };
    static LEAVER: RefCell<Option<Leaver>> = const { RefCell::new(None) };
}

/// Removes the counters of a thread when it ends.
struct Leaver {
    shared: Arc<Mutex<Threads>>,
    block: Block,
}

impl Drop for Leaver {
    fn drop(&mut self) {
        let mut threads = self.shared.lock();
        threads
            .live
            .retain(|block| !std::ptr::eq(*block, self.block));
        let threads = &mut *threads;
        add_block(self.block, &mut threads.ended);
        for word in self.block {
            // Relaxed: the lock orders it for the next thread.
            word.store(0, Ordering::Relaxed);
        }
        threads.spare.push(self.block);
    }
}

impl ThreadLocal {
    /// At most one exists at a time, since a thread adds to the first one that it meets.
    pub(super) fn new(words: usize) -> Self {
        let threads = Threads {
            live: Vec::new(),
            spare: Vec::new(),
            ended: vec![0; words],
        };
        Self {
            shared: Arc::new(Mutex::new(Rank::Leaf, threads)),
            words,
        }
    }

    #[cold]
    fn enter(&self) -> Block {
        let block = {
            let mut threads = self.shared.lock();
            let spare = threads.spare.pop();
            let block = spare.unwrap_or_else(|| {
                let block = Box::leak(zeros(self.words));
                audit::name("thread-local", &*block);
                block
            });
            threads.live.push(block);
            block
        };
        OWN.set(Some(block));
        let shared = self.shared.clone();
        LEAVER.with(|leaver| *leaver.borrow_mut() = Some(Leaver { shared, block }));
        block
    }
}

impl SharedCounters for ThreadLocal {
    #[inline]
    fn add(&self, word: usize, count: u64) {
        let block = match OWN.get() {
            Some(block) => block,
            None => self.enter(),
        };
        // Relaxed: nobody else writes, and counters order nothing.
        let word = &block[word];
        word.store(word.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    fn add_sums(&self, sums: &mut [u64]) {
        let threads = self.shared.lock();
        for block in &threads.live {
            add_block(block, sums);
        }
        for (sum, ended) in sums.iter_mut().zip(&threads.ended) {
            *sum += ended;
        }
    }
}

/// The ways to count, in the order of their reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountingWay {
    Global,
    ThreadLocal,
    CoreLocal,
    CoreLocalRseq,
}

impl CountingWay {
    pub(super) const ALL: [Self; 4] = [
        Self::Global,
        Self::ThreadLocal,
        Self::CoreLocal,
        Self::CoreLocalRseq,
    ];

    /// Name and description in records.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Global => ("global", "an atomic addition to a word of all threads"),
            Self::ThreadLocal => (
                "thread-local",
                "a plain addition to a word of the thread, merged when it ends",
            ),
            Self::CoreLocal => ("core-local", "an atomic addition to a word of the core"),
            Self::CoreLocalRseq => (
                "core-local-rseq",
                "a plain addition to a word of the core, by a restartable sequence",
            ),
        }
    }

    /// False for a way that this machine does not support.
    pub(super) fn is_here(self) -> bool {
        let is_plain = || {
            let words = CoreWords::<1>::new("core-local", Addition::Best);
            words.is_ok_and(|words| words.is_plain())
        };
        self != Self::CoreLocalRseq || is_plain()
    }
}

/// Work that is generic over the way to count.
pub(super) trait Work {
    /// The result.
    type Output;

    /// Does the work with these counters.
    fn run(self, counters: &impl SharedCounters) -> Self::Output;
}

/// Does `work` with new counters of `WORDS` words.
///
/// # Errors
/// When the system refuses address space.
pub(super) fn with<const WORDS: usize, W: Work>(way: CountingWay, work: W) -> Result<W::Output> {
    let core_words = |addition| {
        CoreWords::<WORDS>::new("core-local", addition)
            .map_err(|error| Error::option("variant", format!("mapping counters: {error}")))
    };
    Ok(match way {
        CountingWay::Global => work.run(&Global::new(WORDS)),
        CountingWay::ThreadLocal => work.run(&ThreadLocal::new(WORDS)),
        CountingWay::CoreLocal => work.run(&core_words(Addition::Atomic)?),
        CountingWay::CoreLocalRseq => work.run(&core_words(Addition::Best)?),
    })
}

#[cfg(test)]
mod tests {
    use pando_sync::thread;

    use super::*;

    struct Count;

    impl Work for Count {
        type Output = Vec<u64>;

        fn run(self, counters: &impl SharedCounters) -> Vec<u64> {
            for _ in 0..2 {
                thread::scope(|scope| {
                    let count = || (0..3000).for_each(|at| counters.add(at % 3, 2));
                    let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
                    // Threads are joined explicitly, so that destructors of their thread-local
                    // values have run.
                    threads.into_iter().for_each(|one| one.join().unwrap());
                });
            }
            let mut sums = vec![0; 4];
            counters.add_sums(&mut sums);
            sums
        }
    }

    #[test]
    fn no_way_loses_what_threads_have_counted_that_ended() {
        for way in CountingWay::ALL {
            let sums = with::<4, _>(way, Count).unwrap();
            assert_eq!(sums, [16_000, 16_000, 16_000, 0], "{way:?}");
        }
    }
}
