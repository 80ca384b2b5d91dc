//! The parts of values in chunks: extents that no record names yet, the registry of readers, and
//! room for buffers. Knows nothing of pages.

pub(crate) mod readers;
pub(crate) mod room;
pub(crate) mod staged;
pub(crate) mod value;
