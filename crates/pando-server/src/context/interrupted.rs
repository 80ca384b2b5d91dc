//! How a run of a command ends.

use pandodb::nonblocking::Pending;

use crate::data::keyspace::RowError;

/// Why a command stopped before its end. Control flow, never shown to a client as such.
#[must_use]
pub(crate) enum Interrupted {
    /// The engine has to fetch or to wait first.
    Pending(Pending),
    /// The engine has failed.
    Engine(pandodb::Error),
    /// A row cannot be used.
    Row(RowError),
    /// Others get their turn, then the command goes on.
    Yield,
    /// The waker of the connection is registered somewhere.
    Wait,
    /// The reply is beyond the limit.
    ReplyTooLong,
}

impl From<pandodb::Error> for Interrupted {
    fn from(error: pandodb::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<RowError> for Interrupted {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

/// How a run of a command ends.
pub(crate) type Run = Result<(), Interrupted>;
