//! Epochs: which changes the next checkpoint contains.
//!
//! An epoch is the generation of the checkpoint that will close it. At most two are alive: the
//! current one, and the one that a running checkpoint writes out. For each there is a list of the
//! changes to the page mapping, in the order of the events, and of the extents that are free once
//! the checkpoint that closes it is durable.

use pando_format::{Epoch, Extent, Lsn, PageId, StoredPage};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::gate::Closed;
use pando_sync::{Mutex, Rank};

/// The mapping changes and retired extents of one epoch.
#[derive(Debug, Default)]
pub struct EpochList {
    /// Page and its word (0: freed), in the order of the events.
    pub pairs: Vec<(PageId, u64)>,
    /// Extents that only earlier checkpoints use.
    pub retired: Vec<Extent>,
    /// Sum of their lengths.
    pub retired_blocks: u64,
}

#[derive(Debug)]
struct Lists {
    current: Epoch,
    /// Lists of the current epoch and the one before, by parity.
    by_parity: [EpochList; 2],
    /// Extents that nothing durable refers to: free at once.
    free_now: Vec<Extent>,
}

/// Counts and lists of the epochs that are alive.
#[derive(Debug)]
pub struct Epochs {
    lists: Mutex<Lists>,
    /// Frames dirty in the epoch, by parity. Changed under the frame's exclusive latch.
    dirty: [AtomicU64; 2],
    /// Images in flight of the epoch, by parity.
    images: [AtomicU64; 2],
    /// The newest epoch that has been closed, and C, where it was. They change together, C first,
    /// and only grow: whoever reads the epoch first sees its C or a later one.
    closed: AtomicU64,
    closed_at: AtomicU64,
}

fn parity(epoch: Epoch) -> usize {
    (epoch.0 & 1) as usize
}

impl Epochs {
    pub(crate) fn new(current: Epoch) -> Self {
        assert!(current.0 > 0, "epoch 0 stands for clean");
        Self {
            lists: Mutex::new(
                Rank::Leaf,
                Lists {
                    current,
                    by_parity: [EpochList::default(), EpochList::default()],
                    free_now: Vec::new(),
                },
            ),
            dirty: [AtomicU64::new(0), AtomicU64::new(0)],
            images: [AtomicU64::new(0), AtomicU64::new(0)],
            closed: AtomicU64::new(current.0 - 1),
            closed_at: AtomicU64::new(0),
        }
    }

    /// The current epoch.
    #[inline]
    pub fn current(&self) -> Epoch {
        // Acquire: what is looked at behind it is of this epoch or of a later one. Who is in the
        // gate sees the newest: it changes with the gate closed.
        Epoch(self.closed.load(Ordering::Acquire) + 1)
    }

    /// At open, before any page is changed: the epoch goes on where the last life ended, with a
    /// checkpoint at `c`.
    pub fn restore(&self, current: Epoch, c: Lsn) {
        let mut lists = self.lists.lock();
        assert!(current >= lists.current, "epochs only grow");
        assert_eq!(
            self.dirty_total() + self.images_total(),
            0,
            "restored before any change"
        );
        lists.current = current;
        self.note_closed(Epoch(current.0 - 1), c);
    }

    fn note_closed(&self, epoch: Epoch, c: Lsn) {
        self.closed_at.store(c.0, Ordering::Relaxed);
        // Release: pairs with the Acquire in ceiling.
        self.closed.store(epoch.0, Ordering::Release);
    }

    /// Closes the current epoch at `c` and begins the next: nobody is in the gate.
    pub fn advance(&self, _closed: &Closed<'_>, c: Lsn) -> Epoch {
        let mut lists = self.lists.lock();
        let next = Epoch(lists.current.0 + 1);
        let recycled = parity(next);
        assert_eq!(
            self.dirty[recycled].load(Ordering::Relaxed),
            0,
            "three epochs alive"
        );
        assert_eq!(
            self.images[recycled].load(Ordering::Relaxed),
            0,
            "three epochs alive"
        );
        assert!(
            lists.by_parity[recycled].pairs.is_empty(),
            "a list was not journalled"
        );
        assert!(
            lists.by_parity[recycled].retired.is_empty(),
            "retired extents were not freed"
        );
        self.note_closed(lists.current, c);
        lists.current = next;
        next
    }

