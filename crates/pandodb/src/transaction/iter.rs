//! Ranges of a transaction: what is stored, with its own writes on top.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::{Bound, ControlFlow, RangeBounds};

use crate::api::iter::{Entry, Iter};
use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::transaction::handle::Transaction;
use crate::writes::read_set::ReadSet;
use crate::writes::set::{Value, WriteSet};

/// The entries of a range, as a transaction sees them; made by [`Transaction::range`]. What it has
/// returned was read, with all that lies between, and nothing else: ten entries of a million
/// protect a transaction from changes up to the tenth.
#[derive(Debug)]
pub struct TransactionIter<'t> {
    pub(crate) stored: Iter<'t>,
    set: &'t WriteSet,
    /// None if the transaction does not remember what it reads.
    reads: Option<&'t mut ReadSet>,
    /// Positions of the transaction's own writes that are left in the range, by key.
    own: VecDeque<usize>,
    /// The next stored entry at each end, if it was taken already.
    front: Option<Entry>,
    back: Option<Entry>,
    /// It reads no values that lie outside of their leaves, and returns none of those.
    is_of_keys: bool,
    /// Why it fails before it begins.
    pub(crate) failed: Option<Error>,
    /// It has come to its end, or failed.
    pub(crate) is_over: bool,
}

impl Transaction {
    /// Returns the entries of `table` with keys in `range`, ascending; `rev()` makes it descending.
    pub fn range<'t, 'k>(
        &'t mut self,
        table: &'t Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> TransactionIter<'t> {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        let bounds = (own(range.start_bound()), own(range.end_bound()));
        let begun = self.begin_range(table, &bounds);
        let own = match begun {
            Ok(_) => self.own_writes(table, &bounds),
            Err(_) => VecDeque::new(),
        };
        let Self {
            snapshot,
            set,
            reads,
            ..
        } = self;
        let (low, high) = bounds;
        let stored = Iter::new(Cow::Borrowed(table), low, high);
        let (remembers, failed) = match begun {
            Ok(remembers) => (remembers, None),
            Err(error) => (false, Some(error)),
        };
        TransactionIter {
            stored: match snapshot {
                Some(snapshot) => stored.at(Cow::Borrowed(snapshot)),
                None => stored,
            },
            set,
            reads: remembers.then_some(reads),
            own,
            front: None,
            back: None,
            is_of_keys: false,
            failed,
            is_over: false,
        }
    }

    /// As [`Transaction::range`], of keys: values are empty.
    pub(crate) fn range_of_keys<'t, 'k>(
        &'t mut self,
        table: &'t Table,
        range: impl RangeBounds<&'k [u8]>,
    ) -> TransactionIter<'t> {
        TransactionIter {
            is_of_keys: true,
            ..self.range(table, range)
        }
    }

