//! Loading a page into memory: claim, read (by the caller), check, decompress, publish (decision
//! 007).
//!
//! The thread that claims the page word reads the page. All others that miss the page register a
//! waker and look it up again later, so one read serves them all. `finish_load` or `fail_load`
//! always ends the claim: a ticket must not be dropped otherwise.

use std::task::Waker;

use pando_format::bytes::u64_at;
use pando_format::page::{PageKind, WORD_EPOCH, WORD_KIND, check_marks, verify_image};
use pando_format::{Epoch, FrameIndex, PageDecoder, PageId, StoredPage};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_sync::words::{prefetch, store_bytes};

use crate::access::Exclusive;
use crate::frame::HEAT_NEW;
use crate::options::Content;
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::Attempt;
use crate::words::WORDS_PER_LINE;

/// Number of lines of a frame that are prefetched before a page is copied there. More of them only
/// evict each other from the cache.
const LINES_AHEAD: usize = 8;

/// A claim of a page: its owner must read the page, or give it up with [`Pool::fail_load`].
#[derive(Debug)]
#[must_use = "others wait for the page: finish or fail the load"]
pub struct LoadTicket {
    page: PageId,
    frame: FrameIndex,
    version: u64,
    stored: StoredPage,
    ended: bool,
}

impl LoadTicket {
    /// Returns the page to read.
    pub fn page(&self) -> PageId {
        self.page
    }

    /// Returns the place of the page.
    pub fn stored(&self) -> StoredPage {
        self.stored
    }
}

impl Drop for LoadTicket {
    fn drop(&mut self) {
        debug_assert!(self.ended, "{} was claimed and forgotten", self.page);
    }
}

/// Result of [`Pool::begin_load`].
#[derive(Debug)]
pub enum LoadStart {
    /// The caller has claimed the page and must read it.
    Claimed(LoadTicket),
    /// Somebody else reads it: wait with [`Pool::wait_for_load`].
    Loading,
    /// The page is in memory by now.
    Resident,
    /// No page has this id by now, or nobody reads the page (it is out of reach).
    Free,
}

/// Result of [`Pool::await_load`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadWait {
    /// Somebody reads the page, and will wake the waker.
    Loading,
    /// Nobody reads the page: the caller has to see to that.
    OnDisk,
    /// There is nothing to wait for: the page is in memory, or will not be.
    Over,
}

/// Tells why bytes from the device are not the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The page.
    pub page: PageId,
    /// The place that was read.
    pub stored: StoredPage,
    /// What is wrong.
    pub what: String,
}

impl Pool {
    /// Claims a page that is not in memory.
    ///
    /// # Errors
    /// [`crate::Restart::Wait`] when no frame is free.
    pub fn begin_load(&self, page: PageId) -> Attempt<LoadStart> {
        let stored = match self.table().get(page) {
            Place::OnDisk(stored) => stored,
            Place::Loading(_) => return Ok(LoadStart::Loading),
            Place::Resident(_) => return Ok(LoadStart::Resident),
            // For a chunk, the missed page was freed, and the chunk has its id now. For a page out
            // of reach, the next look-up of the caller returns the error.
            Place::Free | Place::Chunk(_) | Place::OutOfReach(_) => return Ok(LoadStart::Free),
        };
        let latched = self.take_frame()?;
        let (frame, version) = (latched.frame(), latched.version());
        let header = self.header(frame);
        header.set_stored(Some(stored), Epoch(0));
        if !self
            .table()
            .swap(page, Place::OnDisk(stored), Place::Loading(frame))
        {
            header.set_stored(None, Epoch(0));
            drop(latched);
            self.give_back_frame(frame);
            return Ok(LoadStart::Loading);
        }
        // The latch goes with the ticket.
        latched.leave_taken();
        self.statistics().tick(Ticker::Faults, 1);
        Ok(LoadStart::Claimed(LoadTicket {
            page,
            frame,
            version,
            stored,
            ended: false,
        }))
    }

    /// Publishes the page. `bytes` are its stored bytes, all blocks of its extent.
    ///
    /// # Errors
    /// [`LoadError`] when checksum, page id, tag, compression or structure are wrong. The claim has
    /// ended then.
    pub fn finish_load(
        &self,
        ticket: LoadTicket,
        bytes: &[u8],
        decoder: &mut PageDecoder,
    ) -> Result<(), LoadError> {
        self.finish_load_or(ticket, bytes, decoder, |_| ())
    }

