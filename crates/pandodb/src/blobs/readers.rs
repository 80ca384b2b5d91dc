//! The registry of who reads which chunks, and of whether there is something to free
//! (decision 052).
//!
//! A reader registers the LSN up to which everything is applied, takes the blob reference from its
//! leaf, and then names the chunks of the blob reference in place of the LSN: from then on it keeps
//! those chunks and nothing else. A row of the garbage table with LSN r names chunks of a blob
//! reference that the batch at r replaced; the batch replaced it before it made the row, in the
//! same apply section. The task that frees chunks reads the row first, and the registry afterwards.
//! It leaves the row if a reader that is still looking has registered an LSN below r, and it leaves
//! the chunks that a reader has named. This is safe, whatever a reader does:
//!
//! - A reader that registers after the task has read the registry finds a leaf that no longer names
//!   the blob reference.
//! - A reader that registered before that, at A >= r, looks at its leaf after r was applied, and
//!   does not find the blob reference either.
//! - A reader that registered at A < r and is still looking may find the blob reference. It keeps
//!   the row.
//! - A reader that has its blob reference has named the chunks, under the same lock under which it
//!   stopped looking.
//!
//! The same holds for rows that are made when a dropped tree is freed: their LSN is at least that
//! of the drop, and readers that register at or after the drop notice it.
//!
//! Chunks of a value that was handed over and has no ids yet are named by their first blocks. No
//! chunk is moved while there is such a reader, so its chunks keep their places until they are
//! freed.
//!
//! Each read of a value in chunks takes the lock twice; such reads are not cached reads.

use std::collections::{BTreeMap, HashMap};

use pando_format::{Lsn, PageId};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, WaitList};
use rapidhash::fast::RandomState;

/// The readers of chunks, and the counters that tell the maintenance thread whether there is work.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The lock is held for one blob reference or one row at a time.
    readers: Mutex<Readers>,
    /// Counts each time that something became garbage, or could be freed because a reader has gone.
    wanted: AtomicU64,
    /// Value of `wanted` as of which nothing was left that could be freed.
    served: AtomicU64,
    /// Value of `wanted` when something last became garbage, or was found that can be freed.
    due: AtomicU64,
    /// Value of `wanted` as of which the rows could not be read.
    failed: AtomicU64,
    /// Number of rows that were left because somebody looks who may come to read what they name.
    kept: AtomicU64,
    /// The LSN below which no snapshot read when they were left.
    kept_for: AtomicU64,
    /// Number of readers that know chunks by their places: no chunk is moved while there are any.
    by_place: AtomicU64,
    /// Wakes the maintenance thread.
    pub(crate) work: WaitList,
}

/// How readers name a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Page(PageId),
    /// By its first block.
    Block(u32),
}

/// Guarded by `Registry::readers`.
#[derive(Debug, Default)]
struct Readers {
    /// Number of readers that look for a blob reference, by the LSN at which they began.
    looking: BTreeMap<Lsn, u32>,
    /// True if a row was left because somebody looked.
    is_look_awaited: bool,
    /// Number of registrations.
    reading: u64,
    /// The chunks that somebody reads.
    named: HashMap<Name, ChunkReaders, RandomState>,
    /// Number of rows that wait for one of them.
    waiting: u64,
    /// Keys of rows that no longer wait.
    released: Vec<Box<[u8]>>,
}

/// The readers of one chunk.
#[derive(Debug, Default)]
struct ChunkReaders {
    readers: u32,
    /// Key of the row that waits until nobody reads this chunk.
    row: Option<Box<[u8]>>,
}

/// What of a row may be freed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing, since somebody looks: the row has to be judged again.
    Looked,
    /// The first chunks may be freed; the others are read, and the row waits for them.
    Free(Vec<PageId>, Vec<PageId>),
}

/// A reader that looks for a blob reference: while it lives, nothing is freed that a leaf has named
/// since it registered.
#[derive(Debug)]
pub(crate) struct Look {
    registry: Arc<Registry>,
    since: Lsn,
}

/// A reader that has named its chunks: while it lives, they are not freed.
#[derive(Debug)]
pub(crate) struct Registration(Arc<RegisteredChunks>);

/// What the clones of a registration share; its drop ends the registration.
#[derive(Debug)]
struct RegisteredChunks {
    registry: Arc<Registry>,
    names: Box<[Name]>,
    /// True if it is counted in `Registry::by_place`.
    by_place: bool,
}

