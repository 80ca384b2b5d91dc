//! Who reads chunks, and which; and whether there is something to free (decision 052).
//!
//! A reader registers the LSN up to which everything is applied, takes the blob reference from its
//! leaf, and names the chunks of the blob reference in place of the LSN: from then on it keeps
//! those and nothing else. A row of the garbage table with LSN r names chunks of a blob reference
//! that the batch of r replaced, in the same apply section and before it made the row. The task
//! that frees reads the row first, then what is here. It leaves the row if somebody who looks has
//! registered before r, and the chunks that somebody has named:
//!
//! - A reader that registers behind this finds a leaf that does not name the blob reference any
//!   more.
//! - A reader that registered before it, at A >= r, looked at its leaf when r was applied.
//! - One that registered at A < r and is still looking may find the blob reference, and keeps the
//!   row.
//! - One that has its blob reference has named the chunks, under the lock under which it ceased to
//!   look.
//!
//! The same holds for rows that are made when a dropped tree is taken apart: their LSN is at least
//! that of the drop, which readers at or behind it notice.
//!
//! Bytes of a value that was handed over and has no ids yet are named by their first blocks. No
//! chunk is moved while such a reader is there, so its chunks lie there until they are freed.
//!
//! Reads of chunks take a lock twice each; they are not cached reads.

use std::collections::{BTreeMap, HashMap};

use pando_format::{Lsn, PageId};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, WaitList};
use rapidhash::fast::RandomState;

/// Readers of chunks, and the counts that tell the maintenance thread of work.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Guarded by its lock, which is held for one blob reference or one row.
    readers: Mutex<Readers>,
    /// How often something became garbage, or could be freed since a reader has gone.
    wanted: AtomicU64,
    /// `wanted` when nothing was left that could be freed.
    served: AtomicU64,
    /// `wanted` when the rows could not be looked at.
    failed: AtomicU64,
    /// Rows that were left since somebody looks who may come to read what they name.
    kept: AtomicU64,
    /// Readers that know chunks by their places: none is moved meanwhile.
    by_place: AtomicU64,
    /// The maintenance thread.
    pub(crate) work: WaitList,
}

/// A chunk as readers know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Page(PageId),
    /// Its first block.
    Block(u32),
}

#[derive(Debug, Default)]
struct Readers {
    /// How many look for a blob reference, by the LSN at which they began.
    looking: BTreeMap<Lsn, u32>,
    /// A row was left since somebody looked.
    is_look_awaited: bool,
    /// Registrations.
    reading: u64,
    /// Chunks that somebody reads.
    named: HashMap<Name, Named, RandomState>,
    /// Rows that wait for one of them.
    waiting: u64,
    /// Keys of rows that do not any more.
    released: Vec<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Named {
    readers: u32,
    /// The row that waits until this chunk is not read any more.
    row: Option<Box<[u8]>>,
}

/// What stands against freeing the chunks of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Somebody looks: the row is to be looked at again.
    Looked,
    /// The first may be freed; the others are read, and the row waits for them.
    Free(Vec<PageId>, Vec<PageId>),
}

/// While it lives, nothing is freed that a leaf has named since.
#[derive(Debug)]
pub(crate) struct Look {
    registry: Arc<Registry>,
    since: Lsn,
}

/// While it lives, the chunks that it names are not freed.
#[derive(Debug)]
pub(crate) struct Registration(Arc<Chunks>);

#[derive(Debug)]
struct Chunks {
    registry: Arc<Registry>,
    names: Box<[Name]>,
    /// It is counted in `Registry::by_place`.
    by_place: bool,
}

impl Registry {
    /// Registers a reader that begins to look when everything up to `applied` is applied.
    pub(crate) fn look(registry: &Arc<Self>, applied: Lsn) -> Look {
        *registry.readers.lock().looking.entry(applied).or_insert(0) += 1;
        Look {
            registry: registry.clone(),
            since: applied,
        }
    }

    /// Registers a reader of a value that was handed over, by the first blocks of its chunks. The
    /// caller has what keeps them until a record names them.
    pub(crate) fn read_by_place(
        registry: &Arc<Self>,
        blocks: impl Iterator<Item = u32>,
    ) -> Registration {
        // Release: pairs with the Acquire in reads_by_place.
        registry.by_place.fetch_add(1, Ordering::Release);
        let names: Box<[Name]> = blocks.map(Name::Block).collect();
        registry.readers.lock().name(&names);
        Registration(Arc::new(Chunks {
            registry: registry.clone(),
            names,
            by_place: true,
        }))
    }

    /// What of the row at `key`, of a batch of `lsn`, may be freed: it names `chunks`, each with
    /// its first block. The caller has read the row before.
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

    /// Moves the keys of rows that wait no more to `into`.
    pub(crate) fn take_released(&self, into: &mut impl Extend<Box<[u8]>>) {
        into.extend(self.readers.lock().released.drain(..));
    }

