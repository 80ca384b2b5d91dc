//! The elements of a large collection on their way out, as they are read (decision 130).

use std::task::Waker;

use pando_sync::Arc;

use crate::row_readers::{Failure, WantedReply};

/// A large reply that a command has asked for.
#[derive(Debug)]
pub(crate) struct LargeReply {
    pub(crate) reply: Arc<WantedReply>,
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
    reply: Arc<WantedReply>,
    /// Bytes that were read, of which `sent` were consumed.
    piece: Vec<u8>,
    sent: usize,
    /// No other follows.
    is_last: bool,
}

impl RowSource {
    /// Returns those of `reply`, which has begun.
    pub(crate) fn new(reply: Arc<WantedReply>) -> Self {
        Self {
            reply,
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
            let taken = self.reply.take(&mut self.piece, waker)?;
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

#[cfg(test)]
mod tests {
    use pando_sync::atomic::{AtomicUsize, Ordering};
    use pando_sync::thread;
    use pandodb::Lsn;

    use super::*;
    use crate::data::shown_rows::{Broken, Request, Shows};
    use crate::row_readers::{Beginning, RowReaders};

    /// Counts those of its rows that are dropped by a thread of the readers, and by others.
    #[derive(Debug, Clone, Default)]
    struct Planted(Arc<[AtomicUsize; 2]>);

    #[derive(Debug)]
    struct Rows(Planted);

    impl Drop for Rows {
        fn drop(&mut self) {
            let is_elsewhere = thread::current().name() != Some("pando-read-rows");
            self.0.0[usize::from(is_elsewhere)].fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Request for Planted {
        fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
            Ok(Some(Box::new(Rows(self.clone()))))
        }
    }

    impl Shows for Rows {
        fn lsn(&self) -> Lsn {
            Lsn(1)
        }

        fn count(&mut self) -> Result<Option<usize>, Broken> {
            Ok(Some(usize::MAX))
        }

        fn fill(&mut self, piece: &mut Vec<u8>, _: usize) -> Result<bool, Broken> {
            piece.extend_from_slice(b"+1\r\n");
            Ok(true)
        }
    }

    /// A loop does not wait for the end of a long file.
    #[test]
    fn what_is_left_of_a_reply_is_dropped_by_a_thread() {
        let (readers, planted) = (RowReaders::new(1), Planted::default());
        let dropped = || [0, 1].map(|at: usize| planted.0[at].load(Ordering::SeqCst));
        for number in 1..=3 {
            let reply = readers.begin(Box::new(planted.clone()), 1, Waker::noop());
            while !matches!(reply.beginning(Waker::noop()), Ok(Beginning::Begun(_))) {
                thread::yield_now();
            }
            let mut source = RowSource::new(Arc::new(reply));
            while source.piece(Waker::noop()).unwrap().is_empty() {
                thread::yield_now();
            }
            drop(source);
            while dropped() != [number, 0] {
                assert_eq!(dropped()[1], 0);
                thread::yield_now();
            }
        }
    }
}
