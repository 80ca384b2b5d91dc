//! All figures in the text format of Prometheus: tickers and measures from their common table,
//! commands by name, and gauges.
//!
//! Times are in seconds, as usual there: the suffix `_ns` of a name becomes `_seconds`. A reset of
//! the statistics looks like a restart, which Prometheus can handle.

use std::fmt::{Display, Write as _};

use pando_stats::{Histogram, Layer, Measure, Ticker};
use pando_sync::time::now;
use pandodb::{Db, Report};

use crate::report::gauges::{Gauge, gauges};
use crate::report::memory_use::{MemoryUse, resident_bytes};
use crate::shared::{Shared, Stage};

/// Number of buckets for times; they end at 1,024 ns times powers of two, up to 17 seconds.
const TIME_BUCKETS: u32 = 25;
/// Number of buckets for other values; they end just below powers of two.
const VALUE_BUCKETS: u32 = 21;

/// The text while it is written.
#[derive(Default)]
struct Exposition {
    text: String,
}

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a sample; `labels` as made by [`label`], without braces.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            _ => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    /// Writes the samples of a histogram of the family `name`.
    fn histogram(&mut self, name: &str, labels: &str, is_time: bool, values: &Histogram) {
        let comma = if labels.is_empty() { "" } else { "," };
        let bucket = format!("{name}_bucket");
        let buckets = if is_time { TIME_BUCKETS } else { VALUE_BUCKETS };
        for power in 0..buckets {
            let (limit, end) = match is_time {
                true => {
                    let end = 1024_u64 << power;
                    (end - 1, (end as f64 / 1e9).to_string())
                }
                false => ((1 << power) - 1, ((1_u64 << power) - 1).to_string()),
            };
            let labels = format!("{labels}{comma}le=\"{end}\"");
            self.sample(&bucket, &labels, values.count_up_to(limit));
        }
        let labels_all = format!("{labels}{comma}le=\"+Inf\"");
        self.sample(&bucket, &labels_all, values.count());
        let sum = match is_time {
            true => seconds(values.sum()),
            false => values.sum() as f64,
        };
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, values.count());
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns a label with its value, which may contain any character.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"");
    format!("{name}=\"{}\"", value.replace('\n', "\\n"))
}

/// Returns the name of a ticker or measure without `_ns`; `None` if its unit is not nanoseconds.
fn in_seconds(name: &str) -> Option<String> {
    let base = name.strip_suffix("_ns")?;
    Some(format!("pando_{base}_seconds"))
}

/// Returns all figures.
pub(crate) fn render(shared: &Shared) -> String {
    let mut out = Exposition::default();
    state(shared, &mut out);
    memory(shared, &mut out);
    let ours = shared.statistics.counts();
    let engine = shared.engine();
    let theirs = engine.as_ref().map(|engine| engine.db.statistics());
    for ticker in Ticker::ALL {
        let counts = match (ticker.layer(), &theirs) {
            (Layer::Server, _) => &ours,
            (_, Some(theirs)) => theirs,
            (_, None) => continue,
        };
        let count = counts.get(*ticker);
        match in_seconds(ticker.name()) {
            Some(name) => {
                let name = format!("{name}_total");
                out.single(&name, "counter", ticker.help(), seconds(count));
            }
            None => {
                let name = format!("pando_{}_total", ticker.name());
                out.single(&name, "counter", ticker.help(), count);
            }
        }
    }
    commands(shared, &mut out);
    if let Some(engine) = &engine {
        measures(&engine.db, &mut out);
        store(&engine.db.report(), &mut out);
        out.family("pando_keys", "gauge", "Keys, by database.");
        for (number, database) in engine.databases.iter().enumerate() {
            let labels = label("db", &number.to_string());
            out.sample("pando_keys", &labels, database.keys.len());
        }
    }
    out.text
}

fn measures(db: &Db, out: &mut Exposition) {
    for measure in Measure::ALL {
        let values = db.histogram(*measure);
        let time = in_seconds(measure.name());
        let is_time = time.is_some();
        let name = time.unwrap_or_else(|| format!("pando_{}", measure.name()));
        out.family(&name, "histogram", measure.help());
        out.histogram(&name, "", is_time, &values);
    }
}

fn commands(shared: &Shared, out: &mut Exposition) {
    let of_commands = &shared.statistics.commands;
    let all = of_commands.all();
    let labels = |id: usize| label("command", of_commands.name(id));
    let name = "pando_command_seconds";
    let help = "Time of commands from beginning to reply, without the wait for the log.";
    out.family(name, "histogram", help);
    for (id, figures) in all.iter().filter(|(_, of)| of.latency.count() > 0) {
        out.histogram(name, &labels(*id), true, &figures.latency);
    }
    let name = "pando_command_rejections_total";
    out.family(name, "counter", "Calls that were refused before they ran.");
    for (id, figures) in &all {
        out.sample(name, &labels(*id), figures.rejected);
    }
    let name = "pando_command_failures_total";
    out.family(name, "counter", "Calls that ran and replied an error.");
    for (id, figures) in &all {
        out.sample(name, &labels(*id), figures.failed);
    }
    let name = "pando_error_replies_total";
    out.family(name, "counter", "Replies that were errors, by their code.");
    for (code, count) in shared.errors() {
        out.sample(name, &label("code", &code), count);
    }
}

