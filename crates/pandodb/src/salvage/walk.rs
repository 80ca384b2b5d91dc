//! Finding the rows of a tree: down from its root, and below nodes that cannot be read among all
//! leaves of the store that say that they belong to this tree.
//!
//! A leaf is read as a tree of one page. Rows outside the range that the nodes above it give are
//! ignored: then the page is an older version.

use std::collections::BTreeMap;
use std::ops::Bound;

use pando_format::chunks::BlobRef;
use pando_format::page::PageKind;
use pando_format::{PageId, TreeId};
use pando_tree::{Direction, LeafCopy, ScanValue, Tree, ValueReader};

use crate::changes::blobs::decode_blob_ref;
use crate::error::{Error, Result};
use crate::pages::store::Store;

/// Keys from `from` on, up to and without `to`; None: to the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
}

impl Range {
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.to.as_ref().is_none_or(|to| *key < **to)
    }
}

/// Keys covered by a page that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) range: Range,
    pub(super) why: String,
    /// Number of rows of the range that were found nevertheless.
    pub(super) found: u64,
    /// There may be leaves below the page.
    has_leaves: bool,
}

/// The value of a row, or why it cannot be read.
pub(super) enum RowValue<'a> {
    Bytes(&'a [u8]),
    Chunks(BlobRef),
    Lost(String),
}

/// A function that takes rows.
pub(super) type Each<'a> = &'a mut dyn FnMut(&[u8], RowValue<'_>) -> Result<()>;

/// Reads trees of a damaged store.
pub(super) struct Walker<'a> {
    pub(super) store: &'a Store,
    /// One bit per page that was met.
    met: Vec<u64>,
    /// Leaves that can be read, by tree; searched for when they are first needed.
    leaves: Option<BTreeMap<TreeId, Vec<PageId>>>,
    progress: &'a mut dyn FnMut(u64, u64),
    /// Number of pages met; for `progress`.
    done: u64,
}

impl<'a> Walker<'a> {
    pub(super) fn new(store: &'a Store, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        let ids = store.pool.page_ids().high_water() as usize;
        Self {
            store,
            met: vec![0; ids.div_ceil(64)],
            leaves: None,
            progress,
            done: 0,
        }
    }

    /// Calls `each` with the rows of `tree` that can be found; returns the ranges that cannot be
    /// read.
    pub(super) fn tree(&mut self, tree: Tree, each: Each<'_>) -> Result<Vec<Gap>> {
        let mut gaps = Vec::new();
        self.node(tree, tree.root, None, Range::default(), &mut gaps, each)?;
        if gaps.iter().any(|gap| gap.has_leaves) {
            self.orphans(tree.id, &mut gaps, each)?;
        }
        Ok(gaps)
    }

    /// As [`Walker::tree`], for a tree whose root is unknown.
    pub(super) fn rootless(&mut self, tree: TreeId, why: String, each: Each<'_>) -> Result<Gap> {
        let mut gaps = [Gap {
            range: Range::default(),
            why,
            found: 0,
            has_leaves: true,
        }];
        self.orphans(tree, &mut gaps, each)?;
        let [gap] = gaps;
        Ok(gap)
    }

    /// Returns the trees that have leaves.
    pub(super) fn trees(&mut self) -> Result<Vec<TreeId>> {
        Ok(self.leaves()?.keys().copied().collect())
    }

