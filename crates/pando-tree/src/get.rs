//! Point reads.

use pando_format::PageId;
use pando_pool::{Attempt, Optimistic, PagePin, Pool};

use crate::access::{Access, OptimisticAccess, SharedAccess, ask_for_record, retry_then_latch};
use crate::descent::Start;
use crate::finger::Finger;
use crate::leaf::{Leaf, LongValue, Lookup, Stored};
use crate::node::search::Spot;
use crate::place::Place;
use crate::tree::{FrameNode, Tree, counted};
use crate::value::ValueReader;

/// Where a key is, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// The leaf that covers the key.
    pub leaf: PageId,
    /// The same leaf, and the key's spot in it, for its change and for finding the next key.
    pub place: Place,
    /// Number of nodes from the root to the leaf.
    pub levels: u8,
    /// Free bytes of the leaf.
    pub free_bytes: usize,
}

/// What [`Tree::try_place`] says of the record before a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Its key may begin as was asked, and has been copied.
    Alike,
    /// It begins otherwise, or there is none.
    Other,
    /// It lies in another leaf.
    Elsewhere,
}

/// Where a descent to a key has ended.
#[derive(Debug, Clone, Copy)]
struct Arrival<'p> {
    leaf: Optimistic<'p>,
    node: FrameNode<'p>,
    spot: Spot,
    /// Number of nodes from the root to the leaf.
    levels: u8,
    /// No leaf lies to the left, or to the right, of this one.
    is_leftmost: bool,
    is_rightmost: bool,
}

