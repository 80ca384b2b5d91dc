//! `pando export`: what a running server has becomes an RDB file of Redis.

mod exporter;
mod file;
mod pieces;

use serde_json::json;

use crate::command_line::ExportFlags;
use crate::failure::Failure;
use crate::output;
use crate::quantity::show_size;
use crate::target::Target;
use exporter::{Exported, Exporter};
use file::RdbFile;

/// Writes what a server has at one moment to a file.
pub(crate) fn run(flags: &ExportFlags) -> Result<(), Failure> {
    let target = Target::of(&flags.target);
    let file = RdbFile::create(&flags.file)?;
    let mut exporter = Exporter::open(&target, file)?;
    let all = exporter.all();
    exporter.hide();
    all?;
    let done = exporter.finish()?;
    report(&done, flags.json);
    match done.refused {
        0 => Ok(()),
        refused => Err(Failure::io(format!(
            "{refused} keys could not be read; all others are in {}",
            flags.file.display()
        ))),
    }
}

fn report(done: &Exported, is_json: bool) {
    match is_json {
        true => output::line(json!({
            "keys": done.keys,
            "refused": done.refused,
            "bytes": done.bytes,
        })),
        false => output::line(format_args!(
            "{} keys, {}; {} could not be read",
            done.keys,
            show_size(done.bytes),
            done.refused
        )),
    }
}
