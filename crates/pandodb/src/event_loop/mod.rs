//! What event loops use: see [`crate::nonblocking`], which names it.

pub(crate) mod group;
pub(crate) mod polled;
pub(crate) mod reactor;
pub(crate) mod table;
pub(crate) mod validated_batch;
