//! The sections of INFO, under the names that exporters and clients expect.

use std::fmt::{Display, Write as _};

use pando_stats::{Histogram, Layer, Measure, Ticker};
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_sync::time::{now, unix_ms};
use pandodb::CompactReport;

use super::auth::REDIS_VERSION;
use crate::data::background::{Ended, Last};
use crate::data::compaction::CompactionProgress;
use crate::data::engine::bytes;
use crate::loop_handle::LoopHandle;
use crate::pubsub::message::Space;
use crate::report::gauges::{Gauge, gauges, snapshots};
use crate::report::memory_use::{MemoryUse, machine_bytes, resident_bytes};
use crate::shared::{Shared, Stage};

/// When a section is shown without being asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    ByDefault,
    /// Shown if all sections are asked for.
    WithAll,
    /// Shown only by name: it is long, and meant for programs.
    ByName,
}

/// A section of INFO.
pub(crate) struct Section {
    /// As its headline shows it; clients ask for it in any case.
    pub(crate) name: &'static str,
    /// When it is shown.
    pub(crate) shown: Shown,
    /// Appends the lines of the section, without the headline.
    pub(crate) write: fn(&Shared, &mut String),
}

const fn section(name: &'static str, write: fn(&Shared, &mut String)) -> Section {
    Section {
        name,
        shown: Shown::ByDefault,
        write,
    }
}

const fn on_demand(name: &'static str, write: fn(&Shared, &mut String)) -> Section {
    Section {
        shown: Shown::WithAll,
        ..section(name, write)
    }
}

const fn by_name(name: &'static str, write: fn(&Shared, &mut String)) -> Section {
    Section {
        shown: Shown::ByName,
        ..section(name, write)
    }
}

/// All sections, in the order in which they are shown.
pub(crate) const SECTIONS: &[Section] = &[
    section("Server", server),
    section("Clients", clients),
    section("Memory", memory),
    section("Persistence", persistence),
    section("Stats", statistics),
    section("Transactions", transactions),
    section("Replication", replication),
    section("CPU", processor),
    section("Modules", |_, _| {}),
    on_demand("Commandstats", commands),
    section("Errorstats", errors),
    on_demand("Latencystats", latencies),
    section("Cluster", |_, text| field(text, "cluster_enabled", 0)),
    section("Keyspace", keyspace),
    section("Pando", pando),
    by_name("Histograms", histograms),
];

