//! What is shown, in words: panels of labelled values, the same in a terminal and as text.

use pando_sync::time::unix_ms;

use super::figures::Figures;
use super::quantities::{UNKNOWN, age, bytes, count, percent, time};
use super::spread::Spread;

/// A labelled value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) label: String,
    /// With its unit.
    pub(crate) value: String,
    /// How full it is, 0 to 1.
    pub(crate) share: Option<f64>,
}

/// Values that belong together.
#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// From top to bottom.
    pub(crate) rows: Vec<Row>,
}

impl Panel {
    fn new(title: &'static str) -> Self {
        let rows = Vec::new();
        Self { title, rows }
    }

    fn row(mut self, label: &str, value: impl Into<String>) -> Self {
        self.rows.push(Row {
            label: label.to_owned(),
            value: value.into(),
            share: None,
        });
        self
    }

    /// Adds a row with a part of a known whole.
    fn part(mut self, label: &str, part: u64, whole: u64, show: fn(f64) -> String) -> Self {
        self.rows.push(Row {
            label: label.to_owned(),
            value: format!("{} of {}", show(part as f64), show(whole as f64)),
            share: Some(part as f64 / whole.max(1) as f64),
        });
        self
    }
}

fn known(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), show)
}

fn per_second(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{}/s", count(value)))
}

fn bytes_per_second(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| format!("{}/s", bytes(value)))
}

/// Returns a percentile of times.
pub(crate) fn percentile(spread: &Spread, share: f64) -> String {
    known(spread.percentile(share).map(|ns| ns as f64), time)
}

fn both(spread: Option<Spread>, show: fn(f64) -> String) -> String {
    let spread = spread.unwrap_or_default();
    let value = |share| known(spread.percentile(share).map(|value| value as f64), show);
    format!("{} / {}", value(0.5), value(0.99))
}

/// Returns the first line: what runs where, and since when.
pub(crate) fn title(figures: &Figures<'_>) -> String {
    let now = figures.now;
    let number = |name| now.number(name).unwrap_or(0);
    let stage = match (number("loading"), number("poisoned")) {
        (1, _) => ", OPENING THE STORE",
        (_, 1) => ", WRITES ARE REFUSED",
        _ => "",
    };
    format!(
        "PandoDB {}, up {}, {} keys, {}, {}{stage}",
        now.text("pando_version"),
        age(number("uptime_in_seconds")),
        count(now.keys() as f64),
        now.text("durability"),
        now.text("io_backend"),
    )
}

/// Returns all panels, the most important first.
pub(crate) fn panels(figures: &Figures<'_>) -> Vec<Panel> {
    vec![
        traffic(figures),
        cache(figures),
        device(figures),
        log(figures),
        checkpoints(figures),
        space(figures),
        memory(figures),
    ]
}

fn traffic(figures: &Figures<'_>) -> Panel {
    let rate = |name| per_second(figures.rate(name));
    let now = figures.now;
    let clients = [now.text("connected_clients"), now.text("blocked_clients")];
    Panel::new("Traffic")
        .row("commands", rate("total_commands_processed"))
        .row("keys found", known(figures.lookups_found(), percent))
        .row("errors", rate("total_error_replies"))
        .row("waited for the store", rate("suspended_commands"))
        .row("run again", rate("transaction_conflicts"))
        .row("keys expired", rate("expired_keys"))
        .row(
            "clients (waiting)",
            format!("{} ({})", clients[0], clients[1]),
        )
        .row(
            "in",
            bytes_per_second(figures.rate("total_net_input_bytes")),
        )
        .row(
            "out",
            bytes_per_second(figures.rate("total_net_output_bytes")),
        )
}

fn cache(figures: &Figures<'_>) -> Panel {
    let rate = |name| per_second(figures.rate(name));
    let number = |name| figures.now.number(name).unwrap_or(0);
    Panel::new("Cache")
        .row("reads", rate("gets_total"))
        .row("reads from memory", known(figures.gets_cached(), percent))
        .row("leaves read", rate("page_reads_leaf_total"))
        .row("inner pages read", rate("page_reads_inner_total"))
        .row("long values read", rate("page_reads_overflow_total"))
        .row("emptied clean", rate("evictions_clean_total"))
        .row("emptied dirty", rate("evictions_dirty_total"))
        .row("steps again", rate("restarts_total"))
        .part(
            "dirty frames",
            number("dirty_frames"),
            number("frames"),
            count,
        )
        .part(
            "wired frames",
            number("wired_frames"),
            number("frames"),
            count,
        )
        .part(
            "held shares",
            number("pin_frames"),
            number("pin_frames_max"),
            count,
        )
}

