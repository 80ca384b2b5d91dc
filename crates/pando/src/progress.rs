//! Progress of long work, on standard error: a bar on a terminal, else a line every ten seconds.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressStyle};
use pando_sync::time::{self, Duration, Instant};

use crate::quantity::whole;

const BETWEEN_LINES: Duration = Duration::from_secs(10);
const STEPS: u64 = 1000;

/// Progress of one piece of work.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    last_line: Instant,
    /// Writes a line with the name and the share of the work that is done.
    tell: fn(&str, f64),
}

impl Progress {
    /// Shows a bar on a terminal; otherwise writes a line to standard error now and then.
    pub(crate) fn new() -> Self {
        Self::told(|what, share| {
            // A failed write must not end the work.
            let _ = writeln!(io::stderr(), "{what}: {:.0} %", share * 100.0);
        })
    }

    /// Like `new`, but without a terminal the lines go to `tell`.
    pub(crate) fn told(tell: fn(&str, f64)) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("{msg:30} {wide_bar} {percent:>3} %") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            last_line: time::now(),
            tell,
        }
    }

    /// Reports that `share` (0 to 1) of the work called `what` is done.
    pub(crate) fn update(&mut self, what: &str, share: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position(whole(share.clamp(0.0, 1.0) * STEPS as f64));
            bar.set_message(what.to_owned());
        } else if time::now() - self.last_line >= BETWEEN_LINES {
            self.last_line = time::now();
            (self.tell)(what, share.clamp(0.0, 1.0));
        }
    }

    /// Runs `f`, which writes lines, with the bar hidden.
    pub(crate) fn suspend(&self, f: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(f),
            None => f(),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static LINES: Cell<u64> = const { Cell::new(0) };
    }

    /// Without a terminal, progress is one line every ten seconds, and a share is never above 1.
    #[test]
    fn a_line_is_told_every_ten_seconds() {
        let mut progress = Progress {
            bar: None,
            last_line: time::now(),
            tell: |what, share| {
                assert_eq!((what, share), ("work", 1.0));
                LINES.set(LINES.get() + 1);
            },
        };
        let mut lines_of_two = || {
            LINES.set(0);
            (0..2).for_each(|_| progress.update("work", 1.5));
            progress.last_line -= BETWEEN_LINES;
            LINES.get()
        };
        assert_eq!([lines_of_two(), lines_of_two(), lines_of_two()], [0, 1, 1]);
    }
}
