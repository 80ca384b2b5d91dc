//! Opening a store: creation or recovery.

pub(crate) mod open;
pub(crate) mod replay;
