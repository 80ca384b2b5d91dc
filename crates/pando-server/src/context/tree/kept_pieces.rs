//! What was read of strings in pieces, for the next run of the command.

use std::ops::Range;

use pando_sync::Arc;
use pandodb::Lsn;

use crate::context::Run;
use crate::data::keyspace::RowError;
use crate::data::patches::Patches;
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
    pub(super) done: Vec<(Wanted, Read)>,
    pub(super) partial: Option<Partial>,
    /// One that a further run needs is not kept. Then each run has to get to the end of what it
    /// reads, or none ever would.
    pub(super) is_short: bool,
}

/// What was read of a string in pieces: its bytes; or of one in chunks what lies over them.
#[derive(Debug, Clone)]
pub(super) enum Read {
    Bytes(Arc<Vec<u8>>),
    Patches(Arc<Patches>),
}

impl Read {
    fn memory(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Patches(patches) => patches.memory(),
        }
    }
}

/// The same while it is being read.
#[derive(Debug)]
pub(super) enum Reading {
    Bytes(Vec<u8>),
    Patches(Patches),
}

impl Reading {
    /// Takes `piece`, which has `places`, if it lies in `range`.
    pub(super) fn take(&mut self, range: &Range<u64>, places: &Range<u64>, piece: &[u8]) -> Run {
        if piece.len() as u64 > places.end - places.start {
            return Err(RowError::Damaged.into());
        }
        match self {
            Self::Bytes(bytes) => place_piece(bytes, range, places.start, piece),
            // None that says nothing is ever written.
            Self::Patches(_) if piece.is_empty() => return Err(RowError::Damaged.into()),
            Self::Patches(patches) => patches.push(places.start, piece),
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Read {
        match self {
            Self::Bytes(bytes) => Read::Bytes(Arc::new(bytes)),
            Self::Patches(patches) => Read::Patches(Arc::new(patches)),
        }
    }
}

/// Copies `piece`, which begins at `place`, as far as it lies in `range`, of which `out` has the
/// bytes.
pub(super) fn place_piece(out: &mut [u8], range: &Range<u64>, place: u64, piece: &[u8]) {
    let end = range.end.min(place + piece.len() as u64);
    let start = range.start.max(place);
    if start < end {
        let within = |place: u64| usize::try_from(place).expect("it is in memory");
        let from = within(start - place)..within(end - place);
        out[within(start - range.start)..within(end - range.start)].copy_from_slice(&piece[from]);
    }
}

/// A string that is being read.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) wanted: Wanted,
    pub(super) of_it: Reading,
    /// Where the scan goes on.
    pub(super) from: Vec<u8>,
    /// The first piece that was not read, if it is there.
    pub(super) next: u64,
    pub(super) is_complete: bool,
}

impl PieceReads {
    /// Returns the memory that they take, about.
    pub(in crate::context) fn memory(&self) -> usize {
        let done = self.done.iter().map(|(_, read)| read.memory());
        let partial = self.partial.as_ref().map_or(0, |of| match &of.of_it {
            Reading::Bytes(bytes) => bytes.capacity(),
            Reading::Patches(patches) => patches.memory(),
        });
        done.sum::<usize>() + partial
    }

    /// Keeps what was read, as long as there is not too much.
    pub(super) fn keep(&mut self, wanted: Wanted, read: &Read) {
        let kept: usize = self.done.iter().map(|(_, read)| read.memory()).sum();
        match kept + read.memory() <= KEPT_BYTES_MAX {
            true => self.done.push((wanted, read.clone())),
            false => self.is_short = true,
        }
    }
}
