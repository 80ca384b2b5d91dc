//! `pando bench device`: the device alone.

use clap::Args;
use pando_bench::{DeviceOptions, DeviceWorkload};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, bytes, choose, named};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct DeviceFlags {
    /// What to run, in this order, separated by commas: randread, randwrite, seqread, seqwrite.
    #[arg(long, value_delimiter = ',', default_value = "randread")]
    workloads: Vec<String>,
    /// Bytes of a request.
    #[arg(long, default_value = "4096", value_parser = parse_size)]
    block_size: u64,
    /// Requests that each thread keeps in flight.
    #[arg(long, default_value_t = 128)]
    queue_depth: usize,
    /// Threads.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// I/O back end: auto, uring, libaio, pread, memory or null; with a !: fail rather than fall
    /// back.
    #[arg(long, default_value = "auto")]
    io_backend: String,
    /// Threads of the back end, if it uses threads.
    #[arg(long)]
    completion_threads: Option<usize>,
    /// Bytes of the file bench-device.dat, which is reused if it exists, else filled first,
    /// untimed.
    #[arg(long, default_value = "1g", value_parser = parse_size)]
    size: u64,
    /// Length of each workload [default: as many requests as the file has blocks].
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    #[command(flatten)]
    common: CommonFlags,
}

pub(super) fn run(flags: &DeviceFlags) -> Result<(), Failure> {
    let common = &flags.common;
    let options = DeviceOptions {
        workloads: named(&flags.workloads, DeviceWorkload::from_name)?,
        block_bytes: bytes("block-size", flags.block_size)?,
        size_bytes: flags.size,
        queue_depth: flags.queue_depth,
        threads: flags.threads,
        duration: flags.duration,
        warmup: common.warmup,
        interval: common.interval,
        seed: common.seed,
        dir: common.dir.clone(),
        io_backend: choose(&flags.io_backend)?,
        completion_threads: flags.completion_threads,
    };
    Screen::run("device", common, false, |screen| {
        pando_bench::device::run(&options, screen)
    })
}