impl Registry {
    /// Registers a reader that begins to look, at a moment when everything up to `applied` is
    /// applied.
    pub(crate) fn look(registry: &Arc<Self>, applied: Lsn) -> Look {
        *registry.readers.lock().looking.entry(applied).or_insert(0) += 1;
        Look {
            registry: registry.clone(),
            since: applied,
        }
    }

    /// Registers a reader of a value that was handed over, by the first blocks of its chunks. The
    /// caller has what keeps the chunks until a record names them.
    pub(crate) fn read_by_place(
        registry: &Arc<Self>,
        blocks: impl Iterator<Item = u32>,
    ) -> Registration {
        // Release: pairs with the Acquire in reads_by_place.
        registry.by_place.fetch_add(1, Ordering::Release);
        let names: Box<[Name]> = blocks.map(Name::Block).collect();
        registry.readers.lock().name(&names);
        Registration(Arc::new(RegisteredChunks {
            registry: registry.clone(),
            names,
            by_place: true,
        }))
    }

    /// Returns what may be freed of the row at `key`, which a batch at `lsn` has made: it names
    /// `chunks`, each with its first block. The caller has read the row before this call.
    pub(crate) fn judge(
        &self,
        key: &[u8],
        lsn: Lsn,
        chunks: impl Iterator<Item = (PageId, Option<u32>)>,
    ) -> Verdict {
        let mut readers = self.readers.lock();
        let oldest = readers.looking.first_key_value();
        if oldest.is_some_and(|(since, _)| lsn > *since) {
            readers.is_look_awaited = true;
            return Verdict::Looked;
        }
        let (mut free, mut read) = (Vec::new(), Vec::new());
        for (page, block) in chunks {
            let names = [Some(Name::Page(page)), block.map(Name::Block)];
            let mut names = names.into_iter().flatten();
            match names.find(|name| readers.named.contains_key(name)) {
                None => free.push(page),
                Some(name) => {
                    if read.is_empty() {
                        readers.await_end(name, key);
                    }
                    read.push(page);
                }
            }
        }
        Verdict::Free(free, read)
    }

    /// Moves the keys of rows that no longer wait to `into`.
    pub(crate) fn take_released(&self, into: &mut impl Extend<Box<[u8]>>) {
        into.extend(self.readers.lock().released.drain(..));
    }

    /// Number of readers now.
    pub(crate) fn readers(&self) -> u64 {
        let readers = self.readers.lock();
        let looking = readers.looking.values().map(|count| u64::from(*count));
        readers.reading + looking.sum::<u64>()
    }

    /// Returns true if somebody may read chunks by their places, without checking where they are
    /// now. The caller has seen the id of the chunk that it is about to move: whoever reads that
    /// chunk by its place registered before the chunk got the id.
    pub(crate) fn reads_by_place(&self) -> bool {
        // Acquire: pairs with the Release in read_by_place, and with the one at the end of such a
        // reader: if that reader is no longer counted, it has read what it wanted. A registration
        // is not missed either, since the caller has seen the id, which the chunk got after it.
        self.by_place.load(Ordering::Acquire) > 0
    }

    /// Notes that there may be something to free, since somebody has gone who may have read it, and
    /// wakes the maintenance thread.
    pub(crate) fn want(&self) {
        // Release: pairs with the Acquire in wanted, so that whoever sees the count sees the row.
        self.wanted.fetch_add(1, Ordering::Release);
        self.work.notify_all();
    }

    /// Notes that something has become garbage, and wakes the maintenance thread.
    pub(crate) fn note_garbage(&self) {
        // Release: as in want.
        let before = self.wanted.fetch_add(1, Ordering::Release);
        self.note_due(before + 1);
        self.work.notify_all();
    }

    /// Notes that as of `wanted`, a value of [`Registry::wanted`], there is something that can be
    /// freed.
    pub(crate) fn note_due(&self, wanted: u64) {
        // Release: pairs with the Acquire in is_freeing.
        self.due.fetch_max(wanted, Ordering::Release);
    }

    /// Notes that what was found could not be freed now, for lack of room.
    pub(crate) fn stall(&self) {
        // Relaxed: what becomes garbage at this moment may be missed until it is looked for.
        self.due.store(0, Ordering::Relaxed);
        self.note_kept_for(Lsn(u64::MAX));
    }

