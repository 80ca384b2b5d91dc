//! What a change keeps from one attempt to the next: buffers, and pages that must not leak.

use pando_format::PageId;
use pando_pool::{ApplyToken, Attempt, Pool, Restart};

use crate::finger::Finger;
use crate::node::list::RecordList;
use crate::overflow::StagedPages;
use crate::value::ValueReader;

/// Working memory of changes to the trees of one pool; one for each thread that makes them, reused
/// for any number.
///
/// A change that is given up after an `Err` needs [`Scratch::abandon`], and every apply section
/// ends with [`Scratch::try_finish`]: pages written or freed half-way belong to that section.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) work: Work,
    pub(crate) staged: StagedPages,
    pub(crate) old: OldValue,
    pub(crate) pending_frees: Vec<PageId>,
    /// Values, or parts of trees, that were given up since nobody could read which pages they have.
    pub(crate) leaks: u64,
}

/// What the value that an attempt would replace or remove is made of.
#[derive(Debug, Default)]
pub(crate) struct OldValue {
    /// Its overflow pages.
    pub(crate) to_free: Vec<PageId>,
    /// Its list of chunks; empty when it has none.
    pub(crate) list: Vec<u8>,
    pub(crate) reader: ValueReader,
    /// Pages of it that cannot be read, and that the change does without.
    pub(crate) lost: Vec<PageId>,
    /// The one that the last attempt has met.
    blamed: Option<PageId>,
    /// It has pages or chunks that are not known.
    is_leaking: bool,
}

impl OldValue {
    pub(crate) fn clear(&mut self) {
        self.to_free.clear();
        self.list.clear();
        self.blamed = None;
        self.is_leaking = false;
    }

    /// What `read` made of a part of the value: `Ok(None)` if the change does without.
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
    /// Entries of its parent.
    pub(crate) parent_list: RecordList,
    /// What will tell the halves of a split apart.
    pub(crate) separator: Vec<u8>,
    /// The separator for which its parent had no room.
    pub(crate) pending: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) nearby: Nearby,
    /// The leaf that somebody else changed before the change under way could.
    pub(crate) lost: Option<PageId>,
}

/// Where the last insertion ended, and whether the next one is likely to be there, too: random
/// ones do not pay for a look.
#[derive(Debug, Default)]
pub(crate) struct Nearby {
    pub(crate) finger: Finger,
    /// The last descent led to the leaf of the finger, or to one that was split off from it.
    pub(crate) is_likely: bool,
}

impl Nearby {
    /// A descent has led to `leaf`.
    pub(crate) fn came_to(&mut self, leaf: PageId) {
        let known = self.finger.page();
        if known != PageId::NONE {
            self.is_likely = leaf == known;
        }
    }
}

impl Scratch {
    /// Empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when an apply section may end: nothing written or freed half-way.
    pub fn is_finished(&self) -> bool {
        self.pending_frees.is_empty() && self.staged.header().is_empty()
    }

    /// Forgets where the last insertion was: the next one may be made to another pool.
    pub fn forget_leaf(&mut self) {
        self.work.nearby = Nearby::default();
    }

    /// The next insertion goes to the leaf of `finger`, if that is as it was seen then. Otherwise,
    /// and if it is none, what the last insertion has left says as much.
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

    /// The list of the chunks of the value that the last change has replaced or removed; empty
    /// when it had none. Nothing names these chunks any more: they are the caller's to free.
    pub fn take_blob_ref(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.old.list)
    }

    /// True if the change can do without `page`, which cannot be read: it is a part of the value
    /// that is replaced or removed. What only that page names is leaked then.
    #[must_use]
    pub fn do_without(&mut self, page: PageId) -> bool {
        let is_new = self.old.blamed == Some(page) && !self.old.lost.contains(&page);
        if is_new {
            self.old.lost.push(page);
        }
        is_new
    }

    /// How often something was leaked since the last call.
    pub fn take_leaks(&mut self) -> u64 {
        std::mem::take(&mut self.leaks)
    }

    /// The change of a value has ended.
    pub(crate) fn end_old(&mut self) {
        self.leaks += u64::from(self.old.is_leaking);
        self.old.is_leaking = false;
        self.old.lost.clear();
    }

    /// The to be freed pages are named by nothing any more.
    pub(crate) fn free_old(&mut self, pool: &Pool, token: &ApplyToken<'_>) {
        self.end_old();
        self.pending_frees.append(&mut self.old.to_free);
        // What has to wait is freed by the caller's try_finish.
        let _later = self.try_finish(pool, token);
    }

    /// Frees what earlier changes of this apply section left over.
    ///
    /// # Errors
    /// As [`Pool::free_unread`]; what is left is kept for the next call.
    pub fn try_finish(&mut self, pool: &Pool, token: &ApplyToken<'_>) -> Attempt<()> {
        while let Some(page) = self.pending_frees.last() {
            match pool.free_unread(token, *page) {
                // It is no page any more: whatever named it was damaged.
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
    /// As [`Scratch::try_finish`], which then has to be called again.
    pub fn abandon(&mut self, pool: &Pool, token: &ApplyToken<'_>) -> Attempt<()> {
        self.old.clear();
        self.old.lost.clear();
        self.staged.abandon(&mut self.pending_frees);
        self.try_finish(pool, token)
    }
}
