//! Write-back: images are compressed, get extents and are written in batches; then the mapping of
//! their pages changes to the new extents (decision 037).
//!
//! Runs on the cleaner thread, on the checkpoint thread, and on a thread inside the gate that would
//! otherwise wait for it. Never enters the gate, and takes neither a stripe nor a pin share.

use pando_device::File;
use pando_format::cast::{u32_of, u32_of_len};
use pando_format::{Epoch, Extent, FrameIndex};
use pando_pool::{BadImage, Image};
use pando_stats::Ticker;
use pando_sync::time::{self, Duration};
use pando_sync::{park, thread, thread_waker};

use crate::error::{Error, Result};
use crate::pages::handed_over::PlacedImage;
use crate::pages::store::Store;

/// Images of one batch.
const BATCH_IMAGES: usize = 64;
/// Sweeps over all frames before a read of a poisoned store gives up: one cools each page a little,
/// and others may have pinned what is clean for a moment.
const SWEEPS_MAX: u32 = 64;
/// Images of one batch of a checkpoint. Each write ends in an interrupt, which stops the call of
/// another thread for a moment: so the writes are few and long.
const CHECKPOINT_IMAGES: usize = 256;
/// Pause between two attempts of a write that finds the disk full.
const FULL_RETRY: Duration = Duration::from_millis(50);
/// Pause between two attempts to empty frames that are to be parked, when none can be emptied.
const PARKING_RETRY: Duration = Duration::from_millis(50);

/// What a thread that writes images does when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFullDisk {
    /// It waits until there is room, as only the cleaner and checkpoints do.
    Wait,
    /// It leaves the images to those: it only helps, and has a read or a commit to finish, which
    /// may need no more than a clean frame.
    HandOver,
}

/// Returns how many of `placed`, from the first one on, are contiguous.
fn run_length(placed: &[PlacedImage]) -> usize {
    let follows = |(before, after): (&PlacedImage, &PlacedImage)| {
        u64::from(before.1.block) + u64::from(before.1.blocks) == u64::from(after.1.block)
    };
    1 + placed
        .iter()
        .zip(&placed[1..])
        .take_while(|pair| follows(*pair))
        .count()
}

impl Store {
    /// Makes frames free: evicts clean pages and writes dirty ones. Returns the number of pages
    /// evicted or written.
    ///
    /// Dirty pages are left alone while a write waits for room: another write would wait, too.
    /// Threads that need frames then, above all readers, get those of clean pages.
    pub(crate) fn write_back_once(&self, on_full: OnFullDisk) -> Result<usize> {
        let mut images = Vec::new();
        let stuck = self.life.is_short();
        if !stuck {
            // Only one batch: the caller may be an operation that helps.
            self.pool.take_started_images(&mut images, BATCH_IMAGES);
        }
        let missing = self
            .pool
            .options()
            .free_frames_high()
            .saturating_sub(self.pool.free_count());
        let mut emptied = 0;
        let dirty_high = !stuck && self.is_cleaning_due();
        if missing > 0 || dirty_high {
            let mut dirty = Vec::new();
            let steps = if dirty_high {
                self.pool.frames()
            } else {
                16 * BATCH_IMAGES.max(missing)
            };
            let want = missing.max(usize::from(dirty_high) * BATCH_IMAGES);
            emptied = self.pool.sweep(steps, want, &mut dirty);
            dirty.truncate(if stuck { 0 } else { BATCH_IMAGES });
            images.extend(
                dirty
                    .into_iter()
                    .filter_map(|frame| self.pool.image_of(frame, None)),
            );
        }
        let written = images.len();
        self.write_images(images, on_full)?;
        Ok(emptied + written)
    }

    /// As [`Store::write_back_once`], for an operation that lacks a frame. A read does not fail
    /// because a page of somebody else cannot be written: once the store is poisoned, only clean
    /// pages are evicted.
    pub(crate) fn help_with_frames(&self) -> Result<usize> {
        let is_readable = || self.life.is_poisoned() && self.life.is_serving();
        if !is_readable() {
            match self.write_back_once(OnFullDisk::HandOver) {
                Err(_) if is_readable() => {}
                // Who waits for room is in no state to help.
                Ok(0) if self.life.is_short() => return Ok(self.unpark_if_stuck()),
                helped => return helped,
            }
        }
        self.evict_clean()?;
        Ok(1)
    }

