//! Frames without a page, and the position of the clock that makes more of them.
//!
//! Some frames may be *parked*: they have no page, and their memory has gone back to the system.
//! A frame that becomes free is parked while there are fewer such frames than wanted, and more
//! free ones than wake the cleaner. So the cleaner makes others free, until enough are parked, and
//! nobody who needs a frame waits for that (decision 094).

use pando_format::FrameIndex;
use pando_format::cast::u32_of_len;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::{CoreLocal, Mutex, Rank, WaitList, core_count};

/// Free frames, in one list for each core. Any core may take from the lists of the others.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    /// One list for each core; each has room for twice the core's share of frames.
    lists: CoreLocal<Mutex<Vec<FrameIndex>>>,
    /// Number of frames in all lists, updated shortly after the lists.
    count: AtomicUsize,
    /// Next frame of the clock, modulo the number of frames. Only grows.
    hand: AtomicUsize,
    /// Wakers that wait for a free frame.
    pub(crate) waiters: WaitList,
    /// Held for a push or a pop.
    parked: Mutex<Vec<FrameIndex>>,
    /// Length of `parked`, updated shortly after it.
    parked_count: AtomicUsize,
    /// Number of frames that are to be parked.
    parked_goal: AtomicUsize,
}

impl FreeFrames {
    /// Makes the lists of a pool of `frames` frames, all of which are free.
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
                .push(FrameIndex(u32_of_len(index)));
        }
        Self {
            lists,
            count: AtomicUsize::new(frames),
            hand: AtomicUsize::new(0),
            waiters: WaitList::new(),
            parked: Mutex::new(Rank::Leaf, Vec::new()),
            parked_count: AtomicUsize::new(0),
            parked_goal: AtomicUsize::new(0),
        }
    }

    /// Returns the number of frames that are to be parked.
    pub(crate) fn parked_goal(&self) -> usize {
        // Relaxed, as the other counts: they order nothing.
        self.parked_goal.load(Ordering::Relaxed)
    }

    /// Sets the number of frames that are to be parked.
    pub(crate) fn set_parked_goal(&self, frames: usize) {
        // SeqCst: of callers at the same time, one sees afterwards that another wanted another
        // number (`pandodb`, `max_memory.rs`): its later load must not come before this store.
        self.parked_goal.store(frames, Ordering::SeqCst);
    }

    /// Returns the number of frames that are parked.
    pub(crate) fn parked_count(&self) -> usize {
        self.parked_count.load(Ordering::Relaxed)
    }

    /// Returns whether a frame that becomes free should be parked, when `low` free ones are few.
    /// Threads that ask at the same time may park a few frames too many.
    pub(crate) fn wants_parked(&self, low: usize) -> bool {
        let goal = self.parked_goal();
        goal > 0 && self.parked_count() < goal && self.count() > low
    }

    /// Parks a frame without a page, which the caller owned, and whose memory was given back.
    pub(crate) fn park(&self, frame: FrameIndex) {
        self.parked.lock().push(frame);
        self.parked_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a parked frame; the caller owns it.
    pub(crate) fn take_parked(&self) -> Option<FrameIndex> {
        let frame = self.parked.lock().pop()?;
        self.parked_count.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Advances the clock hand by one of `frames` frames, and returns the frame that it passed.
    pub(crate) fn tick(&self, frames: usize) -> FrameIndex {
        let step = self.hand.fetch_add(1, Ordering::Relaxed);
        FrameIndex(u32_of_len(step % frames))
    }

    /// Returns the number of free frames; a push or pop that is running may not be counted yet.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Takes a free frame, of this core if it has one; the caller owns it. May return None while
    /// frames are pushed concurrently.
    pub(crate) fn pop(&self) -> Option<FrameIndex> {
        if self.count() == 0 {
            return None;
        }
        let here = self.lists.here().lock().pop();
        let frame = here.or_else(|| self.lists.iter().find_map(|list| list.lock().pop()))?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Adds a frame without a page, which the caller owned, and wakes all waiters.
    pub(crate) fn push(&self, frame: FrameIndex) {
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
        // Wakes all: if one waiter is an operation that was abandoned, a single wake-up would be
        // lost.
        self.waiters.notify_all();
    }
}
