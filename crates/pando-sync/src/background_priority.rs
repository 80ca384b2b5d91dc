//! Threads that work in the background and let others go on (decision 041).
//!
//! When a thread that has waited is woken, the scheduler may drive out whoever runs on its
//! processor. A thread that wakes for each of many small writes to a device does that many times
//! a second, and every time some call of somebody else stands still meanwhile. As batch work
//! (`SCHED_BATCH`, sched(7)) it gets its share of the processor all the same, but in turns.

/// While it lives, its thread is batch work, if the system has such. Belongs to its thread.
#[derive(Debug)]
pub struct BackgroundPriority {
    changed: bool,
    /// Not to be dropped by another thread.
    _of_thread: std::marker::PhantomData<*const ()>,
}

impl BackgroundPriority {
    /// The calling thread is batch work from here on. A thread that the caller's own settings have
    /// made something else than ordinary stays what it is.
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
            // Both are of one class: needs no privilege. Else the thread stays polite.
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

    /// How the calling thread is scheduled.
    pub(super) fn is(policy: libc::c_int) -> bool {
        // SAFETY: takes no pointer; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) == policy }
    }

    /// False if the system refuses.
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
            // Whoever runs the tests has made them something else.
            return;
        }
        let background = BackgroundPriority::begin();
        assert!(is(BATCH));
        // Within another one nothing changes.
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
