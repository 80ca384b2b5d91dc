//! State that a change keeps from one attempt to the next: buffers, and pages that must not leak.

use pando_format::PageId;
use pando_pool::{ApplyToken, Attempt, FreedBy, Pool, Restart};

use crate::finger::Finger;
use crate::node::list::RecordList;
use crate::overflow::StagedPages;
use crate::value::ValueReader;

/// Working memory of changes to the trees of one pool. Each thread that makes changes has one, and
/// reuses it for any number of changes.
///
/// A caller that gives up a change after an `Err` calls [`Scratch::abandon`]. Every apply section
/// ends with [`Scratch::try_finish`], because pages that were written, or are still to be freed,
/// belong to that section.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) work: Work,
    /// Overflow pages of the value that an insertion is about to put; kept when the attempt fails.
    pub(crate) staged: StagedPages,
    pub(crate) old: OldValue,
    /// Pages that nothing names any longer, and that the current apply section still has to free.
    pub(crate) pending_frees: Vec<PageId>,
    /// Who frees them.
    freed_by: FreedBy,
    /// Overflow pages of old values are kept, and not freed.
    keeps_old: bool,
    /// Overflow pages of old values that nothing names any longer, and that were kept.
    kept: Vec<PageId>,
    /// Number of values, or parts of trees, that were leaked because the list of their pages was
    /// unreadable.
    pub(crate) leaks: u64,
}

/// The pages and chunks of the value that an attempt would replace or remove.
#[derive(Debug, Default)]
pub(crate) struct OldValue {
    /// Its overflow pages.
    pub(crate) to_free: Vec<PageId>,
    /// Its blob reference, which lists its chunks; empty when it has none.
    pub(crate) list: Vec<u8>,
    /// Reads the parts of the value that lie outside its leaf.
    pub(crate) reader: ValueReader,
    /// Pages of it that are unreadable, and that the change does without.
    pub(crate) lost: Vec<PageId>,
    /// The unreadable page at which the last attempt failed.
    blamed: Option<PageId>,
    /// The value has pages or chunks that are not known.
    is_leaking: bool,
}

impl OldValue {
    /// Forgets what an attempt has found, but not `lost`: the next attempt needs it.
    pub(crate) fn clear(&mut self) {
        self.to_free.clear();
        self.list.clear();
        self.blamed = None;
        self.is_leaking = false;
    }

    /// Passes on the result of reading a part of the value: `Ok(None)` if the change does without
    /// it.
    pub(crate) fn is_known<T>(&mut self, read: Attempt<T>) -> Attempt<Option<T>> {
        match read {
            Ok(part) => Ok(Some(part)),
            Err(Restart::Fault(page) | Restart::Damaged(page, _)) if self.lost.contains(&page) => {
                self.is_leaking = true;
                Ok(None)
            }
            Err(restart) => {
                if let Restart::Fault(page) | Restart::Damaged(page, _) = restart {
                    self.blamed = Some(page);
                }
                Err(restart)
            }
        }
    }
}

/// Buffers of splits and merges.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Entries of the node that changes.
    pub(crate) list: RecordList,
    /// A new entry that shares no prefix with the others.
    pub(crate) alone: RecordList,
    /// Entries of the right one of two nodes that are merged.
    pub(crate) right: RecordList,
    /// Entries of the parent of the node that changes.
    pub(crate) parent_list: RecordList,
    /// The key that will separate the halves of a split.
    pub(crate) separator: Vec<u8>,
    /// The separator for which its parent had no room.
    pub(crate) pending: Vec<u8>,
    /// A neighbour's key, between which and a new key a separator is chosen.
    pub(crate) key: Vec<u8>,
    pub(crate) nearby: Nearby,
    /// Leaves are split only when they are full.
    pub(crate) is_frugal: bool,
    /// The leaf that another thread changed before the current change could.
    pub(crate) lost: Option<PageId>,
}

/// The leaf of the last insertion, and whether the next one is likely to go there, too. So random
/// insertions do not pay for checking the finger.
#[derive(Debug, Default)]
pub(crate) struct Nearby {
    /// Names no leaf after a split.
    pub(crate) finger: Finger,
    /// The last descent led to the leaf of the finger, or to a leaf that was split off from it.
    pub(crate) is_likely: bool,
}

impl Nearby {
    /// Notes that a descent has led to `leaf`.
    pub(crate) fn came_to(&mut self, leaf: PageId) {
        let known = self.finger.page();
        if known != PageId::NONE {
            self.is_likely = leaf == known;
        }
    }
}

