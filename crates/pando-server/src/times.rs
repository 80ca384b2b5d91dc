//! Times as whole numbers.

use pando_sync::time::Duration;

/// Nanoseconds of times that are shorter than five centuries.
#[inline]
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    (time.as_secs().wrapping_mul(1_000_000_000)).wrapping_add(u64::from(time.subsec_nanos()))
}

/// Milliseconds of such times.
#[inline]
pub(crate) fn milliseconds(time: Duration) -> u64 {
    nanoseconds(time) / 1_000_000
}
