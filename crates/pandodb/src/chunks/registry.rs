//! Who reads chunks, and since when; and whether there is something to free.
//!
//! A reader registers the LSN up to which everything is applied, and only then takes the list from
//! its leaf. A row of the garbage table with LSN r names chunks of a list that the batch of r has
//! replaced, in the same stay in the gate and before it made the row. The task that frees reads the
//! row first, then the registrations, and frees if none is older than r:
//!
//! - A reader that registers behind its look finds a leaf that does not name the list any more.
//! - A reader that registered before it, at A >= r, looked at its leaf when r was applied.
//! - One that registered at A < r may have the list, and keeps the row.
//!
//! The same holds for rows that are made when a dropped tree is taken apart: their LSN is at least
//! that of the drop, which readers at or behind it notice. Reads of chunks take a lock twice each;
//! they are not cached reads.

use std::collections::BTreeMap;

use pando_format::Lsn;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, WaitList};

/// Readers of chunks, and the counts that tell the maintenance thread of work.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// How many readers have registered each LSN.
    readers: Mutex<BTreeMap<Lsn, u32>>,
    /// How often something became garbage, or could be freed since a reader has gone.
    wanted: AtomicU64,
    /// `wanted` when nothing was left that could be freed.
    served: AtomicU64,
    /// Rows that were left since somebody reads what they name.
    kept: AtomicU64,
    /// Readers that know chunks by their places: none is moved meanwhile.
    by_place: AtomicU64,
    /// The maintenance thread.
    pub(crate) work: WaitList,
}

/// While it lives, no chunk is freed that a leaf has named since.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    since: Lsn,
    /// It is counted in `Registry::by_place`.
    by_place: bool,
}

impl Registry {
    /// Registers a reader that begins when everything up to `applied` is applied.
    pub(crate) fn register(registry: &Arc<Self>, applied: Lsn) -> Registration {
        *registry.readers.lock().entry(applied).or_insert(0) += 1;
        Registration {
            registry: registry.clone(),
            since: applied,
            by_place: false,
        }
    }

    /// The oldest reader, if chunks that a batch of `lsn` has replaced wait for it; they may be
    /// freed otherwise. The caller has read their row before.
    pub(crate) fn waits_for(&self, lsn: Lsn) -> Option<Lsn> {
        self.oldest().filter(|since| lsn > *since)
    }

    /// LSN at which the oldest reader registered, if there is one.
    pub(crate) fn oldest(&self) -> Option<Lsn> {
        self.readers
            .lock()
            .first_key_value()
            .map(|(since, _)| *since)
    }

    /// Readers at the moment.
    pub(crate) fn readers(&self) -> u64 {
        self.readers
            .lock()
            .values()
            .map(|count| u64::from(*count))
            .sum()
    }

    /// True if somebody may read chunks without a look at where they lie now. The caller has seen
    /// the id of the chunk that it is about to move: who reads that one by its place registered
    /// before it got the id.
    pub(crate) fn reads_by_place(&self) -> bool {
        // Acquire: pairs with the Release in by_place.
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

    /// Nothing could be freed when `wanted` was taken; `kept` rows wait for readers.
    pub(crate) fn serve(&self, wanted: u64, kept: u64) {
        self.kept.store(kept, Ordering::Relaxed);
        // Release: pairs with the Acquire in is_wanted.
        self.served.store(wanted, Ordering::Release);
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
        self.is_wanted() || self.kept.load(Ordering::Relaxed) > 0
    }
}

impl Registration {
    /// Another one since the same moment.
    pub(crate) fn again(&self) -> Self {
        let other = Registry::register(&self.registry, self.since);
        if self.by_place {
            other.by_place()
        } else {
            other
        }
    }

    /// Of a reader of chunks that have no id yet, and are not looked up by it later.
    pub(crate) fn by_place(mut self) -> Self {
        if !self.by_place {
            // Release: pairs with the Acquire in reads_by_place.
            self.registry.by_place.fetch_add(1, Ordering::Release);
            self.by_place = true;
        }
        self
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.by_place {
            // Release: what was read by then was read before any move.
            let before = self.registry.by_place.fetch_sub(1, Ordering::Release);
            assert!(
                before > 0,
                "a reader by place is counted as long as it lives"
            );
        }
        {
            let mut readers = self.registry.readers.lock();
            let count = readers
                .get_mut(&self.since)
                .expect("a registration is counted as long as it lives");
            *count -= 1;
            if *count == 0 {
                readers.remove(&self.since);
            }
        }
        // Without a look at what is kept: it may be counted only after this.
        self.registry.want();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_since_the_oldest_reader_stays() {
        let registry = Arc::new(Registry::default());
        let waits_for = |lsn| registry.waits_for(Lsn(lsn)).map_or(0, |since| since.0);
        assert_eq!(waits_for(u64::MAX), 0);
        let old = Registry::register(&registry, Lsn(100));
        let same = Registry::register(&registry, Lsn(100));
        let new = Registry::register(&registry, Lsn(200));
        for (lsn, since) in [(50, 0), (100, 0), (101, 100), (250, 100)] {
            assert_eq!(waits_for(lsn), since, "{lsn}");
        }
        drop(old);
        assert_eq!(waits_for(150), 100);
        drop(same);
        assert_eq!((waits_for(150), waits_for(201)), (0, 200));
        assert_eq!(registry.readers(), 1);
        drop(new);
        assert_eq!(registry.readers(), 0);
        assert_eq!(waits_for(201), 0);
    }

    #[test]
    fn a_reader_that_goes_asks_for_another_look() {
        let registry = Arc::new(Registry::default());
        registry.want();
        let reader = Registry::register(&registry, Lsn(1));
        let wanted = registry.wanted();
        registry.serve(wanted, 1);
        assert!(!registry.is_wanted() && registry.is_left());
        drop(reader);
        assert!(registry.is_wanted());
        assert!(registry.is_served(wanted), "what was there before is done");
        assert!(!registry.is_served(registry.wanted()));
        let wanted = registry.wanted();
        registry.serve(wanted, 0);
        assert!(!registry.is_left());
    }
}