    /// Like [`Pool::finish_load`], and calls `failed` with the error before it wakes the waiters.
    ///
    /// # Errors
    /// As [`Pool::finish_load`].
    pub fn finish_load_or(
        &self,
        ticket: LoadTicket,
        bytes: &[u8],
        decoder: &mut PageDecoder,
        failed: impl FnOnce(&LoadError),
    ) -> Result<(), LoadError> {
        let LoadTicket {
            page,
            frame,
            stored,
            ..
        } = ticket;
        let content = match self.options().content {
            Content::Checked => {
                self.expect_copy(frame);
                self.check_loaded(page, stored, bytes, decoder).map(Some)
            }
            Content::Ignored => Ok(None),
        };
        let content = match content {
            Ok(content) => content,
            Err(what) => {
                let error = LoadError { page, stored, what };
                failed(&error);
                self.fail_load(ticket);
                return Err(error);
            }
        };
        let latched = self.end_ticket(ticket);
        let words = self.frame_words(frame);
        if let Some(content) = content {
            // The exclusive latch is held: nobody else writes.
            store_bytes(words, content);
        }
        let header = self.header(frame);
        header.set_stored(
            Some(stored),
            Epoch(words[WORD_EPOCH].load(Ordering::Relaxed)),
        );
        header.set_heat(HEAT_NEW);
        header.set_page(page);
        self.table()
            .set(page, Place::Loading(frame), Place::Resident(frame));
        let kind = content.and_then(|of| PageKind::decode(of[WORD_KIND * 8 + 4]));
        drop(latched);
        self.count_read(kind);
        self.statistics()
            .tick(Ticker::PageReadBytes, bytes.len() as u64);
        self.load_waiters().wake(page);
        Ok(())
    }

    /// Counts a page that was read, by kind if the content was checked.
    fn count_read(&self, kind: Option<PageKind>) {
        self.statistics().tick(Ticker::PageReads, 1);
        match kind {
            Some(PageKind::Leaf) => self.statistics().tick(Ticker::PageReadsLeaf, 1),
            Some(PageKind::Inner) => self.statistics().tick(Ticker::PageReadsInner, 1),
            Some(_) => self.statistics().tick(Ticker::PageReadsOverflow, 1),
            None => {}
        }
    }

    /// Prefetches the first lines of a frame, which arrive while the checksum is computed. The
    /// processor prefetches the others itself.
    fn expect_copy(&self, frame: FrameIndex) {
        let lines = self.frame_words(frame).chunks(WORDS_PER_LINE);
        for line in lines.take(LINES_AHEAD) {
            prefetch(&line[0]);
        }
    }