impl Arrival<'_> {
    /// Returns where the key is in `tree`, once the leaf has been validated.
    fn place(&self, tree: Tree) -> Place {
        Place::at(Finger::at(tree, self.leaf, self.is_rightmost), self.spot)
    }
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

    /// As [`Tree::try_get`], for a change of `key` that follows: also returns where it is, or
    /// belongs.
    ///
    /// # Errors
    /// As [`Tree::try_get`].
    pub fn try_get_placed(
        &self,
        pool: &Pool,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Attempt<(Lookup, Place)> {
        retry_then_latch(pool, |latched| {
            reader.wanted.clear();
            out.clear();
            let copy = Some((&mut *reader, &mut *out));
            match latched {
                None => self.get_placed(pool, &mut OptimisticAccess, key, copy),
                Some(latched) => self.get_placed(pool, latched, key, copy),
            }
        })
    }

    /// As [`Tree::try_get`], but if the value does not lie in the leaf, no more than its first
    /// `bytes_max` bytes are read, from as few pages. Also returns the length of the whole value,
    /// or of what describes one in chunks, which is always read as a whole; and where the key is,
    /// or belongs.
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
    ) -> Attempt<(Lookup, usize, Place)> {
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

    /// As [`Tree::try_get_head`] for `key`, which is at `place`, without a descent. Returns None if
    /// the leaf has changed since that was found, or if pages of the value are not in memory; what
    /// `out` holds then has no meaning.
    #[inline]
    pub fn get_head_at(
        &self,
        pool: &Pool,
        place: &Place,
        (key, bytes_max): (&[u8], usize),
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Option<(Lookup, usize)> {
        out.clear();
        let (leaf, spot) = place.reach(*self, pool, key)?;
        if let Some(lookup) = leaf.read_short(spot, out).ok()? {
            return Some((lookup, out.len()));
        }
        self.read_long_head(pool, leaf, (spot, bytes_max), reader, out)
            .ok()
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

    /// As [`Tree::try_get_stored`], without a descent if the leaf of `place`, which is that of
    /// `key`, has not changed.
    ///
    /// # Errors
    /// As [`Tree::try_get_stored`].
    #[cold]
    pub fn try_get_stored_at(
        &self,
        pool: &Pool,
        place: &Place,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Attempt<Stored> {
        if let Some((leaf, spot)) = place.reach(*self, pool, key) {
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
        let placed = self.try_contains_placed(pool, key);
        placed.map(|(lookup, _)| lookup)
    }

    /// As [`Tree::try_contains`], for a change of `key` that follows: also returns where it is, or
    /// belongs.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_contains_placed(&self, pool: &Pool, key: &[u8]) -> Attempt<(Lookup, Place)> {
        retry_then_latch(pool, |latched| match latched {
            None => self.get_placed(pool, &mut OptimisticAccess, key, None),
            Some(latched) => self.get_placed(pool, latched, key, None),
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
        self.read_at(pool, Leaf { here, node }, spot, copy)
    }

    /// As [`Tree::get`], and returns where `key` is, or belongs.
    #[inline]
    fn get_placed<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
        copy: Option<(&mut ValueReader, &mut Vec<u8>)>,
    ) -> Attempt<(Lookup, Place)> {
        self.arrive_at(pool, access, key, |end| {
            let (here, node) = (end.leaf, end.node);
            let lookup = self.read_at(pool, Leaf { here, node }, end.spot, copy)?;
            Ok((lookup, end.place(*self)))
        })
    }

    /// Ends a lookup in its leaf.
    #[inline]
    fn read_at(
        &self,
        pool: &Pool,
        leaf: Leaf<'_>,
        spot: Spot,
        copy: Option<(&mut ValueReader, &mut Vec<u8>)>,
    ) -> Attempt<Lookup> {
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

    /// As [`Tree::get_placed`], for the beginning of a value: see [`Tree::try_get_head`].
    fn get_head<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        (key, bytes_max): (&[u8], usize),
        (reader, out): (&mut ValueReader, &mut Vec<u8>),
    ) -> Attempt<(Lookup, usize, Place)> {
        self.arrive_at(pool, access, key, |end| {
            let (here, node) = (end.leaf, end.node);
            let leaf = Leaf { here, node };
            if let Some(lookup) = leaf.read_short(end.spot, out)? {
                return Ok((lookup, out.len(), end.place(*self)));
            }
            let what = (end.spot, bytes_max);
            let (lookup, len) = self.read_long_head(pool, leaf, what, reader, out)?;
            Ok((lookup, len, end.place(*self)))
        })
    }

    /// Ends such a look-up in its leaf, where [`Leaf::read_short`] had no answer.
    fn read_long_head(
        &self,
        pool: &Pool,
        leaf: Leaf<'_>,
        (spot, bytes_max): (Spot, usize),
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Attempt<(Lookup, usize)> {
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
        let start = Start {
            node: self.root(pool, access)?,
            level: None,
        };
        let choose = |_, node: &FrameNode<'p>| node.child_for(key);
        let (here, node) = self.descend_from(pool, access, start, 0, choose)?;
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
        self.arrive_at(pool, access, key, |end| {
            let free_bytes = end.node.free_bytes();
            end.leaf.validate()?;
            Ok(Located {
                leaf: end.leaf.page(),
                place: end.place(*self),
                levels: end.levels,
                free_bytes,
            })
        })
    }

    /// Finds where `key` is, or belongs. Its leaf is warm: nothing else keeps it in memory until
    /// the key is changed, and one use of a page that was just read does not outlast the next step
    /// of the clock hand.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_find_place(&self, pool: &Pool, key: &[u8]) -> Attempt<Place> {
        retry_then_latch(pool, |latched| match latched {
            None => self.find_place(pool, &mut OptimisticAccess, key),
            Some(latched) => self.find_place(pool, latched, key),
        })
    }

    #[inline]
    fn find_place<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
    ) -> Attempt<Place> {
        self.arrive_at(pool, access, key, |end| {
            end.leaf.validate()?;
            end.leaf.warm();
            Ok(end.place(*self))
        })
    }

    /// Finds where `key` is, or belongs, and pins its leaf.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_pin_place<'p>(&self, pool: &'p Pool, key: &[u8]) -> Attempt<(Place, PagePin<'p>)> {
        retry_then_latch(pool, |latched| match latched {
            None => self.pin_place(pool, &mut OptimisticAccess, key),
            Some(latched) => self.pin_place(pool, latched, key),
        })
    }

    #[inline]
    fn pin_place<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
    ) -> Attempt<(Place, PagePin<'p>)> {
        self.arrive_at(pool, access, key, |end| {
            let pin = end.leaf.pin()?;
            end.leaf.validate()?;
            Ok((end.place(*self), pin))
        })
    }

    /// Finds where `key`, which the tree does not have, belongs, and looks at the record before
    /// it: does its key begin with the first `shared` bytes of `key`? If so, or if that is
    /// possible, replaces `before` by that key.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; what `before` holds then has no meaning.
    pub fn try_place(
        &self,
        pool: &Pool,
        (key, shared): (&[u8], usize),
        before: &mut Vec<u8>,
    ) -> Attempt<(Place, Before)> {
        retry_then_latch(pool, |latched| match latched {
            None => self.place(pool, &mut OptimisticAccess, (key, shared), before),
            Some(latched) => self.place(pool, latched, (key, shared), before),
        })
    }

    #[inline]
    fn place<'p>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        (key, shared): (&[u8], usize),
        before: &mut Vec<u8>,
    ) -> Attempt<(Place, Before)> {
        self.arrive_at(pool, access, key, |end| {
            let found = match end.spot.index.checked_sub(1) {
                None if end.is_leftmost => Before::Other,
                None => Before::Elsewhere,
                Some(index) if end.node.may_begin_alike(index, key, shared) => {
                    end.node.copy_key(index, before);
                    Before::Alike
                }
                Some(_) => Before::Other,
            };
            end.leaf.validate()?;
            Ok((end.place(*self), found))
        })
    }

    /// Descends to the leaf that covers `key`, finds its spot there, and ends with `end`. Nothing
    /// read from the leaf has been validated. Each end has a descent of its own: handed over, what
    /// was found would go through memory twice.
    #[inline]
    fn arrive_at<'p, R>(
        &self,
        pool: &'p Pool,
        access: &mut impl Access<'p>,
        key: &[u8],
        end: impl FnOnce(Arrival<'p>) -> Attempt<R>,
    ) -> Attempt<R> {
        let (mut levels, mut is_leftmost, mut is_rightmost) = (1, true, true);
        let start = Start {
            node: self.root(pool, access)?,
            level: None,
        };
        let choose = |_, node: &FrameNode<'p>| {
            levels += 1;
            let index = node.child_for(key);
            is_leftmost &= index == 0;
            is_rightmost &= index + 1 == node.count();
            index
        };
        let (leaf, node) = self.descend_from(pool, access, start, 0, choose)?;
        let candidate = ask_for_record(leaf, &node, key);
        end(Arrival {
            leaf,
            node,
            spot: node.find_at(candidate, key),
            levels,
            is_leftmost,
            is_rightmost,
        })
    }
}
