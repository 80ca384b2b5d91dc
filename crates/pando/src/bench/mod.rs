//! `pando bench`: flags, table and records; the work is `pando-bench`'s.
//!
//! Reading order: `flags` (what several layers share), `screen` (where results go), [`layer`]
//! (which layers there are), a file for each layer.

mod ablation;
mod alloc;
mod device;
mod flags;
mod iso;
mod kv;
pub(crate) mod layer;
mod pool;
mod recovery;
mod resp;
mod screen;

pub(crate) use layer::{Layer, run};
