//! Other engines under the workloads of `pando bench kv`, side by side.
//!
//! Reading order: `options` (what is asked for), [`engine`] (what an engine must do), `engines`
//! (one file each), `calls` (one call of each workload), [`session`] (an engine that is filled
//! once and then measured), `disk` (what the process read and wrote), [`writes`] (that until all is
//! written, and the space it takes), [`record`]; `child` (each
//! engine has a process of its own), `cgroup` (may hold that to a total memory), [`run`] (fills,
//! rounds, order), `screen`, [`flags`].
//!
//! Keys, values, the order of operations, threads, clock and histogram are those of `pando-bench`.
//! No unsafe code: engines that need some have it in `pando-peers-native`.

#![forbid(unsafe_code)]

mod calls;
mod cgroup;
mod child;
mod disk;
pub mod engine;
mod engines;
pub mod flags;
pub mod options;
/// Sizes and durations as the product's command line takes them: the same file.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the product shows sizes, peers only read them")
)]
#[path = "../../crates/pando/src/quantity.rs"]
mod quantity;
pub mod record;
pub mod run;
mod screen;
pub mod session;
pub mod writes;

pub use engines::{ENGINES, EngineKind};
pub use options::{Level, Options};
pub use session::Session;