    /// Returns true while something is being freed, or has become garbage and was not looked at:
    /// in contrast to [`Registry::is_wanted`] not if a reader has gone, and not if the rows cannot
    /// be read.
    pub(crate) fn is_freeing(&self) -> bool {
        // Acquire: pairs with the Release in note_due.
        let due = self.due.load(Ordering::Acquire);
        !self.is_served(due) && !self.has_failed(due)
    }

    /// Returns the count to hand to [`Registry::serve`]. It is taken before the rows are read:
    /// whatever is wanted after that counts as left.
    pub(crate) fn wanted(&self) -> u64 {
        // Acquire: pairs with the Release in want.
        self.wanted.load(Ordering::Acquire)
    }

    /// Notes that nothing was left to free as of `wanted`, while `kept` rows wait for readers that
    /// look.
    pub(crate) fn serve(&self, wanted: u64, kept: u64) {
        let served = self.served.load(Ordering::Relaxed);
        assert!(wanted >= served, "what was served is wanted again");
        assert!(wanted <= self.wanted(), "more is served than was wanted");
        self.kept.store(kept, Ordering::Relaxed);
        // Release: pairs with the Acquire in is_wanted.
        self.served.store(wanted, Ordering::Release);
    }

    /// Notes that the rows could not be read as of `wanted`: what they name stays.
    pub(crate) fn fail(&self, wanted: u64) {
        self.note_kept_for(Lsn(u64::MAX));
        // Release: pairs with the Acquire in has_failed.
        self.failed.store(wanted, Ordering::Release);
    }

    /// Returns true once the rows could not be read as of `wanted`, a value of
    /// [`Registry::wanted`], or later.
    pub(crate) fn has_failed(&self, wanted: u64) -> bool {
        // Acquire: pairs with the Release in fail.
        wanted <= self.failed.load(Ordering::Acquire)
    }

    /// Returns true if there may be something to free.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_served(self.wanted())
    }

    /// Returns true once nothing was left to free as of `wanted`, a value of [`Registry::wanted`].
    pub(crate) fn is_served(&self, wanted: u64) -> bool {
        // Acquire: pairs with the Release in serve.
        wanted <= self.served.load(Ordering::Acquire)
    }

    /// Returns true if rows wait for readers that look, or for snapshots.
    pub(crate) fn keeps_rows(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > 0
    }

    /// Notes that rows are left, if any are, for what reads from `horizon` on.
    pub(crate) fn note_kept_for(&self, horizon: Lsn) {
        // Relaxed: who sees an older one has the rows looked at once more.
        self.kept_for.store(horizon.0, Ordering::Relaxed);
    }

    /// Returns true if rows wait of which some may be freed: no snapshot reads below `horizon`, and
    /// one did when they were left.
    pub(crate) fn keeps_too_much(&self, horizon: Lsn) -> bool {
        self.keeps_rows() && horizon.0 > self.kept_for.load(Ordering::Relaxed)
    }

    /// Returns true if any rows are left, including those that wait for readers.
    pub(crate) fn is_left(&self) -> bool {
        let is_kept = || {
            let readers = self.readers.lock();
            readers.waiting > 0 || !readers.released.is_empty()
        };
        // Checked twice: the key of a released row is taken before the row's chunks are freed, and
        // the work counts as wanted until they are.
        self.is_wanted() || self.kept.load(Ordering::Relaxed) > 0 || is_kept() || self.is_wanted()
    }
}

impl Readers {
    /// Registers a reader of the chunks `names`.
    fn name(&mut self, names: &[Name]) {
        self.reading += 1;
        for name in names {
            self.named.entry(*name).or_default().readers += 1;
        }
    }

    /// Makes the row at `key` wait until nobody reads the chunk `name`.
    fn await_end(&mut self, name: Name, key: &[u8]) {
        let named = self.named.get_mut(&name).expect("somebody reads it");
        if named.row.is_none() {
            self.waiting += 1;
        }
        named.row = Some(Box::from(key));
        assert!(
            self.waiting <= self.named.len() as u64,
            "a row waits for a chunk"
        );
    }

