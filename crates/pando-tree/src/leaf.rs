//! A leaf as operations on one key see it: the one step that all of them end with.
//!
//! An operation comes here with a leaf that covers its key, under no latch or a shared one. What it
//! takes from the leaf counts once [`Optimistic::validate`] has said that nothing has changed
//! meanwhile. A change latches the leaf at the version that it has seen, and is a [`LeafChange`]
//! then. Operations that rebuild leaves as a whole (split, merge, pack) are no such steps.

use pando_format::{Lsn, PageId};
use pando_pool::{ApplyToken, Attempt, Exclusive, Marks, Optimistic, PageMut};

use crate::node::edit::{self, Fit, Room};
use crate::node::list::{Record, RecordList};
use crate::node::search::Spot;
use crate::node::view::Node;
use crate::overflow::OverflowHeader;
use crate::tree::{FrameNode, damaged, stamp};
use crate::word::{Store, Word};

/// What a point read found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// True when the key exists; its value has been copied.
    pub found: bool,
    /// True when what was copied is the list of the chunks in which the value lies.
    pub chunked: bool,
    /// Newest batch that changed the leaf.
    pub lsn_max: Lsn,
    /// Newest batch of several leaves that changed it.
    pub multi_lsn: Lsn,
    /// The leaf that covers the key.
    pub leaf: PageId,
}

/// A leaf at the version at which it was seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaf<'p> {
    /// Frame and version; has to be validated before anything read from `node` counts.
    pub(crate) here: Optimistic<'p>,
    /// The content, which may be torn.
    pub(crate) node: FrameNode<'p>,
}

impl<'p> Leaf<'p> {
    /// Opens the content of a leaf; validates nothing.
    #[inline]
    pub(crate) fn at(here: Optimistic<'p>) -> Self {
        let node = Node::open_leaf(here.words().slice());
        Self { here, node }
    }

    /// Where `key` is, or belongs.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Spot {
        self.node.find_in_leaf(key)
    }

    /// Number of records.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.node.count()
    }

    /// How `record`, which does not fit in place, can be put at `spot`. Fills `list`.
    ///
    /// # Errors
    /// When the leaf is damaged, or has changed meanwhile.
    #[inline]
    pub(crate) fn fit_anew(
        &self,
        spot: Spot,
        record: &Record<'_>,
        list: &mut RecordList,
    ) -> Attempt<Fit> {
        match edit::prepare_anew(&self.node, spot, record, list) {
            Fit::Torn => damaged(&self.here, "holds records longer than a page"),
            fit => Ok(fit),
        }
    }

    /// Whether `record` can be put at `spot` in place.
    #[inline]
    pub(crate) fn fits_in_place(&self, spot: Spot, record: &Record<'_>) -> bool {
        edit::fits_in_place(&self.node, spot, record)
    }

    /// Whether `record`, which belongs after the last one, has no room even if the leaf is rebuilt.
    #[inline]
    pub(crate) fn is_full(&self, record: &Record<'_>) -> bool {
        edit::is_full(&self.node, record)
    }

    /// The room for `record` at `spot`, if it can be put in place without replacing a value that
    /// does not lie in the leaf alone.
    #[inline]
    pub(crate) fn room_here(&self, spot: Spot, record: &Record<'_>) -> Option<Room> {
        room_here(&self.node, spot, record)
    }

    /// Takes the exclusive latch at the version that was seen.
    ///
    /// # Errors
    /// [`pando_pool::Restart::Conflict`] when the leaf has changed or is latched.
    #[inline]
    pub(crate) fn latch(&self) -> Attempt<Exclusive<'p>> {
        self.here.upgrade()
    }

    /// What is at `spot`, without its value.
    #[inline]
    fn lookup(&self, spot: Spot) -> Lookup {
        Lookup {
            found: spot.exact,
            chunked: false,
            lsn_max: self.node.lsn_max(),
            multi_lsn: self.node.multi_lsn(),
            leaf: self.here.page(),
        }
    }

    /// Whether the key of `spot` exists.
    ///
    /// # Errors
    /// [`pando_pool::Restart::Conflict`] when the leaf has changed.
    #[inline]
    pub(crate) fn contains(&self, spot: Spot) -> Attempt<Lookup> {
        // Before the validation: after it the frame may hold another leaf, with smaller marks.
        let lookup = self.lookup(spot);
        self.here.validate()?;
        Ok(lookup)
    }

    /// Appends the value at `spot`, if there is one, to `out`. None, and nothing was appended or
    /// validated, when the value does not lie in the leaf alone.
    ///
    /// # Errors
    /// [`pando_pool::Restart::Conflict`] when the leaf has changed: what was appended has no
    /// meaning.
    #[inline]
    pub(crate) fn read_short(&self, spot: Spot, out: &mut Vec<u8>) -> Attempt<Option<Lookup>> {
        if spot.exact {
            let slot = self.node.slot(spot.index);
            if !slot.is_plain() {
                return Ok(None);
            }
            self.node.append_value(slot, out);
        }
        self.contains(spot).map(Some)
    }

    /// Appends what the leaf has for the key at `spot` to `out`.
    ///
    /// # Errors
    /// [`pando_pool::Restart::Conflict`] when the leaf has changed: what was appended has no
    /// meaning.
    pub(crate) fn read_stored(&self, spot: Spot, out: &mut Vec<u8>) -> Attempt<Stored> {
        let mut stored = Stored::Absent;
        if spot.exact {
            let slot = self.node.slot(spot.index);
            stored = match (slot.is_chunked(), slot.is_overflow()) {
                (false, false) => Stored::Value,
                (false, true) => Stored::Overflow,
                (true, false) => Stored::Chunks,
                (true, true) => Stored::ChunksInOverflow,
            };
            self.node.append_value(slot, out);
        }
        self.here.validate()?;
        Ok(stored)
    }

    /// What the leaf says of the value at `spot`, for which [`Leaf::read_short`] had no answer: its
    /// overflow header, or, appended to `out`, the blob reference of a value in chunks.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what was appended has no meaning then.
    pub(crate) fn read_long(&self, spot: Spot, out: &mut Vec<u8>) -> Attempt<LongValue> {
        let slot = self.node.slot(spot.index);
        let mut lookup = self.lookup(spot);
        lookup.chunked = slot.is_chunked();
        if slot.is_overflow() {
            return match OverflowHeader::read(&self.node, slot) {
                Some(header) => Ok(LongValue::Overflow(lookup, header)),
                None => damaged(&self.here, "describes no overflow pages"),
            };
        }
        self.node.append_value(slot, out);
        self.here.validate()?;
        Ok(LongValue::Read(lookup))
    }
}

