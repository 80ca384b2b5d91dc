//! Whether what was read may be shown: compares the marks of its leaf with the bounds of the core,
//! and with the log where the bounds do not suffice (decision 005, decision 060).

use pando_format::{Lsn, TreeId};
use pando_pool::Marks;
use pando_wal::Acknowledge;

use crate::engine::Engine;
use crate::error::Result;
use crate::options::Durability;
use crate::state::read_bounds::Debt;
use crate::wait::reason::{Step, WaitReason};

impl Engine {
    /// Returns whether a commit is acknowledged once it is durable, or at once; `asked` is what its
    /// caller wants.
    pub(crate) fn acknowledge(&self, asked: Option<Durability>) -> Acknowledge {
        match asked.unwrap_or_else(|| self.read_bounds.durability()) {
            Durability::Durable => Acknowledge::WhenDurable,
            Durability::Periodic | Durability::None => Acknowledge::AtOnce,
        }
    }

    /// Succeeds once all batches up to `mark` are applied.
    #[inline]
    pub(crate) fn check_mark(&self, mark: Lsn) -> Step<()> {
        // Later reads find the whole batch as well. A bound that is too old only leads to a look at
        // the log.
        if mark > self.read_bounds.applied() {
            let applied = self.log.applied();
            self.read_bounds.raise_applied(applied);
            if mark > applied {
                return Err(WaitReason::Applied(mark).into());
            }
        }
        Ok(())
    }

    /// As [`Engine::check_mark`], for a leaf with `marks`. Returns the debt of what was copied from
    /// the leaf: the value of `key`, or all of the leaf.
    #[inline]
    pub(crate) fn check_marks(&self, marks: Marks, key: Option<(TreeId, &[u8])>) -> Step<Debt> {
        if self.read_bounds.cover(marks) {
            return Ok(Debt::NONE);
        }
        self.look_for_marks(marks, key)
    }

    #[cold]
    fn look_for_marks(&self, marks: Marks, key: Option<(TreeId, &[u8])>) -> Step<Debt> {
        self.check_mark(marks.multi_lsn)?;
        Ok(self.debt(marks.lsn, key))
    }

    /// Returns the debt of what was copied from a leaf that was last changed at `lsn_max`, and
    /// whose mark is applied. `key` as in [`Engine::check_marks`].
    #[inline]
    pub(crate) fn debt(&self, lsn_max: Lsn, key: Option<(TreeId, &[u8])>) -> Debt {
        if self.read_bounds.is_settled(lsn_max) {
            return Debt::NONE;
        }
        self.look_for_debt(lsn_max, key)
    }

    /// As [`Engine::debt`], for an LSN above the bound of the core: asks the log, and renews the
    /// bound.
    #[cold]
    fn look_for_debt(&self, lsn_max: Lsn, key: Option<(TreeId, &[u8])>) -> Debt {
        if !self.read_bounds.waits_for_commits() {
            return Debt::NONE;
        }
        debug_assert!(
            lsn_max <= self.log.reserved_end(),
            "a leaf is newer than the log"
        );
        let position = self.log.position();
        self.read_bounds.raise_settled(position.settled());
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
    /// If the log has failed: what was read may be lost.
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
            Some(lsn) if self.log.durable() < lsn => Err(WaitReason::Durable(lsn).into()),
            _ => Ok(()),
        }
    }
}
