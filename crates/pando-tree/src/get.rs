//! Point reads.

use pando_format::{Lsn, PageId};
use pando_pool::{Attempt, Optimistic, Pool};

use crate::access::{Access, OptimisticAccess, SharedAccess, ask_for_record, retry_then_latch};
use crate::finger::Finger;
use crate::node::search::Spot;
use crate::node::view::Node;
use crate::overflow::OverflowHeader;
use crate::tree::{FrameNode, Tree, counted, damaged};
use crate::value::ValueReader;

/// Result of a point read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup {
    /// True when the key exists. Its value has been copied.
    pub found: bool,
    /// True when the value lies in chunks, and what was copied is its blob reference.
    pub chunked: bool,
    /// Newest batch that changed the leaf.
    pub lsn_max: Lsn,
    /// Newest batch of several leaves that changed it.
    pub multi_lsn: Lsn,
    /// The leaf that covers the key.
    pub leaf: PageId,
}

impl Lookup {
    /// Reads the result for `spot` of `leaf`. The caller still has to validate the leaf.
    #[inline]
    fn of(leaf: &Optimistic<'_>, node: &FrameNode<'_>, spot: Spot) -> Self {
        Self {
            found: spot.exact,
            chunked: false,
            lsn_max: node.lsn_max(),
            multi_lsn: node.multi_lsn(),
            leaf: leaf.page(),
        }
    }
}

/// The place of a key, whether it exists or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The leaf that covers the key.
    pub leaf: PageId,
    /// The same leaf, for finding the next key.
    pub finger: Finger,
    /// Number of nodes from the root to the leaf.
    pub levels: u8,
    /// Free bytes of the leaf.
    pub free_bytes: usize,
}

impl Tree {
    /// Replaces `out` by the value of `key`, or empties it. Does not allocate if `out` has room for
    /// the value rounded up to 8 bytes and `reader` has read values of that length before.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `out` holds then has no meaning. After a fault
    /// [`ValueReader::wanted`] may list more pages that will be needed.
    #[inline]
    pub fn try_get(
        &self,
        pool: &Pool,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Attempt<Lookup> {
        retry_then_latch(pool, |latched| {
            reader.wanted.clear();
            out.clear();
            let copy = Some((&mut *reader, &mut *out));
            match latched {
                None => self.get(pool, &mut OptimisticAccess, key, copy),
                Some(latched) => self.get_latched(pool, latched, key, copy),
            }
        })
    }

    /// Like [`Tree::try_get`], but without latches and only for values that lie in the leaf;
    /// returns None for other values. This is the common case: the caller runs [`Tree::try_get`]
    /// after every other result.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `out` holds then has no meaning.
    #[inline]
    pub fn try_get_short(
        &self,
        pool: &Pool,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Attempt<Option<Lookup>> {
        counted(pool, self.get_short(pool, key, out))
    }

    #[inline]
    fn get_short(&self, pool: &Pool, key: &[u8], out: &mut Vec<u8>) -> Attempt<Option<Lookup>> {
        out.clear();
        let (leaf, node, spot) = self.find(pool, &mut OptimisticAccess, key)?;
        if spot.exact {
            let slot = node.slot(spot.index);
            if !slot.is_plain() {
                return Ok(None);
            }
            node.append_value(slot, out);
        }
        // Before the validation: after it the frame may hold another leaf, with smaller marks.
        let lookup = Lookup::of(&leaf, &node, spot);
        leaf.validate()?;
        Ok(Some(lookup))
    }

    /// Looks up whether `key` exists, without its value.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_contains(&self, pool: &Pool, key: &[u8]) -> Attempt<Lookup> {
        retry_then_latch(pool, |latched| match latched {
            None => self.get(pool, &mut OptimisticAccess, key, None),
            Some(latched) => self.get_latched(pool, latched, key, None),
        })
    }

    #[cold]
    fn get_latched<'p>(
        &self,
        pool: &'p Pool,
        latched: &mut SharedAccess<'p>,
        key: &[u8],
        copy: Option<(&mut ValueReader, &mut Vec<u8>)>,
    ) -> Attempt<Lookup> {
        self.get(pool, latched, key, copy)
    }

    #[inline]
    pub(crate) fn get<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
        copy: Option<(&mut ValueReader, &mut Vec<u8>)>,
    ) -> Attempt<Lookup> {
        let (leaf, node, spot) = self.find(pool, access, key)?;
        let mut lookup = Lookup::of(&leaf, &node, spot);
        if spot.exact
            && let Some((reader, out)) = copy
        {
            let slot = node.slot(spot.index);
            lookup.chunked = slot.is_chunked();
            if slot.is_overflow() {
                let Some(header) = OverflowHeader::read(&node, slot) else {
                    return damaged(&leaf, "describes no overflow pages");
                };
                reader.read(pool, self.id, &leaf, &header, out)?;
                return Ok(lookup);
            }
            node.append_value(slot, out);
        }
        leaf.validate()?;
        Ok(lookup)
    }

    /// Finds the spot where `key` is or would be.
    #[inline]
    fn find<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
    ) -> Attempt<(Optimistic<'p>, FrameNode<'p>, Spot)> {
        let leaf = self.descend(pool, access, 0, |_, node| node.child_for(key))?;
        let node = Node::open(leaf.words().slice());
        let candidate = ask_for_record(leaf, &node, key);
        let spot = node.find_at(candidate, key);
        Ok((leaf, node, spot))
    }

    /// Finds the leaf that covers `key`.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_locate(&self, pool: &Pool, key: &[u8]) -> Attempt<Located> {
        retry_then_latch(pool, |latched| match latched {
            None => self.locate(pool, &mut OptimisticAccess, key),
            Some(latched) => self.locate(pool, latched, key),
        })
    }

    pub(crate) fn locate<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
    ) -> Attempt<Located> {
        let (mut levels, mut is_rightmost) = (1, true);
        let leaf = self.descend(pool, access, 0, |_, node| {
            levels += 1;
            let index = node.child_for(key);
            is_rightmost &= index + 1 == node.count();
            index
        })?;
        let free_bytes = Node::open(leaf.words().slice()).free_bytes();
        leaf.validate()?;
        Ok(Located {
            leaf: leaf.page(),
            finger: Finger::at(*self, leaf, is_rightmost),
            levels,
            free_bytes,
        })
    }
}
