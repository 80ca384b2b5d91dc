//! `pando bench`: options, table and records; the work is `pando-bench`'s.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use pando_bench::{Distribution, KeyKind, KvOptions, Observer, Record, Workload};
use pando_sync::time::Duration;
use pandodb::Durability;

use crate::backend;
use crate::command_line::BenchLayer;
use crate::failure::{Code, Failure};
use crate::output;
use crate::progress::Progress;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    Durable,
    Periodic,
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Decimal,
    Binary,
    Random,
}

#[derive(Debug, Args)]
pub(crate) struct KvFlags {
    /// What to run, in this order, separated by commas: fillseq, fillrandom, overwrite, readrandom,
    /// readmissing, multireadrandom, readseq, readreverse, seekrandom, updaterandom, deleterandom.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,readrandom"
    )]
    workloads: Vec<String>,
    /// Number of keys; also of operations, unless there is a duration.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value.
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// To what share values compress.
    #[arg(long, default_value_t = 1.0)]
    value_compress: f64,
    /// Threads that run operations.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Length of each workload that does not fill.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time before each workload that does not fill, in no figure.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_duration)]
    warmup: Duration,
    /// Memory budget of the engine.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    /// What a write waits for.
    #[arg(long, value_enum, default_value = "none")]
    durability: Level,
    /// Keys of a batch of writes, and of a call of multireadrandom.
    #[arg(long, default_value_t = 128)]
    batch: u64,
    /// Which keys are chosen: uniform, zipf:S or latest.
    #[arg(long, default_value = "uniform")]
    distribution: String,
    /// What keys look like.
    #[arg(long, value_enum, default_value = "decimal")]
    key_kind: Kind,
    /// Compression of pages; this version has none.
    #[arg(long, default_value = "none")]
    compression: String,
    /// Keys a second of an open loop; times count from when a call was due.
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// Print the engine's counters of each workload.
    #[arg(long)]
    statistics: bool,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory of the store; it stays [default: a temporary one that is removed].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use the store that is in --dir, and what it holds.
    #[arg(long)]
    use_existing_db: bool,
    /// Way to the disk: auto, uring, libaio, pread or memory; with a !: fail rather than fall back.
    #[arg(long, default_value = "auto")]
    io_backend: String,
    /// Most reads in flight of one event loop.
    #[arg(long)]
    queue_depth: Option<usize>,
    /// Threads that read for event loops, where the back end has such.
    #[arg(long)]
    completion_threads: Option<usize>,
    /// Bytes of a page.
    #[arg(long, value_parser = parse_size)]
    page_size: Option<u64>,
    /// Write a JSON object for each workload, a line each.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Length of the steps of a series over time.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    interval: Option<Duration>,
}

pub(crate) fn run(layer: BenchLayer) -> Result<(), Failure> {
    match layer {
        BenchLayer::Kv(flags) => run_kv(&flags),
        BenchLayer::Other(words) => {
            let name = words.first().map_or("", String::as_str);
            let why = match name {
                "device" | "pool" | "resp" | "alloc" | "recovery" | "iso" | "ablation" => {
                    "is not there in this version"
                }
                _ => "is no layer",
            };
            Err(Failure::usage(format!("bench {name}: {why}; there is kv")))
        }
    }
}

fn bytes(flag: &str, bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| Failure::usage(format!("--{flag}: {bytes} is too large")))
}

fn options(flags: &KvFlags) -> Result<KvOptions, Failure> {
    if flags.compression != "none" {
        return Err(Failure::usage(format!(
            "--compression {}: this version has none",
            flags.compression
        )));
    }
    let backend = backend::choose(&flags.io_backend, true)?;
    if let Some(note) = &backend.note {
        eprintln!("pando: {note}");
    }
    let names = flags.workloads.iter().map(|name| name.trim());
    Ok(KvOptions {
        workloads: names.map(Workload::from_name).collect::<Result<_, _>>()?,
        num: flags.num,
        key_bytes: bytes("key-size", flags.key_size)?,
        value_bytes: bytes("value-size", flags.value_size)?,
        value_compress: flags.value_compress,
        threads: flags.threads,
        duration: flags.duration,
        warmup: flags.warmup,
        max_memory: flags.max_memory,
        durability: match flags.durability {
            Level::Durable => Durability::Durable,
            Level::Periodic => Durability::Periodic,
            Level::None => Durability::None,
        },
        batch: flags.batch,
        distribution: Distribution::from_name(&flags.distribution)?,
        key_kind: match flags.key_kind {
            Kind::Decimal => KeyKind::Decimal,
            Kind::Binary => KeyKind::Binary,
            Kind::Random => KeyKind::Random,
        },
        rate: flags.rate,
        seed: flags.seed,
        dir: flags.dir.clone(),
        use_existing_db: flags.use_existing_db,
        io_backend: backend.chosen,
        queue_depth: flags.queue_depth,
        completion_threads: flags.completion_threads,
        page_bytes: flags
            .page_size
            .map(|size| bytes("page-size", size))
            .transpose()?,
        interval: flags.interval,
    })
}

fn run_kv(flags: &KvFlags) -> Result<(), Failure> {
    let options = options(flags)?;
    let json = match &flags.json {
        None => None,
        Some(path) => {
            let failed =
                |error| Failure::new(Code::Io, format!("--json {}: {error}", path.display()));
            Some(File::create(path).map_err(failed)?)
        }
    };
    output::line(Record::head());
    let mut screen = Screen {
        progress: Progress::new(),
        json,
        statistics: flags.statistics,
    };
    let result = pando_bench::run(&options, &mut screen);
    screen.progress.finish();
    Ok(result?)
}

/// Where results go.
struct Screen {
    progress: Progress,
    json: Option<File>,
    statistics: bool,
}

impl Observer for Screen {
    fn progress(&mut self, workload: &str, share: f64, ops_per_s: f64) {
        self.progress
            .update(&format!("{workload} {ops_per_s:.0} ops/s"), share);
    }

    fn step(&mut self, workload: &str, at: Duration, ops_per_s: f64) {
        let at = at.as_secs_f64();
        self.progress.suspend(|| {
            output::line(format_args!(
                "  {workload} {at:>8.1} s {ops_per_s:>12.0} ops/s"
            ))
        });
    }

    fn record(&mut self, record: &Record) -> pando_bench::Result<()> {
        let statistics = self.statistics;
        self.progress.suspend(|| {
            output::line(record.line());
            if statistics {
                for (name, unit, count) in &record.tickers {
                    output::line(format_args!("  {name:<24} {count:>16} {unit}"));
                }
                output::line(format_args!(
                    "  {:<24} {:>16.2} mean, {:.2} max",
                    "call_us", record.mean_us, record.max_us
                ));
            }
        });
        match &mut self.json {
            None => Ok(()),
            Some(file) => writeln!(file, "{}", record.json()).map_err(|source| {
                let during = "writing the records of --json".to_owned();
                pando_bench::Error::Io { during, source }
            }),
        }
    }
}
