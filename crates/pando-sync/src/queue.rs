//! A bounded queue of words that signals its consumer only when the consumer waits.
//!
//! Any number of threads push and pop. Nothing is allocated after the queue was made, and no lock
//! is taken unless a waiter must be woken. A slot's sequence tells whose turn it is: it equals the
//! position when the slot may be filled, and the position + 1 when it may be emptied.
//!
//! # The ordering argument
//!
//! Producer: publish the word (Release store of the slot's sequence); `fence(SeqCst)`; read the
//! number of waiters; wake them only if it is not zero.
//!
//! Consumer: register its waker (the number of waiters grows); `fence(SeqCst)`; read the slot that
//! comes next; sleep only if it is still to be filled.
//!
//! One of the two fences comes first in the single total order of SeqCst operations. If it is the
//! consumer's, the producer reads a number that counts the consumer, and wakes it. If it is the
//! producer's, the consumer's read finds the word. So no word lies in the queue while everybody
//! sleeps. Without the producer's fence, its read of the number may happen before its word is
//! visible: the producer reads 0, the consumer finds the slot empty, and the word lies there for
//! ever. That is the lost wake-up, and the models below find it.
//!
//! A push between the fences of other producers needs no care: each producer reads the number
//! itself. A waiter that was woken is no longer registered, so a burst of words signals once.

use std::task::Waker;

use crate::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::core_local::CachePadded;
use crate::waiting::WaitList;

#[derive(Debug)]
struct Slot {
    /// `position` while the slot waits to be filled, `position + 1` while it waits to be emptied.
    sequence: AtomicUsize,
    /// Written by the producer that took the position, read by the consumer that took it.
    word: AtomicU64,
}

/// A bounded queue of `u64` words for any number of producers.
#[derive(Debug)]
pub struct SignalQueue {
    slots: Box<[Slot]>,
    /// The next position to fill.
    tail: CachePadded<AtomicUsize>,
    /// The next position to empty.
    head: CachePadded<AtomicUsize>,
    /// Wakers of consumers that sleep, or are about to.
    waiters: WaitList,
}

