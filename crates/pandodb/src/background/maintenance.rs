//! Background work on trees: removes empty leaves and merges underfull ones with a neighbour, frees
//! garbage (see `garbage`), and grows the data file. Each step is one apply section, and none of it
//! is logged (decision 019).

use pando_format::Lsn;
use pando_pool::{ApplyToken, Attempt, Marks, Restart};
use pando_sync::held::{Kind, assert_none};
use pando_sync::time::Duration;
use pando_sync::{park, thread, thread_waker};
use pando_tree::{LeafCopy, ScanBound, Scratch, Tree};

use crate::background::kept_rows::KeptRows;
use crate::background::old_versions::{TURN, VersionCare};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::store::pause;
use crate::space::growth::MadeRoom;
use crate::space::reservations::BlockReservation;
use crate::space::urgency::Urgency;
use crate::tables::state::TableState;
use crate::wait::reason::WaitReason;

/// Number of underfull leaves that are processed before the thread checks for other work.
const UNDERFULL_STEPS: usize = 256;
/// Pause while a checkpoint frees blocks that somebody waits for.
const PAUSE: Duration = Duration::from_millis(1);
/// Most pages that the removal of an empty leaf dirties: the node that loses a child and the
/// absorbing leaf; and two to spare.
const REMOVAL_PAGES: u64 = 4;
/// Most pages that merging one leaf may dirty.
pub(crate) const MERGE_PAGES: u64 = 8;

/// Result of a wait for room for a change of a leaf.
enum LeafRoom<'a> {
    Reserved(BlockReservation<'a>),
    /// Try again when the file has grown; or never, if the store is closing.
    Later,
    /// No checkpoint can make room, or pages wait for it: others need this thread meanwhile. The
    /// leaf stays as it is; a scan that meets an empty one queues it again.
    Never,
}

impl Engine {
    /// Loop of the maintenance thread.
    pub(crate) fn run_maintenance(&self) {
        let mut scratch = Scratch::of_background();
        let mut kept = KeptRows::default();
        let mut care = VersionCare::default();
        // Damage was logged; once is enough.
        let mut damaged = false;
        let mut poisoned = false;
        while !self.store.life.is_ended() {
            if self.store.space.is_wanted() {
                // Before the data file takes the room.
                self.store.keep_mapping_room();
            }
            self.grow_data_file();
            self.care_for_versions(&mut care);
            self.locks.care();
            let wanted = self.store.registry.wanted();
            let worked = self.tend_trees(&mut scratch, &mut kept);
            // Work that cannot be done now is no reason to continue.
            let idle = match worked {
                Ok(true) => continue,
                Ok(false) => !self.options.read_only,
                Err(Error::Full { .. }) => {
                    // Nobody waits for garbage meanwhile.
                    self.store.registry.stall();
                    false
                }
                // A page of a system tree is damaged. Garbage stays, and operations that need the
                // page get the error.
                Err(error) if error.is_corruption() => {
                    if !std::mem::replace(&mut damaged, true) {
                        tracing::error!(%error, "garbage stays until the store is salvaged");
                    }
                    self.store.registry.fail(wanted);
                    false
                }
                Err(error) => {
                    // Once: it wakes everybody, this thread, too.
                    if !std::mem::replace(&mut poisoned, true) {
                        self.poison(error);
                    }
                    false
                }
            };
            self.store.space.growth.register(&thread_waker());
            self.store.registry.work.register(&thread_waker());
            // Once more, for requests between the last look and the registration.
            let came = self.are_leaves_due() && self.tends_trees()
                || self.store.registry.is_wanted()
                    && (idle || self.store.registry.wanted() != wanted)
                || self.store.space.is_wanted()
                || self.old_versions.is_wanted();
            if self.store.life.is_ended() || came {
                continue;
            }
            let watches = self.locks.watch() || self.old_versions.snapshots.is_on();
            let turn = watches.then_some(TURN);
            let leaves = match self.tends_trees() {
                true => self.underfull_leaves.due_in(),
                false => None,
            };
            match turn.into_iter().chain(leaves).min() {
                Some(time) => thread::park_timeout(time),
                None => park(),
            }
        }
    }

    /// Returns whether trees may be changed.
    fn tends_trees(&self) -> bool {
        !self.options.read_only && self.store.check_poison().is_ok()
    }

