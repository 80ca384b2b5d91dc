//! Access to pages: optimistic, exclusive and pinned. Shared latches are in `shared`.
//!
//! # Pins against the evictor
//!
//! A thread that pins counts the pin and then, after `fence(SeqCst)`, reads the latch and the page
//! id. The evictor takes the latch and then, after `fence(SeqCst)`, reads the count. One of the two
//! fences comes first: either the evictor sees the pin and leaves the frame alone, or the pinning
//! thread sees the latch taken, or the id gone, and gives the pin back.

use pando_format::page::{PageKind, WORD_ID, WORD_KIND};
use pando_format::{Epoch, FrameIndex, Lsn, PageId, TreeId};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::held::{Held, Kind};
use pando_sync::thread;
use pando_sync::words::prefetch_lines;

use crate::apply_token::ApplyToken;
use crate::frame::{FrameHeader, HEAT_COLD};
use crate::hinted_frame::HintedFrame;
use crate::latch::Latch;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Resource, Restart};
use crate::words::{PageMut, PageWords};

/// How often a taken latch is read before the step gives up.
pub(crate) const SPINS_MAX: u32 = 64;

/// Marks that a change puts on each leaf that it touches. Both only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// LSN of the batch.
    pub lsn: Lsn,
    /// The same LSN for a batch of two or more writes, 0 for a single write.
    pub multi_lsn: Lsn,
}

/// A page read without a latch: what was read counts only after [`Optimistic::validate`] succeeds.
#[derive(Debug, Clone, Copy)]
pub struct Optimistic<'a> {
    pool: &'a Pool,
    header: &'a FrameHeader,
    words: &'a [AtomicU64],
    version: u64,
    frame: FrameIndex,
    page: PageId,
}

impl<'a> Optimistic<'a> {
    /// Returns the id of the page.
    #[inline]
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns frame index + 1, the hint that a child word carries.
    #[inline]
    pub fn hint(&self) -> u32 {
        self.frame.0 + 1
    }

    /// Returns the version that [`Optimistic::validate`] compares with.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the latch of the frame, which may hold another page by now.
    #[inline]
    pub(crate) fn latch(&self) -> &'a Latch {
        &self.header.latch
    }

    /// Returns the words, which are racy until validated.
    #[inline]
    pub fn words(&self) -> PageWords<'a> {
        PageWords::new(self.words)
    }

    /// Prefetches `LINES` cache lines, beginning with the line of word `start`. Does nothing if the
    /// page has no such word.
    #[inline]
    pub fn prefetch_words<const LINES: usize>(&self, start: usize) {
        if let Some(word) = self.words.get(start) {
            prefetch_lines::<LINES>(word);
        }
    }

    /// Succeeds if no exclusive latch of the frame was released since the look-up: everything read
    /// is from one state, and the frame held the page all the time.
    ///
    /// # Errors
    /// [`Restart::Conflict`].
    #[inline]
    pub fn validate(&self) -> Attempt<()> {
        if self.header.latch.validate(self.version) {
            Ok(())
        } else {
            Err(Restart::Conflict)
        }
    }

    /// Takes the exclusive latch if the version has not changed since the look-up.
    ///
    /// # Errors
    /// [`Restart::Conflict`].
    #[inline]
    pub fn upgrade(self) -> Attempt<Exclusive<'a>> {
        if self.header.latch.try_exclusive(self.version) {
            debug_assert_eq!(self.header.page(), self.page);
            Ok(Exclusive::of_frame(self.pool, self.frame, self.version))
        } else {
            Err(Restart::Conflict)
        }
    }

    /// Keeps the page in memory until the pin is dropped. Says nothing of its version.
    ///
    /// # Errors
    /// [`Restart::Conflict`] when the frame has lost the page, or may be losing it.
    #[inline]
    pub fn pin(&self) -> Attempt<PagePin<'a>> {
        if !self.header.try_pin(self.page) {
            return Err(Restart::Conflict);
        }
        Ok(PagePin {
            pool: self.pool,
            frame: self.frame,
        })
    }

    /// Replaces the hint in word `index`, with one attempt at a shared latch. Without the latch the
    /// frame might no longer hold this parent.
    pub fn replace_hint(&self, index: usize, old: u64, new: u64) {
        let header = self.header;
        let Some(version) = header.latch.try_shared() else {
            return;
        };
        let current = version == self.version;
        if current && let Some(word) = self.words().slice().get(index) {
            // Relaxed: a hint is checked against the frame's header whenever it is used.
            let _ = word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
        }
        header.latch.release_shared();
    }

    /// Counts a use of an inner node. Writes nothing once the node is hot.
    #[inline]
    pub fn touch_inner(&self) {
        self.header.touch_inner();
    }

    /// Counts a use of the page. Writes nothing once the page is warm.
    #[inline]
    pub fn touch(&self) {
        self.header.touch();
    }

    /// Makes the page warm, however little it was used: it will be used again at once, and is not
    /// pinned. Writes nothing once the page is warm.
    #[inline]
    pub fn warm(&self) {
        self.header.warm();
    }
}

