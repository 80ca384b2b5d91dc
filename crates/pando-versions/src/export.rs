//! All versions that count at a snapshot, in key order: for a snapshot that goes on without them.

use std::cmp::Ordering;
use std::ops::{Bound, ControlFlow};

use pando_format::{Lsn, TreeId};
use pando_pool::{Attempt, Restart};
use pando_tree::{Direction, LeafCopy, ScanValue, Tree, ValueReader};

use crate::before_image::BeforeImage;
use crate::key;
use crate::versions::Versions;

/// Why an export ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotExported {
    /// A key is so long that versions have only its beginning: they are not in its order.
    LongKey,
    /// The caller broke off.
    Stopped,
    /// The snapshot has ended meanwhile.
    Ended,
}

/// One generation, and how far its export is.
struct Cursor {
    number: u32,
    tree: Tree,
    /// Where the leaf after `leaf` begins; None after the last one.
    from: Option<Bound<Vec<u8>>>,
    leaf: LeafCopy,
    /// Number of the next version in `leaf`.
    next: usize,
    current: Option<Current>,
}

/// The version that a cursor is at.
#[derive(Default)]
struct Current {
    tree: TreeId,
    key: Vec<u8>,
    record: Vec<u8>,
}

impl Current {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.tree, &self.key).cmp(&(other.tree, &other.key))
    }
}

impl Versions {
    /// Calls `f` with each key that has a version after `lsn`, ascending by tree and key, and with
    /// the record of the first of these versions ([`BeforeImage::of_record`]): what the key had at
    /// `lsn`. A snapshot of `lsn` is registered meanwhile. Batches that are applied meanwhile may
    /// be among them or not.
    ///
    /// # Errors
    /// [`NotExported`].
    pub fn export(
        &self,
        lsn: Lsn,
        mut f: impl FnMut(TreeId, &[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), NotExported> {
        let cursor = |(number, generation): (u32, crate::generations::Generation<'_>)| Cursor {
            number,
            tree: generation.tree,
            from: Some(Bound::Unbounded),
            leaf: LeafCopy::new(),
            next: 0,
            current: None,
        };
        // Older generations first.
        let mut cursors: Vec<Cursor> = self.generations_after(lsn).map(cursor).collect();
        for cursor in &mut cursors {
            self.advance(cursor, lsn)?;
        }
        let mut last = Current::default();
        loop {
            let mut least: Option<usize> = None;
            for (index, cursor) in cursors.iter().enumerate() {
                let Some(current) = &cursor.current else {
                    continue;
                };
                let first = least.and_then(|least| cursors[least].current.as_ref());
                // Of equal keys that of the oldest generation.
                if first.is_none_or(|first| current.cmp(first).is_lt()) {
                    least = Some(index);
                }
            }
            let Some(index) = least else {
                return Ok(());
            };
            let current = cursors[index].current.take().expect("it is the least");
            let is_first = current.cmp(&last).is_gt();
            if is_first && f(current.tree, &current.key, &current.record).is_break() {
                return Err(NotExported::Stopped);
            }
            if is_first {
                last = current;
            }
            self.advance(&mut cursors[index], lsn)?;
        }
    }

    /// Moves `cursor` to the next version after `lsn`.
    fn advance(&self, cursor: &mut Cursor, lsn: Lsn) -> Result<(), NotExported> {
        loop {
            while cursor.next < cursor.leaf.len() {
                let (version, record) = cursor.leaf.entry(cursor.next);
                cursor.next += 1;
                let mut current = Current::default();
                let Some((tree, at)) = decode(version, &mut current.key, lsn)? else {
                    continue;
                };
                debug_assert!(at > lsn);
                current.tree = tree;
                match record {
                    ScanValue::Inline(record) => current.record.extend_from_slice(record),
                    ScanValue::Long => {
                        let (version, tree) = (version.to_vec(), cursor.tree);
                        let mut reader = ValueReader::new();
                        let out = &mut current.record;
                        self.repeat(cursor.number, || {
                            tree.try_get(&self.pool, &version, &mut reader, out)
                        })?;
                    }
                }
                cursor.current = Some(current);
                return Ok(());
            }
            let Some(from) = cursor.from.take() else {
                return Ok(());
            };
            let Cursor {
                tree, leaf, number, ..
            } = cursor;
            let bound = from.as_ref().map(|key| &key[..]);
            self.repeat(*number, || {
                tree.try_scan_leaf(&self.pool, bound, Direction::Forward, leaf)
            })?;
            cursor.from = leaf.next_bound().map(|next| next.map(<[u8]>::to_vec));
            cursor.next = 0;
        }
    }

    /// Repeats a step on generation `number`, all pages of which are in memory.
    fn repeat<T>(
        &self,
        number: u32,
        mut step: impl FnMut() -> Attempt<T>,
    ) -> Result<T, NotExported> {
        loop {
            match self.if_live(number, step()) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => return Err(NotExported::Ended),
                // A generation is hidden before its pages are freed.
                Err(Restart::Damaged(..) | Restart::Fault(_)) => return Err(NotExported::Ended),
                Err(_) => pando_sync::thread::yield_now(),
            }
        }
    }
}

/// Returns tree and LSN of a version after `lsn`, and its key in `key`; None for an older one.
fn decode(
    version: &[u8],
    key: &mut Vec<u8>,
    lsn: Lsn,
) -> Result<Option<(TreeId, Lsn)>, NotExported> {
    let tree = version
        .first_chunk::<4>()
        .map(|tree| u32::from_be_bytes(*tree));
    let Some(tree) = tree.map(TreeId) else {
        return Err(NotExported::Ended);
    };
    let Some(decoded) = key::decode(tree, version, key) else {
        return Err(NotExported::Ended);
    };
    if decoded.lsn <= lsn {
        return Ok(None);
    }
    match decoded.is_cut {
        true => Err(NotExported::LongKey),
        false => Ok(Some((tree, decoded.lsn))),
    }
}

impl<'a> BeforeImage<'a> {
    /// Returns what a record of [`Versions::export`] says; None for bytes that are none.
    pub fn of_record(record: &'a [u8]) -> Option<Self> {
        Self::decode(record, false).map(|(image, _)| image)
    }
}