    /// Returns the positions of its own writes in a range of `table`, by key.
    pub(crate) fn own_writes(
        &mut self,
        table: &Table,
        (low, high): &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> VecDeque<usize> {
        let table = self.set.table(&table.state);
        assert!(self.ordered <= self.set.len(), "writes were forgotten");
        for at in self.ordered..self.set.len() {
            let (of, key, _) = self.set.write_at(at);
            self.own_keys.insert((of, key.to_vec()));
        }
        self.ordered = self.set.len();
        assert_eq!(
            self.own_keys.len(),
            self.ordered,
            "each key is written once"
        );
        let low = match low {
            Bound::Included(key) => Bound::Included((table, key.clone())),
            Bound::Excluded(key) => Bound::Excluded((table, key.clone())),
            Bound::Unbounded => Bound::Included((table, Vec::new())),
        };
        let is_within = |key: &[u8]| match high {
            Bound::Included(high) => key <= &high[..],
            Bound::Excluded(high) => key < &high[..],
            Bound::Unbounded => true,
        };
        let from_low = self.own_keys.range((low, Bound::Unbounded));
        from_low
            .take_while(|(of, key)| *of == table && is_within(key))
            .map(|(of, key)| {
                let position = self.set.find(*of, key);
                position.expect("the set has each key that it has had before")
            })
            .collect()
    }

    /// Returns all entries of `table`, as [`Transaction::range`].
    pub fn iter<'t>(&'t mut self, table: &'t Table) -> TransactionIter<'t> {
        self.range(table, ..)
    }

    /// Takes the snapshot, and has the range noted. Returns whether what is read is remembered.
    fn begin_range(
        &mut self,
        table: &Table,
        (low, high): &(Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Result<bool> {
        self.check_store(table)?;
        self.check_usable()?;
        self.take_snapshot()?;
        let Some(snapshot) = self.snapshot.as_ref().filter(|_| self.remembers_reads()) else {
            return Ok(false);
        };
        let tree = snapshot
            .tree_of(table)
            .map_err(|error| self.of_failed_read(table, error))?;
        self.reads
            .begin_range((&table.state, tree), low.clone(), high.clone());
        self.count_reads();
        Ok(true)
    }
}

/// Which of the two next entries comes first, or whether both are of one key.
enum Foremost {
    Stored,
    Own,
    Both,
    None,
}

fn without_value(key: Result<&[u8]>) -> Result<Entry> {
    Ok((key?.to_vec(), Vec::new()))
}

impl TransactionIter<'_> {
    fn own_at(&self, at: usize) -> (&[u8], Option<Value<'_>>) {
        let (_, key, value) = self.set.write_at(at);
        (key, value)
    }

    /// Compares the next stored entry with the next own write, at one end.
    fn compare(&self, stored: Option<&Entry>, own: Option<usize>, is_forward: bool) -> Foremost {
        let (stored, own) = match (stored, own) {
            (None, None) => return Foremost::None,
            (Some(_), None) => return Foremost::Stored,
            (None, Some(_)) => return Foremost::Own,
            (Some((key, _)), Some(own)) => (&key[..], self.own_at(own).0),
        };
        match stored.cmp(own) {
            Ordering::Equal => Foremost::Both,
            Ordering::Less if is_forward => Foremost::Stored,
            Ordering::Greater if !is_forward => Foremost::Stored,
            Ordering::Less | Ordering::Greater => Foremost::Own,
        }
    }

    /// Returns the next entry at the front, or at the back; after an error none.
    fn step(&mut self, is_forward: bool) -> Option<Result<Entry>> {
        if self.is_over {
            return None;
        }
        let entry = match self.failed.take() {
            Some(error) => Err(error),
            None => self.next_entry(is_forward),
        };
        self.ended(entry)
    }

    /// Notes what an attempt to go on has come to, and returns it.
    pub(crate) fn ended(&mut self, entry: Result<Option<Entry>>) -> Option<Result<Entry>> {
        self.is_over = !matches!(entry, Ok(Some(_)));
        if let (Err(Error::SnapshotEnded), Some(snapshot)) = (&entry, self.stored.snapshot()) {
            snapshot.of_transaction().note_failed();
        }
        entry.transpose()
    }

    fn next_entry(&mut self, is_forward: bool) -> Result<Option<Entry>> {
        loop {
            if self.wants_stored(is_forward) {
                let next = match (is_forward, self.is_of_keys) {
                    (true, false) => self.stored.next(),
                    (false, false) => self.stored.next_back(),
                    (true, true) => self.stored.next_key().map(without_value),
                    (false, true) => self.stored.next_back_key().map(without_value),
                };
                self.take_stored(is_forward, next)?;
            }
            if let ControlFlow::Break(entry) = self.merge(is_forward)? {
                return Ok(entry);
            }
        }
    }

    /// Returns whether the next stored entry at one end has to be taken before the next entry is
    /// known.
    pub(crate) fn wants_stored(&self, is_forward: bool) -> bool {
        match is_forward {
            true => self.front.is_none(),
            false => self.back.is_none(),
        }
    }

    /// Takes the next stored entry at one end. The two ends may meet: the last entry is then what
    /// the other end has taken.
    pub(crate) fn take_stored(
        &mut self,
        is_forward: bool,
        next: Option<Result<Entry>>,
    ) -> Result<()> {
        let (own, other) = match is_forward {
            true => (&mut self.front, &mut self.back),
            false => (&mut self.back, &mut self.front),
        };
        *own = next.transpose()?.or_else(|| other.take());
        Ok(())
    }

    /// Moves over the next entry at one end, and returns it, or that there is none; goes on if the
    /// transaction has deleted it.
    pub(crate) fn merge(&mut self, is_forward: bool) -> Result<ControlFlow<Option<Entry>>> {
        let (stored, own) = match is_forward {
            true => (self.front.as_ref(), self.own.front()),
            false => (self.back.as_ref(), self.own.back()),
        };
        let next = self.compare(stored, own.copied(), is_forward);
        let stored = match (&next, is_forward) {
            (Foremost::Own | Foremost::None, _) => None,
            (_, true) => self.front.take(),
            (_, false) => self.back.take(),
        };
        let own = match (&next, is_forward) {
            (Foremost::Stored | Foremost::None, _) => None,
            (_, true) => self.own.pop_front(),
            (_, false) => self.own.pop_back(),
        };
        let entry = match own {
            None => stored,
            Some(own) => match self.own_at(own) {
                (key, Some(_)) if self.is_of_keys => Some((key.to_vec(), Vec::new())),
                (key, Some(Value::Bytes(value))) => Some((key.to_vec(), value.to_vec())),
                (_, Some(Value::Chunks(_))) => return Err(Error::InChunks),
                (key, None) => {
                    let key = key.to_vec();
                    self.note(&key, is_forward);
                    return Ok(ControlFlow::Continue(()));
                }
            },
        };
        match &entry {
            Some((key, _)) => self.note(key, is_forward),
            None => {
                if let Some(reads) = &mut self.reads {
                    reads.pass_all();
                }
            }
        }
        Ok(ControlFlow::Break(entry))
    }

    fn note(&mut self, key: &[u8], is_forward: bool) {
        if let Some(reads) = &mut self.reads {
            match is_forward {
                true => reads.pass_front(key),
                false => reads.pass_back(key),
            }
        }
    }
}

impl Iterator for TransactionIter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        self.step(true)
    }
}

impl DoubleEndedIterator for TransactionIter<'_> {
    fn next_back(&mut self) -> Option<Result<Entry>> {
        self.step(false)
    }
}
