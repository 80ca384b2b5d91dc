//! Where results go: a table on standard output, records in a file, progress on standard error.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use pando_bench::{Observer, Record};
use pando_sync::time::Duration;

use crate::failure::{Code, Failure};
use crate::output;
use crate::progress::Progress;

/// Where results go.
pub(super) struct Screen {
    progress: Progress,
    json: Option<File>,
    statistics: bool,
}

impl Screen {
    /// Runs a benchmark that reports here, with records to the file `json`.
    pub(super) fn run(
        json: Option<&Path>,
        statistics: bool,
        run: impl FnOnce(&mut Self) -> pando_bench::Result<()>,
    ) -> Result<(), Failure> {
        let create = |path: &Path| {
            let failed =
                |error| Failure::new(Code::Io, format!("--json {}: {error}", path.display()));
            File::create(path).map_err(failed)
        };
        let mut screen = Self {
            progress: Progress::new(),
            json: json.map(create).transpose()?,
            statistics,
        };
        output::line(Record::head());
        let result = run(&mut screen);
        screen.progress.finish();
        Ok(result?)
    }
}

impl Observer for Screen {
    fn progress(&mut self, workload: &str, share: f64, ops_per_s: f64) {
        self.progress
            .update(&format!("{workload} {ops_per_s:.0} ops/s"), share);
    }

    fn step(&mut self, workload: &str, at: Duration, ops_per_s: f64) {
        let at = at.as_secs_f64();
        self.progress.suspend(|| {
            output::line(format_args!(
                "  {workload} {at:>8.1} s {ops_per_s:>12.0} ops/s"
            ))
        });
    }

    fn record(&mut self, record: &Record) -> pando_bench::Result<()> {
        let statistics = self.statistics;
        self.progress.suspend(|| {
            output::line(record.line());
            if statistics {
                for (name, unit, count) in &record.tickers {
                    output::line(format_args!("  {name:<24} {count:>16} {unit}"));
                }
                output::line(format_args!(
                    "  {:<24} {:>16.2} mean, {:.2} max",
                    "call_us", record.mean_us, record.max_us
                ));
            }
        });
        match &mut self.json {
            None => Ok(()),
            Some(file) => writeln!(file, "{}", record.json()).map_err(|source| {
                let during = "writing the records of --json".to_owned();
                pando_bench::Error::Io { during, source }
            }),
        }
    }
}
