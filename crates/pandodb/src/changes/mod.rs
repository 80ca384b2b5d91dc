//! What one write does to pages, for commits and for replay.

pub(crate) mod apply;
pub(crate) mod aside;
pub(crate) mod blobs;
pub(crate) mod logged;
pub(crate) mod tables;