    /// Notes a page; returns false if it was met before, or does not exist.
    fn meet(&mut self, page: PageId) -> bool {
        self.done += 1;
        (self.progress)(self.done, self.store.pool.page_ids().high_water().into());
        let Some(word) = self.met.get_mut(page.index() / 64) else {
            return false;
        };
        let bit = 1 << (page.index() % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn was_met(&self, page: PageId) -> bool {
        self.met[page.index() / 64] >> (page.index() % 64) & 1 == 1
    }

    /// Walks down from a node; `level` and `range` are what its parent says of it.
    fn node(
        &mut self,
        tree: Tree,
        page: PageId,
        level: Option<u8>,
        range: Range,
        gaps: &mut Vec<Gap>,
        each: Each<'_>,
    ) -> Result<()> {
        let mut gap = |range: Range, why: String| {
            gaps.push(Gap {
                range,
                why,
                found: 0,
                has_leaves: level != Some(0),
            });
        };
        if !self.meet(page) {
            gap(
                range,
                format!("{page}: is named, and is not there or is another's"),
            );
            return Ok(());
        }
        let store = self.store;
        let node = match store.drive(|| tree.try_summary(&store.pool, page)) {
            Ok(node) => node,
            Err(error) if error.is_corruption() => {
                gap(range, error.to_string());
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if level.is_some_and(|level| level != node.level) {
            gap(range, format!("{page}: is of another level"));
            return Ok(());
        }
        if node.kind == PageKind::Leaf {
            return match self.leaf(tree.id, page, |key| range.contains(key), each) {
                Err(Unread::Leaf(why)) => {
                    gap(range, why);
                    Ok(())
                }
                Err(Unread::Other(error)) => Err(error),
                Ok(_) => Ok(()),
            };
        }
        let below = node.level.checked_sub(1);
        for (index, child) in node.children.iter().enumerate() {
            let from = match index {
                0 => range.from.clone(),
                _ => node.keys[index].clone(),
            };
            let next = node.keys.get(index + 1).cloned();
            let to = next.or_else(|| range.to.clone());
            self.node(tree, *child, below, Range { from, to }, gaps, each)?;
        }
        Ok(())
    }

    /// Calls `each` with the rows of a leaf whose keys are `wanted`; returns their number.
    fn leaf(
        &self,
        tree: TreeId,
        page: PageId,
        wanted: impl Fn(&[u8]) -> bool,
        each: Each<'_>,
    ) -> std::result::Result<u64, Unread> {
        let (store, leaf) = (
            self.store,
            Tree {
                id: tree,
                root: page,
            },
        );
        let (mut copy, mut rows) = (LeafCopy::new(), 0);
        let (mut reader, mut value) = (ValueReader::new(), Vec::new());
        let mut from = Bound::Unbounded;
        loop {
            let copied = store.drive(|| {
                let bound = from.as_ref().map(|key: &Vec<u8>| &key[..]);
                leaf.try_scan_leaf(&store.pool, bound, Direction::Forward, &mut copy)
            });
            copied.map_err(|error| match error.is_corruption() {
                true => Unread::Leaf(error.to_string()),
                false => Unread::Other(error),
            })?;
            for index in 0..copy.len() {
                let (key, found) = copy.entry(index);
                if !wanted(key) {
                    continue;
                }
                rows += 1;
                let found = match found {
                    ScanValue::Inline(value) => RowValue::Bytes(value),
                    ScanValue::Long => self.long(leaf, key, &mut reader, &mut value)?,
                };
                each(key, found)?;
            }
            match copy.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(rows),
            }
        }
    }

    /// Reads a value that is not stored in its leaf.
    fn long<'v>(
        &self,
        leaf: Tree,
        key: &[u8],
        reader: &mut ValueReader,
        value: &'v mut Vec<u8>,
    ) -> Result<RowValue<'v>> {
        let read = self
            .store
            .drive(|| leaf.try_get(&self.store.pool, key, reader, value));
        let blob = match read {
            Ok(found) if found.chunked => decode_blob_ref(value),
            Ok(_) => return Ok(RowValue::Bytes(value)),
            Err(error) => Err(error),
        };
        match blob {
            Ok(blob) => Ok(RowValue::Chunks(blob)),
            Err(error) if error.is_corruption() => Ok(RowValue::Lost(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Calls `each` with rows in `gaps`, from readable leaves of `tree` that no readable node
    /// names.
    fn orphans(&mut self, tree: TreeId, gaps: &mut [Gap], each: Each<'_>) -> Result<()> {
        let leaves = self.leaves()?.get(&tree).cloned().unwrap_or_default();
        for page in leaves {
            if self.was_met(page) {
                continue;
            }
            self.meet(page);
            for gap in gaps.iter_mut().filter(|gap| gap.has_leaves) {
                match self.leaf(tree, page, |key| gap.range.contains(key), &mut *each) {
                    Ok(rows) => gap.found += rows,
                    Err(Unread::Leaf(why)) => tracing::warn!(%page, why, "a leaf that is lost"),
                    Err(Unread::Other(error)) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn leaves(&mut self) -> Result<&BTreeMap<TreeId, Vec<PageId>>> {
        if self.leaves.is_none() {
            self.leaves = Some(self.find_leaves()?);
        }
        Ok(self.leaves.get_or_insert_default())
    }

    fn find_leaves(&mut self) -> Result<BTreeMap<TreeId, Vec<PageId>>> {
        let (store, mut leaves) = (self.store, BTreeMap::<TreeId, Vec<PageId>>::new());
        tracing::info!("all pages are looked at for what cannot be reached");
        for page in (0..store.pool.page_ids().high_water()).map(PageId) {
            if !store.pool.is_used(page) || store.pool.chunk(page).is_some() || self.was_met(page) {
                continue;
            }
            let looked = store.drive(|| store.pool.tree_of(page)).and_then(|tree| {
                let as_root = Tree {
                    id: tree,
                    root: page,
                };
                store.drive(|| as_root.try_summary(&store.pool, page))
            });
            match looked {
                Ok(node) if node.kind == PageKind::Leaf => {
                    leaves.entry(node.tree).or_default().push(page);
                }
                Ok(_) => {}
                // Another kind of page, or it is damaged.
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(leaves)
    }
}

/// Why a leaf was not read completely.
enum Unread {
    Leaf(String),
    Other(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}