    /// For reads of a poisoned store, whose dirty pages are not written any longer: evicts clean
    /// pages, unless a frame is free already.
    ///
    /// # Errors
    /// [`Error::Poisoned`] if no frame became free: perhaps none ever does.
    pub(crate) fn evict_clean(&self) -> Result<()> {
        for _ in 0..SWEEPS_MAX {
            let frames = self.pool.frames();
            if self.pool.free_count() > 0
                || self.pool.sweep(frames, BATCH_IMAGES, &mut Vec::new()) > 0
            {
                return Ok(());
            }
            thread::yield_now();
        }
        match self.unpark_if_stuck() {
            0 => self.check_poison(),
            _ => Ok(()),
        }
    }

    /// To be called when nothing can be emptied, and somebody may wait for that: all is pinned,
    /// wired, or waits to be written. Takes some of the parked frames if none is free; returns how
    /// many.
    fn unpark_if_stuck(&self) -> usize {
        match self.pool.free_count() {
            0 => self.pool.unpark(self.pool.options().free_frames_high()),
            _ => 0,
        }
    }

    /// Writes all pages that are dirty in `epoch`, in one pass over all frames. Returns the number
    /// of images.
    pub(crate) fn write_epoch(&self, epoch: Epoch) -> Result<usize> {
        assert!(
            epoch < self.pool.epochs().current(),
            "the current epoch cannot be written as a whole"
        );
        self.write_handed_over()?;
        let mut written = 0;
        let mut images = Vec::new();
        // Leave image buffers to writers and the cleaner; in small stores reads must run in
        // between.
        let batch = (self.pool.options().images / 8).clamp(BATCH_IMAGES, CHECKPOINT_IMAGES);
        self.pool.take_started_images(&mut images, batch);
        for frame in (0..u32_of_len(self.pool.frames())).map(FrameIndex) {
            if let Some(image) = self.pool.image_of(frame, Some(epoch)) {
                images.push(image);
            }
            while images.len() >= batch {
                written += images.len();
                self.write_images(std::mem::take(&mut images), OnFullDisk::Wait)?;
                self.pool.take_started_images(&mut images, batch);
            }
        }
        written += images.len();
        self.write_images(images, OnFullDisk::Wait)?;
        Ok(written)
    }

    /// Writes `images` to new extents, contiguous ones with one call, and completes them. If one of
    /// them is not sound, none is written, and everything on disk stays as it was.
    pub(crate) fn write_images(&self, mut images: Vec<Image>, on_full: OnFullDisk) -> Result<()> {
        if images.is_empty() {
            return Ok(());
        }
        // What was made one after the other is often read so, too.
        images.sort_unstable_by_key(Image::page);
        let sealed = self.seal_images(&mut images);
        let extents = sealed
            .and_then(|()| self.check_poison())
            .and_then(|()| self.extents_for(&images));
        match extents {
            Ok(extents) => {
                self.write_and_complete(images.into_iter().zip(extents).collect(), on_full)
            }
            Err(error) => Err(self.abandon(images, error)),
        }
    }

    /// Writes the images that others have left because the disk was full. Returns their number.
    fn write_handed_over(&self) -> Result<usize> {
        let Some((images, _wait)) = self.take_over() else {
            return Ok(0);
        };
        let count = images.len();
        self.write_and_complete(images, OnFullDisk::Wait)?;
        Ok(count)
    }

    /// The part of [`Store::write_images`] after the images have their extents.
    fn write_and_complete(&self, mut left: Vec<PlacedImage>, on_full: OnFullDisk) -> Result<()> {
        if let Err(error) = self.write_placed(&mut left, on_full) {
            return Err(self.abandon(left.into_iter().map(|(image, _)| image), error));
        }
        self.statistics.tick(Ticker::WritebackBatches, 1);
        let mut turns = 0;
        while !left.is_empty() {
            let mut again = Vec::new();
            for (image, extent) in left {
                if let Err(image) = self.pool.complete_image(image, extent) {
                    again.push((image, extent));
                }
            }
            left = again;
            // One call for all of them: there may be many waiters.
            self.pool.image_waiters().notify_all();
            if !left.is_empty() {
                crate::pages::store::pause(&mut turns);
            }
        }
        self.space.free_all(self.pool.epochs().take_free_now());
        Ok(())
    }

