//! Figures of an open store.

pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod report;
pub(crate) mod snapshots;
