//! `pando bench`: flags, table and records; `pando-bench` does the work.
//!
//! Reading order: `flags` (shared by several layers), `screen` (where results go), [`layer`] (the
//! layers), and one file per layer.

mod ablation;
mod alloc;
mod device;
mod flags;
mod iso;
mod kv;
pub(crate) mod layer;
mod pool;
mod recovery;
mod report;
mod resp;
mod screen;

pub(crate) use layer::{Layer, run};
