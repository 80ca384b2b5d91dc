//! Tests of the devices through their public interface.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "tests count in small numbers"
)]
#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod allocations;
mod conformance;
mod crash;
mod directory;
mod edges;
mod faults;
mod injected;
mod overlay;
mod places;
mod refusal;
mod rings;
mod timed;
