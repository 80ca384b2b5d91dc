//! Iterators over a range of keys, in both directions, one leaf at a time (decision 021).
//!
//! An iterator borrows the handle that it was made from. Cloning the handle would write a cache
//! line that all cores share, twice per scan.

use std::borrow::Cow;
use std::ops::{Bound, RangeBounds};

use pando_sync::Arc;
use pando_tree::{Direction, ScanValue};
use pando_versions::Registration;

use crate::api::range_end::{RangeEnd, Source};
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::error::{Error, Result};

/// Key and value of an entry.
pub type Entry = (Vec<u8>, Vec<u8>);

/// Entries of a table in a range of keys: see [`Table::range`]. Between calls it pins nothing and
/// holds only a copy of one leaf for each end. If the table is dropped, the iterator ends with
/// [`crate::Error::NoSuchTable`].
#[derive(Debug)]
pub struct Iter<'t> {
    table: Cow<'t, Table>,
    /// The moment that it shows; None: each leaf as it is when it is read.
    snapshot: Option<Cow<'t, Snapshot>>,
    front: RangeEnd,
    back: RangeEnd,
    /// The value that is shown, if it lies outside of its leaf.
    long: Vec<u8>,
    done: bool,
    /// Why it fails before it begins.
    failed: Option<Error>,
}

/// What the next entry at one end of a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NextEntry {
    /// One that lies in its leaf.
    Short,
    /// One whose value has to be read; it may have been deleted meanwhile.
    Long,
    /// In a leaf that has to be loaded.
    NotLoaded,
    /// There is none.
    None,
}

/// An entry, with its value if that lies in the leaf.
#[derive(Debug)]
pub(crate) enum LeafRow<'a> {
    /// Key and value.
    Short(&'a [u8], &'a [u8]),
    /// The key of a value that has to be read.
    Long(&'a [u8]),
}

/// What is read for the next entry at one end of a range.
#[derive(Debug)]
pub(crate) struct ReadFor<'a> {
    pub(crate) table: &'a Table,
    pub(crate) snapshot: Option<&'a Snapshot>,
    pub(crate) end: &'a mut RangeEnd,
    /// The bound of the other end.
    pub(crate) until: Bound<&'a [u8]>,
    /// Where a value goes that lies outside of its leaf.
    pub(crate) long: &'a mut Vec<u8>,
}

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        let engine = self.table.db().engine();
        self.front.end(engine);
        self.back.end(engine);
    }
}

impl<'t> Iter<'t> {
    /// Returns an iterator over the keys from `start` to `end`. Reads nothing yet.
    pub(crate) fn new(table: Cow<'t, Table>, start: Bound<Vec<u8>>, end: Bound<Vec<u8>>) -> Self {
        let statistics = &table.db().engine().store.statistics;
        statistics.tick(pando_stats::Ticker::Scans, 1);
        Self {
            table,
            snapshot: None,
            front: RangeEnd::new(Direction::Forward, start),
            back: RangeEnd::new(Direction::Backward, end),
            long: Vec::new(),
            done: false,
            failed: None,
        }
    }

    /// The snapshot whose moment it shows.
    pub(crate) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// Makes it show the moment of `snapshot`.
    pub(crate) fn at(mut self, snapshot: Cow<'t, Snapshot>) -> Self {
        if !Arc::ptr_eq(self.table.db.engine(), snapshot.db().engine()) {
            self.failed = Some(Error::OtherStore);
        }
        self.snapshot = Some(snapshot);
        self
    }

