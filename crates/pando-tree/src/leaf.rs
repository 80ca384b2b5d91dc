//! A leaf as point reads see it: the one step that all of them end with.
//!
//! A read comes here with a leaf that covers its key, under no latch or a shared one. What it takes
//! from the leaf counts once [`Optimistic::validate`] has said that nothing has changed meanwhile.

use pando_format::{Lsn, PageId};
use pando_pool::{Attempt, Optimistic};

use crate::node::search::Spot;
use crate::node::view::Node;
use crate::overflow::OverflowHeader;
use crate::tree::{FrameNode, damaged};

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
    pub(crate) here: Optimistic<'p>,
    pub(crate) node: FrameNode<'p>,
}

impl<'p> Leaf<'p> {
    #[inline]
    pub(crate) fn at(here: Optimistic<'p>) -> Self {
        let node = Node::open(here.words().slice());
        Self { here, node }
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

/// What a leaf says of a value that is not read in one step.
#[derive(Debug)]
pub(crate) enum LongValue {
    /// It has been read.
    Read(Lookup),
    /// It lies in overflow pages. The leaf is still to be validated, after they were read.
    Overflow(Lookup, OverflowHeader),
}
