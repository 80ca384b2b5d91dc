//! Figures as lines of text, for scripts and pipes.

use super::figures::Figures;
use super::panels::{Panel, panels, percentile, title};
use super::quantities::{UNKNOWN, count, time};

/// Width of the names.
const NAME_WIDTH: usize = 24;
/// Titles of the columns of the command table.
pub(crate) const COLUMNS: [&str; 7] = [
    "command", "per s", "mean", "p50", "p99", "p99.9", "errors/s",
];

/// Returns the cells of the command table, most called first.
pub(crate) fn command_cells(figures: &Figures<'_>) -> Vec<[String; 7]> {
    let rows = figures.commands().into_iter();
    rows.map(|row| {
        let mean = row.spread.mean().map_or_else(|| UNKNOWN.to_owned(), time);
        let part = |share| percentile(&row.spread, share);
        let rate = match figures.is_first() {
            true => UNKNOWN.to_owned(),
            false => count(row.rate),
        };
        let failures = row.failures.map_or_else(|| UNKNOWN.to_owned(), count);
        [
            row.name,
            rate,
            mean,
            part(0.5),
            part(0.99),
            part(0.999),
            failures,
        ]
    })
    .collect()
}

/// Returns all figures of the server at `address`, with a line end after each line.
pub(crate) fn render(address: &str, figures: &Figures<'_>) -> String {
    let mut text = format!("{address}: {}\n", title(figures));
    for Panel { title, rows } in panels(figures) {
        text.push_str(&format!("\n{title}\n"));
        for row in rows {
            text.push_str(&format!("  {:NAME_WIDTH$} {}\n", row.label, row.value));
        }
    }
    text.push_str("\nCommands\n");
    let titles = COLUMNS.map(str::to_owned);
    for cells in [titles].into_iter().chain(command_cells(figures)) {
        text.push_str(&format!("  {:NAME_WIDTH$}", cells[0]));
        for cell in &cells[1..] {
            text.push_str(&format!(" {cell:>9}"));
        }
        text.push('\n');
    }
    text
}
