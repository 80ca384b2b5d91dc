//! Who may reserve page ids while some wait for those that others have reserved (decision 097).
//!
//! Who waits holds nothing, so small needs could overtake a large one for ever. An operation that
//! was refused too often therefore takes the turn, of which there is one: until it has its ids, the
//! others get theirs one after the other, each when nobody else has any. So what it waits for
//! shrinks to what one operation may need. The turn ends after some of the others, too: its owner
//! may have gone, and nobody ever waits for the owner itself.

use pando_sync::atomic::{AtomicU32, Ordering};

/// Number of refusals after which an operation may take the turn.
const REFUSALS_MAX: u32 = 8;
/// Operations that get ids one by one before a turn ends without its owner.
const OTHERS_MAX: u32 = 64;

/// The ids that an operation needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdNeed {
    /// Those for pages whose blocks it reserves, and for chunks.
    pub(crate) ids: u64,
    /// Number of the operation, if it may have the turn, otherwise 0.
    pub(crate) number: u32,
    /// It may take ids for which a merge of the mapping has no room.
    pub(crate) urgent: bool,
}

/// The waits of one operation for ids.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct IdWait {
    /// Refusals since it last got ids.
    refusals: u32,
    number: u32,
}

impl IdWait {
    /// True if it was refused ids, and has got none since.
    pub(crate) fn is_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Returns the need of its operation.
    pub(crate) fn need(&self, ids: u64, urgent: bool) -> IdNeed {
        let number = self.number;
        IdNeed {
            ids,
            number,
            urgent,
        }
    }
}

/// The turn. All orderings are relaxed: it decides who waits for reservations that exist, and their
/// ends wake.
#[derive(Debug, Default)]
pub(crate) struct IdTurns {
    /// Number of the operation that has the turn, or 0.
    owner: AtomicU32,
    /// Number of others that get ids before the turn ends.
    others: AtomicU32,
    /// The last number that an operation was given.
    last: AtomicU32,
}

impl IdTurns {
    /// Notes that an operation was refused, which may give it the turn.
    pub(crate) fn refused(&self, wait: &mut IdWait) {
        wait.refusals += 1;
        if wait.refusals <= REFUSALS_MAX {
            return;
        }
        if wait.number == 0 {
            // Two operations of one number would share a turn, which does no harm.
            wait.number = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        }
        if self.owner.load(Ordering::Relaxed) == 0 {
            self.others.store(OTHERS_MAX, Ordering::Relaxed);
            self.owner.store(wait.number, Ordering::Relaxed);
        }
    }

    /// True if an operation may have ids while others have reserved `others`.
    pub(crate) fn lets_in(&self, need: &IdNeed, others: u64) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner == 0 || owner == need.number || others == 0
    }

    /// Notes that an operation has got its ids while somebody waits.
    pub(crate) fn entered(&self, need: &IdNeed) {
        let owner = self.owner.load(Ordering::Relaxed);
        if owner == 0 {
            return;
        }
        let count = |left: u32| left.checked_sub(1);
        let left = self
            .others
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, count);
        if owner == need.number || left.is_err() {
            self.owner.store(0, Ordering::Relaxed);
        }
    }
}
