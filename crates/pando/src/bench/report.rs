//! `pando bench report`: scans of the whole store beside writers.

use clap::Args;
use pando_bench::{Distribution, KvOptions, ReportOptions, ValueSizes};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, IoFlags, Level, bytes};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// The snapshot is on disk from its beginning.
    #[arg(long)]
    settled: bool,
    /// Age at which it goes on on disk otherwise [default: 60].
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    settle_after: Option<Duration>,
    /// Threads that put random keys.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Puts per second of all these threads, evenly; latencies count from the time when a put was
    /// due [default: as many as they can].
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// Number of keys [default: so many that keys and values are ten times the budget].
    #[arg(long)]
    num: Option<u64>,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value.
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// Length of the turn of the writers alone, and of that beside the scans.
    #[arg(long, value_name = "SECONDS", default_value = "180", value_parser = parse_duration)]
    duration: Duration,
    /// Memory budget of the engine.
    #[arg(long, alias = "cache-size", default_value = "256m", value_parser = parse_size)]
    max_memory: u64,
    /// What a put waits for.
    #[arg(long, value_enum, default_value = "none")]
    durability: Level,
    /// Distribution of the keys that are put: uniform, zipf:S or latest [default: uniform].
    #[arg(long, value_name = "NAME")]
    distribution: Option<String>,
    /// Print the engine's counters of each turn.
    #[arg(long)]
    statistics: bool,
    /// Use the store that exists in --dir, with its data.
    #[arg(long)]
    use_existing_db: bool,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    io: IoFlags,
}

pub(super) fn run(flags: &ReportFlags) -> Result<(), Failure> {
    let (common, io) = (&flags.common, &flags.io);
    let distribution = flags.distribution.as_deref();
    let key_bytes = bytes("key-size", flags.key_size)?;
    let value_bytes = bytes("value-size", flags.value_size)?;
    let num = || ReportOptions::num(flags.max_memory, key_bytes, value_bytes);
    let options = ReportOptions {
        settled: flags.settled,
        kv: KvOptions {
            num: flags.num.unwrap_or_else(num),
            key_bytes,
            value_sizes: ValueSizes::Fixed(value_bytes),
            threads: flags.threads,
            rate: flags.rate,
            duration: Some(flags.duration),
            warmup: common.warmup,
            interval: common.interval,
            max_memory: flags.max_memory,
            durability: flags.durability.durability(),
            distribution: distribution.map(Distribution::from_name).transpose()?,
            seed: common.seed,
            dir: common.dir.clone(),
            use_existing_db: flags.use_existing_db,
            io_backend: io.backend()?,
            queue_depth: io.queue_depth,
            completion_threads: io.completion_threads,
            page_bytes: io.page_bytes()?,
            settle_snapshots_after: flags.settle_after,
            ..KvOptions::default()
        },
    };
    Screen::run("report", common, flags.statistics, |screen| {
        pando_bench::report::run(&options, screen)
    })
}