    /// Gives up `images`, which could not be written because of `error`, and poisons the store.
    /// Returns the error for the caller.
    fn abandon(&self, images: impl IntoIterator<Item = Image>, error: Error) -> Error {
        let poisoned = self.poisoned_by(&error);
        for image in images {
            self.pool.abandon_image(image);
        }
        // A caller that opens the store gets the error itself: a full disk may soon have room.
        match self.life.is_serving() {
            true => poisoned,
            false => error,
        }
    }

    /// Compresses each image and computes its checksum.
    fn seal_images(&self, images: &mut [Image]) -> Result<()> {
        let spare = self.encoders.lock().pop();
        let mut encoder = spare.unwrap_or_default();
        let sealed = images
            .iter_mut()
            .try_for_each(|image| self.pool.seal_image(image, &mut encoder));
        self.encoders.lock().push(encoder);
        sealed.map_err(|bad| refused(&bad))
    }

    /// Allocates an extent of the right length for each image; contiguous ones come in order.
    fn extents_for(&self, images: &[Image]) -> Result<Vec<Extent>> {
        let block_bytes = self.space.block_bytes();
        let blocks = |image: &Image| u32_of(image.bytes().len() as u64 / block_bytes);
        let lengths: Vec<u32> = images.iter().map(blocks).collect();
        let most = self.page_blocks();
        assert!(
            lengths.iter().all(|length| (1..=most).contains(length)),
            "an image has a page at most, and a block at least"
        );
        self.space.allocate(&lengths)
    }

    /// Writes each image to its extent, contiguous ones with one call. If the disk is full, the
    /// pages stay in their frames until there is room: reads continue, and puts are refused.
    /// Images that are handed over or given up are removed from `placed`; those that others hand
    /// over meanwhile are added.
    fn write_placed(&self, placed: &mut Vec<PlacedImage>, on_full: OnFullDisk) -> Result<()> {
        let block_bytes = self.space.block_bytes();
        let fills = |(image, extent): &PlacedImage| {
            image.bytes().len() as u64 == u64::from(extent.blocks) * block_bytes
        };
        assert!(
            placed.iter().all(fills),
            "an image is as long as its extent"
        );
        // The images of others may have been left before the store was poisoned.
        self.check_poison()?;
        let (mut written, mut wait) = (0, None);
        while written < placed.len() {
            let run = &placed[written..written + run_length(&placed[written..])];
            let parts: Vec<&[u8]> = run.iter().map(|(image, _)| image.bytes()).collect();
            let offset = u64::from(run[0].1.block) * block_bytes;
            let result = self.data.write_vectored_at(&parts, offset);
            match result.map_err(Error::io("writing pages")) {
                Err(Error::Full { .. }) if self.life.waits_for_space() => {
                    self.check_poison()?;
                    wait.get_or_insert_with(|| self.wait_for_room());
                    if on_full == OnFullDisk::HandOver {
                        self.hand_over(placed.split_off(written));
                        return Ok(());
                    }
                    if let Some((others, _)) = self.take_over() {
                        placed.extend(others);
                    }
                    self.empty_frames_meanwhile()?;
                    self.give_up_outdated(placed, written);
                }
                result => {
                    result?;
                    written += run.len();
                    wait = None;
                }
            }
        }
        Ok(())
    }

    /// Gives up the images from `first` on that a running checkpoint needs in a later version: a
    /// delete that changes such a page would wait until there is room.
    fn give_up_outdated(&self, placed: &mut Vec<PlacedImage>, first: usize) {
        let mut freed = Vec::new();
        for (image, extent) in placed.split_off(first) {
            match self.pool.give_up_outdated(image) {
                Ok(()) => freed.push(extent),
                Err(image) => placed.push((image, extent)),
            }
        }
        self.space.free_all(freed);
        self.pool.image_waiters().notify_all();
    }

