//! The versions of one store: saving and finding them, and the room for them.

use std::hash::BuildHasher;
use std::ops::Bound;

use pando_format::cast::usize_of;
use pando_format::{Compression, Lsn, PageSize, TreeId};
use pando_pool::pool::FRAMES_MIN;
use pando_pool::{Attempt, CheckImages, Content, Marks, Pool, PoolOptions, Restart};
use pando_stats::Statistics;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::gate::{Closed, GateGuard};
use pando_sync::{Arc, thread};
use pando_tree::{Before, Direction, Place, Scratch, Sought, Tree, ValueReader};
use rapidhash::fast::RandomState;

use crate::before_image::BeforeImage;
use crate::generations::{Generation, Generations, LIVE_MAX};
use crate::key::{self, Stem};
use crate::readers::Readers;

/// Pages of versions are this many times as large as those of the store, so that a record that
/// fits into a leaf there fits into a leaf here with its longer key.
const PAGE_FACTOR: usize = 2;
/// Bytes of the largest page.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// The versions of one store.
#[derive(Debug)]
pub struct Versions {
    pub(crate) pool: Pool,
    pub(crate) generations: Generations,
    /// Number of frames that commits have reserved.
    reserved: AtomicU64,
    /// Number of frames in use when the newest generation was opened.
    used_at_open: AtomicU64,
    /// Longest key, in groups; longer ones are cut.
    pub(crate) groups_max: usize,
    /// For the keys that generations have.
    hasher: RandomState,
}

/// Working memory of a thread that saves or finds versions.
#[derive(Debug)]
pub struct VersionScratch {
    pub(crate) stem: Stem,
    value: Vec<u8>,
    sought: Sought,
    /// Where a seek begins.
    bound: Vec<u8>,
    tree: Scratch,
    pub(crate) reader: ValueReader,
}

impl Default for VersionScratch {
    fn default() -> Self {
        Self {
            stem: Stem::default(),
            value: Vec::new(),
            sought: Sought::default(),
            bound: Vec::new(),
            tree: Scratch::frugal(),
            reader: ValueReader::new(),
        }
    }
}

impl VersionScratch {
    /// Prepares it for the versions of another store, whose leaves have the same names. Returns
    /// false if a save was left unfinished: then it must not be kept.
    pub fn forget_store(&mut self) -> bool {
        self.tree.forget_leaf();
        self.tree.is_finished()
    }
}

/// What [`Versions::find`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// No batch after the snapshot has replaced the value: that of the leaf counts.
    Unchanged,
    /// The value at the snapshot.
    Replaced(BeforeImage<'a>),
}

/// What one generation says about the newest version of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewestVersion {
    /// Its LSN.
    At(Lsn),
    /// The generation has no version of the key.
    None,
    /// It has to be sought.
    Unknown,
}

/// Frames that a commit has reserved for its versions; given back on drop.
#[derive(Debug)]
#[must_use = "it is given back on drop"]
pub struct VersionRoom<'v> {
    versions: &'v Versions,
    frames: u64,
}

impl VersionRoom<'_> {
    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

impl Drop for VersionRoom<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in try_reserve, which then sees the frames as taken.
        let before = self
            .versions
            .reserved
            .fetch_sub(self.frames, Ordering::Release);
        assert!(before >= self.frames, "given back more than was reserved");
    }
}

impl Versions {
    /// Makes a store without versions, for a store with pages of `page_size`, that takes at most
    /// `bytes` of memory, or [`FRAMES_MIN`] pages if that is more. Memory is used once versions
    /// need it.
    ///
    /// # Errors
    /// When the system refuses the memory.
    ///
    /// # Panics
    /// When there would be more frames than a pool can have.
    pub fn new(
        page_size: PageSize,
        bytes: u64,
        statistics: Arc<Statistics>,
    ) -> std::io::Result<Self> {
        let page_bytes = (PAGE_FACTOR * page_size.bytes()).min(PAGE_BYTES_MAX);
        let page_size = PageSize::new(page_bytes).expect("a power of two from 4 to 64 KiB");
        let frames = usize_of(bytes / page_bytes as u64).max(FRAMES_MIN);
        let pool = Pool::new(PoolOptions {
            page_size,
            frames,
            page_ids_max: frames,
            images: 0,
            block_bytes: page_bytes,
            compression: Compression::None,
            prepare_image: pando_tree::prepare_image,
            check_page: pando_tree::check_page,
            check_images: CheckImages::Rebuilt,
            content: Content::Checked,
            statistics,
        })?;
        Ok(Self {
            pool,
            generations: Generations::new((frames * page_bytes) as u64),
            reserved: AtomicU64::new(0),
            used_at_open: AtomicU64::new(0),
            groups_max: key::groups_max(page_size.key_bytes_max()),
            hasher: RandomState::default(),
        })
    }

