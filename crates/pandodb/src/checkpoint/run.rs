//! Checkpoints: the exact state after all batches up to C, without stopping writers (decision 041).
//!
//! 1. Close the gate; C is the reserved end of the log; take the table counts; begin the next
//!    epoch; open the gate.
//! 2. Write every page that was dirty in the old epoch, until none is dirty and none is in flight.
//! 3. Sync the data file; append the old epoch's mapping changes to the journal and sync it; sync
//!    the log up to C.
//! 4. Write the superblock, one slot after the other.
//! 5. Free the extents that only earlier checkpoints used, but for those that a kept one uses; drop
//!    log segments below C.

use pando_format::mapping::Group;
use pando_format::superblock::{SLOT_BYTES, Superblock};
use pando_format::{Epoch, Extent, Lsn, TreeId};
use pando_stats::{Measure, Ticker};
use pando_sync::atomic::Ordering;
use pando_sync::gate::Closed;
use pando_sync::time::{self, Duration};
use pando_sync::{BackgroundPriority, thread, thread_waker};

use crate::checkpoint::checks::{LastWords, assert_grown};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::files::superblock::write_superblock;
use crate::pages::store::pause;
use crate::state::checkpoint::Files;

/// A checkpoint is due when this fraction of all blocks is retired: they cannot be reused before,
/// nor can the retired blocks of the epoch that is being written.
const RETIRED_SHARE: u64 = 32;
/// Fewer retired blocks than this are not worth a checkpoint.
const RETIRED_MIN: u64 = 2048;
/// Pause of a checkpoint that found the disk full, before its next attempt.
const FULL_PAUSE: Duration = Duration::from_millis(200);

/// The result of step 1.
#[derive(Debug)]
pub(crate) struct Cut {
    /// The epoch that ended at C: the checkpoint writes all that is dirty in it.
    pub(crate) epoch: Epoch,
    /// C.
    pub(crate) lsn: Lsn,
    /// Entries of tables.
    pub(crate) counts: Vec<(TreeId, u64)>,
}

impl Engine {
    /// Asks for a checkpoint if the log has grown enough since the last one.
    pub(crate) fn look_for_checkpoint(&self) {
        let (bytes, limit) = self.log.fill();
        if bytes > limit / 2 && !self.checkpoint.is_wanted() {
            self.checkpoint.request();
        }
    }

