//! Errors that end a benchmark.

use std::fmt;
use std::io;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a benchmark did not finish.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An option that makes no sense, or that this version does not have.
    Option {
        /// The flag, without dashes.
        flag: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// An error of the engine.
    Engine(pandodb::Error),
    /// The server of a run did not start, or did not stop cleanly.
    Server(pando_server::Error),
    /// An error of the device.
    Device {
        /// What was being done.
        during: &'static str,
        /// The error of the device.
        source: pando_device::Error,
    },
    /// A read did not return what was written.
    Wrong {
        /// The workload.
        workload: &'static str,
        /// Expected and actual.
        what: String,
    },
    /// Access to the directory or to the file of records failed.
    Io {
        /// What was being done.
        during: String,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Makes the error for a flag whose value does not fit.
    pub(crate) fn option(flag: &'static str, what: impl Into<String>) -> Self {
        Self::Option {
            flag,
            what: what.into(),
        }
    }
}

impl Error {
    /// For `map_err`: adds what was being done.
    pub(crate) fn device(during: &'static str) -> impl FnOnce(pando_device::Error) -> Self {
        move |source| Self::Device { during, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { flag, what } => write!(f, "--{flag}: {what}"),
            Self::Engine(source) => write!(f, "{source}"),
            Self::Server(source) => write!(f, "{source}"),
            Self::Device { during, source } => write!(f, "{during}: {source}"),
            Self::Wrong { workload, what } => write!(f, "{workload} read wrong data: {what}"),
            Self::Io { during, source } => write!(f, "{during}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(source) => Some(source),
            Self::Server(source) => Some(source),
            Self::Io { source, .. } => Some(source),
            Self::Device { source, .. } => Some(source),
            Self::Option { .. } | Self::Wrong { .. } => None,
        }
    }
}

impl From<pandodb::Error> for Error {
    fn from(source: pandodb::Error) -> Self {
        Self::Engine(source)
    }
}
