//! What a run found: a text that says what is wrong, where, and how to reproduce it.

use std::fmt;

use pandodb::Error;

/// Result of a run.
pub type Result<T> = std::result::Result<T, Failure>;

/// Something is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Creates a failure with the text `what`.
    pub fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }

    /// Returns the same failure, with the place where it happened before its text.
    #[must_use]
    pub fn within(self, place: impl fmt::Display) -> Self {
        Self(format!("{place}: {}", self.0))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

/// Why a table could not be read, or what is wrong with it.
#[derive(Debug)]
pub enum Unread {
    /// The store refuses.
    Error(Error),
    /// The contents are not as they must be.
    Wrong(Failure),
}

impl From<Unread> for Failure {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Error(error) => Self::new(error.to_string()),
            Unread::Wrong(failure) => failure,
        }
    }
}

/// Fails with a text.
///
/// # Errors
/// Always.
pub fn fail<T>(what: impl Into<String>) -> Result<T> {
    Err(Failure::new(what))
}