    /// Blocks until a checkpoint that began after the call is durable.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.wait_for_checkpoint(|| false).map(drop)
    }

    /// As [`Engine::checkpoint_now`], but does not wait for room on the disk: returns false if the
    /// checkpoint does. For callers that others wait for: room may never come.
    pub(crate) fn checkpoint_if_room(&self) -> Result<bool> {
        self.wait_for_checkpoint(|| self.store.life.is_checkpoint_stalled())
    }

    /// Blocks until a checkpoint that began after the call is durable, or until `gives_up` returns
    /// true; returns false then.
    fn wait_for_checkpoint(&self, gives_up: impl Fn() -> bool) -> Result<bool> {
        self.check_not_read_only()?;
        let state = &self.checkpoint;
        let mine = state.ask();
        let waker = thread_waker();
        loop {
            state.register(mine, &waker);
            if state.has_finished(mine) {
                return Ok(true);
            }
            if gives_up() {
                return Ok(false);
            }
            self.store.check_poison()?;
            if self.store.life.is_ended() {
                return Err(Error::Closed);
            }
            // With a timeout, because nobody wakes this thread when the disk becomes full.
            thread::park_timeout(FULL_PAUSE);
        }
    }

    /// Loop of the checkpoint thread.
    pub(crate) fn run_checkpoints(&self) {
        let mut last = time::now();
        while !self.store.life.is_ended() {
            self.checkpoint.register_for_work(&thread_waker());
            let due = last.elapsed() >= self.options.checkpoint_interval;
            if due || self.checkpoint.take_wanted() || self.epoch_is_long() {
                last = time::now();
                match self.checkpoint_once() {
                    Ok(()) => {}
                    Err(error) => {
                        self.poison(error);
                        self.checkpoint.fail();
                        return;
                    }
                }
                continue;
            }
            if !self.store.life.is_ended() {
                thread::park_timeout(Duration::from_millis(100));
            }
        }
    }

    /// True if the epoch has enough mapping changes, retired extents, or blocks promised to pages
    /// that were freed, for a checkpoint.
    fn epoch_is_long(&self) -> bool {
        let (pairs, retired, freed) = self.store.pool.epochs().current_lengths();
        let retired_max = (self.store.space.blocks() / RETIRED_SHARE).max(RETIRED_MIN);
        let promised = freed * u64::from(self.store.page_blocks());
        pairs > self.pairs_max() || retired.max(promised) > retired_max
    }

    /// Number of mapping changes of an epoch above which a checkpoint is due.
    pub(crate) fn pairs_max(&self) -> usize {
        (self.options.max_memory / 64 / 16).max(4096) as usize
    }

    /// Runs one checkpoint, from the cut to the last free. Blocks; only one runs at a time.
    pub(crate) fn checkpoint_once(&self) -> Result<()> {
        let mut files = self.lock_files();
        let served = self.checkpoint.served();
        self.store.freed_room.begin();
        self.store.check_poison()?;
        // Includes the merge of the mapping: it shows the whole time in which others pay for a
        // checkpoint.
        let turn = self.checkpoint.turns.begin();
        let requests = self.kept.take_requests();
        let settles = self.kept.begin_settling();
        let is_kept = settles.is_some() || !requests.is_empty();
        let cut = self.cut(files.mapping.is_empty(), is_kept);
        // Not before the gate is open again, because others wait for that. From here on nobody
        // does.
        let _background = BackgroundPriority::begin();
        // An error below poisons the store: the epoch has ended, and cannot be continued.
        let sync_log = |lsn| {
            self.wait_durable(lsn)?;
            assert!(self.log.durable() >= lsn, "a checkpoint ahead of its log");
            Ok(())
        };
        let written = cut.and_then(|cut| {
            let lsn = cut.lsn;
            turn.set_pages(self.store.pool.epochs().dirty(cut.epoch));
            self.write_cut(&mut files, cut, sync_log)?;
            Ok(lsn)
        });
        if is_kept {
            let kept = written.clone();
            let kept = kept.and_then(|lsn| self.keep_checkpoint(&mut files, lsn));
            let kept = self.kept.add(kept);
            match (&kept, settles) {
                (Ok(cut), Some(settle_for)) => self.settle_snapshots(cut, settle_for),
                (Err(_), Some(_)) => self.settling_failed(),
                (_, None) => {}
            }
            self.kept.finish(&requests, &kept);
        }
        written.map_err(|error| self.poisoned_by(&error))?;
        self.store.freed_room.end();
        self.checkpoint.finish(served);
        // Both slots of the superblock are durable, so nothing names the free blocks.
        self.store
            .space
            .discard_spare(|| self.store.committed_blocks());
        self.store.space.look_at_pieces();
        if files.mapping.wants_merge() {
            let size = self.store.mapping_size();
            let reserve = &self.store.mapping_reserve;
            files.mapping.merge_if_possible(size, reserve);
            self.store.count_mapping_bytes(&mut files, 0);
            self.store.keep_mapping_room();
        }
        Ok(())
    }

    /// Step 1: takes the cut; `all_counts` as in `close_epoch`. It `is_kept` for snapshots.
    ///
    /// # Errors
    /// [`Error::Poisoned`]: a change may have been cut off since the caller looked, whose record is
    /// in the log and which is not applied.
    pub(super) fn cut(&self, all_counts: bool, is_kept: bool) -> Result<Cut> {
        // Writers are turned away from here on.
        let began = time::now();
        let closed = self.store.pool.gate().close();
        self.store.check_poison()?;
        let lsn = self.log.reserved_end();
        assert_eq!(
            self.log.applied(),
            lsn,
            "the gate is closed and a batch is not applied"
        );
        let cut = self.store.close_epoch(&closed, lsn, all_counts);
        if is_kept {
            self.kept.begin(lsn);
        }
        drop(closed);
        let gate = Measure::CheckpointGate;
        let nanoseconds = self.store.statistics.record_since(gate, began);
        self.store
            .statistics
            .tick(Ticker::GateClosedNs, nanoseconds);
        self.store.statistics.tick(Ticker::GateCloses, 1);
        Ok(cut)
    }

    /// Steps 2 to 5.
    pub(super) fn write_cut(
        &self,
        files: &mut Files,
        cut: Cut,
        sync_log: impl FnOnce(Lsn) -> Result<()>,
    ) -> Result<()> {
        let lsn = cut.lsn;
        self.store.finish_checkpoint(files, cut, None, sync_log)?;
        assert_eq!(
            files.superblock.checkpoint_lsn, lsn,
            "the checkpoint has the LSN of its cut"
        );
        self.log.truncate_below(lsn);
        self.checkpoint.note(lsn);
        // Waiters for room in the log are on this list, too, and would stay on it.
        self.store.room_waiters.notify_all();
        Ok(())
    }
}

