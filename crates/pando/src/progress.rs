//! How long work goes: a bar on a terminal, a line every ten seconds otherwise; on standard error.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use pando_sync::time::{self, Duration, Instant};

const BETWEEN_LINES: Duration = Duration::from_secs(10);
const STEPS: u64 = 1000;

/// Progress of one piece of work.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    last_line: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS);
            if let Ok(style) = ProgressStyle::with_template("{msg:30} {wide_bar} {percent:>3} %") {
                bar.set_style(style);
            }
            bar
        });
        Self {
            bar,
            last_line: time::now(),
        }
    }

    /// `share` (0 to 1) of the work called `what` is done.
    pub(crate) fn update(&mut self, what: &str, share: f64) {
        if let Some(bar) = &self.bar {
            bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
            bar.set_message(what.to_owned());
        } else if time::now() - self.last_line >= BETWEEN_LINES {
            self.last_line = time::now();
            eprintln!("{what}: {:.0} %", share.clamp(0.0, 1.0) * 100.0);
        }
    }

    /// Runs `f`, which writes lines, without the bar in between.
    pub(crate) fn suspend(&self, f: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(f),
            None => f(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
