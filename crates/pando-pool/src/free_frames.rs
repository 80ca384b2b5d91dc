//! Frames without a page, and where the clock stands that makes more of them.

use pando_format::FrameIndex;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::{CoreLocal, Mutex, Rank, WaitList, core_count};

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

    /// The frame that the clock looks at next, of so many `frames`.
    pub(crate) fn tick(&self, frames: usize) -> FrameIndex {
        let step = self.hand.fetch_add(1, Ordering::Relaxed);
        FrameIndex((step % frames) as u32)
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub(crate) fn pop(&self) -> Option<FrameIndex> {
        if self.count() == 0 {
            return None;
        }
        let here = self.lists.here().lock().pop();
        let frame = here.or_else(|| self.lists.iter().find_map(|list| list.lock().pop()))?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        Some(frame)
    }

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
        // All: one of them may be an operation that was given up, and would swallow the frame.
        self.waiters.notify_all();
    }
}
