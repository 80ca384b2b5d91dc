//! What may be shown of what was read: whole batches, and in a durable store nothing that a power
//! cut could still take back (decision 060).
//!
//! Each core has a copy of two bounds, on a line of its own:
//!
//! - *applied*: all batches up to here are in the trees, so a leaf whose mark is not above it shows
//!   no batch in part;
//! - *settled*: no commit up to here is waiting for the log, so a leaf that was not changed since
//!   shows nothing that could be lost after somebody has seen it.
//!
//! A read compares and writes nothing. One that is above a bound looks at the original and renews
//! the copy of its core. What is still above the second owes a **debt**: the LSN that must be
//! durable before it may be shown. That is never more than the newest commit that waits for the
//! log itself (commits that ask for less, and background work, which raises marks, are not waited
//! for), and for a point read never more than the newest commit on the stripe of its key. So a wait
//! always has a sync under way, or begins one that somebody else waits for.
//!
//! Why the stripe may be asked: a commit holds it alone from before it changes the leaf until it is
//! stamped. Who has seen the change sees the stripe held, or its stamp. Batches that change tables
//! hold no stripes; they are marked, and stamped before they count as applied.

use pando_format::Lsn;
use pando_sync::CoreLocal;
use pando_sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::options::Durability;

/// The copies of one core.
#[derive(Debug)]
struct Bounds {
    applied: AtomicU64,
    /// All ones where reads wait for no commit.
    settled: AtomicU64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadBounds {
    copies: CoreLocal<Bounds>,
    /// Durability of commits that ask for none, as a number.
    durability: AtomicU8,
    /// Reads show what is durable only, where commits wait for the log.
    durable_reads: bool,
}

/// The LSN that must be durable before something that was read may be shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "what was read may not be shown before it is paid"]
pub(crate) struct Debt(pub(crate) Option<Lsn>);

impl Debt {
    pub(crate) const NONE: Self = Self(None);

    /// None: it may be shown at once.
    pub(crate) fn lsn(self) -> Option<Lsn> {
        self.0
    }

    /// Adds the debt of something else that is shown together with it.
    pub(crate) fn add(&mut self, other: Self) {
        *self = (*self).max(other);
    }
}

impl ReadBounds {
    pub(crate) fn new(durability: Durability, durable_reads: bool, applied: Lsn) -> Self {
        let bounds = Self {
            copies: CoreLocal::new("read bounds", |_| Bounds {
                applied: AtomicU64::new(applied.0),
                settled: AtomicU64::new(0),
            }),
            durability: AtomicU8::new(0),
            durable_reads,
        };
        bounds.set_durability(durability);
        bounds
    }

    pub(crate) fn durability(&self) -> Durability {
        // Relaxed: a commit beside the change may count as either.
        match self.durability.load(Ordering::Relaxed) {
            0 => Durability::Durable,
            1 => Durability::Periodic,
            _ => Durability::None,
        }
    }

    pub(crate) fn set_durability(&self, durability: Durability) {
        let (number, waits) = match durability {
            Durability::Durable => (0, self.durable_reads),
            Durability::Periodic => (1, false),
            Durability::None => (2, false),
        };
        self.durability.store(number, Ordering::Relaxed);
        for copy in self.copies.iter() {
            // Relaxed: a bound that is too small only leads to a look at the original.
            let settled = if waits { 0 } else { u64::MAX };
            copy.settled.store(settled, Ordering::Relaxed);
        }
    }

    /// Reads wait for commits that wait for the log.
    pub(crate) fn waits_for_commits(&self) -> bool {
        self.durability() == Durability::Durable && self.durable_reads
    }

    /// What this core knows to be applied: all batches up to here. Reads that begin afterwards find
    /// all of them.
    #[inline]
    pub(crate) fn applied(&self) -> Lsn {
        // Acquire: pairs with the Release in raise_applied, after the look at the original.
        Lsn(self.copies.here().applied.load(Ordering::Acquire))
    }

    /// All batches up to `applied` are, as a look at the original has shown.
    #[inline]
    pub(crate) fn raise_applied(&self, applied: Lsn) {
        // Release: pairs with the Acquire in applied.
        let copy = &self.copies.here().applied;
        copy.fetch_max(applied.0, Ordering::Release);
    }

    /// True if this core knows that no commit up to `lsn` waits for the log.
    #[inline]
    pub(crate) fn is_settled(&self, lsn: Lsn) -> bool {
        // Relaxed: nothing is read after it.
        lsn.0 <= self.copies.here().settled.load(Ordering::Relaxed)
    }

    /// No commit up to `settled` waits for the log, as a look at it has shown.
    pub(crate) fn raise_settled(&self, settled: Lsn) {
        let copy = &self.copies.here().settled;
        copy.fetch_max(settled.0, Ordering::Relaxed);
    }
}
