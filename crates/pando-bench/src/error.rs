//! Why a benchmark did not run to its end.

use std::fmt;
use std::io;

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a benchmark did not run to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An option that makes no sense, or that is not there in this version.
    Option {
        /// The flag, without dashes.
        flag: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The engine refused.
    Engine(pandodb::Error),
    /// The server of a run did not start, or did not stop well.
    Server(pando_server::Error),
    /// The device refused.
    Device {
        /// What was being done.
        during: &'static str,
        /// What the device says.
        source: pando_device::Error,
    },
    /// A read did not return what was written.
    Wrong {
        /// The workload.
        workload: &'static str,
        /// Expected and actual.
        what: String,
    },
    /// The directory or the file of records.
    Io {
        /// What was being done.
        during: String,
        /// What the system says.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn option(flag: &'static str, what: impl Into<String>) -> Self {
        Self::Option {
            flag,
            what: what.into(),
        }
    }
}

impl Error {
    /// For `map_err`: says what was being done.
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