pub(super) fn field(text: &mut String, name: &str, value: impl Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(shared: &Shared, text: &mut String) {
    let uptime = now().duration_since(shared.started).as_secs();
    let port = shared
        .addresses
        .first()
        .map_or(0, std::net::SocketAddr::port);
    field(text, "redis_version", REDIS_VERSION);
    field(text, "redis_git_sha1", "00000000");
    field(text, "redis_git_dirty", 0);
    field(text, "redis_build_id", "0");
    field(text, "redis_mode", "standalone");
    field(text, "pando_version", &shared.options.version);
    field(
        text,
        "os",
        format_args!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
    );
    field(text, "arch_bits", usize::BITS);
    field(text, "monotonic_clock", "POSIX clock_gettime");
    field(text, "multiplexing_api", "epoll");
    field(text, "atomicvar_api", "rust-atomics");
    field(text, "process_id", std::process::id());
    field(text, "process_supervised", "no");
    field(text, "run_id", &shared.run_id);
    field(text, "tcp_port", port);
    field(text, "server_time_usec", u128::from(unix_ms()) * 1000);
    field(text, "uptime_in_seconds", uptime);
    field(text, "uptime_in_days", uptime / 86_400);
    field(text, "hz", 10);
    field(text, "configured_hz", 10);
    field(text, "io_threads_active", u8::from(shared.loops.len() > 1));
    field(text, "event_loops", shared.loops.len());
    field(text, "config_file", &shared.options.config_file);
}

fn clients(shared: &Shared, text: &mut String) {
    let all = shared.clients.all();
    // Relaxed: figures for a report.
    let waiting = all
        .iter()
        .filter(|record| record.waiting.load(Ordering::Relaxed))
        .count();
    let input = all
        .iter()
        .map(|record| record.input_bytes.load(Ordering::Relaxed))
        .max();
    let output = all
        .iter()
        .map(|record| record.output_bytes.load(Ordering::Relaxed))
        .max();
    field(text, "connected_clients", all.len());
    field(text, "cluster_connections", 0);
    field(text, "maxclients", shared.settings.maxclients());
    field(text, "client_recent_max_input_buffer", input.unwrap_or(0));
    field(text, "client_recent_max_output_buffer", output.unwrap_or(0));
    field(text, "blocked_clients", waiting);
    field(text, "tracking_clients", shared.tracking.counts()[0]);
    let subscribers = all.iter().filter(|record| record.is_subscribed());
    field(text, "pubsub_clients", subscribers.count());
    let timers = |handle: &Arc<LoopHandle>| handle.timers.load(Ordering::Relaxed);
    let timers = shared.loops.iter().map(timers).sum::<usize>();
    field(text, "clients_in_timeout_table", timers);
    field(text, "total_blocking_keys", shared.waiters.keys());
}

/// Returns the number of scripts that are known, and the bytes that they take.
fn script_usage(shared: &Shared) -> (usize, usize) {
    #[cfg(feature = "scripts")]
    return shared.scripts.usage();
    #[cfg(not(feature = "scripts"))]
    {
        let _has_none = shared;
        (0, 0)
    }
}

fn memory(shared: &Shared, text: &mut String) {
    let memory = MemoryUse::new(shared);
    let (used, resident) = (memory.used(), resident_bytes());
    let data = memory.frames.used_bytes;
    let peak = shared.statistics.memory_peak(used);
    let mut both = |name: &str, bytes: u64| {
        field(text, name, bytes);
        let mebibytes = bytes as f64 / 1_048_576.0;
        field(
            text,
            &format!("{name}_human"),
            format_args!("{mebibytes:.2}M"),
        );
    };
    both("used_memory", used);
    both("used_memory_rss", resident);
    both("used_memory_peak", peak);
    both("total_system_memory", machine_bytes());
    both("maxmemory", memory.max);
    let percent = used as f64 * 100.0 / peak.max(1) as f64;
    field(text, "used_memory_peak_perc", format_args!("{percent:.2}%"));
    let (scripts, script_bytes) = script_usage(shared);
    for (name, value) in [
        ("used_memory_overhead", used - data),
        ("used_memory_startup", memory.at_start()),
        ("used_memory_dataset", data),
        ("used_memory_scripts", script_bytes as u64),
        ("used_memory_scripts_eval", script_bytes as u64),
        ("number_of_cached_scripts", scripts as u64),
        ("mem_clients_normal", memory.connections),
        ("mem_clients_slaves", 0),
        ("mem_aof_buffer", memory.log_buffers.used_bytes),
        ("allocator_allocated", used),
        ("allocator_active", resident),
        ("allocator_resident", resident),
        ("active_defrag_running", 0),
        (
            "lazyfreed_objects",
            shared.statistics.counts().get(Ticker::ObjectsFreed),
        ),
        ("memory_rest_budget", memory.rest_budget),
    ] {
        field(text, name, value);
    }
    for (name, used, budget) in memory.parts() {
        field(text, &format!("memory_{name}"), used);
        if let Some(budget) = budget {
            field(text, &format!("memory_{name}_budget"), budget);
        }
    }
    field(text, "maxmemory_policy", "noeviction");
    field(
        text,
        "mem_fragmentation_ratio",
        format_args!("{:.2}", resident as f64 / used.max(1) as f64),
    );
    field(text, "mem_allocator", "system");
}

fn persistence(shared: &Shared, text: &mut String) {
    let engine = shared.engine();
    let last = engine
        .as_ref()
        .map_or(0, |engine| engine.db.last_checkpoint_unix_ms() / 1000);
    let report = engine.as_ref().map(|engine| engine.db.report());
    let log_bytes = report.as_ref().map_or(0, |report| bytes(report.log_bytes));
    // After a write or a sync that failed, the store takes none.
    let written = match report.and_then(|report| report.poisoned) {
        None => "ok",
        Some(_) => "err",
    };
    // Relaxed: figures for a report.
    let saving = u8::from(shared.saving.load(Ordering::Relaxed));
    let saved = if shared.save_failed.load(Ordering::Relaxed) {
        "err"
    } else {
        "ok"
    };
    field(text, "loading", u8::from(shared.stage() == Stage::Loading));
    field(text, "async_loading", 0);
    field(text, "rdb_bgsave_in_progress", saving);
    field(text, "rdb_last_save_time", last);
    field(text, "rdb_last_bgsave_status", saved);
    field(text, "rdb_last_bgsave_time_sec", -1);
    field(text, "rdb_current_bgsave_time_sec", -1);
    field(text, "aof_enabled", 1);
    let running = shared.compaction.running();
    let ended = shared.compaction.last().ended;
    let rewritten = match &ended {
        Ended::Never | Ended::Done(_) => "ok",
        Ended::Failed(_) => "err",
    };
    field(text, "aof_rewrite_in_progress", u8::from(running.is_some()));
    field(text, "aof_rewrite_scheduled", 0);
    field(text, "aof_last_bgrewrite_status", rewritten);
    field(text, "aof_last_write_status", written);
    field(text, "aof_current_size", log_bytes);
    field(text, "aof_base_size", 0);
    compaction(running, &ended, text);
    store_dump(shared, text);
}

/// Writes the progress of the running dump, how the last one ended, and what the file has.
fn store_dump(shared: &Shared, text: &mut String) {
    let dump = &shared.store_dump;
    let running = dump.work.running();
    field(text, "dump_in_progress", u8::from(running.is_some()));
    if let Some(percent) = running {
        field(text, "dump_percent", percent);
    }
    let Last {
        ended,
        unix_ms,
        took,
    } = dump.work.last();
    let status = match &ended {
        Ended::Never => "none",
        Ended::Done(true) => "ok",
        Ended::Done(false) => "aborted",
        Ended::Failed(_) => "err",
    };
    field(text, "dump_last_status", status);
    if let Ended::Failed(error) = &ended {
        field(text, "dump_last_error", error.replace(['\r', '\n'], " "));
    }
    if !matches!(ended, Ended::Never) {
        let seconds = format_args!("{:.1}", took.as_secs_f64());
        field(text, "dump_last_end_time", unix_ms / 1000);
        field(text, "dump_last_time_sec", seconds);
    }
    if let Some(whole) = dump.whole() {
        field(text, "dump_file_time", whole.unix_ms / 1000);
        field(text, "dump_file_bytes", whole.bytes);
        field(text, "dump_file_rows", whole.rows);
    }
}

/// Writes the progress of the running compaction, and the result of the last one.
fn compaction(
    running: Option<CompactionProgress>,
    ended: &Ended<CompactReport>,
    text: &mut String,
) {
    field(text, "compact_in_progress", u8::from(running.is_some()));
    if let Some(CompactionProgress { phase, percent }) = running {
        field(text, "compact_phase", phase.name());
        field(text, "compact_percent", percent);
    }
    match ended {
        Ended::Never => field(text, "compact_last_status", "none"),
        Ended::Failed(error) => {
            field(text, "compact_last_status", "err");
            field(text, "compact_last_error", error.replace(['\r', '\n'], " "));
        }
        Ended::Done(report) => {
            let status = if report.finished { "ok" } else { "aborted" };
            field(text, "compact_last_status", status);
            field(
                text,
                "compact_last_time_sec",
                format_args!("{:.1}", report.elapsed.as_secs_f64()),
            );
            field(
                text,
                "compact_last_data_bytes_before",
                report.data_bytes_before,
            );
            field(
                text,
                "compact_last_data_bytes_after",
                report.data_bytes_after,
            );
        }
    }
}

fn statistics(shared: &Shared, text: &mut String) {
    let counts = shared.statistics.counts();
    let rates = shared.statistics.per_second();
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    let mut count = |name: &str, ticker: Ticker| field(text, name, counts.get(ticker));
    count("total_connections_received", Ticker::ConnectionsReceived);
    count("total_commands_processed", Ticker::Commands);
    count("total_net_input_bytes", Ticker::InputBytes);
    count("total_net_output_bytes", Ticker::OutputBytes);
    count("rejected_connections", Ticker::ConnectionsRejected);
    count("expired_keys", Ticker::ExpiredKeys);
    count("keyspace_hits", Ticker::KeyspaceHits);
    count("keyspace_misses", Ticker::KeyspaceMisses);
    count("total_error_replies", Ticker::CommandErrors);
    count("commands_together", Ticker::CommandsTogether);
    count("suspended_commands", Ticker::CommandsSuspended);
    count("scripts_moved", Ticker::ScriptsMoved);
    count("objects_freed", Ticker::ObjectsFreed);
    count("transaction_conflicts", Ticker::TransactionConflicts);
    field(
        text,
        "instantaneous_ops_per_sec",
        format_args!("{:.0}", rates.commands),
    );
    field(
        text,
        "instantaneous_input_kbps",
        kilobytes(rates.input_bytes),
    );
    field(
        text,
        "instantaneous_output_kbps",
        kilobytes(rates.output_bytes),
    );
    for name in [
        "sync_full",
        "sync_partial_ok",
        "sync_partial_err",
        "evicted_keys",
        "latest_fork_usec",
        "total_forks",
    ] {
        field(text, name, 0);
    }
    let [_, tracked_keys, tracked_items, prefixes] = shared.tracking.counts();
    let channels = &shared.channels;
    for (name, count) in [
        ("tracking_total_keys", tracked_keys as u64),
        ("tracking_total_items", tracked_items as u64),
        ("tracking_total_prefixes", prefixes as u64),
        ("pubsub_channels", channels.len(Space::Channel) as u64),
        ("pubsub_patterns", channels.len(Space::Pattern) as u64),
        ("pubsubshard_channels", channels.len(Space::Shard) as u64),
        (
            "client_output_buffer_limit_disconnections",
            channels.overruns(),
        ),
        ("evicted_clients", shared.clients.memory.evicted()),
    ] {
        field(text, name, count);
    }
}

fn transactions(shared: &Shared, text: &mut String) {
    let (all, now) = (shared.clients.all(), unix_ms());
    let ages = all
        .iter()
        .filter_map(|record| record.transaction_age_ms(now));
    field(text, "transactions_open", ages.clone().count());
    field(text, "transactions_oldest_ms", ages.max().unwrap_or(0));
    let Some(engine) = shared.engine() else {
        return;
    };
    let of_loops = shared.statistics.counts();
    let of_engine = engine.db.statistics();
    let conflicts = of_loops.get(Ticker::TransactionConflicts);
    field(text, "transactions_run_again", conflicts);
    field(
        text,
        "commits_refused",
        of_engine.get(Ticker::CommitConflicts),
    );
    field(text, "deadlocks", of_engine.get(Ticker::Deadlocks));
    field(text, "lock_timeouts", of_engine.get(Ticker::LockTimeouts));
    field(text, "lock_waits", of_engine.get(Ticker::RestartsLock));
    for gauge in snapshots(&engine.db.report().snapshots) {
        field(text, gauge.name, gauge.value);
    }
}

fn replication(shared: &Shared, text: &mut String) {
    field(text, "role", "master");
    field(text, "connected_slaves", 0);
    field(text, "master_failover_state", "no-failover");
    field(text, "master_replid", &shared.run_id);
    field(
        text,
        "master_replid2",
        "0000000000000000000000000000000000000000",
    );
    field(text, "master_repl_offset", 0);
    field(text, "second_repl_offset", -1);
    field(text, "repl_backlog_active", 0);
    field(text, "repl_backlog_size", 0);
    field(text, "repl_backlog_first_byte_offset", 0);
    field(text, "repl_backlog_histlen", 0);
}

fn processor(_: &Shared, text: &mut String) {
    // User and system time, in ticks of 10 ms. They come after the name, which ends with the last
    // bracket.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |index: usize| {
        let ticks = fields
            .split(' ')
            .nth(index)
            .and_then(|ticks| ticks.parse::<f64>().ok());
        ticks.unwrap_or(0.0) / 100.0
    };
    for (name, index) in [
        ("used_cpu_sys", 12),
        ("used_cpu_user", 11),
        ("used_cpu_sys_children", 14),
        ("used_cpu_user_children", 13),
    ] {
        field(text, name, format_args!("{:.6}", ticks(index)));
    }
}

