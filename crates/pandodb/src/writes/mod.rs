//! Values that a commit is made of: its writes, the locks of its keys, what it has read.

pub(crate) mod jobs;
pub(crate) mod read_log;
pub(crate) mod set;
pub(crate) mod stripes;
