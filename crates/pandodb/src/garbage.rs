//! Freeing what became garbage in one small write: dropped trees, leaf by leaf, and chunks of
//! values that are gone, a row at a time. A step is one stay in the gate; the row goes in the stay
//! that frees the last of what it names, so a checkpoint holds both or neither.

use pando_format::catalogue::{GarbageRow, garbage_lsn};
use pando_format::{Lsn, PageId};
use pando_stats::Ticker;
use pando_sync::thread;
use pando_tree::{Direction, LeafCopy, LeafFill, ScanValue, Scratch, Tree};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::halt::Step;
use crate::kept_rows::KeptRows;
use crate::structure::GARBAGE;

/// Leaves of a dropped tree, or rows of chunks, that are freed before the thread looks for other
/// work.
const STEPS: usize = 256;
/// Room among the dirty pages that a step waits for: rows for the chunks of one value.
const STEP_PAGES: u64 = 48;

/// Something to free, and the key of its row.
#[derive(Debug)]
enum Garbage {
    Tree(Tree),
    Chunks(Vec<PageId>),
}

/// What a row says.
#[derive(Debug)]
enum Row {
    Free(Garbage),
    /// It waits for the reader that registered then.
    Kept(Lsn),
    /// It names the tree of a load, which says itself when it is garbage.
    Filling,
}

impl Engine {
    /// Tells the maintenance thread that something became garbage.
    pub(crate) fn garbage_wanted(&self) {
        self.registry.want();
    }

    /// True while something is still to be freed, also if it waits for readers.
    pub(crate) fn garbage_left(&self) -> bool {
        self.registry.is_left()
    }

    /// Frees a part of the oldest garbage. True if there may be more.
    pub(crate) fn collect_garbage(
        &self,
        scratch: &mut Scratch,
        kept: &mut KeptRows,
    ) -> Result<bool> {
        if !self.registry.is_wanted() {
            return Ok(false);
        }
        let wanted = self.registry.wanted();
        for _ in 0..STEPS {
            let Some((key, garbage)) = self.look_for_garbage(kept)? else {
                self.registry.serve(wanted, kept.count());
                return Ok(false);
            };
            let ended = match garbage {
                Garbage::Tree(tree) => {
                    let done = self.dismantle(tree, &key, scratch)?;
                    if done {
                        self.loads.forget(tree.id);
                    }
                    done
                }
                Garbage::Chunks(chunks) => {
                    self.has_room() && self.free_chunks(&chunks, &key, scratch)?
                }
            };
            if !ended {
                thread::yield_now();
                return Ok(!self.is_stopping());
            }
        }
        Ok(true)
    }

    /// Asks the cleaner for clean frames when there are too few: it may sleep, and where nobody
    /// commits nobody else wakes it.
    fn has_room(&self) -> bool {
        let has_room = self.dirty_room(STEP_PAGES);
        if !has_room {
            self.pool.work().notify_all();
        }
        has_room && !self.is_stopping()
    }

