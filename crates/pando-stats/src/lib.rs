//! Counters and histograms that are always on. Readers sum them up.
//!
//! A tick adds to a cache line of the current core, so it costs no transfer, and no lock prefix
//! either where the kernel supports restartable sequences (`pando_sync::core_words` has the
//! argument). A query reads one row for each core, whatever the number of threads. Nothing is lost
//! when a thread exits or migrates: a count belongs to the core on which it was made.
//!
//! [`ticker`] and [`measure`] are the tables of everything that is counted and measured, with unit
//! and help. [`scale`] and [`histogram`] define histograms, [`recorder`] is one that all threads
//! add to, [`sampler`] chooses the operations that are timed, and [`statistics`] combines all of
//! them.
//!
//! Built with `--cfg pando_no_statistics`, the crate counts, measures and times nothing, to show
//! what that costs. Readers of counts, such as tests and the server's INFO, then see zeros.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "tests count in small numbers"
    )
)]

pub mod histogram;
pub mod measure;
pub mod recorder;
pub mod sampler;
pub mod scale;
pub mod statistics;
#[cfg(test)]
mod tables_tests;
pub mod ticker;

pub use histogram::Histogram;
pub use measure::Measure;
pub use recorder::Recorder;
pub use sampler::Sampled;
pub use statistics::{IS_OFF, Statistics, Totals};
pub use ticker::{Layer, Ticker};
