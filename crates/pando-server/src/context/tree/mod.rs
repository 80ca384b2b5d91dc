//! Large collections, whose elements have rows of their own (`data/tree_head.rs`,
//! `data/elements.rs`; decision 085).
//!
//! A command reads the head, then the part of the elements that it needs ([`load`]), edits that in
//! memory as it edits a packed collection, and writes what has changed ([`changes`]) and the head.
//! Reads of elements need no check of their own: each change of an element changes the head, so if
//! the head is unchanged at the commit, all that was read belongs to one state. A command that
//! reads one collection, whose pages are in memory, has no transaction: it reads the head once more
//! instead. What a run finds before that may contradict itself; it ends with an error then, which
//! the client sees only if the head is unchanged, and which is damage in that case.
//!
//! The rows of a new collection that are too many for a batch are written before its head, by a
//! thread ([`building`]): those of elements in memory, of another collection ([`copies`]), of a
//! range of one ([`ranges`]), or of what several have in common or together ([`merges`]; decisions
//! 126 and 129). Threads also read what a reply shows of many elements, while it is sent
//! ([`large_reply`]; decision 130), and sort them if it has them in another order ([`sorts`];
//! decision 131).

pub(crate) mod ahead;
mod block_cut;
mod blocks;
mod building;
pub(crate) mod builds;
mod changes;
pub(crate) mod copies;
mod edition;
mod end_block;
mod ends;
mod expired;
mod held;
pub(crate) mod kept_head;
pub(crate) mod kept_pieces;
pub(crate) mod known_ends;
pub(crate) mod large_reply;
pub(crate) mod list_end;
mod list_row;
pub(crate) mod list_walk;
mod lists;
mod load;
pub(crate) mod merges;
mod named;
mod names;
pub(crate) mod near;
mod one_member;
pub(crate) mod part;
mod patches;
mod piece_reads;
mod pieces;
mod position;
mod ranges;
pub(crate) mod read_stretch;
mod removal;
mod room;
mod scan;
mod scored_end;
pub(crate) mod search;
mod shared_head;
mod shown;
mod sorts;
mod source;
pub(crate) mod stream;
mod stream_reads;
mod stream_value;
mod trim;
mod walks;

use std::ops::Bound;

use pandodb::Table;
use pandodb::nonblocking::{Polled, Reads};

use super::{Context, Interrupted, Run};
use crate::data::elements::{self, Kind, given_up_key};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::tree_head::TreeHead;
use named::sound_score;
use part::Part;

impl<'a> Context<'a> {
    /// Returns the table of elements of a database that has large collections.
    fn members(&self) -> Result<&'a Table, Interrupted> {
        match self.database().members.table() {
            Some(members) => Ok(members),
            None => Err(Interrupted::Row(RowError::Damaged)),
        }
    }

    /// As [`Context::members`]; makes the table if there is none.
    pub(crate) fn make_members(&mut self) -> Result<&'a Table, Interrupted> {
        let database = self.database();
        if let Some(table) = database.members.table() {
            return Ok(table);
        }
        let members = database.members.clone();
        Err(self.make_table(move |db| members.make(db)))
    }

    /// Returns true if ranks of the large collection with this head can be told without reading all
    /// of it.
    pub(crate) fn may_rank(&mut self, head: &TreeHead) -> Result<bool, Interrupted> {
        let members = self.members()?;
        self.may_rank_in(members, head)
    }

    /// Returns how many elements of a large sorted set lie before `key`, which is a score in order
    /// and a member (`data/elements.rs`); `None` if that cannot be told without reading all.
    pub(crate) fn rank_of_score(
        &mut self,
        head: TreeHead,
        key: &[u8],
    ) -> Result<Option<usize>, Interrupted> {
        let members = self.members()?;
        if !self.may_rank_in(members, &head)? {
            return Ok(None);
        }
        let from = elements::start(head.id, Kind::Score);
        let to = [&from, key].concat();
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let count = match self.source().count(members, bounds)? {
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
            Polled::Ready(count) => Ok(Some(usize::try_from(count).unwrap_or(usize::MAX))),
        };
        self.confirmed(head, count)
    }

    /// Returns rank and score of a member of the large sorted set with this head, which was read
    /// last, if it is there: nothing but its row and its rank is read. `None` in a transaction.
    pub(crate) fn ranked_beside(
        &mut self,
        head: TreeHead,
        member: &[u8],
    ) -> Result<Option<Option<(usize, f64)>>, Interrupted> {
        if self.data().batch.is_some() {
            return Ok(None);
        }
        let ranked = self.ranked(&head, member);
        self.confirmed(head, ranked).map(Some)
    }

    fn ranked(
        &mut self,
        head: &TreeHead,
        member: &[u8],
    ) -> Result<Option<(usize, f64)>, Interrupted> {
        let (members, keys) = (self.members()?, self.engine().element_keys);
        if !self.read_one(members, head.id, member)? {
            return Ok(None);
        }
        let scratch = &mut *self.data().scratch;
        let row = elements::decode_name(&scratch.element_key, &scratch.element_row)?;
        let score = sound_score(row.value)?;
        keys.score(head.id, score, member, &mut scratch.element_key);
        let from = elements::start(head.id, Kind::Score);
        let to = Bound::Excluded(&scratch.element_key[..]);
        match Reads::of(members).count(Bound::Included(&from), to)? {
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
            Polled::Ready(rank) if rank >= head.count => Err(Interrupted::Torn),
            Polled::Ready(rank) => Ok(usize::try_from(rank).ok().map(|rank| (rank, score))),
        }
    }

    /// Returns the lowest score of a large sorted set.
    pub(crate) fn first_score(&mut self, head: TreeHead) -> Result<f64, Interrupted> {
        let (_, strings, _) = self.load(ValueType::SortedSet, head, &Part::Places(&|_| 0..1))?;
        let bytes = strings.at(1).try_into().map_err(|_| RowError::Damaged)?;
        Ok(f64::from_le_bytes(bytes))
    }

    /// Notes that the collection `id` has no key any more: the cleaner removes its elements.
    pub(super) fn give_up(&mut self, id: u64) -> Run {
        let members = self.members()?;
        let data = self.data();
        given_up_key(id, &mut data.scratch.encoded);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("commands that write have a transaction");
        Ok(batch.put_freeing(members, &data.scratch.encoded, (b"", b""))?)
    }
}