/// The exclusive latch of a page, released on drop.
#[derive(Debug)]
pub struct Exclusive<'a> {
    pool: &'a Pool,
    frame: FrameIndex,
    version: u64,
    /// None after [`Exclusive::leave_taken`], when no thread owns the latch.
    held: Option<Held>,
    /// The page was not changed since the last durable checkpoint before this latch changed it, or
    /// what was changed lies in an extent that waits for the next one.
    was_clean: bool,
}

impl<'a> Exclusive<'a> {
    /// Wraps the exclusive latch of `frame`, which the caller has just taken at `version`.
    pub(crate) fn of_frame(pool: &'a Pool, frame: FrameIndex, version: u64) -> Self {
        Self {
            pool,
            frame,
            version,
            held: Some(Held::new(Kind::Latch)),
            was_clean: false,
        }
    }

    pub(crate) fn frame(&self) -> FrameIndex {
        self.frame
    }

    /// Returns the version from before the latch was taken.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Leaves the latch taken but owned by no thread. [`Exclusive::of_frame`] with the same version
    /// takes it over again.
    pub(crate) fn leave_taken(mut self) {
        self.held = None;
        let _kept = std::mem::ManuallyDrop::new(self);
    }

    /// Returns the id of the page.
    pub fn page(&self) -> PageId {
        self.pool.header(self.frame).page()
    }

    /// Returns frame index + 1, the hint that a child word carries.
    pub fn hint(&self) -> u32 {
        self.frame.0 + 1
    }