    /// Takes a tree apart, as far as it is this turn's to do. True if that was all of it.
    fn dismantle(&self, tree: Tree, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        for _ in 0..STEPS {
            if !self.has_room() {
                return Ok(false);
            }
            if self.dismantle_step(tree, key, scratch)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Frees one leaf of `tree`, or one value in chunks; with the last leaf its row. True if
    /// nothing is left.
    fn dismantle_step(&self, tree: Tree, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        self.in_gate(|engine| {
            let stay = engine.stay();
            let step = tree.try_dismantle(&engine.pool, &stay, scratch)?;
            engine
                .statistics
                .tick(Ticker::GarbagePages, u64::from(step.pages_freed));
            // From here on something has changed: the stay ends only when all of it is done.
            let lsn = engine.background_marks().lsn;
            let finished = engine
                .drive(|| scratch.try_finish(&engine.pool, &stay))
                .and_then(|()| engine.bury(lsn, None, scratch))
                .and_then(|()| match step.done {
                    true => engine.remove_row(key, scratch),
                    false => Ok(()),
                });
            if let Err(error) = finished {
                engine.poison(error);
            }
            Ok(step.done)
        })
    }

    /// Frees the chunks of a row, and the row.
    fn free_chunks(&self, chunks: &[PageId], key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        self.in_gate(|engine| {
            let stay = engine.stay();
            let marks = engine.background_marks();
            // Refused, it has changed nothing.
            let removed = GARBAGE.try_remove(&engine.pool, &stay, marks, key, scratch)?;
            assert!(removed.existed, "rows of chunks are removed here only");
            let finished = engine
                .drive(|| scratch.try_finish(&engine.pool, &stay))
                .and_then(|()| {
                    chunks.iter().try_for_each(|chunk| {
                        engine.drive(|| engine.pool.free_unread(&stay, *chunk))
                    })
                });
            if let Err(error) = finished {
                engine.poison(error);
            }
            engine.note_row(key, removed.leaf_fill);
            engine
                .statistics
                .tick(Ticker::GarbagePages, chunks.len() as u64);
            Ok(true)
        })
    }

    /// The caller is in the gate.
    fn remove_row(&self, key: &[u8], scratch: &mut Scratch) -> Result<()> {
        let marks = self.background_marks();
        let (_, fill) = self.apply(GARBAGE, marks, key, None, scratch)?;
        self.note_row(key, fill);
        Ok(())
    }

    fn note_row(&self, key: &[u8], fill: LeafFill) {
        if fill != LeafFill::Enough {
            // The thread that is woken for it is this one.
            let _wake = self.sparse_leaves.push(GARBAGE, key, fill);
        }
    }

    /// The oldest row that nothing stands against. Those before it are `kept`.
    fn look_for_garbage(&self, kept: &mut KeptRows) -> Result<Option<(Vec<u8>, Garbage)>> {
        if let Some((key, tree)) = self.loads.given_up() {
            return Ok(Some((key, Garbage::Tree(tree))));
        }
        let mut leaf = LeafCopy::new();
        // Before any row is read: what waits for a reader that goes meanwhile is looked at again.
        let mut from = kept.begin(self.registry.oldest());
        loop {
            self.block(|_| -> Step<()> {
                let bound = from.as_ref().map(|key| &key[..]);
                GARBAGE.try_scan_leaf(&self.pool, bound, Direction::Forward, &mut leaf)?;
                Ok(())
            })?;
            // The rows were read: who registers from here on does not want what they name.
            for (key, row) in leaf.iter() {
                match self.look_at_row(key, row)? {
                    Row::Free(garbage) => return Ok(Some((key.to_vec(), garbage))),
                    Row::Kept(reader) => kept.keep(key, reader),
                    Row::Filling => {}
                }
            }
            match leaf.next_bound() {
                Some(next) => from = next.map(<[u8]>::to_vec),
                None => return Ok(None),
            }
        }
    }

    /// What a row names, or who may be reading it.
    fn look_at_row(&self, key: &[u8], row: ScanValue<'_>) -> Result<Row> {
        let damaged = |what: String| Error::corrupt("garbage table", what);
        let (Some(lsn), ScanValue::Inline(row)) = (garbage_lsn(key), row) else {
            return Err(damaged(
                "a row that is too long, or its key too short".into(),
            ));
        };
        let row = GarbageRow::decode(row).map_err(|damage| damaged(damage.what))?;
        if self.loads.owns(lsn, &row) {
            return Ok(Row::Filling);
        }
        Ok(match row {
            GarbageRow::DroppedTree(row) => Row::Free(Garbage::Tree(Tree {
                id: row.tree,
                root: row.root,
            })),
            GarbageRow::Chunks(chunks) => match self.registry.waits_for(lsn) {
                Some(reader) => Row::Kept(reader),
                None => Row::Free(Garbage::Chunks(chunks)),
            },
        })
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::{Wake, Waker};

    use pando_sync::WakerArc;
    use pando_sync::atomic::{AtomicBool, Ordering};

    use crate::{Db, Durability, WriteOptions};

    #[derive(Default)]
    struct Called(AtomicBool);

    impl Wake for Called {
        fn wake(self: WakerArc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

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
            engine.pool.work().register(&Waker::from(called.clone()));
            if !engine.has_room() {
                break;
            }
        }
        assert!(called.0.load(Ordering::Relaxed));
    }
}
