//! `bench pool`: reads that wait, through the pool alone: fetch, park, complete, publish, retry,
//! evict. No tree above, no disk below.
//!
//! Reading order: [`options`], `pages` (what is read), `null` (the device that does nothing),
//! `pending` (what a thread does), [`run`](mod@run).

mod null;
pub mod options;
mod pages;
mod pending;
pub mod run;

pub use options::{PoolOptions, PoolWorkload};
pub use run::run;
