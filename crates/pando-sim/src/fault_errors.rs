//! Which errors are right after an operation of the device has failed (decision 056).
//!
//! | failed                  | a call that meets it says                          | poisons      |
//! |-------------------------|----------------------------------------------------|--------------|
//! | read                    | what is damaged: a page, a file; a chunk: `Io`     | a batch may  |
//! | write, sync             | `Io`, or nothing but `Poisoned` from then on       | yes          |
//! | sync of a full disk     | the same; `Full` for files that were just made     | yes          |
//! | anything of a full disk | `Full`                                             | never        |
//! | anything else           | `Io`                                               | never        |
//!
//! In every case the text names the operation and its cause. Opening never reports `Poisoned`.

use pando_device::faulty::Operation;
use pandodb::Error;

use crate::failure::{Result, fail};

/// The operation that has failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Struck {
    /// The operation of the device.
    pub(crate) operation: Operation,
    /// It failed since the disk was full.
    pub(crate) full: bool,
}

impl Struck {
    fn verb(self) -> &'static str {
        match self.operation {
            Operation::Open => "cannot open",
            Operation::Remove => "cannot remove",
            Operation::Rename => "cannot rename",
            Operation::Read => "cannot read",
            Operation::Write => "cannot write",
            Operation::Sync => "cannot sync",
            Operation::SyncDirectory => "cannot sync the directory",
            Operation::Allocate => "cannot allocate",
            Operation::SetLen => "cannot set the length",
            Operation::Punch => "cannot punch",
            Operation::Channel => "cannot make a channel",
        }
    }

    /// Checks that the text names the operation and its cause.
    fn check_text(self, text: &str) -> Result<()> {
        let cause = match self.full {
            true => "no space is left",
            false => "Input/output error",
        };
        match text.contains(self.verb()) && text.contains(cause) && !text.contains("panicked") {
            true => Ok(()),
            false => fail(format!("not what one says of {self:?}: {text}")),
        }
    }

    fn may_poison(self) -> bool {
        match self.operation {
            // For a batch that is in the log already, or in background work.
            Operation::Read | Operation::Sync => true,
            Operation::Write => !self.full,
            _ => false,
        }
    }

    /// Checks that the store may be poisoned by the failure, and that `cause` reports it.
    pub(crate) fn check_poison(self, cause: &str) -> Result<()> {
        if !self.may_poison() {
            return fail(format!("poisoned by {self:?}: {cause}"));
        }
        self.check_text(cause)
    }

    /// Returns true if `error`, which is not `Poisoned`, is of the right kind.
    fn is_kind(self, error: &Error) -> bool {
        match (self.operation, error) {
            (Operation::Read, Error::Full { .. }) => self.full,
            (Operation::Read, _) => error.is_corruption() || matches!(error, Error::Io { .. }),
            (Operation::Sync, Error::Full { .. }) => self.full,
            (Operation::Sync, Error::Io { .. }) => true,
            (_, Error::Full { .. }) => self.full,
            (_, Error::Io { .. }) => !self.full,
            _ => false,
        }
    }

    /// Checks that opening has failed with the right error.
    pub(crate) fn check_opening(self, error: &Error) -> Result<()> {
        if !self.is_kind(error) {
            return fail(format!("opening, {self:?}: {error}"));
        }
        self.check_text(&error.to_string())
    }

    /// Checks that a call on an open store has failed with the right error; `poisoned` is the cause
    /// if the store is poisoned.
    pub(crate) fn check_working(self, error: &Error, poisoned: Option<&str>) -> Result<()> {
        match (error, poisoned) {
            (Error::Poisoned { cause }, Some(_)) => self.check_poison(cause),
            (Error::Poisoned { cause }, None) => fail(format!("not poisoned, but: {cause}")),
            _ if self.is_kind(error) => self.check_text(&error.to_string()),
            _ => fail(format!("{self:?}, poisoned {poisoned:?}: {error}")),
        }
    }
}