fn state(shared: &Shared, out: &mut Exposition) {
    let name = "pando_info";
    out.family(name, "gauge", "What runs; always 1.");
    let labels = [
        label("version", &shared.options.version),
        label("run_id", &shared.run_id),
        label("durability", shared.settings.durability().name()),
    ];
    out.sample(name, &labels.join(","), 1);
    let uptime = now().duration_since(shared.started).as_secs_f64();
    let is = |stage| u8::from(shared.stage() == stage);
    out.single(
        "pando_uptime_seconds",
        "gauge",
        "Time since the start.",
        uptime,
    );
    let help = "1 while the store is being opened.";
    out.single("pando_loading", "gauge", help, is(Stage::Loading));
    let help = "1 while commands are executed and writes are possible.";
    out.single(
        "pando_ready",
        "gauge",
        help,
        u8::from(not_ready(shared).is_none()),
    );
    let loops = shared.loops.len();
    out.single("pando_event_loops", "gauge", "Event loops.", loops);
    let clients = shared.clients.all().len();
    out.single(
        "pando_connected_clients",
        "gauge",
        "Open connections.",
        clients,
    );
    let help = "Bytes of the temporary files of replies that are sorted.";
    let bytes = shared.scratch.bytes();
    out.single("pando_temporary_bytes", "gauge", help, bytes);
}

fn memory(shared: &Shared, out: &mut Exposition) {
    let memory = MemoryUse::new(shared);
    let help = "The memory budget.";
    out.single("pando_memory_max_bytes", "gauge", help, memory.max);
    let name = "pando_memory_used_bytes";
    out.family(name, "gauge", "Memory in use, by part of the budget.");
    for (part, used, _) in memory.parts() {
        out.sample(name, &label("part", part), used);
    }
    let name = "pando_memory_budget_bytes";
    out.family(name, "gauge", "Shares of the memory budget.");
    let shares = memory.parts().into_iter();
    let rest = ("rest", memory.rest_budget);
    let shares = shares.filter_map(|(part, _, budget)| Some((part, budget?)));
    for (part, budget) in shares.chain([rest]) {
        out.sample(name, &label("part", part), budget);
    }
    let name = "process_resident_memory_bytes";
    out.single(
        name,
        "gauge",
        "Resident memory of the process.",
        resident_bytes(),
    );
}

fn store(report: &Report, out: &mut Exposition) {
    let labels = [
        label("io_backend", report.io_backend),
        label("page_size", &report.page_size.to_string()),
        label("block_size", &report.block_size.to_string()),
        label("compression", &report.compression.to_string()),
    ];
    out.family("pando_store_info", "gauge", "How the store is; always 1.");
    out.sample("pando_store_info", &labels.join(","), 1);
    for Gauge { name, help, value } in gauges(report) {
        out.single(&format!("pando_{name}"), "gauge", help, value);
    }
}

/// Returns why the server is not ready; `None` if it is.
pub(crate) fn not_ready(shared: &Shared) -> Option<String> {
    match shared.stage() {
        Stage::Loading => Some("loading".to_owned()),
        Stage::Stopping => Some("stopping".to_owned()),
        Stage::Serving => {
            let engine = shared.engine()?;
            let cause = engine.db.report().poisoned?;
            Some(format!("writes are refused: {cause}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of a label is escaped.
    #[test]
    fn labels_may_be_anything() {
        assert_eq!(label("code", "a\"b\\c\nd"), r#"code="a\"b\\c\nd""#);
    }

    #[test]
    fn buckets_are_cumulative_and_end_where_their_label_says() {
        let (mut out, mut values) = (Exposition::default(), Histogram::new());
        for value in [0, 1, 2, 3, 4, 2_000_000] {
            values.add(value);
        }
        out.histogram("x", "", false, &values);
        for line in [
            "x_bucket{le=\"0\"} 1\n",
            "x_bucket{le=\"1\"} 2\n",
            "x_bucket{le=\"3\"} 4\n",
            "x_bucket{le=\"7\"} 5\n",
            "x_bucket{le=\"+Inf\"} 6\n",
            "x_sum 2000010\nx_count 6\n",
        ] {
            assert!(out.text.contains(line), "{line} in {}", out.text);
        }
        let mut out = Exposition::default();
        values = Histogram::new();
        values.add(2_000_000);
        out.histogram("t", "a=\"b\"", true, &values);
        for line in [
            "t_bucket{a=\"b\",le=\"0.000001024\"} 0\n",
            "t_bucket{a=\"b\",le=\"0.001048576\"} 0\n",
            "t_bucket{a=\"b\",le=\"0.002097152\"} 1\n",
            "t_sum{a=\"b\"} 0.002\n",
        ] {
            assert!(out.text.contains(line), "{line} in {}", out.text);
        }
    }
}