    /// Does what is due in trees; returns true if there may be more. Does nothing in a store that
    /// is only read.
    fn tend_trees(&self, scratch: &mut Scratch, kept: &mut KeptRows) -> Result<bool> {
        if self.options.read_only {
            return Ok(false);
        }
        self.store.check_poison()?;
        self.count_leaks_again(scratch)?;
        let leaves = self.are_leaves_due() && self.tidy_leaves(scratch)?;
        let garbage = self.collect_garbage(scratch, kept)?;
        Ok(leaves || garbage)
    }

    /// Has empty leaves removed soon, if a scan of `table`, from `from` on, has copied one. `tree`
    /// returns the one that it was copied from: at a snapshot the table may have had another.
    #[inline]
    pub(crate) fn note_passed(
        &self,
        table: &TableState,
        tree: impl FnOnce() -> Option<Tree>,
        (from, leaf): (ScanBound<'_>, &LeafCopy),
    ) {
        if let Some(key) = leaf.passed_over(from)
            && !self.options.read_only
            && let Some(tree) = tree()
            && table.tree() == Some(tree)
            && self.underfull_leaves.meet(tree, key)
        {
            self.store.space.growth.notify_all();
        }
    }

    /// Returns true if queued leaves are to be looked at now: enough have come, or the first one a
    /// while ago.
    fn are_leaves_due(&self) -> bool {
        self.underfull_leaves.due_in() == Some(Duration::ZERO)
    }

    /// Grows the data file if somebody wants blocks.
    fn grow_data_file(&self) {
        let mut made = None;
        let make_room = |needed| *made.insert(self.make_room(needed));
        let committed = self.store.committed_blocks();
        self.store.space.grow_if_wanted(committed, make_room);
        if made == Some(MadeRoom::Later) {
            // Whoever waits for blocks asks again at once.
            thread::park_timeout(PAUSE);
        }
    }

    /// Removes or merges underfull leaves from the queue, a limited number of them. Returns true if
    /// there may be more.
    fn tidy_leaves(&self, scratch: &mut Scratch) -> Result<bool> {
        let has_more = self.tidy_some_leaves(scratch);
        self.underfull_leaves.rest();
        has_more
    }

    fn tidy_some_leaves(&self, scratch: &mut Scratch) -> Result<bool> {
        for step in 0..UNDERFULL_STEPS {
            // At least one leaf, however often writers want blocks.
            if step > 0 && self.store.space.is_wanted() {
                return Ok(true);
            }
            let Some((tree, key)) = self.underfull_leaves.pop() else {
                return Ok(false);
            };
            let room = match self.wait_for_room_to_remove() {
                LeafRoom::Reserved(room) => room,
                LeafRoom::Later => {
                    self.underfull_leaves.put_back((tree, key));
                    return Ok(true);
                }
                LeafRoom::Never => continue,
            };
            let unknown = self.leave_damaged(self.in_gate(REMOVAL_PAGES, |engine, token| {
                engine.remove_empty(token, tree, &key)
            }))?;
            drop(room);
            if unknown.unwrap_or(true) || self.store.space.is_full() {
                continue;
            }
            let _reservation = match self.wait_for_room_to_merge() {
                LeafRoom::Reserved(room) => room,
                LeafRoom::Later => {
                    self.underfull_leaves.put_back((tree, key));
                    return Ok(true);
                }
                LeafRoom::Never => continue,
            };
            self.leave_damaged(self.in_gate(MERGE_PAGES, |engine, token| {
                engine.merge(token, tree, &key, scratch)
            }))?;
        }
        Ok(true)
    }

    /// Turns damage into None, after logging it: optional work skips a page that cannot be read.
    fn leave_damaged<T>(&self, worked: Result<T>) -> Result<Option<T>> {
        match worked {
            Err(error) if error.is_corruption() => {
                tracing::error!(%error, "underfull leaves beside it stay as they are");
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Counts leaks whose rows could not be read when they came about. Those that still cannot be
    /// counted wait for the next time.
    pub(crate) fn count_leaks_again(&self, scratch: &mut Scratch) -> Result<()> {
        for (tree, leaks) in self.store.uncounted_leaks.take() {
            let Some(_room) = self.room_to_merge() else {
                self.store.uncounted_leaks.add(tree, leaks);
                continue;
            };
            self.in_gate(MERGE_PAGES, |engine, token| {
                Ok(engine.store.count_leaks(token, tree, leaks, scratch))
            })??;
        }
        Ok(())
    }

    /// As `tidy_leaves`, for the whole queue before the last checkpoint at close, because the queue
    /// is not stored. Reads no pages and waits for no room: work that cannot be done now is
    /// skipped.
    pub(crate) fn tidy_leaves_at_close(&self) -> Result<()> {
        let mut scratch = Scratch::of_background();
        self.count_leaks_again(&mut scratch)?;
        let no_reads = |restart| match restart {
            Restart::Fault(_) => Ok(()),
            other => Err(other),
        };
        while let Some((tree, key)) = self.underfull_leaves.pop() {
            let Some(_room) = self.room_to_remove() else {
                return Ok(());
            };
            self.leave_damaged(self.in_gate(REMOVAL_PAGES, |engine, token| {
                let done = engine.remove_empty(token, tree, &key);
                done.map(drop).or_else(no_reads)
            }))?;
            if let Some(_reservation) = self.room_to_merge() {
                self.leave_damaged(self.in_gate(MERGE_PAGES, |engine, token| {
                    engine
                        .merge(token, tree, &key, &mut scratch)
                        .or_else(no_reads)
                }))?;
            }
        }
        Ok(())
    }

    /// Reserves blocks for the pages that the removal of an empty leaf dirties.
    fn room_to_remove(&self) -> Option<BlockReservation<'_>> {
        let blocks = REMOVAL_PAGES * u64::from(self.store.page_blocks());
        let committed = || self.store.committed_blocks();
        (self.store.space).try_reserve(blocks, committed, Urgency::Deletes)
    }

    /// As [`Engine::room_to_remove`]; on a full disk waits for the checkpoint that makes room, as
    /// deletes do.
    fn wait_for_room_to_remove(&self) -> LeafRoom<'_> {
        let mut turns = 0;
        loop {
            if self.store.is_too_short_for(REMOVAL_PAGES, true) {
                return LeafRoom::Never;
            }
            if let Some(reservation) = self.room_to_remove() {
                return LeafRoom::Reserved(reservation);
            }
            let is_full = self.store.space.is_full();
            if self.store.life.is_ended() || self.store.check_poison().is_err() || !is_full {
                return LeafRoom::Later;
            }
            if self.store.life.is_checkpoint_stalled() {
                return LeafRoom::Never;
            }
            self.checkpoint.request();
            pause(&mut turns);
        }
    }

    /// Waits for the cleaner to make room among the dirty pages.
    fn wait_for_room_to_merge(&self) -> LeafRoom<'_> {
        let mut turns = 0;
        loop {
            if let Some(reservation) = self.room_to_merge() {
                return LeafRoom::Reserved(reservation);
            }
            // The cleaner waits, too, and for as long as the disk is full.
            if self.store.is_too_short_for(MERGE_PAGES, true) {
                return LeafRoom::Never;
            }
            let ends = self.store.life.is_ended()
                || self.store.space.is_wanted()
                || self.store.check_poison().is_err();
            if ends {
                return LeafRoom::Later;
            }
            self.store.pool.work().notify_all();
            pause(&mut turns);
        }
    }

    /// Reserves blocks for the pages that a merge dirties; None also if too many pages are dirty.
    pub(crate) fn room_to_merge(&self) -> Option<BlockReservation<'_>> {
        let blocks = MERGE_PAGES * u64::from(self.store.page_blocks());
        let store = &self.store;
        (store.dirty_room(MERGE_PAGES) && !store.is_too_short_for(MERGE_PAGES, true))
            .then(|| {
                let committed = || store.committed_blocks();
                (store.space).try_reserve(blocks, committed, Urgency::Deletes)
            })
            .flatten()
    }

