//! Headers of frames, one cache line each, separate from the pages.

use pando_format::{Epoch, PageId, StoredPage};
use pando_sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use pando_sync::words::prefetch;

use crate::contention::Contention;
use crate::latch::Latch;

/// Heat of a page that was not used since it was loaded.
pub(crate) const HEAT_NEW: u8 = 0;
/// Heat after one use, or after the clock hand has passed a warm page. The next pass evicts the
/// page.
pub(crate) const HEAT_COLD: u8 = 1;
/// Heat after another use. The next pass makes the page cold.
pub(crate) const HEAT_WARM: u8 = 2;
/// Heat of an inner node in use. It survives two passes, since many descents go through it.
pub(crate) const HEAT_HOT: u8 = 3;

/// State of a frame and of the page in it. All fields except `pins` and `heat` change only under
/// the exclusive latch, or (`image`, `rebuilt`) under a shared latch by the owner of the image.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct FrameHeader {
    /// Guards the words of the frame, and the other fields as far as the type says.
    pub(crate) latch: Latch,
    /// The page, or NONE while the frame is free, its page is not valid yet, or was freed and its
    /// image is in flight.
    page: AtomicU32,
    /// Number of pins. Any thread may change it; eviction reads it.
    pins: AtomicU32,
    /// Encoded place of the newest complete image, 0 if there is none.
    stored: AtomicU64,
    /// Epoch of that image.
    stored_epoch: AtomicU64,
    /// Epoch whose checkpoint needs the content of the frame, 0 for a clean frame.
    dirty_epoch: AtomicU64,
    /// Version of the page that an image in flight was copied from, plus one; 0 for none.
    image: AtomicU64,
    /// Epoch in which the page was freed while its image was in flight; 0 otherwise.
    freed_epoch: AtomicU64,
    /// How recently the page was used (`HEAT_*`). Written only when it changes, without a latch.
    heat: AtomicU8,
    /// The page must not be evicted.
    wired: AtomicBool,
    /// The page was laid out anew since its last image was copied, so its next image is checked.
    rebuilt: AtomicBool,
    /// Changes that had to give way to others: see [`crate::contention`].
    contention: AtomicU32,
}

const _: () = assert!(
    cfg!(any(pando_loom, pando_shuttle)) || size_of::<FrameHeader>() == 64,
    "one cache line"
);

impl FrameHeader {
    /// Makes the header of a frame without a page: clean, not latched, without pins.
    pub(crate) fn new() -> Self {
        Self {
            latch: Latch::new(),
            page: AtomicU32::new(PageId::NONE.0),
            pins: AtomicU32::new(0),
            stored: AtomicU64::new(0),
            stored_epoch: AtomicU64::new(0),
            dirty_epoch: AtomicU64::new(0),
            image: AtomicU64::new(0),
            freed_epoch: AtomicU64::new(0),
            heat: AtomicU8::new(HEAT_NEW),
            wired: AtomicBool::new(false),
            rebuilt: AtomicBool::new(false),
            contention: AtomicU32::new(0),
        }
    }

