//! The open store: its tables, how rows are stored in them, and what cleans and compacts them.

pub(crate) mod check;
pub(crate) mod cleaner;
pub(crate) mod compaction;
pub(crate) mod cursor;
pub(crate) mod deadlines;
pub(crate) mod earth;
pub(crate) mod elements;
pub(crate) mod engine;
pub(crate) mod field_cleaner;
#[cfg(feature = "scripts")]
pub(crate) mod function_table;
#[cfg(feature = "scripts")]
pub(crate) mod functions;
pub(crate) mod keyspace;
pub(crate) mod limits;
pub(crate) mod list_block;
pub(crate) mod members;
pub(crate) mod obstacles;
pub(crate) mod packed;
pub(crate) mod patches;
pub(crate) mod piece_head;
pub(crate) mod shape;
pub(crate) mod stream_head;
pub(crate) mod stream_id;
pub(crate) mod stream_rows;
pub(crate) mod tree_head;
