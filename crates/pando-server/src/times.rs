//! Durations and deadlines as integers.

use pando_sync::time::Duration;

/// Returns the nanoseconds of a duration that is shorter than five centuries.
#[inline]
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    (time.as_secs().wrapping_mul(1_000_000_000)).wrapping_add(u64::from(time.subsec_nanos()))
}

/// Returns the milliseconds of such a duration.
#[inline]
pub(crate) fn milliseconds(time: Duration) -> u64 {
    nanoseconds(time) / 1_000_000
}

/// Returns true if what has this deadline lives no more at `now_ms`; both in milliseconds since 1970.
/// As in Redis, it lives in the millisecond of its deadline.
#[inline]
pub(crate) fn has_ended(deadline: u64, now_ms: u64) -> bool {
    deadline < now_ms
}
