//! Fields of records as tables: figures in columns; values that all records share are listed once.

use serde_json::{Map, Value};

use super::escape::escape;
use crate::record::Record;

/// Fields that are columns if a record has them, in this order.
const COLUMNS: [&str; 42] = [
    "workload",
    "variant",
    "threads",
    "ops_per_s",
    "speed_to_ours",
    "speed_to_one_thread",
    "speed_to_first_variant",
    "ops_per_transaction",
    "writes_percent",
    "speed_to_first_level",
    "conflicts_per_commit",
    "p50_us",
    "p99_us",
    "p999_us",
    "mean_us",
    "max_us",
    "read_p50_us",
    "read_p99_us",
    "read_p999_us",
    "write_p50_us",
    "write_p99_us",
    "write_p999_us",
    "cpu_us_per_op",
    "server_cpu_us_per_op",
    "instructions_per_op",
    "cycles_per_op",
    "cache_misses_per_op",
    "branch_misses_per_op",
    "page_reads_per_op",
    "page_writes_per_op",
    "hits_per_op",
    "page_reads_per_miss",
    "hits_per_look",
    "beside_ops_per_s",
    "scan_entries_per_s",
    "resident_bytes_max",
    "ops_per_s_min",
    "ops_per_s_max",
    "constructions_per_op",
    "allocations_per_op",
    "ops",
    "elapsed_s",
];
/// Fields that are charts instead.
const CHARTS: [&str; 1] = ["interval_ops_per_s"];

type Fields = Map<String, Value>;

/// Records, field by field.
pub(super) struct Tables(Vec<Fields>);

impl Tables {
    pub(super) fn new(records: &[Record]) -> Self {
        let fields = |record: &Record| match serde_json::from_str(&record.json()) {
            Ok(Value::Object(fields)) => fields,
            _ => Fields::new(),
        };
        Self(records.iter().map(fields).collect())
    }

    /// Returns a table with a row for each record.
    pub(super) fn figures(&self) -> String {
        let mut names: Vec<&str> = COLUMNS.to_vec();
        names.retain(|name| self.0.iter().any(|fields| fields.contains_key(*name)));
        names.extend(self.other_names().filter(|name| self.same(name).is_none()));
        let head = names
            .iter()
            .map(|name| format!("<th>{}</th>", escape(name)));
        let rows = self.0.iter().map(|fields| {
            let cells = names.iter().map(|name| cell(fields.get(*name)));
            format!("<tr>{}</tr>\n", cells.collect::<String>())
        });
        format!(
            "<table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table>\n",
            head.collect::<String>(),
            rows.collect::<String>()
        )
    }

    /// Returns a table of `about` and of the fields that are the same in all records, with a row
    /// for each.
    pub(super) fn settings(&self, about: &[(&str, String)]) -> String {
        let row = |name: &str, value: &str| {
            let (name, value) = (escape(name), escape(value));
            format!("<tr><th>{name}</th><td>{value}</td></tr>\n")
        };
        let about = about.iter().map(|(name, value)| row(name, value));
        let fields = self.other_names().filter_map(|name| {
            let value = self.same(name)?;
            Some(row(name, &text(value)))
        });
        let rows: String = about.chain(fields).collect();
        format!("<table class=\"settings\">\n<tbody>\n{rows}</tbody>\n</table>\n")
    }

    /// Iterates over the fields that are not always columns, each once, by name.
    fn other_names(&self) -> impl Iterator<Item = &str> {
        let names = self.0.iter().flat_map(|fields| fields.keys());
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let is_other = |name: &&str| !COLUMNS.contains(name) && !CHARTS.contains(name);
        names.into_iter().filter(is_other)
    }

    /// Returns the value of a field, if all records that have it agree.
    fn same(&self, name: &str) -> Option<&Value> {
        let mut values = self.0.iter().filter_map(|fields| fields.get(name));
        let first = values.next()?;
        values.all(|value| value == first).then_some(first)
    }
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None => "<td>-</td>".to_owned(),
        Some(value @ Value::Number(_)) => format!("<td class=\"n\">{}</td>", text(value)),
        Some(value) => format!("<td>{}</td>", escape(&text(value))),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => short(float),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// Formats a number with as many digits as people read.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::Tables;
    use crate::record::Record;

    #[test]
    fn what_differs_is_a_column_and_what_is_the_same_a_setting() {
        let mut records = ["one", "two"].map(|name| Record::new(name, "ours", 2, 7));
        records[0].num = Some(10);
        records[0].batch = Some(1);
        records[1].batch = Some(128);
        records[1].hits_per_op = Some(0.25);
        let tables = Tables::new(&records);
        let (figures, settings) = (tables.figures(), tables.settings(&[("by", "<me>".into())]));
        assert!(figures.contains("<th>batch</th>") && figures.contains(">128</td>"));
        assert!(figures.contains("<td>-</td>") && figures.contains(">0.2500</td>"));
        assert!(!figures.contains("<th>num</th>") && !figures.contains("<th>seed</th>"));
        assert!(settings.contains("<tr><th>num</th><td>10</td></tr>"));
        assert!(settings.contains("<tr><th>seed</th><td>7</td></tr>"));
        assert!(settings.contains("<tr><th>by</th><td>&lt;me&gt;</td></tr>"));
    }
}
