//! What is reported of a workload: a JSON object for machines, a line of a table for people.
//!
//! Every name carries its unit; what means nothing for a workload is absent.

use serde::Serialize;

/// One workload that was run.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Name of the workload.
    pub workload: &'static str,
    /// What was measured: `ours`, the product as it is.
    pub variant: &'static str,
    /// Threads that ran operations.
    pub threads: usize,
    /// Keys a second, over all threads.
    pub ops_per_s: f64,
    /// Median of the time of a call (a batch is one), in microseconds.
    pub p50_us: f64,
    /// Time that 99 % of the calls did not exceed.
    pub p99_us: f64,
    /// Time that 99.9 % of the calls did not exceed.
    pub p999_us: f64,
    /// Mean time of a call.
    pub mean_us: f64,
    /// Longest time of a call.
    pub max_us: f64,
    /// The way to the disk.
    pub io_backend: &'static str,
    /// Most reads in flight of an event loop.
    pub queue_depth: usize,
    /// Bytes of a page.
    pub page_size: usize,
    /// Memory budget, in bytes.
    pub max_memory: u64,
    /// Pages read from the device for each key.
    pub page_reads_per_op: f64,
    /// Pages written to the device for each key.
    pub page_writes_per_op: f64,
    /// Share of keys whose leaf was in memory: one less the pages that were not, for each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits_per_op: Option<f64>,
    /// Keys that were read, written or deleted.
    pub ops: u64,
    /// Keys that were there, of those asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// Length of the run, without warm-up, in seconds.
    pub elapsed_s: f64,
    /// Keys in the store.
    pub num: u64,
    /// Bytes of a key.
    pub key_size_bytes: usize,
    /// Bytes of a value.
    pub value_size_bytes: usize,
    /// What keys look like.
    pub key_kind: &'static str,
    /// Keys of a call, where a call has several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
    /// What a write waits for.
    pub durability: &'static str,
    /// Which keys were chosen, where they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// Of all choices.
    pub seed: u64,
    /// Keys a second that were asked for, of an open loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_ops_per_s: Option<f64>,
    /// Length of a step of the series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// Keys a second, step by step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval_ops_per_s: Option<Vec<f64>>,
    /// Counters of the engine over the run, for people who ask.
    #[serde(skip)]
    pub tickers: Vec<(&'static str, &'static str, u64)>,
}

impl Record {
    /// Head of the table.
    pub fn head() -> String {
        format!(
            "{:<16} {:>7} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8}",
            "workload", "threads", "ops/s", "p50 us", "p99 us", "p99.9 us", "reads/op", "found %"
        )
    }

    /// Line of the table.
    pub fn line(&self) -> String {
        let found = match self.found {
            Some(found) if self.ops > 0 => {
                format!("{:.1}", 100.0 * found as f64 / self.ops as f64)
            }
            _ => "-".to_owned(),
        };
        format!(
            "{:<16} {:>7} {:>12.0} {:>10.2} {:>10.2} {:>10.2} {:>10.3} {:>8}",
            self.workload,
            self.threads,
            self.ops_per_s,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            self.page_reads_per_op,
            found
        )
    }

    /// One line of JSON, without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps and no foreign types")
    }
}
