//! One element of a large hash, set or sorted set that is put by its name: its row and the head are
//! all that is read, and no part of the collection is made in memory (decision 106).
//!
//! As at the ends of lists, these are shorter ways and no other forms: what they write is what
//! `changes.rs` writes of a part with this element. Collections of few elements, those in a compact
//! encoding, which may change with what is put, and hashes with deadlines do not come here.

use pandodb::nonblocking::Polled;

use super::kept_head::{Beside, Held};
use crate::context::{Context, Interrupted};
use crate::data::elements;
use crate::data::keyspace::{RowError, ValueType};
use crate::data::tree_head::TreeHead;

impl Context<'_> {
    /// Puts an element into the large set or hash at `key`, which
    /// [`Context::long_collection`] has returned; the value of a member of a set is empty. Returns
    /// whether it is new, or `None`, and nothing was done, if the element is not one for which this
    /// is known to be all.
    pub(crate) fn put_named(
        &mut self,
        (key, mut held): (&[u8], Held),
        (name, value): (&[u8], &[u8]),
    ) -> Result<Option<bool>, Interrupted> {
        let value_type = self.value_type();
        let head = &mut held.head;
        let Some(old) = self.find_named(head, name)? else {
            return Ok(None);
        };
        let (is_new, is_same) = (old.is_none(), old == Some(value));
        if value_type == ValueType::Set && !is_new {
            self.keep_head((key, value_type), held);
            return Ok(Some(false));
        }
        self.check_element(value_type, name.len() + value.len())?;
        let mut changes = self.changes(head)?;
        if !is_same {
            changes.put_found(name, value)?;
        }
        head.count += u64::from(is_new);
        let buffers = changes.finish(head);
        self.give_back(buffers);
        self.end_with_head((key, value_type), held, Beside::Nothing)?;
        Ok(Some(is_new))
    }

    /// Puts a member into the large sorted set at `key`, which [`Context::long_collection`] has
    /// returned, with the score that `decide` returns for the one that it has, or leaves it.
    /// Returns false, and nothing was done, if the member is not one for which this is known to be
    /// all.
    pub(crate) fn put_member(
        &mut self,
        (key, mut held): (&[u8], Held),
        member: &[u8],
        decide: impl FnOnce(Option<f64>) -> Result<Option<f64>, &'static str>,
    ) -> Result<bool, Interrupted> {
        let head = &mut held.head;
        let old = match self.find_named(head, member)? {
            None => return Ok(false),
            Some(None) => None,
            Some(Some(bytes)) => Some(sound_score(bytes)?),
        };
        let Some(score) = decide(old)? else {
            self.keep_head((key, ValueType::SortedSet), held);
            return Ok(true);
        };
        let bytes = score.to_le_bytes();
        self.check_element(ValueType::SortedSet, member.len() + bytes.len())?;
        let mut changes = self.changes(head)?;
        changes.put_found(member, &bytes)?;
        if let Some(old) = old {
            changes.delete_score(head.id, member, &old.to_le_bytes());
        }
        changes.put_score(head.id, member, score)?;
        head.count += u64::from(old.is_none());
        let buffers = changes.finish(head);
        self.give_back(buffers);
        self.end_with_head((key, ValueType::SortedSet), held, Beside::Nothing)?;
        Ok(true)
    }

    /// Reads the element `name` with the command's transaction. Its key is the one that
    /// [`Context::changes`] begins with. Returns its value, `Some(None)` if there is none, and
    /// `None` without a transaction, or if the element has a deadline.
    fn find_named(
        &mut self,
        head: &TreeHead,
        name: &[u8],
    ) -> Result<Option<Option<&[u8]>>, Interrupted> {
        let (members, keys) = (self.members()?, self.engine().element_keys);
        let data = self.data();
        let Some(batch) = data.batch.as_deref_mut() else {
            return Ok(None);
        };
        let (key, row) = (&mut data.scratch.element_key, &mut data.scratch.element_row);
        keys.name(head.id, name, key);
        match batch.get(members, key, row)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(false) => return Ok(Some(None)),
            Polled::Ready(true) => {}
        }
        let old = elements::decode_name(key, row)?;
        if old.name != name {
            return Err(RowError::OtherKey.into());
        }
        Ok(match old.deadline {
            Some(_) => None,
            None => Some(Some(old.value)),
        })
    }
}

/// Returns the score that is the value of a member.
pub(super) fn sound_score(bytes: &[u8]) -> Result<f64, RowError> {
    let score = bytes.try_into().map(f64::from_le_bytes);
    let score = score.ok().filter(|score| !score.is_nan());
    score.ok_or(RowError::Damaged)
}
