//! Which reads may be shown: only whole batches, and in a durable store nothing that a power cut
//! could still take back (decision 060).
//!
//! Each core has a copy of two bounds, on a cache line of its own:
//!
//! - *applied*: all batches up to this LSN are in the trees, so a leaf whose mark is not above it
//!   shows no batch in part;
//! - *settled*: no commit up to this LSN waits for the log, so a leaf that has not changed since
//!   shows nothing that can be lost after somebody has seen it.
//!
//! A read compares its marks with the copies and writes nothing. If a mark is above a bound, the
//! read checks the original and renews the copy of its core. A read that is still above the second
//! bound has a **debt**: the LSN that must be durable before its result may be shown. A debt is
//! never above the newest commit that itself waits for the log; reads do not wait for commits that
//! ask for less, or for background work, which also raises marks. The debt of a point read is never
//! above the newest commit on the stripe of its key either. So a wait always finds a sync under
//! way, or begins one that somebody else waits for.
//!
//! Why the stripe bounds the debt: a commit holds the stripe exclusively from before it changes the
//! leaf until it has stamped the stripe. A read that has seen the change therefore sees the stripe
//! held, or sees its stamp. Batches that change tables hold no stripes; they mark the leaf, and are
//! stamped before they count as applied.

use pando_format::Lsn;
use pando_pool::Marks;
use pando_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use pando_sync::{CoreLocal, Mutex, Rank};

use crate::options::Durability;

/// One core's copies of the bounds.
#[derive(Debug)]
struct Bounds {
    /// Never above the log's applied LSN.
    applied: AtomicU64,
    /// The greatest number if reads wait for no commit.
    settled: AtomicU64,
}

/// The bounds of all cores, and what they depend on; see the module.
#[derive(Debug)]
pub(crate) struct ReadBounds {
    copies: CoreLocal<Bounds>,
    /// Durability of commits that do not ask for one, as a number.
    durability: AtomicU8,
    /// Held while it is changed, with all copies: else two changes at once could leave a durable
    /// store whose reads wait for nothing.
    setting: Mutex<()>,
    /// Whether reads of a durable store show durable data only.
    durable_reads: bool,
}

/// The LSN that must be durable before the result of a read may be shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "what was read may not be shown before it is paid"]
pub(crate) struct Debt(pub(crate) Option<Lsn>);

impl Debt {
    /// The result may be shown at once.
    pub(crate) const NONE: Self = Self(None);

    /// The LSN to wait for; None: the result may be shown at once.
    pub(crate) fn lsn(self) -> Option<Lsn> {
        self.0
    }

    /// Adds the debt of another result that is shown together with this one.
    pub(crate) fn add(&mut self, other: Self) {
        *self = (*self).max(other);
    }
}

impl ReadBounds {
    /// Returns the bounds of a store in which all batches up to `applied` are applied.
    pub(crate) fn new(durability: Durability, durable_reads: bool, applied: Lsn) -> Self {
        let bounds = Self {
            copies: CoreLocal::new("read bounds", |_| Bounds {
                applied: AtomicU64::new(applied.0),
                settled: AtomicU64::new(0),
            }),
            durability: AtomicU8::new(0),
            setting: Mutex::new(Rank::Leaf, ()),
            durable_reads,
        };
        bounds.set_durability(durability);
        bounds
    }

    /// The durability of commits that do not ask for one.
    pub(crate) fn durability(&self) -> Durability {
        // Relaxed: a commit concurrent with the change may see either.
        match self.durability.load(Ordering::Relaxed) {
            0 => Durability::Durable,
            1 => Durability::Periodic,
            _ => Durability::None,
        }
    }

    /// Sets the durability of commits that do not ask for one.
    pub(crate) fn set_durability(&self, durability: Durability) {
        self.change_durability(durability, || ());
    }

    /// As [`ReadBounds::set_durability`]; calls `between` in the middle.
    fn change_durability(&self, durability: Durability, between: impl FnOnce()) {
        let (number, waits) = match durability {
            Durability::Durable => (0, self.durable_reads),
            Durability::Periodic => (1, false),
            Durability::None => (2, false),
        };
        let _one = self.setting.lock();
        self.durability.store(number, Ordering::Relaxed);
        between();
        for copy in self.copies.iter() {
            // Relaxed: a bound that is too low only makes a read check the original.
            let settled = if waits { 0 } else { u64::MAX };
            copy.settled.store(settled, Ordering::Relaxed);
        }
    }

    /// True if reads wait until the commits that they have seen are durable.
    pub(crate) fn waits_for_commits(&self) -> bool {
        self.durability() == Durability::Durable && self.durable_reads
    }

    /// The LSN up to which this core knows all batches to be applied. Reads that begin after this
    /// call find all of them.
    #[inline]
    pub(crate) fn applied(&self) -> Lsn {
        // Acquire: pairs with the Release in raise_applied, which follows the read of the original.
        Lsn(self.copies.here().applied.load(Ordering::Acquire))
    }

    /// Notes that all batches up to `applied` are applied, as the original has just shown.
    #[inline]
    pub(crate) fn raise_applied(&self, applied: Lsn) {
        // Release: pairs with the Acquire in applied.
        let copy = &self.copies.here().applied;
        copy.fetch_max(applied.0, Ordering::Release);
    }

    /// True if this core knows that no commit up to `lsn` waits for the log.
    #[inline]
    pub(crate) fn is_settled(&self, lsn: Lsn) -> bool {
        // Relaxed: no later read depends on it.
        lsn.0 <= self.copies.here().settled.load(Ordering::Relaxed)
    }

    /// True if this core knows that what was copied from a leaf with `marks` may be shown at once:
    /// both of the above, by one look.
    #[inline]
    pub(crate) fn cover(&self, marks: Marks) -> bool {
        let here = self.copies.here();
        // Acquire: as in applied. Relaxed: as in is_settled.
        marks.multi_lsn.0 <= here.applied.load(Ordering::Acquire)
            && marks.lsn.0 <= here.settled.load(Ordering::Relaxed)
    }

    /// Notes that no commit up to `settled` waits for the log, as the log has just shown.
    pub(crate) fn raise_settled(&self, settled: Lsn) {
        let copy = &self.copies.here().settled;
        copy.fetch_max(settled.0, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_sync::thread;
    use pando_sync::time::{self, Duration};

    use super::*;

    /// A second change comes in the middle of one, and would be over before it.
    #[test]
    fn a_store_that_ends_up_durable_has_reads_that_wait() {
        let bounds = ReadBounds::new(Durability::Durable, true, Lsn(0));
        thread::scope(|scope| {
            bounds.change_durability(Durability::None, || {
                let second = scope.spawn(|| bounds.set_durability(Durability::Durable));
                let deadline = time::now() + Duration::from_millis(100);
                while !second.is_finished() && time::now() < deadline {
                    thread::yield_now();
                }
            });
        });
        assert!(bounds.waits_for_commits());
        for copy in bounds.copies.iter() {
            assert_eq!(copy.settled.load(Ordering::Relaxed), 0);
        }
    }
}
