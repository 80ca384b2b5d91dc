//! What comes to a reply from the store while it is sent.

use std::task::Waker;

use super::row_source::RowSource;
use super::string_source::StringSource;
use crate::row_readers::Failure;

/// A part of a reply that is read while it is sent.
#[derive(Debug)]
pub(crate) enum ReplySource {
    /// Bytes of a string in chunks.
    String(StringSource),
    /// Elements of a large collection.
    Rows(RowSource),
}

impl ReplySource {
    /// Returns true if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::String(source) => source.left() == 0,
            Self::Rows(source) => source.is_done(),
        }
    }

    /// Number of bytes still to come; of elements nobody knows it.
    pub(crate) fn owed(&self) -> usize {
        match self {
            Self::String(source) => usize::try_from(source.left()).unwrap_or(usize::MAX),
            Self::Rows(source) if source.is_done() => 0,
            Self::Rows(_) => usize::MAX,
        }
    }

    /// Returns the next bytes that are in memory. If it returns none although some are left,
    /// `waker` is woken when there are.
    ///
    /// # Errors
    /// They cannot be read: the reply ends in the middle.
    pub(crate) fn piece(&mut self, waker: &Waker) -> Result<&[u8], Failure> {
        match self {
            Self::String(source) => source.piece(waker).map_err(Failure::Engine),
            Self::Rows(source) => source.piece(waker),
        }
    }

    /// Consumes `count` bytes of the last piece.
    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::String(source) => source.consume(count),
            Self::Rows(source) => source.consume(count),
        }
    }
}
