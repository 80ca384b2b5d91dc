//! The open store: its tables, how rows lie in them, what cleans and packs them.

pub(crate) mod cleaner;
pub(crate) mod compaction;
pub(crate) mod cursor;
pub(crate) mod engine;
pub(crate) mod keyspace;
