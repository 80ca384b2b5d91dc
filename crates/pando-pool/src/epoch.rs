//! Epochs: which changes the next checkpoint contains.
//!
//! An epoch is the generation of the checkpoint that will close it. At most two are alive: the
//! current one, and the one that a running checkpoint writes out. Each has a list of the changes to
//! the page mapping, in the order of the events, and a list of the extents that become free once
//! the checkpoint that closes it is durable.

use pando_format::{Epoch, Extent, Lsn, PageId, StoredPage};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::gate::Closed;
use pando_sync::{Mutex, Rank};

/// The mapping changes and retired extents of one epoch.
#[derive(Debug, Default)]
pub struct EpochList {
    /// Pages and their mapping words (0: freed), in the order of the events.
    pub pairs: Vec<(PageId, u64)>,
    /// Extents that only earlier checkpoints use.
    pub retired: Vec<Extent>,
    /// Sum of the lengths of `retired`.
    pub retired_blocks: u64,
}

#[derive(Debug)]
struct Lists {
    current: Epoch,
    /// Lists of the current epoch and of the previous one, by parity.
    by_parity: [EpochList; 2],
    /// Extents that nothing durable refers to, which are free at once.
    free_now: Vec<Extent>,
}

/// Counts and lists of the live epochs.
#[derive(Debug)]
pub struct Epochs {
    /// False for a pool without a device, which has no mapping.
    has_mapping: bool,
    lists: Mutex<Lists>,
    /// Number of frames dirty in the epoch, by parity. Changed under the frame's exclusive latch.
    dirty: [AtomicU64; 2],
    /// Number of images of the epoch in flight, by parity.
    images: [AtomicU64; 2],
    /// Number of pages and chunks that background work has freed in the epoch, by parity.
    freed: [AtomicU64; 2],
    /// How many of them were changed in the epoch.
    freed_changed: [AtomicU64; 2],
    /// The newest closed epoch, and in `closed_at` its C, the LSN at which it was closed. Written
    /// under `lists`. Both change together, C first, and only grow: a reader that loads the epoch
    /// first sees its C or a later one.
    closed: AtomicU64,
    /// Written before `closed`.
    closed_at: AtomicU64,
}

fn parity(epoch: Epoch) -> usize {
    (epoch.0 & 1) as usize
}

impl Epochs {
    /// Returns empty lists for the epoch `current`, which is running; all earlier ones are closed.
    /// Panics for epoch 0.
    pub(crate) fn new(current: Epoch, has_mapping: bool) -> Self {
        assert!(current.0 > 0, "epoch 0 stands for clean");
        Self {
            has_mapping,
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
            freed: [AtomicU64::new(0), AtomicU64::new(0)],
            freed_changed: [AtomicU64::new(0), AtomicU64::new(0)],
            closed: AtomicU64::new(current.0 - 1),
            closed_at: AtomicU64::new(0),
        }
    }

    /// Returns the current epoch.
    #[inline]
    pub fn current(&self) -> Epoch {
        // Acquire: later loads see a state of this epoch or of a later one. A thread inside the
        // gate sees the newest epoch, because the epoch changes only while the gate is closed.
        Epoch(self.closed.load(Ordering::Acquire) + 1)
    }

    /// At open, before any page changes: continues with the epoch `current`, after the last
    /// checkpoint, which lies at `c`.
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

    /// Closes the current epoch at `c` and begins the next, which it returns. Nobody is inside the
    /// gate.
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

    /// Returns an upper bound of the LSNs that a page of `epoch` can hold, None for an epoch that
    /// is not closed.
    pub(crate) fn ceiling(&self, epoch: Epoch) -> Option<Lsn> {
        // Acquire: pairs with the Release in note_closed: C belongs to this epoch or to a later
        // one.
        let is_closed = epoch.0 <= self.closed.load(Ordering::Acquire);
        is_closed.then(|| Lsn(self.closed_at.load(Ordering::Relaxed)))
    }

    /// Returns the number of frames dirty in `epoch`. A caller that sees 0, and reads
    /// [`Epochs::images`] after that, misses none of the images that replaced dirty frames.
    pub fn dirty(&self, epoch: Epoch) -> u64 {
        // Acquire: pairs with the Release in dirty_ended.
        self.dirty[parity(epoch)].load(Ordering::Acquire)
    }

    /// Returns the number of images of `epoch` in flight.
    pub fn images(&self, epoch: Epoch) -> u64 {
        // Acquire: pairs with the Release in image_ended: the pair of each ended image is in the
        // list.
        self.images[parity(epoch)].load(Ordering::Acquire)
    }

    /// Returns the number of dirty frames of all epochs.
    pub fn dirty_total(&self) -> u64 {
        // Acquire: pairs with the Release in dirty_ended: a caller that misses a frame here sees
        // its image, if it reads their number afterwards.
        self.dirty
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum()
    }

    /// Returns the number of images in flight of all epochs.
    pub fn images_total(&self) -> u64 {
        // Acquire: pairs with the Release in image_ended: a caller that misses an image here sees
        // that its extent is not free, if it reads that afterwards.
        self.images
            .iter()
            .map(|count| count.load(Ordering::Acquire))
            .sum()
    }

