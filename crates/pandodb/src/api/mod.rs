//! The handles of a user: store, table, batch, iterator.

pub(crate) mod batch;
pub(crate) mod catalogue;
pub(crate) mod counted;
pub(crate) mod db;
pub(crate) mod delete_range;
pub(crate) mod iter;
pub(crate) mod many;
pub(crate) mod max_memory;
pub(crate) mod prefetch;
pub(crate) mod range_end;
pub(crate) mod sample;
pub(crate) mod snapshot;
pub(crate) mod table;
pub(crate) mod table_options;
