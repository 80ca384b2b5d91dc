//! What was read of strings in pieces, for the next run of the command.

use std::ops::Range;

use pando_sync::Arc;
use pandodb::Lsn;

use crate::data::piece_head::PieceHead;

/// Bytes of strings that are kept for the next run.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Which part of which state of a string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) database: usize,
    /// The last swap of the table of elements, as in `part.rs`.
    pub(super) last_swap: Lsn,
    pub(super) head: PieceHead,
    pub(super) range: Range<u64>,
}

/// The strings in pieces that the running command reads.
#[derive(Debug, Default)]
pub(crate) struct PieceReads {
    pub(super) done: Vec<(Wanted, Arc<Vec<u8>>)>,
    pub(super) partial: Option<Partial>,
    /// One that a further run needs is not kept. Then each run has to get to the end of what it
    /// reads, or none ever would.
    pub(super) is_short: bool,
}

/// A string that is being read.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) wanted: Wanted,
    pub(super) bytes: Vec<u8>,
    /// Where the scan goes on.
    pub(super) from: Vec<u8>,
    /// The first piece that was not read, if it is there.
    pub(super) next: u64,
    pub(super) is_complete: bool,
}

impl PieceReads {
    /// Keeps what was read, as long as there is not too much.
    pub(super) fn keep(&mut self, wanted: Wanted, bytes: &Arc<Vec<u8>>) {
        let kept: usize = self.done.iter().map(|(_, bytes)| bytes.len()).sum();
        match kept + bytes.len() <= KEPT_BYTES_MAX {
            true => self.done.push((wanted, bytes.clone())),
            false => self.is_short = true,
        }
    }
}
