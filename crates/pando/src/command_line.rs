//! The command line. Values of `serve` stay texts here: they mean the same in the file and in the
//! environment, and `settings` parses them for all of these.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pandodb::Compression;

use crate::bench::Layer;

const EXIT_CODES: &str = "\
Exit codes: 0 fine, 1 usage or configuration, 2 in use by another process, 3 damage found, 4 I/O error.
Sizes: a number and k, m, g or t (powers of 1,024). Durations: seconds, or with ms, s, m, h.";

const SERVE_LAYERS: &str = "\
Values come from, later ones win: defaults, the configuration file (TOML; keys are the flags with _), \
the environment (PANDO_MAX_MEMORY and so on), flags.";

const TOP_HELP: &str = "\
In a terminal: q or Ctrl-C quits, arrows and page keys scroll. Otherwise, and with --count, plain text. \
Percentiles are of the time since the last look. A look that finds no server counts, too.";

/// PandoDB: a key-value store for data larger than memory that Redis clients talk to.
#[derive(Debug, Parser)]
#[command(name = "pando", version, propagate_version = true)]
#[command(args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: ServeFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory to Redis clients (also without a command).
    #[command(after_help = SERVE_LAYERS)]
    Serve(Box<ServeFlags>),
    /// Show figures of a store that no process has open.
    Stat(StatFlags),
    /// Check every checksum and structure of a store that no process has open; changes nothing,
    /// unless --rows opens it.
    Verify(VerifyFlags),
    /// Watch a running server: rates, latencies, cache, device, log, checkpoints, memory.
    #[command(after_help = TOP_HELP)]
    Top(TopFlags),
    /// Shrink the files of a store that no process has open to what it contains; may be killed at
    /// any moment and started again.
    Compact(CompactFlags),
    /// Copy everything that can be read of a damaged store into a new one, and list the key ranges
    /// that are lost; the damaged store is not changed.
    Salvage(SalvageFlags),
    /// Write a store that no process has open as text, which 'pando load' makes a store of again:
    /// to keep a copy, or for a later program, another machine or another size of block. A running
    /// server writes one when a client sends it PANDO DUMP.
    Dump(DumpFlags),
    /// Make a store from the text that 'pando dump' or PANDO DUMP has written.
    Load(LoadFlags),
    /// Send all keys and functions of an RDB file of Redis to a running server.
    Import(ImportFlags),
    /// Write all keys and functions of a running server, as of one moment, to an RDB file, which
    /// Redis reads.
    Export(ExportFlags),
    /// Measure a layer.
    Bench {
        #[command(subcommand)]
        layer: Layer,
    },
}

