//! What running operations were promised: blocks for the pages that they make dirty, and page ids
//! for the chunks that they name. Given back when the pages are dirty and count themselves, or the
//! ids are taken (decision 015).

use std::cell::Cell;

use pando_sync::atomic::{AtomicU64, Ordering};

/// The sums of what is promised.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    blocks: AtomicU64,
    /// Page ids for chunks, beside those of promised blocks.
    ids: AtomicU64,
}

/// Blocks promised to a commit; given back on drop, when its pages are dirty and count themselves.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    promises: &'a Promises,
    blocks: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let before = self
            .promises
            .blocks
            .fetch_sub(self.blocks, Ordering::Relaxed);
        assert!(before >= self.blocks, "a promise was given back twice");
    }
}

/// Page ids promised to the chunks of a commit; those that were not taken are given back on drop.
#[derive(Debug)]
pub(crate) struct IdPromise<'a> {
    promises: &'a Promises,
    ids: Cell<u64>,
}

impl IdPromise<'_> {
    /// A chunk has taken one of the ids, which is not among those that are available any more.
    pub(crate) fn taken(&self) {
        self.give_back(1);
    }

    /// Ids that nobody has taken.
    pub(crate) fn left(&self) -> u64 {
        self.ids.get()
    }

    fn give_back(&self, ids: u64) {
        let left = self.ids.get().checked_sub(ids);
        self.ids
            .set(left.expect("an id is taken that was promised"));
        // SeqCst: what was taken before is seen by who looks at the promises first.
        let before = self.promises.ids.fetch_sub(ids, Ordering::SeqCst);
        assert!(before >= ids, "a promise was given back twice");
    }
}

impl Drop for IdPromise<'_> {
    fn drop(&mut self) {
        if self.ids.get() > 0 {
            self.give_back(self.ids.get());
        }
    }
}

impl Promises {
    /// Blocks that are promised.
    pub(crate) fn blocks(&self) -> u64 {
        // SeqCst: who cuts the file off withholds first, and looks at what is promised after.
        self.blocks.load(Ordering::SeqCst)
    }

    /// Page ids for chunks that are promised.
    pub(crate) fn ids(&self) -> u64 {
        self.ids.load(Ordering::SeqCst)
    }

    /// Promise first, look after: two callers may both be refused, never both be let through.
    pub(crate) fn promise(&self, blocks: u64) -> Promise<'_> {
        let before = self.blocks.fetch_add(blocks, Ordering::SeqCst);
        assert!(
            before.checked_add(blocks).is_some(),
            "more than there can be"
        );
        Promise {
            promises: self,
            blocks,
        }
    }

    /// As [`Promises::promise`], of ids.
    pub(crate) fn promise_ids(&self, ids: u64) -> IdPromise<'_> {
        if ids > 0 {
            // SeqCst: promise first, look after.
            self.ids.fetch_add(ids, Ordering::SeqCst);
        }
        IdPromise {
            promises: self,
            ids: Cell::new(ids),
        }
    }
}
