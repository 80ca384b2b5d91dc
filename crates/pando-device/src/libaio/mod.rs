//! Requests through the kernel's older interface (io_setup and its kin), one context for each
//! channel. Only direct files are asynchronous there; requests to other files are done when they
//! are submitted.
//!
//! Reading order: [`channel`], `context`.

pub mod channel;
mod context;

pub use channel::LibaioChannel;
