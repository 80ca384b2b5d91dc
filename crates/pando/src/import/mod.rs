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
use file::{RdbFile, Record};
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
            let length = file.metadata().map_err(of_file)?.len();
            (Box::new(file), Some(length))
        }
    };
    let shown = flags.file.display().to_string();
    let mut file = RdbFile::open(input, shown, length)?;
    let mut importer = Importer::open(&target, flags.replace, file.version)?;
    while let Some(record) = file.next()? {
        match record {
            Record::Key(key) => importer.key(&mut file, key)?,
            Record::Library(code) => importer.library(&code)?,
        }
        importer.show(&file);
    }
    let done = importer.finish()?;
    report(&done, flags.json)
}

fn report(done: &Imported, is_json: bool) -> Result<(), Failure> {
    match is_json {
        true => output::line(json!({
            "keys": done.keys,
            "libraries": done.libraries,
            "expired": done.expired,
            "refused": done.refused,
            "bytes": done.bytes,
        })),
        false => output::line(format_args!(
            "{} keys and {} libraries of functions, {}; {} keys had expired",
            done.keys,
            done.libraries,
            show_size(done.bytes),
            done.expired
        )),
    }
    match done.refused {
        0 => Ok(()),
        refused => Err(Failure::io(format!(
            "{refused} keys or libraries were refused; all others are there"
        ))),
    }
}
