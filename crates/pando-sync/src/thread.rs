//! Threads, from `std`, loom or shuttle.

#[cfg(not(any(pando_loom, pando_shuttle)))]
pub use std::thread::{
    Builder, JoinHandle, ScopedJoinHandle, Thread, current, panicking, park, park_timeout, scope,
    sleep, spawn, yield_now,
};

/// That of `std`, as is `thread_local!`; models run no code that needs it.
pub use std::thread::LocalKey;

#[cfg(pando_loom)]
pub use loom::thread::{Builder, JoinHandle, Thread, current, park, spawn, yield_now};

#[cfg(all(pando_shuttle, not(pando_loom)))]
pub use shuttle::thread::{
    Builder, JoinHandle, Thread, current, park, scope, sleep, spawn, yield_now,
};

/// Models have no clock: a timed park is a yield.
#[cfg(any(pando_loom, pando_shuttle))]
pub fn park_timeout(_timeout: std::time::Duration) {
    yield_now();
}

/// Tells the processor that the caller spins. Yields under a model checker.
#[inline]
pub fn spin_loop() {
    #[cfg(not(any(pando_loom, pando_shuttle)))]
    std::hint::spin_loop();
    #[cfg(any(pando_loom, pando_shuttle))]
    yield_now();
}
