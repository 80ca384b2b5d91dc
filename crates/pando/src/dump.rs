//! `pando dump` and `pando load`: a store as text, and a store from that text.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use pando_sync::time::Duration;
use pandodb::{Builder, Db, DumpReport, DumpedTable, Error};
use serde_json::{Value, json};

use crate::atomic_file;
use crate::command_line::{DumpFlags, LoadFlags};
use crate::failure::{Code, Failure};
use crate::inspect::{check_directory, of_store};
use crate::memory;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;

/// The name of a file that stands for standard input or output.
const STANDARD: &str = "-";

/// Writes the store as text to a file, which is replaced when all is written, or to standard
/// output.
pub(crate) fn dump(flags: &DumpFlags) -> Result<(), Failure> {
    check_directory(&flags.dir)?;
    let output = flags.output.as_deref();
    let file = output.filter(|path| *path != Path::new(STANDARD));
    if file.is_none() && flags.json {
        let what = "--json needs --output FILE: the dump itself goes to standard output";
        return Err(Failure::usage(what));
    }
    // Nobody writes meanwhile, so the snapshot keeps nothing, however long it takes.
    let options = options(flags.max_memory.as_deref())?.settle_snapshots_after(Duration::MAX);
    let opened = match flags.read_only {
        true => options.open_read_only(&flags.dir),
        false => options.open_existing(&flags.dir),
    };
    let db = opened.map_err(|error| match error.is_in_use() {
        true => Failure::new(
            Code::InUse,
            format!("{error}, or send PANDO DUMP to the server"),
        ),
        false => of_store(&flags.dir, error),
    })?;
    let dumped = match file {
        None => dump_to(&db, &mut output::stream()),
        Some(path) => dump_to_file(&db, path),
    };
    let closed = db.close();
    let report = dumped?;
    closed?;
    match (file, flags.json) {
        (None, _) => output::note(summary(&report)),
        (Some(_), true) => output::line(report_json(&report)),
        (Some(_), false) => print(&report),
    }
    Ok(())
}

/// Why a file has no dump.
enum Lack {
    /// The file itself.
    File(io::Error),
    /// The dump, or writing it.
    Dump(Failure),
}

impl From<io::Error> for Lack {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

/// Replaces the file at `path` once all is written. What is no file, as a pipe, is written to.
fn dump_to_file(db: &Db, path: &Path) -> Result<DumpReport, Failure> {
    let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let dumped = match is_other {
        true => match File::options().write(true).open(path) {
            Ok(mut other) => dump_to(db, &mut other).map_err(Lack::Dump),
            Err(error) => Err(Lack::File(error)),
        },
        false => atomic_file::replace_with(path, |file| dump_to(db, file).map_err(Lack::Dump)),
    };
    dumped.map_err(|lack| match lack {
        Lack::File(error) => Failure::io(format!("{}: {error}", path.display())),
        Lack::Dump(failure) => failure,
    })
}

fn dump_to(db: &Db, out: &mut impl Write) -> Result<DumpReport, Failure> {
    let mut progress = Progress::new();
    let dumped = db.snapshot().and_then(|snapshot| {
        snapshot.dump(&mut *out, |done, all| {
            progress.update("rows written", done as f64 / all.max(1) as f64);
        })
    });
    progress.finish();
    let report = dumped?;
    let flushed = out.flush();
    flushed.map_err(|error| Failure::io(format!("writing a dump: {error}")))?;
    Ok(report)
}

/// Makes a store from the text of a dump, which comes from a file or from standard input.
pub(crate) fn load(flags: &LoadFlags) -> Result<(), Failure> {
    let mut options = options(flags.max_memory.as_deref())?;
    if let Some(compression) = flags.compression {
        options = options.compression(compression);
    }
    let file = flags.file.as_deref();
    let report = match file.filter(|path| *path != Path::new(STANDARD)) {
        None => load_from(io::stdin().lock(), &flags.target.dir, options)?,
        Some(path) => {
            let of_file = |error| Failure::usage(format!("{}: {error}", path.display()));
            let input = File::open(path).map_err(of_file)?;
            load_from(input, &flags.target.dir, options)?
        }
    };
    match flags.target.json {
        true => output::line(report_json(&report)),
        false => print(&report),
    }
    Ok(())
}

fn load_from(input: impl Read, dir: &Path, options: Builder) -> Result<DumpReport, Failure> {
    let mut progress = Progress::new();
    let loaded = pandodb::load_dump(input, dir, options, |done, all| {
        progress.update("rows loaded", done as f64 / all.max(1) as f64);
    });
    progress.finish();
    loaded.map_err(|error| match error {
        Error::InvalidDump { .. } => Failure::damage(format!(
            "{error}; no store is made in {} but of a whole dump",
            dir.display()
        )),
        other => of_store(dir, other),
    })
}

fn options(max_memory: Option<&str>) -> Result<Builder, Failure> {
    Ok(Db::builder().max_memory(memory::tool_budget(max_memory, 2)?))
}

fn print(report: &DumpReport) {
    for DumpedTable { name, rows, bytes } in report.tables.iter().filter(|of| of.rows > 0) {
        output::line(format_args!(
            "table '{name}': {rows} rows, {}",
            show_size(*bytes)
        ));
    }
    output::line(summary(report));
}

fn summary(report: &DumpReport) -> String {
    format!(
        "{} tables with {} rows, {} of keys and values, as of LSN {}",
        report.tables.len(),
        report.rows(),
        show_size(report.bytes()),
        report.lsn.0
    )
}

fn report_json(report: &DumpReport) -> Value {
    let table = |table: &DumpedTable| json!({ "name": table.name, "rows": table.rows, "bytes": table.bytes });
    json!({
        "lsn": report.lsn.0,
        "rows": report.rows(),
        "bytes": report.bytes(),
        "tables": report.tables.iter().map(table).collect::<Vec<_>>(),
    })
}