    /// The newest LSN that a page of `epoch` can hold; None for an epoch that goes on.
    pub(crate) fn ceiling(&self, epoch: Epoch) -> Option<Lsn> {
        // Acquire: pairs with the Release in note_closed: C is of this epoch or of a later one.
        let is_closed = epoch.0 <= self.closed.load(Ordering::Acquire);
        is_closed.then(|| Lsn(self.closed_at.load(Ordering::Relaxed)))
    }

    /// Frames dirty in `epoch`. Who sees none, and asks for images after that, misses none of those
    /// that took the place of dirty frames.
    pub fn dirty(&self, epoch: Epoch) -> u64 {
        // Acquire: pairs with the Release in dirty_ended.
        self.dirty[parity(epoch)].load(Ordering::Acquire)
    }

    /// Images of `epoch` in flight.
    pub fn images(&self, epoch: Epoch) -> u64 {
        // Acquire: pairs with the Release in image_ended: its pair is in the list.
        self.images[parity(epoch)].load(Ordering::Acquire)
    }

    /// Dirty frames of all epochs.
    pub fn dirty_total(&self) -> u64 {
        self.dirty
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    /// Images in flight of all epochs.
    pub fn images_total(&self) -> u64 {
        self.images
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    pub(crate) fn dirty_began(&self, epoch: Epoch) {
        self.dirty[parity(epoch)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn dirty_ended(&self, epoch: Epoch) {
        // Release: pairs with the Acquire in dirty: the image of what the page held has begun.
        let before = self.dirty[parity(epoch)].fetch_sub(1, Ordering::Release);
        assert!(before > 0, "more frames became clean than were dirty");
    }

    pub(crate) fn image_began(&self, epoch: Epoch) {
        self.images[parity(epoch)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn image_ended(&self, epoch: Epoch) {
        // Release: pairs with the Acquire in images.
        let before = self.images[parity(epoch)].fetch_sub(1, Ordering::Release);
        assert!(before > 0, "more images ended than began");
    }

    /// Adds a mapping change to the list of `epoch`.
    pub(crate) fn push_pair(&self, epoch: Epoch, page: PageId, stored: Option<StoredPage>) {
        let mut lists = self.lists.lock();
        assert!(
            epoch == lists.current || epoch.0 + 1 == lists.current.0,
            "{epoch} is not alive"
        );
        lists.by_parity[parity(epoch)]
            .pairs
            .push((page, stored.map_or(0, StoredPage::encode)));
    }

    /// Retires an extent whose image has epoch `image` (None: not known) in an event of epoch
    /// `event`: it belongs to the checkpoints `image` to `event - 1` and to no other.
    pub(crate) fn retire(&self, extent: Extent, image: Option<Epoch>, event: Epoch) {
        let mut lists = self.lists.lock();
        assert!(
            event == lists.current || event.0 + 1 == lists.current.0,
            "{event} is not alive"
        );
        let at_once = image == Some(event);
        if at_once {
            lists.free_now.push(extent);
        } else {
            let list = &mut lists.by_parity[parity(event)];
            list.retired.push(extent);
            list.retired_blocks += u64::from(extent.blocks);
        }
    }

    /// Takes the mapping changes of a closed epoch of which nothing is dirty or in flight.
    pub fn take_pairs(&self, epoch: Epoch) -> Vec<(PageId, u64)> {
        assert_eq!(self.dirty(epoch), 0, "{epoch} still has dirty frames");
        assert_eq!(self.images(epoch), 0, "{epoch} still has images in flight");
        let mut lists = self.lists.lock();
        assert!(epoch < lists.current, "{epoch} is not closed");
        std::mem::take(&mut lists.by_parity[parity(epoch)].pairs)
    }

    /// Takes the extents that are free now that the checkpoint of `epoch` is durable.
    pub fn take_retired(&self, epoch: Epoch) -> Vec<Extent> {
        let mut lists = self.lists.lock();
        assert!(epoch < lists.current, "{epoch} is not closed");
        let list = &mut lists.by_parity[parity(epoch)];
        list.retired_blocks = 0;
        std::mem::take(&mut list.retired)
    }

    /// Takes the extents that nothing durable refers to.
    pub fn take_free_now(&self) -> Vec<Extent> {
        std::mem::take(&mut self.lists.lock().free_now)
    }

    /// Mapping changes, and blocks of retired extents, of the current epoch: triggers of a
    /// checkpoint.
    pub fn current_lengths(&self) -> (usize, u64) {
        let lists = self.lists.lock();
        let list = &lists.by_parity[parity(lists.current)];
        (list.pairs.len(), list.retired_blocks)
    }
}
