//! Locks of keys and tables, as commits, batches that change tables, and transactions meet them:
//! see [`crate::locks`] for the ordering argument.

use pando_format::TreeId;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_sync::Arc;
use pando_sync::time::Duration;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::locks::{Asked, LockName, LockOwner, LockWait, Mode, OwnerId};
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::set::WriteSet;
use crate::writes::stripes::{Locked, StripeIndex, StripeUse};

/// A lock of somebody else that a commit has met.
#[derive(Debug)]
pub(crate) struct Met {
    stripe: StripeIndex,
    name: LockName,
    table: Arc<TableState>,
}

/// The locks of one commit.
#[derive(Debug, Default)]
pub(crate) struct CommitLocks {
    /// The holder of the locks of the transaction that commits; or, of another commit, one that
    /// waits for a lock which the commit has met.
    pub(crate) owner: Option<Box<LockOwner>>,
    /// The owner is of the commit itself.
    has_passes: bool,
    /// The lock that the last attempt has met.
    pub(crate) met: Option<Met>,
}

impl CommitLocks {
    /// Returns true if the commit has neither met locks nor holds any: most commits.
    #[inline]
    pub(crate) fn are_none(&self) -> bool {
        self.met.is_none() && self.owner.is_none()
    }

    /// Gives back all locks, and waits for none any longer.
    pub(crate) fn end(&mut self) {
        if !self.are_none() {
            *self = Self::default();
        }
    }

    /// After a conflict: a transaction may go on, with its locks.
    pub(crate) fn end_passes(&mut self) {
        if self.has_passes {
            self.end();
        }
    }
}

/// Where the turn of a transaction that loses too often has its place.
const TURN_STRIPE: u32 = 0;

/// Turns what was asked for into a step.
fn step_of(asked: Asked) -> Step<()> {
    match asked {
        Asked::Granted => Ok(()),
        Asked::Waits(wait) => Err(WaitReason::Lock(wait).into()),
    }
}

impl Engine {
    /// Returns an owner without locks, which waits for `patience`, or as long as the store says. It
    /// is as old as `age` says, or begins now.
    pub(crate) fn lock_owner(&self, patience: Option<Duration>, age: Option<OwnerId>) -> LockOwner {
        let patience = patience.unwrap_or(self.options.lock_timeout);
        let age = age.unwrap_or_else(|| self.locks.new_owner());
        LockOwner::new(self.locks.clone(), age, patience)
    }

    /// The stripe of the lock of a whole table.
    fn table_stripe(&self, tree: TreeId) -> StripeIndex {
        self.stripes.of(tree, b"")
    }

    /// Ends the attempt to commit `set` if it meets a lock of somebody else, which it notes. The
    /// caller holds the stripes, and is inside the gate.
    #[inline]
    pub(crate) fn stop_at_locks(
        &self,
        set: &WriteSet,
        locked: &Locked<'_>,
        locks: &mut CommitLocks,
    ) -> Step<()> {
        if locked.is_marked() || self.locks.has_tables() {
            locks.met = self.look_for_locks(set, locks.owner.as_deref());
            if locks.met.is_some() {
                return Err(Restart::Conflict.into());
            }
        }
        Ok(())
    }

    #[cold]
    fn look_for_locks(&self, set: &WriteSet, owner: Option<&LockOwner>) -> Option<Met> {
        let owner = owner.map(LockOwner::id);
        set.writes().find_map(|(table, key, _)| {
            let table = &set.tables[table];
            let tree = table.tree?.id;
            let met = |stripe, name| {
                let table = table.state.clone();
                Some(Met {
                    stripe,
                    name,
                    table,
                })
            };
            if self.locks.has_tables() {
                let stripe = self.table_stripe(tree);
                if self.locks.blocks_table(stripe.number(), tree, owner) {
                    return met(stripe, LockName::Table(tree));
                }
            }
            let stripe = self.stripes.of(tree, key);
            let unmark = || self.stripes.unmark(stripe);
            let is_blocked = self
                .locks
                .blocks_key(stripe.number(), (tree, key), owner, unmark);
            is_blocked
                .then(|| met(stripe, LockName::Key(tree, key.into())))
                .flatten()
        })
    }

    /// Looks at the lock that the commit waits for, if it does.
    pub(crate) fn look_at_wait(&self, locks: &mut CommitLocks) -> Step<()> {
        let owner = locks.owner.as_mut();
        let looked = owner.map_or(Ok(Asked::Granted), |owner| owner.look());
        self.after(looked, locks)
    }

    /// Begins to wait for the lock that the commit has met, without stripes.
    #[cold]
    pub(crate) fn wait_for_met(&self, locks: &mut CommitLocks, met: &Met) -> Step<()> {
        let owner = match &mut locks.owner {
            Some(owner) => owner,
            None => {
                locks.has_passes = true;
                locks.owner.insert(Box::new(self.lock_owner(None, None)))
            }
        };
        if locks.has_passes {
            // Whoever has no locks of its own waits without anything in hand.
            owner.release_all();
        }
        let place = (met.stripe.number(), &met.name);
        let asked = owner.ask(place, Mode::Pass, &met.table.name, || ());
        self.after(asked, locks)
    }

