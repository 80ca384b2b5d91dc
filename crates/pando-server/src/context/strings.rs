//! Strings that commands find and make.

use pandodb::nonblocking::NewBytes;
use pandodb::{LargeValue, ValueStream};

use crate::data::keyspace::Row;
use crate::data::piece_head::PieceHead;

/// What goes when a key gets another value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Former {
    /// The expiry entry of the row; also that of an expired one.
    pub(crate) entry: Option<u64>,
    /// The id of the collection or string, if its elements or pieces have rows of their own; also
    /// of an expired one.
    pub(crate) tree: Option<u64>,
    pub(crate) state: FormerState,
}

/// Whether a key had a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FormerState {
    /// It had none, or was not read.
    #[default]
    Absent,
    Lives,
    /// Its value has expired, and its row is there.
    Over,
    /// All fields of the hash have expired, and its row is there.
    FieldsOver,
}

impl Former {
    /// Returns it without the collection, which stays.
    pub(crate) fn but_tree(self) -> Self {
        Self { tree: None, ..self }
    }

    /// Returns it as if its value, if it lives, had been removed before.
    pub(crate) fn removed(self) -> Self {
        let state = match self.state {
            FormerState::Lives => FormerState::Absent,
            state => state,
        };
        Self { state, ..self }
    }

    /// Returns true if nothing but its row is to be changed when another one takes its place.
    #[inline]
    pub(super) fn owns_nothing(self) -> bool {
        self.entry.is_none() && self.tree.is_none() && !self.is_over()
    }

    #[inline]
    pub(super) fn is_over(self) -> bool {
        matches!(self.state, FormerState::Over | FormerState::FieldsOver)
    }
}

/// What a key has.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The value, unless it has expired; its payload is in the scratch until the next read.
    pub(crate) row: Option<Row>,
    /// What has to go if it gets another value.
    pub(crate) former: Former,
    /// The string of the row, if it lies in chunks: the payload is empty then. Boxed, since the
    /// usual row is moved often.
    pub(crate) large: Option<Box<Chunked>>,
    /// The head of the string, if it lies in pieces. The payload is the string all the same, unless
    /// that was not read.
    pub(crate) pieces: Option<Box<PieceHead>>,
    /// Bytes of the string that were not read: see [`super::Context::find_head`].
    pub(crate) cut: usize,
}

impl Found {
    /// Returns true if the key has a row, be it expired.
    pub(crate) fn is_written(&self) -> bool {
        self.row.is_some() || self.former.entry.is_some()
    }

    /// Returns the time at which the value expires.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.row.and_then(|row| row.times().deadline)
    }
}

/// A string in chunks.
#[derive(Debug)]
pub(crate) struct Chunked {
    /// Its chunks, and the head of its row before them.
    pub(crate) stream: ValueStream,
    /// The head of what lies over the chunks, if anything does.
    pub(crate) patches: Option<PieceHead>,
}

impl Chunked {
    /// Returns the number of bytes of the string.
    pub(crate) fn len(&self) -> u64 {
        self.stream.len() - self.stream.head().len() as u64
    }
}

/// A string that a command was given or makes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NewString<'a> {
    /// In memory.
    Bytes(&'a [u8]),
    /// In chunks of the store.
    Large(&'a LargeValue),
}

impl NewString<'_> {
    /// Returns its length in bytes.
    pub(crate) fn len(self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Large(value) => value.len(),
        }
    }

    /// Returns it as what an edit writes.
    pub(super) fn to_new_bytes(self) -> NewBytes {
        match self {
            Self::Bytes(bytes) => NewBytes::Bytes(bytes.to_vec()),
            Self::Large(value) => NewBytes::Large(value.clone()),
        }
    }
}
