//! `bench pool`: reads that wait, through the pool alone: fetch, park, complete, publish, retry,
//! evict. There is no tree above and no disk below.
//!
//! Reading order: [`options`], `pages` (what is read), `null` (the device that does nothing),
//! `parking` (where operations wait), `pending` (what a thread does), [`run`](mod@run).

pub(crate) mod null;
pub mod options;
pub(crate) mod pages;
pub(crate) mod parking;
pub(crate) mod pending;
pub mod run;

pub use options::{PoolOptions, PoolWorkload};
pub use run::run;