fn device(figures: &Figures<'_>) -> Panel {
    let times = |name| both(figures.spread(name), time);
    let requests = |name| per_second(figures.spread_rate(name));
    let flow = |name| bytes_per_second(figures.rate(name));
    Panel::new("Device")
        .row("reads", requests("device_read_ns"))
        .row("read", flow("device_read_bytes_total"))
        .row("read p50 / p99", times("device_read_ns"))
        .row("writes", requests("device_write_ns"))
        .row("written", flow("device_write_bytes_total"))
        .row("write p50 / p99", times("device_write_ns"))
        .row("syncs", requests("device_sync_ns"))
        .row("sync p50 / p99", times("device_sync_ns"))
        .row(
            "in flight p50 / p99",
            both(figures.spread("device_queue_depth"), count),
        )
        .row("errors", per_second(figures.rate("device_errors_total")))
}

fn log(figures: &Figures<'_>) -> Panel {
    let number = |name| figures.now.number(name).unwrap_or(0) as f64;
    let records = figures.ratio("log_flushed_records_total", "log_flushes_total");
    Panel::new("Log")
        .row("commits", per_second(figures.rate("commits_total")))
        .row(
            "appended",
            bytes_per_second(figures.rate("log_bytes_total")),
        )
        .row("flushes", per_second(figures.rate("log_flushes_total")))
        .row("records a flush", known(records, count))
        .row(
            "flush p50 / p99",
            both(figures.spread("log_flush_ns"), time),
        )
        .row("not durable yet", bytes(number("log_pending_bytes")))
        .row("since checkpoint", bytes(number("log_used_bytes")))
}

fn checkpoints(figures: &Figures<'_>) -> Panel {
    let now = figures.now;
    let last = now.number("last_checkpoint_unix_ms");
    let ago = last.map(|last| unix_ms().saturating_sub(last) / 1000);
    // Checkpoints are rare, so all since the start are shown.
    let times = |name| both(figures.whole_spread(name).cloned(), time);
    Panel::new("Checkpoints")
        .row("done", now.text("checkpoints_total"))
        .row("last, ago", ago.map_or_else(|| UNKNOWN.to_owned(), age))
        .row(
            "pages written",
            per_second(figures.rate("checkpoint_pages_total")),
        )
        .row("gate p50 / p99", times("checkpoint_gate_ns"))
        .row("write p50 / p99", times("checkpoint_write_ns"))
        .row("sync p50 / p99", times("checkpoint_sync_ns"))
}

fn space(figures: &Figures<'_>) -> Panel {
    let number = |name| figures.now.number(name).unwrap_or(0);
    let (data, free) = (number("data_bytes"), number("data_free_bytes"));
    Panel::new("Space")
        .part("file in use", data.saturating_sub(free), data, bytes)
        .row("pages", count(number("pages") as f64))
        .row("splits", per_second(figures.rate("splits_total")))
        .row("merges", per_second(figures.rate("pages_merged_total")))
        .row(
            "garbage freed",
            per_second(figures.rate("garbage_pages_total")),
        )
}

/// Parts of the memory budget: the field of INFO, and its label here.
const PARTS: [(&str, &str); 11] = [
    ("memory_frames", "frames"),
    ("memory_page_table", "page table"),
    ("memory_log_buffers", "log buffers"),
    ("memory_images", "images"),
    ("memory_chunk_buffers", "large values"),
    ("memory_tables", "tables"),
    ("memory_old_versions", "snapshots"),
    ("memory_watches", "watched keys"),
    ("memory_cursors", "cursors of SCAN"),
    ("memory_connections", "connections"),
    ("memory_statistics", "statistics, at most"),
];

fn memory(figures: &Figures<'_>) -> Panel {
    let number = |name: &str| figures.now.number(name);
    let mut panel = Panel::new("Memory");
    for (field, label) in PARTS {
        let used = number(field).unwrap_or(0);
        panel = match number(&format!("{field}_budget")) {
            Some(budget) => panel.part(label, used, budget, bytes),
            None => panel.row(label, bytes(used as f64)),
        };
    }
    let all = |name: &str| number(name).unwrap_or(0);
    let (max, resident) = (all("maxmemory"), all("used_memory_rss"));
    panel
        .row("left for the rest", bytes(all("memory_rest_budget") as f64))
        .part("in use", all("used_memory"), max, bytes)
        .part("resident", resident, max, bytes)
}
