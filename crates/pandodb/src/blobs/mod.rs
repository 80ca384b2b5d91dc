//! The parts of values in chunks: extents that no record names yet, the registry of readers, room
//! for buffers, and checksums of blocks. Knows nothing of pages.

pub(crate) mod block_sums;
pub(crate) mod readers;
pub(crate) mod room;
pub(crate) mod staged;
pub(crate) mod value;
