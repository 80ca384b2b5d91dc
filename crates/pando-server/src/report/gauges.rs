//! Gauges of the store: values that are not counted but have a current state, with one line of help
//! each. INFO, `/metrics` and `/stats.json` share this table.

use pando_sync::time::Duration;
use pandodb::{Report, SnapshotStat};

/// A current value.
pub(crate) struct Gauge {
    /// In lower case; a part of the names that exporters see.
    pub(crate) name: &'static str,
    /// What is counted, in one sentence.
    pub(crate) help: &'static str,
    /// In the unit that `help` says.
    pub(crate) value: u64,
}

/// Returns all gauges of a store.
pub(crate) fn gauges(report: &Report) -> Vec<Gauge> {
    // Positions at the ends of segments may have been left out in between.
    let pending = report.newest_lsn.0.saturating_sub(report.durable_lsn.0);
    let pending = pending.min(report.log_bytes);
    let rows = [
        ("frames", "Frames of the pool.", report.frames),
        (
            "dirty_frames",
            "Frames whose page has changed since it was written.",
            report.dirty_frames,
        ),
        (
            "wired_frames",
            "Frames that hold the root of a table.",
            report.wired_frames,
        ),
        (
            "pin_frames",
            "Frames that operations have taken shares of, so that what they fetch stays.",
            report.pin_frames,
        ),
        (
            "pin_frames_max",
            "Most frames of such shares.",
            report.pin_frames_max,
        ),
        (
            "log_used_bytes",
            "Bytes of the log that the next checkpoint frees.",
            report.log_bytes,
        ),
        (
            "log_pending_bytes",
            "Bytes of the log that are not durable yet.",
            pending,
        ),
        (
            "queue_depth_max",
            "Most reads in flight of one event loop.",
            report.queue_depth as u64,
        ),
        (
            "poisoned",
            "1 if writes are refused since something has failed.",
            u64::from(report.poisoned.is_some()),
        ),
    ];
    let rows = rows.into_iter().chain(of_space(report));
    rows.map(|(name, help, value)| Gauge { name, help, value })
        .chain(snapshots(&report.snapshots))
        .collect()
}

/// Returns the gauges of open snapshots.
pub(crate) fn snapshots(stat: &SnapshotStat) -> Vec<Gauge> {
    let ms = |age: Option<Duration>| {
        age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
    };
    let rows = [
        (
            "snapshots_in_memory",
            "Snapshots, those of transactions too, that read old versions in memory.",
            stat.in_memory,
        ),
        (
            "snapshots_in_memory_oldest_ms",
            "How long the oldest of these has been open, in milliseconds.",
            ms(stat.oldest_in_memory),
        ),
        (
            "snapshots_settled",
            "Checkpoints that are kept for snapshots on disk.",
            stat.settled,
        ),
        (
            "snapshots_settled_oldest_ms",
            "How long the oldest of these has been kept, in milliseconds.",
            ms(stat.oldest_settled),
        ),
        (
            "snapshots_held_bytes",
            "Bytes of the data file that only snapshots on disk still use.",
            stat.held_bytes,
        ),
    ];
    let rows = rows.into_iter();
    rows.map(|(name, help, value)| Gauge { name, help, value })
        .collect()
}

/// Gauges of the data file and of checkpoints.
fn of_space(report: &Report) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
    let rows = [
        ("pages", "One past the largest page id.", report.pages),
        ("data_bytes", "Bytes of the data file.", report.data_bytes),
        (
            "data_free_bytes",
            "Bytes of the data file that no page uses, discarded ones included.",
            report.data_free_bytes,
        ),
        (
            "data_discarded_bytes",
            "Bytes of these that were given back to the file system.",
            report.data_discarded_bytes,
        ),
        (
            "data_reserved_bytes",
            "Bytes of these that are reserved for running commits, dirty pages and images in flight.",
            report.data_reserved_bytes,
        ),
        (
            "free_run_bytes_max",
            "Bytes of the longest free piece of the data file, as of the last checkpoint.",
            report.free_run_bytes_max,
        ),
        (
            "fragmentation_percent",
            "Share of the data file that is free in pieces shorter than the longest extent, but for its end.",
            report.fragmentation_percent,
        ),
        (
            "checkpoint_running",
            "1 while a checkpoint runs.",
            u64::from(report.checkpoint.is_running()),
        ),
        (
            "checkpoint_pages_left",
            "Pages that the running checkpoint has still to write.",
            report.checkpoint.pages_left,
        ),
    ];
    rows.into_iter()
}
