//! Tests of the allocator through its public interface.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod cases;
mod lowest;
mod mixed;
mod model;
mod stress;
