//! The pool: its parts and its counts.

use pando_format::{Epoch, FrameIndex, Lsn, PageId, PageSize, StoredPage};
use pando_stats::Statistics;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Gate, WaitList, WordArena, audit};

use crate::epoch::Epochs;
use crate::frame::FrameHeader;
use crate::free_frames::FreeFrames;
use crate::image_buffers::Images;
use crate::load_waiters::LoadWaiters;
use crate::options::PoolOptions;
use crate::page_ids::PageIds;
use crate::page_table::{PageTable, Place};

/// Smallest pool, in frames: two pin budgets, wired frames and the reserve.
pub const FRAMES_MIN: usize = 32;

/// Largest pool, in frames: a hint, which is an index + 1, has 32 bits.
pub const FRAMES_MAX: usize = u32::MAX as usize;

/// Frames and everything known about the pages in them.
///
/// It shares no cache line with its neighbours in memory, since every page read loads its first
/// fields.
#[derive(Debug)]
#[repr(align(128))]
pub struct Pool {
    options: PoolOptions,
    arena: WordArena,
    headers: Box<[FrameHeader]>,
    table: PageTable,
    page_ids: PageIds,
    epochs: Epochs,
    gate: Gate,
    free: FreeFrames,
    images: Images,
    load_waiters: LoadWaiters,
    /// Wakers of the write-back threads, woken when there is work for them.
    work: WaitList,
    /// Number of wired frames, at most [`Pool::wired_max`].
    wired: AtomicU64,
    /// Number of chunks that have an id.
    pub(crate) chunks: AtomicU64,
    /// Pages below this one are not freed unread. Constant after open.
    pub(crate) first_freed: PageId,
}

impl Pool {
    /// Makes a pool: maps the arena and the page table.
    ///
    /// # Errors
    /// When the system refuses the memory.
    ///
    /// # Panics
    /// When there are too few or too many frames, or a single image buffer.
    pub fn new(options: PoolOptions) -> std::io::Result<Self> {
        assert!(
            options.frames >= FRAMES_MIN,
            "a pool has at least {FRAMES_MIN} frames"
        );
        assert!(
            options.frames <= FRAMES_MAX,
            "a pool has at most {FRAMES_MAX} frames"
        );
        assert!(
            options.images != 1,
            "a pool has at least two image buffers, or none and no device"
        );
        assert!(
            options.block_bytes > 0
                && options
                    .page_size
                    .bytes()
                    .is_multiple_of(options.block_bytes),
            "a page has whole blocks"
        );
        let words = options.frames * options.page_size.words();
        let arena = WordArena::new("pages", words, true)?;
        let mut headers = Vec::new();
        headers.try_reserve_exact(options.frames)?;
        headers.extend((0..options.frames).map(|_| FrameHeader::new()));
        let headers: Box<[_]> = headers.into_boxed_slice();
        audit::name("frame headers", &*headers);
        Ok(Self {
            arena,
            headers,
            table: PageTable::new(options.page_ids_max)?,
            page_ids: PageIds::new(options.page_ids_max),
            epochs: Epochs::new(Epoch(1), options.has_device()),
            gate: Gate::new(),
            free: FreeFrames::new(options.frames),
            images: Images::new(options.images, options.page_size.bytes()),
            load_waiters: LoadWaiters::new(),
            work: WaitList::new(),
            wired: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
            first_freed: PageId(0),
            options,
        })
    }

    /// Has pages below `first` never be freed unread, whatever a damaged page says: everything else
    /// is found through them.
    #[must_use]
    pub fn keeping_below(self, first: PageId) -> Self {
        Self {
            first_freed: first,
            ..self
        }
    }

    /// At open: restores the pages of the checkpoint, as (id, place) in any order, and continues
    /// with `epoch` after the checkpoint at `c`.
    ///
    /// # Panics
    /// When the pool was used before, or an id is beyond the table.
    pub fn restore(&self, pages: impl Iterator<Item = (PageId, StoredPage)>, epoch: Epoch, c: Lsn) {
        let mut high_water = 0;
        for (page, stored) in pages {
            self.table.set(page, Place::Free, Place::of_stored(stored));
            self.chunks
                .fetch_add(u64::from(stored.is_chunk()), Ordering::Relaxed);
            high_water = high_water.max(page.0 + 1);
        }
        self.page_ids
            .restore(high_water, |page| self.table.get(page) != Place::Free);
        self.epochs.restore(epoch, c);
    }

    /// Returns the size of a page.
    #[inline]
    pub fn page_size(&self) -> PageSize {
        self.options.page_size
    }

    /// Returns the number of frames.
    #[inline]
    pub fn frames(&self) -> usize {
        self.options.frames
    }

    /// Returns the number of frames that are to be used: all but those that are to be parked.
    pub fn frames_in_use_max(&self) -> usize {
        self.frames().saturating_sub(self.free.parked_goal())
    }

    /// Returns the number of frames that have no page and no memory.
    pub fn parked_count(&self) -> usize {
        self.free.parked_count()
    }

    /// Returns whether fewer frames are parked than are to be.
    pub fn wants_parked(&self) -> bool {
        self.free.parked_count() < self.free.parked_goal()
    }

    /// Gives the memory of a frame, which the caller owns, back to the system.
    pub(crate) fn release_frame(&self, frame: FrameIndex) {
        let words = self.options.page_size.words();
        self.arena.release(frame.index() * words, words);
    }

    /// Has the system use huge pages for the frames, or not.
    pub(crate) fn set_huge(&self, huge: bool) {
        self.arena.set_huge(huge);
    }

    /// Returns the options of the pool.
    pub fn options(&self) -> &PoolOptions {
        &self.options
    }

