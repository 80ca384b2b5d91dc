//! `bench alloc`: blocks from the allocator alone, by fill, fragmentation and number of threads.
//!
//! Reading order: [`options`], `state` (how full, and how fragmented), `allocator` (a trait over
//! what is measured), `turns` (what a thread does, and its times), [`run`](mod@run).

pub(crate) mod allocator;
pub mod options;
pub mod run;
pub(crate) mod state;
pub(crate) mod turns;

pub use options::AllocOptions;
pub use run::run;