    /// Returns the same iterator with a handle of its own, so that it may outlive the handle that
    /// it was made from. Writes a cache line that all cores share.
    pub fn into_owned(mut self) -> Iter<'static> {
        let nothing = |direction| RangeEnd::new(direction, Bound::Unbounded);
        Iter {
            table: Cow::Owned(Table::clone(&self.table)),
            snapshot: self
                .snapshot
                .take()
                .map(|snapshot| Cow::Owned(snapshot.into_owned())),
            failed: self.failed.take(),
            front: std::mem::replace(&mut self.front, nothing(Direction::Forward)),
            back: std::mem::replace(&mut self.back, nothing(Direction::Backward)),
            long: std::mem::take(&mut self.long),
            done: self.done,
        }
    }

    /// Returns the next entry where it lies, instead of copying it to the heap. It is valid until
    /// the next call.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// let (mut iter, mut bytes) = (table.iter(), 0);
    /// while let Some((key, value)) = iter.next_ref().transpose()? {
    ///     bytes += key.len() + value.len();
    /// }
    /// assert_eq!(bytes, 20);
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    #[inline]
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(Direction::Forward)
    }

    /// As [`Iter::next_ref`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    #[inline]
    pub fn next_back_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        self.step(Direction::Backward)
    }

    /// Calls `f` with each entry that is left, where it lies, until there are no more. `f` may call
    /// the store.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// let mut bytes = 0;
    /// table.iter().for_each_ref(|key, value| bytes += key.len() + value.len())?;
    /// assert_eq!(bytes, 20);
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn for_each_ref(&mut self, mut f: impl FnMut(&[u8], &[u8])) -> Result<()> {
        self.try_for_each_ref(|key, value| {
            f(key, value);
            Ok(())
        })
    }

    /// As [`Iter::for_each_ref`], until `f` fails; the iterator then goes on behind that entry.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// let mut csv = Vec::new();
    /// let written = table.iter().try_for_each_ref(|key, value| {
    ///     use std::io::Write;
    ///     csv.write_all(&[key, b",", value, b"\n"].concat())?;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// });
    /// assert!(written.is_ok());
    /// assert_eq!(csv, b"apple,red\nbanana,yellow\n");
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// That of `f`, and as the items of the iterator.
    pub fn try_for_each_ref<E: From<Error>>(
        &mut self,
        mut f: impl FnMut(&[u8], &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        while let Some((key, value)) = self.next_ref().transpose()? {
            f(key, value)?;
        }
        Ok(())
    }

    /// Calls `f` with the next entry, where it lies. `f` may call the store.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// # table.put(b"banana", b"yellow")?;
    /// let (mut iter, mut bytes) = (table.iter(), 0);
    /// while let Some(entry) = iter.next_with(|key, value| key.len() + value.len()) {
    ///     bytes += entry?;
    /// }
    /// assert_eq!(bytes, 20);
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<Result<R>> {
        let entry = self.next_ref()?;
        Some(entry.map(|(key, value)| f(key, value)))
    }

    /// As [`Iter::next_with`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_back_with<R>(&mut self, f: impl FnOnce(&[u8], &[u8]) -> R) -> Option<Result<R>> {
        let entry = self.next_back_ref()?;
        Some(entry.map(|(key, value)| f(key, value)))
    }

    /// Returns the key of the next entry, where it lies. Its value is not read if that lies outside
    /// of its leaf.
    ///
    /// ```
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let table = db.table("fruit")?;
    /// # table.put(b"apple", b"red")?;
    /// table.put(b"banana", &vec![b'y'; 2 << 20])?;
    /// let (mut iter, mut longest) = (table.iter(), Vec::new());
    /// while let Some(key) = iter.next_key().transpose()? {
    ///     if key.len() > longest.len() {
    ///         longest = key.to_vec();
    ///     }
    /// }
    /// assert_eq!(longest, b"banana");
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_key(&mut self) -> Option<Result<&[u8]>> {
        self.step_key(Direction::Forward)
    }

    /// As [`Iter::next_key`], from the end of the range.
    ///
    /// # Errors
    /// As the items of the iterator.
    pub fn next_back_key(&mut self) -> Option<Result<&[u8]>> {
        self.step_key(Direction::Backward)
    }

    fn step_key(&mut self, direction: Direction) -> Option<Result<&[u8]>> {
        let row = self.step_row(direction)?;
        Some(row.map(|row| match row {
            LeafRow::Short(key, _) | LeafRow::Long(key) => key,
        }))
    }

    /// Returns the next entry; its value is not read if that lies outside of its leaf.
    pub(crate) fn next_row(&mut self) -> Option<Result<LeafRow<'_>>> {
        self.step_row(Direction::Forward)
    }

    fn step_row(&mut self, direction: Direction) -> Option<Result<LeafRow<'_>>> {
        let looked = loop {
            match self.look(direction) {
                Ok(NextEntry::NotLoaded) => {
                    if let Err(error) = self.load(direction) {
                        break Err(error);
                    }
                }
                looked => break looked,
            }
        };
        match looked {
            Ok(NextEntry::None) => None,
            Ok(next) => {
                let position = self.pass(direction);
                let (key, value) = self.entry(direction, position);
                Some(Ok(match next {
                    NextEntry::Long => LeafRow::Long(key),
                    _ => LeafRow::Short(key, value),
                }))
            }
            Err(error) => {
                self.finish();
                Some(Err(error))
            }
        }
    }

    /// The end of the range for `direction`, and the other one.
    #[inline]
    fn ends(&mut self, direction: Direction) -> (&mut RangeEnd, &mut RangeEnd) {
        match direction {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        }
    }

    /// Returns what is read for the next entry at the end for `direction`.
    pub(crate) fn read_for(&mut self, direction: Direction) -> ReadFor<'_> {
        let (end, other) = match direction {
            Direction::Forward => (&mut self.front, &mut self.back),
            Direction::Backward => (&mut self.back, &mut self.front),
        };
        ReadFor {
            table: &self.table,
            snapshot: self.snapshot.as_deref(),
            end,
            until: other.rest(),
            long: &mut self.long,
        }
    }

    /// Returns the next entry at the end for `direction`; None when the range is exhausted.
    #[inline]
    fn step(&mut self, direction: Direction) -> Option<Result<(&[u8], &[u8])>> {
        let position = match self.next_in_leaf(direction) {
            Some(position) => position,
            None => match self.advance(direction) {
                Ok(position) => position?,
                Err(error) => {
                    self.finish();
                    return Some(Err(error));
                }
            },
        };
        Some(Ok(self.entry(direction, position)))
    }

    /// Moves over the next entry at the end for `direction`, if it is in the same leaf with its
    /// value, and returns its position there.
    #[inline]
    pub(crate) fn next_in_leaf(&mut self, direction: Direction) -> Option<usize> {
        let (end, other) = self.ends(direction);
        let position = end.next;
        if position >= end.limit || end.is_long(position) {
            return None;
        }
        debug_assert_eq!(other.limit, 0, "both ends know where the other one is");
        end.next = position + 1;
        Some(position)
    }

    /// Returns entry `position` of the leaf at the end for `direction`, with the long value that
    /// was read for it.
    #[inline]
    pub(crate) fn entry(&mut self, direction: Direction, position: usize) -> (&[u8], &[u8]) {
        let end = match direction {
            Direction::Forward => &mut self.front,
            Direction::Backward => &mut self.back,
        };
        debug_assert!(end.is_beyond_bound(position), "a scan that goes back");
        let (key, value) = end.entry(position);
        match value {
            ScanValue::Inline(value) => (key, value),
            ScanValue::Long => (key, &self.long),
        }
    }

    /// Nothing more is shown.
    pub(crate) fn finish(&mut self) {
        self.done = true;
        self.front.limit = 0;
        self.back.limit = 0;
    }

    /// Moves over the next entry, into another leaf if need be, and reads its value if it is not in
    /// the leaf. Returns its position in its leaf; None when the range is exhausted.
    fn advance(&mut self, direction: Direction) -> Result<Option<usize>> {
        loop {
            match self.look(direction)? {
                NextEntry::None => return Ok(None),
                NextEntry::Short => return Ok(Some(self.pass(direction))),
                NextEntry::NotLoaded => self.load(direction)?,
                NextEntry::Long => {
                    let found = self.read_long(direction)?;
                    let position = self.pass(direction);
                    if found {
                        return Ok(Some(position));
                    }
                }
            }
        }
    }

    /// Says what the next entry at the end for `direction` is. From then on this end may move, and
    /// the other one has to look where it is.
    ///
    /// # Errors
    /// Why the iterator fails before it begins.
    pub(crate) fn look(&mut self, direction: Direction) -> Result<NextEntry> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        while !self.done {
            let (end, other) = self.ends(direction);
            if !end.is_loaded {
                return Ok(NextEntry::NotLoaded);
            }
            let until = other.rest();
            end.set_limit(until);
            if end.next < end.limit {
                other.limit = 0;
                return Ok(match end.is_long(end.next) {
                    true => NextEntry::Long,
                    false => NextEntry::Short,
                });
            }
            if end.limit < end.len() || !end.leave(until) {
                self.finish();
            }
        }
        Ok(NextEntry::None)
    }

    /// Moves over the entry that [`Iter::look`] has found, and returns its position in its leaf.
    pub(crate) fn pass(&mut self, direction: Direction) -> usize {
        let (end, _) = self.ends(direction);
        let position = end.next;
        assert!(position < end.limit, "it was found before");
        end.next = position + 1;
        position
    }

    /// Reads the value of the next entry, which is not in its leaf. Returns whether the key is
    /// still there.
    fn read_long(&mut self, direction: Direction) -> Result<bool> {
        let ReadFor {
            table,
            snapshot,
            end,
            long,
            ..
        } = self.read_for(direction);
        let (key, _) = end.entry(end.next);
        match snapshot {
            Some(snapshot) => snapshot.get_into(table, key, long),
            None => table.get_into(key, long),
        }
    }

    /// Loads the next leaf at the end for `direction`.
    fn load(&mut self, direction: Direction) -> Result<()> {
        let ReadFor {
            table,
            snapshot,
            end,
            until,
            ..
        } = self.read_for(direction);
        let Some(snapshot) = snapshot else {
            return end.load(table.source(None), until);
        };
        if snapshot.settled().is_none() {
            match end.load(table.source(Some(snapshot.registration())), until) {
                // It may have been settled meanwhile.
                Err(Error::SnapshotEnded) => {}
                loaded => return loaded,
            }
        }
        let settled = snapshot.settled().ok_or(Error::SnapshotEnded)?;
        let tree = snapshot.tree_of(table)?;
        end.load_settled(table.db.engine(), (&settled, tree), until)
    }
}