    /// Turns what a commit has asked for into a step; an error ends the commit.
    fn after(&self, asked: Result<Asked>, locks: &mut CommitLocks) -> Step<()> {
        match asked {
            Ok(asked) => step_of(asked),
            Err(error) => {
                self.count_lock_error(&error);
                locks.end();
                Err(error.into())
            }
        }
    }

    /// Counts an error of a wait for a lock.
    pub(crate) fn count_lock_error(&self, error: &Error) {
        let ticker = match error {
            Error::Deadlock { .. } => Ticker::Deadlocks,
            Error::LockTimeout { .. } => Ticker::LockTimeouts,
            _ => return,
        };
        self.store.statistics.tick(ticker, 1);
    }

    /// Locks `key` of a table for `owner`, in the tree that is returned; the next commit of the key
    /// is its own. Does not block.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Deadlock`], then it holds no locks any longer;
    /// [`Error::NoSuchTable`]; [`Error::Closed`].
    pub(crate) fn try_lock_key(
        &self,
        owner: &mut LockOwner,
        state: &TableState,
        key: &[u8],
    ) -> Step<TreeId> {
        if self.store.life.is_closing() {
            return Err(Error::Closed.into());
        }
        step_of(owner.look()?)?;
        let (tree, stripe) = {
            // A batch that changes the table does so with the gate closed, and looks for locks
            // then.
            let Some(_guard) = self.store.pool.gate().try_enter() else {
                return Err(WaitReason::Gate.into());
            };
            let tree = tree_of(state)?;
            let stripe = self.stripes.of(tree, key);
            let name = LockName::Key(tree, key.into());
            if !owner.has(&name) {
                let (place, mode) = ((stripe.number(), &name), Mode::Exclusive { at_most: None });
                let mark = || self.stripes.mark(stripe);
                step_of(owner.ask(place, mode, &state.name, mark)?)?;
            }
            (tree, stripe)
        };
        // A commit that took the stripe before it was marked has not looked for locks.
        match self.stripes.has_no_writer(stripe) {
            true => Ok(tree),
            false => Err(WaitReason::Stripe(stripe, StripeUse::Read).into()),
        }
    }

    /// Takes the turn of a transaction that has lost too often, and locks `tables` as a whole:
    /// commits of others into them wait, for at most `at_most`. Blocks.
    ///
    /// # Errors
    /// As [`Engine::try_lock_key`].
    pub(crate) fn lock_tables(
        &self,
        owner: &mut LockOwner,
        tables: &[Arc<TableState>],
        at_most: Duration,
    ) -> Result<()> {
        let mode = Mode::Exclusive {
            at_most: Some(at_most),
        };
        let turn = (TURN_STRIPE, &LockName::Turn);
        // Each turn ends, so this does, too.
        while let Err(error) = self.block_for_lock(owner, turn, mode, "") {
            match error {
                Error::LockTimeout { .. } => {}
                other => return Err(other),
            }
        }
        let trees = tables.iter().map(|state| (state.tree(), &state.name));
        let trees = trees.filter_map(|(tree, name)| Some((tree?.id, name)));
        let mut trees: Vec<(TreeId, &Box<str>)> = trees.collect();
        trees.sort_unstable_by_key(|(tree, _)| tree.0);
        for (tree, table) in trees {
            let place = (self.table_stripe(tree).number(), &LockName::Table(tree));
            self.block_for_lock(owner, place, mode, table)?;
        }
        // Commits that are inside may have entered before the locks could be seen.
        drop(self.store.pool.gate().close());
        Ok(())
    }

    /// Takes a lock for `owner`, unless it has it. Blocks.
    fn block_for_lock(
        &self,
        owner: &mut LockOwner,
        (stripe, name): (u32, &LockName),
        mode: Mode,
        table: &str,
    ) -> Result<()> {
        self.block(|_| {
            step_of(owner.look()?)?;
            match owner.has(name) {
                true => Ok(()),
                false => step_of(owner.ask((stripe, name), mode, table, || ())?),
            }
        })
    }

    /// Returns a wait for a lock that a batch which changes tables has met. The gate is closed.
    pub(crate) fn met_by_job(
        &self,
        set: &WriteSet,
        owner: &mut Option<Box<LockOwner>>,
    ) -> Result<Option<Arc<LockWait>>> {
        loop {
            let by = owner.as_deref();
            let changed = set.table_changes.iter();
            let in_changed = changed.clone().find_map(|(table, _)| {
                let table = &set.tables[*table];
                let tree = table.tree?.id;
                let (stripe, name) = self.locks.held_in(tree, by.map(LockOwner::id))?;
                Some((stripe, name, table.state.clone()))
            });
            let met = in_changed.or_else(|| {
                let met = self.look_for_locks(set, by)?;
                Some((met.stripe.number(), met.name, met.table))
            });
            let Some((stripe, name, table)) = met else {
                return Ok(None);
            };
            let owner = owner.get_or_insert_with(|| Box::new(self.lock_owner(None, None)));
            owner.release_all();
            match owner.ask((stripe, &name), Mode::Pass, &table.name, || ())? {
                // It was given back at this moment.
                Asked::Granted => {}
                Asked::Waits(wait) => return Ok(Some(wait)),
            }
        }
    }
}

fn tree_of(state: &TableState) -> Result<TreeId> {
    state
        .tree()
        .map(|tree| tree.id)
        .ok_or_else(|| Error::NoSuchTable {
            name: state.name.to_string(),
        })
}
