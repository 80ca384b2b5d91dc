//! Crashes, faults, damage and linearizability of whole stores.

mod crash;
