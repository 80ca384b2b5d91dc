//! Where results go: a table on standard output, records and a page in files,
//! progress on standard error.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use pando_bench::{Observer, Record, html};
use pando_sync::time::Duration;

use super::flags::CommonFlags;
use crate::failure::{Code, Failure};
use crate::output;
use crate::progress::Progress;

/// Where results go.
pub(super) struct Screen {
    progress: Progress,
    json: Option<File>,
    /// The records for the page, if one is written.
    records: Option<Vec<Record>>,
    statistics: bool,
    /// Notes that were printed already.
    noted: Vec<String>,
}

impl Screen {
    /// Runs a benchmark of `layer` that reports here, and to the files that `flags` name.
    pub(super) fn run(
        layer: &str,
        flags: &CommonFlags,
        statistics: bool,
        run: impl FnOnce(&mut Self) -> pando_bench::Result<()>,
    ) -> Result<(), Failure> {
        let mut html = create("html", flags.html.as_deref())?;
        let mut screen = Self {
            progress: Progress::new(),
            json: create("json", flags.json.as_deref())?,
            records: html.is_some().then(Vec::new),
            statistics,
            noted: Vec::new(),
        };
        output::line(Record::head());
        let result = run(&mut screen);
        screen.progress.finish();
        if let (Some(file), Some(records)) = (&mut html, &screen.records) {
            // A run that failed has a page, too, with what was measured until then.
            let page = html::page(&format!("pando bench {layer}"), &about(), records);
            file.write_all(page.as_bytes()).map_err(|error| {
                Failure::new(Code::Io, format!("writing the page of --html: {error}"))
            })?;
        }
        Ok(result?)
    }
}

/// Creates the file of a flag, before anything runs.
fn create(flag: &str, path: Option<&Path>) -> Result<Option<File>, Failure> {
    let open = |path: &Path| {
        File::create(path).map_err(|error| {
            Failure::new(Code::Io, format!("--{flag} {}: {error}", path.display()))
        })
    };
    path.map(open).transpose()
}

/// Returns what a page says in addition to the records.
fn about() -> [(&'static str, String); 2] {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let command: Vec<_> = words.collect();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    [("command", command.join(" ")), ("pando", version)]
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

    fn note(&mut self, line: &str) {
        if !self.noted.iter().any(|noted| noted == line) {
            self.noted.push(line.to_owned());
            self.progress.suspend(|| eprintln!("{line}"));
        }
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
        if let Some(records) = &mut self.records {
            records.push(record.clone());
        }
        match &mut self.json {
            None => Ok(()),
            Some(file) => writeln!(file, "{}", record.json()).map_err(|source| {
                let during = "writing the records of --json".to_owned();
                pando_bench::Error::Io { during, source }
            }),
        }
    }
}
