//! Files besides data file and log: superblock, mapping base and journal.

pub(crate) mod filling;
pub(crate) mod format_version;
pub(crate) mod mapping;
mod merge;
pub(crate) mod names;
pub(crate) mod reserve;
pub(crate) mod superblock;
pub(crate) mod whose;
