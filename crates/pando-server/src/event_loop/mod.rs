//! The event loop of one core.

mod admission;
mod durability;
mod housekeeping;
mod keepalive;
mod left_work;
mod rounds;
mod slab;
mod timers;

pub(crate) use rounds::{EventLoop, WAKER};
