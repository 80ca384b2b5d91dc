//! The parts of the engine that event loops use; [`crate::nonblocking`] exports them.

pub(crate) mod aside;
pub(crate) mod batch_scan;
pub(crate) mod counted;
pub(crate) mod foreseen;
pub(crate) mod group;
pub(crate) mod polled;
pub(crate) mod reactor;
pub(crate) mod sample;
pub(crate) mod table;
pub(crate) mod transaction;
pub(crate) mod validated_batch;
pub(crate) mod watch;
