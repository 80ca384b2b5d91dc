//! The log of the server: events as lines on standard error, as text or JSON (decision 047).
//!
//! A line is written by the thread that reports the event. A line that cannot be written, or for
//! which there is no room, is dropped: a log that nobody reads must not end the service
//! (`log_sink.rs`). Only rare events are logged, and `pando_server` limits those that peers can
//! cause at will.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use pando_server::{LogLevel, LogLevelSetter};
use pando_sync::Arc;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::{Code, Failure};
use crate::log_format::LogFormat;
use crate::log_sink::{LineWriter, LogSink, Place};

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// Returns what each line asks for the file at `path`. One that was moved away meanwhile is made
/// again: the rules of logrotate for Redis tell nobody of it. If that fails, as for want of open
/// files, the line goes to the file that was there first.
fn writer(path: &Path) -> io::Result<impl Fn() -> Arc<File> + use<>> {
    let path = std::path::absolute(path)?;
    let first = Arc::new(open(&path)?);
    let is = |of: &fs::Metadata| (of.dev(), of.ino());
    let held = is(&first.metadata()?);
    Ok(move || {
        if fs::metadata(&path).is_ok_and(|now| is(&now) == held) {
            return Arc::clone(&first);
        }
        open(&path).map_or_else(|_| Arc::clone(&first), Arc::new)
    })
}

/// Starts to write events from `level` on; returns what changes the level. Called once per process.
///
/// Lines go to the end of `file`, if there is one, also when another one has taken its place, else
/// to standard error.
pub(crate) fn start(
    level: LogLevel,
    format: LogFormat,
    file: Option<&Path>,
) -> Result<LogLevelSetter, Failure> {
    let sink = Arc::new(LogSink::new(format));
    let to = move |place| LineWriter {
        sink: sink.clone(),
        place,
    };
    let writer = match file {
        None => BoxMakeWriter::new(move || to(Place::Error(io::stderr()))),
        Some(path) => {
            let writer = writer(path);
            let failed = |error| Failure::usage(format!("the log {}: {error}", path.display()));
            let writer = writer.map_err(failed)?;
            BoxMakeWriter::new(move || to(Place::File(writer())))
        }
    };
    let (filter_of_now, handle) = reload::Layer::new(filter(level));
    let lines = fmt::layer()
        .with_ansi(false)
        .with_writer(writer)
        .log_internal_errors(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(filter_of_now));
    let started = subscriber.try_init();
    started.map_err(|error| Failure::new(Code::Usage, format!("the log: {error}")))?;
    let set = move |level: LogLevel| {
        // The subscriber lives as long as the process.
        let _ = handle.reload(filter(level));
    };
    Ok(LogLevelSetter(Box::leak(Box::new(set))))
}
