//! The records of a leaf as a snapshot sees them: what the leaf has, and what versions say of the
//! keys of its range (decision 067).

use std::cmp::Ordering;
use std::ops::{Bound, Range};

use pando_format::{Lsn, TreeId};
use pando_pool::Attempt;
use pando_tree::{Direction, LeafCopy, ScanBound, ScanValue};
use pando_versions::{BeforeImage, VersionRange, VersionScratch, Versions};

/// Records in scan order, of which one is shown at a time.
pub(crate) trait Records {
    /// Returns their number.
    fn len(&self) -> usize;
    /// Returns record `index`.
    fn entry(&mut self, index: usize) -> (&[u8], ScanValue<'_>);
}

impl Records for LeafCopy {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn entry(&mut self, index: usize) -> (&[u8], ScanValue<'_>) {
        Self::entry(self, index)
    }
}

impl Records for &MergedLeaf {
    fn len(&self) -> usize {
        MergedLeaf::len(self)
    }

    fn entry(&mut self, index: usize) -> (&[u8], ScanValue<'_>) {
        self.get(index)
    }
}

/// Records in scan order. Buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct MergedLeaf {
    bytes: Vec<u8>,
    records: Vec<Record>,
    range: VersionRange,
    scratch: VersionScratch,
}

#[derive(Debug)]
struct Record {
    key: Range<usize>,
    /// None for a value that lies outside of leaves.
    value: Option<Range<usize>>,
}

/// Returns the value that a version says a key had.
fn value_of(image: BeforeImage<'_>) -> Option<ScanValue<'_>> {
    match image {
        BeforeImage::Absent => None,
        BeforeImage::Bytes(bytes) => Some(ScanValue::Inline(bytes)),
        BeforeImage::Overflow(_) | BeforeImage::Chunks(_) | BeforeImage::ChunksInOverflow(_) => {
            Some(ScanValue::Long)
        }
    }
}

impl MergedLeaf {
    /// Returns the number of records.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Bytes that the records take.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.len() + size_of_val(&self.records[..])
    }

    /// Returns record `index` in scan order, as [`LeafCopy::entry`] does.
    pub(crate) fn get(&self, index: usize) -> (&[u8], ScanValue<'_>) {
        let record = &self.records[index];
        let value = record.value.clone();
        let value = value.map_or(ScanValue::Long, |value| {
            ScanValue::Inline(&self.bytes[value])
        });
        (&self.bytes[record.key.clone()], value)
    }

    /// Replaces the records by those of `leaf`, the copy of a leaf of `tree` from `bound` on, as
    /// they were at `lsn`. What it says counts if the snapshot has not ended since.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub(crate) fn merge(
        &mut self,
        versions: &Versions,
        (tree, lsn): (TreeId, Lsn),
        (bound, direction): (ScanBound<'_>, Direction),
        leaf: &mut LeafCopy,
    ) -> Attempt<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let collect = |bounds: (Bound<&[u8]>, Bound<&[u8]>), range: &mut VersionRange| {
            versions.collect(tree, bounds, lsn, range, &mut scratch)
        };
        let merged = self.merge_with(collect, (bound, direction), leaf);
        self.scratch = scratch;
        merged
    }

    /// As [`MergedLeaf::merge`], with the versions that `collect` finds between two bounds.
    ///
    /// # Errors
    /// Those of `collect`.
    pub(crate) fn merge_with<E>(
        &mut self,
        collect: impl FnOnce((Bound<&[u8]>, Bound<&[u8]>), &mut VersionRange) -> Result<(), E>,
        (bound, direction): (ScanBound<'_>, Direction),
        leaf: &mut LeafCopy,
    ) -> Result<(), E> {
        let end = match leaf.next_bound() {
            None => Bound::Unbounded,
            Some(Bound::Included(key)) => Bound::Excluded(key),
            Some(Bound::Excluded(key)) => Bound::Included(key),
            Some(Bound::Unbounded) => Bound::Unbounded,
        };
        let bounds = match direction {
            Direction::Forward => (bound, end),
            Direction::Backward => (end, bound),
        };
        let mut range = std::mem::take(&mut self.range);
        let collected = collect(bounds, &mut range);
        if collected.is_ok() {
            let versions = range.iter().map(|(key, image)| (key, value_of(image)));
            let all = (direction, usize::MAX);
            match direction {
                Direction::Forward => self.fill(leaf, versions, all),
                Direction::Backward => self.fill(leaf, versions.rev(), all),
            };
        }
        self.range = range;
        collected
    }

    /// Replaces the records by `below`, with what `above` says of its keys instead: None for a key
    /// that is not there. Both are in the order of `direction`. Returns false if it has ended after
    /// `most` records, at least one, and there may be more.
    pub(crate) fn fill<'a>(
        &mut self,
        below: &mut impl Records,
        above: impl Iterator<Item = (&'a [u8], Option<ScanValue<'a>>)>,
        (direction, most): (Direction, usize),
    ) -> bool {
        self.bytes.clear();
        self.records.clear();
        let order = |one: &[u8], other: &[u8]| match direction {
            Direction::Forward => one.cmp(other),
            Direction::Backward => other.cmp(one),
        };
        let mut next = 0;
        for (key, value) in above {
            while next < below.len() {
                if self.is_full(most) {
                    return false;
                }
                let (own, own_value) = below.entry(next);
                match order(own, key) {
                    Ordering::Less => self.push(own, own_value),
                    // What is above counts, and not what is below.
                    Ordering::Equal => {}
                    Ordering::Greater => break,
                }
                next += 1;
            }
            if self.is_full(most) {
                return false;
            }
            if let Some(value) = value {
                self.push(key, value);
            }
        }
        for index in next..below.len() {
            if self.is_full(most) {
                return false;
            }
            let (key, value) = below.entry(index);
            self.push(key, value);
        }
        let key_of = |record: &Record| &self.bytes[record.key.clone()];
        debug_assert!(
            self.records
                .is_sorted_by(|one, next| order(key_of(one), key_of(next)).is_lt()),
            "records are in scan order, each once"
        );
        true
    }

    /// Returns true if it has `most` records, and one at least.
    fn is_full(&self, most: usize) -> bool {
        self.len() >= most.max(1)
    }

    /// Returns the number of records up to the first one whose key is not `before` the end.
    pub(crate) fn count_while(&self, before: impl Fn(&[u8]) -> bool) -> usize {
        let is_before = |record: &Record| before(&self.bytes[record.key.clone()]);
        self.records.partition_point(is_before)
    }

    fn push(&mut self, key: &[u8], value: ScanValue<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        let value = match value {
            ScanValue::Inline(value) => {
                self.bytes.extend_from_slice(value);
                Some(middle..self.bytes.len())
            }
            ScanValue::Long => None,
        };
        let key = start..middle;
        self.records.push(Record { key, value });
    }
}
