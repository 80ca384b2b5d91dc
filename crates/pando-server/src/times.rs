//! Durations as integers.

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