impl crate::pages::store::Store {
    /// The part of step 1 inside the gate: ends the epoch at `lsn`. With `all_counts` the cut has
    /// the counts of all tables, otherwise only of changed ones; the first group of a journal needs
    /// all.
    pub(crate) fn close_epoch(&self, closed: &Closed<'_>, lsn: Lsn, all_counts: bool) -> Cut {
        let epoch = self.pool.epochs().current();
        let counts = self.tables.take_counts(all_counts);
        self.pool.epochs().advance(closed, lsn);
        Cut { epoch, lsn, counts }
    }

    /// Steps 2 to 5, except for the log's segments. Only recovery sets `incarnation`.
    pub(crate) fn finish_checkpoint(
        &self,
        files: &mut Files,
        cut: Cut,
        incarnation: Option<u64>,
        sync_log: impl FnOnce(Lsn) -> Result<()>,
    ) -> Result<()> {
        // A caller that opens the store on a full disk gets an error instead.
        let waits_for_space = || incarnation.is_none() && self.life.waits_for_space();
        let epochs = self.pool.epochs();
        let (mut turns, mut phase, mut pages) = (0, time::now(), 0);
        while epochs.dirty(cut.epoch) > 0 || epochs.images(cut.epoch) > 0 {
            let written = self.write_epoch(cut.epoch)?;
            pages += written as u64;
            self.statistics
                .tick(Ticker::CheckpointPages, written as u64);
            if written == 0 {
                // A frame whose image was abandoned stays dirty for ever.
                self.check_poison()?;
                pause(&mut turns);
            }
        }
        // In a poisoned store a frame becomes clean without an image.
        self.check_poison()?;
        assert!(
            cut.epoch > files.superblock.generation,
            "generations grow from checkpoint to checkpoint"
        );
        assert!(
            cut.lsn >= files.superblock.checkpoint_lsn,
            "LSNs of checkpoints never go back"
        );
        let group = Group {
            generation: cut.epoch,
            pairs: epochs.take_pairs(cut.epoch),
            counts: cut.counts,
        };
        let write_ns = self.end_phase(Measure::CheckpointWrite, &mut phase);
        // The sync below does not cover blocks by which the file grows after this.
        let data_blocks = self.space.blocks();
        // This fails if the store is poisoned, and it must: a frame whose image was abandoned, and
        // that was changed after the cut, is no longer dirty in this epoch, although its state of
        // this epoch is lost. An image is abandoned after the store has been poisoned, so a thread
        // that has seen no image in flight sees the poison here.
        self.sync_data("syncing pages")?;
        let named = LastWords::of(&group);
        self.when_there_is_room(waits_for_space, || {
            files.mapping.append(&group, &self.mapping_reserve)
        })?;
        sync_log(cut.lsn)?;
        let sync_ns = self.end_phase(Measure::CheckpointSync, &mut phase);
        // It is greater, and counts on, when all ids were used.
        let next_tree = self.next_tree.load(Ordering::Relaxed);
        let superblock = Superblock {
            version: self.format.for_superblock(),
            generation: cut.epoch,
            incarnation: incarnation.unwrap_or(files.superblock.incarnation),
            checkpoint_lsn: cut.lsn,
            next_tree: u32::try_from(next_tree).unwrap_or(u32::MAX),
            mapping: files.mapping.number,
            base_pages: files.mapping.base_pages,
            journal_bytes: files.mapping.journal_bytes,
            data_blocks,
            ..files.superblock
        };
        assert_grown(&files.superblock, &superblock);
        named.assert_within(data_blocks);
        self.when_there_is_room(waits_for_space, || {
            write_superblock(&files.superblock_file, &superblock)
        })?;
        files.superblock = self.format.written(superblock);
        self.count_mapping_bytes(files, 2 * SLOT_BYTES as u64);
        // The room of the files that are removed is not for the data file.
        self.space.without_growth(|| {
            files.mapping.named();
            self.mapping_reserve.replaced(self.mapping_size());
        });
        let retired: Vec<Extent> = epochs.take_retired(cut.epoch);
        named.assert_not_named(&retired);
        self.free_retired(retired);
        self.keep_mapping_room();
        let publish_ns = self.end_phase(Measure::CheckpointPublish, &mut phase);
        self.statistics.tick(Ticker::Checkpoints, 1);
        let lsn = cut.lsn.0;
        tracing::debug!(lsn, pages, write_ns, sync_ns, publish_ns, "checkpoint");
        Ok(())
    }

