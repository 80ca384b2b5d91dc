//! Taking free frames, and the clock that refills them.
//!
//! Pages come in cold, and the first use after a load does not count, so a scan passes through
//! without driving out pages that are used again and again. Each use makes an inner node hot. If
//! one pass of the hand between two uses evicted inner nodes, about one get in 400 would read one
//! again with data of ten times the memory; with two passes almost none does. Only clean frames are
//! evicted here; dirty ones are collected for the cleaner.

use pando_format::{Epoch, FrameIndex, PageId};
use pando_stats::Ticker;
use pando_sync::thread;

use crate::access::Exclusive;
use crate::frame::HEAT_WARM;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// Number of frames that a thread passes with the clock hand to help itself, before it waits for
/// the cleaner.
const HELP_STEPS: usize = 128;
const LATCH_SPINS: u32 = 1 << 16;

/// Result of moving the clock past one frame.
enum Passed {
    Emptied,
    Dirty,
    Kept,
}

impl Pool {
    /// Takes a free frame, latched exclusively, without a page.
    ///
    /// # Errors
    /// [`Restart::Wait`] when none is free even after helping. The cleaner has been woken.
    pub(crate) fn take_frame(&self) -> Attempt<Exclusive<'_>> {
        let free = self.free_frames();
        if free.count() <= self.options().free_frames_low() {
            self.work().notify_all();
        }
        let frame = match free.pop() {
            Some(frame) => frame,
            None => {
                self.sweep(HELP_STEPS, 1, &mut Vec::new());
                free.pop().ok_or(Restart::Wait(Resource::Frames))?
            }
        };
        let latch = &self.header(frame).latch;
        for _ in 0..LATCH_SPINS {
            // Only a late reader can hold a share: one that corrects a hint, or is about to notice
            // that the frame no longer holds its page.
            if let Some(version) = latch.read()
                && latch.try_exclusive(version)
            {
                debug_assert_eq!(self.header(frame).page(), PageId::NONE);
                return Ok(Exclusive::of_frame(self, frame, version));
            }
            thread::yield_now();
        }
        self.give_back_frame(frame);
        Err(Restart::Conflict)
    }

    /// Puts a frame without a page back into the free lists, and wakes waiters.
    pub(crate) fn give_back_frame(&self, frame: FrameIndex) {
        if self
            .free_frames()
            .wants_parked(self.options().free_frames_low())
        {
            // Before anybody else can take it.
            self.release_frame(frame);
            self.free_frames().park(frame);
        } else {
            self.free_frames().push(frame);
        }
    }

    /// Keeps about `frames` frames without pages, and without memory, from now on. The cleaner
    /// sees to that.
    pub fn park_frames(&self, frames: usize) {
        // Before the first frame is parked: a huge page would fill the holes between the others.
        if frames > 0 {
            self.set_huge(false);
        }
        self.free_frames().set_parked_goal(frames);
        if frames == 0 {
            self.set_huge(true);
        }
        self.work().notify_all();
    }

    /// Parks free frames, or frees parked ones, `most` at most, as far as the number of those that
    /// are parked differs from the one that is wanted. Returns how many. Others become free, and
    /// are parked, as pages leave them.
    pub fn adjust_parked(&self, most: usize) -> usize {
        let free = self.free_frames();
        let too_many = free.parked_count().saturating_sub(free.parked_goal());
        if too_many > 0 {
            return self.unpark(too_many.min(most));
        }
        let low = self.options().free_frames_low();
        let mut parked = 0;
        while parked < most
            && free.wants_parked(low)
            && let Some(frame) = free.pop()
        {
            self.release_frame(frame);
            free.park(frame);
            parked += 1;
        }
        parked
    }

    /// Makes at most `most` parked frames free, and returns how many. For a pool whose other frames
    /// can all not be emptied: it is over its budget rather than stuck.
    pub fn unpark(&self, most: usize) -> usize {
        let free = self.free_frames();
        let parked = (0..most).map_while(|_| free.take_parked());
        parked.map(|frame| free.push(frame)).count()
    }

    /// Moves the clock hand by at most `steps` frames, until `want` frames are emptied. Adds to
    /// `dirty` the frames that could be emptied if their page were clean. Returns the number of
    /// emptied frames.
    pub fn sweep(&self, steps: usize, want: usize, dirty: &mut Vec<FrameIndex>) -> usize {
        let mut emptied = 0;
        for _ in 0..steps {
            if emptied >= want {
                break;
            }
            let frame = self.free_frames().tick(self.frames());
            match self.pass(frame) {
                Passed::Emptied => emptied += 1,
                Passed::Dirty => dirty.push(frame),
                Passed::Kept => {}
            }
        }
        self.statistics()
            .tick(Ticker::EvictionsClean, emptied as u64);
        emptied
    }

    fn pass(&self, frame: FrameIndex) -> Passed {
        let header = self.header(frame);
        if header.page() == PageId::NONE || header.is_wired() {
            return Passed::Kept;
        }
        // Read once: other threads pass the frame, too, or give it to another page.
        let heat = header.heat();
        if heat >= HEAT_WARM {
            header.set_heat(heat - 1);
            return Passed::Kept;
        }
        if !header.seems_unpinned() || header.image().is_some() {
            return Passed::Kept;
        }
        if header.dirty_epoch().is_some() {
            return Passed::Dirty;
        }
        if self.try_evict(frame) {
            Passed::Emptied
        } else {
            Passed::Kept
        }
    }

    /// Empties a frame if its page is clean and neither pinned nor wired. Returns whether it did.
    fn try_evict(&self, frame: FrameIndex) -> bool {
        let header = self.header(frame);
        let Some(version) = header.latch_unpinned() else {
            return false;
        };
        let latched = Exclusive::of_frame(self, frame, version);
        let page = header.page();
        let busy = header.is_wired() || header.dirty_epoch().is_some() || header.image().is_some();
        if page == PageId::NONE || busy {
            return false;
        }
        let stored = header.stored().expect("a clean page has an image on disk");
        self.table()
            .set(page, Place::Resident(frame), Place::OnDisk(stored));
        header.set_page(PageId::NONE);
        header.set_stored(None, Epoch(0));
        drop(latched);
        self.give_back_frame(frame);
        true
    }
}
