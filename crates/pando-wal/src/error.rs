//! What can go wrong with the log, with the position where it did.

use std::fmt;

use pando_format::Lsn;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the log refused.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The device failed. From a write or a sync: the log is poisoned.
    Device(pando_device::Error),
    /// What lies in the log cannot be what was written there.
    Corrupt {
        /// Where replay stopped.
        position: Lsn,
        /// What is wrong.
        what: String,
    },
    /// The batch does not fit into the log.
    TooLarge {
        /// Bytes of its payload.
        bytes: usize,
        /// Most bytes of a payload.
        bytes_max: usize,
    },
    /// The log waits for space on the device; nothing new is accepted until it has some.
    Full,
    /// The options contradict each other.
    Options {
        /// Which, and why.
        what: String,
    },
    /// A thread panicked while it wrote the log, or the engine gave it up.
    Abandoned,
}

impl Error {
    /// Stored bytes are damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Corrupt { .. })
    }

    /// No space is left; the operation may succeed later.
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
