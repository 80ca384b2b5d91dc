//! `pando bench ablation`: the product next to slower alternatives of its parts.

use clap::Args;
use pando_bench::{Ablation, AblationOptions};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, IoFlags, bytes};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct AblationFlags {
    /// Which part: pending, queue, pread-handles, throttle, scatter-gather, fetch, descent, cursor,
    /// stats, alloc.
    name: String,
    /// Workloads of alloc: alloc (alone), overwrite (of a store in memory) [default: both].
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Rounds of each variant; the median round is reported.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Numbers of threads, separated by commas [default: of pread-handles 16, of queue 2, of
    /// descent and cursor 1,2, of stats 1,2,32 and for queries 1,64,1024,4096, of alloc 1,2,16,
    /// else 1].
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Operations of a round [default: some hundred thousand].
    #[arg(long)]
    num: Option<u64>,
    /// Length of a round, instead of a number of operations.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Bytes of the data that is read: pages, a file, or keys and values; for alloc, of all blocks
    /// [default: of alloc 1t, else 256m].
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Memory budget above the data, in bytes.
    #[arg(long, alias = "cache-size", default_value = "32m", value_parser = parse_size)]
    max_memory: u64,
    /// Keys of a call that reads several [default: of throttle 1024, else 128].
    #[arg(long)]
    batch: Option<u64>,
    /// Use the store that exists in --dir.
    #[arg(long)]
    use_existing_db: bool,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    io: IoFlags,
}

fn ablation(name: &str) -> Result<Ablation, Failure> {
    Ablation::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Ablation::ALL.iter().map(|one| one.name()).collect();
        let known = names.join(", ");
        Failure::usage(format!(
            "bench ablation {name}: is no ablation; there are {known}"
        ))
    })
}

pub(super) fn run(flags: &AblationFlags) -> Result<(), Failure> {
    let (common, io) = (&flags.common, &flags.io);
    let defaults = AblationOptions::new(ablation(&flags.name)?);
    if flags.use_existing_db && common.dir.is_none() {
        return Err(Failure::usage("--use-existing-db: needs --dir".to_owned()));
    }
    let options = AblationOptions {
        workloads: flags.workloads.clone(),
        rounds: flags.rounds,
        threads: flags.threads.clone(),
        num: flags.num,
        duration: flags.duration,
        warmup: common.warmup,
        size_bytes: flags.size.unwrap_or(defaults.size_bytes),
        max_memory: flags.max_memory,
        page_bytes: io.page_bytes()?.unwrap_or(defaults.page_bytes),
        queue_depth: io.queue_depth.unwrap_or(defaults.queue_depth),
        batch: flags.batch.unwrap_or(defaults.batch),
        seed: common.seed,
        dir: common.dir.clone(),
        use_existing_db: flags.use_existing_db,
        io_backend: io.backend()?,
        completion_threads: io.completion_threads,
        ..defaults
    };
    bytes("size", options.size_bytes)?;
    Screen::run("ablation", common, false, |screen| {
        pando_bench::ablation::run(&options, screen)
    })
}
