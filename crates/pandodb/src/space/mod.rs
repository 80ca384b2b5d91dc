//! Blocks of the data file: promised, taken, given back, discarded.

pub(crate) mod discarding;
pub(crate) mod discards;
pub(crate) mod keeper;
pub(crate) mod promises;
