//! Opening: creation or recovery of a store.

pub(crate) mod open;
pub(crate) mod replay;
