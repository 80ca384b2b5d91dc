//! Errors of the log, with the position where they occurred.

use std::fmt;

use pando_format::Lsn;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the log.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The device failed. If a write or a sync failed, the log is poisoned.
    Device(pando_device::Error),
    /// The content of the log differs from what was written.
    Corrupt {
        /// Where replay stopped.
        position: Lsn,
        /// What is wrong.
        what: String,
    },
    /// The batch does not fit into the log.
    TooLarge {
        /// Length of its payload in bytes.
        bytes: usize,
        /// Maximum length of a payload in bytes.
        bytes_max: usize,
    },
    /// The log waits for space on the device, and accepts nothing new until there is some.
    Full,
    /// The options contradict each other.
    Options {
        /// Which options, and why.
        what: String,
    },
    /// The log has ended, and its files were given back.
    Closed,
    /// A thread panicked while it wrote the log, or the engine gave the log up.
    Abandoned,
}

impl Error {
    /// Returns whether stored bytes are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// Returns whether the device has no space left; the operation may succeed later.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full => true,
            Self::Device(error) => error.is_full(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "log: {error}"),
            Self::Corrupt { position, what } => {
                write!(f, "the log is damaged at {position}: {what}")
            }
            Self::TooLarge { bytes, bytes_max } => write!(
                f,
                "a batch of {bytes} bytes is too large for the log: at most {bytes_max}"
            ),
            Self::Full => f.write_str("no space is left on the device of the log"),
            Self::Options { what } => write!(f, "log options: {what}"),
            Self::Closed => f.write_str("the log is closed"),
            Self::Abandoned => f.write_str("the log was given up"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            _ => None,
        }
    }
}

impl From<pando_device::Error> for Error {
    fn from(error: pando_device::Error) -> Self {
        Self::Device(error)
    }
}
