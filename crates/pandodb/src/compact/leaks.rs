//! Reclaims leaked pages and chunks: nothing names them, because what named them could not be read
//! when it was freed (decision 061).
//!
//! Only a store that has recorded leaks pays for this. While the apply gate is closed, so that
//! nothing changes, everything that any tree names is marked, and the rest is freed. If a tree
//! cannot be read as a whole, everything that it may name stays: then only pages are freed that say
//! that they belong to a tree which no longer exists. Writers wait meanwhile; readers do not.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use pando_format::catalogue::GarbageRow;
use pando_format::lost::{AsideChange, AsideWrite, decode_aside_key, decode_piece, leak_key};
use pando_format::page::PageKind;
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{ApplyToken, Marks};
use pando_tree::{Direction, LeafCopy, ScanValue, Scratch, Tree, ValueReader};

use crate::changes::blobs::decode_blob_ref;
use crate::compact::progress::CompactProgress;
use crate::compact::run::{Compaction, Part};
use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::tables::state::{CATALOGUE, GARBAGE};

/// The pages and chunks that are named.
struct NamedSpace<'a> {
    store: &'a Store,
    /// One bit per page id.
    words: Vec<u64>,
    /// Trees that exist.
    trees: BTreeSet<TreeId>,
    /// All of them could be read completely.
    is_whole: bool,
}

/// Rows of the garbage table, with whole values.
type Rows = Vec<(Vec<u8>, Vec<u8>)>;

impl<P: FnMut(CompactProgress) -> ControlFlow<()>> Compaction<'_, P> {
    /// Frees leaked pages and chunks; returns their number.
    pub(super) fn reclaim_leaks(&mut self) -> Part<u64> {
        let engine = self.engine;
        let rows = garbage_rows(&engine.store, Bound::Included(&leak_key(TreeId(0))[..]))?;
        if rows.is_empty() {
            return Ok(0);
        }
        self.check()?;
        tracing::info!("writers wait until what was leaked is found");
        let closed = engine.store.pool.gate().close();
        let reclaimed = reclaim(&engine.store, &engine.store.pool.apply_token(&closed));
        drop(closed);
        if let Ok(count) = &reclaimed {
            tracing::info!(count, "what was leaked is free again");
        }
        Ok(reclaimed?)
    }
}

/// Frees what nothing names. The gate is closed: nobody else changes anything.
fn reclaim(store: &Store, token: &ApplyToken<'_>) -> Result<u64> {
    let rows = garbage_rows(store, Bound::Unbounded)?;
    let mut named = NamedSpace::of(store, &rows)?;
    for root in [CATALOGUE.root, GARBAGE.root] {
        assert!(named.has(root), "the root of a system tree is not named");
    }
    let mut count = 0;
    for page in (0..store.pool.page_ids().high_water()).map(PageId) {
        if !store.pool.is_used(page) || named.has(page) || !named.is_gone(page) {
            continue;
        }
        store.drive(|| store.pool.free_unread(token, page))?;
        count += 1;
    }
    if named.is_whole {
        let marks = Marks {
            lsn: Lsn(0),
            multi_lsn: Lsn(0),
        };
        let mut scratch = Scratch::of_background();
        let leaks = rows
            .iter()
            .filter(|(key, _)| key[..] >= leak_key(TreeId(0))[..]);
        for (key, _) in leaks {
            store.apply(token, GARBAGE, marks, key, None, &mut scratch)?;
        }
    }
    Ok(count)
}

/// Returns all rows from `from` on.
fn garbage_rows(store: &Store, from: Bound<&[u8]>) -> Result<Rows> {
    let (mut leaf, mut rows) = (LeafCopy::new(), Vec::new());
    let (mut reader, mut from) = (ValueReader::new(), from.map(<[u8]>::to_vec));
    loop {
        store.drive(|| {
            let bound = from.as_ref().map(|key| &key[..]);
            GARBAGE.try_scan_leaf(&store.pool, bound, Direction::Forward, &mut leaf)
        })?;
        for index in 0..leaf.len() {
            let (key, value) = leaf.entry(index);
            let mut row = Vec::new();
            match value {
                ScanValue::Inline(value) => row.extend_from_slice(value),
                ScanValue::Long => {
                    store.drive(|| GARBAGE.try_get(&store.pool, key, &mut reader, &mut row))?;
                }
            }
            rows.push((key.to_vec(), row));
        }
        match leaf.next_bound() {
            Some(next) => from = next.map(<[u8]>::to_vec),
            None => return Ok(rows),
        }
    }
}

