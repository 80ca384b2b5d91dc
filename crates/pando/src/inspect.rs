//! `pando stat` and `pando verify`: read a store that no process has open, and change nothing; but
//! `pando verify --rows` opens it.

use std::path::Path;

use pando_server::RowsReport;
use pandodb::{
    Compression, Damage, Error, LevelStat, StoreStat, StoredStat, TableStat, VerifyReport,
};
use serde_json::{Value, json};

use crate::command_line::{StatFlags, StoreArgs, VerifyFlags};
use crate::failure::{Code, Failure};
use crate::memory;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::tree_stat;

/// Prints figures of a store that no process has open. Reads every page, changes nothing.
pub(crate) fn stat(what: &StatFlags) -> Result<(), Failure> {
    let StatFlags { target, tree } = what;
    check_directory(&target.dir)?;
    let mut progress = Progress::new();
    let stat = pandodb::stat(&target.dir, |done, all| {
        progress.update("pages read", done as f64 / all.max(1) as f64);
    });
    progress.finish();
    let stat = stat.map_err(|error| of_store(&target.dir, error))?;
    if target.json {
        output::line(stat_json(&stat, *tree));
        return Ok(());
    }
    print_stat(&stat);
    if *tree {
        tree_stat::print(&stat);
    }
    Ok(())
}

/// Checks a store that no process has open. Damage is printed, and is a failure as well.
pub(crate) fn verify(what: &VerifyFlags) -> Result<(), Failure> {
    let target = &what.target;
    check_directory(&target.dir)?;
    let mut progress = Progress::new();
    let checked = pandodb::verify(&target.dir, |done, all| {
        progress.update("pages checked", done as f64 / all.max(1) as f64);
    });
    progress.finish();
    let report = match checked {
        Ok(report) => report,
        Err(error) => {
            if target.json && error.is_corruption() {
                output::line(json!({ "sound": false, "damages": [unloadable(&error)] }));
            }
            return Err(of_store(&target.dir, error));
        }
    };
    let is_sound = report.damages.is_empty();
    if !target.json {
        print_verified(&report);
    }
    let rows = (what.rows && is_sound).then(|| check_rows(target, what.max_memory.as_deref()));
    if target.json {
        let mut value = verify_json(&report);
        if let Some(Ok(rows)) = &rows {
            value["rows"] = rows_json(rows);
        }
        output::line(value);
    }
    if !is_sound {
        return Err(Failure::new(
            Code::Damage,
            format!(
                "damage in {} places; restore the directory from a copy, or copy what can be read \
                 with 'pando salvage'",
                report.damages.len()
            ),
        ));
    }
    let Some(rows) = rows.transpose()? else {
        return Ok(());
    };
    if !target.json {
        print_rows(&rows);
    }
    match rows.problems {
        0 => Ok(()),
        count => Err(Failure::new(
            Code::Damage,
            format!(
                "{count} rows and heads of collections contradict each other; delete these keys, or \
                 restore the directory from a copy"
            ),
        )),
    }
}

fn print_verified(report: &VerifyReport) {
    for Damage { place, what } in &report.damages {
        output::line(format_args!("{place}: {what}"));
    }
    output::line(format_args!("{} pages checked", report.pages_checked));
    if report.leaked > 0 {
        output::line(format_args!(
            "{} pages are used by nothing; 'pando compact' frees them",
            report.leaked
        ));
    }
    if report.damages.is_empty() {
        output::line("No damage found.");
    }
}

/// Opens the store, and compares the heads of large collections with the rows of their elements.
fn check_rows(target: &StoreArgs, max_memory: Option<&str>) -> Result<RowsReport, Failure> {
    let options = pandodb::Db::builder().max_memory(memory::tool_budget(max_memory, 2)?);
    let opened = options.open_existing(&target.dir);
    let db = opened.map_err(|error| of_store(&target.dir, error))?;
    let report = pando_server::check_rows(&db)?;
    db.close()?;
    Ok(report)
}

fn print_rows(report: &RowsReport) {
    for description in &report.descriptions {
        output::line(description);
    }
    output::line(format_args!(
        "{} keys, {} large collections with {} rows checked",
        report.keys, report.large, report.rows
    ));
}

fn rows_json(report: &RowsReport) -> Value {
    json!({
        "keys": report.keys,
        "large_collections": report.large,
        "rows": report.rows,
        "rows_given_up": report.given_up,
        "problems": report.problems,
        "descriptions": report.descriptions,
    })
}

/// Refuses a path that is no directory.
pub(crate) fn check_directory(dir: &Path) -> Result<(), Failure> {
    if dir.is_dir() {
        return Ok(());
    }
    let what = match dir.exists() {
        true => "is no directory",
        false => "does not exist",
    };
    Err(Failure::usage(format!(
        "{} {what}; name the directory of a store",
        dir.display()
    )))
}

/// Returns why the store in `dir` cannot be used; what is wrong with the directory names it.
pub(crate) fn of_store(dir: &Path, error: Error) -> Failure {
    match error {
        Error::InvalidOption {
            option: "dir",
            what,
        } => Failure::usage(format!("{}: {what}", dir.display())),
        other => other.into(),
    }
}

