//! Seeded workloads, crash and fault harness, linearizability checker.

#![forbid(unsafe_code)]
