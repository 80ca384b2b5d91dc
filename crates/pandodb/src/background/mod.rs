//! Work that nobody waits for: sparse leaves, garbage, growth.

pub(crate) mod garbage;
pub(crate) mod kept_rows;
pub(crate) mod maintenance;