fn unloadable(error: &Error) -> Value {
    json!({ "place": "store", "what": error.to_string() })
}

fn table_json(table: &TableStat) -> Value {
    let levels = |what: fn(&LevelStat) -> u64| table.tree.iter().map(what).collect::<Vec<_>>();
    json!({
        "name": table.name,
        "entries": table.entries,
        "levels": table.levels,
        "pages": levels(|level| level.pages),
        "used_bytes": levels(|level| level.used_bytes),
        "overflow_pages": table.overflow_pages,
        "large_values": table.large_values,
        "chunks": table.chunks,
        "chunk_bytes": table.chunk_bytes,
    })
}

fn stored_json(stored: &StoredStat) -> Value {
    json!({
        "compression": stored.compression,
        "pages": stored.pages,
        "stored_bytes": stored.stored_bytes,
        "page_bytes": stored.page_bytes,
    })
}

fn stat_json(stat: &StoreStat, tree: bool) -> Value {
    let table = |table: &TableStat| {
        let mut value = table_json(table);
        if tree {
            value["tree"] = tree_stat::json(table, stat.page_size);
        }
        value
    };
    json!({
        "generation": stat.generation,
        "checkpoint_lsn": stat.checkpoint_lsn,
        "page_size": stat.page_size,
        "block_size": stat.block_size,
        "compression": stat.compression.map(|how| how.to_string()),
        "stored": stat.stored.iter().map(stored_json).collect::<Vec<_>>(),
        "data_bytes": stat.data_bytes,
        "used_bytes": stat.used_bytes,
        "free_runs": stat.free_runs,
        "free_run_bytes_max": stat.free_run_bytes_max,
        "fragmentation_percent": stat.fragmentation_percent,
        "chunks": stat.chunks,
        "chunk_bytes": stat.chunk_bytes,
        "log_batches": stat.log_batches,
        "log_bytes": stat.log_bytes,
        "tables": stat.tables.iter().map(table).collect::<Vec<_>>(),
    })
}

fn verify_json(report: &VerifyReport) -> Value {
    let damage = |damage: &Damage| json!({ "place": damage.place, "what": damage.what });
    json!({
        "sound": report.damages.is_empty(),
        "pages_checked": report.pages_checked,
        "leaked": report.leaked,
        "writes_aside": report.writes_aside,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "stat": stat_json(&report.stat, false),
    })
}

fn of_new_pages(stat: &StoreStat) -> String {
    match stat.compression {
        Some(how) if how != Compression::None => format!("; new ones {how}"),
        _ => String::new(),
    }
}

fn print_stat(stat: &StoreStat) {
    output::line(format_args!(
        "checkpoint  generation {}, LSN {}; entries below are as of it",
        stat.generation, stat.checkpoint_lsn
    ));
    output::line(format_args!(
        "data        {}, of which pages use {}; pages of {} bytes, blocks of {}{}",
        show_size(stat.data_bytes),
        show_size(stat.used_bytes),
        stat.page_size,
        stat.block_size,
        of_new_pages(stat)
    ));
    for stored in stat.stored.iter().filter(|one| one.compression != "none") {
        output::line(format_args!(
            "{:<11} {} pages, {} in {} ({:.1} %)",
            stored.compression,
            stored.pages,
            show_size(stored.page_bytes),
            show_size(stored.stored_bytes),
            100.0 * stored.stored_bytes as f64 / stored.page_bytes.max(1) as f64
        ));
    }
    output::line(format_args!(
        "{:<11} {} pieces, the longest {}; fragmentation {} %",
        "free",
        stat.free_runs,
        show_size(stat.free_run_bytes_max),
        stat.fragmentation_percent
    ));
    if stat.chunks > 0 {
        output::line(format_args!(
            "{:<11} {} of large values, {}",
            "chunks",
            stat.chunks,
            show_size(stat.chunk_bytes)
        ));
    }
    output::line(format_args!(
        "log         {} batches behind the checkpoint, {}",
        stat.log_batches,
        show_size(stat.log_bytes)
    ));
    output::line(format_args!(
        "{:<24} {:>14} {:>7} {:>12} {:>10} {:>8}",
        "table", "entries", "levels", "pages", "overflow", "fill %"
    ));
    for table in stat.tables.iter().filter(|table| table.entries > 0) {
        let pages: u64 = table.tree.iter().map(|level| level.pages).sum();
        let used: u64 = table.tree.iter().map(|level| level.used_bytes).sum();
        let room = pages * u64::from(stat.page_size);
        output::line(format_args!(
            "{:<24} {:>14} {:>7} {:>12} {:>10} {:>8.1}",
            table.name,
            table.entries,
            table.levels,
            pages,
            table.overflow_pages,
            100.0 * used as f64 / room.max(1) as f64
        ));
    }
    let empty = stat
        .tables
        .iter()
        .filter(|table| table.entries == 0)
        .count();
    if empty > 0 {
        output::line(format_args!("and {empty} empty tables"));
    }
}
