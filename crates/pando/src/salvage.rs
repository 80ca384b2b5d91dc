//! `pando salvage`: copies what can be read of a damaged store into a new one, and reports what is
//! lost (decision 062).

use std::path::Path;

use pandodb::{Damage, Db, Error, LostRange, SalvageReport, SalvagedTable};
use serde_json::{Value, json};

use crate::command_line::SalvageFlags;
use crate::failure::{Code, Failure};
use crate::inspect::{check_directory, of_store};
use crate::memory;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;

/// Copies what can be read into a new store. Fails with [`Code::Damage`] if that is not everything.
pub(crate) fn run(flags: &SalvageFlags) -> Result<(), Failure> {
    check_directory(&flags.target.dir)?;
    check_new(&flags.target.dir, &flags.new)?;
    let max_memory = memory::tool_budget(flags.max_memory.as_deref(), 4)?;
    let mut progress = Progress::new();
    let options = Db::builder().max_memory(max_memory);
    let salvaged = pandodb::salvage(&flags.target.dir, &flags.new, options, |done, all| {
        progress.update("pages looked at", done as f64 / all.max(1) as f64);
    });
    progress.finish();
    let report = salvaged.map_err(|error| match error {
        Error::InvalidOption {
            option: "into",
            what,
        } => Failure::usage(format!("{}: {what}", flags.new.display())),
        other => of_store(&flags.target.dir, other),
    })?;
    if flags.target.json {
        output::line(report_json(&report));
    } else {
        print(&report);
    }
    if report.is_whole() {
        return Ok(());
    }
    let places = report.lost.len() + report.unbounded.len();
    let text = format!(
        "{places} places of the store could not be read; {} has everything else",
        flags.new.display()
    );
    Err(Failure::new(Code::Damage, text))
}

/// Checks that the new directory is absent or a directory, and not a part of the old one. That it
/// holds nothing that could be a store's is looked at when the store is made.
fn check_new(old: &Path, new: &Path) -> Result<(), Failure> {
    let shown = new.display();
    let wrong = |what: &str| Failure::usage(format!("{shown} {what}"));
    if new.exists() && !new.is_dir() {
        return Err(wrong("is no directory"));
    }
    let existing = new.ancestors().find(|part| part.exists());
    let inside = existing.unwrap_or_else(|| Path::new(".")).canonicalize();
    match (inside, old.canonicalize()) {
        (Ok(inside), Ok(old)) if inside.starts_with(&old) => {
            Err(wrong("lies in the damaged store, which is not changed"))
        }
        _ => Ok(()),
    }
}

fn print(report: &SalvageReport) {
    for SalvagedTable { name, rows, bytes } in &report.tables {
        output::line(format_args!(
            "table '{name}': {rows} rows, {} copied",
            show_size(*bytes)
        ));
    }
    output::line(format_args!(
        "{} batches of the log and {} writes that were put aside applied",
        report.batches, report.writes_aside
    ));
    for Damage { place, what } in &report.harmless {
        output::line(format_args!(
            "damaged, and no more lost than said: {place}: {what}"
        ));
    }
    for Damage { place, what } in &report.unbounded {
        output::line(format_args!(
            "lost, nobody knows of which keys: {place}: {what}"
        ));
    }
    for lost in &report.lost {
        output::line(format_args!("lost: {}", shown(lost)));
    }
    if report.is_whole() {
        output::line("Nothing is lost.");
    }
}

fn shown(lost: &LostRange) -> String {
    let LostRange {
        table,
        from,
        found,
        why,
        ..
    } = lost;
    let from = from.escape_ascii();
    let to = match &lost.to {
        Some(to) => format!("up to '{}', which is not", to.escape_ascii()),
        None => "up to the end".to_owned(),
    };
    let found = match found {
        0 => String::new(),
        rows => format!(" but for {rows} rows that were found"),
    };
    format!("table '{table}' from '{from}' {to}{found}: {why}")
}

fn report_json(report: &SalvageReport) -> Value {
    let damage = |damage: &Damage| json!({ "place": damage.place, "what": damage.what });
    let damages = |damages: &[Damage]| damages.iter().map(damage).collect::<Vec<_>>();
    let table = |table: &SalvagedTable| json!({ "name": table.name, "rows": table.rows, "bytes": table.bytes });
    let lost = |lost: &LostRange| {
        json!({
            "table": lost.table,
            "from": lost.from.escape_ascii().to_string(),
            "to": lost.to.as_ref().map(|to| to.escape_ascii().to_string()),
            "found": lost.found,
            "why": lost.why,
        })
    };
    json!({
        "whole": report.is_whole(),
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
        "batches": report.batches,
        "writes_aside": report.writes_aside,
        "lost": report.lost.iter().map(lost).collect::<Vec<_>>(),
        "unbounded": damages(&report.unbounded),
        "harmless": damages(&report.harmless),
    })
}
