//! A gate that many threads pass at the same time and one may close: the engine's apply gate. Every
//! change of a page happens while its thread is counted in here. So closing the gate and waiting
//! for the counts yields one moment at which all batches up to an LSN are applied, and none after
//! it (decision 004).
//!
//! # The ordering argument
//!
//! Entering: count += 1; `fence(SeqCst)`; read `closed`. Closing: `closed` = true; `fence(SeqCst)`;
//! read the counts. One of the two fences comes first: either the entrant sees the gate closed and
//! takes its count back, or the closer sees the count and waits for it. Leaving is a Release that
//! the closer's read of 0 acquires, so the closer sees all changes made inside. Opening is a
//! Release that the next entrant's read acquires. (The gate uses fences, not SeqCst accesses,
//! because a model checker that treats SeqCst accesses as acquire and release checks fences as they
//! are.)

use crate::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::held::{Held, Kind, assert_none};
use crate::lock::{Mutex, MutexGuard};
use crate::rank::Rank;
use crate::{CoreLocal, WaitList, thread};

/// The gate of one engine.
#[derive(Debug)]
pub struct Gate {
    /// Number of guards by the slot of the core that entered.
    counts: CoreLocal<AtomicU64>,
    /// Written by the holder of `closing` only.
    closed: AtomicBool,
    /// Held by the closer, so that there is one at a time.
    closing: Mutex<()>,
    /// Wakers of threads that found the gate closed.
    waiters: WaitList,
}

/// Proof of being inside. Leaves the gate on drop, from the same slot that was entered. Only
/// [`Gate::try_enter`] makes one.
#[derive(Debug)]
pub struct GateGuard<'a> {
    gate: &'a Gate,
    slot: usize,
    _held: Held,
}

impl Drop for GateGuard<'_> {
    fn drop(&mut self) {
        // Release: pairs with the load in close; see the module's argument.
        let before = self
            .gate
            .counts
            .at(self.slot)
            .fetch_sub(1, Ordering::Release);
        assert!(before > 0, "the gate was left twice");
    }
}

/// Proof that the gate is closed and nobody is inside. Opens the gate on drop. Only [`Gate::close`]
/// makes one.
#[derive(Debug)]
pub struct Closed<'a> {
    gate: &'a Gate,
    /// None once the gate is open.
    one: Option<MutexGuard<'a, ()>>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in try_enter, so threads inside see what was changed
        // while the gate was closed.
        self.gate.closed.store(false, Ordering::Release);
        // Wakers are not run under it: they may be of users.
        drop(self.one.take());
        self.gate.waiters.notify_all();
    }
}

impl<'a> Closed<'a> {
    /// Opens the gate for others, and stays inside: nobody enters between the two.
    pub fn enter(self) -> GateGuard<'a> {
        let gate = self.gate;
        let slot = gate.counts.index();
        // Relaxed: whoever closes the gate next takes the lock that the drop of `self` gives back,
        // and so sees this count.
        gate.counts.at(slot).fetch_add(1, Ordering::Relaxed);
        GateGuard {
            gate,
            slot,
            _held: Held::new(Kind::Gate),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::GateGuard<'_> {}
    impl Sealed for super::Closed<'_> {}
}

/// A proof that its holder is inside a gate, or has closed it: a [`GateGuard`] or a [`Closed`]. No
/// other type can implement it.
pub trait Inside: sealed::Sealed {
    /// Returns the gate.
    fn gate(&self) -> &Gate;
}

impl Inside for GateGuard<'_> {
    #[inline]
    fn gate(&self) -> &Gate {
        self.gate
    }
}

