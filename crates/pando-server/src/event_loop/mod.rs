//! The event loop of one core.

mod admission;
mod away;
mod durability;
mod eviction;
mod housekeeping;
mod keepalive;
mod leaving;
mod left_work;
mod rounds;
mod slab;
mod timers;
mod turns;

pub(crate) use rounds::{EventLoop, WAKER};