fn commands(shared: &Shared, text: &mut String) {
    for (id, figures) in shared.statistics.commands.all() {
        let (calls, micros) = (figures.latency.count(), figures.latency.sum() / 1000);
        let each = micros as f64 / calls.max(1) as f64;
        let (rejected, failed) = (figures.rejected, figures.failed);
        let name = format!("cmdstat_{}", shared.statistics.commands.name(id));
        let value = format_args!(
            "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},\
             failed_calls={failed}"
        )
        .to_string();
        field(text, &name, value);
    }
}

fn latencies(shared: &Shared, text: &mut String) {
    for (id, figures) in shared.statistics.commands.all() {
        let latency = &figures.latency;
        if latency.count() == 0 {
            continue;
        }
        let name = format!(
            "latency_percentiles_usec_{}",
            shared.statistics.commands.name(id)
        );
        let micros = |share| latency.percentile(share) as f64 / 1000.0;
        let value = format_args!(
            "p50={:.3},p99={:.3},p99.9={:.3}",
            micros(0.5),
            micros(0.99),
            micros(0.999)
        )
        .to_string();
        field(text, &name, value);
    }
}

fn errors(shared: &Shared, text: &mut String) {
    for (code, count) in shared.errors() {
        field(
            text,
            &format!("errorstat_{code}"),
            format_args!("count={count}"),
        );
    }
}

