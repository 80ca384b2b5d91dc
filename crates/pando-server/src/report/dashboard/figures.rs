//! `/stats.json`: all counters, measures and gauges.

use pando_stats::{Histogram, Layer, Measure, Ticker};
use pando_sync::time::{now, unix_ms};
use serde_json::{Map, Value, json};

use crate::data::engine::Engine;
use crate::report::gauges::gauges;
use crate::report::memory_use::{MemoryUse, resident_bytes};
use crate::shared::{Shared, Stage};

/// Returns all current figures as JSON.
pub(crate) fn stats_json(shared: &Shared) -> String {
    let engine = shared.engine();
    let report = engine.as_ref().map(|engine| engine.db.report());
    let stage = match shared.stage() {
        Stage::Loading => "loading",
        Stage::Serving => "serving",
        Stage::Stopping => "stopping",
    };
    let mut levels = Map::new();
    levels.insert(
        "connected_clients".into(),
        shared.clients.all().len().into(),
    );
    levels.insert("event_loops".into(), shared.loops.len().into());
    if let (Some(engine), Some(report)) = (&engine, &report) {
        levels.insert("keys".into(), keys(engine).into());
        for gauge in gauges(report) {
            levels.insert(gauge.name.to_owned(), gauge.value.into());
        }
    }
    let checkpoint = engine.as_ref().map(|of| of.db.last_checkpoint_unix_ms());
    let all = json!({
        "version": shared.options.version,
        "run_id": shared.run_id,
        "now_unix_ms": unix_ms(),
        "uptime_seconds": now().duration_since(shared.started).as_secs_f64(),
        "stage": stage,
        "durability": shared.settings.durability().name(),
        "io_backend": report.as_ref().map(|report| report.io_backend),
        "poisoned": report.as_ref().and_then(|report| report.poisoned.clone()),
        "last_checkpoint_unix_ms": checkpoint,
        "counters": counters(shared, engine.as_deref()),
        "gauges": levels,
        "memory": memory(shared),
        "histograms": engine.as_deref().map_or_else(Map::new, histograms),
        "commands": commands(shared),
    });
    all.to_string()
}

fn keys(engine: &Engine) -> u64 {
    engine.databases.iter().map(|of| of.keys.len()).sum()
}

/// Counters of the server, and those of the engine once it is open.
fn counters(shared: &Shared, engine: Option<&Engine>) -> Map<String, Value> {
    let ours = shared.statistics.counts();
    let theirs = engine.map(|engine| engine.db.statistics());
    let count = |ticker: &Ticker| match ticker.layer() {
        Layer::Server => Some(ours.get(*ticker)),
        _ => Some(theirs.as_ref()?.get(*ticker)),
    };
    let all = Ticker::ALL.iter();
    all.filter_map(|ticker| Some((ticker.name().to_owned(), count(ticker)?.into())))
        .collect()
}

fn memory(shared: &Shared) -> Value {
    let memory = MemoryUse::new(shared);
    let parts = memory.parts().into_iter().map(
        |(name, used, budget)| json!({ "name": name, "used_bytes": used, "budget_bytes": budget }),
    );
    json!({
        "max_bytes": memory.max,
        "used_bytes": memory.used(),
        "rest_budget_bytes": memory.rest_budget,
        "resident_bytes": resident_bytes(),
        "parts": parts.collect::<Vec<_>>(),
    })
}

/// Returns the buckets that have values: the largest value of each, and their number.
fn histogram(values: &Histogram) -> Value {
    let buckets: Vec<_> = values
        .buckets()
        .map(|(end, count)| json!([end, count]))
        .collect();
    json!({ "count": values.count(), "sum": values.sum(), "buckets": buckets })
}

fn histograms(engine: &Engine) -> Map<String, Value> {
    let all = Measure::ALL.iter();
    all.map(|of| (of.name().to_owned(), histogram(&engine.db.histogram(*of))))
        .collect()
}

fn commands(shared: &Shared) -> Map<String, Value> {
    let all = shared.statistics.commands.all().into_iter();
    all.map(|(id, figures)| {
        let value = json!({
            "rejected": figures.rejected,
            "failed": figures.failed,
            "latency": histogram(&figures.latency),
        });
        (shared.statistics.commands.name(id).to_owned(), value)
    })
    .collect()
}