    /// Frees the `retired` extents that no kept checkpoint uses, and those that no checkpoint ever
    /// named.
    fn free_retired(&self, retired: Vec<Extent>) {
        self.space.note_trough(self.committed_blocks());
        let free = self.held_blocks.hold(retired);
        let free_now = self.pool.epochs().take_free_now();
        self.space.free_all(free.into_iter().chain(free_now));
    }

    /// Repeats `write` until there is room if the disk is full, or blocks cannot be allocated for
    /// another reason, because the checkpoint cannot start over. Meanwhile reads continue, and so
    /// do deletes that need no new block.
    fn when_there_is_room(
        &self,
        waits_for_space: impl Fn() -> bool,
        mut write: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        loop {
            let written = write();
            let passes = |error: &&Error| {
                error.is_want_of_room() && waits_for_space() && self.check_poison().is_ok()
            };
            let waits_for = written.as_ref().err().filter(passes);
            self.stall_checkpoint(waits_for);
            if waits_for.is_none() {
                return written;
            }
            thread::park_timeout(FULL_PAUSE);
        }
    }

    /// Counts the bytes written to journal and base, and `slots` bytes of the superblock.
    fn count_mapping_bytes(&self, files: &mut Files, slots: u64) {
        let bytes = files.mapping.take_written_bytes() + slots;
        self.statistics.tick(Ticker::MappingWriteBytes, bytes);
    }

