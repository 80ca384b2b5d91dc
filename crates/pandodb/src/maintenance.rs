//! Background work on trees: emptied leaves are taken out, dropped trees are taken apart, the data
//! file grows. Each step is one stay in the gate; nothing of it is logged.

use std::collections::VecDeque;

use pando_format::Lsn;
use pando_format::catalogue::TreeRow;
use pando_pool::{Marks, Restart};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use pando_sync::{Mutex, park, thread, thread_waker};
use pando_tree::{Direction, LeafCopy, ScanValue, Scratch, Tree};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::halt::{Halt, Step, Stop};
use crate::store::pause;
use crate::structure::GARBAGE;

/// Emptied leaves that may wait to be taken out.
const EMPTY_LEAVES_MAX: usize = 1 << 14;
/// Leaves of a dropped tree that are freed before the thread looks for other work.
const GARBAGE_STEPS: usize = 256;

/// Leaves that lost their last record, by a key that they covered.
#[derive(Debug, Default)]
pub(crate) struct EmptyLeaves {
    queue: Mutex<VecDeque<(Tree, Box<[u8]>)>>,
    /// Length of `queue`, which commits look at without the lock. Written under it.
    len: AtomicUsize,
    /// How often a tree was dropped.
    dropped: AtomicU64,
    /// `dropped` when no dropped tree was left.
    dismantled: AtomicU64,
}

impl EmptyLeaves {
    /// Notes a leaf; the caller is in the gate and waits for nothing.
    pub(crate) fn push(&self, tree: Tree, key: &[u8]) {
        let mut queue = self.queue.lock();
        queue.push_back((tree, Box::from(key)));
        self.len.store(queue.len(), Ordering::Relaxed);
    }

    fn pop(&self) -> Option<(Tree, Box<[u8]>)> {
        let mut queue = self.queue.lock();
        let first = queue.pop_front();
        self.len.store(queue.len(), Ordering::Relaxed);
        first
    }

    /// Step 1 of a commit: lets writers wait until the maintenance thread has caught up.
    pub(crate) fn check_room(&self, engine: &Engine) -> Step<()> {
        // Relaxed: a bound that a few may pass.
        if self.len.load(Ordering::Relaxed) < EMPTY_LEAVES_MAX {
            return Ok(());
        }
        engine.space.growth.notify_all();
        Err(Stop::Restart(Restart::Conflict).into())
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
}

impl Engine {
    /// Tells the maintenance thread that a tree was dropped.
    pub(crate) fn garbage_wanted(&self) {
        self.empty_leaves.dropped.fetch_add(1, Ordering::Release);
        self.space.growth.notify_all();
    }

    /// True while dropped trees are still being taken apart.
    pub(crate) fn garbage_left(&self) -> bool {
        // Acquire: pairs with the Release in garbage_wanted.
        self.empty_leaves.dropped.load(Ordering::Acquire)
            > self.empty_leaves.dismantled.load(Ordering::Acquire)
    }

    /// Body of the maintenance thread.
    pub(crate) fn run_maintenance(&self) {
        let mut scratch = Scratch::new();
        if let Err(error) = self.log.prepare_segments() {
            // The budget stays what it is; ENOSPC here is no failure.
            self.space.want(0);
            let _ = error;
        }
        while !self.is_stopping() {
            self.space.grow_if_wanted(self.committed_blocks());
            let worked = self.check_poison().and_then(|()| {
                let leaves = self.remove_empty_leaves()?;
                let garbage = self.collect_garbage(&mut scratch)?;
                Ok(leaves || garbage)
            });
            // What is left of work that cannot be done now is no reason to look again.
            let idle = match worked {
                Ok(true) => continue,
                Ok(false) => true,
                Err(Error::Full { .. }) => false,
                Err(error) => {
                    self.poison(error);
                    false
                }
            };
            self.space.growth.register(&thread_waker());
            // Once more, for what came between the last look and the registration.
            let came = !self.empty_leaves.is_empty() && self.check_poison().is_ok()
                || self.garbage_left() && idle
                || self.space.is_wanted();
            if self.is_stopping() || came {
                continue;
            }
            park();
        }
    }

