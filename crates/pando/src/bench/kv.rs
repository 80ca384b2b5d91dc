//! `pando bench kv`: the embedded engine.

use clap::{Args, ValueEnum};
use pando_bench::{Distribution, KeyKind, KvOptions, ValueSizes, Workload};
use pando_sync::time::Duration;
use pandodb::Compression;

use super::flags::{CommonFlags, IoFlags, Level, bytes, named, parse_value_sizes};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Decimal,
    Binary,
    Random,
}

#[derive(Debug, Args)]
pub(crate) struct KvFlags {
    /// What to run, in this order, separated by commas: fillseq, fillbulk, fillrandom, overwrite,
    /// readrandom, readmissing, multireadrandom, readwhilewriting, readwhilescanning, readseq,
    /// readreverse, seekrandom, updaterandom, deleterandom; ycsba, ycsbb, ycsbc, ycsbd, ycsbe,
    /// ycsbf; queue (--num times a push at the tail and a pop at the head).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,readrandom"
    )]
    workloads: Vec<String>,
    /// Number of keys; also the number of operations, unless a duration is given.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value: SIZE, or MIN-MAX (uniform), or MIN-MAX:zipf (mostly short).
    #[arg(long, value_name = "SIZES", default_value = "100", value_parser = parse_value_sizes)]
    value_size: ValueSizes,
    /// Ratio to which values can be compressed.
    #[arg(long, default_value_t = 1.0)]
    value_compress: f64,
    /// Threads that run operations.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Length of each workload that does not fill.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Memory budget of the engine.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    /// What a write waits for.
    #[arg(long, value_enum, default_value = "none")]
    durability: Level,
    /// Keys of a batch of writes, and of a call of multireadrandom.
    #[arg(long, default_value_t = 128)]
    batch: u64,
    /// Entries that are kept in the queue of workload queue.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    queue_length: u64,
    /// Keep a reader open during workload queue: an iterator at the head of the queue, and a reader
    /// of a large value that is deleted in the meantime.
    #[arg(long)]
    old_reader: bool,
    /// Distribution of the chosen keys: uniform, zipf:S or latest [default: uniform; of ycsbd
    /// latest, of the other YCSB workloads zipf:0.99].
    #[arg(long, value_name = "NAME")]
    distribution: Option<String>,
    /// Form of the keys.
    #[arg(long, value_enum, default_value = "decimal")]
    key_kind: Kind,
    /// Compression of pages of several blocks: none, lz4, zstd:N or snappy [default: that of the
    /// store, none of a new one].
    #[arg(long, value_name = "NAME", value_parser = Compression::parse)]
    compression: Option<Compression>,
    /// Bytes of a block: 512 to 4k [default: 4k, or the least that the device allows if pages are
    /// compressed].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    block_size: Option<u64>,
    /// Keys per second of an open loop; latencies count from the time when a call was due.
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// Write a checkpoint at this interval, and report times with and without a running one.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    checkpoint_interval: Option<Duration>,
    /// Print the engine's counters of each workload.
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

fn options(flags: &KvFlags) -> Result<KvOptions, Failure> {
    let (common, io) = (&flags.common, &flags.io);
    Ok(KvOptions {
        workloads: named(&flags.workloads, Workload::from_name)?,
        num: flags.num,
        key_bytes: bytes("key-size", flags.key_size)?,
        value_sizes: flags.value_size,
        value_compress: flags.value_compress,
        threads: flags.threads,
        duration: flags.duration,
        ops: None,
        warmup: common.warmup,
        max_memory: flags.max_memory,
        durability: flags.durability.durability(),
        batch: flags.batch,
        queue_length: flags.queue_length,
        old_reader: flags.old_reader,
        distribution: flags
            .distribution
            .as_deref()
            .map(Distribution::from_name)
            .transpose()?,
        key_kind: match flags.key_kind {
            Kind::Decimal => KeyKind::Decimal,
            Kind::Binary => KeyKind::Binary,
            Kind::Random => KeyKind::Random,
        },
        rate: flags.rate,
        seed: common.seed,
        dir: common.dir.clone(),
        use_existing_db: flags.use_existing_db,
        io_backend: io.backend()?,
        queue_depth: io.queue_depth,
        completion_threads: io.completion_threads,
        page_bytes: io.page_bytes()?,
        block_bytes: flags
            .block_size
            .map(|size| bytes("block-size", size))
            .transpose()?,
        log_bytes: None,
        compression: flags.compression,
        interval: common.interval,
        checkpoint_interval: flags.checkpoint_interval,
        settle_snapshots_after: None,
    })
}

pub(super) fn run(flags: &KvFlags) -> Result<(), Failure> {
    let options = options(flags)?;
    Screen::run("kv", &flags.common, flags.statistics, |screen| {
        pando_bench::run(&options, screen)
    })
}
