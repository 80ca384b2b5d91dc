//! The whole page.

use std::f64::consts::LOG10_2;

use super::chart::{Axis, Line, chart, powers, steps};
use super::escape::escape;
use super::table::Tables;
use crate::record::Record;

const STYLE: &str = "\
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; }
th, td { padding: 3px 9px; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
.settings td { white-space: normal; overflow-wrap: anywhere; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
.grid { stroke: #ddd; fill: none; } .line { fill: none; stroke-width: 2; }
";
/// Shares whose percentiles are labelled, with the power of ten of the share above them.
const LABELS: [(f64, &str); 7] = [
    (0.0, "0"),
    (LOG10_2, "50"),
    (1.0, "90"),
    (2.0, "99"),
    (3.0, "99.9"),
    (4.0, "99.99"),
    (5.0, "99.999"),
];

/// Returns a page called `title`; `about` has settings that are in no record, such as the command.
pub fn page(title: &str, about: &[(&str, String)], records: &[Record]) -> String {
    let tables = Tables::new(records);
    let mut sections = vec![("Workloads", tables.figures())];
    sections.extend(scaling(records).map(|svg| ("Operations a second by threads", svg)));
    sections.extend(latencies(records).map(|svg| ("Latency by percentile", svg)));
    sections.extend(series(records).map(|svg| ("Operations a second over time", svg)));
    sections.push(("Settings", tables.settings(about)));
    let body: String = sections
        .iter()
        .map(|(head, content)| format!("<h2>{head}</h2>\n<div class=\"wide\">\n{content}</div>\n"))
        .collect();
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

/// Returns a name that tells the record from the others of its run.
fn name(record: &Record, records: &[Record]) -> String {
    let mut name = record.workload.to_owned();
    if records.iter().any(|other| other.variant != record.variant) {
        name = format!("{name} {}", record.variant);
    }
    if records.iter().any(|other| other.threads != record.threads) {
        name = format!("{name} x{}", record.threads);
    }
    name
}

/// Draws times over shares, both logarithmic; `None` if there are no times.
fn latencies(records: &[Record]) -> Option<String> {
    let line = |record: &Record| {
        let points = record.percentiles.iter();
        let points = points.filter(|(_, us)| *us > 0.0);
        Line {
            name: name(record, records),
            points: points
                .map(|(share, us)| (-(1.0 - share).max(1e-12).log10(), us.log10()))
                .collect(),
        }
    };
    let lines: Vec<Line> = records.iter().map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let low = points().map(|(_, y)| *y).reduce(f64::min)?;
    let high = points().map(|(_, y)| *y).reduce(f64::max)?;
    let end = points().map(|(x, _)| *x).fold(2.0, f64::max);
    let labels = LABELS.iter().filter(|(at, _)| *at <= end);
    let labels: Vec<_> = labels.map(|(at, text)| (*at, (*text).to_owned())).collect();
    let ticks = powers(low, high.max(low + 1e-9));
    let x = Axis {
        name: "share of calls, %",
        min: 0.0,
        max: end,
        ticks: &labels,
    };
    let y = Axis {
        name: "time of a call, us",
        min: ticks[0].0,
        max: ticks[ticks.len() - 1].0.max(ticks[0].0 + 1.0),
        ticks: &ticks,
    };
    Some(chart(x, y, &lines))
}

/// Draws rates over time; `None` without a series.
fn series(records: &[Record]) -> Option<String> {
    let line = |record: &Record| {
        let step = record.interval_s?;
        let rates = record.interval_ops_per_s.as_ref()?.iter();
        let points = rates.enumerate();
        Some(Line {
            name: name(record, records),
            points: points
                .map(|(index, rate)| ((index + 1) as f64 * step, *rate))
                .collect(),
        })
    };
    let lines: Vec<Line> = records.iter().filter_map(line).collect();
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = steps(points().map(|(x, _)| *x).reduce(f64::max)?);
    let up = steps(points().map(|(_, y)| *y).fold(0.0, f64::max));
    let (x, y) = (
        Axis::from_zero("seconds", &across),
        Axis::from_zero("ops/s", &up),
    );
    Some(chart(x, y, &lines))
}

/// Draws rates over numbers of threads; `None` if no workload ran with several.
fn scaling(records: &[Record]) -> Option<String> {
    let mut lines: Vec<Line> = Vec::new();
    for record in records {
        let name = format!("{} {}", record.workload, record.variant);
        let point = (record.threads as f64, record.ops_per_s);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name,
                points: vec![point],
            }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines.retain(|line| line.points.first().map(|p| p.0) != line.points.last().map(|p| p.0));
    let points = || lines.iter().flat_map(|line| &line.points);
    let across = steps(points().map(|(x, _)| *x).reduce(f64::max)?);
    let up = steps(points().map(|(_, y)| *y).fold(0.0, f64::max));
    let (x, y) = (
        Axis::from_zero("threads", &across),
        Axis::from_zero("ops/s", &up),
    );
    Some(chart(x, y, &lines))
}
