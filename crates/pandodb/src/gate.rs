//! The apply gate: every change of a page happens while its thread is counted in here, so that
//! closing the gate and waiting for the counts yields one moment at which all batches up to an LSN
//! are applied and none behind it.
//!
//! # The ordering argument
//!
//! Entering: count += 1 (SeqCst); read `closed` (SeqCst). Closing: `closed` = true (SeqCst); read
//! the counts (SeqCst). In the single order of these four either the entrant sees the gate closed
//! and takes its count back, or the closer sees the count and waits for it. Leaving is a Release
//! that the closer's read of 0 acquires: all that was changed inside is seen.

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{CoreLocal, Mutex, MutexGuard, WaitList, thread};

/// The gate of one engine.
#[derive(Debug)]
pub(crate) struct Gate {
    counts: CoreLocal<AtomicU64>,
    closed: AtomicBool,
    /// One closer at a time.
    closing: Mutex<()>,
    /// Those that found the gate closed.
    pub(crate) waiters: WaitList,
}

/// Being inside. Leaves on drop, from the very slot that was entered.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    slot: usize,
}

impl Drop for Pass<'_> {
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

/// The gate is closed and nobody is inside. Opens on drop.
#[derive(Debug)]
pub(crate) struct Closed<'a> {
    gate: &'a Gate,
    _one: MutexGuard<'a, ()>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // SeqCst: pairs with the load in try_enter; what was changed while closed is seen inside.
        self.gate.closed.store(false, Ordering::SeqCst);
        self.gate.waiters.notify_all();
    }
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            counts: CoreLocal::new("gate", |_| AtomicU64::new(0)),
            closed: AtomicBool::new(false),
            closing: Mutex::new(()),
            waiters: WaitList::new(),
        }
    }

    /// Goes in, unless the gate is closed.
    pub(crate) fn try_enter(&self) -> Option<Pass<'_>> {
        let slot = self.counts.index();
        // SeqCst: see the module's argument.
        self.counts.at(slot).fetch_add(1, Ordering::SeqCst);
        let pass = Pass { gate: self, slot };
        if self.closed.load(Ordering::SeqCst) {
            return None;
        }
        Some(pass)
    }

    /// True while the gate is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes the gate and waits until nobody is inside. Blocks; never called from inside.
    pub(crate) fn close(&self) -> Closed<'_> {
        let one = self.closing.lock();
        // SeqCst: see the module's argument.
        self.closed.store(true, Ordering::SeqCst);
        for count in self.counts.iter() {
            let mut turns = 0_u32;
            while count.load(Ordering::SeqCst) != 0 {
                turns += 1;
                if turns < 64 {
                    thread::spin_loop();
                } else {
                    thread::yield_now();
                }
            }
        }
        Closed {
            gate: self,
            _one: one,
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use pando_sync::Arc;

    #[test]
    fn nobody_is_inside_while_the_gate_is_closed() {
        let gate = Arc::new(Gate::new());
        let inside = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (gate, inside, stop) = (gate.clone(), inside.clone(), stop.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(_pass) = gate.try_enter() {
                            inside.fetch_add(1, Ordering::Relaxed);
                            thread::yield_now();
                            inside.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for _ in 0..200 {
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
}
