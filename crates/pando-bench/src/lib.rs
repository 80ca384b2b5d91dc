//! The workloads of `pando bench`, layer by layer: the device, the pool over it, the engine through
//! its public interface, the server through a socket, and how reads scale with threads.
//!
//! Reading order: [`mod@kv`] ([`options`], `workload`, `distribution` and `value_sizes`: what is
//! asked for; `keys` and `values`: what is written, and how a read is checked; `random`,
//! `permutation`, `zipf`, `chooser` and `fresh`: which key is next; `operations`, `ycsb` and
//! `queue`: one call of each workload), `phase` (threads, warm-up, clock), `measured`, [`record`]
//! and `kv_record` (what is reported), `observer` (to whom), `curve`, `cpu`, `counters`; [`html`]
//! (records as a page); [`device`], [`pool`], [`mod@alloc`], [`resp`], [`iso`], [`mod@report`],
//! [`recovery`];
//! [`ablation`] (the product with one of its parts left out or replaced); `place` (where the file
//! of a benchmark lies).
//!
//! The same options and seed give the same operations in the same order on each thread.
//! Measurements of other engines are not here; what they must share with these ([`keys`],
//! [`values`], [`permutation`], [`chooser`], [`random`], [`phase`], [`record`]) is public for them.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

pub mod ablation;
pub mod alloc;
pub mod chooser;
mod counters;
mod cpu;
mod curve;
pub mod device;
mod distribution;
pub mod error;
mod fresh;
pub mod html;
pub mod iso;
pub mod keys;
pub mod kv;
mod kv_record;
mod measured;
mod observer;
mod operations;
pub mod options;
pub mod permutation;
pub mod phase;
mod place;
pub mod pool;
mod queue;
pub mod random;
pub mod record;
pub mod recovery;
pub mod report;
pub mod resp;
mod store;
mod value_sizes;
pub mod values;
mod workload;
mod ycsb;
mod zipf;

pub use ablation::{Ablation, AblationOptions};
pub use alloc::AllocOptions;
pub use device::{DeviceOptions, DeviceWorkload};
pub use error::{Error, Result};
pub use iso::{IsoLevel, IsoOptions, IsoSnapshots};
pub use kv::run;
pub use options::{Distribution, KeyKind, KvOptions, ValueSizes, Workload};
pub use phase::Observer;
pub use pool::{PoolOptions, PoolWorkload};
pub use record::Record;
pub use recovery::RecoveryOptions;
pub use report::ReportOptions;
pub use resp::{RespOptions, RespWorkload};
