//! `pando bench iso`: how reads of cached data scale with threads.

use clap::Args;
use pando_bench::{
    Distribution, IsoLevel, IsoOptions, IsoSnapshots, KvOptions, ValueSizes, Workload,
};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, IoFlags, bytes, named, parse_value_sizes};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct IsoFlags {
    /// Numbers of threads, in this order, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = IsoOptions::default().threads)]
    threads: Vec<usize>,
    /// Levels of transactions, in this order, separated by commas: none, read-committed, snapshot,
    /// serializable. Then transactions are measured instead of reads.
    #[arg(long, value_delimiter = ',', value_name = "LEVELS")]
    levels: Vec<String>,
    /// Snapshots, in this order, separated by commas: none; young (in memory), settled (on disk):
    /// one that is open; each: one for each get. Then gets in snapshots, and puts beside them, are
    /// measured.
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    old_snapshot: Vec<String>,
    /// What runs with --old-snapshot, separated by commas: readrandom, overwrite, readwhilewriting.
    #[arg(long, value_delimiter = ',', default_value = "readrandom")]
    workloads: Vec<String>,
    /// Keys of a transaction, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = IsoOptions::default().ops_per_transaction)]
    ops_per_transaction: Vec<u64>,
    /// How many of a hundred keys of a transaction are put, separated by commas; the others are
    /// got.
    #[arg(long, value_delimiter = ',', default_values_t = IsoOptions::default().writes)]
    writes: Vec<u64>,
    /// Turns of each variant and number of threads, forth and back; the median round is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Number of keys; also the number of reads of a turn, unless a duration is given.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value: SIZE, or MIN-MAX (uniform), or MIN-MAX:zipf (mostly short).
    #[arg(long, value_name = "SIZES", default_value = "100", value_parser = parse_value_sizes)]
    value_size: ValueSizes,
    /// Length of each turn.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Memory budget of the engine; must exceed the data.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    /// Distribution of the chosen keys: uniform, zipf:S or latest [default: uniform].
    #[arg(long, value_name = "NAME")]
    distribution: Option<String>,
    /// Write a checkpoint at this interval, and report times with and without a running one.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    checkpoint_interval: Option<Duration>,
    /// Print the engine's counters of each turn.
    #[arg(long)]
    statistics: bool,
    /// Use the store that exists in --dir, with its data, which is read once first.
    #[arg(long)]
    use_existing_db: bool,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    io: IoFlags,
}

pub(super) fn run(flags: &IsoFlags) -> Result<(), Failure> {
    let (common, io) = (&flags.common, &flags.io);
    let distribution = flags.distribution.as_deref();
    let options = IsoOptions {
        threads: flags.threads.clone(),
        levels: named(&flags.levels, IsoLevel::from_name)?,
        snapshots: named(&flags.old_snapshot, IsoSnapshots::from_name)?,
        workloads: named(&flags.workloads, Workload::from_name)?,
        ops_per_transaction: flags.ops_per_transaction.clone(),
        writes: flags.writes.clone(),
        rounds: flags.rounds,
        kv: KvOptions {
            num: flags.num,
            key_bytes: bytes("key-size", flags.key_size)?,
            value_sizes: flags.value_size,
            duration: flags.duration,
            warmup: common.warmup,
            interval: common.interval,
            max_memory: flags.max_memory,
            distribution: distribution.map(Distribution::from_name).transpose()?,
            seed: common.seed,
            dir: common.dir.clone(),
            use_existing_db: flags.use_existing_db,
            io_backend: io.backend()?,
            queue_depth: io.queue_depth,
            completion_threads: io.completion_threads,
            page_bytes: io.page_bytes()?,
            checkpoint_interval: flags.checkpoint_interval,
            ..KvOptions::default()
        },
    };
    Screen::run("iso", common, flags.statistics, |screen| {
        pando_bench::iso::run(&options, screen)
    })
}