    /// Readers at the moment.
    pub(crate) fn readers(&self) -> u64 {
        let readers = self.readers.lock();
        let looking = readers.looking.values().map(|count| u64::from(*count));
        readers.reading + looking.sum::<u64>()
    }

    /// True if somebody may read chunks without a look at where they lie now. The caller has seen
    /// the id of the chunk that it is about to move: who reads that one by its place registered
    /// before it got the id.
    pub(crate) fn reads_by_place(&self) -> bool {
        // Acquire: pairs with the Release in read_by_place.
        self.by_place.load(Ordering::Acquire) > 0
    }

    /// There is something to free.
    pub(crate) fn want(&self) {
        // Release: pairs with the Acquire in wanted: the row is there.
        self.wanted.fetch_add(1, Ordering::Release);
        self.work.notify_all();
    }

    /// The count to hand to [`Registry::serve`]. Taken before the look at the rows: what comes
    /// after it counts as left.
    pub(crate) fn wanted(&self) -> u64 {
        // Acquire: pairs with the Release in want.
        self.wanted.load(Ordering::Acquire)
    }

    /// Nothing could be freed when `wanted` was taken; `kept` rows wait for readers that look.
    pub(crate) fn serve(&self, wanted: u64, kept: u64) {
        let served = self.served.load(Ordering::Relaxed);
        assert!(wanted >= served, "what was served is wanted again");
        assert!(wanted <= self.wanted(), "more is served than was wanted");
        self.kept.store(kept, Ordering::Relaxed);
        // Release: pairs with the Acquire in is_wanted.
        self.served.store(wanted, Ordering::Release);
    }

    /// The rows could not be looked at when `wanted` was taken: what they name stays.
    pub(crate) fn fail(&self, wanted: u64) {
        // Release: pairs with the Acquire in has_failed.
        self.failed.store(wanted, Ordering::Release);
    }

    /// True once the rows could not be looked at when [`Registry::wanted`] was `wanted`, or later.
    pub(crate) fn has_failed(&self, wanted: u64) -> bool {
        // Acquire: pairs with the Release in fail.
        wanted <= self.failed.load(Ordering::Acquire)
    }

    /// True if a look at the rows makes sense.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.is_served(self.wanted())
    }

    /// True once nothing is left that could be freed when [`Registry::wanted`] was `wanted`.
    pub(crate) fn is_served(&self, wanted: u64) -> bool {
        // Acquire: pairs with the Release in serve.
        wanted <= self.served.load(Ordering::Acquire)
    }

    /// True if rows are left, also such that wait for readers.
    pub(crate) fn is_left(&self) -> bool {
        let is_kept = || {
            let readers = self.readers.lock();
            readers.waiting > 0 || !readers.released.is_empty()
        };
        // Once more: what is released is taken before it is freed, and wanted until then.
        self.is_wanted() || self.kept.load(Ordering::Relaxed) > 0 || is_kept() || self.is_wanted()
    }
}

impl Readers {
    fn name(&mut self, names: &[Name]) {
        self.reading += 1;
        for name in names {
            self.named.entry(*name).or_default().readers += 1;
        }
    }

    /// The row at `key` waits until nobody reads the chunk `name`.
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

    /// A registration ends. True if a row has waited for it.
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

    /// A look ends. True if a row has waited for it.
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
    /// The look has found a blob reference of these chunks: they are kept from here on, and nothing
    /// else.
    pub(crate) fn read(self, pages: impl Iterator<Item = PageId>) -> Registration {
        let names: Box<[Name]> = pages.map(Name::Page).collect();
        self.registry.readers.lock().name(&names);
        Registration(Arc::new(Chunks {
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
    /// Another one of the same chunks.
    pub(crate) fn again(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        let is_awaited = self.registry.readers.lock().forget(&self.names);
        if is_awaited {
            self.registry.want();
        }
        if self.by_place {
            // Release: what was read by then was read before any move.
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

    #[test]
    fn only_those_that_something_waits_for_ask_for_another_look() {
        let registry = Arc::new(Registry::default());
        registry.want();
        let serve = |kept| registry.serve(registry.wanted(), kept);
        // Nothing waits.
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
        assert!(registry.is_served(wanted), "what was there before is done");
        // And for the reader that it has become.
        assert_eq!(judge(&registry, 2, &[(1, 10)]), free(&[], &[1]));
        assert_eq!(judge(&registry, 2, &[(1, 10)]), free(&[], &[1]));
        serve(0);
        assert!(!registry.is_wanted() && registry.is_left());
        drop(reader);
        assert!(registry.is_wanted());
        serve(0);
        assert!(registry.is_left(), "nobody has taken the row");
        assert_eq!(released(&registry), 1);
        assert!(!registry.is_left());
    }
}
