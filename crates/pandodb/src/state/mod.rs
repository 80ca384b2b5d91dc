//! States of parts of the engine, each with the operations on it. None of them knows the engine;
//! the code that drives them is in the other folders.

pub(crate) mod apply_sections;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_progress;
pub(crate) mod fetchers;
pub(crate) mod giving_back;
pub(crate) mod helper;
pub(crate) mod key_buffers;
pub(crate) mod loads;
pub(crate) mod old_versions;
pub(crate) mod read_bounds;
pub(crate) mod read_requests;
pub(crate) mod transaction_memory;
pub(crate) mod underfull_leaves;
