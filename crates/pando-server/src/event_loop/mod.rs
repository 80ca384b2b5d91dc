//! The loop of one core.

mod admission;
mod durability;
mod patrol;
mod rounds;

pub(crate) use rounds::{EventLoop, WAKER};
