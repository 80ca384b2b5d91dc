//! The head of a large collection that the last command of a pipeline run has read, and that is not
//! written yet if it has changed it: the next command, if it is the same one with the same key,
//! goes on with it (decision 108).
//!
//! A pipeline that pushes element after element would else find, decode, encode and write the row
//! of the key for each. So it is written once: before whatever else runs, and before the commit.
//! Until then nobody can look for it: only the command that has kept it is run, and that asks
//! `Context::long_collection` first, which writes it if it is no use to it.
//!
//! - To keep a head is the last thing that a command does, and cannot fail: a command that fails
//!   and is undone leaves the head of those before it.
//! - A command that writes it and fails is undone with that, so it stays kept until such a command
//!   has ended.
//! - A command with a batch of its own, inside EXEC or in a script keeps none.
//! - One that was only read is forgotten where it would be written. The commit validates its read
//!   with all others.

use super::list_end::{EndBlock, PageAhead};
use crate::client::waiters::queue_of;
use crate::context::strings::{Former, Found};
use crate::data::keyspace::ValueType;
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;

/// What has to be known of a large collection to change an element of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) head: TreeHead,
    pub(super) encoding: Encoding,
    pub(super) deadline: Option<u64>,
    pub(super) former: Former,
}

impl Held {
    /// Of the collection that was read as `found`.
    pub(super) fn new(head: TreeHead, encoding: Encoding, found: &Found) -> Self {
        Self {
            head,
            encoding,
            deadline: found.deadline(),
            former: found.former.but_tree(),
        }
    }
}

/// A head that was read, and is not written yet if it was changed.
#[derive(Debug)]
pub(crate) struct KeptHead {
    /// Name of the command.
    pub(super) command: &'static str,
    pub(super) database: usize,
    pub(super) key: Vec<u8>,
    pub(super) value_type: ValueType,
    pub(super) held: Held,
    /// A command has changed it.
    pub(super) is_changed: bool,
    /// The command that runs now has written it, or has looked past it, if it was only read.
    pub(super) is_written: bool,
    pub(super) beside: Beside,
    /// Of a list in blocks: the one at the end at which the command works. It is written with the
    /// head if it has changed.
    pub(super) end_block: Option<EndBlock>,
}

/// What a command knows besides the head, for the next one.
#[derive(Debug, Clone, Copy)]
pub(super) enum Beside {
    Nothing,
    /// Elements that were read and not popped yet are in the page of the scratch.
    Page(PageAhead),
    /// The batch has removed so many elements, and added none.
    Removed(usize),
}

impl KeptHead {
    /// Returns the id of the collection.
    pub(crate) fn id(&self) -> u64 {
        self.held.head.id
    }

    /// Returns true if a command with this key can go on with it.
    pub(crate) fn is_for(&self, command: &str, (database, key): (usize, Option<&[u8]>)) -> bool {
        self.command == command && self.database == database && key == Some(&self.key)
    }

    /// Returns the queue of those who may wait for the collection, and its key.
    #[inline]
    pub(crate) fn place(&self) -> (usize, &[u8]) {
        (queue_of(self.database, self.value_type), &self.key)
    }

    /// The command has ended. Returns true if it has written the head, which is not kept then.
    pub(crate) fn was_written(&self) -> bool {
        self.is_written
    }

    /// The command was undone, and with it the head, if it has written that.
    pub(crate) fn undo(&mut self) {
        self.is_written = false;
        if matches!(self.beside, Beside::Page(_)) {
            self.beside = Beside::Nothing;
        }
    }
}