    /// Returns the number of frames.
    pub fn frames(&self) -> u64 {
        self.pool.frames() as u64
    }

    /// Returns the number of frames that have versions.
    pub fn used(&self) -> u64 {
        self.frames() - self.pool.free_count() as u64
    }

    /// Returns the bytes of a frame.
    pub fn frame_bytes(&self) -> u64 {
        self.pool.page_size().bytes() as u64
    }

    /// Returns the gate of the pool, which nobody ever closes.
    fn enter(&self) -> GateGuard<'_> {
        self.pool.gate().try_enter().expect("it is never closed")
    }

    /// Returns the most frames that the versions of a batch can need: `writes` of them, whose keys
    /// and values have `bytes` together. Leaves that others add meanwhile are not counted.
    pub fn frames_for(&self, writes: u64, bytes: u64) -> u64 {
        self.frames_beside(self.used(), (writes, bytes))
    }

    /// Returns whether the versions of such a batch have room if there are no others.
    pub fn fit_alone(&self, writes: u64, bytes: u64) -> bool {
        self.fits(self.frames_beside(0, (writes, bytes)))
    }

    /// As [`Versions::frames_for`], beside so many frames that are used.
    fn frames_beside(&self, used: u64, (writes, bytes): (u64, u64)) -> u64 {
        // A write splits at most one leaf. The leaves that are there can be split once each, and
        // those that are made have a quarter of a page at least.
        let new = bytes.div_ceil(self.frame_bytes() / 4);
        let leaves = writes.min(used + new + 1);
        // A node above takes at least two more children before it is split again. A root that is
        // split takes one page more.
        2 * leaves + 4
    }

    /// Returns whether that many frames could be reserved if nothing else were.
    pub fn fits(&self, frames: u64) -> bool {
        // One root for each generation.
        frames + LIVE_MAX as u64 <= self.frames()
    }

    /// Reserves frames for the versions of a batch. None if too few are left.
    pub fn try_reserve(&self, frames: u64) -> Option<VersionRoom<'_>> {
        // Acquire: pairs with the Release of the end of a reservation: frames taken under one that
        // has ended are counted in `used`.
        let reserved = self.reserved.fetch_add(frames, Ordering::Acquire) + frames;
        let room = VersionRoom {
            versions: self,
            frames,
        };
        // A root for the next generation stays free.
        (reserved + self.used() < self.frames()).then_some(room)
    }

    /// Returns whether that many frames could be reserved now.
    pub fn could_reserve(&self, frames: u64) -> bool {
        self.reserved() + frames + self.used() < self.frames()
    }

    /// Returns whether that many frames could be reserved if nothing else were reserved.
    pub fn has_room_besides_reserved(&self, frames: u64) -> bool {
        frames + self.used() < self.frames()
    }

    /// Returns the number of reserved frames.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns whether there is a generation for commits to put versions into.
    pub fn has_generation(&self) -> bool {
        self.generations.newest().is_some()
    }

    /// Returns whether the newest generation has no versions, or there is none.
    pub fn is_newest_empty(&self) -> bool {
        let newest = self.generations.newest();
        newest.is_none_or(|newest| newest.largest() == Lsn(0))
    }

    /// Returns whether the newest generation has grown enough to be followed by another one.
    pub fn wants_generation(&self) -> bool {
        let at_open = self.used_at_open.load(Ordering::Relaxed);
        self.used().saturating_sub(at_open) > self.frames() / LIVE_MAX as u64
    }

    /// Opens the next generation. Returns false if there are as many as there can be, or if no
    /// frame is free: then the newest stays the newest.
    pub fn open_generation(&self, closed: &Closed<'_>) -> bool {
        let Some(number) = self.generations.next() else {
            return false;
        };
        let guard = self.enter();
        let token = self.pool.apply_token(&guard);
        let Ok(tree) = retried(|| Tree::create(&self.pool, &token, number)) else {
            return false;
        };
        self.used_at_open.store(self.used(), Ordering::Relaxed);
        self.generations.open(closed, tree);
        true
    }

    /// Frees the generations that no snapshot needs, but for the newest: none reads below
    /// `horizon`. One caller at a time. Returns whether it has freed any.
    pub fn drop_unneeded(&self, horizon: Lsn) -> bool {
        let mut has_freed = false;
        while let Some(tree) = self.generations.hide_oldest(horizon, None) {
            self.free_tree(tree);
            has_freed = true;
        }
        has_freed
    }

    /// Hides the generations that no snapshot needs, the newest too, from all that look for
    /// versions from now on. The caller frees them once it has opened the gate. Callers and those
    /// of [`Versions::drop_unneeded`] take turns.
    #[must_use = "they are to be freed"]
    pub fn hide_unneeded(&self, horizon: Lsn, closed: &Closed<'_>) -> Vec<Tree> {
        let hide = || self.generations.hide_oldest(horizon, Some(closed));
        std::iter::from_fn(hide).collect()
    }

    /// Frees hidden generations.
    pub fn free(&self, hidden: &[Tree]) {
        hidden.iter().for_each(|tree| self.free_tree(*tree));
    }

    fn free_tree(&self, tree: Tree) {
        let guard = self.enter();
        let token = self.pool.apply_token(&guard);
        let mut scratch = Scratch::new();
        loop {
            let step = retried(|| tree.try_free_leftmost(&self.pool, &token, &mut scratch));
            let finished = retried(|| scratch.try_finish(&self.pool, &token));
            finished.expect("its pages are in memory");
            if step.expect("its pages are in memory").done {
                break;
            }
        }
    }

    /// Returns the LSN of the newest version of `key`, whose stem `scratch` has, or an LSN that
    /// gives the same answer to whether a reader needs another one; LSN 0 if there is none. And
    /// where the next version belongs in the newest generation, if it has looked there.
    fn newest_of(
        &self,
        (key, hash): (&[u8], u64),
        readers: &Readers,
        scratch: &mut VersionScratch,
    ) -> Attempt<(Lsn, Place)> {
        let mut place = Place::default();
        let span = self.generations.span();
        for number in (span.first..span.next).rev() {
            let Some(generation) = self.generations.get(number) else {
                break;
            };
            let largest = generation.largest();
            if largest == Lsn(0) {
                // It has no version yet.
                continue;
            }
            if readers.any_from(largest) {
                // Whatever version it has, somebody reads after that and before the batch.
                return Ok((largest, place));
            }
            if !generation.keys.may_have(hash) {
                continue;
            }
            let limit = readers.limit();
            if number + 1 == span.next && !scratch.stem.is_cut {
                let (next, newest) = self.place(generation, limit, scratch)?;
                place = next;
                match newest {
                    NewestVersion::At(lsn) => return Ok((lsn, place)),
                    NewestVersion::None => continue,
                    NewestVersion::Unknown => {}
                }
            }
            let newest = self.seek(generation, key, limit, Direction::Backward, scratch);
            if let Some(lsn) = self.if_live(number, newest)?.flatten() {
                return Ok((lsn, place));
            }
        }
        Ok((Lsn(0), place))
    }

    /// Finds where the version of `lsn` of the stem in `scratch`, whose key is not cut, belongs in
    /// the newest generation, and what the record before it says about the newest version.
    fn place(
        &self,
        generation: Generation<'_>,
        lsn: Lsn,
        scratch: &mut VersionScratch,
    ) -> Attempt<(Place, NewestVersion)> {
        let VersionScratch { stem, bound, .. } = scratch;
        let shared = stem.bytes().len();
        let at = (stem.at(lsn, 0), shared);
        let (place, before) = generation.tree.try_place(&self.pool, at, bound)?;
        let newest = match before {
            Before::Alike => match stem.lsn_of(bound) {
                Some(lsn) => NewestVersion::At(lsn),
                None => NewestVersion::None,
            },
            Before::Other => NewestVersion::None,
            Before::Elsewhere => NewestVersion::Unknown,
        };
        Ok((place, newest))
    }

    /// Returns the hash by which generations know a key.
    #[inline]
    fn hash_of(&self, stem: &Stem) -> u64 {
        self.hasher.hash_one(stem.bytes())
    }

    /// Seeks the version of `key`, whose stem `scratch` has, next to `lsn` in `direction`, without
    /// those of `lsn` itself. Returns its LSN, and leaves its value in `scratch`.
    fn seek(
        &self,
        generation: Generation<'_>,
        key: &[u8],
        lsn: Lsn,
        direction: Direction,
        scratch: &mut VersionScratch,
    ) -> Attempt<Option<Lsn>> {
        let VersionScratch {
            stem,
            sought,
            bound,
            reader,
            ..
        } = scratch;
        // Of a key that was cut, the versions of one batch have numbers.
        let number = match direction {
            Direction::Forward => u32::MAX,
            Direction::Backward => 0,
        };
        stem.at(lsn, number).clone_into(bound);
        while generation
            .tree
            .try_seek(&self.pool, Bound::Excluded(bound), direction, sought)?
        {
            let Some(found) = stem.lsn_of(&sought.key) else {
                break;
            };
            if self.is_of(generation, key, stem.is_cut, sought, reader)? {
                return Ok(Some(found));
            }
            std::mem::swap(bound, &mut sought.key);
        }
        Ok(None)
    }

    /// Returns the generations that may have versions after `lsn`, with their numbers, the oldest
    /// first.
    pub(crate) fn generations_after(
        &self,
        lsn: Lsn,
    ) -> impl Iterator<Item = (u32, Generation<'_>)> {
        let span = self.generations.span();
        let all = (span.first..span.next).filter_map(|number| {
            let generation = self.generations.get(number)?;
            Some((number, generation))
        });
        all.filter(move |(_, generation)| generation.largest() > lsn)
    }

    /// Returns the result of reading generation `number`; None if that was dropped meanwhile: then
    /// it had no version that counts.
    pub(crate) fn if_live<T>(&self, number: u32, read: Attempt<T>) -> Attempt<Option<T>> {
        match read {
            Err(Restart::Damaged(..)) if number < self.generations.span().first => Ok(None),
            read => read.map(Some),
        }
    }

    /// Reads the value of the version that was sought, if it lies in overflow pages. Returns
    /// whether the version is of `key`: if its key was cut, its value says so.
    fn is_of(
        &self,
        generation: Generation<'_>,
        key: &[u8],
        is_cut: bool,
        sought: &mut Sought,
        reader: &mut ValueReader,
    ) -> Attempt<bool> {
        if sought.is_long {
            let (tree, value) = (generation.tree, &mut sought.value);
            tree.try_get(&self.pool, &sought.key, reader, value)?;
            sought.is_long = false;
        }
        let whole = || BeforeImage::decode(&sought.value, true).and_then(|(_, whole)| whole);
        Ok(!is_cut || whole() == Some(key))
    }

    /// Saves what the batch of `readers` is about to replace, if one of the readers still needs it.
    /// `number` is that of the write in its batch. The caller is inside the gate, alone in writing
    /// this key, has reserved room, and changes the leaf afterwards. Returns whether it was saved.
    ///
    /// # Errors
    /// [`Restart::Wait`] when there is no frame, although room was reserved.
    pub fn save(
        &self,
        readers: &Readers,
        (tree, key): (TreeId, &[u8]),
        number: u32,
        image: BeforeImage<'_>,
        scratch: &mut VersionScratch,
    ) -> Attempt<bool> {
        scratch.stem.set(tree, key, self.groups_max);
        let hash = self.hash_of(&scratch.stem);
        let (newest, place) = retried(|| self.newest_of((key, hash), readers, scratch))?;
        if !readers.any_from(newest) {
            return Ok(false);
        }
        let generation = self.generations.newest();
        let generation = generation.expect("the mode is on: there is a generation");
        let lsn = readers.limit();
        generation.raise(lsn);
        generation.keys.add(hash);
        let VersionScratch {
            stem,
            value,
            tree: work,
            ..
        } = scratch;
        image.encode(stem.is_cut.then_some(key), value);
        let marks = Marks {
            lsn: Lsn(0),
            multi_lsn: Lsn(0),
        };
        let guard = self.enter();
        let token = self.pool.apply_token(&guard);
        let version = stem.at(lsn, number);
        let tree = generation.tree;
        let at = (version, &place);
        let put = retried(|| tree.try_insert_at(&self.pool, &token, marks, at, value, work));
        match put {
            Ok(put) => {
                assert!(!put.replaced, "a batch replaces a key once");
                retried(|| work.try_finish(&self.pool, &token))?;
                Ok(true)
            }
            Err(restart) => {
                retried(|| work.abandon(&self.pool, &token))?;
                Err(restart)
            }
        }
    }

    /// Finds the value of `key` of `tree` at the snapshot of `lsn`, for a caller that has found a
    /// later change in its leaf. What it returns counts if the snapshot has not ended since.
    ///
    /// # Errors
    /// [`Restart::Conflict`].
    pub fn find<'s>(
        &self,
        (tree, key): (TreeId, &[u8]),
        lsn: Lsn,
        scratch: &'s mut VersionScratch,
    ) -> Attempt<Found<'s>> {
        scratch.stem.set(tree, key, self.groups_max);
        let hash = self.hash_of(&scratch.stem);
        for (number, generation) in self.generations_after(lsn) {
            if !generation.keys.may_have(hash) {
                continue;
            }
            let found = self.seek(generation, key, lsn, Direction::Forward, scratch);
            if self.if_live(number, found)?.flatten().is_some() {
                let decoded = BeforeImage::decode(&scratch.sought.value, scratch.stem.is_cut);
                let (image, _) = decoded.ok_or(Restart::Conflict)?;
                return Ok(Found::Replaced(image));
            }
        }
        Ok(Found::Unchanged)
    }
}

/// Repeats a step until nobody is in its way.
fn retried<T>(mut step: impl FnMut() -> Attempt<T>) -> Attempt<T> {
    loop {
        match step() {
            Err(Restart::Conflict) => thread::yield_now(),
            done => return done,
        }
    }
}