    /// Checks `bytes` and returns the page in them. Nothing past the header is read before the
    /// checksum has been verified.
    fn check_loaded<'a>(
        &self,
        page: PageId,
        stored: StoredPage,
        bytes: &'a [u8],
        decoder: &'a mut PageDecoder,
    ) -> Result<&'a [u8], String> {
        let options = self.options();
        let expected = stored.extent.blocks as usize * options.block_bytes;
        if bytes.len() != expected {
            return Err(format!("{} bytes instead of {expected}", bytes.len()));
        }
        verify_image(bytes, page, stored.tag).map_err(|damage| damage.what)?;
        let content = decoder
            .decode(bytes, options.page_size, options.block_bytes)
            .map_err(|damage| damage.what)?;
        if bytes.len() < content.len() {
            self.statistics().tick(Ticker::PagesDecompressed, 1);
        }
        (options.check_page)(content).map_err(str::to_owned)?;
        let epoch = Epoch(u64_at(content, WORD_EPOCH * 8));
        check_marks(content, self.epochs().ceiling(epoch)).map_err(|damage| damage.what)?;
        Ok(content)
    }

    /// Ends a claim without the page, which stays on disk. All waiters are woken and look it up
    /// again.
    pub fn fail_load(&self, ticket: LoadTicket) {
        let LoadTicket {
            page,
            frame,
            stored,
            ..
        } = ticket;
        let latched = self.end_ticket(ticket);
        self.header(frame).set_stored(None, Epoch(0));
        self.table()
            .set(page, Place::Loading(frame), Place::OnDisk(stored));
        drop(latched);
        self.give_back_frame(frame);
        self.statistics().tick(Ticker::FaultsFailed, 1);
        self.load_waiters().wake(page);
    }

    /// Wakes all waiters of `page`, for a read request that found nothing to read.
    pub fn end_load_wait(&self, page: PageId) {
        self.load_waiters().wake(page);
    }

    /// Returns the wakers that wait for `page` now.
    pub fn waiting_for_load(&self, page: PageId) -> Vec<Waker> {
        self.load_waiters().of(page)
    }

    /// Takes the latch over from the ticket.
    fn end_ticket(&self, mut ticket: LoadTicket) -> Exclusive<'_> {
        ticket.ended = true;
        Exclusive::of_frame(self, ticket.frame, ticket.version)
    }

    /// Returns whether `page` is not in memory and nobody reads it. May be outdated at once.
    pub fn is_on_disk(&self, page: PageId) -> bool {
        self.place_on_disk(page).is_some()
    }

    /// Returns where `page` lies, if it is not in memory and nobody reads it. May be outdated at
    /// once.
    pub fn place_on_disk(&self, page: PageId) -> Option<StoredPage> {
        match self.table().get(page) {
            Place::OnDisk(stored) => Some(stored),
            _ => None,
        }
    }

    /// Returns whether the page table has a place of `page`, in memory or on disk.
    pub fn is_known(&self, page: PageId) -> bool {
        !matches!(self.table().get(page), Place::Free | Place::OutOfReach(_))
    }

    /// Registers `waker` to be woken when the read of `page` ends, even if it has not begun. On
    /// [`LoadWait::Over`] the waker is no longer registered.
    pub fn await_load(&self, page: PageId, waker: &Waker) -> LoadWait {
        let is_new = self.load_waiters().register(page, waker);
        match self.table().get(page) {
            Place::Loading(_) => LoadWait::Loading,
            Place::OnDisk(_) => LoadWait::OnDisk,
            Place::Resident(_) | Place::Free | Place::Chunk(_) | Place::OutOfReach(_) => {
                self.load_waiters().remove(page, waker);
                if !is_new {
                    // An earlier call registered this waker, and the read it waited for is over,
                    // too.
                    waker.wake_by_ref();
                }
                LoadWait::Over
            }
        }
    }

    /// Registers `waker` to be woken when the read of `page` ends. Returns true if nobody reads the
    /// page now.
    pub fn wait_for_load(&self, page: PageId, waker: &Waker) -> bool {
        self.await_load(page, waker) != LoadWait::Loading
    }
}

/// Run by `RUSTFLAGS='--cfg pando_loom' cargo test --release -p pando-pool --lib models`.
#[cfg(all(test, pando_loom))]
mod models {
    use std::task::Wake;

    use pando_format::{Extent, StoredKind};
    use pando_sync::atomic::AtomicBool;
    use pando_sync::{Arc, thread};

    use super::*;
    use crate::load_waiters::LoadWaiters;
    use crate::page_table::PageTable;

    const PAGE: PageId = PageId(0);
    const STORED: StoredPage = StoredPage {
        kind: StoredKind::Page,
        extent: Extent {
            block: 3,
            blocks: 1,
        },
        tag: 0,
        names_chunks: false,
    };

    fn table(place: Place) -> PageTable {
        let table = PageTable::new(1).unwrap();
        table.set(PAGE, Place::Free, place);
        table
    }

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Of two threads that miss a page, one reads it, and the other sees that the page is being
    /// read.
    #[test]
    fn one_claim_wins() {
        loom::model(|| {
            let table = Arc::new(table(Place::OnDisk(STORED)));
            let claim = |table: &PageTable, frame| {
                table.swap(
                    PAGE,
                    Place::OnDisk(STORED),
                    Place::Loading(FrameIndex(frame)),
                )
            };
            let other = thread::spawn({
                let table = table.clone();
                move || claim(&table, 1)
            });
            let mine = claim(&table, 2);
            let theirs = other.join().unwrap();
            assert!(mine ^ theirs);
            let winner = if mine { 2 } else { 1 };
            assert_eq!(table.get(PAGE), Place::Loading(FrameIndex(winner)));
        });
    }

    /// A waiter is woken if it registers and then still sees the page being read.
    #[test]
    fn a_waiter_is_never_forgotten() {
        loom::model(|| {
            let frame = FrameIndex(1);
            let table = Arc::new(table(Place::Loading(frame)));
            let waiters = Arc::new(LoadWaiters::new());
            let loader = thread::spawn({
                let (table, waiters) = (table.clone(), waiters.clone());
                move || {
                    table.set(PAGE, Place::Loading(frame), Place::Resident(frame));
                    waiters.wake(PAGE);
                }
            });
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            waiters.register(PAGE, &Waker::from(flag.clone()));
            let waits = table.get(PAGE) == Place::Loading(frame);
            loader.join().unwrap();
            assert!(
                !waits || flag.0.load(Ordering::Relaxed),
                "the waiter was not woken"
            );
        });
    }
}