    /// Ends a registration. Returns true if a row has waited for it.
    fn forget(&mut self, names: &[Name]) -> bool {
        assert!(self.reading > 0, "a registration ends once");
        self.reading -= 1;
        let before = self.released.len();
        for name in names {
            let named = self.named.get_mut(name).expect("it is named until now");
            assert!(named.readers > 0, "a chunk is read until now");
            named.readers -= 1;
            if named.readers == 0 {
                let row = self.named.remove(name).and_then(|named| named.row);
                if let Some(row) = row {
                    assert!(self.waiting > 0, "a row waits for one chunk");
                    self.waiting -= 1;
                    self.released.push(row);
                }
            }
        }
        self.released.len() > before
    }

    /// Ends a look. Returns true if a row has waited for it.
    fn end_look(&mut self, since: Lsn) -> bool {
        let count = self.looking.get_mut(&since);
        let count = count.expect("a look is counted as long as it lives");
        assert!(*count > 0, "a look ends once");
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.looking.remove(&since);
        std::mem::take(&mut self.is_look_awaited)
    }
}

impl Look {
    /// Ends the look with a blob reference of these chunks: from here on they are kept, and nothing
    /// else.
    pub(crate) fn read(self, pages: impl Iterator<Item = PageId>) -> Registration {
        let names: Box<[Name]> = pages.map(Name::Page).collect();
        self.registry.readers.lock().name(&names);
        Registration(Arc::new(RegisteredChunks {
            registry: self.registry.clone(),
            names,
            by_place: false,
        }))
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let is_awaited = self.registry.readers.lock().end_look(self.since);
        if is_awaited {
            self.registry.want();
        }
    }
}

