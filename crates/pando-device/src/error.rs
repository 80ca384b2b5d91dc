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
        /// Whether those who have it open only read.
        by_readers: bool,
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
    /// No space or no quota is left, or a limit keeps the file from being so long. The operation
    /// may be tried again later.
    Full {
        /// What was attempted.
        operation: &'static str,
        /// File.
        name: String,
        /// What ran out.
        lack: Lack,
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

/// What a write needs and there is no more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// Space of the file system (ENOSPC).
    Space,
    /// Quota of the user or the group (EDQUOT).
    Quota,
    /// Length of a file: the limit of the process (`RLIMIT_FSIZE`) or of the file system (EFBIG).
    /// It may lie below what the file has already. The kernel also sends SIGXFSZ, which ends a
    /// process that does not ignore it.
    FileLength,
}

impl Lack {
    /// Returns what `error` of the operating system says is lacking, if that is what it says.
    fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::ENOSPC => Some(Self::Space),
            libc::EDQUOT => Some(Self::Quota),
            libc::EFBIG => Some(Self::FileLength),
            _ => None,
        }
    }
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Space => "no space is left",
            Self::Quota => "no quota is left",
            Self::FileLength => {
                "files may not be so long (a limit of the process or of the file system)"
            }
        })
    }
}

impl Error {
    /// Converts an error of the operating system to the right variant.
    pub fn from_io(operation: &'static str, name: &str, source: io::Error) -> Self {
        let name = name.to_owned();
        if let Some(lack) = Lack::of(&source) {
            return Self::Full {
                operation,
                name,
                lack,
            };
        }
        match source.raw_os_error() {
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

    /// Returns whether a file could not be made longer, or its holes be filled, for another reason
    /// than a full disk. Nothing was changed. The operation may succeed later.
    pub fn is_allocation(&self) -> bool {
        matches!(self, Self::Io { operation, .. } if *operation == "allocate")
    }

    /// Returns whether another process, or another device, has the directory open.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. })
    }

    /// Returns whether the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns whether there is a directory where a file was to be.
    pub fn is_directory(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::IsADirectory)
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
            Self::InUse {
                directory,
                by_readers,
            } => Self::InUse {
                directory: directory.clone(),
                by_readers: *by_readers,
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
            Self::Full {
                operation,
                name,
                lack,
            } => Self::Full {
                operation,
                name: name.clone(),
                lack: *lack,
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
            Self::InUse {
                directory,
                by_readers: false,
            } => write!(f, "{directory} is in use by another process"),
            Self::InUse {
                directory,
                by_readers: true,
            } => write!(f, "{directory} is being read by another process"),
            Self::Unaligned {
                name,
                offset,
                len,
                alignment,
            } => write!(
                f,
                "{name}: {len} bytes at offset {offset} are not aligned to {alignment}"
            ),
            Self::Full {
                operation,
                name,
                lack,
            } => write!(f, "cannot {operation} {name}: {lack}"),
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
        assert!(sort(libc::EFBIG).is_full());
        assert!(sort(libc::ENOENT).is_not_found());
        assert!(sort(libc::EISDIR).is_directory());
        assert!(!sort(libc::ENOENT).is_directory());
        assert!(!sort(libc::EIO).is_full());
        assert!(!sort(libc::EIO).is_allocation());
        let allocate = |code| Error::from_io("allocate", "a", io::Error::from_raw_os_error(code));
        assert!(allocate(libc::EIO).is_allocation());
        assert!(!allocate(libc::ENOSPC).is_allocation());
        assert!(matches!(sort(libc::EOPNOTSUPP), Error::Unsupported { .. }));
    }

    /// A cloned error has the same text, although the source of an I/O error cannot be cloned.
    #[test]
    fn a_clone_says_the_same() {
        for error in [
            Error::from_io("read", "a", io::Error::from_raw_os_error(libc::EIO)),
            Error::from_kind("read", "a", io::ErrorKind::PermissionDenied),
            Error::from_io("write", "a", io::Error::from_raw_os_error(libc::EFBIG)),
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
