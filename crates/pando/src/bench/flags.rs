//! Flags that several layers share, with the same names and meanings.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pando_bench::ValueSizes;
use pando_sync::time::Duration;
use pandodb::{Durability, IoBackend};

use crate::backend;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

/// What a write waits for.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum Level {
    Durable,
    Periodic,
    None,
}

impl Level {
    pub(super) fn durability(self) -> Durability {
        match self {
            Self::Durable => Durability::Durable,
            Self::Periodic => Durability::Periodic,
            Self::None => Durability::None,
        }
    }
}

/// Flags of every layer.
#[derive(Debug, Args)]
pub(super) struct CommonFlags {
    /// Directory of the benchmark, which is kept [default: a temporary one that is removed].
    #[arg(long)]
    pub(super) dir: Option<PathBuf>,
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Unmeasured time before each workload that does not fill.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_duration)]
    pub(super) warmup: Duration,
    /// Length of the steps in a series over time.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    pub(super) interval: Option<Duration>,
    /// Write a JSON object for each workload, one per line.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Write an HTML page: tables, percentiles, series over time, settings.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

/// Flags of layers that open a store.
#[derive(Debug, Args)]
pub(super) struct IoFlags {
    /// I/O back end: auto, uring, libaio, pread, memory or null; with a !: fail rather than fall
    /// back.
    #[arg(long, default_value = "auto")]
    io_backend: String,
    /// Maximum number of reads in flight per event loop.
    #[arg(long)]
    pub(super) queue_depth: Option<usize>,
    /// Threads that read for event loops, if the back end uses threads.
    #[arg(long)]
    pub(super) completion_threads: Option<usize>,
    /// Bytes of a page.
    #[arg(long, value_parser = parse_size)]
    page_size: Option<u64>,
}

impl IoFlags {
    pub(super) fn backend(&self) -> Result<IoBackend, Failure> {
        choose(&self.io_backend)
    }

    pub(super) fn page_bytes(&self) -> Result<Option<usize>, Failure> {
        let page_size = self.page_size.map(|size| bytes("page-size", size));
        page_size.transpose()
    }
}

/// Returns the back end called `name`.
pub(super) fn choose(name: &str) -> Result<IoBackend, Failure> {
    backend::choose(name, true)
}

/// Converts a number of bytes that must fit into memory.
pub(super) fn bytes(flag: &str, bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::usage(format!("--{flag}: {bytes} is too large")))
}

/// Returns the values that `names` stand for, in the same order.
pub(super) fn named<T>(
    names: &[String],
    from_name: fn(&str) -> pando_bench::Result<T>,
) -> Result<Vec<T>, Failure> {
    let all = names.iter().map(|name| from_name(name.trim()));
    Ok(all.collect::<Result<_, _>>()?)
}

/// Parses sizes of values, in the format that the flag's help describes.
pub(super) fn parse_value_sizes(text: &str) -> Result<ValueSizes, String> {
    let size = |text: &str| {
        let bytes = parse_size(text)?;
        usize::try_from(bytes).map_err(|_| format!("{bytes} bytes do not fit into memory"))
    };
    let (range, law) = match text.split_once(':') {
        Some((range, law)) => (range, Some(law)),
        None => (text, None),
    };
    match (range.split_once('-'), law) {
        (None, None) => Ok(ValueSizes::Fixed(size(range)?)),
        (Some((min, max)), law @ (None | Some("zipf"))) => {
            let (min, max) = (size(min)?, size(max)?);
            Ok(match law {
                None => ValueSizes::Uniform { min, max },
                Some(_) => ValueSizes::Zipf { min, max },
            })
        }
        _ => Err("SIZE, MIN-MAX or MIN-MAX:zipf is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{ValueSizes, parse_value_sizes};

    #[test]
    fn sizes_of_values_are_one_or_a_range_with_a_law() {
        let (min, max) = (64, 4096);
        for (text, sizes) in [
            ("1k", ValueSizes::Fixed(1024)),
            ("64-4k", ValueSizes::Uniform { min, max }),
            ("64-4096:zipf", ValueSizes::Zipf { min, max }),
        ] {
            assert_eq!(parse_value_sizes(text), Ok(sizes), "{text}");
        }
        for text in ["", "64-", "-64", "64:zipf", "64-128:uniform", "1-2-3"] {
            assert!(parse_value_sizes(text).is_err(), "{text}");
        }
    }
}
