//! `pando import`: what an RDB file of Redis has goes to a running server.

mod file;
mod importer;
mod long;
mod reader;
mod values;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::json;

use crate::command_line::ImportFlags;
use crate::failure::Failure;
use crate::output;
use crate::quantity::show_size;
use crate::target::Target;
use file::RdbFile;
use importer::{Imported, Importer};

/// The name of a file that stands for standard input.
const STANDARD: &str = "-";

/// Sends the contents of a file to a server.
pub(crate) fn run(flags: &ImportFlags) -> Result<(), Failure> {
    let target = Target::of(&flags.target);
    let of_file = |error: io::Error| Failure::usage(format!("{}: {error}", flags.file.display()));
    let (input, length): (Box<dyn Read>, _) = match flags.file == Path::new(STANDARD) {
        true => (Box::new(io::stdin().lock()), None),
        false => {
            let file = File::open(&flags.file).map_err(of_file)?;
            let about = file.metadata().map_err(of_file)?;
            (Box::new(file), about.is_file().then_some(about.len()))
        }
    };
    let shown = flags.file.display().to_string();
    let mut file = RdbFile::open(input, shown, length)?;
    let mut importer = Importer::open(&target, flags.replace, file.version)?;
    let all = importer.all(&mut file);
    importer.hide();
    report(&importer.done, flags.json);
    match (all, importer.done.refused, importer.unknown()) {
        (Ok(()), 0, _) => Ok(()),
        (Ok(()), refused, _) => Err(Failure::io(format!(
            "{refused} keys or libraries were refused; all others are there"
        ))),
        (Err(failure), _, 0) => Err(failure),
        (Err(failure), _, unknown) => {
            let text = failure.text;
            let text = format!("{text}; {unknown} keys or libraries may be there or not");
            Err(Failure::new(failure.code, text))
        }
    }
}

fn report(done: &Imported, is_json: bool) {
    match is_json {
        true => output::line(json!({
            "keys": done.keys,
            "libraries": done.libraries,
            "expired": done.expired,
            "refused": done.refused,
            "bytes": done.bytes,
        })),
        false => output::line(format_args!(
            "{} keys and {} libraries of functions, {}; {} keys had expired, {} were refused",
            done.keys,
            done.libraries,
            show_size(done.bytes),
            done.expired,
            done.refused
        )),
    }
}
