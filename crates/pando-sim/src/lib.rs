//! Seeded workloads, crash and fault harness, linearizability checker.