impl Registration {
    /// Makes another registration of the same chunks.
    pub(crate) fn again(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for RegisteredChunks {
    fn drop(&mut self) {
        let is_awaited = self.registry.readers.lock().forget(&self.names);
        if is_awaited {
            self.registry.want();
        }
        if self.by_place {
            // Release: pairs with the Acquire in reads_by_place: what this reader has read, it has
            // read before any move that no longer counts it.
            let before = self.registry.by_place.fetch_sub(1, Ordering::Release);
            assert!(
                before > 0,
                "a reader by place is counted as long as it lives"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"row";

    fn judge(registry: &Registry, lsn: u64, chunks: &[(u32, u32)]) -> Verdict {
        let chunks = chunks
            .iter()
            .map(|(page, block)| (PageId(*page), Some(*block)));
        registry.judge(KEY, Lsn(lsn), chunks)
    }

    fn free(free: &[u32], read: &[u32]) -> Verdict {
        let ids = |pages: &[u32]| pages.iter().copied().map(PageId).collect();
        Verdict::Free(ids(free), ids(read))
    }

    fn released(registry: &Registry) -> usize {
        let mut keys = Vec::new();
        registry.take_released(&mut keys);
        keys.len()
    }

    /// Rows are looked at again when the horizon has moved, unless that did not help last time.
    #[test]
    fn what_is_kept_for_a_snapshot_that_has_ended_is_too_much() {
        let registry = Registry::default();
        let keeps = |horizon| registry.keeps_too_much(Lsn(horizon));
        let look = |kept, horizon| {
            registry.note_kept_for(Lsn(horizon));
            registry.serve(registry.wanted(), kept);
        };
        assert!(!keeps(1));
        look(1, 5);
        assert!(!keeps(5) && keeps(6));
        registry.stall();
        assert!(!keeps(6));
        look(1, 6);
        assert!(!keeps(6) && keeps(7));
        registry.fail(registry.wanted());
        assert!(!keeps(7));
        look(0, 6);
        assert!(!keeps(7));
    }

    /// Readers that go are a reason to look, and not yet something to free.
    #[test]
    fn what_becomes_garbage_or_is_found_is_freed_until_nothing_is_left() {
        let registry = Registry::default();
        let look = |found: bool, kept: u64| {
            let wanted = registry.wanted();
            if found {
                registry.note_due(wanted);
                assert!(registry.is_freeing());
            }
            registry.serve(wanted, kept);
        };
        assert!(!registry.is_freeing());
        registry.note_garbage();
        assert!(registry.is_freeing() && registry.is_wanted());
        look(false, 1);
        assert!(!registry.is_freeing());
        registry.want();
        assert!(!registry.is_freeing() && registry.is_wanted());
        look(true, 0);
        assert!(!registry.is_freeing());
        registry.note_garbage();
        registry.stall();
        assert!(!registry.is_freeing() && registry.is_wanted());
        registry.note_garbage();
        registry.fail(registry.wanted());
        assert!(!registry.is_freeing(), "its rows cannot be read");
    }

    /// Chunks that were replaced after the oldest look began stay, since that look may still find
    /// their blob reference.
    #[test]
    fn what_was_replaced_since_the_oldest_look_stays() {
        let registry = Arc::new(Registry::default());
        let chunks = [(1, 10)];
        let stays = |lsn| judge(&registry, lsn, &chunks) == Verdict::Looked;
        assert!(!stays(u64::MAX));
        let old = Registry::look(&registry, Lsn(100));
        let same = Registry::look(&registry, Lsn(100));
        let new = Registry::look(&registry, Lsn(200));
        for (lsn, expected) in [(50, false), (100, false), (101, true), (250, true)] {
            assert_eq!(stays(lsn), expected, "{lsn}");
        }
        drop(old);
        assert!(stays(150));
        drop(same);
        assert!(!stays(150) && stays(201));
        assert_eq!(registry.readers(), 1);
        drop(new);
        assert_eq!(registry.readers(), 0);
        assert!(!stays(201));
    }

    /// A reader that has its blob reference keeps only the chunks in it.
    #[test]
    fn who_has_a_list_keeps_its_chunks_and_nothing_else() {
        let registry = Arc::new(Registry::default());
        let look = Registry::look(&registry, Lsn(100));
        let reader = look.read([PageId(1), PageId(2)].into_iter());
        assert_eq!(judge(&registry, 101, &[(3, 30)]), free(&[3], &[]));
        let chunks = [(1, 10), (3, 30), (2, 20)];
        assert_eq!(judge(&registry, 101, &chunks), free(&[3], &[1, 2]));
        let other = reader.again();
        drop(reader);
        assert_eq!(judge(&registry, 101, &chunks), free(&[3], &[1, 2]));
        assert!(registry.is_left() && released(&registry) == 0);
        drop(other);
        assert!(registry.is_wanted());
        assert_eq!((released(&registry), registry.readers()), (1, 0));
        assert_eq!(judge(&registry, 101, &chunks), free(&[1, 3, 2], &[]));
    }

    /// A reader by place keeps the chunks at its blocks, whatever their ids are.
    #[test]
    fn who_reads_by_place_keeps_what_lies_there() {
        let registry = Arc::new(Registry::default());
        let reader = Registry::read_by_place(&registry, [10, 20].into_iter());
        assert!(registry.reads_by_place());
        let chunks = [(7, 10), (8, 11), (9, 20)];
        assert_eq!(judge(&registry, 5, &chunks), free(&[8], &[7, 9]));
        drop(reader);
        assert!(!registry.reads_by_place());
        assert_eq!(judge(&registry, 5, &chunks), free(&[7, 8, 9], &[]));
    }

    /// The end of a reader asks for another search only if a row waits for this reader.
    #[test]
    fn only_those_that_something_waits_for_ask_for_another_look() {
        let registry = Arc::new(Registry::default());
        registry.want();
        let serve = |kept| registry.serve(registry.wanted(), kept);
        // No row waits.
        let look = Registry::look(&registry, Lsn(1));
        serve(0);
        drop(look.read([PageId(1)].into_iter()));
        assert!(!registry.is_wanted());
        // A row waits for a look.
        let look = Registry::look(&registry, Lsn(1));
        assert_eq!(judge(&registry, 2, &[(1, 10)]), Verdict::Looked);
        serve(1);
        assert!(!registry.is_wanted() && registry.is_left());
        let wanted = registry.wanted();
        let reader = look.read([PageId(1)].into_iter());
        assert!(registry.is_wanted());
        assert!(registry.is_served(wanted), "earlier requests are served");
        // The row also waits for the reader that the look has become.
        assert_eq!(judge(&registry, 2, &[(1, 10)]), free(&[], &[1]));
        assert_eq!(judge(&registry, 2, &[(1, 10)]), free(&[], &[1]));
        serve(0);
        assert!(!registry.is_wanted() && registry.is_left());
        drop(reader);
        assert!(registry.is_wanted());
        serve(0);
        assert!(registry.is_left(), "the released row was not taken yet");
        assert_eq!(released(&registry), 1);
        assert!(!registry.is_left());
    }
}
