//! Observers of a run.

use pando_sync::time::Duration;

use crate::error::Result;
use crate::record::Record;

/// Is notified of the progress of a run.
pub trait Observer {
    /// Called now and then during a workload: `share` (0 to 1) is done, at `ops_per_s`.
    fn progress(&mut self, workload: &str, share: f64, ops_per_s: f64);

    /// Called with each step of the series over time, if one was asked for.
    fn step(&mut self, workload: &str, at: Duration, ops_per_s: f64);

    /// Called with a line that people should know of, once or several times.
    fn note(&mut self, line: &str) {
        let _ = line;
    }

    /// Called with the record of a workload that has finished.
    ///
    /// # Errors
    /// It cannot be written; ends the run.
    fn record(&mut self, record: &Record) -> Result<()>;
}