    /// Returns the words. Nobody else changes them.
    pub fn words(&self) -> PageWords<'_> {
        PageWords::new(self.pool.frame_words(self.frame))
    }

    /// Marks the page dirty in the epoch of `token` and gives write access. If a running checkpoint
    /// still needs the present content, its image is started first.
    ///
    /// # Errors
    /// [`Restart::Wait`] when the image needs a buffer and none is free, or when an older image of
    /// the page is in flight. Nothing has changed then.
    pub fn modify(&mut self, token: &ApplyToken<'_>) -> Attempt<PageMut<'_>> {
        let header = self.pool.header(self.frame);
        let epochs = self.pool.epochs();
        debug_assert_ne!(
            header.page(),
            PageId::NONE,
            "a page that was freed is changed"
        );
        match header.dirty_epoch() {
            Some(epoch) if epoch == token.epoch() => {}
            None => {
                self.was_clean = header.stored_epoch() != token.epoch();
                epochs.dirty_began(token.epoch());
                header.set_dirty_epoch(Some(token.epoch()));
            }
            Some(epoch) => {
                assert!(
                    epoch < token.epoch(),
                    "dirty in an epoch that has not begun"
                );
                self.save_for_checkpoint(epoch)?;
                epochs.dirty_began(token.epoch());
                header.set_dirty_epoch(Some(token.epoch()));
                epochs.dirty_ended(epoch);
            }
        }
        Ok(PageMut::new(self.pool.frame_words(self.frame)))
    }

    /// Like [`Exclusive::modify`], for a change that lays out the page anew, as splits, merges and
    /// packing do. In every build, the next image of the page is checked before it is written.
    ///
    /// # Errors
    /// As [`Exclusive::modify`].
    pub fn rebuild(&mut self, token: &ApplyToken<'_>) -> Attempt<PageMut<'_>> {
        self.modify(token)?;
        let header = self.pool.header(self.frame);
        // After `modify`, which may have copied an image of the previous content.
        header.set_rebuilt(true);
        Ok(PageMut::new(self.pool.frame_words(self.frame)))
    }

    /// Marks a clean page dirty without a change, so that it is written again, to another place.
    /// Returns false if it was dirty already.
    ///
    /// # Errors
    /// As [`Exclusive::modify`].
    pub fn write_again(&mut self, token: &ApplyToken<'_>) -> Attempt<bool> {
        let header = self.pool.header(self.frame);
        if header.dirty_epoch().is_some() {
            return Ok(false);
        }
        self.modify(token)?;
        Ok(true)
    }

    /// Makes sure that an image of the present content, which is the state at the end of `epoch`,
    /// is on its way to disk, if there will be a checkpoint to name it.
    fn save_for_checkpoint(&self, epoch: Epoch) -> Attempt<()> {
        let header = self.pool.header(self.frame);
        match header.image() {
            // Acquire: pairs with the Release in end_checkpoints.
            _ if self.pool.images().are_over.load(Ordering::Acquire) => Ok(()),
            // The image in flight was copied from this very version.
            Some(version) if version == self.version => Ok(()),
            Some(_) => Err(Restart::Wait(Resource::Images)),
            None => self.pool.start_image(self.frame, self.version, epoch),
        }
    }

    /// Counts that this change, of entry `entry`, had to give way to another one before. Returns
    /// the entry before which the page should be cut if that happens often at different entries.
    pub fn count_contention(&self, entry: usize) -> Option<usize> {
        let header = self.pool.header(self.frame);
        let (contention, cut) = header.contention().count(entry, self.version);
        header.set_contention(contention);
        cut
    }

    /// Frees the page: its id and frame may be reused. The caller has unlinked it from its tree, or
    /// has never linked it.
    ///
    /// # Panics
    /// When a running checkpoint still needs the content: call [`Exclusive::modify`] first, before
    /// any change.
    pub fn free(self, token: &ApplyToken<'_>) {
        let header = self.pool.header(self.frame);
        let is_changed = header.dirty_epoch().is_some()
            || header.image().is_some()
            || header.stored().is_some() && header.stored_epoch() == token.epoch();
        let was_changed = is_changed && !self.was_clean;
        self.pool.epochs().page_freed(token.epoch(), was_changed);
        self.free_uncounted(token);
    }

    /// As [`Exclusive::free`], of a page that replay frees, too.
    pub(crate) fn free_uncounted(self, token: &ApplyToken<'_>) {
        let (pool, page) = (self.pool, self.page());
        let header = pool.header(self.frame);
        let epochs = pool.epochs();
        assert!(
            !header.is_wired(),
            "{page} is wired: unwire it before it is freed"
        );
        epochs.push_pair(token.epoch(), page, None);
        if let Some(epoch) = header.dirty_epoch() {
            assert_eq!(
                epoch,
                token.epoch(),
                "{page} is freed before a checkpoint has its image"
            );
            header.set_dirty_epoch(None);
            epochs.dirty_ended(epoch);
        }
        // Nobody finds the page from here on.
        let resident = Place::Resident(self.frame);
        pool.table().set(page, resident, Place::Free);
        header.set_page(PageId::NONE);
        if header.image().is_some() {
            // The completion of the image gives back id, frame and extents.
            header.set_freed_epoch(Some(token.epoch()));
            return;
        }
        if let Some(stored) = header.stored() {
            epochs.retire(stored.extent, Some(header.stored_epoch()), token.epoch());
        }
        self.release_to_free_list(page);
        // Wakes commits that found too many dirty pages: no image of this page will end.
        pool.image_waiters().notify_all();
    }

    /// Gives back the id and the frame of `page`, which was freed and has no image in flight.
    pub(crate) fn release_to_free_list(self, page: PageId) {
        let (pool, frame) = (self.pool, self.frame);
        let header = pool.header(frame);
        assert_eq!(header.page(), PageId::NONE, "{page} can still be found");
        assert_eq!(
            header.dirty_epoch(),
            None,
            "{page} was changed after it was freed"
        );
        header.set_stored(None, Epoch(0));
        header.set_freed_epoch(None);
        header.set_rebuilt(false);
        drop(self);
        pool.page_ids().give_back(page);
        pool.give_back_frame(frame);
    }

    /// Keeps the page in memory. Returns false if the limit of wired frames is reached.
    pub fn wire(&self) -> bool {
        let header = self.pool.header(self.frame);
        header.is_wired() || {
            let wired = self.pool.wire_one();
            header.set_wired(wired);
            wired
        }
    }

    /// Ends [`Exclusive::wire`]. Does nothing for a page that is not wired.
    pub fn unwire(&self) {
        let header = self.pool.header(self.frame);
        if header.is_wired() {
            header.set_wired(false);
            self.pool.unwire_one();
        }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        self.pool
            .header(self.frame)
            .latch
            .release_exclusive(self.version);
    }
}

/// Keeps the page in its frame until it is dropped. The pin is counted in the frame's header, so
/// only operations that had to fetch take one, never a cached read.
#[derive(Debug)]
pub struct PagePin<'a> {
    pool: &'a Pool,
    frame: FrameIndex,
}

