//! The inputs of a commit: its writes, the stripe locks of its keys, and what it has read.

pub(crate) mod jobs;
pub(crate) mod journal;
pub(crate) mod keys;
mod order;
pub(crate) mod read_log;
pub(crate) mod read_places;
pub(crate) mod read_set;
pub(crate) mod set;
pub(crate) mod stripes;
pub(crate) mod watched;
