//! How a commit ended.

use pando_format::Lsn;

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Committed at this LSN; None if there was nothing to write.
    Committed(Option<Lsn>),
    /// Something that was read or watched has changed.
    Conflict {
        /// A watched key has changed: running the batch again does not help.
        watched: bool,
    },
}
