//! Copying a large collection or a stream without reading it into memory: a thread copies its rows,
//! as it writes those of other new collections (decisions 126 and 129).
//!
//! Whoever changes a row writes the head. So the rows that the thread reads are those of the head,
//! if a run that is committed finds the same head behind it as the run that has begun it.

use std::hash::{Hash as _, Hasher as _};

use pandodb::Table;

use crate::context::{Context, Former, Found, Interrupted, Run};
use crate::data::keyspace::{Times, ValueType};
use crate::data::new_rows::{CopiedRows, NewRows};
use crate::data::packed::Encoding;
use crate::data::stream_head::StreamHead;
use crate::data::tree_head::TreeHead;

/// Elements from which on rows are copied by a thread. Fewer are sooner read and written at once.
const ELEMENTS_MIN: u64 = 512;

/// A large collection or a stream on its way to another key, with its rows where they are.
#[derive(Debug)]
pub(crate) struct TreeCopy {
    /// The table that it lies in.
    members: Table,
    value_type: ValueType,
    id: u64,
    count: u64,
    /// What its row says of it.
    payload: Vec<u8>,
    times: Times,
}

impl TreeCopy {
    /// Returns true if it has many elements.
    pub(crate) fn is_long(&self) -> bool {
        self.count >= ELEMENTS_MIN
    }
}

impl Context<'_> {
    /// Takes the collection or stream that was read last, if its rows may be copied by a thread:
    /// they lie in the table of elements, and the transaction has not changed them and sees the
    /// present.
    pub(crate) fn tree_copy(&mut self, found: &Found) -> Result<Option<TreeCopy>, Interrupted> {
        let Some(row) = found.row.filter(|_| found.former.tree.is_some()) else {
            return Ok(None);
        };
        let payload = self.payload(row);
        let (id, count) = match row.value_type {
            ValueType::Hash | ValueType::List | ValueType::Set | ValueType::SortedSet => {
                let head = TreeHead::decode(payload)?;
                (head.id, head.count)
            }
            ValueType::Stream => {
                let head = StreamHead::decode(payload)?;
                (head.id, head.length)
            }
            _ => return Ok(None),
        };
        let payload = payload.to_vec();
        let members = self.members()?;
        if !self.is_as_stored(members, id) {
            return Ok(None);
        }
        Ok(Some(TreeCopy {
            members: members.clone(),
            value_type: row.value_type,
            id,
            count,
            payload,
            times: row.times(),
        }))
    }

    /// Writes it at `key` of the selected database, which has had `former`.
    pub(crate) fn put_tree_copy(&mut self, key: &[u8], copy: &TreeCopy, former: Former) -> Run {
        let mut hasher = self.progress.builds.hasher();
        copy.payload.hash(&mut hasher);
        (copy.members.name(), copy.members.last_swap()).hash(&mut hasher);
        let identity = (copy.value_type, hasher.finish());
        let members = self.make_members()?;
        let (made, _) = self.built(members, identity, |_, id| {
            let rows = CopiedRows::new(copy.members.clone(), copy.id, id);
            Ok((TreeHead::new(id), Box::new(rows) as Box<dyn NewRows>))
        })?;
        if copy.value_type == ValueType::Stream {
            let mut head = StreamHead::decode(&copy.payload)?;
            head.id = made.id;
            self.wake_readers(key);
            self.note_written(key);
            return self.put_stream_head(key, &head, copy.times.deadline, former);
        }
        let mut head = TreeHead::decode(&copy.payload)?;
        head.id = made.id;
        let encoding = Encoding::of_payload(&copy.payload)?;
        let what = ((copy.value_type, encoding), &head);
        self.put_tree_head(key, what, copy.times, former)
    }
}
