//! The elements of a large collection on their way out, as they are read (decision 130).

use std::task::Waker;

use pando_sync::Arc;

use crate::row_readers::{Failure, RowReaders, RowReply};

/// A large reply that a command has asked for.
#[derive(Debug)]
pub(crate) struct LargeReply {
    pub(crate) reply: Arc<RowReply>,
    pub(crate) heading: Heading,
}

/// What the number of elements becomes in the reply.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heading {
    /// The first line of a set.
    Set,
    /// The first line of a map.
    Map,
    /// The first line of an array, with so many replies of each element.
    Array(usize),
    /// All of it.
    Number,
}

/// Elements on their way out: all of a reply between its first line and its last line end.
#[derive(Debug)]
pub(crate) struct RowSource {
    reply: Arc<RowReply>,
    readers: Arc<RowReaders>,
    /// Bytes that were read, of which `sent` were consumed.
    piece: Vec<u8>,
    sent: usize,
    /// No other follows.
    is_last: bool,
}

impl RowSource {
    /// Returns those of `reply`, which has begun.
    pub(crate) fn new(reply: Arc<RowReply>, readers: Arc<RowReaders>) -> Self {
        Self {
            reply,
            readers,
            piece: Vec::new(),
            sent: 0,
            is_last: false,
        }
    }

    /// Number of bytes in memory.
    pub(crate) fn in_memory(&self) -> usize {
        self.piece.len() - self.sent
    }

    /// Returns true if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.is_last && self.in_memory() == 0
    }

    /// Returns the next bytes that are in memory. If it returns none although some are left,
    /// `waker` is woken when there are.
    pub(crate) fn piece(&mut self, waker: &Waker) -> Result<&[u8], Failure> {
        if self.in_memory() == 0 && !self.is_last {
            self.sent = 0;
            self.piece.clear();
            let taken = self.reply.take(&self.readers, &mut self.piece, waker)?;
            self.is_last = taken.unwrap_or(false);
        }
        Ok(&self.piece[self.sent..])
    }

    /// Consumes `count` bytes of the last piece.
    pub(crate) fn consume(&mut self, count: usize) {
        self.sent += count;
        assert!(self.sent <= self.piece.len(), "only what was there");
    }
}
