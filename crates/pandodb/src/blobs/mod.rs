//! What values in chunks are made of: extents that no record names yet, who reads which chunks, and
//! room for buffers. Knows no pages.

pub(crate) mod readers;
pub(crate) mod room;
pub(crate) mod staged;
pub(crate) mod value;
