//! Frees what one small write has turned into garbage: dropped trees, leaf by leaf, and chunks of
//! deleted values, row by row. Each step is one apply section. A row is removed in the apply
//! section that frees the last page that the row names, so a checkpoint contains both or neither
//! (decision 028).

use std::ops::Bound;

use pando_format::catalogue::{
    CATALOGUE_ROOT, FIRST_USER_TREE, GARBAGE_CHUNKS_MAX, GARBAGE_ROOT, GarbageRow, garbage_lsn,
};
use pando_format::lost::decode_aside_key;
use pando_format::{Lsn, PageId};
use pando_pool::ApplyToken;
use pando_stats::Ticker;
use pando_sync::thread;
use pando_tree::{Direction, LeafCopy, LeafFill, ScanValue, Scratch, Tree};

use crate::background::freed_leaves::{FreedLeaves, READ_MAX};
use crate::background::kept_rows::KeptRows;
use crate::blobs::readers::Verdict;
use crate::changes::aside::READS_MAX;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::place_order::order_by_place;
use crate::tables::state::GARBAGE;
use crate::wait::reason::Step;

/// Number of leaves of a dropped tree, or of rows of chunks, that are freed before the thread
/// checks for other work.
const STEPS: usize = 256;
/// Number of dirty pages that a step must have room for: rows for the chunks of one value.
const STEP_PAGES: u64 = 48;

/// Something to free, and the key of its row.
#[derive(Debug)]
enum Garbage {
    Tree(Tree),
    /// Chunks, or overflow pages, of one row.
    Named(Named),
}

/// What a row names one by one.
#[derive(Debug)]
struct Named {
    /// They are chunks, not overflow pages.
    are_chunks: bool,
    /// Those to free.
    free: Vec<PageId>,
    /// Those that are still being read.
    read: Vec<PageId>,
}

/// What follows from a row.
#[derive(Debug)]
enum Row {
    Free(Garbage),
    /// It waits for readers that are looking for a blob reference, or for a snapshot.
    Looked,
    /// It waits for readers of its chunks, or names the tree of a load; both report when it is
    /// garbage.
    Left,
    /// It only records a loss; nothing is to be freed.
    Note,
}

impl Engine {
    /// Returns the LSN below which no snapshot reads, or will read.
    pub(crate) fn horizon(&self) -> Lsn {
        let snapshots = &self.old_versions.snapshots;
        snapshots.horizon(|| self.log.reserved_end())
    }

    /// Tells the maintenance thread that there is new garbage.
    pub(crate) fn garbage_wanted(&self) {
        self.store.registry.note_garbage();
    }

    /// True while something has not been freed, even if it waits for readers, or empty leaves are
    /// about to be removed.
    pub(crate) fn garbage_left(&self) -> bool {
        self.underfull_leaves.is_looked_at() || self.store.registry.is_left()
    }

    /// Frees a part of the oldest garbage. Returns true if there may be more.
    pub(crate) fn collect_garbage(
        &self,
        scratch: &mut Scratch,
        kept: &mut KeptRows,
    ) -> Result<bool> {
        if !self.store.registry.is_wanted() {
            return Ok(false);
        }
        let wanted = self.store.registry.wanted();
        self.store.registry.take_released(&mut kept.released);
        kept.begin(self.log.applied(), self.horizon());
        for _ in 0..STEPS {
            let Some((key, garbage)) = self.look_for_garbage(kept)? else {
                self.store.registry.note_kept_for(kept.horizon());
                self.store.registry.serve(wanted, kept.looked());
                return Ok(false);
            };
            self.store.registry.note_due(wanted);
            let ended = match garbage {
                Garbage::Tree(tree) => {
                    let done = self.free_leftmost(tree, &key, scratch)?;
                    if done {
                        self.loads.forget(tree.id);
                    }
                    done
                }
                Garbage::Named(named) => {
                    self.has_room() && self.free_named(&named, &key, scratch)?
                }
            };
            if !ended {
                thread::yield_now();
                return Ok(!self.store.life.is_ended());
            }
        }
        Ok(true)
    }

    /// True if a step has room among the dirty pages; otherwise asks the cleaner for it. The
    /// cleaner may be asleep, and if nobody commits, nobody else wakes it.
    fn has_room(&self) -> bool {
        let has_room = self.store.dirty_room(STEP_PAGES);
        if !has_room {
            self.store.pool.work().notify_all();
        }
        has_room && !self.store.life.is_ended()
    }