    /// Removes the leaf that covers `key` if it is empty. Returns true if the tree does not exist.
    fn remove_empty(&self, token: &ApplyToken<'_>, tree: Tree, key: &[u8]) -> Attempt<bool> {
        let removed = tree.try_remove_empty(&self.store.pool, token, self.background_marks(), key);
        match removed {
            // The tree was dropped and freed meanwhile.
            Err(Restart::Damaged(page, _)) if page == tree.root => Ok(true),
            other => other.map(|removed| {
                if removed {
                    self.store.freed_room.note();
                }
                false
            }),
        }
    }

    fn merge(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Attempt<()> {
        let marks = self.background_marks();
        match tree.try_merge(&self.store.pool, token, marks, key, scratch) {
            Err(Restart::Damaged(page, _)) if page == tree.root => Ok(()),
            Ok(0) => Ok(()),
            other => {
                // Also if it has merged some, and has to begin again.
                self.store.freed_room.note();
                other.map(drop)
            }
        }
    }

    /// Returns the marks of a change that belongs to no batch.
    pub(crate) fn background_marks(&self) -> Marks {
        Marks {
            lsn: self.log.reserved_end(),
            multi_lsn: Lsn(0),
        }
    }

    /// Runs one step of background work, in an apply section of its own, until it succeeds. A
    /// refused step has changed nothing, and the wait for what it needs happens outside the gate.
    /// The step may dirty `pages` pages.
    pub(crate) fn in_gate<T>(
        &self,
        pages: u64,
        mut step: impl FnMut(&Self, &ApplyToken<'_>) -> std::result::Result<T, Restart>,
    ) -> Result<T> {
        let mut turns = 0;
        loop {
            self.store.check_poison()?;
            let restart = {
                let Some(guard) = self.store.pool.gate().try_enter() else {
                    self.park_for(&WaitReason::Gate)?;
                    continue;
                };
                let section = self.begin_section();
                section.begin_changes();
                let done = step(self, &self.store.pool.apply_token(&guard));
                assert_none(&[Kind::Latch]);
                section.end_changes(pages);
                match done {
                    Ok(value) => return Ok(value),
                    Err(restart) => restart,
                }
            };
            self.store.serve(restart, &mut turns)?;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::future::Future;
    use std::ops::Bound;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;
    use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::PageId;
    use pando_stats::Ticker;
    use pando_sync::atomic::{AtomicBool, Ordering};
    use pando_sync::{Arc, time};
    use pando_tree::LeafFill;

    use crate::nonblocking::{Polled, Reads, ScanPage};
    use crate::{Db, Durability, Table, TransactionOptions, WriteOptions};

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    pub(crate) fn wait_until(what: &str, mut is_over: impl FnMut() -> bool) {
        let deadline = time::now() + Duration::from_secs(30);
        while !is_over() {
            assert!(time::now() < deadline, "{what}");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// A store on a disk that became full: a checkpoint waits for room for its pages.
    pub(crate) struct ShortStore {
        pub(crate) db: Db,
        pub(crate) table: Table,
        device: FaultyDevice,
        checkpoint: thread::JoinHandle<Result<()>>,
    }

    const ROWS: u32 = 1500;

    pub(crate) fn key(number: u32) -> [u8; 4] {
        number.to_be_bytes()
    }

    impl ShortStore {
        pub(crate) fn new() -> Self {
            let device = FaultyDevice::new(1);
            let options = Db::builder().frames(128).max_memory(8 << 20);
            let options = options.page_size(4096);
            let db = Db::open_device(options, device.clone().into()).unwrap();
            let table = db.table("t").unwrap();
            let none = WriteOptions::durability(Durability::None);
            // Three of them are in a page.
            for number in 0..ROWS {
                table.put_with(&key(number), &[7; 1000], none).unwrap();
            }
            db.checkpoint().unwrap();
            device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
            assert!(table.delete_with(&key(ROWS - 1), none).unwrap());
            let shared = db.clone();
            let checkpoint = thread::spawn(move || shared.checkpoint());
            let store = &db.engine().store;
            wait_until("pages wait", || store.life.is_short());
            Self {
                db,
                table,
                device,
                checkpoint,
            }
        }

        /// As [`ShortStore::new`], and so many other pages are dirty that a merge has to wait for
        /// the cleaner, but not a removal.
        pub(crate) fn with_dirty_pages() -> Self {
            let short = Self::new();
            let engine = short.db.engine();
            let store = &engine.store;
            // Deletes are refused earlier.
            for page in (0..store.pool.page_ids().high_water()).map(PageId) {
                if !store.dirty_room(MERGE_PAGES) {
                    break;
                }
                let changed = engine.in_gate(1, |_, token| {
                    let mut latch = store.pool.exclusive(page)?;
                    latch.write_again(token)
                });
                changed.unwrap();
            }
            assert!(store.is_too_short_for(MERGE_PAGES, true));
            assert!(!store.is_too_short_for(REMOVAL_PAGES, true));
            assert!(!store.space.is_full());
            short
        }

        /// Makes room; checks that the store is sound.
        pub(crate) fn end(self) {
            self.device.clear_faults();
            self.checkpoint.join().unwrap().unwrap();
            drop(self.table);
            self.db.close().unwrap();
            let report = crate::VerifyReport::of_device(&self.device.into()).unwrap();
            assert!(report.damages.is_empty(), "{:?}", report.damages);
        }
    }

    /// A few are looked at, too, though nothing happens any more in the store.
    #[test]
    fn a_few_empty_leaves_are_removed_a_little_later() {
        let db = Db::builder().open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        for number in 0..100 {
            table.put(&key(number), &[7; 1000]).unwrap();
        }
        for number in 50..60 {
            table.delete(&key(number)).unwrap();
        }
        wait_until("the leaves are removed", || {
            db.statistics().get(Ticker::PagesRemoved) >= 2
        });
        db.close().unwrap();
    }

    /// Nobody knows of one that became empty before a crash; whoever passes over it tells.
    #[test]
    fn an_empty_leaf_that_a_scan_passes_is_removed() {
        let scans: [fn(&Table); 4] = [
            |table| assert_eq!(table.iter().count(), 97),
            |table| assert_eq!(table.iter().rev().count(), 97),
            |table| {
                let snapshot = table.db.snapshot().unwrap();
                assert_eq!(snapshot.iter(table).count(), 97);
            },
            scan_by_leaf,
        ];
        for scan in scans {
            let db = Db::builder().open_in_memory().unwrap();
            let table = db.table("t").unwrap();
            for number in 0..100 {
                table.put(&key(number), &[7; 1000]).unwrap();
            }
            // Those of one leaf.
            for number in 30..33 {
                table.delete(&key(number)).unwrap();
                while db.engine().underfull_leaves.pop().is_some() {}
            }
            // Unless the thread was faster than this one, it stays.
            wait_until("the leaf is removed", || {
                scan(&table);
                db.statistics().get(Ticker::PagesRemoved) > 0
            });
            db.close().unwrap();
        }
    }

    /// Passes over all entries of a table that is in memory, as an event loop does.
    fn scan_by_leaf(table: &Table) {
        let mut page = ScanPage::default();
        let mut from = Bound::Unbounded;
        let mut entries = 0;
        loop {
            let from_key = from.as_ref().map(|key: &Vec<u8>| &key[..]);
            let scanned = Reads::of(table).scan(from_key, &mut page).unwrap();
            assert!(matches!(scanned, Polled::Ready(())), "it is in memory");
            entries += page.len();
            match page.next.take() {
                Some(next) => from = Bound::Included(next),
                None => break,
            }
        }
        assert_eq!(entries, 97);
    }

    /// Tasks that wait for a lock are woken by the maintenance thread when their time is over.
    #[test]
    fn waits_for_locks_end_in_time_while_pages_wait_for_room() {
        let short = ShortStore::with_dirty_pages();
        let (db, table) = (&short.db, &short.table);
        let mut holder = db.begin(TransactionOptions::default()).unwrap();
        holder.lock(table, &[b"k"]).unwrap();
        let engine = db.engine();
        let tree = *engine.store.tables.trees().last().unwrap();
        let wakes = engine
            .underfull_leaves
            .push(tree, &key(100), LeafFill::Empty);
        assert!(wakes);
        engine.store.space.growth.notify_all();
        wait_until("the leaf is looked at", || {
            engine.underfull_leaves.due_in().is_none()
        });
        let timeout = TransactionOptions::default().lock_timeout(Duration::from_millis(20));
        let mut other = db.begin(timeout).unwrap();
        {
            let mut wait = pin!(other.lock_async(table, &[b"k"]));
            let woken = Arc::new(Woken(AtomicBool::new(true)));
            let waker = Waker::from(woken.clone());
            wait_until("the wait for the lock ends", || {
                // It finds out by itself, once it is woken.
                woken.0.swap(false, Ordering::AcqRel)
                    && match wait.as_mut().poll(&mut Context::from_waker(&waker)) {
                        Poll::Ready(end) => {
                            assert!(matches!(end, Err(Error::LockTimeout { .. })), "{end:?}");
                            true
                        }
                        Poll::Pending => false,
                    }
            });
        }
        assert!(engine.store.life.is_short());
        drop((holder, other));
        short.end();
    }
}
