//! `pando bench resp`: a server, through sockets.

use clap::Args;
use pando_bench::{RespOptions, RespWorkload};
use pando_sync::time::Duration;

use super::flags::{CommonFlags, IoFlags, Level, bytes, named};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::{parse_duration, parse_size};

#[derive(Debug, Args)]
pub(crate) struct RespFlags {
    /// What to run, in this order, separated by commas: get, set, mget, incr, mixed (nine GETs per
    /// SET).
    #[arg(long, value_delimiter = ',', default_value = "set,get")]
    workloads: Vec<String>,
    /// Host of a running server [default: start one].
    #[arg(long)]
    host: Option<String>,
    /// Port of a running server [default: 6379]; without --host, on this machine.
    #[arg(long)]
    port: Option<u16>,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Commands that each connection keeps in flight.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Threads of the client.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of keys; also the number of operations, unless a duration is given.
    #[arg(long, default_value_t = 1_000_000)]
    num: u64,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value.
    #[arg(long, default_value = "100", value_parser = parse_size)]
    value_size: u64,
    /// Keys of an MGET.
    #[arg(long, default_value_t = 16)]
    batch: u64,
    /// Length of each workload.
    #[arg(long, value_name = "SECONDS", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Keys per second of an open loop; latencies count from the time when a pipeline was due.
    #[arg(long, value_name = "OPS")]
    rate: Option<f64>,
    /// Use the keys that exist; else all are written first, untimed, if a workload reads.
    #[arg(long)]
    use_existing_db: bool,
    /// Memory budget of its own server.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    /// What replies of its own server promise.
    #[arg(long, value_enum, default_value = "none")]
    durability: Level,
    /// Event loops of its own server [default: one per core].
    #[arg(long)]
    server_threads: Option<usize>,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    io: IoFlags,
}

pub(super) fn run(flags: &RespFlags) -> Result<(), Failure> {
    let (common, io) = (&flags.common, &flags.io);
    let defaults = RespOptions::default();
    let options = RespOptions {
        workloads: named(&flags.workloads, RespWorkload::from_name)?,
        host: match (&flags.host, flags.port) {
            (None, Some(_)) => Some("127.0.0.1".to_owned()),
            (host, _) => host.clone(),
        },
        port: flags.port.unwrap_or(defaults.port),
        clients: flags.clients,
        pipeline: flags.pipeline,
        threads: flags.threads,
        num: flags.num,
        key_bytes: bytes("key-size", flags.key_size)?,
        value_bytes: bytes("value-size", flags.value_size)?,
        batch: flags.batch,
        duration: flags.duration,
        warmup: common.warmup,
        interval: common.interval,
        rate: flags.rate,
        seed: common.seed,
        use_existing_db: flags.use_existing_db,
        dir: common.dir.clone(),
        max_memory: flags.max_memory,
        durability: flags.durability.durability(),
        server_threads: flags.server_threads,
        io_backend: io.backend()?,
        queue_depth: io.queue_depth,
        completion_threads: io.completion_threads,
        page_bytes: io.page_bytes()?,
    };
    Screen::run("resp", common, false, |screen| {
        pando_bench::resp::run(&options, screen)
    })
}
