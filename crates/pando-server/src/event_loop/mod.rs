//! The loop of one core.

mod admission;
mod durability;
mod keepalive;
mod patrol;
mod rounds;
mod slab;
mod timers;

pub(crate) use rounds::{EventLoop, WAKER};
