//! Runs every engine of the build under every workload with tiny inputs, and runs the program as a
//! whole.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod program;
mod workloads;
