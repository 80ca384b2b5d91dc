//! Work that nobody waits for: underfull leaves, garbage, growth of data file and log.

pub(crate) mod freed_leaves;
pub(crate) mod garbage;
pub(crate) mod kept_rows;
pub(crate) mod log_files;
pub(crate) mod maintenance;
pub(crate) mod old_versions;
pub(crate) mod room_to_come;
