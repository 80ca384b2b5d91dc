//! The command line: the flags of `pando bench kv` that all engines can follow.

use std::path::PathBuf;

use clap::Parser;
use pando_bench::{Distribution, Result};
use pando_sync::time::Duration;

use crate::child;
use crate::engines::ENGINES;
use crate::options::{Kind, Level, Options, failed};
use crate::quantity::{parse_duration, parse_size};
use crate::run::run;

/// Other engines under the workloads of `pando bench kv`: each is filled once with one thread, then
/// rounds alternate between them.
#[derive(Debug, Parser)]
#[command(name = "pando-peers", version)]
pub struct Flags {
    /// Directory of the stores; it stays [default: a temporary one that is removed].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Engines, separated by commas: pandodb, lmdb, rocksdb, redb, fjall, and with their features
    /// berkeleydb, wiredtiger, bf-tree [default: all of this build].
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// What to run, in this order, separated by commas: fillseq, fillrandom, overwrite, readrandom,
    /// multireadrandom, readseq, seekrandom, readwhilewriting, updaterandom, transactions.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillrandom,readrandom,seekrandom,overwrite"
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
    /// What keys look like.
    #[arg(long, value_enum, default_value = "decimal")]
    key_kind: Kind,
    /// Memory budget of each engine: its cache and its write buffers.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    /// What a write waits for.
    #[arg(long, value_enum, default_value = "none")]
    durability: Level,
    /// Which keys are chosen: uniform, zipf:S or latest.
    #[arg(long, default_value = "uniform")]
    distribution: String,
    /// After overwrite and updaterandom, too, let the engine finish what it put off; the record has
    /// what was written until then, and what the store takes. Fills always do. Without a warm-up.
    #[arg(long)]
    settle: bool,
    /// Numbers of threads, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    threads: Vec<usize>,
    /// Length of each workload that does not fill.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Time before each workload that does not fill, in no figure.
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = parse_duration)]
    warmup: Duration,
    /// How often each engine has its turn.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// Keys of a commit of fills and of overwrite, and of a call of multireadrandom [default: 128;
    /// 1 for overwrite with --durability durable].
    #[arg(long)]
    batch: Option<u64>,
    /// Entries of a call of seekrandom.
    #[arg(long, default_value_t = 100)]
    scan: u64,
    /// Keys of a transaction of workload transactions.
    #[arg(long, default_value_t = 11)]
    ops_per_transaction: u64,
    /// How many of a hundred keys of a transaction are put, after the others were read.
    #[arg(long, default_value_t = 9)]
    writes: u64,
    /// Seed of all choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a JSON object for each record, a line each.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Control group in which groups with a memory limit may be made [default: the own one, if
    /// version 2 lets it].
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// The process of one engine.
    #[arg(long, hide = true)]
    child: Option<String>,
}

impl Flags {
    /// Does what they ask for.
    ///
    /// # Errors
    /// Options that make no sense, and failures of engines.
    pub fn run(&self) -> Result<()> {
        if let Some(start) = &self.child {
            return child::serve(start);
        }
        let program = std::env::current_exe().map_err(failed("finding this program"))?;
        run(&self.options()?, &program)
    }

    /// Options as the flags say.
    ///
    /// # Errors
    /// A size that is too large.
    pub fn options(&self) -> Result<Options> {
        let bytes = |flag, bytes: u64| {
            usize::try_from(bytes)
                .map_err(|_| crate::options::refused(flag, format!("{bytes} is too large")))
        };
        let built = || {
            let built = ENGINES.iter().filter(|kind| kind.is_built());
            built.map(|kind| kind.name.to_owned()).collect()
        };
        let trimmed = |names: &[String]| -> Vec<String> {
            names.iter().map(|name| name.trim().to_owned()).collect()
        };
        Ok(Options {
            engines: match self.engines.is_empty() {
                true => built(),
                false => trimmed(&self.engines),
            },
            workloads: trimmed(&self.workloads),
            num: self.num,
            key_bytes: bytes("key-size", self.key_size)?,
            value_bytes: bytes("value-size", self.value_size)?,
            key_kind: self.key_kind,
            max_memory: self.max_memory,
            durability: self.durability,
            distribution: Distribution::from_name(&self.distribution)?,
            settle: self.settle,
            threads: self.threads.clone(),
            duration: self.duration,
            warmup: self.warmup,
            rounds: self.rounds,
            batch: self.batch,
            scan: self.scan,
            ops_per_transaction: self.ops_per_transaction,
            writes: self.writes,
            seed: self.seed,
            dir: self.dir.clone(),
            json: self.json.clone(),
            cgroup: self.cgroup.clone(),
        })
    }
}
