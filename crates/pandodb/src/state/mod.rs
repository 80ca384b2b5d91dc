//! States of parts of the engine, each behind what it does. None knows the engine: what drives them
//! stands in the folders above.

pub(crate) mod apply_sections;
pub(crate) mod checkpoint;
pub(crate) mod checkpoint_progress;
pub(crate) mod fetchers;
pub(crate) mod helper;
pub(crate) mod key_buffers;
pub(crate) mod loads;
pub(crate) mod read_bounds;
pub(crate) mod read_requests;
pub(crate) mod underfull_leaves;