    /// Evicts clean pages until the next attempt. The thread that waits may be the cleaner, and
    /// then nobody else frees frames for callers that cannot block.
    fn empty_frames_meanwhile(&self) -> Result<()> {
        let began = time::now();
        loop {
            self.pool.work().register(&thread_waker());
            // This evicts clean pages only, because a write waits for room.
            if self.write_back_once(OnFullDisk::HandOver)? == 0 {
                self.unpark_if_stuck();
            }
            let left = FULL_RETRY.saturating_sub(began.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            thread::park_timeout(left);
        }
    }

    /// One step of the cleaner; returns the number of pages that it evicted or wrote, and of frames
    /// that it parked or freed.
    fn clean_once(&self) -> Result<usize> {
        let moved = self.pool.adjust_parked(BATCH_IMAGES);
        Ok(moved + self.write_handed_over()? + self.write_back_once(OnFullDisk::Wait)?)
    }

    /// Loop of the cleaner thread.
    pub(crate) fn run_cleaner(&self) {
        let mut idle = 0;
        while !self.life.is_ended() {
            match self.clean_once() {
                Ok(0) => idle += 1,
                Ok(_) => idle = 0,
                // The store is poisoned: reads continue with the frames of clean pages.
                Err(_) => idle += 1,
            }
            if idle == 0 {
                continue;
            }
            let short = self.pool.free_count() < self.pool.options().free_frames_high();
            if short && idle < 4 && self.check_poison().is_ok() {
                thread::yield_now();
                continue;
            }
            if short && self.unpark_if_stuck() > 0 {
                continue;
            }
            self.pool.work().register(&thread_waker());
            // Once more, for requests between the last call and the registration.
            if !self.life.is_ended() && !matches!(self.clean_once(), Ok(1..)) {
                match self.pool.wants_parked() {
                    // Nobody tells when pages that are pinned now can leave.
                    true => thread::park_timeout(PARKING_RETRY),
                    false => park(),
                }
            }
        }
    }
}

/// Returns the error for a page that is not sound in memory; it poisons the store.
///
/// # Panics
/// In debug builds: only a bug of this program or faulty memory can cause this.
pub(crate) fn refused(bad: &BadImage) -> Error {
    let place = format!("{} in memory, which is not written,", bad.page);
    let error = Error::corrupt(place, &bad.what);
    if cfg!(debug_assertions) {
        panic!("{error}");
    }
    error
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use pando_device::AnyDevice;
    use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::FrameIndex;
    use pando_format::page::WORD_HEAP;
    use pando_format::{Lsn, PageId};
    use pando_pool::Marks;
    use pando_stats::Ticker;
    use pando_sync::atomic::{AtomicBool, Ordering};
    use pando_sync::time::{self, Duration};
    use pando_sync::{Arc, thread};
    use pando_tree::{Scratch, ValueReader};

    use crate::engine::Engine;
    use crate::pages::writeback::OnFullDisk;
    use crate::tables::state::GARBAGE;
    use crate::{Db, Durability, WriteOptions};

    fn engine(device: &FaultyDevice) -> Engine {
        let options = Db::builder().max_memory(16 << 20).frames(64);
        // This engine has no threads, so nothing happens except what the test does.
        crate::recovery::open::open(AnyDevice::from(device.clone()), options).unwrap()
    }

    fn put(engine: &Engine, key: &[u8]) {
        let marks = Marks {
            lsn: engine.log.reserved_end(),
            multi_lsn: Lsn(0),
        };
        let (guard, scratch) = (
            engine.store.pool.gate().try_enter().unwrap(),
            &mut Scratch::new(),
        );
        let token = &engine.store.pool.apply_token(&guard);
        let put = engine
            .store
            .apply(token, GARBAGE, marks, key, Some(b"value"), scratch);
        put.unwrap();
    }

    fn has(engine: &Engine, key: &[u8]) -> bool {
        let (mut reader, mut out) = (ValueReader::new(), Vec::new());
        let lookup = engine
            .store
            .drive(|| GARBAGE.try_get(&engine.store.pool, key, &mut reader, &mut out));
        lookup.unwrap().found
    }

    fn wait_until(is_over: impl Fn() -> bool) {
        let deadline = time::now() + Duration::from_secs(30);
        while !is_over() {
            assert!(time::now() < deadline, "it waits for room");
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Stands for a bug or faulty memory: the leaf gets more entries than it has room for.
    fn corrupt(engine: &Engine) {
        let guard = engine.store.pool.gate().try_enter().unwrap();
        let mut latch = engine.store.pool.exclusive(GARBAGE.root).unwrap();
        let mut page = latch
            .modify(&engine.store.pool.apply_token(&guard))
            .unwrap();
        page.store(WORD_HEAP, u64::MAX);
    }

    /// In whatever frames they are.
    #[test]
    fn pages_that_are_written_together_lie_in_the_order_of_their_ids() {
        let engine = engine(&FaultyDevice::new(1));
        for number in 0..300 {
            put(&engine, format!("{number:04}").repeat(50).as_bytes());
        }
        let pool = &engine.store.pool;
        let frames = (0..pool.frames()).rev();
        let frames = frames.map(|frame| FrameIndex(u32::try_from(frame).unwrap()));
        let images: Vec<_> = frames.filter_map(|of| pool.image_of(of, None)).collect();
        let mut pages: Vec<_> = images.iter().map(pando_pool::Image::page).collect();
        assert!(pages.len() > 10, "{pages:?}");
        engine.store.write_images(images, OnFullDisk::Wait).unwrap();
        pages.sort_unstable();
        let block = |page| pool.stored_extent(page).unwrap().block;
        let blocks: Vec<_> = pages.into_iter().map(block).collect();
        assert!(blocks.is_sorted(), "{blocks:?}");
    }

    /// `poisons`: also by the panic of a debug build.
    fn check(write: impl FnOnce(&Engine) -> crate::Result<()>, poisons: bool) {
        let device = FaultyDevice::new(1);
        let first = engine(&device);
        put(&first, b"of the checkpoint");
        first.checkpoint_once().unwrap();
        put(&first, b"behind it");
        corrupt(&first);
        let written = first.store.statistics.get(Ticker::PageWrites);
        let refused = match catch_unwind(AssertUnwindSafe(|| write(&first))) {
            Ok(refused) => refused.unwrap_err().to_string(),
            Err(panic) => panic.downcast_ref::<String>().unwrap().clone(),
        };
        let page = format!("{} in memory", GARBAGE.root);
        assert!(refused.contains(&page), "{refused}");
        assert!(refused.contains("has more entries than room"), "{refused}");
        let is_poisoned = first.store.check_poison().is_err();
        assert_eq!(is_poisoned, poisons || !cfg!(debug_assertions));
        let now = first.store.statistics.get(Ticker::PageWrites);
        assert_eq!(now, written);
        device.crash_now();
        let second = engine(&device.after_crash(1, CrashMode::AllLost));
        assert!(has(&second, b"of the checkpoint"));
        assert!(!has(&second, b"behind it"), "it has no log record");
    }

    #[test]
    fn a_page_that_is_not_sound_is_not_written_by_the_cleaner() {
        let write = |engine: &Engine| {
            let frames = (0..engine.store.pool.frames() as u32).map(FrameIndex);
            let images = frames.filter_map(|frame| engine.store.pool.image_of(frame, None));
            let images = images.collect();
            engine.store.write_images(images, OnFullDisk::Wait)
        };
        check(write, false);
    }

    /// The image of a page waits for room, the page is changed, and then a checkpoint begins that
    /// needs the page as it was. A later delete must not wait for the image.
    #[test]
    fn deletes_do_not_wait_for_an_image_that_waits_for_room() {
        let device = FaultyDevice::new(1);
        let options = Db::builder().frames(128).max_memory(4 << 20);
        let db = Db::open_device(options, device.clone().into()).unwrap();
        let (table, none) = (
            db.table("t").unwrap(),
            WriteOptions::durability(Durability::None),
        );
        for key in 0..9 {
            table.put_with(&[key], b"value", none).unwrap();
        }
        let engine = db.engine().clone();
        let pool = &engine.store.pool;
        let images: Vec<_> = (0..pool.frames() as u32)
            .filter_map(|frame| pool.image_of(FrameIndex(frame), None))
            .collect();
        device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
        let shared = engine.clone();
        let writer = thread::spawn(move || shared.store.write_images(images, OnFullDisk::Wait));
        wait_until(|| engine.store.life.is_short());
        assert!(table.delete_with(&[0], none).unwrap());
        let (shared, epoch) = (db.clone(), pool.epochs().current());
        let checkpoint = thread::spawn(move || shared.checkpoint());
        wait_until(|| pool.epochs().current() > epoch);
        let shared = table.clone();
        let delete = thread::spawn(move || shared.delete_with(&[1], none));
        wait_until(|| delete.is_finished());
        assert!(delete.join().unwrap().unwrap());
        assert!(engine.store.life.is_short());
        device.clear_faults();
        writer.join().unwrap().unwrap();
        checkpoint.join().unwrap().unwrap();
        assert_eq!(table.len(), 7);
        db.close().unwrap();
        let options = Db::builder().frames(128).max_memory(4 << 20);
        let again = Db::open_device(options, device.into()).unwrap();
        assert_eq!(again.table("t").unwrap().len(), 7);
    }

    /// The budget is smaller than at the opening, and what it leaves is pinned, or dirty and waits
    /// for room: reads of other pages take parked frames.
    #[test]
    fn parked_frames_are_used_while_pages_wait_for_room() {
        const FRAMES: usize = 128;
        let device = FaultyDevice::new(1);
        let options = Db::builder().frames(FRAMES).max_memory(8 << 20);
        let db = Db::open_device(options.page_size(4096), device.clone().into()).unwrap();
        let (table, none) = (
            db.table("t").unwrap(),
            WriteOptions::durability(Durability::None),
        );
        // A page has three of them at most.
        for key in 0..600_u32 {
            table
                .put_with(&key.to_be_bytes(), &[7; 1000], none)
                .unwrap();
        }
        db.checkpoint().unwrap();
        db.set_max_memory(*db.max_memory_range().start()).unwrap();
        let pool = &db.engine().store.pool;
        wait_until(|| pool.parked_count() >= FRAMES / 2 - 2);
        device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
        for key in 0..9_u32 {
            assert!(table.delete_with(&key.to_be_bytes(), none).unwrap());
        }
        let engine = db.engine().clone();
        let images: Vec<_> = (0..FRAMES as u32)
            .filter_map(|frame| pool.image_of(FrameIndex(frame), None))
            .collect();
        let writer = thread::spawn(move || engine.store.write_images(images, OnFullDisk::Wait));
        wait_until(|| db.engine().store.life.is_short());
        let (shared, is_over) = (table.clone(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let reader = thread::spawn(move || {
            for key in (9..600_u32).cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                assert!(shared.get(&key.to_be_bytes()).unwrap().is_some());
                // Time for the other thread to pin what was read.
                thread::sleep(Duration::from_millis(1));
            }
        });
        let mut pins = Vec::new();
        let deadline = time::now() + Duration::from_secs(30);
        while pins.len() < FRAMES * 3 / 4 {
            assert!(time::now() < deadline, "{} are pinned", pins.len());
            for page in 0..pool.page_ids().high_water() {
                let is_new = pins.iter().all(|(of, _)| *of != page);
                if is_new && let Ok(pin) = pool.pin(PageId(page), 0) {
                    pins.push((page, pin));
                }
            }
        }
        assert!(db.engine().store.life.is_short());
        is_over.store(true, Ordering::Relaxed);
        drop(pins);
        reader.join().unwrap();
        device.clear_faults();
        writer.join().unwrap().unwrap();
        wait_until(|| pool.parked_count() >= FRAMES / 2 - 2);
        assert_eq!(table.len(), 591);
        db.close().unwrap();
    }

    /// A read that needs a frame helps to write pages. It must return, and the cleaner writes the
    /// pages it had taken once there is room.
    #[test]
    fn who_only_helps_does_not_wait_for_room() {
        let device = FaultyDevice::new(1);
        let options = || Db::builder().frames(128).max_memory(4 << 20);
        let db = Db::open_device(options(), device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        table.put(b"key", b"value").unwrap();
        let engine = db.engine().clone();
        device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
        let helper = thread::spawn({
            let engine = engine.clone();
            move || {
                let frames = (0..engine.store.pool.frames() as u32).map(FrameIndex);
                let images = frames.filter_map(|frame| engine.store.pool.image_of(frame, None));
                let images = images.collect();
                engine.store.write_images(images, OnFullDisk::HandOver)
            }
        });
        wait_until(|| helper.is_finished());
        helper.join().unwrap().unwrap();
        assert!(engine.store.life.is_short(), "its images wait for room");
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"value");
        device.clear_faults();
        wait_until(|| !engine.store.life.is_short());
        assert_eq!(engine.store.pool.epochs().images_total(), 0);
        table.put(b"key", b"other").unwrap();
        db.close().unwrap();
        let again = Db::open_device(options(), device.into()).unwrap();
        let table = again.table("t").unwrap();
        assert_eq!(table.get(b"key").unwrap().unwrap(), b"other");
    }

    #[test]
    fn a_page_that_is_not_sound_is_not_written_by_a_checkpoint() {
        check(Engine::checkpoint_once, true);
    }
}
