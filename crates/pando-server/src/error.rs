//! Why a server did not start or did not stop well.

use std::fmt;
use std::io;
use std::net::SocketAddr;

/// An error of the server as a whole. Errors of commands are replies.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An address could not be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Readiness of sockets, a thread, or accepting failed.
    Io {
        /// What was tried.
        operation: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The engine did not open or did not close.
    Engine(pandodb::Error),
    /// A thread of the server panicked.
    Panicked {
        /// Which.
        thread: &'static str,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { address, source } => write!(f, "cannot listen on {address}: {source}"),
            Self::Io { operation, source } => write!(f, "{operation}: {source}"),
            Self::Engine(source) => write!(f, "{source}"),
            Self::Panicked { thread } => write!(f, "the {thread} thread panicked"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. } | Self::Io { source, .. } => Some(source),
            Self::Engine(source) => Some(source),
            Self::Panicked { .. } => None,
        }
    }
}

impl From<pandodb::Error> for Error {
    fn from(source: pandodb::Error) -> Self {
        Self::Engine(source)
    }
}
