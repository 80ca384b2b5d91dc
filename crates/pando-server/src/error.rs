//! Errors of starting, running and stopping a server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error of the server as a whole. Errors of commands are replies instead.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server could not listen on an address.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The server could not listen at a path.
    Socket {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Polling sockets, starting a thread, or accepting failed.
    Io {
        /// The operation that failed.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// A parameter that the options name is not known, or is refused.
    Parameter {
        /// Its name.
        name: String,
        /// Why it is refused.
        reason: String,
    },
    /// The engine did not open or did not close.
    Engine(pandodb::Error),
    /// A thread of the server panicked.
    Panicked {
        /// The thread's name.
        thread: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::Socket { path, source } => {
                write!(f, "cannot listen at {}: {source}", path.display())
            }
            Self::Parameter { name, reason } => write!(f, "{name}: {reason}"),
            Self::Io { operation, source } => write!(f, "{operation}: {source}"),
            Self::Engine(source) => write!(f, "{source}"),
            Self::Panicked { thread } => write!(f, "the {thread} thread panicked"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::Socket { source, .. } | Self::Io { source, .. } => {
                Some(source)
            }
            Self::Engine(source) => Some(source),
            Self::Parameter { .. } | Self::Panicked { .. } => None,
        }
    }
}

impl From<pandodb::Error> for Error {
    fn from(source: pandodb::Error) -> Self {
        Self::Engine(source)
    }
}
