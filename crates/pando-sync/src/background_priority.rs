//! Priority of background threads, which let others run first (decision 041).
//!
//! When a waiting thread is woken, the scheduler may preempt the thread that runs on its processor.
//! A thread that wakes for each of many small writes to a device does that many times a second, and
//! each time it delays some call of another thread. As batch work (`SCHED_BATCH`, sched(7)) it
//! still gets its share of the processor, but does not preempt.

/// Makes its thread batch work until it is dropped, on systems that support it. Must be dropped by
/// its own thread.
#[derive(Debug)]
pub struct BackgroundPriority {
    changed: bool,
    /// Not `Send`: no other thread may drop it.
    _of_thread: std::marker::PhantomData<*const ()>,
}

impl BackgroundPriority {
    /// Makes the calling thread batch work from now on. A thread that does not have the ordinary
    /// scheduling policy keeps its own.
    pub fn begin() -> Self {
        Self {
            changed: is(ORDINARY) && become_(BATCH),
            _of_thread: std::marker::PhantomData,
        }
    }
}

impl Drop for BackgroundPriority {
    fn drop(&mut self) {
        if self.changed {
            // Both policies are of one class, so this needs no privilege. If it fails, the thread
            // stays batch work.
            become_(ORDINARY);
        }
    }
}

use imp::{BATCH, ORDINARY, become_, is};

#[cfg(all(
    target_os = "linux",
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
))]
#[expect(
    unsafe_code,
    reason = "asks the system how the calling thread is scheduled, and changes it"
)]
mod imp {
    pub(super) const ORDINARY: libc::c_int = libc::SCHED_OTHER;
    pub(super) const BATCH: libc::c_int = libc::SCHED_BATCH;

    /// Returns whether the calling thread has scheduling policy `policy`.
    pub(super) fn is(policy: libc::c_int) -> bool {
        // SAFETY: takes no pointer; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) == policy }
    }

    /// Sets the policy of the calling thread. Returns false if the system refuses.
    pub(super) fn become_(policy: libc::c_int) -> bool {
        // SAFETY: a structure of integers.
        let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
        parameters.sched_priority = 0;
        // SAFETY: `parameters` outlives the call, which only reads it; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
    }
}

#[cfg(not(all(
    target_os = "linux",
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
)))]
mod imp {
    pub(super) const ORDINARY: i32 = 0;
    pub(super) const BATCH: i32 = 3;

    pub(super) fn is(_policy: i32) -> bool {
        false
    }

    pub(super) fn become_(_policy: i32) -> bool {
        false
    }
}

#[cfg(all(
    test,
    target_os = "linux",
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_polite_for_as_long_as_it_says() {
        if !is(ORDINARY) {
            // The tests were started with another policy.
            return;
        }
        let background = BackgroundPriority::begin();
        assert!(is(BATCH));
        // A nested one changes nothing.
        drop(BackgroundPriority::begin());
        assert!(is(BATCH));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(BackgroundPriority::begin()));
        });
        assert!(is(BATCH));
        drop(background);
        assert!(is(ORDINARY));
    }
}