    /// Returns the statistics that the pool counts in.
    #[inline]
    pub fn statistics(&self) -> &Statistics {
        &self.options.statistics
    }

    /// Returns the gate inside which pages are changed. An epoch ends while it is closed.
    #[inline]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the epochs with their counts and lists.
    #[inline]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Returns the free page ids.
    pub fn page_ids(&self) -> &PageIds {
        &self.page_ids
    }

    /// Returns the page table, which has the place of every page.
    pub fn table(&self) -> &PageTable {
        &self.table
    }

    /// Returns the number of frames without a page.
    pub fn free_count(&self) -> usize {
        self.free.count()
    }

    /// Returns the wakers that wait for a free frame.
    pub fn frame_waiters(&self) -> &WaitList {
        &self.free.waiters
    }

    /// Returns the wakers that wait for an image buffer, for the end of an image, or for fewer
    /// dirty pages.
    pub fn image_waiters(&self) -> &WaitList {
        &self.images.waiters
    }

    /// Returns the wakers of the write-back threads.
    pub fn work(&self) -> &WaitList {
        &self.work
    }

    /// Returns the number of chunks that have an id.
    pub fn chunks(&self) -> u64 {
        // Relaxed: a bound for reservations, and a figure.
        self.chunks.load(Ordering::Relaxed)
    }

    /// Returns the number of wired frames.
    pub fn wired(&self) -> u64 {
        self.wired.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of wired frames: a quarter of those that are to be used.
    pub fn wired_max(&self) -> u64 {
        (self.frames_in_use_max() / 4) as u64
    }

    /// Returns the state of a frame. Its latch guards most of it: see [`FrameHeader`].
    #[inline]
    pub(crate) fn header(&self, frame: FrameIndex) -> &FrameHeader {
        audit::read(&self.headers);
        &self.headers[frame.index()]
    }

    /// Returns the words of the page in `frame`, which are racy unless the caller holds its latch.
    #[inline]
    pub(crate) fn frame_words(&self, frame: FrameIndex) -> &[AtomicU64] {
        audit::read(&self.options.page_size);
        audit::read(&self.arena);
        let words = self.options.page_size.words();
        self.arena.words(frame.index() * words, words)
    }

    pub(crate) fn free_frames(&self) -> &FreeFrames {
        &self.free
    }

    pub(crate) fn images(&self) -> &Images {
        &self.images
    }

    pub(crate) fn load_waiters(&self) -> &LoadWaiters {
        &self.load_waiters
    }

    /// Counts one more wired frame. Returns false, without counting it, if the limit is reached.
    pub(crate) fn wire_one(&self) -> bool {
        // Relaxed: a count that orders nothing.
        self.wired
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |wired| {
                (wired < self.wired_max()).then_some(wired + 1)
            })
            .is_ok()
    }

    /// Takes back one [`Pool::wire_one`] that returned true.
    pub(crate) fn unwire_one(&self) {
        let before = self.wired.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a frame was unwired twice");
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit, miri))))]
mod tests {
    use pando_format::Compression;
    use pando_sync::Arc;

    use super::*;
    use crate::options::{CheckImages, Content, ImageFacts};

    const HUGE_BYTES: usize = 2 << 20;

    fn pool(frames: usize) -> Pool {
        Pool::new(PoolOptions {
            page_size: PageSize::new(4096).expect("a size of pages"),
            frames,
            page_ids_max: 1000,
            images: 4,
            block_bytes: 4096,
            compression: Compression::None,
            prepare_image: |_| ImageFacts::default(),
            check_page: |_| Ok(()),
            check_images: CheckImages::Rebuilt,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .expect("there is memory")
    }

    /// Returns what the system says about the mapping of the arena: KiB in memory, and its flags.
    fn mapping(pool: &Pool) -> (u64, String) {
        let address = pool.arena.words(0, 1).as_ptr() as usize;
        let text = std::fs::read_to_string("/proc/self/smaps").expect("it is Linux");
        let mut lines = text.lines().skip_while(|line| {
            let range = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'));
            let parse = |number| usize::from_str_radix(number, 16).ok();
            let range = range.and_then(|(from, to)| Some(parse(from)?..parse(to)?));
            !range.is_some_and(|range| range.contains(&address))
        });
        let mut after = |name: &str| {
            let line = lines.find_map(|line| line.strip_prefix(name));
            line.expect("each mapping has it").trim().to_owned()
        };
        let resident = after("Rss:");
        let resident = resident.trim_end_matches(" kB").parse();
        (resident.expect("a number"), after("VmFlags:"))
    }

    /// Where frames are parked, one that is used costs its own memory and not that of its
    /// neighbours; afterwards there are huge pages again.
    #[test]
    fn frames_that_are_parked_are_not_filled_with_huge_pages() {
        // A kernel without huge pages fills nothing with them.
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return;
        }
        let frames = 32 * HUGE_BYTES / 4096;
        let pool = pool(frames);
        let has = |flag: &str| mapping(&pool).1.split(' ').any(|other| other == flag);
        assert!(has("hg") && !has("nh"));
        pool.park_frames(frames / 2);
        assert!(has("nh") && !has("hg"));
        for frame in (0..frames).step_by(HUGE_BYTES / 4096) {
            let frame = u32::try_from(frame).expect("they are few");
            let word = &pool.frame_words(FrameIndex(frame))[0];
            word.store(7, Ordering::Relaxed);
        }
        let (resident, _) = mapping(&pool);
        assert!(resident < 8 << 10, "{resident} KiB for 32 frames");
        pool.park_frames(0);
        assert!(has("hg") && !has("nh"));
    }
}
