//! What is reported of an engine under a workload: the record of `pando bench`, and what only a
//! comparison has.

use std::collections::BTreeMap;

use pando_bench::Record;
use serde::Serialize;

use crate::writes::Writes;

/// One workload of one engine in one round.
#[derive(Debug, Clone, Serialize)]
pub struct PeerRecord {
    /// Name of the engine.
    pub engine: &'static str,
    /// The round, from 1.
    pub round: u64,
    /// Figures; `variant` names the engine, too.
    #[serde(flatten)]
    pub record: Record,
    /// Bytes that the process read from disk for each operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_op: Option<f64>,
    /// Bytes that the process wrote to disk for each operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_write_bytes_per_op: Option<f64>,
    /// Time after a fill, or with `--settle` after overwrite and updaterandom, too, until the
    /// engine had finished what it had put off, in no other figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle_s: Option<f64>,
    /// Entries of a call of seekrandom and readseq.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan_entries: Option<u64>,
    /// What a group holds the process to, page cache included, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup_memory_max: Option<u64>,
    /// Why the figure is none to be measured against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_goal: Option<String>,
    /// What was written until the engine had finished what it put off, and what that takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writes: Option<Writes>,
    /// What the engine was set to.
    pub settings: BTreeMap<&'static str, String>,
}

impl PeerRecord {
    /// One line of JSON, without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("all keys are strings")
    }
}
