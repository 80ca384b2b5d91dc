//! The head of a large collection that the last command of a pipeline run has changed, and that is
//! not written yet: the next command, if it is the same one with the same key, goes on with it
//! (decision 108).
//!
//! A pipeline that pushes element after element would else find, decode, encode and write the row
//! of the key for each. So it is written once: before whatever else runs, and before the commit.
//! Until then nobody can look for it: only the command that has kept it is run, and that asks
//! [`Context::long_collection`] first, which writes it if it is no use to it.
//!
//! - To keep a head is the last thing that a command does, and cannot fail: a command that fails
//!   and is undone leaves the head of those before it.
//! - A command that writes it and fails is undone with that, so it stays kept until such a command
//!   has ended.
//! - A command with a batch of its own, inside EXEC or in a script keeps none.

use super::ends::PageAhead;
use crate::context::{Command, Context, Former, Found, Interrupted, Run};
use crate::data::keyspace::{Times, ValueType};
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;

/// Collections with no more elements may become packed.
const FEW: usize = 16;

/// What has to be known of a large collection to change an element of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) head: TreeHead,
    encoding: Encoding,
    deadline: Option<u64>,
    former: Former,
}

impl Held {
    /// Of the collection that was read as `found`.
    fn new(head: TreeHead, encoding: Encoding, found: &Found) -> Self {
        Self {
            head,
            encoding,
            deadline: found.deadline(),
            former: found.former.but_tree(),
        }
    }
}

/// A head that is not written yet.
pub(crate) struct KeptHead {
    command: &'static Command,
    database: usize,
    key: Vec<u8>,
    value_type: ValueType,
    held: Held,
    /// The command that runs now has written it.
    is_written: bool,
    beside: Beside,
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

impl std::fmt::Debug for KeptHead {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = formatter.debug_struct("KeptHead");
        fields.field("command", &self.command.name);
        fields.field("held", &self.held).finish_non_exhaustive()
    }
}

impl KeptHead {
    /// Returns true if a command with this key can go on with it.
    pub(crate) fn is_for(&self, command: &'static Command, key: Option<&[u8]>) -> bool {
        std::ptr::eq(self.command, command) && key == Some(&self.key)
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

impl Context<'_> {
    /// Returns what is known of the collection at `key`: its head was kept, or else the row of the
    /// key is read. It is returned if the collection is large, has this encoding, more than a few
    /// elements, and no deadlines of fields: then what is done to one element changes nothing
    /// besides it and the head. Else what was found is returned.
    pub(crate) fn long_collection(
        &mut self,
        key: &[u8],
        encoding: Encoding,
    ) -> Result<Result<Held, Found>, Interrupted> {
        if let Some(held) = self.held(key)? {
            return Ok(Ok(held));
        }
        let found = self.find(key)?;
        Ok(match self.long_found(&found, encoding)? {
            Some(head) => Ok(Held::new(head, encoding, &found)),
            None => Err(found),
        })
    }

    /// As [`Context::long_collection`], of the collection that was read last: its head.
    pub(crate) fn long_found(
        &mut self,
        found: &Found,
        encoding: Encoding,
    ) -> Result<Option<TreeHead>, Interrupted> {
        let Some(head) = self.tree_head(found)? else {
            return Ok(None);
        };
        let row = found.row.expect("it has a head");
        let has = Encoding::of_payload(self.payload(row))?;
        let is_long = head.len() > FEW && head.timed == 0 && has == encoding;
        Ok(is_long.then_some(head))
    }

    /// Returns what a command before this one has kept of the collection at `key`, if that has
    /// more than a few elements. Else the head is written, if there is one.
    fn held(&mut self, key: &[u8]) -> Result<Option<Held>, Interrupted> {
        let Some(kept) = &self.progress.kept_head else {
            return Ok(None);
        };
        let is_it = kept.is_for(self.command, Some(key)) && !kept.is_written;
        if is_it && self.exec_index.is_none() && kept.held.head.len() > FEW {
            return Ok(Some(kept.held));
        }
        self.write_kept_head()?;
        Ok(None)
    }

    /// Writes the head that was kept, if there is one.
    pub(crate) fn write_kept_head(&mut self) -> Run {
        let Some(mut kept) = self.progress.kept_head.take_if(|kept| !kept.is_written) else {
            return Ok(());
        };
        let (what, held) = ((kept.value_type, kept.held.encoding), kept.held);
        let put = self.in_database(kept.database, |this| this.put_held(&kept.key, what, &held));
        kept.is_written = put.is_ok();
        self.progress.kept_head = Some(kept);
        put
    }

    /// Writes or keeps the head of a collection after a change of it: the last thing that a command
    /// does.
    pub(super) fn end_with_head(
        &mut self,
        (key, value_type): (&[u8], ValueType),
        held: Held,
        beside: Beside,
    ) -> Run {
        if !self.is_together || self.exec_index.is_some() {
            return self.put_held(key, (value_type, held.encoding), &held);
        }
        let database = self.session.database;
        match &mut self.progress.kept_head {
            Some(kept) if kept.is_written => {
                return self.put_held(key, (value_type, held.encoding), &held);
            }
            Some(kept) => {
                debug_assert!(
                    kept.is_for(self.command, Some(key)) && kept.database == database,
                    "another head would be lost"
                );
                (kept.held, kept.beside) = (held, beside);
            }
            none => {
                *none = Some(Box::new(KeptHead {
                    command: self.command,
                    database,
                    key: key.to_vec(),
                    value_type,
                    held,
                    is_written: false,
                    beside,
                }));
            }
        }
        Ok(())
    }

    fn put_held(&mut self, key: &[u8], what: (ValueType, Encoding), held: &Held) -> Run {
        let times = Times {
            deadline: held.deadline,
            fields: None,
        };
        self.put_tree_head(key, (what, &held.head), times, held.former)
    }

    /// Returns what the command before this one knew, which is the same one, in a pipeline run, and
    /// has kept the head of the same collection.
    pub(super) fn known_beside(&self) -> Option<Beside> {
        let kept = self.progress.kept_head.as_ref()?;
        (self.exec_index.is_none() && !kept.is_written).then_some(kept.beside)
    }
}
