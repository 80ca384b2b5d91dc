//! Standard output, and what is told of failures on standard error: the only place that writes
//! them.

use std::fmt;
use std::io::{self, Write};

use pando_sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Code, Failure};

/// A line could not be written.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Writes a line. If the pipe is closed, nobody is left to tell. Other errors are told of, and
/// [`check`] fails.
pub(crate) fn line(text: impl fmt::Display) {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    let failed = written.err();
    let failed = failed.filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    // Relaxed: a flag by itself. The first error is enough.
    if let Some(error) = failed
        && !FAILED.swap(true, Ordering::Relaxed)
    {
        failure(format_args!("standard output: {error}"));
    }
}

/// Returns standard output, for bytes that are no lines for people.
pub(crate) fn stream() -> impl Write {
    io::stdout().lock()
}

/// Writes a line to standard error that tells of no failure, when standard output has other things.
pub(crate) fn note(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes a line to standard error. If it cannot be written, there is nowhere to say so: the exit
/// code tells it, and a server goes on. `eprintln` would panic.
pub(crate) fn failure(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "pando: {text}");
}

/// Returns the failure of the program if some of its lines are missing.
pub(crate) fn check() -> Result<(), Failure> {
    match FAILED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(Failure::new(
            Code::Io,
            "what was written to standard output is not whole".to_owned(),
        )),
    }
}
