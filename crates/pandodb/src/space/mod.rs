//! Blocks of the data file: reserved, taken, given back, discarded.

pub(crate) mod discarding;
pub(crate) mod discards;
pub(crate) mod keeper;
pub(crate) mod reservations;
