//! Workloads behind `pando bench`, through the public interface of `pandodb`.
//!
//! Reading order: [`options`] (what is asked for), `keys` and `values` (what is written, and how a
//! read is checked), `random`, `permutation` and `zipf` (which key is next), `operations` (one call
//! of each workload), `phase` (threads, warm-up, clock), [`kv`] (a whole run), [`record`] (what is
//! reported), [`histogram`].
//!
//! Same options and seed give the same operations in the same order on each thread. Measures of
//! other engines are not here.

#![forbid(unsafe_code)]

mod cpu;
pub mod error;
pub mod histogram;
mod keys;
pub mod kv;
mod operations;
pub mod options;
mod permutation;
mod phase;
mod random;
pub mod record;
mod store;
mod values;
mod zipf;

pub use error::{Error, Result};
pub use kv::run;
pub use options::{Distribution, KeyKind, KvOptions, Workload};
pub use phase::Observer;
pub use record::Record;