/// What a leaf has for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Nothing: the key does not exist.
    Absent,
    /// The value itself.
    Value,
    /// The overflow header of the value.
    Overflow,
    /// The blob reference of a value in chunks.
    Chunks,
    /// The overflow header of such a blob reference.
    ChunksInOverflow,
}

/// What a leaf says of a value that is not read in one step.
#[derive(Debug)]
pub(crate) enum LongValue {
    /// It has been read.
    Read(Lookup),
    /// It lies in overflow pages. The leaf is still to be validated, after they were read.
    Overflow(Lookup, OverflowHeader),
}

/// A change of a leaf under its latch.
#[derive(Debug)]
pub(crate) struct LeafChange<'l> {
    page: PageMut<'l>,
}

impl<'l> LeafChange<'l> {
    /// Begins a change of the latched leaf.
    ///
    /// # Errors
    /// [`pando_pool::Restart`] when a checkpoint needs an image of the page first and cannot have
    /// one now: nothing has changed.
    #[inline]
    pub(crate) fn begin(latch: &'l mut Exclusive<'_>, token: &ApplyToken<'_>) -> Attempt<Self> {
        let page = latch.modify(token)?;
        Ok(Self { page })
    }

    /// Puts `record` at `spot` as `fit` says, which is [`Fit::InPlace`] or [`Fit::Rebuild`].
    #[inline]
    pub(crate) fn put(&mut self, fit: Fit, spot: Spot, record: &Record<'_>, list: &RecordList) {
        edit::put(&mut self.page, fit, spot, record, list);
        debug_assert_eq!(
            Node::open(Store::words(&self.page)).find_in_leaf(record.key),
            Spot {
                exact: true,
                ..spot
            },
            "a key is not where it was put"
        );
    }

    /// Puts `record` at `spot`, in the room that [`LeafChange::next_spot`] or [`Leaf::room_here`]
    /// has found for it.
    #[inline]
    pub(crate) fn put_in_place(&mut self, spot: Spot, room: &Room, record: &Record<'_>) {
        edit::put_in_place(&mut self.page, spot, room, record);
    }

    /// Returns where `record`, whose key is greater than that at `spot`, can be put in place, and
    /// the room for it. None when it cannot, or when the leaf is not certain to cover its key: a
    /// key behind the last one is covered if `is_rightmost`.
    #[inline]
    pub(crate) fn next_spot(
        &self,
        spot: Spot,
        record: &Record<'_>,
        is_rightmost: bool,
    ) -> Option<(Spot, Room)> {
        let node = Node::open_leaf(Store::words(&self.page));
        let count = node.count();
        // After the last entry there is nothing to search.
        let next = match spot.index + 1 == count {
            true => Spot {
                index: count,
                exact: false,
            },
            false => node.find_in_leaf(record.key),
        };
        let is_covered = next.exact || next.index < count || is_rightmost;
        if !is_covered {
            return None;
        }
        room_here(&node, next, record).map(|room| (next, room))
    }

    /// Returns where `key` is, if it is in the leaf and its value, too.
    #[inline]
    pub(crate) fn plain_spot(&self, key: &[u8]) -> Option<Spot> {
        let node = Node::open_leaf(Store::words(&self.page));
        let spot = node.find_in_leaf(key);
        (spot.exact && node.slot(spot.index).is_plain()).then_some(spot)
    }

    /// Returns what the record at `spot`, which is exact, counts for in a counted tree.
    #[inline]
    pub(crate) fn weight(&self, spot: Spot) -> u64 {
        let node = Node::open_leaf(Store::words(&self.page));
        node.weight(node.slot(spot.index))
    }

    /// Returns by how much the nodes above count more once `record` is at `spot`, in a counted
    /// tree.
    #[inline]
    pub(crate) fn adds(&self, spot: Spot, record: &Record<'_>) -> i64 {
        record.adds(&Node::open_leaf(Store::words(&self.page)), spot)
    }

    /// Removes the record at `spot`, which is exact.
    #[inline]
    pub(crate) fn remove(&mut self, spot: Spot) {
        edit::remove(&mut self.page, spot.index);
    }

    /// Ends the change: raises the marks of the leaf.
    #[inline]
    pub(crate) fn end(mut self, marks: Marks) {
        stamp(&mut self.page, marks);
    }
}

/// The room for a record that fits in place, and replaces no value that lies outside the leaf.
#[inline]
fn room_here<W: Word>(node: &Node<'_, W>, spot: Spot, record: &Record<'_>) -> Option<Room> {
    if spot.exact && !node.slot(spot.index).is_plain() {
        return None;
    }
    Room::find(&node.as_leaf(), spot, record)
}
