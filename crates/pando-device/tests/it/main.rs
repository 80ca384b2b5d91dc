//! Tests of the devices through their public interface.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod allocations;
mod conformance;
mod crash;
mod directory;
mod edges;
mod faults;
mod injected;
mod places;
mod refusal;
mod rings;
mod timed;