fn keyspace(shared: &Shared, text: &mut String) {
    let Some(engine) = shared.engine() else {
        return;
    };
    for (number, database) in engine.databases.iter().enumerate() {
        let (keys, entries) = (database.keys.len(), database.entries());
        if keys > 0 {
            let name = format!("db{number}");
            field(
                text,
                &name,
                format_args!("keys={keys},expires={entries},avg_ttl=0"),
            );
        }
    }
}

fn pando(shared: &Shared, text: &mut String) {
    field(text, "durability", shared.settings.durability().name());
    field(text, "periodic_ms", shared.options.periodic_ms);
    let Some(engine) = shared.engine() else {
        return;
    };
    let report = engine.db.report();
    field(text, "io_backend", report.io_backend);
    field(text, "io_notes", report.io_notes.join("; "));
    field(text, "direct_io", u8::from(report.direct_io));
    field(text, "io_alignment", report.io_alignment);
    field(text, "queue_depth", report.queue_depth);
    field(text, "page_size", report.page_size);
    field(text, "block_size", report.block_size);
    field(text, "compression", report.compression);
    field(text, "recovery_ms", report.recovery_ms);
    field(text, "log_bytes", report.log_bytes);
    field(text, "temporary_bytes", shared.scratch.bytes());
    field(text, "durable_lsn", engine.db.durable_lsn().0);
    let checkpoint = engine.db.last_checkpoint_unix_ms();
    field(text, "last_checkpoint_unix_ms", checkpoint);
    let is_shown_above = |gauge: &Gauge| gauge.name.starts_with("snapshots_");
    for gauge in gauges(&report)
        .into_iter()
        .filter(|gauge| !is_shown_above(gauge))
    {
        field(text, gauge.name, gauge.value);
    }
    let all = engine.db.statistics();
    let ours = all.iter().filter(|(of, _)| of.layer() != Layer::Server);
    for (ticker, count) in ours {
        field(text, &format!("{}_total", ticker.name()), count);
    }
}

/// Writes all histograms in full: the difference of two of them describes the time in between.
fn histograms(shared: &Shared, text: &mut String) {
    let mut histogram = |name: &str, values: &Histogram| {
        let (count, sum) = (values.count(), values.sum());
        let _ = write!(text, "{name}:count={count},sum={sum},buckets=");
        for (index, (end, count)) in values.buckets().enumerate() {
            let space = if index == 0 { "" } else { " " };
            let _ = write!(text, "{space}{end}:{count}");
        }
        text.push_str("\r\n");
    };
    for (id, figures) in shared.statistics.commands.all() {
        let name = format!("command_{}", shared.statistics.commands.name(id));
        histogram(&name, &figures.latency);
    }
    if let Some(engine) = shared.engine() {
        for measure in Measure::ALL {
            histogram(measure.name(), &engine.db.histogram(*measure));
        }
    }
}