#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    /// Directory of the store.
    pub(crate) dir: PathBuf,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatFlags {
    #[command(flatten)]
    pub(crate) target: StoreArgs,
    /// Add pages, fill and keys of each level of each table, and its leaves by fill.
    #[arg(long)]
    pub(crate) tree: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    #[command(flatten)]
    pub(crate) target: StoreArgs,
    /// If all of that is sound, open the store as a server does, and compare large collections and
    /// streams with the rows of their elements. Opening and closing a store write: what is in the
    /// log goes into its pages.
    #[arg(long)]
    pub(crate) rows: bool,
    /// Memory budget for that [default: 1g, or half of the memory of machine or cgroup].
    #[arg(long, value_name = "SIZE", requires = "rows")]
    pub(crate) max_memory: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TargetArgs {
    /// Host of the server.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// Port of the server for Redis clients.
    #[arg(long, default_value_t = 6379)]
    pub(crate) port: u16,
    /// The server's password [default: the variable REDISCLI_AUTH].
    #[arg(long)]
    pub(crate) password: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ImportFlags {
    /// The file of Redis, as SAVE and 'redis-cli --rdb' write it; '-' for standard input.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Replace keys and libraries of functions that are there [default: they are refused].
    #[arg(long)]
    pub(crate) replace: bool,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExportFlags {
    /// The file, as Redis has it: dump.rdb. What has this name is replaced when all is written.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopFlags {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// Time between two samples, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    pub(crate) interval: String,
    /// Take one sample, print plain text, and end.
    #[arg(long, conflicts_with = "count")]
    pub(crate) once: bool,
    /// Take this many samples, print plain text, and end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct CompactFlags {
    #[command(flatten)]
    pub(crate) target: StoreArgs,
    /// Memory budget [default: 1g, or half of the memory of machine or cgroup].
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
    /// Write every page again, with this compression, which the store keeps: none, lz4, zstd:N or
    /// snappy [default: only pages that move are written, with the compression of the store].
    #[arg(long, value_name = "NAME", value_parser = Compression::parse)]
    pub(crate) compression: Option<Compression>,
}

#[derive(Debug, Args)]
pub(crate) struct SalvageFlags {
    #[command(flatten)]
    pub(crate) target: StoreArgs,
    /// Directory of the new store: empty or absent.
    pub(crate) new: PathBuf,
    /// Memory budget of the new store [default: 1g, or a quarter of the memory of machine or
    /// cgroup].
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DumpFlags {
    /// Directory of the store. It is opened, so what is in its log goes into its pages, unless
    /// --read-only is given.
    pub(crate) dir: PathBuf,
    /// Change nothing in the directory: for a backup, a snapshot of a file system, or one that is
    /// mounted for reading. What is in the log takes memory instead.
    #[arg(long)]
    pub(crate) read_only: bool,
    /// File for the text; one that is there is replaced when all is written [default: standard
    /// output].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON on standard output: what was written.
    #[arg(long)]
    pub(crate) json: bool,
    /// Memory budget [default: 1g, or half of the memory of machine or cgroup].
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LoadFlags {
    #[command(flatten)]
    pub(crate) target: StoreArgs,
    /// File with the text [default: standard input].
    pub(crate) file: Option<PathBuf>,
    /// Memory budget [default: 1g, or half of the memory of machine or cgroup].
    #[arg(long, value_name = "SIZE")]
    pub(crate) max_memory: Option<String>,
    /// Compression of the new store's pages: none, lz4, zstd:N or snappy [default: that of the
    /// store that was dumped].
    #[arg(long, value_name = "NAME", value_parser = Compression::parse)]
    pub(crate) compression: Option<Compression>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// Configuration file [default: ./pando.toml if it exists].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the store, created if absent [default: ./pando-data].
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,
    /// Address to listen on, may be given several times; off for none [default: 127.0.0.1:6379].
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<String>,
    /// Path of a Unix socket to listen at [default: off].
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// Permissions of that socket, in octal, as in 770 [default: umask].
    #[arg(long, value_name = "MODE")]
    unix_socket_mode: Option<String>,
    /// Memory budget, at least 16m [default: half of the memory of machine or cgroup].
    #[arg(long, value_name = "SIZE")]
    max_memory: Option<String>,
    /// What a reply promises: durable, periodic or none [default: durable].
    #[arg(long, value_name = "LEVEL")]
    durability: Option<String>,
    /// Interval of periodic, in milliseconds [default: 1000].
    #[arg(long, value_name = "N")]
    periodic_ms: Option<String>,
    /// Bytes of a page, when the store is created [default: 4k, or four blocks if that is more and
    /// pages are compressed].
    #[arg(long, value_name = "SIZE")]
    page_size: Option<String>,
    /// Bytes of a block, when the store is created: 512 to 4k [default: 4k, or the least that the
    /// device allows if pages are compressed].
    #[arg(long, value_name = "SIZE")]
    block_size: Option<String>,
    /// Compression of pages: none, lz4, zstd:N or snappy [default: that of the store, none for a
    /// new one].
    #[arg(long, value_name = "NAME")]
    compression: Option<String>,
    /// I/O back end: auto, uring, libaio or pread; with a !: fail rather than fall back [default:
    /// auto].
    #[arg(long, value_name = "NAME")]
    io_backend: Option<String>,
    /// Maximum number of reads in flight per event loop [default: 128].
    #[arg(long, value_name = "N")]
    queue_depth: Option<String>,
    /// Threads that read for the event loops, if the back end uses threads [default: 16].
    #[arg(long, value_name = "N")]
    completion_threads: Option<String>,
    /// Event loops [default: one per core].
    #[arg(long, value_name = "N")]
    threads: Option<String>,
    /// Password that clients must give [default: none].
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
    /// Address of the dashboard, figures for Prometheus and probes over HTTP, without a password
    /// [default: off].
    #[arg(long, value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,
    /// Seconds of silence after which a peer is probed, 0 for never [default: 300].
    #[arg(long, value_name = "N")]
    tcp_keepalive: Option<String>,
    /// Seconds after which a peer is closed that accepts nothing of a reply, or sends nothing more
    /// of a command, 0 for never [default: 60].
    #[arg(long, value_name = "N")]
    stall_timeout: Option<String>,
    /// Level of the log on standard error: off, error, warn, info or debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Format of the log: text or json [default: text].
    #[arg(long, value_name = "NAME")]
    log_format: Option<String>,
}

impl ServeFlags {
    /// Returns the keys that were given, with their values.
    pub(crate) fn given(&self) -> Vec<(&'static str, Vec<String>)> {
        let single = [
            ("dir", &self.dir),
            ("unix_socket", &self.unix_socket),
            ("unix_socket_mode", &self.unix_socket_mode),
            ("max_memory", &self.max_memory),
            ("durability", &self.durability),
            ("periodic_ms", &self.periodic_ms),
            ("page_size", &self.page_size),
            ("block_size", &self.block_size),
            ("compression", &self.compression),
            ("io_backend", &self.io_backend),
            ("queue_depth", &self.queue_depth),
            ("completion_threads", &self.completion_threads),
            ("threads", &self.threads),
            ("requirepass", &self.requirepass),
            ("metrics_listen", &self.metrics_listen),
            ("tcp_keepalive", &self.tcp_keepalive),
            ("stall_timeout", &self.stall_timeout),
            ("log_level", &self.log_level),
            ("log_format", &self.log_format),
        ];
        let mut given: Vec<_> = single
            .into_iter()
            .filter_map(|(key, value)| Some((key, vec![value.clone()?])))
            .collect();
        if !self.listen.is_empty() {
            given.push(("listen", self.listen.clone()));
        }
        given
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, CommandLine};
    use crate::layers::KEYS;
    use clap::{CommandFactory, Parser};

    /// Runs clap's own checks of the definition.
    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    /// Each key of the configuration file can also be given as a flag.
    #[test]
    fn every_key_has_its_flag() {
        let mut arguments = vec!["pando".to_owned()];
        for key in KEYS {
            arguments.extend([format!("--{}", key.replace('_', "-")), "1".to_owned()]);
        }
        let line = CommandLine::try_parse_from(&arguments).unwrap();
        let mut given: Vec<_> = line.serve.given().into_iter().map(|(key, _)| key).collect();
        let mut keys = KEYS.to_vec();
        given.sort_unstable();
        keys.sort_unstable();
        assert_eq!(given, keys);
        arguments.insert(1, "serve".to_owned());
        let line = CommandLine::try_parse_from(&arguments).unwrap();
        assert!(
            matches!(line.command, Some(Command::Serve(flags)) if flags.given().len() == KEYS.len())
        );
    }
}
