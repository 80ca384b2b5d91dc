//! The part of the walk that checks trees, nodes and pages.

use std::collections::BTreeSet;

use pando_device::{File, IoBuf};
use pando_format::bytes::u32_at;
use pando_format::cast::usize_of;
use pando_format::catalogue::GarbageRow;
use pando_format::compression::{BODY_BYTES_AT, CODEC_AT};
use pando_format::log::BatchReader;
use pando_format::lost::decode_aside_key;
use pando_format::page::{HEADER_BYTES, PageKind};
use pando_format::{Codec, Extent, Lsn, PageId};
use pando_tree::{NodeSummary, Tree};
use pando_wal::ReplayEnd;

use crate::changes::logged::check_operation;
use crate::error::{Error, Result};
use crate::recovery::open::log_behind;
use crate::tables::state::{CATALOGUE, GARBAGE};
use crate::verify::chunks::check_extents;
use crate::verify::stat::{StoredStat, TableStat};
use crate::verify::tree_stat::LevelStat;

use crate::verify::walk::{KeyBounds, Walk};

impl<P: FnMut(u64, u64)> Walk<'_, P> {
    /// Counts pages by their compression. Reads compressed pages; all others have full length.
    pub(crate) fn stored(&mut self) -> Vec<StoredStat> {
        let mut stats = Codec::ALL.map(StoredStat::new);
        let page_bytes = self.store.pool.page_size().bytes() as u64;
        let mut buffer = IoBuf::new(usize_of(page_bytes));
        for page in (0..self.store.pool.page_ids().high_water()).map(PageId) {
            let Some(extent) = self.store.pool.stored_extent(page) else {
                continue;
            };
            if self.store.pool.chunk(page).is_some() {
                continue;
            }
            let mut codec = Codec::Plain;
            if extent.blocks < self.store.page_blocks() {
                let what = self.stored_codec(extent, &mut buffer);
                match what {
                    Ok(found) => codec = found,
                    Err(what) => {
                        self.damage(page.to_string(), what);
                        continue;
                    }
                }
            }
            let stat = &mut stats[usize::from(codec.encode())];
            stat.pages += 1;
            stat.stored_bytes += u64::from(extent.blocks) * self.store.space.block_bytes();
            stat.page_bytes += page_bytes;
        }
        stats.into_iter().filter(|stat| stat.pages > 0).collect()
    }

    /// Returns the number of chunks, and the bytes of their blocks.
    pub(crate) fn chunks(&self) -> (u64, u64) {
        let pool = &self.store.pool;
        let pages = (0..pool.page_ids().high_water()).map(PageId);
        let stored = pages.filter_map(|page| pool.chunk(page));
        stored.fold((0, 0), |(count, bytes), chunk| {
            let blocks = u64::from(chunk.extent.blocks);
            (count + 1, bytes + blocks * self.store.space.block_bytes())
        })
    }

    /// Returns the compression of the image at `extent`. Its padding must be zeros.
    fn stored_codec(
        &self,
        extent: Extent,
        buffer: &mut IoBuf,
    ) -> std::result::Result<Codec, String> {
        let block_bytes = self.store.space.block_bytes();
        buffer.set_len(usize_of(u64::from(extent.blocks) * block_bytes));
        let offset = u64::from(extent.block) * block_bytes;
        let read = self.store.data.read_at(buffer, offset);
        read.map_err(|error| format!("reading it: {error}"))?;
        let codec = Codec::decode(buffer[CODEC_AT]).filter(|codec| *codec != Codec::Plain);
        let Some(codec) = codec else {
            return Err(format!(
                "{} blocks long and not compressed, or in an unknown way",
                extent.blocks
            ));
        };
        let end = HEADER_BYTES + u32_at(buffer, BODY_BYTES_AT) as usize;
        match buffer.get(end..) {
            Some(padding) if padding.iter().all(|byte| *byte == 0) => Ok(codec),
            Some(_) => Err("bytes that are no zeros behind its compressed bytes".to_owned()),
            None => Err(format!("{} blocks for {end} bytes", extent.blocks)),
        }
    }

    /// Returns all trees: name, tree, and the number of entries if it is counted.
    pub(crate) fn trees(&mut self) -> Vec<(String, Tree, Option<u64>)> {
        let mut trees = vec![
            ("catalogue".to_owned(), CATALOGUE, None),
            ("garbage table".to_owned(), GARBAGE, None),
        ];
        for table in self.store.tables.all() {
            if let Some(tree) = table.tree() {
                trees.push((table.name.to_string(), tree, Some(table.count())));
            }
        }
        match self.garbage() {
            Ok(dropped) => trees.extend(dropped),
            Err(error) => self.damage("garbage table", error.to_string()),
        }
        trees
    }

    /// Checks the garbage table; returns the dropped trees in it.
    fn garbage(&mut self) -> Result<Vec<(String, Tree, Option<u64>)>> {
        let mut trees = Vec::new();
        let mut leaf = pando_tree::LeafCopy::new();
        let mut from = std::ops::Bound::Unbounded;
        loop {
            self.store.drive(|| {
                let bound = from.as_ref().map(|key: &Vec<u8>| &key[..]);
                let forward = pando_tree::Direction::Forward;
                GARBAGE.try_scan_leaf(&self.store.pool, bound, forward, &mut leaf)
            })?;
            for index in 0..leaf.len() {
                let (key, value) = leaf.entry(index);
                if let Some((lsn, number, piece)) = decode_aside_key(key) {
                    self.aside(lsn, number, piece);
                    continue;
                }
                let pando_tree::ScanValue::Inline(value) = value else {
                    continue;
                };
                let row = GarbageRow::decode(value)
                    .map_err(|damage| Error::corrupt("garbage table", damage))?;
                let row = match row {
                    GarbageRow::DroppedTree(row) => row,
                    GarbageRow::Chunks(chunks) => {
                        self.dead_chunks(&chunks);
                        continue;
                    }
                    GarbageRow::Pages(pages) => {
                        self.dead_pages(&pages);
                        continue;
                    }
                    GarbageRow::Leaked { tree, .. } => {
                        self.leaks.insert(tree);
                        continue;
                    }
                    GarbageRow::Aside => continue,
                };
                let name = format!("dropped {}", row.tree);
                trees.push((
                    name,
                    Tree {
                        id: row.tree,
                        root: row.root,
                    },
                    None,
                ));
            }
            match leaf.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(trees),
            }
        }
    }

    /// Counts a write that was put aside, by its first piece, and reports it as damage.
    fn aside(&mut self, lsn: Lsn, number: u32, piece: u16) {
        if piece == 0 {
            self.writes_aside += 1;
            let what = "is in no table: the page of its key could not be read; salvage finds it";
            self.damage(format!("write {number} of the batch at {lsn}"), what);
        }
    }

    /// Walks over a tree; returns its figures if it is that of a table.
    pub(crate) fn tree(
        &mut self,
        name: String,
        tree: Tree,
        entries: Option<u64>,
    ) -> Option<TableStat> {
        let mut stat = TableStat {
            name: name.clone(),
            entries: 0,
            levels: 0,
            tree: Vec::new(),
            overflow_pages: 0,
            large_values: 0,
            chunks: 0,
            chunk_bytes: 0,
        };
        self.is_table = entries.is_some();
        self.node(
            &name,
            tree,
            tree.root,
            None,
            &KeyBounds::default(),
            &mut stat,
        );
        if let Some(entries) = entries {
            if entries != stat.entries {
                let what = format!("{} entries, counted as {entries}", stat.entries);
                self.damage(format!("table '{name}'"), what);
            }
            return Some(stat);
        }
        None
    }

    /// Notes that `owner` owns a page; returns false if it has another owner.
    pub(crate) fn own(&mut self, page: PageId, owner: &str) -> bool {
        self.done += 1;
        (self.progress)(self.done, self.store.pool.page_ids().high_water().into());
        if let Some(other) = self.seen.insert(page, owner.to_owned()) {
            self.damage(
                page.to_string(),
                format!("belongs to '{other}' and to '{owner}'"),
            );
            return false;
        }
        true
    }

    /// Checks a node and everything below it; `level` and `limits` are what its parent says of it.
    /// Returns the number of records there, or the sum of their weights.
    fn node(
        &mut self,
        name: &str,
        tree: Tree,
        page: PageId,
        level: Option<u8>,
        limits: &KeyBounds,
        stat: &mut TableStat,
    ) -> u64 {
        if !self.own(page, name) {
            return 0;
        }
        let summary = self
            .store
            .drive(|| tree.try_summary(&self.store.pool, page));
        let summary = match summary {
            Ok(summary) => summary,
            Err(error) => {
                self.damage(page.to_string(), error.to_string());
                return 0;
            }
        };
        self.check_node(&summary, level, limits);
        LevelStat::count(
            &mut stat.tree,
            &summary,
            self.store.pool.page_size().bytes(),
        );
        stat.levels = stat.levels.max(u32::from(summary.level) + 1);
        if summary.kind == PageKind::Leaf {
            stat.entries += summary.records as u64;
            self.overflow(name, tree, &summary, stat);
            self.chunked(name, tree, &summary, stat);
            return summary.weight;
        }
        let mut all = 0;
        if level.is_none_or(|level| summary.level == level) && summary.level > 0 {
            for (index, child) in summary.children.iter().enumerate() {
                let low = if index == 0 {
                    limits.low.clone()
                } else {
                    Some(summary.keys[index].clone())
                };
                let high = summary
                    .keys
                    .get(index + 1)
                    .cloned()
                    .or_else(|| limits.high.clone());
                let below = Some(summary.level - 1);
                let bounds = KeyBounds { low, high };
                let found = self.node(name, tree, *child, below, &bounds, stat);
                all += found;
                if let Some(counted) = summary.counts.get(index)
                    && self.is_table
                    && *counted != found
                {
                    let what = format!("counts {counted} entries below {child}, which has {found}");
                    self.damage(page.to_string(), what);
                }
            }
        }
        all
    }

    fn check_node(&mut self, node: &NodeSummary, level: Option<u8>, limits: &KeyBounds) {
        let place = node.page.to_string();
        if let Some(level) = level
            && level != node.level
        {
            self.damage(&place, format!("level {}, expected {level}", node.level));
        }
        let keys = &node.keys[usize::from(node.kind == PageKind::Inner)..];
        let low = limits
            .low
            .as_ref()
            .zip(keys.first())
            .is_none_or(|(low, key)| low <= key);
        let high = limits
            .high
            .as_ref()
            .zip(keys.last())
            .is_none_or(|(high, key)| key < high);
        if !low || !high {
            self.damage(&place, "keys outside of what its parent says");
        }
        let c = self.superblock.checkpoint_lsn;
        if node.kind == PageKind::Leaf && node.lsn_max > c {
            self.damage(
                &place,
                format!("newer ({}) than its checkpoint ({c})", node.lsn_max),
            );
        }
        if node.multi_lsn > node.lsn_max {
            self.damage(
                &place,
                format!("marks {} > {}", node.multi_lsn, node.lsn_max),
            );
        }
    }

    /// Checks the overflow pages of a leaf.
    fn overflow(&mut self, name: &str, tree: Tree, leaf: &NodeSummary, stat: &mut TableStat) {
        for value in &leaf.overflow {
            let pages = self
                .store
                .drive(|| tree.try_overflow_ids(&self.store.pool, value));
            let pages = match pages {
                Ok(pages) => pages,
                Err(error) => {
                    self.damage(leaf.page.to_string(), error.to_string());
                    continue;
                }
            };
            for page in pages {
                stat.overflow_pages += 1;
                if self.own(page, name)
                    && let Err(error) = self.store.fetch(page)
                {
                    self.damage(page.to_string(), error.to_string());
                }
            }
        }
    }

    /// Checks pages of the mapping that no tree owns.
    pub(crate) fn orphans(&mut self) {
        let high_water = self.store.pool.page_ids().high_water();
        let orphans: Vec<PageId> = (0..high_water)
            .map(PageId)
            .filter(|page| !self.seen.contains_key(page))
            .filter(|page| self.store.pool.stored_extent(*page).is_some())
            .collect();
        let damaged: BTreeSet<String> = self
            .damages
            .iter()
            .map(|damage| damage.place.clone())
            .collect();
        for page in orphans {
            if self.is_leaked(page) {
                self.leaked += 1;
            } else if damaged.is_empty() {
                // If anything is damaged, the page may belong to a node that could not be read.
                self.damage(page.to_string(), "belongs to no tree");
            }
        }
    }

    /// True for a page that belongs to no tree because something that named it was given up.
    /// Chunks, and pages that cannot be read, count as leaked, because their tree is unknown.
    fn is_leaked(&self, page: PageId) -> bool {
        let pool = &self.store.pool;
        if self.leaks.is_empty() || pool.chunk(page).is_some() {
            return !self.leaks.is_empty();
        }
        let tree = self.store.drive(|| pool.tree_of(page));
        tree.map_or(true, |tree| self.leaks.contains(&tree))
    }

    /// Reads and checks the log after the checkpoint.
    pub(crate) fn log(&mut self) -> Option<ReplayEnd> {
        let how = log_behind(&self.superblock);
        let checked = pando_wal::replay(&self.store.device, &how, |lsn: Lsn, payload| {
            let damaged =
                |damage: pando_format::Damage| Error::corrupt(format!("log at {lsn}"), damage);
            for operation in BatchReader::new(payload).map_err(damaged)? {
                let operation = operation.map_err(damaged)?;
                check_operation(self.store.pool.page_size(), &operation).map_err(damaged)?;
                check_extents(self.store, lsn, &operation)?;
            }
            Ok::<(), Error>(())
        });
        match checked {
            Ok(end) => Some(end),
            Err(error) => {
                self.damage("log", error.to_string());
                None
            }
        }
    }
}