impl<'a> NamedSpace<'a> {
    fn of(store: &'a Store, rows: &Rows) -> Result<Self> {
        let ids = store.pool.page_ids().high_water() as usize;
        let mut named = Self {
            store,
            words: vec![0; ids.div_ceil(64)],
            trees: BTreeSet::new(),
            is_whole: true,
        };
        let of_tables = store.tables.trees();
        for tree in [CATALOGUE, GARBAGE].into_iter().chain(of_tables) {
            named.walk(tree)?;
        }
        let damaged = |what: pando_format::Damage| Error::corrupt("garbage table", what);
        let mut aside: Vec<u8> = Vec::new();
        for (at, (key, row)) in rows.iter().enumerate() {
            if let Some((lsn, number, _)) = decode_aside_key(key) {
                aside.extend_from_slice(decode_piece(row).map_err(damaged)?);
                let next = rows.get(at + 1).and_then(|(key, _)| decode_aside_key(key));
                if next.is_none_or(|(of, other, _)| (of, other) != (lsn, number)) {
                    named.mark_aside(&aside)?;
                    aside.clear();
                }
                continue;
            }
            match GarbageRow::decode(row).map_err(damaged)? {
                GarbageRow::DroppedTree(row) => named.walk(Tree {
                    id: row.tree,
                    root: row.root,
                })?,
                GarbageRow::Chunks(pages) | GarbageRow::Pages(pages) => {
                    pages.iter().for_each(|page| named.mark(*page));
                }
                GarbageRow::Leaked { .. } | GarbageRow::Aside => {}
            }
        }
        Ok(named)
    }

    fn mark(&mut self, page: PageId) {
        if let Some(word) = self.words.get_mut(page.index() / 64) {
            *word |= 1 << (page.index() % 64);
        }
    }

    fn has(&self, page: PageId) -> bool {
        self.words[page.index() / 64] >> (page.index() % 64) & 1 == 1
    }

    /// True if `page`, which no readable page names, is garbage.
    fn is_gone(&mut self, page: PageId) -> bool {
        if self.is_whole {
            return true;
        }
        if self.store.pool.chunk(page).is_some() {
            return false;
        }
        let tree = self.store.drive(|| self.store.pool.tree_of(page));
        tree.is_ok_and(|tree| !self.trees.contains(&tree))
    }

    /// Marks what a write that was put aside names.
    fn mark_aside(&mut self, bytes: &[u8]) -> Result<()> {
        let write =
            AsideWrite::decode(bytes).map_err(|damage| Error::corrupt("garbage table", damage))?;
        if let AsideChange::PutChunks(blob) = write.change {
            let chunks = decode_blob_ref(blob)?.chunks;
            chunks.iter().for_each(|chunk| self.mark(chunk.page));
        }
        Ok(())
    }

    /// Marks the pages of `tree`, and the chunks that it names.
    fn walk(&mut self, tree: Tree) -> Result<()> {
        self.trees.insert(tree.id);
        let mut todo = vec![tree.root];
        while let Some(page) = todo.pop() {
            self.mark(page);
            let looked = self.look(tree, page, &mut todo);
            match looked {
                Err(error) if error.is_corruption() => self.is_whole = false,
                other => other?,
            }
        }
        Ok(())
    }

    /// Marks what one page of `tree` names; adds its children to `todo`.
    fn look(&mut self, tree: Tree, page: PageId, todo: &mut Vec<PageId>) -> Result<()> {
        let store = self.store;
        let node = store.drive(|| tree.try_summary(&store.pool, page))?;
        if node.kind == PageKind::Inner {
            todo.extend(node.children);
            return Ok(());
        }
        for value in &node.overflow {
            value.index_pages().iter().for_each(|page| self.mark(*page));
            let ids = store.drive(|| tree.try_overflow_ids(&store.pool, value))?;
            ids.into_iter().for_each(|page| self.mark(page));
        }
        let (mut reader, mut blob) = (ValueReader::new(), Vec::new());
        for index in node.chunked {
            let key = &node.keys[index];
            store.drive(|| tree.try_get(&store.pool, key, &mut reader, &mut blob))?;
            let chunks = decode_blob_ref(&blob)?.chunks;
            chunks.iter().for_each(|chunk| self.mark(chunk.page));
        }
        Ok(())
    }
}
