//! Free frames and the clock that makes more of them.
//!
//! Pages come in cold, and the first use after a load does not count, so a scan passes through
//! without driving out what is used again and again. Inner nodes are hot with each use: with one
//! pass of the hand between two uses they would be read again for about one get in 400 at ten
//! times the memory, with two passes for almost none. Only clean frames are emptied here; dirty
//! ones are collected for the cleaner.

use pando_format::{Epoch, FrameIndex, PageId};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::{CoreLocal, Mutex, Rank, WaitList, core_count, thread};

use crate::access::Exclusive;
use crate::frame::HEAT_WARM;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};

/// Frames that a thread looks at to help itself, before it waits for the cleaner.
const HELP_STEPS: usize = 128;
const LATCH_SPINS: u32 = 1 << 16;

/// Free frames, in lists by core that others may take from.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    lists: CoreLocal<Mutex<Vec<FrameIndex>>>,
    count: AtomicUsize,
    /// Next frame that the clock looks at, modulo the number of frames.
    hand: AtomicUsize,
    pub(crate) waiters: WaitList,
}

impl FreeFrames {
    pub(crate) fn new(frames: usize) -> Self {
        // Twice the share of a core: a push never allocates, and always finds a list with room.
        let room = 2 * frames.div_ceil(core_count());
        let lists = CoreLocal::new("free frames", |_| {
            Mutex::new(Rank::Leaf, Vec::with_capacity(room))
        });
        let cores = lists.iter().count();
        for index in (0..frames).rev() {
            lists
                .at(index % cores)
                .lock()
                .push(FrameIndex(index as u32));
        }
        Self {
            lists,
            count: AtomicUsize::new(frames),
            hand: AtomicUsize::new(0),
            waiters: WaitList::new(),
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Option<FrameIndex> {
        if self.count() == 0 {
            return None;
        }
        let here = self.lists.here().lock().pop();
        let frame = here.or_else(|| self.lists.iter().find_map(|list| list.lock().pop()))?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

    fn push(&self, frame: FrameIndex) {
        let put = |list: &Mutex<Vec<FrameIndex>>| {
            let mut list = list.lock();
            let room = list.len() < list.capacity();
            if room {
                list.push(frame);
            }
            room
        };
        if !put(self.lists.here()) {
            let put = self.lists.iter().any(put);
            assert!(
                put,
                "the lists have room for twice as many frames as there are"
            );
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        // All: one of them may be an operation that was given up, and would swallow the frame.
        self.waiters.notify_all();
    }
}

/// What the clock found at one frame.
enum Passed {
    Emptied,
    Dirty,
    Kept,
}

impl Pool {
    /// A free frame, latched exclusively, without a page.
    ///
    /// # Errors
    /// [`Restart::Wait`] when there is none even after helping; the cleaner has been told.
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
            // Only a late reader can share it: one that corrects a hint, or finds that it came too
            // late for a share.
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

    pub(crate) fn give_back_frame(&self, frame: FrameIndex) {
        self.free_frames().push(frame);
    }

    /// Moves the clock hand by at most `steps` frames, until `want` frames were emptied. Frames
    /// that only their dirty page keeps are added to `dirty`. Returns how many were emptied.
    pub fn sweep(&self, steps: usize, want: usize, dirty: &mut Vec<FrameIndex>) -> usize {
        let mut emptied = 0;
        for _ in 0..steps {
            if emptied >= want {
                break;
            }
            let step = self.free_frames().hand.fetch_add(1, Ordering::Relaxed);
            let frame = FrameIndex((step % self.frames()) as u32);
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
        if header.heat() >= HEAT_WARM {
            header.set_heat(header.heat() - 1);
            return Passed::Kept;
        }
        if !header.seems_unheld() || header.image().is_some() {
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

    /// Empties a frame whose page is clean and not needed.
    fn try_evict(&self, frame: FrameIndex) -> bool {
        let header = self.header(frame);
        let Some(version) = header.latch_unheld() else {
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
