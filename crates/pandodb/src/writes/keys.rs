//! The keys that a batch writes, and what it does to each. A key is found by bisection while keys
//! come in order, in one pass while they are few, else by hash. The writes can go back to a
//! savepoint.

use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::ops::{Bound, Range};

use hashbrown::HashTable;
use pando_format::TreeId;
use pando_tree::Place;

use crate::blobs::value::LargeValue;
use crate::writes::journal::{Journal, Undo};
use crate::writes::order::KeyOrder;
use crate::writes::stripes::StripeIndex;

/// Beyond this many writes, keys that did not come in order are found by hash.
const SCANNED_MAX: usize = 16;

/// Replaced values of a batch take at most this many bytes, or half of all.
const REPLACED_BYTES_MAX: usize = 64 << 10;

/// What a batch does to one key.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// Has the place of the value. `frees_room`: it belongs to the removal of something larger.
    Put {
        value: Range<usize>,
        frees_room: bool,
    },
    PutLarge(LargeValue),
    Delete,
}

/// One key of a batch.
#[derive(Debug, Clone)]
pub(super) struct Write {
    /// Index of the table in the batch.
    pub(super) table: usize,
    /// In `KeyWrites::bytes`.
    key: Range<usize>,
    /// The last change of the key in this batch.
    pub(super) change: Change,
}

/// What a read of a key that is written has told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Told {
    /// Where it is; [`Place::default`] if it was not read.
    pub(crate) place: Place,
    /// Its stripe, and the tree of which it is that one. The table may have had another tree a
    /// moment later, where the place is.
    pub(crate) stripe: Option<(TreeId, StripeIndex)>,
}

impl Told {
    /// Returns the stripe of the key in `tree`, if that was told.
    #[inline]
    pub(crate) fn stripe_in(&self, tree: TreeId) -> Option<StripeIndex> {
        let (of, stripe) = self.stripe?;
        (of == tree).then_some(stripe)
    }
}

/// The writes of one batch, in the order in which their keys were first written. Reusable:
/// [`KeyWrites::clear`] keeps the memory.
#[derive(Debug)]
pub(super) struct KeyWrites {
    writes: Vec<Write>,
    /// Where the keys of the first writes are, as far as a read of them has told.
    places: Vec<Told>,
    /// KeyWrites and values of `writes`.
    bytes: Vec<u8>,
    /// Bytes of values in `bytes` that later writes have replaced, and no savepoint needs.
    replaced_bytes: usize,
    /// Tables and keys came in ascending order so far, so writes are found by bisection.
    is_ascending: bool,
    /// The hash of table and key of each write: two keys are compared only if these are equal.
    /// Empty while `is_ascending`.
    hashes: Vec<u64>,
    /// Positions of writes by hash. Used for more than [`SCANNED_MAX`] writes, unless
    /// `is_ascending`.
    index: HashTable<usize>,
    hasher: rapidhash::fast::RandomState,
    /// The writes in order, as of the last read of a range.
    order: KeyOrder,
    /// What a transaction with savepoints needs to go back.
    journal: Journal<Change>,
}

/// A state of the writes, to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Number of steps in the journal.
    steps: usize,
    bytes: usize,
}

impl Default for KeyWrites {
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            places: Vec::new(),
            bytes: Vec::new(),
            replaced_bytes: 0,
            is_ascending: true,
            hashes: Vec::new(),
            index: HashTable::new(),
            hasher: rapidhash::fast::RandomState::default(),
            order: KeyOrder::default(),
            journal: Journal::default(),
        }
    }
}

