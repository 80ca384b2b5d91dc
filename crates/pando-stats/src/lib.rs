//! Counters and histograms that are always on; readers add them up.
//!
//! A tick adds to a line that belongs to the current core, so that it costs no transfer, and where
//! the kernel restarts sequences no lock prefix either (`pando_sync::core_words` has the argument);
//! a query reads one row for each core, whatever the number of threads. Nothing is lost when a
//! thread exits or migrates: a count belongs to the core it was made on.
//!
//! [`ticker`] and [`measure`] are the one table of what is counted and measured, with unit and
//! help. [`scale`] and [`histogram`]: what a histogram is; [`recorder`]: one that all threads add
//! to; [`sampler`]: which operations are timed; [`statistics`]: all of them together.
//!
//! Built with `--cfg pando_no_statistics` it counts, measures and times nothing, to see what that
//! costs. What reads counts, as tests and the server's INFO do, then finds zeros.

#![forbid(unsafe_code)]

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