    /// Counts a frame that became dirty in `epoch`.
    pub(crate) fn dirty_began(&self, epoch: Epoch) {
        self.dirty[parity(epoch)].fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts a frame that is no longer dirty in `epoch`. The caller has begun its image if one
    /// is needed.
    pub(crate) fn dirty_ended(&self, epoch: Epoch) {
        // Release: pairs with the Acquire in dirty: the image of the page's previous content, if
        // one is needed, has begun.
        let before = self.dirty[parity(epoch)].fetch_sub(1, Ordering::Release);
        assert!(before > 0, "more frames became clean than were dirty");
    }

    /// Counts an image of `epoch` as in flight.
    pub(crate) fn image_began(&self, epoch: Epoch) {
        self.images[parity(epoch)].fetch_add(1, Ordering::Relaxed);
    }

    /// Uncounts an image of `epoch`, after its pair was pushed.
    pub(crate) fn image_ended(&self, epoch: Epoch) {
        // Release: pairs with the Acquire in images.
        let before = self.images[parity(epoch)].fetch_sub(1, Ordering::Release);
        assert!(before > 0, "more images ended than began");
    }

    /// Counts a page or chunk that background work frees in `epoch`, and whether it `was_changed`
    /// in it. A page that still counts as dirty does so until it is counted here.
    pub(crate) fn page_freed(&self, epoch: Epoch, was_changed: bool) {
        if !self.has_mapping {
            return;
        }
        // Relaxed: who has read the number of dirty frames after dirty_ended sees this, too.
        self.freed[parity(epoch)].fetch_add(1, Ordering::Relaxed);
        let changed = u64::from(was_changed);
        self.freed_changed[parity(epoch)].fetch_add(changed, Ordering::Relaxed);
    }

    /// Returns the number of pages and chunks that background work has freed since the last durable
    /// checkpoint. Nothing in the log says so, so replay has them all: each with its id.
    pub fn freed_total(&self) -> u64 {
        let counts = self.freed.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns how many of [`Epochs::freed_total`] were changed since, so that replay writes them.
    /// A caller that misses a frame in [`Epochs::dirty_total`] sees it here, if it reads this
    /// afterwards.
    pub fn freed_changed_total(&self) -> u64 {
        let counts = self.freed_changed.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Adds a mapping change to the list of `epoch`, unless the pool has no device. Whoever may
    /// change the page's word next must not be able to before: its change belongs behind this one.
    pub(crate) fn push_pair(&self, epoch: Epoch, page: PageId, stored: Option<StoredPage>) {
        self.push_pair_if(epoch, page, stored, || true);
    }

    /// As [`Epochs::push_pair`], if `change` changes the page's word: the list is locked meanwhile,
    /// so that the pair of the next change is behind this one, as the changes are. Returns what
    /// `change` returns.
    pub(crate) fn push_pair_if(
        &self,
        epoch: Epoch,
        page: PageId,
        stored: Option<StoredPage>,
        change: impl FnOnce() -> bool,
    ) -> bool {
        if !self.has_mapping {
            return change();
        }
        let mut lists = self.lists.lock();
        assert!(
            epoch == lists.current || epoch.0 + 1 == lists.current.0,
            "{epoch} is not alive"
        );
        let changed = change();
        if changed {
            lists.by_parity[parity(epoch)]
                .pairs
                .push((page, stored.map_or(0, StoredPage::encode)));
        }
        changed
    }

    /// Retires an extent whose image has the epoch `image` (None: not known), in an event of the
    /// epoch `event`. The checkpoints `image` to `event - 1` need the extent, and no other does.
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

    /// Takes the mapping changes of a closed epoch that has no dirty frames and no images in
    /// flight.
    pub fn take_pairs(&self, epoch: Epoch) -> Vec<(PageId, u64)> {
        assert_eq!(self.dirty(epoch), 0, "{epoch} still has dirty frames");
        assert_eq!(self.images(epoch), 0, "{epoch} still has images in flight");
        let mut lists = self.lists.lock();
        assert!(epoch < lists.current, "{epoch} is not closed");
        std::mem::take(&mut lists.by_parity[parity(epoch)].pairs)
    }

    /// Takes the extents that have become free because the checkpoint of `epoch` is durable. What
    /// was freed in the epoch is not counted any longer.
    pub fn take_retired(&self, epoch: Epoch) -> Vec<Extent> {
        let mut lists = self.lists.lock();
        assert!(epoch < lists.current, "{epoch} is not closed");
        // Nobody frees in a closed epoch.
        self.freed[parity(epoch)].store(0, Ordering::Relaxed);
        self.freed_changed[parity(epoch)].store(0, Ordering::Relaxed);
        let list = &mut lists.by_parity[parity(epoch)];
        list.retired_blocks = 0;
        std::mem::take(&mut list.retired)
    }

    /// Takes the extents that nothing durable refers to.
    pub fn take_free_now(&self) -> Vec<Extent> {
        std::mem::take(&mut self.lists.lock().free_now)
    }

    /// Returns the number of mapping changes, of blocks in retired extents, and of changed pages
    /// that were freed, of the current epoch. All of them trigger checkpoints.
    pub fn current_lengths(&self) -> (usize, u64, u64) {
        let lists = self.lists.lock();
        let parity = parity(lists.current);
        let list = &lists.by_parity[parity];
        let freed = self.freed_changed[parity].load(Ordering::Relaxed);
        (list.pairs.len(), list.retired_blocks, freed)
    }
}