impl Inside for Closed<'_> {
    #[inline]
    fn gate(&self) -> &Gate {
        self.gate
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Makes an open gate.
    pub fn new() -> Self {
        Self {
            counts: CoreLocal::new("gate", |_| AtomicU64::new(0)),
            closed: AtomicBool::new(false),
            closing: Mutex::new(Rank::GateClosing, ()),
            waiters: WaitList::new(),
        }
    }

    /// Returns the wakers of threads that found the gate closed. They are woken when it opens.
    pub fn waiters(&self) -> &WaitList {
        &self.waiters
    }

    /// Enters the gate, unless it is closed. Never blocks.
    pub fn try_enter(&self) -> Option<GateGuard<'_>> {
        let slot = self.counts.index();
        self.counts.at(slot).fetch_add(1, Ordering::Relaxed);
        let guard = GateGuard {
            gate: self,
            slot,
            _held: Held::new(Kind::Gate),
        };
        // SeqCst: pairs with the fence in close.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release of the opening.
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        Some(guard)
    }

    /// Returns whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns whether somebody is inside, or about to see that it is closed: for assertions.
    pub fn is_entered(&self) -> bool {
        // Acquire: as in close_alone.
        let mut counts = self.counts.iter();
        counts.any(|count| count.load(Ordering::Acquire) != 0)
    }

    /// Closes the gate and blocks until nobody is inside. Must not be called from inside.
    pub fn close(&self) -> Closed<'_> {
        assert_none(&[Kind::Latch, Kind::Stripes, Kind::Gate]);
        let one = self.closing.lock();
        self.close_alone(one, || ())
    }

    /// As [`Gate::close`], and calls `serve` again and again while it waits: for a thread without
    /// which those inside, or whoever closes the gate at this moment, may not get on.
    pub fn close_serving(&self, mut serve: impl FnMut()) -> Closed<'_> {
        assert_none(&[Kind::Latch, Kind::Stripes, Kind::Gate]);
        let one = loop {
            if let Some(one) = self.closing.try_lock() {
                break one;
            }
            serve();
            thread::yield_now();
        };
        self.close_alone(one, serve)
    }

    /// Closes the gate for the holder of `one`; a panic of `serve` opens it again.
    fn close_alone<'a>(&'a self, one: MutexGuard<'a, ()>, mut serve: impl FnMut()) -> Closed<'a> {
        self.closed.store(true, Ordering::Relaxed);
        let closed = Closed {
            gate: self,
            one: Some(one),
        };
        // SeqCst: pairs with the fence in try_enter.
        fence(Ordering::SeqCst);
        for count in self.counts.iter() {
            let mut turns = 0_u32;
            // Acquire: pairs with the Release in GateGuard::drop.
            while count.load(Ordering::Acquire) != 0 {
                turns += 1;
                if turns < 64 {
                    thread::spin_loop();
                } else {
                    serve();
                    thread::yield_now();
                }
            }
        }
        closed
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::Arc;

    #[test]
    fn nobody_is_inside_while_the_gate_is_closed() {
        let gate = Arc::new(Gate::new());
        let inside = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, inside, stop) = (gate.clone(), inside.clone(), stop.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(_guard) = gate.try_enter() {
                            inside.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for _ in 0..40 {
            let closed = gate.close();
            assert!(gate.is_closed());
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            thread::yield_now();
            assert_eq!(inside.load(Ordering::Relaxed), 0);
            drop(closed);
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(
            gate.counts
                .iter()
                .all(|count| count.load(Ordering::Relaxed) == 0)
        );
    }

    /// A waker of a user may take locks of its own: it is not run under that of the closer.
    #[test]
    fn whoever_opens_the_gate_wakes_without_its_lock() {
        struct Locks(Mutex<u32>);
        impl std::task::Wake for Locks {
            fn wake(self: Arc<Self>) {
                *self.0.lock() += 1;
            }
        }
        let woken = Arc::new(Locks(Mutex::new(Rank::Caller, 0)));
        let gate = Gate::new();
        let closed = gate.close();
        gate.waiters().register(&woken.clone().into());
        drop(closed);
        assert_eq!(*woken.0.lock(), 1);
    }

    /// One is inside and stays until the closer serves it, and another closer waits for that one.
    #[test]
    fn a_closer_serves_those_that_it_waits_for() {
        let (gate, served) = (Gate::new(), AtomicBool::new(false));
        let is_inside = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = gate.try_enter().unwrap();
                is_inside.store(true, Ordering::Release);
                while !served.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            });
            while !is_inside.load(Ordering::Acquire) {
                thread::yield_now();
            }
            scope.spawn(|| drop(gate.close()));
            while !gate.is_closed() {
                thread::yield_now();
            }
            drop(gate.close_serving(|| served.store(true, Ordering::Release)));
        });
        assert!(!gate.is_closed());
    }

    /// What the closer serves may be work of users, and nobody else would open the gate.
    #[test]
    fn a_closer_that_panics_while_it_serves_opens_the_gate() {
        let gate = Gate::new();
        let guard = gate.try_enter().unwrap();
        // The checks of what is held are per thread: the closer is another one.
        thread::scope(|scope| {
            let closer = scope.spawn(|| drop(gate.close_serving(|| panic!("a test"))));
            closer.join().unwrap_err();
        });
        assert!(!gate.is_closed());
        assert!(gate.is_entered(), "who was inside still is");
        drop(guard);
        assert!(!gate.is_entered());
        drop(gate.try_enter().expect("the gate is open"));
        drop(gate.close());
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-sync --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use crate::Arc;

    type Words = [AtomicU64; 2];

    /// Has one thread run `change`, which changes both words while nobody else may look, and looks
    /// at them with the gate closed.
    fn check(change: impl Fn(&Gate, &Words) + Copy + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.max_branches = 100_000;
        model.check(move || {
            let gate = Arc::new(Gate::new());
            let words: Arc<Words> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let worker = thread::spawn({
                let (gate, words) = (gate.clone(), words.clone());
                move || change(&gate, &words)
            });
            let closed = gate.close();
            let first = words[0].load(Ordering::Relaxed);
            let second = words[1].load(Ordering::Relaxed);
            assert_eq!(first, second, "a thread is inside");
            drop(closed);
            worker.join().unwrap();
        });
    }

    /// While the gate is closed no thread is inside, and the closer sees everything done inside
    /// before.
    #[test]
    fn closing_waits_for_everybody_inside() {
        check(|gate, words| {
            if let Some(_guard) = gate.try_enter() {
                words[0].store(1, Ordering::Relaxed);
                words[1].store(1, Ordering::Relaxed);
            }
        });
    }

    /// Whoever closed the gate and stayed inside is waited for by the next who closes it.
    #[test]
    fn a_closer_that_stays_inside_is_waited_for() {
        check(|gate, words| {
            let closed = gate.close();
            words[0].store(1, Ordering::Relaxed);
            let guard = closed.enter();
            words[1].store(1, Ordering::Relaxed);
            drop(guard);
        });
    }
}
