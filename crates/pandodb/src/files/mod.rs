//! Files beside data and log: superblock, mapping base and journal.

pub(crate) mod mapping;