impl KeyWrites {
    /// Forgets everything but the memory.
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.places.clear();
        self.bytes.clear();
        self.replaced_bytes = 0;
        self.is_ascending = true;
        self.hashes.clear();
        self.index.clear();
        self.order.clear();
        self.journal.clear();
    }

    /// Bytes that are kept for the next use.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
            + self.writes.capacity() * size_of::<Write>()
            + self.places.capacity() * size_of::<Told>()
            + self.hashes.capacity() * size_of::<u64>()
            + self.index.capacity() * size_of::<usize>()
            + self.order.capacity()
            + self.journal.capacity()
    }

    /// Bytes that the writes take, and what savepoints need to go back, about.
    pub(super) fn memory(&self) -> usize {
        let places = size_of::<Write>() + size_of::<u64>() + 2 * size_of::<usize>();
        let seen = self.places.len() * size_of::<Told>();
        self.bytes.len() + self.writes.len() * places + seen + self.journal.memory()
    }

    /// Returns the writes.
    pub(super) fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Returns true if the writes are in the order of their tables and keys for certain.
    pub(super) fn is_ascending(&self) -> bool {
        self.is_ascending
    }

    /// Returns where the keys of the first writes are; [`Told::default`] for those that were not
    /// read.
    pub(super) fn places(&self) -> &[Told] {
        &self.places
    }

    /// Notes where the key of the write at `position` is.
    pub(super) fn set_place(&mut self, position: usize, place: Told) {
        debug_assert!(position < self.writes.len(), "the place of no write");
        if self.places.len() <= position {
            self.places.resize(position + 1, Told::default());
        }
        self.places[position] = place;
    }

    /// Returns the key of a write.
    pub(super) fn key(&self, write: &Write) -> &[u8] {
        &self.bytes[write.key.clone()]
    }

    /// Returns the value at a place that [`Change::Put`] names.
    pub(super) fn value(&self, place: &Range<usize>) -> &[u8] {
        &self.bytes[place.clone()]
    }

    /// Compares table and key of a write with `table` and `key`.
    fn compare(&self, write: &Write, table: usize, key: &[u8]) -> Ordering {
        let own = self.key(write);
        write.table.cmp(&table).then_with(|| own.cmp(key))
    }

    /// Returns the position of the write to a key.
    pub(super) fn find(&self, table: usize, key: &[u8]) -> Option<usize> {
        self.look_up(table, key).0
    }

    /// Returns the writes to `table` between two bounds: places in the order of their keys.
    pub(super) fn between(
        &mut self,
        table: usize,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Range<usize> {
        let (writes, bytes) = (&self.writes, &self.bytes);
        let of = |at: usize| (writes[at].table, &bytes[writes[at].key.clone()]);
        let compare = |one: usize, other: usize| of(one).cmp(&of(other));
        self.order.catch_up(writes.len(), compare);
        let is_before = |at: usize| match from {
            Bound::Included(from) => of(at) < (table, from),
            Bound::Excluded(from) => of(at) <= (table, from),
            Bound::Unbounded => of(at).0 < table,
        };
        let is_behind = |at: usize| match to {
            Bound::Included(to) => of(at) > (table, to),
            Bound::Excluded(to) => of(at) >= (table, to),
            Bound::Unbounded => of(at).0 > table,
        };
        self.order.between(is_before, is_behind)
    }

    /// Returns the position of the write at a place in the order of keys.
    pub(super) fn in_order(&self, place: usize) -> usize {
        self.order.at(place)
    }

    /// Returns the position of the write to a key, and the hash of the key, if hashes are in use.
    pub(super) fn look_up(&self, table: usize, key: &[u8]) -> (Option<usize>, Option<u64>) {
        if self.is_ascending {
            let compare = |write: &Write| self.compare(write, table, key);
            let found = match self.writes.last() {
                None => None,
                Some(last) if compare(last).is_lt() => None,
                Some(_) => self.writes.binary_search_by(compare).ok(),
            };
            return (found, None);
        }
        debug_assert_eq!(self.hashes.len(), self.writes.len(), "each has its hash");
        let hash = self.hash(table, key);
        let is_it = |at: usize| self.hashes[at] == hash && self.is_of(at, table, key);
        if self.writes.len() <= SCANNED_MAX {
            // What was written last is written again most often.
            return ((0..self.hashes.len()).rfind(|at| is_it(*at)), Some(hash));
        }
        debug_assert_eq!(self.index.len(), self.writes.len(), "the index has all");
        let found = self.index.find(hash, |at| is_it(*at));
        (found.copied(), Some(hash))
    }

    fn hash(&self, table: usize, key: &[u8]) -> u64 {
        self.hasher.hash_one((table, key))
    }

    /// Returns whether the write at `position` is to this key.
    fn is_of(&self, position: usize, table: usize, key: &[u8]) -> bool {
        let write = &self.writes[position];
        write.table == table && self.key(write) == key
    }

    /// Adds the last write, whose hash is `own`, to the hashes, and to the index if it is in use.
    fn index_last(&mut self, own: u64) {
        self.hashes.push(own);
        let count = self.hashes.len();
        debug_assert_eq!(count, self.writes.len(), "the others have theirs");
        match count.cmp(&(SCANNED_MAX + 1)) {
            Ordering::Less => {}
            Ordering::Equal => self.index_all(),
            Ordering::Greater => self.index_write(count - 1),
        }
    }

    fn index_write(&mut self, position: usize) {
        let hashes = &self.hashes;
        let hash = |at: &usize| hashes[*at];
        self.index.insert_unique(hashes[position], position, hash);
    }

    /// Makes the index again, if it is in use.
    fn index_all(&mut self) {
        self.index.clear();
        if self.hashes.len() > SCANNED_MAX {
            (0..self.hashes.len()).for_each(|position| self.index_write(position));
        }
    }

    /// Makes hashes and index again, if they are in use.
    fn hash_all(&mut self) {
        self.hashes.clear();
        if !self.is_ascending {
            for write in &self.writes {
                let hash = self.hash(write.table, self.key(write));
                self.hashes.push(hash);
            }
        }
        self.index_all();
    }

    /// Appends to `bytes`, and returns the range.
    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Appends a value of two parts, for a write that follows.
    #[inline]
    pub(super) fn append_value(
        &mut self,
        (head, rest): (&[u8], &[u8]),
        frees_room: bool,
    ) -> Change {
        let start = self.bytes.len();
        self.bytes.reserve(head.len() + rest.len());
        self.bytes.extend_from_slice(head);
        if !rest.is_empty() {
            self.bytes.extend_from_slice(rest);
        }
        let value = start..self.bytes.len();
        Change::Put { value, frees_room }
    }

    /// Drops the values that later writes have replaced. Not while there is a savepoint.
    fn drop_replaced(&mut self) {
        let mut bytes = Vec::new();
        let mut keep = |range: &mut Range<usize>| {
            let start = bytes.len();
            bytes.extend_from_slice(&self.bytes[range.clone()]);
            *range = start..bytes.len();
        };
        for write in &mut self.writes {
            keep(&mut write.key);
            if let Change::Put { value, .. } = &mut write.change {
                keep(value);
            }
        }
        self.bytes = bytes;
        self.replaced_bytes = 0;
    }

    /// Replaces the value of the write at `position` by `value`: the same bytes, written to chunks.
    pub(super) fn replace_value(&mut self, position: usize, value: LargeValue) {
        let change = &mut self.writes[position].change;
        assert!(
            matches!(change, Change::Put { .. }),
            "only a value that is not in chunks yet moves"
        );
        *change = Change::PutLarge(value);
    }

    /// Adds a write, or replaces the earlier one to the same key. A value is in `bytes` already.
    /// Returns the position of the write.
    pub(super) fn note(&mut self, table: usize, key: &[u8], change: Change) -> usize {
        let (known, hash) = self.look_up(table, key);
        if let Some(known) = known {
            let old = std::mem::replace(&mut self.writes[known].change, change);
            if self.journal.is_kept() {
                self.journal.replaced(known, old);
            } else if let Change::Put { value, .. } = old {
                self.replaced_bytes += value.len();
                if self.replaced_bytes > REPLACED_BYTES_MAX.max(self.bytes.len() / 2) {
                    self.drop_replaced();
                }
            }
            return known;
        }
        self.add(table, key, change, hash)
    }

    /// As [`KeyWrites::note`], for a key that has no write; `hash` is what a look-up has returned
    /// with that, after which nothing was written.
    pub(super) fn add(
        &mut self,
        table: usize,
        key: &[u8],
        change: Change,
        hash: Option<u64>,
    ) -> usize {
        debug_assert!(self.find(table, key).is_none(), "a key has one write");
        if self.is_ascending
            && let Some(last) = self.writes.last()
        {
            self.is_ascending = self.compare(last, table, key).is_lt();
        }
        let key = self.append(key);
        self.writes.push(Write { table, key, change });
        self.journal.added();
        match hash {
            Some(hash) => self.index_last(hash),
            None if self.is_ascending => {}
            None => self.hash_all(),
        }
        self.writes.len() - 1
    }

    /// Forgets the writes to a table, which is changed as a whole.
    pub(super) fn forget_table(&mut self, table: usize) {
        assert!(!self.journal.is_kept(), "a transaction changes no tables");
        self.writes.retain(|write| write.table != table);
        self.places.clear();
        self.order.clear();
        self.hash_all();
    }

    /// Returns the state of the writes, for [`KeyWrites::go_back`].
    pub(super) fn mark(&mut self) -> Mark {
        Mark {
            steps: self.journal.keep(),
            bytes: self.bytes.len(),
        }
    }

    /// Forgets all writes since `mark`, which must not be later than another mark that they went
    /// back to.
    pub(super) fn go_back(&mut self, mark: Mark) {
        while let Some(undo) = self.journal.pop_beyond(mark.steps) {
            match undo {
                Undo::Replaced(position, old) => self.writes[position].change = old,
                Undo::Added => drop(self.writes.pop()),
            }
        }
        self.bytes.truncate(mark.bytes);
        self.places.truncate(self.writes.len());
        self.order.truncate(self.writes.len());
        self.hashes.truncate(self.writes.len());
        self.index_all();
    }
}
