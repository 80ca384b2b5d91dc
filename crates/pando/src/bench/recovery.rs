//! `pando bench recovery`: how fast a log is replayed, and how soon a read is answered.

use clap::Args;
use pando_bench::{KvOptions, RecoveryOptions, ValueSizes};

use super::flags::{CommonFlags, IoFlags, bytes, parse_value_sizes};
use super::screen::Screen;
use crate::failure::Failure;
use crate::quantity::parse_size;

#[derive(Debug, Args)]
pub(crate) struct RecoveryFlags {
    /// Bytes of the log after the checkpoint.
    #[arg(long, default_value = "1g", value_parser = parse_size)]
    log_size: u64,
    /// Number of keys.
    #[arg(long, default_value_t = 100_000)]
    num: u64,
    /// Bytes of a key.
    #[arg(long, default_value = "16", value_parser = parse_size)]
    key_size: u64,
    /// Bytes of a value: SIZE, or MIN-MAX (uniform), or MIN-MAX:zipf (mostly short).
    #[arg(long, value_name = "SIZES", default_value = "100", value_parser = parse_value_sizes)]
    value_size: ValueSizes,
    /// Memory budget of the engine.
    #[arg(long, alias = "cache-size", default_value = "1g", value_parser = parse_size)]
    max_memory: u64,
    #[command(flatten)]
    common: CommonFlags,
    #[command(flatten)]
    io: IoFlags,
}

pub(super) fn run(flags: &RecoveryFlags) -> Result<(), Failure> {
    let (common, io) = (&flags.common, &flags.io);
    let options = RecoveryOptions {
        log_bytes: flags.log_size,
        kv: KvOptions {
            num: flags.num,
            key_bytes: bytes("key-size", flags.key_size)?,
            value_sizes: flags.value_size,
            max_memory: flags.max_memory,
            seed: common.seed,
            dir: common.dir.clone(),
            io_backend: io.backend()?,
            queue_depth: io.queue_depth,
            completion_threads: io.completion_threads,
            page_bytes: io.page_bytes()?,
            ..KvOptions::default()
        },
    };
    Screen::run("recovery", common, false, |screen| {
        pando_bench::recovery::run(&options, screen)
    })
}