    /// Prefetches the header's cache line.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&self.stored);
    }

    // Relaxed throughout: the latch orders these fields. Readers without the latch (a hint check,
    // the clock hand) validate or latch before they act on what they read.

    /// Returns the page, or NONE. A caller without the latch may see an outdated one.
    #[inline]
    pub(crate) fn page(&self) -> PageId {
        PageId(self.page.load(Ordering::Relaxed))
    }

    /// The caller holds the exclusive latch.
    pub(crate) fn set_page(&self, page: PageId) {
        self.page.store(page.0, Ordering::Relaxed);
    }

    /// Returns the contended changes counted so far. Counts of earlier pages of the frame may be in
    /// it.
    pub(crate) fn contention(&self) -> Contention {
        Contention(self.contention.load(Ordering::Relaxed))
    }

    /// The caller holds the exclusive latch.
    pub(crate) fn set_contention(&self, contention: Contention) {
        self.contention.store(contention.0, Ordering::Relaxed);
    }

    /// Returns the place of the newest complete image, None without one.
    pub(crate) fn stored(&self) -> Option<StoredPage> {
        StoredPage::decode(self.stored.load(Ordering::Relaxed))
    }

    /// Returns the epoch of the image that `stored` names; means nothing without one.
    pub(crate) fn stored_epoch(&self) -> Epoch {
        Epoch(self.stored_epoch.load(Ordering::Relaxed))
    }

    /// Names the newest complete image and its epoch. The caller holds the exclusive latch.
    pub(crate) fn set_stored(&self, stored: Option<StoredPage>, epoch: Epoch) {
        self.stored
            .store(stored.map_or(0, StoredPage::encode), Ordering::Relaxed);
        self.stored_epoch.store(epoch.0, Ordering::Relaxed);
    }

    /// Returns the epoch whose checkpoint needs the content of the frame, None for a clean frame.
    pub(crate) fn dirty_epoch(&self) -> Option<Epoch> {
        let epoch = self.dirty_epoch.load(Ordering::Relaxed);
        (epoch != 0).then_some(Epoch(epoch))
    }

    /// The caller holds the exclusive latch, and counts the frame in [`crate::epoch::Epochs`].
    pub(crate) fn set_dirty_epoch(&self, epoch: Option<Epoch>) {
        self.dirty_epoch
            .store(epoch.map_or(0, |epoch| epoch.0), Ordering::Relaxed);
    }

    /// Returns the version that the image in flight was copied from, None without one.
    pub(crate) fn image(&self) -> Option<u64> {
        self.image.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Claims the right to make the image of `version`. Returns false if one is in flight. The
    /// caller holds the latch, shared or exclusive.
    pub(crate) fn claim_image(&self, version: u64) -> bool {
        self.image
            .compare_exchange(0, version + 1, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Ends the image in flight. The caller holds the exclusive latch.
    pub(crate) fn clear_image(&self) {
        self.image.store(0, Ordering::Relaxed);
    }

    /// Returns the epoch in which the page was freed while its image was in flight, None otherwise.
    pub(crate) fn freed_epoch(&self) -> Option<Epoch> {
        let epoch = self.freed_epoch.load(Ordering::Relaxed);
        (epoch != 0).then_some(Epoch(epoch))
    }

    /// The caller holds the exclusive latch.
    pub(crate) fn set_freed_epoch(&self, epoch: Option<Epoch>) {
        self.freed_epoch
            .store(epoch.map_or(0, |epoch| epoch.0), Ordering::Relaxed);
    }

    /// Notes whether the page was laid out anew since its last image. The caller holds the
    /// exclusive latch, or owns the image and holds the latch shared.
    pub(crate) fn set_rebuilt(&self, rebuilt: bool) {
        self.rebuilt.store(rebuilt, Ordering::Relaxed);
    }

    /// Returns whether the page was laid out anew since the last call. Only the thread that copies
    /// an image calls it.
    pub(crate) fn take_rebuilt(&self) -> bool {
        let rebuilt = self.rebuilt.load(Ordering::Relaxed);
        if rebuilt {
            self.set_rebuilt(false);
        }
        rebuilt
    }

    /// Returns whether the page must not be evicted. A caller without the latch may see an outdated
    /// answer.
    pub(crate) fn is_wired(&self) -> bool {
        self.wired.load(Ordering::Relaxed)
    }

    /// The caller holds the exclusive latch, and has the frame counted by [`crate::Pool::wire_one`]
    /// or [`crate::Pool::unwire_one`].
    pub(crate) fn set_wired(&self, wired: bool) {
        self.wired.store(wired, Ordering::Relaxed);
    }

    /// Returns how recently the page was used, as `HEAT_*`.
    pub(crate) fn heat(&self) -> u8 {
        self.heat.load(Ordering::Relaxed)
    }

    /// Needs no latch; a concurrent change may be lost.
    pub(crate) fn set_heat(&self, heat: u8) {
        self.heat.store(heat, Ordering::Relaxed);
    }

    /// Keeps the page in the frame until [`FrameHeader::unpin`]. Returns false if the frame does
    /// not hold `page`, or may be losing it right now.
    pub(crate) fn try_pin(&self, page: PageId) -> bool {
        self.pins.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in latch_unpinned; see the argument in `access`.
        fence(Ordering::SeqCst);
        // The Acquire in read: if an earlier holder of the latch cleared the page id, this thread
        // sees that.
        if self.latch.read().is_none() || self.page() != page {
            self.unpin();
            return false;
        }
        true
    }

    /// Ends one [`FrameHeader::try_pin`] that returned true.
    pub(crate) fn unpin(&self) {
        // Release: pairs with the Acquire in latch_unpinned: all reads under the pin happen before
        // the frame is emptied.
        let before = self.pins.fetch_sub(1, Ordering::Release);
        assert!(before > 0, "a pin was given back twice");
    }

    /// Returns whether nobody has pinned the page at the moment. A first check without the latch.
    pub(crate) fn seems_unpinned(&self) -> bool {
        self.pins.load(Ordering::Relaxed) == 0
    }

    /// Takes the exclusive latch if nobody has pinned the frame. Returns the version from before.
    pub(crate) fn latch_unpinned(&self) -> Option<u64> {
        let version = self.latch.read()?;
        if !self.latch.try_exclusive(version) {
            return None;
        }
        // SeqCst: pairs with the fence in try_pin; see the argument in `access`.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the Release in unpin.
        if self.pins.load(Ordering::Acquire) > 0 {
            self.latch.release_exclusive(version);
            return None;
        }
        Some(version)
    }

    /// Counts a use. Writes nothing once the page is warm (P1).
    #[inline]
    pub(crate) fn touch(&self) {
        self.touch_if(|heat| heat < HEAT_WARM);
    }

    /// Counts a use if `is_due` holds for the heat.
    #[inline]
    fn touch_if(&self, is_due: impl Fn(u8) -> bool) {
        let heat = self.heat();
        if is_due(heat) {
            let warmer = u8::from(heat < HEAT_WARM);
            self.set_heat(heat + warmer);
        }
    }

    /// Lets the clock hand pass once more before the page may go. Writes nothing if it is warm.
    #[inline]
    pub(crate) fn warm(&self) {
        if self.heat() < HEAT_WARM {
            self.set_heat(HEAT_WARM);
        }
    }

    /// Counts a use of an inner node. Writes nothing once it is hot.
    #[inline]
    pub(crate) fn touch_inner(&self) {
        if self.heat() < HEAT_HOT {
            self.set_heat(HEAT_HOT);
        }
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use super::*;
    use pando_sync::{Arc, thread};

    const PAGE: PageId = PageId(7);

    /// Checks that an evictor and a thread that pins never both succeed.
    #[test]
    fn a_held_frame_is_never_emptied() {
        loom::model(|| {
            let header = Arc::new(FrameHeader::new());
            header.set_page(PAGE);
            let evictor = thread::spawn({
                let header = header.clone();
                move || {
                    if let Some(version) = header.latch_unpinned() {
                        header.set_page(PageId::NONE);
                        header.latch.release_exclusive(version);
                    }
                }
            });
            if header.try_pin(PAGE) {
                // The page must stay for as long as the pin lasts.
                assert_eq!(header.page(), PAGE);
                thread::yield_now();
                assert_eq!(header.page(), PAGE);
                header.unpin();
            }
            evictor.join().unwrap();
        });
    }
}
