//! What a change keeps from one attempt to the next: buffers, and pages that must not leak.

use pando_format::PageId;
use pando_pool::{Attempt, Pool, Stay};

use crate::finger::Finger;
use crate::node::list::RecordList;
use crate::overflow::Draft;
use crate::value::ValueReader;

/// Working memory of changes to the trees of one pool; one for each thread that makes them, reused
/// for any number.
///
/// A change that is given up after an `Err` needs [`Scratch::abandon`], and every stay in the gate
/// ends with [`Scratch::try_finish`]: pages written or freed half-way belong to that stay.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) work: Work,
    pub(crate) draft: Draft,
    pub(crate) old: OldValue,
    pending_frees: Vec<PageId>,
}

/// What the value that an attempt would replace or remove is made of.
#[derive(Debug, Default)]
pub(crate) struct OldValue {
    /// Its overflow pages.
    pub(crate) doomed: Vec<PageId>,
    /// Its list of chunks; empty when it has none.
    pub(crate) list: Vec<u8>,
    pub(crate) reader: ValueReader,
}

impl OldValue {
    pub(crate) fn clear(&mut self) {
        self.doomed.clear();
        self.list.clear();
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

    /// True when a stay may end: nothing written or freed half-way.
    pub fn is_finished(&self) -> bool {
        self.pending_frees.is_empty() && self.draft.description().is_empty()
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
    pub fn take_chunk_list(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.old.list)
    }

    /// The doomed pages are named by nothing any more.
    pub(crate) fn free_doomed(&mut self, pool: &Pool, stay: &Stay) {
        self.pending_frees.append(&mut self.old.doomed);
        // What has to wait is freed by the caller's try_finish.
        let _later = self.try_finish(pool, stay);
    }

    /// Frees what earlier changes of this stay left over.
    ///
    /// # Errors
    /// As [`Pool::free_unread`]; what is left is kept for the next call.
    pub fn try_finish(&mut self, pool: &Pool, stay: &Stay) -> Attempt<()> {
        while let Some(page) = self.pending_frees.last() {
            pool.free_unread(stay, *page)?;
            self.pending_frees.pop();
        }
        Ok(())
    }

    /// Frees the overflow pages of an insertion that is not tried again.
    ///
    /// # Errors
    /// As [`Scratch::try_finish`], which then has to be called again.
    pub fn abandon(&mut self, pool: &Pool, stay: &Stay) -> Attempt<()> {
        self.old.clear();
        self.draft.abandon(&mut self.pending_frees);
        self.try_finish(pool, stay)
    }
}
