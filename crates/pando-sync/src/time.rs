//! The clock. Only this module calls `Instant::now`, so that time can be replaced in one place.

pub use std::time::{Duration, Instant, SystemTime};

/// Reads the monotonic clock (about 20 ns per call).
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Returns the processor time that the calling thread has used, including time in the kernel.
pub fn used_by_thread() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the milliseconds of the monotonic clock, for deadlines in an atomic number: whoever sets
/// the clock of the system changes the wall clock alone.
pub fn steady_ms() -> u64 {
    let elapsed = read(libc::CLOCK_MONOTONIC);
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut shown = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(unsafe_code, reason = "one call of the C library")]
    // SAFETY: `shown` is a place that the call may write to.
    let result = unsafe { libc::clock_gettime(clock, &raw mut shown) };
    assert!(result == 0, "every thread has both clocks");
    let seconds = u64::try_from(shown.tv_sec).expect("nobody runs backwards");
    Duration::new(seconds, 0) + Duration::from_nanos(shown.tv_nsec.unsigned_abs())
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
    fn the_steady_clock_is_that_of_instants() {
        let (begun, steady) = (now(), steady_ms());
        std::thread::sleep(Duration::from_millis(20));
        let inner = steady_ms() - steady;
        let outer = begun.elapsed();
        assert!(inner >= 19 && u128::from(inner) <= outer.as_millis() + 1);
    }

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
