//! `pando stat --tree`: how full the nodes of each table are, level by level.

use pandodb::{FILL_STEPS, LevelStat, StoreStat, TableStat};
use serde_json::{Value, json};

use crate::output;
use crate::quantity::show_size;

/// Width of the longest bar, in columns.
const BAR_COLUMNS: u64 = 40;

/// Returns what `--tree` adds to a table in JSON: its levels, leaves first.
pub(crate) fn json(table: &TableStat, page_size: u32) -> Value {
    let level = |(level, stat): (usize, &LevelStat)| {
        json!({
            "level": level,
            "pages": stat.pages,
            "used_bytes": stat.used_bytes,
            "fill_percent": stat.fill_percent(page_size),
            "fill": stat.fill,
            "keys": stat.keys,
            "keys_per_page": stat.keys_per_page(),
            "keys_min": stat.keys_min,
            "keys_max": stat.keys_max,
            "prefix_saved_bytes": stat.prefix_saved_bytes,
        })
    };
    table.tree.iter().enumerate().map(level).collect()
}

/// Prints the trees of all tables that have entries.
pub(crate) fn print(stat: &StoreStat) {
    for table in stat.tables.iter().filter(|table| table.entries > 0) {
        print_table(table, stat.page_size);
    }
}

fn print_table(table: &TableStat, page_size: u32) {
    output::line(format_args!("\n{}", table.name));
    output::line(format_args!(
        "  {:<7} {:>10} {:>8} {:>14} {:>10} {:>6} {:>6} {:>12}",
        "level", "pages", "fill %", "keys", "keys/page", "least", "most", "prefix saved"
    ));
    for (level, stat) in table.tree.iter().enumerate().rev() {
        let name = match level {
            0 => "leaves".to_owned(),
            level => level.to_string(),
        };
        output::line(format_args!(
            "  {name:<7} {:>10} {:>8.1} {:>14} {:>10.1} {:>6} {:>6} {:>12}",
            stat.pages,
            stat.fill_percent(page_size),
            stat.keys,
            stat.keys_per_page(),
            stat.keys_min,
            stat.keys_max,
            show_size(stat.prefix_saved_bytes)
        ));
    }
    let Some(leaves) = table.tree.first() else {
        return;
    };
    let most = leaves.fill.iter().copied().max().unwrap_or(0).max(1);
    output::line("  leaves by fill");
    for (step, pages) in leaves.fill.iter().enumerate() {
        let (from, to) = (step * 100 / FILL_STEPS, (step + 1) * 100 / FILL_STEPS);
        let columns = (pages * BAR_COLUMNS).div_ceil(most);
        let bar = "#".repeat(usize::try_from(columns).expect("at most BAR_COLUMNS"));
        let text = format!("  {from:>3} to {to:>3} % {pages:>10} {bar}");
        output::line(text.trim_end());
    }
}
