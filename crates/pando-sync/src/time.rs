//! The clock. Only this module calls `Instant::now`, so that time can be replaced in one place.

pub use std::time::{Duration, Instant, SystemTime};

/// Reads the monotonic clock (about 20 ns per call).
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the processor time that the calling thread has used, including time in the kernel.
pub fn used_by_thread() -> Duration {
    let mut used = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "one call of the C library")]
    // SAFETY: `used` is a place that the call may write to.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
    assert!(result == 0, "a thread has a clock of its processor time");
    let seconds = u64::try_from(used.tv_sec).expect("nobody runs backwards");
    Duration::new(seconds, 0) + Duration::from_nanos(used.tv_nsec.unsigned_abs())
}

/// Returns the milliseconds since 1970-01-01 UTC by the wall clock, 0 for times before it.
pub fn unix_ms() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_passes_while_a_thread_runs() {
        let begun = used_by_thread();
        let mut last = begun;
        while last < begun + Duration::from_millis(2) {
            let now = used_by_thread();
            assert!(now >= last, "time does not go back");
            last = now;
        }
    }
}
