//! `pando bench pool`: the pool alone.

use clap::Args;
use pando_bench::{PoolOptions, PoolWorkload};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, bytes, named};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct PoolFlags {
    /// Device below the pool, separated by commas: null (done at once, without reading a byte),
    /// memory (copy and checksum).
    #[arg(long, value_delimiter = ',', default_value = "null,memory")]
    workloads: Vec<String>,
    /// The same, under the name that other layers use.
    #[arg(long, conflicts_with = "workloads", value_delimiter = ',')]
    io_backend: Vec<String>,
    /// Bytes of all pages.
    #[arg(long, default_value = "256m", value_parser = parse_size)]
    size: u64,
    /// Bytes of all frames.
    #[arg(long, alias = "cache-size", default_value = "32m", value_parser = parse_size)]
    max_memory: u64,
    /// Bytes of a page.
    #[arg(long, default_value = "4096", value_parser = parse_size)]
    page_size: u64,
    /// Reads that each thread keeps in flight.
    #[arg(long, default_value_t = 128)]
    queue_depth: usize,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Reads of all threads together, unless a duration is given.
    #[arg(long, default_value_t = 10_000_000)]
    num: u64,
    /// Length of each workload.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Print the pool's counters of each workload.
    #[arg(long)]
    statistics: bool,
    #[command(flatten)]
    common: CommonFlags,
}

pub(super) fn run(flags: &PoolFlags) -> Result<(), Failure> {
    let common = &flags.common;
    let names = match flags.io_backend.is_empty() {
        true => &flags.workloads,
        false => &flags.io_backend,
    };
    let options = PoolOptions {
        workloads: named(names, PoolWorkload::from_name)?,
        size_bytes: flags.size,
        max_memory: flags.max_memory,
        page_bytes: bytes("page-size", flags.page_size)?,
        queue_depth: flags.queue_depth,
        threads: flags.threads,
        num: flags.num,
        duration: flags.duration,
        warmup: common.warmup,
        interval: common.interval,
        seed: common.seed,
    };
    Screen::run("pool", common, flags.statistics, |screen| {
        pando_bench::pool::run(&options, screen)
    })
}