/// Returns a copy of an entry.
pub(crate) fn copied(key: &[u8], value: &[u8]) -> Entry {
    (key.to_vec(), value.to_vec())
}

impl Iterator for Iter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.next_with(copied)
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.next_back_with(copied)
    }
}

impl Table {
    /// Returns its entries, as they are or as they were `then`.
    pub(crate) fn source<'a>(&'a self, then: Option<&'a Registration>) -> Source<'a> {
        Source {
            engine: self.db.engine(),
            table: &self.state,
            then,
        }
    }

    /// Returns the entries with keys in `range`, ascending; `rev()` makes it descending. Each entry
    /// is committed, as of some moment between the call and its return. Entries that are put or
    /// deleted during the iteration may or may not be seen; all others are seen exactly once.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Iter<'_> {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Iter::new(
            Cow::Borrowed(self),
            own(range.start_bound()),
            own(range.end_bound()),
        )
    }

    /// Returns all entries, as [`Table::range`].
    pub fn iter(&self) -> Iter<'_> {
        Iter::new(Cow::Borrowed(self), Bound::Unbounded, Bound::Unbounded)
    }

    /// Returns the entries whose keys begin with `prefix`, as [`Table::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Iter<'_> {
        let mut end = prefix.to_vec();
        // The least key after all keys with this prefix: drop trailing 0xff bytes, then add one to
        // the last byte.
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        let end = match end.last_mut() {
            Some(last) => {
                *last += 1;
                Bound::Excluded(end)
            }
            None => Bound::Unbounded,
        };
        Iter::new(Cow::Borrowed(self), Bound::Included(prefix.to_vec()), end)
    }
}

impl Snapshot {
    /// Returns the entries of `table` with keys in `range` at this moment, ascending; `rev()` makes
    /// it descending.
    pub fn range<'s, 'k>(
        &'s self,
        table: &'s Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> Iter<'s> {
        table.range(range).at(Cow::Borrowed(self))
    }

    /// Returns all entries of `table` at this moment, as [`Snapshot::range`].
    pub fn iter<'s>(&'s self, table: &'s Table) -> Iter<'s> {
        table.iter().at(Cow::Borrowed(self))
    }

    /// Returns the entries of `table` whose keys begin with `prefix` at this moment, as
    /// [`Snapshot::range`].
    pub fn prefix<'s>(&'s self, table: &'s Table, prefix: &[u8]) -> Iter<'s> {
        table.prefix(prefix).at(Cow::Borrowed(self))
    }
}

impl<'t> IntoIterator for &'t Table {
    type Item = Result<Entry>;
    type IntoIter = Iter<'t>;

    fn into_iter(self) -> Iter<'t> {
        self.iter()
    }
}
