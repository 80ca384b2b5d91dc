//! Flags and files as redis-server has them: read, and turned into the values of this server.

mod conf;
mod flags;
mod meaning;
pub(crate) mod words;

pub(crate) use conf::Directive;
pub(crate) use flags::{Given, separate};
pub(crate) use meaning::Meaning;

use std::path::Path;

use crate::failure::Failure;

/// Reads what `given` says: the file, what comes through standard input, and then the flags.
pub(crate) fn read(given: &Given) -> Result<(Meaning, Meaning), Failure> {
    let mut of_file = match &given.file {
        Some(path) => conf::read(Path::new(path))?,
        None => Vec::new(),
    };
    if given.reads_input {
        of_file.extend(conf::read_input()?);
    }
    let file = Meaning::of(&of_file, None)?;
    let flags = Meaning::of(&given.directives, Some(&file))?;
    Ok((file, flags))
}
