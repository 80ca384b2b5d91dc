//! One random member of a large set: its row is all that is read, in one descent for its rank and
//! one for the row itself, and no part of the set is made in memory (decision 108).

use pando_resp::Writer;
use pandodb::nonblocking::{EntryFrom, Polled, Reads};

use super::kept_head::{Beside, Held};
use crate::context::{Context, Data, Found, Interrupted, Run};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;

impl Context<'_> {
    /// Removes a random member of the large set at `key`, which [`Context::long_collection`] has
    /// returned, and replies with it; `false`, and nothing was done, if a part of the set is needed
    /// to choose one.
    pub(crate) fn pop_one_member(
        &mut self,
        key: &[u8],
        mut held: Held,
    ) -> Result<bool, Interrupted> {
        let head = &mut held.head;
        let removed = match self.take_beside() {
            Some(Beside::Removed(removed)) => Some(removed),
            _ => self.removals(ValueType::Set, head)?,
        };
        let Some(removed) = removed else {
            return Ok(false);
        };
        if !self.choose_one(head, removed)? {
            return Ok(false);
        }
        self.reply_member()?;
        let mut changes = self.changes(head)?;
        changes.delete_found();
        head.count -= 1;
        let buffers = changes.finish(head);
        self.give_back(buffers);
        let beside = Beside::Removed(removed + 1);
        self.end_with_head((key, ValueType::Set), held, beside)?;
        Ok(true)
    }

    /// Replies with a random member of the set that was read last, as `found`; `false`, and nothing
    /// was done, if it is not large, or a part of it is needed to choose one.
    pub(crate) fn reply_one_member(&mut self, found: &Found) -> Result<bool, Interrupted> {
        let Some(head) = self.long_found(found, Encoding::Hashtable)? else {
            return Ok(false);
        };
        let Some(removed) = self.removals(ValueType::Set, &head)? else {
            return Ok(false);
        };
        let chosen = self.choose_one(&head, removed);
        if !self.confirmed(head, chosen)? {
            return Ok(false);
        }
        self.reply_member()?;
        Ok(true)
    }

    /// Reads the row of the element at `place`, by name, into the scratch; of elements that the
    /// transaction has removed it says so.
    pub(crate) fn read_entry(
        &mut self,
        head: &TreeHead,
        place: usize,
    ) -> Result<EntryFrom, Interrupted> {
        let members = self.members()?;
        let prefix = elements::start(head.id, Kind::Name);
        let from = (&prefix[..], place as u64);
        let Data { batch, scratch, .. } = self.data();
        let to = (&mut scratch.element_key, &mut scratch.element_row);
        let mut shown_from = None;
        let read = match batch {
            Some(batch) => batch.entry_from(members, from, to)?,
            None => Reads::of(members).entry_from(from, to, &mut shown_from)?,
        };
        let entry = match read {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(_) if !scratch.element_key.starts_with(&prefix) => EntryFrom::None,
            Polled::Ready(entry) => entry,
        };
        self.progress.show_from(shown_from);
        Ok(entry)
    }

    /// Replies with the member whose row is in the scratch.
    fn reply_member(&mut self) -> Run {
        let scratch = &*self.data.as_ref().expect("a row was read").scratch;
        let row = elements::decode_name(&scratch.element_key, &scratch.element_row)?;
        if row.deadline.is_some() {
            return Err(RowError::Damaged.into());
        }
        Writer::new(self.out, self.session.version).bulk(row.name);
        self.check_reply()
    }
}