impl Scratch {
    /// Makes empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes empty buffers for work of which the log says nothing.
    pub fn of_background() -> Self {
        Self {
            freed_by: FreedBy::BackgroundWork,
            ..Self::default()
        }
    }

    /// Makes empty buffers for changes that split leaves only when these are full, and not because
    /// writers contend for them.
    pub fn frugal() -> Self {
        let mut scratch = Self::default();
        scratch.work.is_frugal = true;
        scratch
    }

    /// Returns whether an apply section may end: no page is staged or still to be freed.
    pub fn is_finished(&self) -> bool {
        self.pending_frees.is_empty() && self.kept.is_empty() && self.staged.header().is_empty()
    }

    /// Forgets the leaf of the last insertion, so that the next one may go to another pool.
    pub fn forget_leaf(&mut self) {
        self.work.nearby = Nearby::default();
        self.work.lost = None;
    }

    /// Makes the next insertion try the leaf of `finger`. Keeps the finger of the last insertion if
    /// that is as new, or if `finger` is out of date or none.
    pub fn expect(&mut self, pool: &Pool, finger: &Finger) {
        let nearby = &mut self.work.nearby;
        if finger.page() == PageId::NONE {
            return;
        }
        let is_known = nearby.finger.is_as_new_as(finger);
        if !is_known && finger.is_current(pool) {
            nearby.finger = *finger;
        }
        nearby.is_likely |= is_known || nearby.finger == *finger;
    }

    /// Takes the blob reference of the value that the last change has replaced or removed; empty
    /// when the value had no chunks. Nothing names these chunks any longer, and the caller frees
    /// them.
    pub fn take_blob_ref(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.old.list)
    }

    /// Gives back what [`Scratch::take_blob_ref`] has returned, to be taken once more.
    pub fn put_back_blob_ref(&mut self, blob: Vec<u8>) {
        self.old.list = blob;
    }

    /// Returns whether the change can do without the unreadable `page`, because it is a part of the
    /// value that is replaced or removed. Pages that only `page` names are leaked then.
    #[must_use]
    pub fn do_without(&mut self, page: PageId) -> bool {
        let is_new = self.old.blamed == Some(page) && !self.old.lost.contains(&page);
        if is_new {
            self.old.lost.push(page);
        }
        is_new
    }

    /// Chooses whether changes free the overflow pages of the values that they replace or remove,
    /// or keep them for [`Scratch::take_kept`].
    pub fn keep_old_pages(&mut self, keep: bool) {
        self.keeps_old = keep;
    }

    /// Returns whether changes have kept overflow pages.
    #[inline]
    pub fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Takes the overflow pages that changes have kept. Nothing names them any longer, and the
    /// caller frees them.
    pub fn take_kept(&mut self) -> Vec<PageId> {
        std::mem::take(&mut self.kept)
    }

    /// Returns the number of leaks since the last call.
    pub fn take_leaks(&mut self) -> u64 {
        std::mem::take(&mut self.leaks)
    }

    /// Ends the change of a value, and counts its leak.
    pub(crate) fn end_old(&mut self) {
        self.leaks += u64::from(self.old.is_leaking);
        self.old.is_leaking = false;
        self.old.lost.clear();
    }

    /// Frees the old value's pages, which nothing names any longer, or keeps them.
    pub(crate) fn free_old(&mut self, pool: &Pool, token: &ApplyToken<'_>) {
        self.end_old();
        if self.keeps_old {
            self.kept.append(&mut self.old.to_free);
        }
        self.pending_frees.append(&mut self.old.to_free);
        // The caller's try_finish frees what has to wait.
        let _later = self.try_finish(pool, token);
    }

    /// Frees the pages that earlier changes of this apply section could not free.
    ///
    /// # Errors
    /// As [`Pool::free_by`]. The remaining pages are kept for the next call.
    pub fn try_finish(&mut self, pool: &Pool, token: &ApplyToken<'_>) -> Attempt<()> {
        while let Some(page) = self.pending_frees.last() {
            match pool.free_by(token, *page, self.freed_by) {
                // The id belongs to no page: the page that named it was damaged.
                Err(Restart::Damaged(..)) => self.leaks += 1,
                freed => freed?,
            }
            self.pending_frees.pop();
        }
        Ok(())
    }

    /// Frees the overflow pages of an insertion that is not tried again.
    ///
    /// # Errors
    /// As [`Scratch::try_finish`], which the caller then calls again.
    pub fn abandon(&mut self, pool: &Pool, token: &ApplyToken<'_>) -> Attempt<()> {
        self.old.clear();
        self.old.lost.clear();
        self.staged.abandon(&mut self.pending_frees);
        self.try_finish(pool, token)
    }
}
