//! Point reads.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, Pool};

use crate::access::{Access, OptimisticAccess, SharedAccess, ask_for_record, retry_then_latch};
use crate::finger::Finger;
use crate::leaf::{Leaf, LongValue, Lookup, Stored};
use crate::node::search::Spot;
use crate::node::view::Node;
use crate::tree::{FrameNode, Tree, counted};
use crate::value::ValueReader;

/// Where a key is, or would be.
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

    /// As [`Tree::try_get`], but if the value does not lie in the leaf, no more than its first
    /// `bytes_max` bytes are read, from as few pages. Also returns the length of the whole value,
    /// or of what describes one in chunks, which is always read as a whole.
    ///
    /// # Errors
    /// As [`Tree::try_get`].
    pub fn try_get_head(
        &self,
        pool: &Pool,
        key: &[u8],
        bytes_max: usize,
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Attempt<(Lookup, usize)> {
        retry_then_latch(pool, |latched| {
            reader.wanted.clear();
            out.clear();
            let (what, to) = ((key, bytes_max), (&mut *reader, &mut *out));
            match latched {
                None => self.get_head(pool, &mut OptimisticAccess, what, to),
                Some(latched) => self.get_head(pool, latched, what, to),
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
        let (here, node, spot) = self.find(pool, &mut OptimisticAccess, key)?;
        Leaf { here, node }.read_short(spot, out)
    }

    /// Replaces `out` by what the leaf has for `key`: the value, or what describes it.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `out` holds then has no meaning.
    pub fn try_get_stored(&self, pool: &Pool, key: &[u8], out: &mut Vec<u8>) -> Attempt<Stored> {
        let mut attempt = || {
            out.clear();
            let (here, node, spot) = self.find(pool, &mut OptimisticAccess, key)?;
            Leaf { here, node }.read_stored(spot, out)
        };
        counted(pool, attempt())
    }

    /// As [`Tree::try_get_stored`], without a descent if the leaf of `finger` is certain to cover
    /// `key`.
    ///
    /// # Errors
    /// As [`Tree::try_get_stored`].
    #[cold]
    pub fn try_get_stored_at(
        &self,
        pool: &Pool,
        finger: &Finger,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Attempt<Stored> {
        if let Some((leaf, spot)) = finger.reach(*self, pool, key) {
            out.clear();
            if let Ok(stored) = leaf.read_stored(spot, out) {
                return Ok(stored);
            }
        }
        self.try_get_stored(pool, key, out)
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

    /// Looks up `key`, and copies its value to the vector of `copy`; without `copy` only looks
    /// whether the key exists. The result has been validated.
    #[inline]
    pub(crate) fn get<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
        copy: Option<(&mut ValueReader, &mut Vec<u8>)>,
    ) -> Attempt<Lookup> {
        let (here, node, spot) = self.find(pool, access, key)?;
        let leaf = Leaf { here, node };
        let Some((reader, out)) = copy else {
            return leaf.contains(spot);
        };
        if let Some(lookup) = leaf.read_short(spot, out)? {
            return Ok(lookup);
        }
        match leaf.read_long(spot, out)? {
            LongValue::Read(lookup) => Ok(lookup),
            LongValue::Overflow(lookup, header) => {
                reader.read(pool, self.id, &leaf.here, &header, out)?;
                Ok(lookup)
            }
        }
    }

    /// As [`Tree::get`], for the beginning of a value: see [`Tree::try_get_head`].
    fn get_head<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        (key, bytes_max): (&[u8], usize),
        (reader, out): (&mut ValueReader, &mut Vec<u8>),
    ) -> Attempt<(Lookup, usize)> {
        let (here, node, spot) = self.find(pool, access, key)?;
        let leaf = Leaf { here, node };
        if let Some(lookup) = leaf.read_short(spot, out)? {
            return Ok((lookup, out.len()));
        }
        match leaf.read_long(spot, out)? {
            LongValue::Read(lookup) => Ok((lookup, out.len())),
            LongValue::Overflow(lookup, header) => {
                let bytes = match lookup.chunked {
                    // A blob reference is of use as a whole.
                    true => header.value_bytes,
                    false => bytes_max,
                };
                reader.read_head(pool, self.id, &leaf.here, (&header, bytes), out)?;
                Ok((lookup, header.value_bytes))
            }
        }
    }

    /// Finds the spot where `key` is or would be.
    #[inline]
    fn find<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
    ) -> Attempt<(Optimistic<'p>, FrameNode<'p>, Spot)> {
        let here = self.descend(pool, access, 0, |_, node| node.child_for(key))?;
        let node = Node::open(here.words().slice());
        let candidate = ask_for_record(here, &node, key);
        Ok((here, node, node.find_at(candidate, key)))
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

    /// Finds the leaf that covers `key`, whether the key exists or not. The result has been
    /// validated.
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
