//! How a run of a command ends.

use std::borrow::Cow;

use pandodb::nonblocking::Pending;

use crate::data::keyspace::RowError;

/// Why a run of a command stopped early. Used for control flow; no client sees it as such.
#[must_use]
pub(crate) enum Interrupted {
    /// The engine has to wait for something, a page for example.
    Pending(Pending),
    /// The engine has failed.
    Engine(pandodb::Error),
    /// A row cannot be decoded.
    Row(RowError),
    /// Other connections get a turn, then the command continues.
    Yield,
    /// The waker of the connection is registered with what the command waits for.
    Wait,
    /// The waker of the connection is registered with keys of which the command wants elements; the
    /// next run reads them again. Unless it waits, it runs at once.
    Blocked,
    /// The command has to read more than one row, as of one moment: its next run has a transaction.
    ReadsMany,
    /// What was read of a large collection contradicts its head: they are of two moments, or it is
    /// damaged.
    Torn,
    /// The command ends with this error as its reply. If it has written something, so does the
    /// transaction around it: [`super::Context::run`].
    Refused(Cow<'static, str>),
    /// A script takes long, and goes on on a script thread, from its beginning.
    #[cfg(feature = "scripts")]
    Leaves,
    /// The command would call a function that may write, and is to wait for the end of a pause.
    #[cfg(feature = "scripts")]
    Held,
    /// The command was ended in the middle, and the transaction around it with it, whatever was
    /// written: this error is the reply.
    #[cfg(feature = "scripts")]
    Ended(String),
    /// The reply exceeds the limit.
    ReplyTooLong,
    /// The long strings that the command reads exceed the limit together.
    TooManyLong,
}

impl Interrupted {
    /// Returns the reply of a command that was ended in the middle.
    pub(crate) fn ended(self) -> Option<String> {
        match self {
            #[cfg(feature = "scripts")]
            Self::Ended(text) => Some(text),
            _ => None,
        }
    }
}

impl From<pandodb::Error> for Interrupted {
    fn from(error: pandodb::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<&'static str> for Interrupted {
    fn from(text: &'static str) -> Self {
        Self::Refused(Cow::Borrowed(text))
    }
}

impl From<String> for Interrupted {
    fn from(text: String) -> Self {
        Self::Refused(Cow::Owned(text))
    }
}

impl From<RowError> for Interrupted {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

/// Result of a run of a command.
pub(crate) type Run = Result<(), Interrupted>;
