//! Strings in chunks that a command makes of others: what takes several runs of the command.
//!
//! A command that is run again asks for the same edits in the same order. What was made is kept as
//! long as it is made of the same: over waits, and over conflicts with writes to other keys.

use std::task::{Poll, Waker};

use pandodb::nonblocking::{EditOld, Fingerprint, NewBytes, PendingEdit};
use pandodb::{Db, LargeValue};

use super::Interrupted;

/// What a string is made of.
pub(crate) struct Source<'a> {
    /// Database and stored key.
    pub(crate) key: (usize, &'a [u8]),
    pub(crate) old: EditOld,
    /// Where the new bytes come.
    pub(crate) offset: u64,
    pub(crate) new: NewBytes,
}

/// Edits of the running command.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    list: Vec<Edit>,
    /// The next one that this run asks for.
    next: usize,
}

#[derive(Debug)]
struct Edit {
    database: usize,
    key: Vec<u8>,
    old: Old,
    offset: u64,
    new_bytes: u64,
    state: State,
}

/// What tells whether the old value is still the same.
#[derive(Debug, PartialEq, Eq)]
enum Old {
    Value(Vec<u8>),
    Large(Option<Fingerprint>),
}

#[derive(Debug)]
enum State {
    Pending(PendingEdit),
    Done(LargeValue),
}

impl Edits {
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The command runs again, from its beginning.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// The string that `source` makes, once it is made: until then the command waits.
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
        let is_same = |edit: &Edit| {
            (edit.database, edit.key.as_slice()) == (database, key)
                && (edit.offset, edit.new_bytes) == (source.offset, new_bytes)
                && edit.old == old
        };
        if !self.list.get(place).is_some_and(is_same) {
            // Those behind it were made of what it was.
            self.list.truncate(place);
            let edit = PendingEdit::new(db, source.old, source.offset, source.new);
            self.list.push(Edit {
                database,
                key: key.to_vec(),
                old,
                offset: source.offset,
                new_bytes,
                state: State::Pending(edit),
            });
        }
        let edit = &mut self.list[place];
        if let State::Pending(pending) = &edit.state {
            match pending.poll(waker) {
                Poll::Pending => return Err(Interrupted::Wait),
                Poll::Ready(Ok(value)) => edit.state = State::Done(value),
                Poll::Ready(Err(error)) => {
                    self.list.truncate(place);
                    return Err(Interrupted::Engine(error));
                }
            }
        }
        match &edit.state {
            State::Done(value) => Ok(value.clone()),
            State::Pending(_) => unreachable!("it has ended"),
        }
    }
}
