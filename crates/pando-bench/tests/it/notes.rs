//! An observer that keeps everything it is told.

use std::time::Duration;

use pando_bench::{Observer, Record, Result};

#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) records: Vec<Record>,
    pub(crate) steps: usize,
    pub(crate) lines: Vec<String>,
}

impl Observer for Notes {
    fn progress(&mut self, _workload: &str, share: f64, _ops_per_s: f64) {
        assert!((0.0..=1.0).contains(&share));
    }

    fn step(&mut self, _workload: &str, _at: Duration, _ops_per_s: f64) {
        self.steps += 1;
    }

    fn note(&mut self, line: &str) {
        self.lines.push(line.to_owned());
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        self.records.push(record.clone());
        Ok(())
    }
}

impl Notes {
    /// Runs `run`, which must succeed. Returns its notes.
    pub(crate) fn of(run: impl FnOnce(&mut Self) -> Result<()>) -> Self {
        let mut notes = Self::default();
        run(&mut notes).unwrap();
        notes
    }
}
