//! `queue`: completions that are handed to one consumer, as an event loop's are. The slow variant
//! signals with each word, whether or not somebody waits.

use pando_stats::Histogram;
use pando_sync::time::{self, Duration, Instant};
use pando_sync::{Condvar, Mutex, Rank, SignalQueue, park, thread, thread_waker};

use super::options::AblationOptions;
use super::rounds::{self, Variant};
use crate::cpu;
use crate::error::{Error, Result};
use crate::phase::{Measured, Observer, share};
use crate::record::Record;

const WORKLOAD: &str = "queue";
/// Capacity of the queue in words: that of completions of a deep device.
const CAPACITY: usize = 1024;
/// One push of this many is timed.
const TIMED_EACH: u64 = 64;
/// Where a word's producer stands.
const PRODUCER_SHIFT: u32 = 48;
/// The last word of each producer.
const END: u64 = u64::MAX;

/// A queue with its way of waking the consumer.
trait Signalled: Sync {
    /// Appends a word; false if there is no room.
    fn push(&self, word: u64) -> bool;

    /// Takes the next word; sleeps until there is one.
    fn take(&self) -> u64;
}

/// The product's: a push signals only if the consumer waits.
struct IfWaitedFor(SignalQueue);

impl Signalled for IfWaitedFor {
    fn push(&self, word: u64) -> bool {
        self.0.push(word)
    }

    fn take(&self) -> u64 {
        loop {
            if let Some(word) = self.0.pop() {
                return word;
            }
            if !self.0.register(&thread_waker()) {
                park();
            }
        }
    }
}

/// Every push signals: one system call each.
struct Always {
    queue: SignalQueue,
    lock: Mutex<()>,
    filled: Condvar,
}

impl Signalled for Always {
    fn push(&self, word: u64) -> bool {
        let pushed = self.queue.push(word);
        // Under the lock the consumer has not looked at the queue yet, or it waits already.
        drop(self.lock.lock());
        self.filled.notify_one();
        pushed
    }

    fn take(&self) -> u64 {
        if let Some(word) = self.queue.pop() {
            return word;
        }
        let mut guard = self.lock.lock();
        loop {
            if let Some(word) = self.queue.pop() {
                return word;
            }
            guard = self.filled.wait(guard);
        }
    }
}

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let variants = [
        Variant::other("always", "each word signals the consumer"),
        Variant::ours("a word signals the consumer only if it waits"),
    ];
    let mut turn = |index: usize, _: &mut dyn Observer| {
        let queue = SignalQueue::new(CAPACITY);
        match variants[index].is_ours {
            true => measure(options, &IfWaitedFor(queue)),
            false => measure(
                options,
                &Always {
                    queue,
                    lock: Mutex::new(Rank::Leaf, ()),
                    filled: Condvar::new(),
                },
            ),
        }
    };
    rounds::run(options, &variants, &mut turn, observer)
}

fn measure(options: &AblationOptions, queue: &impl Signalled) -> Result<Record> {
    let producers = options.threads();
    let cpu_before = cpu::used();
    let start = time::now();
    let deadline = options.duration.map(|duration| start + duration);
    let (calls, ops) = thread::scope(|scope| {
        let handles: Vec<_> = (0..producers)
            .map(|producer| {
                let all = share(options.num(), producers, producer);
                let count = match deadline {
                    Some(_) => u64::MAX >> (u64::BITS - PRODUCER_SHIFT),
                    None => all.end - all.start,
                };
                scope.spawn(move || produce(queue, producer as u64, count, deadline))
            })
            .collect();
        let taken = consume(queue, producers);
        let mut calls = Histogram::default();
        for handle in handles {
            calls.merge(&handle.join().expect("a producer panicked"));
        }
        taken.map(|ops| (calls, ops))
    })?;
    let measured = Measured {
        calls,
        ops,
        elapsed: start.elapsed().max(Duration::from_nanos(1)),
        cpu: cpu_before
            .zip(cpu::used())
            .map(|(before, after)| after.saturating_sub(before)),
        ..Measured::default()
    };
    let mut record = Record::new(WORKLOAD, "ours", producers, options.seed);
    record.set_measured(&measured);
    record.queue_depth = Some(CAPACITY);
    Ok(record)
}

/// Pushes numbered words; returns how long some of the pushes took.
fn produce(
    queue: &impl Signalled,
    producer: u64,
    count: u64,
    deadline: Option<Instant>,
) -> Histogram {
    let mut calls = Histogram::default();
    let push = |word| {
        while !queue.push(word) {
            thread::yield_now();
        }
    };
    for number in 0..count {
        let word = producer << PRODUCER_SHIFT | number;
        if number % TIMED_EACH != 0 {
            push(word);
            continue;
        }
        let begun = time::now();
        push(word);
        let now = time::now();
        let ns = now.saturating_duration_since(begun).as_nanos();
        calls.add(u64::try_from(ns).unwrap_or(u64::MAX));
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
    }
    push(END);
    calls
}

/// Takes all words until each producer has ended; those of one producer arrive in order.
fn consume(queue: &impl Signalled, producers: usize) -> Result<u64> {
    let mut next = vec![0_u64; producers];
    let mut wrong = None;
    let mut running = producers;
    // Also after an error: a producer that finds no room would never end.
    while running > 0 {
        let word = queue.take();
        if word == END {
            running -= 1;
            continue;
        }
        let number = word & (u64::MAX >> (u64::BITS - PRODUCER_SHIFT));
        match next.get_mut((word >> PRODUCER_SHIFT) as usize) {
            Some(expected) if *expected == number => *expected += 1,
            _ => wrong = Some(word),
        }
    }
    match wrong {
        None => Ok(next.iter().sum()),
        Some(word) => Err(Error::Wrong {
            workload: WORKLOAD,
            what: format!("word {word:#x} is out of order"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that delivers its second word twice.
    struct Stutters(SignalQueue);

    impl Signalled for Stutters {
        fn push(&self, word: u64) -> bool {
            self.0.push(word) && (word != 1 || self.0.push(word))
        }

        fn take(&self) -> u64 {
            self.0
                .pop()
                .expect("all words are pushed before the consumer begins")
        }
    }

    #[test]
    fn a_word_that_comes_twice_is_noticed() {
        let queue = Stutters(SignalQueue::new(16));
        produce(&queue, 0, 5, None);
        let error = consume(&queue, 1).unwrap_err().to_string();
        assert!(error.contains("out of order"), "{error}");
        let queue = IfWaitedFor(SignalQueue::new(16));
        produce(&queue, 0, 5, None);
        assert_eq!(consume(&queue, 1).unwrap(), 5);
    }
}
