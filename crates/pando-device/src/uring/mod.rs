//! Requests through a ring that is shared with the kernel (io_uring), one for each
//! channel (decision 010).
//!
//! The thread that submits also reaps, without another thread in between. Files get a number in the
//! ring, and buffers of [`Channel::buffers`](crate::Channel::buffers) are registered with it, which
//! saves the kernel a look-up and the pinning of pages for every request.
//!
//! Reading order: [`channel`], `ring`.

pub mod channel;
mod ring;

pub use channel::UringChannel;