    /// Frees a part of a dropped tree. Returns true if nothing is left of it.
    fn free_leftmost(&self, tree: Tree, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        // Checked inside the gate: a batch that drops a table makes the row first.
        let is_named = self.in_gate(0, |engine, _| {
            Ok(engine.store.tables.of_tree(tree.id).is_some())
        })?;
        if is_named || tree.id < FIRST_USER_TREE {
            let what = format!("{} is to be freed, and is that of a table", tree.id);
            return Err(Error::corrupt("garbage table", what));
        }
        self.check_owner(tree, tree.root)?;
        let mut leaves = FreedLeaves::default();
        for _ in 0..STEPS {
            if !self.has_room() {
                return Ok(false);
            }
            leaves.read_ahead(self, tree);
            if self.free_tree_step(tree, key, scratch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks that `page`, which is to be freed as a part of `tree`, is not known to be anything
    /// else. One that cannot be read may be.
    fn check_owner(&self, tree: Tree, page: PageId) -> Result<()> {
        let pool = &self.store.pool;
        let owner = self.store.drive(|| pool.tree_of(page));
        let what = match owner {
            Ok(owner) if owner == tree.id => return Ok(()),
            Ok(owner) => format!("belongs to {owner}"),
            Err(_) if pool.chunk(page).is_some() => "is a chunk".to_owned(),
            Err(error) if error.is_corruption() && !is_system_root(page) => return Ok(()),
            Err(error) => return Err(error),
        };
        let what = format!("{page} is to be freed with {}, and {what}", tree.id);
        Err(Error::corrupt("garbage table", what))
    }

    /// Frees one leaf of `tree`, or one value in chunks; with the last leaf also removes the row.
    /// Returns true if nothing is left.
    fn free_tree_step(&self, tree: Tree, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        let (mut lost, mut tries) = (None, 0);
        loop {
            let step = self.free_tree_once(tree, key, lost, scratch);
            let page = match &step {
                Err(Error::CorruptPage { page, .. }) if lost.is_none() => *page,
                _ => return step,
            };
            tries += 1;
            if tries < READS_MAX {
                // Some errors are transient.
                continue;
            }
            // `page` is a part of a value, or else on the path to the leftmost leaf.
            if !scratch.do_without(page) {
                self.check_owner(tree, page)?;
                lost = Some(page);
            }
            tries = 0;
            tracing::error!(%page, tree = %tree.id, "a page of a dropped table leaks what it names");
        }
    }

    fn free_tree_once(
        &self,
        tree: Tree,
        key: &[u8],
        lost: Option<PageId>,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        self.in_gate(STEP_PAGES, |engine, token| {
            let step = match lost {
                None => tree.try_free_leftmost(&engine.store.pool, token, scratch)?,
                Some(lost) => tree.try_free_lost(&engine.store.pool, token, lost, scratch)?,
            };
            engine.note_freed(u64::from(step.pages_freed));
            // From here on something has changed: finish all of it before the apply section ends.
            let lsn = engine.background_marks().lsn;
            let finished = engine
                .store
                .end_change(token, tree, lsn, None, scratch)
                .and_then(|()| match step.done {
                    true => engine.remove_row(token, key, scratch),
                    false => Ok(()),
                });
            if let Err(error) = finished {
                engine.poison(error);
            }
            Ok(step.done)
        })
    }

    /// Frees what a row names, and removes the row with the last of it. Until then the row is
    /// rewritten to name only the chunks that are still read.
    fn free_named(&self, named: &Named, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        let Named { free, read, .. } = named;
        assert!(
            !free.is_empty(),
            "a row of which nothing can be freed is passed"
        );
        assert!(
            free.len() + read.len() <= GARBAGE_CHUNKS_MAX,
            "more chunks than a row names"
        );
        debug_assert!(
            !free.iter().any(|chunk| read.contains(chunk)),
            "a chunk that is read is to be freed"
        );
        // Nothing of the row is free yet, so no table can get one of its pages meanwhile.
        let roots = match named.are_chunks {
            true => Vec::new(),
            false => self.store.tables.trees(),
        };
        self.in_gate(STEP_PAGES, |engine, token| {
            let marks = engine.background_marks();
            // If either call is refused, it has changed nothing.
            let fill = if read.is_empty() {
                let removed = GARBAGE.try_remove(&engine.store.pool, token, marks, key, scratch)?;
                assert!(removed.existed, "rows of chunks are removed here only");
                removed.leaf_fill
            } else {
                let row = GarbageRow::encode_chunks(read);
                let inserted =
                    GARBAGE.try_insert(&engine.store.pool, token, marks, key, &row, scratch)?;
                assert!(inserted.replaced, "rows of chunks are removed here only");
                LeafFill::Enough
            };
            let finished = engine
                .store
                .drive(|| scratch.try_finish(&engine.store.pool, token))
                .and_then(|()| {
                    free.iter().try_for_each(|page| {
                        engine.free_one(token, &roots, named.are_chunks, *page)
                    })
                });
            if let Err(error) = finished {
                engine.poison(error);
            }
            engine.note_row(key, fill);
            engine.note_freed(free.len() as u64);
            Ok(true)
        })
    }

    fn note_freed(&self, pages: u64) {
        self.store.statistics.tick(Ticker::GarbagePages, pages);
        self.store.freed_room.note();
    }

    /// Frees a chunk, or an overflow page, that a row names. Leaves alone what is known to be
    /// neither: then the row is damaged.
    fn free_one(
        &self,
        token: &ApplyToken<'_>,
        tables: &[Tree],
        is_chunk: bool,
        page: PageId,
    ) -> Result<()> {
        let pool = &self.store.pool;
        let is_other = pool.chunk(page).is_some() != is_chunk
            || is_system_root(page)
            || tables.iter().any(|tree| tree.root == page);
        let freed = match is_other {
            true => Err(Error::corrupt(page.to_string(), "is something else")),
            false => self.store.drive(|| pool.free_unread(token, page)),
        };
        match freed {
            Err(error) if error.is_corruption() => {
                tracing::error!(%error, "a row of garbage names what cannot be freed");
                Ok(())
            }
            freed => freed,
        }
    }

    fn remove_row(&self, token: &ApplyToken<'_>, key: &[u8], scratch: &mut Scratch) -> Result<()> {
        let marks = self.background_marks();
        let (_, fill) = self
            .store
            .apply(token, GARBAGE, marks, key, None, scratch)?;
        self.note_row(key, fill);
        Ok(())
    }

    fn note_row(&self, key: &[u8], fill: LeafFill) {
        if fill != LeafFill::Enough {
            // Do not wake the maintenance thread: this is it.
            let _wake = self.underfull_leaves.push(GARBAGE, key, fill);
        }
    }

    /// Returns the oldest row of which something can be freed. Notes in `kept` the rows passed
    /// over.
    fn look_for_garbage(&self, kept: &mut KeptRows) -> Result<Option<(Vec<u8>, Garbage)>> {
        if let Some((key, tree)) = self.loads.given_up() {
            return Ok(Some((key, Garbage::Tree(tree))));
        }
        let mut leaf = LeafCopy::new();
        while let Some(key) = kept.released.front() {
            // The key stays in the queue until nothing of its row is left to free.
            let found = self.scan_rows(Bound::Included(key), &mut leaf)?;
            let row = found.then(|| leaf.entry(0));
            let row = row.filter(|(found, _)| *found == &key[..]);
            let row = row
                .map(|(key, row)| self.look_at_row(key, row, kept.horizon()))
                .transpose()?;
            match row {
                Some(Row::Free(garbage)) => return Ok(Some((key.to_vec(), garbage))),
                // It may have to wait for a looking reader: then the scan below will find it again.
                Some(Row::Looked) => kept.unsettle(),
                Some(Row::Left | Row::Note) | None => {}
            }
            kept.released.pop_front();
        }
        let mut from = kept.position();
        loop {
            let bound = from.as_ref().map(|key| &key[..]);
            self.scan_rows(bound, &mut leaf)?;
            // The rows have been read: a reader that registers from here on does not need their
            // chunks.
            for index in 0..leaf.len() {
                let (key, row) = leaf.entry(index);
                match self.look_at_row(key, row, kept.horizon())? {
                    Row::Free(garbage) => {
                        let key = key.to_vec();
                        if let Garbage::Tree(tree) = &garbage {
                            self.read_roots_ahead(tree.root, &mut leaf, index + 1);
                        }
                        return Ok(Some((key, garbage)));
                    }
                    Row::Left => kept.leave(key),
                    Row::Looked => kept.leave_looked(key),
                    Row::Note => {}
                }
            }
            match leaf.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(None),
            }
        }
    }

    /// Reads `root`, if it is not in memory, together with the roots of the dropped trees from
    /// entry `from` of `leaf` on: what waited for long enough to be evicted is not alone. What
    /// cannot be read is met again by whoever frees it. Blocks.
    fn read_roots_ahead(&self, root: PageId, leaf: &mut LeafCopy, from: usize) {
        let pool = &self.store.pool;
        if !pool.is_on_disk(root) {
            return;
        }
        let mut pages = vec![root];
        let most = READ_MAX.min(pool.frames() / 16);
        for index in from..leaf.len().min(from + most) {
            let (key, row) = leaf.entry(index);
            let (None, ScanValue::Inline(row)) = (decode_aside_key(key), row) else {
                continue;
            };
            if let Ok(GarbageRow::DroppedTree(row)) = GarbageRow::decode(row)
                && pool.is_on_disk(row.root)
            {
                pages.push(row.root);
            }
        }
        order_by_place(pool, &mut pages, &mut Vec::new());
        self.fetch_some(&pages);
    }

    /// Copies the rows of one leaf from `from` on. Returns true if there is at least one.
    fn scan_rows(&self, from: Bound<&[u8]>, leaf: &mut LeafCopy) -> Result<bool> {
        self.block(|_| -> Step<()> {
            GARBAGE.try_scan_leaf(&self.store.pool, from, Direction::Forward, leaf)?;
            Ok(())
        })?;
        Ok(!leaf.is_empty())
    }

    /// Returns what follows from a row, and from the readers of its chunks.
    fn look_at_row(&self, key: &[u8], row: ScanValue<'_>, horizon: Lsn) -> Result<Row> {
        let damaged = |what: String| Error::corrupt("garbage table", what);
        if decode_aside_key(key).is_some() {
            return Ok(Row::Note);
        }
        let (Some(lsn), ScanValue::Inline(row)) = (garbage_lsn(key), row) else {
            return Err(damaged(
                "a row that is too long, or its key too short".into(),
            ));
        };
        let row = GarbageRow::decode(row).map_err(|damage| damaged(damage.what))?;
        if self.loads.owns(lsn, &row) {
            return Ok(Row::Left);
        }
        if lsn > horizon && !matches!(row, GarbageRow::Leaked { .. } | GarbageRow::Aside) {
            return Ok(Row::Looked);
        }
        Ok(match row {
            GarbageRow::DroppedTree(row) => Row::Free(Garbage::Tree(Tree {
                id: row.tree,
                root: row.root,
            })),
            GarbageRow::Leaked { .. } | GarbageRow::Aside => Row::Note,
            GarbageRow::Pages(pages) => Row::Free(Garbage::Named(Named {
                are_chunks: false,
                free: pages,
                read: Vec::new(),
            })),
            GarbageRow::Chunks(chunks) => {
                let block = |page| {
                    self.store
                        .pool
                        .chunk(page)
                        .map(|stored| stored.extent.block)
                };
                let named = chunks.iter().map(|page| (*page, block(*page)));
                match self.store.registry.judge(key, lsn, named) {
                    Verdict::Looked => Row::Looked,
                    Verdict::Free(mut free, mut read) => {
                        let count = free.len() + read.len();
                        assert_eq!(count, chunks.len(), "each chunk is freed, or read");
                        // The row's key contains the first chunk: keep that one until last, so that
                        // its id is not reused before the row is gone.
                        if !read.is_empty() && free.first() == chunks.first() {
                            read.insert(0, free.remove(0));
                        }
                        match free.is_empty() {
                            true => Row::Left,
                            false => Row::Free(Garbage::Named(Named {
                                are_chunks: true,
                                free,
                                read,
                            })),
                        }
                    }
                }
            }
        })
    }
}

/// Returns whether `page` is the root of a system tree, without which nothing of a store is found.
fn is_system_root(page: PageId) -> bool {
    [CATALOGUE_ROOT, GARBAGE_ROOT].contains(&page)
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::{Wake, Waker};

    use pando_sync::WakerArc;
    use pando_sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Db, Durability, WriteOptions};
    use pando_format::catalogue::garbage_key;

    #[derive(Default)]
    struct Called(AtomicBool);

    impl Wake for Called {
        fn wake(self: WakerArc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A row of garbage that is damaged, or that exists twice, must not free the pages of a table.
    #[test]
    fn a_tree_that_a_table_has_is_not_taken_apart() {
        let device = pando_device::faulty::FaultyDevice::new(1);
        let db = Db::open_device(Db::builder().max_memory(8 << 20), device.into()).unwrap();
        let table = db.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let (engine, tree) = (db.engine(), table.state.tree().unwrap());
        let free = || {
            let key = garbage_key(engine.log.applied(), 0);
            engine.free_leftmost(tree, &key, &mut Scratch::new())
        };
        assert!(free().unwrap_err().is_corruption());
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
        db.drop_table("t").unwrap();
        while db.garbage_left() {
            thread::yield_now();
        }
        assert_eq!(engine.store.pool.chunks(), 0);
    }

    /// A thread that frees garbage and finds no clean frames wakes the cleaner.
    #[test]
    fn who_frees_garbage_and_has_no_clean_frames_wakes_the_cleaner() {
        let options = Db::builder().max_memory(16 << 20);
        let db = options.open_in_memory().expect("a store in memory");
        let table = db.table("t").expect("a table");
        let quick = WriteOptions::durability(Durability::None);
        let engine = db.engine();
        let called = WakerArc::new(Called::default());
        for number in 0_u32.. {
            table
                .put_with(&number.to_be_bytes(), &[7; 3000], quick)
                .expect("room for a page");
            called.0.store(false, Ordering::Relaxed);
            engine
                .store
                .pool
                .work()
                .register(&Waker::from(called.clone()));
            if !engine.has_room() {
                break;
            }
        }
        assert!(called.0.load(Ordering::Relaxed));
    }
}