    /// Takes all emptied leaves out that are noted; at close before the last checkpoint, since
    /// what is noted is not stored.
    pub(crate) fn remove_empty_leaves(&self) -> Result<bool> {
        let mut any = false;
        while let Some((tree, key)) = self.empty_leaves.pop() {
            any = true;
            self.in_gate(|engine| {
                let marks = engine.background_marks();
                match tree.try_remove_empty(&engine.pool, &engine.stay(), marks, &key) {
                    // The tree was dropped and taken apart meanwhile.
                    Err(Restart::Damaged(page, _)) if page == tree.root => Ok(()),
                    other => other.map(drop),
                }
            })?;
        }
        Ok(any)
    }

    /// Marks of a change that belongs to no batch.
    fn background_marks(&self) -> Marks {
        Marks {
            lsn: self.log.reserved_end(),
            multi_lsn: Lsn(0),
        }
    }

    /// Runs one step of background work in a stay of its own until it succeeds. The step changes
    /// nothing when it is refused, and what it waits for is waited for outside of the gate.
    fn in_gate<T>(
        &self,
        mut step: impl FnMut(&Self) -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        let mut turns = 0;
        loop {
            self.check_poison()?;
            let restart = {
                let Some(_pass) = self.gate.try_enter() else {
                    pause(&mut turns);
                    continue;
                };
                match step(self) {
                    Ok(value) => return Ok(value),
                    Err(restart) => restart,
                }
            };
            self.serve(restart, &mut turns)?;
        }
    }

    /// Takes the oldest dropped tree apart, a number of leaves at a time. True if there is more.
    fn collect_garbage(&self, scratch: &mut Scratch) -> Result<bool> {
        if !self.garbage_left() {
            return Ok(false);
        }
        // Before the look: a tree that is dropped after it counts as left. Acquire: pairs with the
        // Release in garbage_wanted.
        let dropped = self.empty_leaves.dropped.load(Ordering::Acquire);
        let Some((key, tree)) = self.oldest_garbage()? else {
            // Release: pairs with the Acquire in garbage_left.
            self.empty_leaves
                .dismantled
                .store(dropped, Ordering::Release);
            return Ok(false);
        };
        for _ in 0..GARBAGE_STEPS {
            if self.is_stopping() || !self.dirty_room(8) {
                thread::yield_now();
                return Ok(!self.is_stopping());
            }
            if self.dismantle_step(tree, &key, scratch)? {
                break;
            }
        }
        Ok(true)
    }

    /// Frees one leaf of `tree`; with the last one its row. True if nothing is left.
    fn dismantle_step(&self, tree: Tree, key: &[u8], scratch: &mut Scratch) -> Result<bool> {
        self.in_gate(|engine| {
            let stay = engine.stay();
            let step = tree.try_dismantle(&engine.pool, &stay, scratch)?;
            engine
                .statistics
                .tick(Ticker::GarbagePages, u64::from(step.pages_freed));
            // From here on something has changed: the stay ends only when all of it is done.
            let finished = engine
                .drive(|| scratch.try_finish(&engine.pool, &stay))
                .and_then(|()| {
                    if step.done {
                        let marks = engine.background_marks();
                        engine.apply(GARBAGE, marks, key, None, scratch)?;
                    }
                    Ok(())
                });
            if let Err(error) = finished {
                engine.poison(error);
            }
            Ok(step.done)
        })
    }

    fn oldest_garbage(&self) -> Result<Option<(Vec<u8>, Tree)>> {
        let mut leaf = LeafCopy::new();
        self.block(|_| {
            let start = std::ops::Bound::Unbounded;
            GARBAGE.try_scan_leaf(&self.pool, start, Direction::Forward, &mut leaf)?;
            let Some((key, ScanValue::Inline(row))) = leaf.iter().next() else {
                return Ok(None);
            };
            let row = TreeRow::decode_garbage(row)
                .map_err(|damage| Halt::Error(Error::corrupt("garbage table", damage)))?;
            Ok(Some((
                key.to_vec(),
                Tree {
                    id: row.tree,
                    root: row.root,
                },
            )))
        })
    }
}
