//! Every engine of the build under every workload, with tiny inputs; and whole runs of the
//! program.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod program;
mod workloads;
