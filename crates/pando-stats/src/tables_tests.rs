//! Tests of the tables of tickers and measures, and of the documentation page that lists them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::{Layer, Measure, Ticker};

const PAGE: &str = "docs/statistics.md";

/// Returns name, unit and help of everything of a layer.
fn rows_of(layer: Layer) -> Vec<String> {
    let row = |name: &str, unit: &str, help: &str| format!("| `{name}` | {unit} | {help} |");
    let tickers = Ticker::ALL.iter().filter(|of| of.layer() == layer);
    let tickers = tickers.map(|of| row(of.name(), of.unit(), of.help()));
    let measures = Measure::ALL.iter().filter(|of| of.layer() == layer);
    let measures = measures.map(|of| {
        let unit = format!("histogram of {}", of.unit());
        row(of.name(), &unit, of.help())
    });
    tickers.chain(measures).collect()
}

#[test]
fn names_are_unique_and_explained() {
    let tickers = Ticker::ALL.iter().map(|of| (of.name(), of.help()));
    let measures = Measure::ALL.iter().map(|of| (of.name(), of.help()));
    let mut names = BTreeSet::new();
    for (name, help) in tickers.chain(measures) {
        assert!(names.insert(name), "{name} occurs twice");
        assert!(help.ends_with('.') && !help.contains('|'), "{name}: {help}");
        let is_snake = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        assert!(name.chars().all(is_snake), "{name}");
    }
    let times = Measure::ALL.iter().filter(|of| of.unit() == "nanoseconds");
    assert!({ times }.all(|of| of.name().ends_with("_ns")));
}

#[test]
fn the_page_has_a_row_for_each_and_no_others() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PAGE);
    let text = std::fs::read_to_string(path).unwrap();
    let found: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected: Vec<String> = Layer::ALL.into_iter().flat_map(rows_of).collect();
    let missing: Vec<_> = expected
        .iter()
        .filter(|row| !found.contains(&row.as_str()))
        .collect();
    assert!(missing.is_empty(), "{PAGE} lacks:\n{missing:#?}");
    assert_eq!(found, expected, "{PAGE} has other rows, or another order");
    for layer in Layer::ALL {
        assert!(text.contains(&format!("## {}\n", layer.name())));
    }
}
