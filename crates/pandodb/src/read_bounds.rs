//! What may be shown of what was read: whole batches, and in a durable store nothing that a power
//! cut could still take back.
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

use pando_format::{Lsn, TreeId};
use pando_pool::Marks;
use pando_sync::CoreLocal;
use pando_sync::atomic::{AtomicU8, AtomicU64, Ordering};
use pando_wal::Acknowledge;

use crate::engine::Engine;
use crate::error::Result;
use crate::halt::{Step, Stop};
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
pub(crate) struct Debt(Option<Lsn>);

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
}

impl Engine {
    /// Whether a commit is waited for in the log: `asked` is what its caller wants.
    pub(crate) fn acknowledge(&self, asked: Option<Durability>) -> Acknowledge {
        match asked.unwrap_or_else(|| self.read_bounds.durability()) {
            Durability::Durable => Acknowledge::WhenDurable,
            Durability::Periodic | Durability::None => Acknowledge::AtOnce,
        }
    }

    /// Goes on once all batches up to `mark` are applied.
    #[inline]
    pub(crate) fn check_mark(&self, mark: Lsn) -> Step<()> {
        let copy = &self.read_bounds.copies.here().applied;
        // Acquire: pairs with the Release below: reads that come after this one find the whole
        // batch. A copy that is too old only leads to a look at the original.
        if mark.0 > copy.load(Ordering::Acquire) {
            let applied = self.log.applied();
            // Release: pairs with the Acquire above, and in applied_seen.
            copy.fetch_max(applied.0, Ordering::Release);
            if mark > applied {
                return Err(Stop::Applied(mark).into());
            }
        }
        Ok(())
    }

    /// An LSN up to which all batches are applied, as this core knows: reads that begin afterwards
    /// find all of them.
    #[inline]
    pub(crate) fn applied_seen(&self) -> Lsn {
        // Acquire: pairs with the Release in check_mark, behind the look at the original.
        let copy = &self.read_bounds.copies.here().applied;
        Lsn(copy.load(Ordering::Acquire))
    }

    /// As [`Engine::check_mark`], of a leaf with `marks`; and the debt of what was copied from it:
    /// of the value of `key`, or of all of it.
    #[inline]
    pub(crate) fn check_marks(&self, marks: Marks, key: Option<(TreeId, &[u8])>) -> Step<Debt> {
        self.check_mark(marks.multi_lsn)?;
        Ok(self.debt(marks.lsn, key))
    }

    /// The debt of what was copied from a leaf that was last changed at `lsn_max`, once its mark is
    /// applied.
    #[inline]
    pub(crate) fn debt(&self, lsn_max: Lsn, key: Option<(TreeId, &[u8])>) -> Debt {
        // Relaxed: nothing is read behind it.
        let settled = &self.read_bounds.copies.here().settled;
        if lsn_max.0 <= settled.load(Ordering::Relaxed) {
            return Debt::NONE;
        }
        self.look_for_debt(lsn_max, key)
    }

    #[cold]
    fn look_for_debt(&self, lsn_max: Lsn, key: Option<(TreeId, &[u8])>) -> Debt {
        if self.read_bounds.durability() != Durability::Durable || !self.read_bounds.durable_reads {
            return Debt::NONE;
        }
        let position = self.log.position();
        let copy = &self.read_bounds.copies.here().settled;
        copy.fetch_max(position.settled().0, Ordering::Relaxed);
        let newest = key.and_then(|(tree, key)| {
            let stamp = self.stripes.stamp(self.stripes.of(tree, key))?;
            Some(stamp.lsn())
        });
        let owed = lsn_max.min(newest.unwrap_or(lsn_max)).min(position.awaited);
        Debt((owed > position.durable).then_some(owed))
    }

    /// Blocks until what owes `debt` may be shown.
    ///
    /// # Errors
    /// When the log has failed: what was read may be lost.
    #[inline]
    pub(crate) fn pay(&self, debt: Debt) -> Result<()> {
        match debt.lsn() {
            None => Ok(()),
            Some(lsn) => self.wait_durable(lsn),
        }
    }

    /// As [`Engine::pay`], for a step.
    pub(crate) fn check_paid(&self, debt: Debt) -> Step<()> {
        match debt.lsn() {
            Some(lsn) if self.log.durable() < lsn => Err(Stop::Durable(lsn).into()),
            _ => Ok(()),
        }
    }
}