/// A pin without its lifetime, for storing outside the pool: see [`PagePin::into_token`].
#[derive(Debug)]
#[must_use = "give it to Pool::unpin, or the frame is never emptied again"]
pub struct PinToken(FrameIndex);

impl PagePin<'_> {
    /// Keeps the page in memory until [`Pool::unpin`].
    pub fn into_token(self) -> PinToken {
        PinToken(std::mem::ManuallyDrop::new(self).frame)
    }
}

impl Pool {
    /// Ends the pin of `token`, which must come from this pool.
    pub fn unpin(&self, token: PinToken) {
        drop(PagePin {
            pool: self,
            frame: token.0,
        });
    }
}

impl Drop for PagePin<'_> {
    fn drop(&mut self) {
        self.pool.header(self.frame).unpin();
    }
}

impl<'a> HintedFrame<'a> {
    /// Makes the access to `page`, which the frame of `pool` held at `version`.
    #[inline]
    fn seen(self, pool: &'a Pool, page: PageId, version: u64) -> Optimistic<'a> {
        Optimistic {
            pool,
            header: self.header,
            words: self.words,
            version,
            frame: self.frame,
            page,
        }
    }
}

impl Pool {
    /// Looks up `page` by `hint` (frame index + 1, or 0 for none), and falls back to the page
    /// table.
    ///
    /// # Errors
    /// As [`Pool::optimistic_in`].
    #[inline]
    pub fn optimistic(&self, page: PageId, hint: u32) -> Attempt<Optimistic<'_>> {
        self.optimistic_in(page, self.hinted(hint))
    }

