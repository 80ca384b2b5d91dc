//! Files besides data file and log: superblock, mapping base and journal.

pub(crate) mod mapping;