    /// Records the time of a phase, returns it in nanoseconds, and begins the next phase.
    fn end_phase(&self, measure: Measure, begun: &mut time::Instant) -> u64 {
        let ns = self.statistics.record_since(measure, *begun);
        *begun = time::now();
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use crate::pages::writeback::OnFullDisk;
    use crate::tables::state::GARBAGE;
    use pando_device::AnyDevice;
    use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::TreeId;
    use pando_pool::Marks;
    use pando_tree::Scratch;

    /// Everything in a checkpoint must be in the log on disk. Otherwise the next life would use its
    /// LSNs again.
    #[test]
    fn a_checkpoint_waits_for_its_log() {
        let device = FaultyDevice::new(1);
        let options = Db::builder().durability(crate::Durability::None);
        let options = options.max_memory(16 << 20);
        let db = Db::open_device(options, AnyDevice::from(device)).unwrap();
        let table = db.table("t").unwrap();
        for number in 0..100_u32 {
            table.put(&number.to_be_bytes(), b"value").unwrap();
            let newest = db.newest_lsn();
            db.checkpoint().unwrap();
            assert!(db.durable_lsn() >= newest);
        }
    }

    /// A commit is cut off between its record and its pages while a checkpoint waits for the gate.
    #[test]
    fn a_change_that_is_cut_off_ends_a_checkpoint_that_has_begun() {
        let options = Db::builder().max_memory(8 << 20);
        let device = AnyDevice::from(FaultyDevice::new(1));
        let engine = crate::recovery::open::open(device, options).unwrap();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        thread::scope(|scope| {
            let cutting = scope.spawn(|| engine.cut(false, false).map(|cut| cut.lsn));
            while !engine.store.pool.gate().is_closed() {
                thread::yield_now();
            }
            engine.append_only(b"a record that nobody applies");
            engine.poison("a test");
            drop(guard);
            let cut = cutting.join().expect("it does not panic");
            assert!(matches!(cut, Err(Error::Poisoned { .. })), "{cut:?}");
        });
    }

    /// The next tree id has 32 bits on disk, but is not bounded in memory.
    #[test]
    fn a_store_that_has_used_all_tree_ids_opens_again() {
        let device = FaultyDevice::new(1);
        let options = || Db::builder().max_memory(16 << 20);
        let db = Db::open_device(options(), AnyDevice::from(device.clone())).unwrap();
        let last = u64::from(TreeId::NUMBER_MAX);
        db.engine().store.next_tree.store(last, Ordering::Relaxed);
        db.table("last").unwrap().put(b"key", b"value").unwrap();
        let refused = |db: &Db| {
            let error = db.table("one more").unwrap_err();
            assert!(matches!(error, Error::Full { .. }), "{error}");
        };
        refused(&db);
        // Each refusal counts, too.
        let beyond = u64::from(u32::MAX) + 5;
        db.engine().store.next_tree.store(beyond, Ordering::Relaxed);
        refused(&db);
        db.checkpoint().unwrap();
        db.close().unwrap();
        let db = Db::open_device(options(), AnyDevice::from(device)).unwrap();
        assert_eq!(db.table("last").unwrap().len(), 1);
        refused(&db);
    }

    /// The file may grow while a checkpoint waits for the log, and that growth becomes durable only
    /// later.
    #[test]
    fn a_checkpoint_names_no_more_of_the_file_than_it_has_synced() {
        let device = FaultyDevice::new(1);
        let options = || Db::builder().max_memory(16 << 20);
        let engine =
            crate::recovery::open::open(AnyDevice::from(device.clone()), options()).unwrap();
        let mut files = engine.checkpoint.lock_files();
        let cut = engine.cut(false, false).unwrap();
        let before = engine.store.space.blocks();
        let grow = |_| {
            engine.store.space.want(before);
            engine
                .store
                .space
                .grow_if_wanted(0, |_| crate::space::growth::MadeRoom::None);
            Ok(())
        };
        engine.write_cut(&mut files, cut, grow).unwrap();
        assert!(engine.store.space.blocks() > before);
        device.crash_now();
        drop(files);
        let device = device.after_crash(1, CrashMode::AllLost);
        let db = Db::open_device(options(), AnyDevice::from(device)).unwrap();
        db.close().unwrap();
    }

    /// While a checkpoint is delayed, the copies that writers make count towards their share of the
    /// pool.
    #[test]
    fn copies_in_frames_leave_a_quarter_of_the_pool_to_readers() {
        let options = Db::builder().max_memory(8 << 20).page_size(16384);
        let device = AnyDevice::from(FaultyDevice::new(1));
        let engine = crate::recovery::open::open(device, options.frames(256)).unwrap();
        let put = |key: u32| {
            let marks = Marks {
                lsn: engine.log.reserved_end(),
                multi_lsn: Lsn(0),
            };
            let scratch = &mut Scratch::new();
            let key = key.to_be_bytes();
            let guard = engine.store.pool.gate().try_enter().unwrap();
            let token = &engine.store.pool.apply_token(&guard);
            let put = engine
                .store
                .apply(token, GARBAGE, marks, &key, Some(&[7; 3000]), scratch);
            put.unwrap();
        };
        let epochs = engine.store.pool.epochs();
        (0..400).for_each(put);
        let mut files = engine.checkpoint.lock_files();
        let cut = engine.cut(false, false).unwrap();
        (0..400).for_each(put);
        assert!(
            engine.store.pool.copies() > 40,
            "{}",
            engine.store.pool.copies()
        );
        (400..)
            .take_while(|_| engine.store.dirty_room(1))
            .for_each(put);
        let taken = epochs.dirty_total() + engine.store.pool.copies() as u64;
        assert!(taken <= 256 * 3 / 4 + 8, "{taken} frames");
        engine.write_cut(&mut files, cut, |_| Ok(())).unwrap();
        assert_eq!(engine.store.pool.copies(), 0);
        assert!(engine.store.dirty_room(1));
    }

    /// A page that was changed after the cut is no longer dirty in the closed epoch once its image
    /// is in flight. If the image is lost, the checkpoint must not take it for written.
    #[test]
    fn a_checkpoint_whose_image_was_lost_does_not_end() {
        let device = FaultyDevice::new(1);
        let options = Db::builder().max_memory(16 << 20).frames(64);
        // This engine has no threads, so nothing happens except what the test does.
        let engine = crate::recovery::open::open(AnyDevice::from(device.clone()), options).unwrap();
        let put = |key: &[u8]| {
            let marks = Marks {
                lsn: engine.log.reserved_end(),
                multi_lsn: Lsn(0),
            };
            let scratch = &mut Scratch::new();
            let guard = engine.store.pool.gate().try_enter().unwrap();
            let token = &engine.store.pool.apply_token(&guard);
            engine
                .store
                .apply(token, GARBAGE, marks, key, Some(b"value"), scratch)
        };
        put(b"before the cut").unwrap();
        let mut files = engine.checkpoint.lock_files();
        let cut = engine.cut(false, false).unwrap();
        let epochs = engine.store.pool.epochs();
        assert!(epochs.dirty(cut.epoch) > 0);
        put(b"behind the cut").unwrap();
        assert_eq!((epochs.dirty(cut.epoch), epochs.images(cut.epoch)), (0, 1));
        device.fail(FaultPlan::once(Operation::Write, "data", 1, Fault::Io));
        engine.store.write_back_once(OnFullDisk::Wait).unwrap_err();
        assert_eq!(epochs.images(cut.epoch), 0);
        let finished = engine.write_cut(&mut files, cut, |_| Ok(()));
        assert!(
            matches!(finished, Err(Error::Poisoned { .. })),
            "{finished:?}"
        );
    }
}
