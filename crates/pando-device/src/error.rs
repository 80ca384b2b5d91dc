//! Errors of a device, with the file and the place where they occurred.
//!
//! A full disk and a directory in use have variants of their own, since the engine reacts to them.
//! All other errors of the operating system are [`Error::Io`].

use std::fmt;
use std::io;

use crate::directory::Backend;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    Io {
        /// What was attempted, as a verb: "open", "read", "write", "sync".
        operation: &'static str,
        /// File or directory.
        name: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file ends before the requested bytes.
    ShortRead {
        /// File.
        name: String,
        /// Where the read began.
        offset: u64,
        /// Number of requested bytes.
        wanted: usize,
        /// Number of bytes that were read.
        got: usize,
    },
    /// Another process, or another device of this one, has the directory open.
    InUse {
        /// The directory.
        directory: String,
    },
    /// A direct file was used with an offset, a length or a buffer that is not aligned.
    Unaligned {
        /// File.
        name: String,
        /// Offset of the request.
        offset: u64,
        /// Length of the request.
        len: usize,
        /// The required alignment in bytes.
        alignment: usize,
    },
    /// No space or no quota is left. The operation may be tried again later.
    Full {
        /// What was attempted.
        operation: &'static str,
        /// File.
        name: String,
    },
    /// The simulated machine has crashed (only for the faulty device).
    Crashed,
    /// The device belongs to the process that this one was forked from.
    Forked,
    /// The required back end is not available.
    Unavailable {
        /// Which.
        backend: Backend,
        /// Why.
        reason: String,
    },
    /// The file system or the back end cannot do this.
    Unsupported {
        /// What was attempted.
        operation: &'static str,
        /// File.
        name: String,
    },
}

impl Error {
    /// Converts an error of the operating system to the right variant.
    pub fn from_io(operation: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::Full { operation, name },
            Some(libc::EOPNOTSUPP) => Self::Unsupported { operation, name },
            _ => Self::Io {
                operation,
                name,
                source,
            },
        }
    }

    /// Makes an error of file `name` that the operating system did not report.
    pub(crate) fn from_kind(operation: &'static str, name: &str, kind: io::ErrorKind) -> Self {
        Self::Io {
            operation,
            name: name.to_owned(),
            source: kind.into(),
        }
    }

    /// Returns whether no space is left. The operation may succeed later.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns whether another process, or another device, has the directory open.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    /// Returns whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether the simulated machine has crashed.
    pub fn is_crashed(&self) -> bool {
        matches!(self, Self::Crashed)
    }
}

/// Needed to report one failed read to several waiters.
impl Clone for Error {
    fn clone(&self) -> Self {
        match self {
            Self::Io {
                operation,
                name,
                source,
            } => Self::Io {
                operation,
                name: name.clone(),
                source: match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
            Self::ShortRead {
                name,
                offset,
                wanted,
                got,
            } => Self::ShortRead {
                name: name.clone(),
                offset: *offset,
                wanted: *wanted,
                got: *got,
            },
            Self::InUse { directory } => Self::InUse {
                directory: directory.clone(),
            },
            Self::Unaligned {
                name,
                offset,
                len,
                alignment,
            } => Self::Unaligned {
                name: name.clone(),
                offset: *offset,
                len: *len,
                alignment: *alignment,
            },
            Self::Full { operation, name } => Self::Full {
                operation,
                name: name.clone(),
            },
            Self::Crashed => Self::Crashed,
            Self::Forked => Self::Forked,
            Self::Unavailable { backend, reason } => Self::Unavailable {
                backend: *backend,
                reason: reason.clone(),
            },
            Self::Unsupported { operation, name } => Self::Unsupported {
                operation,
                name: name.clone(),
            },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io {
                operation,
                name,
                source,
            } => write!(f, "cannot {operation} {name}: {source}"),
            Self::ShortRead {
                name,
                offset,
                wanted,
                got,
            } => write!(
                f,
                "{name} ends early: {got} of {wanted} bytes at offset {offset}"
            ),
            Self::InUse { directory } => write!(f, "{directory} is in use by another process"),
            Self::Unaligned {
                name,
                offset,
                len,
                alignment,
            } => write!(
                f,
                "{name}: {len} bytes at offset {offset} are not aligned to {alignment}"
            ),
            Self::Full { operation, name } => {
                write!(f, "cannot {operation} {name}: no space is left")
            }
            Self::Crashed => f.write_str("the simulated machine has crashed"),
            Self::Forked => {
                f.write_str("the device was opened by the process that this one was forked from")
            }
            Self::Unavailable { backend, reason } => {
                write!(f, "{backend} cannot be had: {reason}")
            }
            Self::Unsupported { operation, name } => {
                write!(f, "cannot {operation} {name}: not supported here")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Error numbers of the system map to the errors that callers distinguish.
    #[test]
    fn errors_of_the_system_are_sorted() {
        let sort = |code| Error::from_io("write", "data", io::Error::from_raw_os_error(code));
        assert!(sort(libc::ENOSPC).is_full());
        assert!(sort(libc::EDQUOT).is_full());
        assert!(sort(libc::ENOENT).is_not_found());
        assert!(!sort(libc::EIO).is_full());
        assert!(matches!(sort(libc::EOPNOTSUPP), Error::Unsupported { .. }));
    }

    /// A cloned error has the same text, although the source of an I/O error cannot be cloned.
    #[test]
    fn a_clone_says_the_same() {
        for error in [
            Error::from_io("read", "a", io::Error::from_raw_os_error(libc::EIO)),
            Error::from_kind("read", "a", io::ErrorKind::PermissionDenied),
            Error::Crashed,
            Error::ShortRead {
                name: "b".into(),
                offset: 1,
                wanted: 2,
                got: 3,
            },
        ] {
            assert_eq!(error.to_string(), error.clone().to_string());
        }
    }
}