impl SignalQueue {
    /// Makes a queue for at least `capacity` words.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a queue holds at least one word");
        let slots = (0..capacity.next_power_of_two().max(2)).map(|position| Slot {
            sequence: AtomicUsize::new(position),
            word: AtomicU64::new(0),
        });
        Self {
            slots: slots.collect(),
            tail: CachePadded(AtomicUsize::new(0)),
            head: CachePadded(AtomicUsize::new(0)),
            waiters: WaitList::new(),
        }
    }

    fn slot(&self, position: usize) -> &Slot {
        &self.slots[position & (self.slots.len() - 1)]
    }

    /// Appends `word` and wakes the waiting consumers. Returns false if the queue is full. Never
    /// blocks.
    pub fn push(&self, word: u64) -> bool {
        let mut position = self.tail.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            // Acquire: pairs with the Release in pop, so the slot's last word has been read.
            let ahead = slot.sequence.load(Ordering::Acquire).wrapping_sub(position);
            if ahead == 0 {
                // Relaxed: the slot's sequence orders its word; this only assigns positions.
                match self.tail.compare_exchange_weak(
                    position,
                    position.wrapping_add(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        slot.word.store(word, Ordering::Relaxed);
                        // Release: pairs with the Acquire in pop and is_empty.
                        slot.sequence
                            .store(position.wrapping_add(1), Ordering::Release);
                        break;
                    }
                    Err(now) => position = now,
                }
            } else if ahead > usize::MAX / 2 {
                // The slot is one round behind: its last word has not been taken.
                return false;
            } else {
                position = self.tail.load(Ordering::Relaxed);
            }
        }
        // A fence, then the read of the number of waiters: see the module's argument.
        self.waiters.notify_all();
        true
    }

    /// Takes the oldest word, None if the queue is empty. Never blocks.
    pub fn pop(&self) -> Option<u64> {
        let mut position = self.head.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(position);
            // Acquire: pairs with the Release in push, so the word is visible.
            let ahead = slot
                .sequence
                .load(Ordering::Acquire)
                .wrapping_sub(position.wrapping_add(1));
            if ahead == 0 {
                // Relaxed: as in push.
                match self.head.compare_exchange_weak(
                    position,
                    position.wrapping_add(1),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        let word = slot.word.load(Ordering::Relaxed);
                        let next = position.wrapping_add(self.slots.len());
                        // Release: pairs with the Acquire in push.
                        slot.sequence.store(next, Ordering::Release);
                        return Some(word);
                    }
                    Err(now) => position = now,
                }
            } else if ahead > usize::MAX / 2 {
                return None;
            } else {
                position = self.head.load(Ordering::Relaxed);
            }
        }
    }

    /// Returns whether a pop would have found nothing.
    pub fn is_empty(&self) -> bool {
        let position = self.head.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in push.
        let sequence = self.slot(position).sequence.load(Ordering::Acquire);
        // If another consumer has taken the word that was here, this returns false, and the caller
        // tries again.
        sequence == position
    }

    /// Returns the number of words in the queue, which may be outdated.
    pub fn len(&self) -> usize {
        let head = self.head.load(Ordering::Relaxed);
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_sub(head).min(self.slots.len())
    }

    /// Returns the number of words that fit.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Registers `waker` for the next word. Returns true if there is a word already; the caller
    /// must not sleep then.
    pub fn register(&self, waker: &Waker) -> bool {
        // Ends with the consumer's fence: see the module's argument.
        self.waiters.register(waker);
        !self.is_empty()
    }

    /// Removes all waiters, because the consumer is awake for another reason and no producer has to
    /// wake it.
    pub fn forget_waiters(&self) {
        self.waiters.forget_all();
    }

    /// Wakes the consumer without a word, for example at the end.
    pub fn signal(&self) {
        self.waiters.notify_all();
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::waiting::{park, thread_waker};
    use crate::{Arc, thread};

    #[test]
    fn words_come_out_in_the_order_of_one_producer_and_a_full_queue_says_so() {
        let queue = SignalQueue::new(4);
        assert!(queue.is_empty());
        for round in 0..10_u64 {
            for word in 0..4 {
                assert!(queue.push(round * 4 + word));
            }
            assert!(!queue.push(99), "a fifth word does not fit");
            assert_eq!(queue.len(), 4);
            for word in 0..4 {
                assert_eq!(queue.pop(), Some(round * 4 + word));
            }
            assert_eq!(queue.pop(), None);
            assert!(queue.is_empty());
        }
    }

    #[test]
    fn a_push_wakes_only_who_waits_and_once() {
        use crate::atomic::{AtomicUsize, Ordering};
        struct Count(AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(count.clone());
        let queue = SignalQueue::new(8);
        assert!(queue.push(1));
        assert!(queue.register(&waker), "a word is already queued");
        queue.forget_waiters();
        assert!(queue.push(2));
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "no consumer waits");
        while queue.pop().is_some() {}
        assert!(!queue.register(&waker));
        assert!(queue.push(3) && queue.push(4));
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "several pushes signal once"
        );
    }

    #[test]
    fn every_word_of_many_producers_arrives_while_the_consumer_sleeps_between_them() {
        const EACH: u64 = 20_000;
        let queue = Arc::new(SignalQueue::new(64));
        let producers: Vec<_> = (0..3_u64)
            .map(|producer| {
                let queue = queue.clone();
                thread::spawn(move || {
                    for number in 0..EACH {
                        while !queue.push(producer * EACH + number) {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let (mut seen, mut last) = (0, [None; 3]);
        while seen < 3 * EACH {
            match queue.pop() {
                Some(word) => {
                    let producer = (word / EACH) as usize;
                    assert!(last[producer] < Some(word), "order of one producer is kept");
                    last[producer] = Some(word);
                    seen += 1;
                }
                None if !queue.register(&thread_waker()) => park(),
                None => {}
            }
        }
        for producer in producers {
            producer.join().unwrap();
        }
        assert_eq!(queue.pop(), None);
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-sync --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use std::task::Wake;

    use super::*;
    use crate::atomic::AtomicBool;
    use crate::{Arc, thread};

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A consumer that has registered and found the queue empty is woken by the next push.
    #[test]
    fn no_word_lies_there_while_its_consumer_sleeps() {
        loom::model(|| {
            let queue = Arc::new(SignalQueue::new(2));
            let producer = thread::spawn({
                let queue = queue.clone();
                move || assert!(queue.push(7))
            });
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let sleeps = !queue.register(&Waker::from(flag.clone()));
            producer.join().unwrap();
            let woken = flag.0.load(Ordering::Relaxed);
            assert!(
                !sleeps || woken,
                "the consumer sleeps although a word is queued"
            );
            assert_eq!(queue.pop(), Some(7));
        });
    }

    /// Each word of two producers comes out once and whole.
    #[test]
    fn each_word_comes_out_once() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let queue = Arc::new(SignalQueue::new(2));
            let producers: Vec<_> = [5, 6]
                .into_iter()
                .map(|word| {
                    let queue = queue.clone();
                    thread::spawn(move || assert!(queue.push(word)))
                })
                .collect();
            let mut sum = queue.pop().unwrap_or(0);
            for producer in producers {
                producer.join().unwrap();
            }
            while let Some(word) = queue.pop() {
                sum += word;
            }
            assert_eq!(sum, 11);
        });
    }
}