    /// Looks up `page` in the frame that a hint names, and falls back to the page table.
    ///
    /// # Errors
    /// [`Restart::Fault`] when the page is not in memory, [`Restart::Conflict`] when it stays
    /// latched, [`Restart::Damaged`] when no page has this id. The last is a mere conflict as long
    /// as the word that named the page has not been validated.
    #[inline]
    pub fn optimistic_in<'a>(
        &'a self,
        page: PageId,
        hinted: Option<HintedFrame<'a>>,
    ) -> Attempt<Optimistic<'a>> {
        if let Some(hinted) = hinted
            && let Some(version) = hinted.version_of(page)
        {
            return Ok(hinted.seen(self, page, version));
        }
        self.look_up(page)
    }

    #[inline]
    fn look_up(&self, page: PageId) -> Attempt<Optimistic<'_>> {
        let (frame, version) = self.find_frame(page)?;
        Ok(self.in_frame(frame).seen(self, page, version))
    }

    /// Looks up the frame and the version of `page` in the page table. Does not return the access
    /// itself, so that one that was found by a hint stays in registers.
    fn find_frame(&self, page: PageId) -> Attempt<(FrameIndex, u64)> {
        for _ in 0..SPINS_MAX {
            match self.table().get(page) {
                Place::Resident(frame) => {
                    if let Some(version) = self.in_frame(frame).version_of(page) {
                        return Ok((frame, version));
                    }
                    thread::spin_loop();
                }
                Place::OnDisk(_) | Place::Loading(_) => return Err(Restart::Fault(page)),
                Place::Free => return Err(Restart::Damaged(page, "no page has this id")),
                Place::Chunk(_) => return Err(Restart::Damaged(page, "is a chunk")),
                Place::OutOfReach(_) => {
                    return Err(Restart::Damaged(page, crate::unread::OUT_OF_REACH));
                }
            }
        }
        Err(Restart::Conflict)
    }

    /// Takes the exclusive latch of `page`.
    ///
    /// # Errors
    /// As [`Pool::optimistic`].
    pub fn exclusive(&self, page: PageId) -> Attempt<Exclusive<'_>> {
        for _ in 0..SPINS_MAX {
            match self.look_up(page)?.upgrade() {
                Ok(exclusive) => return Ok(exclusive),
                Err(_) => thread::spin_loop(),
            }
        }
        Err(Restart::Conflict)
    }

    /// Allocates a new page: exclusively latched, zero except for its header, dirty in the epoch of
    /// `token`.
    ///
    /// # Errors
    /// [`Restart::Wait`] when no frame or no page id is free.
    pub fn allocate(
        &self,
        token: &ApplyToken<'_>,
        tree: TreeId,
        kind: PageKind,
        level: u8,
    ) -> Attempt<Exclusive<'_>> {
        let Some(page) = self.page_ids().take() else {
            return Err(Restart::Wait(Resource::PageIds));
        };
        let latched = match self.take_frame() {
            Ok(latched) => latched,
            Err(restart) => {
                self.page_ids().give_back(page);
                return Err(restart);
            }
        };
        let words = self.frame_words(latched.frame);
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        words[WORD_ID].store(u64::from(page.0) << 32, Ordering::Relaxed);
        let kind = u64::from(tree.0) | u64::from(kind.encode()) << 32 | u64::from(level) << 40;
        words[WORD_KIND].store(kind, Ordering::Relaxed);
        let header = self.header(latched.frame);
        header.set_stored(None, Epoch(0));
        header.set_heat(HEAT_COLD);
        header.set_dirty_epoch(Some(token.epoch()));
        self.epochs().dirty_began(token.epoch());
        header.set_page(page);
        self.table()
            .set(page, Place::Free, Place::Resident(latched.frame));
        Ok(latched)
    }

    /// Looks up `page` as [`Pool::optimistic`] does, and keeps it in memory until the pin is
    /// dropped.
    ///
    /// # Errors
    /// As [`Pool::optimistic`].
    pub fn pin(&self, page: PageId, hint: u32) -> Attempt<PagePin<'_>> {
        self.optimistic(page, hint)?.pin()
    }
}
