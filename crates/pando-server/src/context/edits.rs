//! Strings in chunks that a command makes of other strings, which takes several runs of the
//! command.
//!
//! A command that is run again requests the same edits in the same order. A string that was made is
//! kept while its source and what is written into it stay the same: across waits, and across
//! conflicts with writes to other keys.

use std::hash::{BuildHasher as _, RandomState};
use std::task::{Poll, Waker};

use pandodb::nonblocking::{EditOld, Fingerprint, NewBytes, PendingEdit};
use pandodb::{Db, LargeValue};

use super::Interrupted;

/// What a string is made of.
pub(crate) struct Source<'a> {
    /// Database and stored key of the old string.
    pub(crate) key: (usize, &'a [u8]),
    /// The old string, of any kind; an empty one if there is none.
    pub(crate) old: EditOld,
    /// Offset at which the new bytes are written.
    pub(crate) offset: u64,
    /// What is written at `offset`.
    pub(crate) new: NewBytes,
    /// Identifies `new`, if it is a string of another key. Other strings in chunks are arguments,
    /// which stay the same.
    pub(crate) copied: Option<Fingerprint>,
}

/// Edits of the running command.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    list: Vec<Edit>,
    /// Index of the next edit that this run requests.
    next: usize,
    /// Tells new bytes apart: those of another run may be made of other values.
    hashes: RandomState,
}

#[derive(Debug)]
struct Edit {
    database: usize,
    key: Vec<u8>,
    old: Old,
    offset: u64,
    new_bytes: u64,
    /// Of new bytes in memory.
    new_hash: Option<u64>,
    copied: Option<Fingerprint>,
    state: EditState,
}

/// Identifies the old value, to detect that it has changed.
#[derive(Debug, PartialEq, Eq)]
enum Old {
    Value(Vec<u8>),
    Large(Option<Fingerprint>),
}

#[derive(Debug)]
enum EditState {
    Pending(PendingEdit),
    Done(LargeValue),
}

impl Edits {
    /// True if no run of the command has requested an edit.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Begins another run of the command, from its first edit.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Returns the place of the next edit, for [`Edits::rewind_to`].
    #[cfg(feature = "scripts")]
    pub(crate) fn place(&self) -> usize {
        self.next
    }

    /// As [`Edits::rewind`], for a run that goes on at `place`.
    #[cfg(feature = "scripts")]
    pub(crate) fn rewind_to(&mut self, place: usize) {
        self.next = place;
    }

    /// Returns the string that `source` makes, once it is made; until then the command waits.
    pub(crate) fn make(
        &mut self,
        db: &Db,
        source: Source<'_>,
        waker: &Waker,
    ) -> Result<LargeValue, Interrupted> {
        let place = self.next;
        self.next += 1;
        let old = match &source.old {
            EditOld::Value(value) => Old::Value(value.clone()),
            EditOld::Large(stream) => Old::Large(stream.fingerprint()),
        };
        let (database, key) = source.key;
        let new_bytes = source.new.len();
        let new_hash = match &source.new {
            NewBytes::Bytes(bytes) => Some(self.hashes.hash_one(bytes)),
            NewBytes::Large(_) | NewBytes::Part(..) => None,
        };
        let is_same = |edit: &Edit| {
            (edit.database, edit.key.as_slice()) == (database, key)
                && (edit.offset, edit.new_bytes) == (source.offset, new_bytes)
                && (&edit.old, &edit.copied) == (&old, &source.copied)
                && edit.new_hash == new_hash
        };
        if !self.list.get(place).is_some_and(is_same) {
            // The edits after it were made of what it was before.
            self.list.truncate(place);
            let edit = PendingEdit::new(db, source.old, source.offset, source.new);
            self.list.push(Edit {
                database,
                key: key.to_vec(),
                old,
                offset: source.offset,
                new_bytes,
                new_hash,
                copied: source.copied,
                state: EditState::Pending(edit),
            });
        }
        let edit = &mut self.list[place];
        if let EditState::Pending(pending) = &edit.state {
            match pending.poll(waker) {
                Poll::Pending => return Err(Interrupted::Wait),
                Poll::Ready(Ok(value)) => edit.state = EditState::Done(value),
                Poll::Ready(Err(error)) => {
                    self.list.truncate(place);
                    return Err(Interrupted::Engine(error));
                }
            }
        }
        match &edit.state {
            EditState::Done(value) => Ok(value.clone()),
            EditState::Pending(_) => unreachable!("it has ended"),
        }
    }
}
