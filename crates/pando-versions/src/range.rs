//! The versions of a range of keys, for a scan at a snapshot.

use std::ops::{Bound, ControlFlow, Range};

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

    /// Removes all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }
}

impl VersionRange {
    /// Appends what `record` of [`Versions::export`] says of `key`, which is after all other keys.
    ///
    /// # Panics
    /// When it is no such record.
    pub fn push(&mut self, key: &[u8], record: &[u8]) {
        assert!(
            BeforeImage::of_record(record).is_some(),
            "a record of an export"
        );
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.entries.push(Entry {
            key: start..middle,
            value: middle..self.bytes.len(),
            is_cut: false,
        });
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
        let walk = Walk {
            tree,
            bounds: (low, high),
            lsn,
        };
        for (number, generation) in self.generations_after(lsn) {
            let noted = (range.bytes.len(), range.entries.len());
            let VersionRange {
                bytes,
                entries,
                leaf,
            } = &mut *range;
            let note = |version: Version<'_>| {
                let start = bytes.len();
                bytes.extend_from_slice(version.key);
                let middle = bytes.len();
                bytes.extend_from_slice(version.record);
                entries.push(Entry {
                    key: start..middle,
                    value: middle..bytes.len(),
                    is_cut: version.is_cut,
                });
                ControlFlow::Continue(())
            };
            let read = self.walk_in(generation, walk, leaf, scratch, note);
            if self.if_live(number, read)?.is_none() {
                range.bytes.truncate(noted.0);
                range.entries.truncate(noted.1);
            }
        }
        let VersionRange { bytes, entries, .. } = range;
        // Older generations come first, and in each of them older versions: the first of a key
        // counts, and a stable sort keeps it the first.
        entries.sort_by(|one, other| bytes[one.key.clone()].cmp(&bytes[other.key.clone()]));
        entries.dedup_by(|other, one| bytes[one.key.clone()] == bytes[other.key.clone()]);
        Ok(())
    }

    /// Returns a key of `tree` within `bounds` that has a version after `lsn`, if there is one: a
    /// batch after `lsn` has written it, while a snapshot before that was registered.
    ///
    /// # Errors
    /// As [`Versions::find`].
    pub fn first_since(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        lsn: Lsn,
        scratch: &mut VersionScratch,
    ) -> Attempt<Option<Vec<u8>>> {
        let walk = Walk { tree, bounds, lsn };
        let mut leaf = LeafCopy::new();
        for (number, generation) in self.generations_after(lsn) {
            let mut first = None;
            let note = |version: Version<'_>| {
                first = Some(version.key.to_vec());
                ControlFlow::Break(())
            };
            let read = self.walk_in(generation, walk, &mut leaf, scratch, note);
            // One that was dropped meanwhile had no version that counts.
            let is_live = self.if_live(number, read)?.is_some();
            if is_live && first.is_some() {
                return Ok(first);
            }
        }
        Ok(None)
    }

    /// Calls `f` with the versions that `walk` is about, ascending, until it breaks off.
    fn walk_in(
        &self,
        generation: Generation<'_>,
        walk: Walk<'_>,
        leaf: &mut LeafCopy,
        scratch: &mut VersionScratch,
        mut f: impl FnMut(Version<'_>) -> ControlFlow<()>,
    ) -> Attempt<()> {
        let Walk {
            tree,
            bounds: (low, high),
            lsn,
        } = walk;
        let first = match low {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        scratch.stem.set(tree, first, self.groups_max);
        let mut from = Bound::Included(scratch.stem.bytes().to_vec());
        let mut key = Vec::new();
        let mut value = Vec::new();
        loop {
            let bound = from.as_ref().map(|key| &key[..]);
            generation
                .tree
                .try_scan_leaf(&self.pool, bound, Direction::Forward, leaf)?;
            for index in 0..leaf.len() {
                let (version, record) = leaf.entry(index);
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
                let version = Version {
                    key: whole,
                    record,
                    is_cut: decoded.is_cut,
                };
                if f(version).is_break() {
                    return Ok(());
                }
            }
            match leaf.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(()),
            }
        }
    }
}

/// What to walk over: the versions of a range that are after `lsn`.
#[derive(Debug, Clone, Copy)]
struct Walk<'w> {
    tree: TreeId,
    bounds: (Bound<&'w [u8]>, Bound<&'w [u8]>),
    lsn: Lsn,
}

/// One of them.
struct Version<'v> {
    key: &'v [u8],
    record: &'v [u8],
    is_cut: bool,
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
