//! Standard output: the only place that writes to it.

use std::fmt;
use std::io::{self, Write};

/// Writes a line. If the pipe is closed, nobody is left to tell.
pub(crate) fn line(text: impl fmt::Display) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}
