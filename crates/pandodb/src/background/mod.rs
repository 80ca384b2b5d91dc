//! Work that nobody waits for: underfull leaves, garbage, growth of the file.

pub(crate) mod garbage;
pub(crate) mod kept_rows;
pub(crate) mod maintenance;
pub(crate) mod old_versions;
