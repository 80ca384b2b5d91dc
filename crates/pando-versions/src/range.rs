//! The versions of a range of keys, for a scan at a snapshot.

use std::ops::{Bound, Range};

use pando_format::{Lsn, TreeId};
use pando_pool::{Attempt, Restart};
use pando_tree::{Direction, LeafCopy, ScanValue};

use crate::before_image::BeforeImage;
use crate::generations::Generation;
use crate::key;
use crate::versions::{VersionScratch, Versions};

/// The versions of a range, by key: the value of each key at a snapshot. Buffers are reused.
#[derive(Debug, Default)]
pub struct VersionRange {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    leaf: LeafCopy,
}

#[derive(Debug, Clone)]
struct Entry {
    key: Range<usize>,
    value: Range<usize>,
    is_cut: bool,
}

impl VersionRange {
    /// Returns the versions, ascending by key, each key once.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], BeforeImage<'_>)> + '_ {
        self.entries.iter().map(|entry| {
            let value = &self.bytes[entry.value.clone()];
            let decoded = BeforeImage::decode(value, entry.is_cut);
            let (image, _) = decoded.expect("it was decoded before it was noted");
            (&self.bytes[entry.key.clone()], image)
        })
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

impl Versions {
    /// Replaces `range` by the versions of the keys from `low` to `high` of `tree` that count at
    /// the snapshot of `lsn`: of each key the first one after it. As [`Versions::find`] for a
    /// caller that has copied a leaf.
    ///
    /// # Errors
    /// As [`Versions::find`].
    pub fn collect(
        &self,
        tree: TreeId,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        lsn: Lsn,
        range: &mut VersionRange,
        scratch: &mut VersionScratch,
    ) -> Attempt<()> {
        range.clear();
        let span = self.generations.span();
        for number in span.first..span.next {
            let Some(generation) = self.generations.get(number) else {
                continue;
            };
            if generation.largest() > lsn {
                let noted = (range.bytes.len(), range.entries.len());
                let read = self.collect_in(generation, tree, (low, high), lsn, range, scratch);
                if self.if_live(number, read)?.is_none() {
                    range.bytes.truncate(noted.0);
                    range.entries.truncate(noted.1);
                }
            }
        }
        let VersionRange { bytes, entries, .. } = range;
        // Older generations come first, and in each of them older versions: the first of a key
        // counts, and a stable sort keeps it the first.
        entries.sort_by(|one, other| bytes[one.key.clone()].cmp(&bytes[other.key.clone()]));
        entries.dedup_by(|other, one| bytes[one.key.clone()] == bytes[other.key.clone()]);
        Ok(())
    }

    fn collect_in(
        &self,
        generation: Generation<'_>,
        tree: TreeId,
        (low, high): (Bound<&[u8]>, Bound<&[u8]>),
        lsn: Lsn,
        range: &mut VersionRange,
        scratch: &mut VersionScratch,
    ) -> Attempt<()> {
        let first = match low {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        scratch.stem.set(tree, first, self.groups_max);
        let mut from = Bound::Included(scratch.stem.bytes().to_vec());
        let VersionRange {
            bytes,
            entries,
            leaf,
        } = range;
        let mut key = Vec::new();
        let mut value = Vec::new();
        loop {
            let bound = from.as_ref().map(|key| &key[..]);
            generation
                .tree
                .try_scan_leaf(&self.pool, bound, Direction::Forward, leaf)?;
            for (version, record) in leaf.iter() {
                let Some(decoded) = key::decode(tree, version, &mut key) else {
                    return Ok(());
                };
                let record = match record {
                    ScanValue::Inline(record) => record,
                    ScanValue::Long => {
                        let (tree, reader) = (generation.tree, &mut scratch.reader);
                        tree.try_get(&self.pool, version, reader, &mut value)?;
                        &value[..]
                    }
                };
                let image = BeforeImage::decode(record, decoded.is_cut);
                let (_, whole) = image.ok_or(Restart::Conflict)?;
                let whole = whole.unwrap_or(&key);
                if is_above(whole, high) {
                    if !decoded.is_cut {
                        return Ok(());
                    }
                    continue;
                }
                if decoded.lsn <= lsn || is_below(whole, low) {
                    continue;
                }
                let start = bytes.len();
                bytes.extend_from_slice(whole);
                let middle = bytes.len();
                bytes.extend_from_slice(record);
                entries.push(Entry {
                    key: start..middle,
                    value: middle..bytes.len(),
                    is_cut: decoded.is_cut,
                });
            }
            match leaf.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(()),
            }
        }
    }
}

/// Returns whether `key` is before all keys of a range that begins at `low`.
fn is_below(key: &[u8], low: Bound<&[u8]>) -> bool {
    match low {
        Bound::Included(low) => key < low,
        Bound::Excluded(low) => key <= low,
        Bound::Unbounded => false,
    }
}

/// Returns whether `key` is after all keys of a range that ends at `high`.
fn is_above(key: &[u8], high: Bound<&[u8]>) -> bool {
    match high {
        Bound::Included(high) => key > high,
        Bound::Excluded(high) => key >= high,
        Bound::Unbounded => false,
    }
}
