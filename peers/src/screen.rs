//! Where results go: a table on standard output, records in a file, progress on standard error.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use pando_bench::{Observer, Record, Result};
use pando_sync::time::{self, Duration, Instant};
use serde_json::Value;

use crate::options::failed;

/// How often a workload that takes long says so.
const PROGRESS: Duration = Duration::from_secs(10);

/// The table and the file of records.
pub(crate) struct Screen {
    json: Option<File>,
}

/// A line on standard output; nobody is told when that is closed.
pub(crate) fn line(text: &str) {
    let _ = writeln!(io::stdout().lock(), "{text}");
}

impl Screen {
    /// Empties the file `json`, if one is named.
    pub(crate) fn new(json: Option<&Path>) -> Result<Self> {
        let create =
            |path: &Path| File::create(path).map_err(failed(format!("--json {}", path.display())));
        Ok(Self {
            json: json.map(create).transpose()?,
        })
    }

    /// Head of the table.
    pub(crate) fn head(&self) {
        line(&format!(
            "{:<11} {:>5} {:<16} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9} {:>7}",
            "engine",
            "round",
            "workload",
            "threads",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "cpu us/op",
            "disk B/op",
            "writer/s",
            "writes x",
            "space x"
        ));
    }

    /// A record: a line of the table, and one of the file.
    pub(crate) fn record(&mut self, record: &Value) -> Result<()> {
        line(&row(record));
        match &mut self.json {
            None => Ok(()),
            Some(file) => writeln!(file, "{record}").map_err(failed("writing --json")),
        }
    }
}

fn row(record: &Value) -> String {
    let figure = |value: &Value, digits: usize| match value.as_f64() {
        Some(value) => format!("{value:.digits$}"),
        None => "-".to_owned(),
    };
    let number = |name: &str, digits: usize| figure(&record[name], digits);
    let text = |name: &str| record[name].as_str().unwrap_or("-").to_owned();
    let mark = match record["without_goal"].is_null() {
        true => "",
        false => "  (without a goal)",
    };
    format!(
        "{:<11} {:>5} {:<16} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>9} {:>7}{mark}",
        text("engine"),
        number("round", 0),
        text("workload"),
        number("threads", 0),
        number("ops_per_s", 0),
        number("p50_us", 2),
        number("p99_us", 2),
        number("p999_us", 2),
        number("cpu_us_per_op", 2),
        number("disk_read_bytes_per_op", 0),
        number("beside_ops_per_s", 0),
        figure(&record["writes"]["write_amplification"], 2),
        figure(&record["writes"]["space_amplification"], 2),
    )
}

/// Says every ten seconds how far a workload is.
pub(crate) struct Progress {
    engine: &'static str,
    last: Instant,
}

impl Progress {
    /// Says something ten seconds from now for the first time.
    pub(crate) fn new(engine: &'static str) -> Self {
        let last = time::now();
        Self { engine, last }
    }
}

impl Observer for Progress {
    fn progress(&mut self, workload: &str, share: f64, ops_per_s: f64) {
        if time::now() - self.last >= PROGRESS {
            self.last = time::now();
            let percent = 100.0 * share;
            eprintln!(
                "{} {workload} {percent:.0} % {ops_per_s:.0} ops/s",
                self.engine
            );
        }
    }

    fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {}

    fn record(&mut self, _record: &Record) -> Result<()> {
        Ok(())
    }
}
