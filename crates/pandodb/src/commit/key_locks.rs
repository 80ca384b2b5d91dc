//! Locks of keys and tables, as commits, batches that change tables, and transactions meet them:
//! see [`crate::locks`] for the ordering argument.

use pando_format::TreeId;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_sync::Arc;
use pando_sync::time::Duration;

use crate::commit::outcome::Outcome;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::locks::{Asked, LockName, LockOwner, Mode, OwnerId, OwnerKind};
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::set::WriteSet;
use crate::writes::stripes::{Locked, StripeIndex, StripeUse};

/// A lock of somebody else that a commit has met.
#[derive(Debug)]
pub(crate) struct Met {
    stripe: u32,
    name: LockName,
    table: Arc<TableState>,
}

/// The locks of one commit, over all of its attempts.
#[derive(Debug, Default)]
pub(crate) struct CommitLocks {
    /// The locks of the transaction that commits; or, of another commit, its passes, once it has
    /// met a lock.
    pub(crate) owner: Option<Box<LockOwner>>,
    /// How long it waits, if not as long as the store says.
    patience: Option<Duration>,
    /// The lock that the last attempt has met.
    met: Option<Box<Met>>,
}

impl CommitLocks {
    /// Those of a transaction: its owner, if it has locks, and how long it waits for others.
    pub(crate) fn of_transaction(
        owner: Option<Box<LockOwner>>,
        patience: Option<Duration>,
    ) -> Self {
        Self {
            owner,
            patience,
            met: None,
        }
    }

    /// Returns true if the commit has neither met locks nor holds any: most commits.
    #[inline]
    fn are_none(&self) -> bool {
        self.met.is_none() && self.owner.is_none()
    }

    /// Gives back all locks, and waits for none any longer.
    pub(crate) fn end(&mut self) {
        if !self.are_none() {
            (self.owner, self.met) = (None, None);
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
    pub(crate) fn lock_owner(
        &self,
        kind: OwnerKind,
        patience: Option<Duration>,
        age: Option<OwnerId>,
    ) -> LockOwner {
        let patience = patience.unwrap_or(self.options.lock_timeout);
        LockOwner::new(self.locks.clone(), kind, age, patience)
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
            let met = self.look_for_locks(set, locks.owner.as_deref());
            locks.met = met.map(Box::new);
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
            let tree = table.tree()?.id;
            let met = |stripe: StripeIndex, name| Met {
                stripe: stripe.number(),
                name,
                table: table.state.clone(),
            };
            if self.locks.has_tables() {
                let stripe = self.table_stripe(tree);
                if self.locks.blocks_table(stripe.number(), tree, owner) {
                    return Some(met(stripe, LockName::Table(tree)));
                }
            }
            let stripe = self.stripes.of(tree, key);
            let unmark = || self.stripes.unmark(stripe);
            let locks = &self.locks;
            let is_blocked = locks.blocks_key(stripe.number(), (tree, key), owner, unmark);
            is_blocked.then(|| met(stripe, LockName::Key(tree, key.into())))
        })
    }

    /// Looks at the lock that the commit waits for, if it does.
    #[inline]
    pub(crate) fn look_at_wait(&self, locks: &mut CommitLocks) -> Step<()> {
        match &mut locks.owner {
            None => Ok(()),
            Some(owner) => {
                let looked = owner.look();
                self.after(looked, locks)
            }
        }
    }

    /// Returns true if the attempt that has ended with `step` is to be made again: it has met a
    /// lock, which is free by now. Begins to wait for one that is not, without stripes. The locks
    /// are given back after a commit and after an error; a conflict leaves them to the next run.
    #[inline]
    pub(crate) fn after_attempt(
        &self,
        step: &Step<Outcome>,
        locks: &mut CommitLocks,
    ) -> Step<bool> {
        match locks.are_none() {
            true => Ok(false),
            false => self.after_locks(step, locks),
        }
    }

    #[cold]
    fn after_locks(&self, step: &Step<Outcome>, locks: &mut CommitLocks) -> Step<bool> {
        let Some(met) = locks.met.take() else {
            match step {
                Err(Unfinished::Wait(_)) | Ok(Outcome::Conflict { watched: false }) => {}
                Ok(_) | Err(Unfinished::Error(_)) => locks.end(),
            }
            return Ok(false);
        };
        let owner = locks.owner.get_or_insert_with(|| {
            let kind = OwnerKind::Commit;
            Box::new(self.lock_owner(kind, locks.patience, None))
        });
        let place = (met.stripe, &met.name);
        let asked = owner.ask(place, Mode::Pass, &met.table.name, || ());
        self.after(asked, locks)?;
        Ok(true)
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
    /// is its own. It may be taken away after `at_most`; if that is None, never, also if it was
    /// locked for a time before. Does not block.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Deadlock`], then it holds no locks any longer;
    /// [`Error::NoSuchTable`]; [`Error::Closed`].
    pub(crate) fn try_lock_key(
        &self,
        owner: &mut LockOwner,
        state: &TableState,
        key: &[u8],
        at_most: Option<Duration>,
    ) -> Step<TreeId> {
        if self.store.life.is_closing() {
            return Err(Error::Closed.into());
        }
        step_of(owner.look()?)?;
        let tree = tree_of(state)?;
        let stripe = self.stripes.of(tree, key);
        let name = LockName::Key(tree, key.into());
        let has_it = match at_most {
            None => owner.keep(&name),
            Some(_) => owner.has(&name),
        };
        if !has_it {
            let mode = Mode::Exclusive { at_most };
            let mark = || self.stripes.mark(stripe);
            step_of(owner.ask((stripe.number(), &name), mode, &state.name, mark)?)?;
        }
        assert!(owner.has(&name), "a key is locked for who has its lock");
        // Who asks again for what he has had all along waits for no commits of other keys.
        if has_it && at_most.is_none() && owner.is_confirmed(&name) {
            return Ok(tree);
        }
        {
            // A batch that changes the table looks for locks with the gate closed. If it has not
            // seen this one, it ends first, and then the table has another tree.
            let Some(_guard) = self.store.pool.gate().try_enter() else {
                return Err(WaitReason::Gate.into());
            };
            if tree_of(state)? != tree {
                return Err(Restart::Conflict.into());
            }
        }
        // A commit that took the stripe before it was marked has not looked for locks.
        match self.stripes.has_no_writer(stripe) {
            true => {
                owner.confirm(&name);
                Ok(tree)
            }
            false => Err(WaitReason::Stripe(stripe, StripeUse::Read).into()),
        }
    }

    /// Takes the turn of a transaction that has lost too often, and locks `tables` as a whole:
    /// commits of others into them wait, for at most `at_most` from the end of this call. Waits for
    /// turns of others, which end. Blocks for a moment at its end, when it closes the gate.
    ///
    /// # Errors
    /// [`Error::Deadlock`]; [`Error::LockTimeout`].
    pub(crate) fn try_lock_tables(
        &self,
        owner: &mut LockOwner,
        tables: &[Arc<TableState>],
        at_most: Duration,
    ) -> Step<()> {
        step_of(owner.look()?)?;
        let mode = Mode::Exclusive {
            at_most: Some(at_most),
        };
        let trees = self.store.tables.trees_of(tables);
        let trees = trees.into_iter().zip(tables);
        let trees = trees.filter_map(|(tree, state)| Some((tree?.id, &state.name)));
        let mut trees: Vec<(TreeId, &Box<str>)> = trees.collect();
        trees.sort_unstable_by_key(|(tree, _)| tree.0);
        assert!(
            trees.is_sorted_by(|(one, _), (next, _)| one.0 < next.0),
            "tables are locked in their order, each once"
        );
        let mut names = vec![(TURN_STRIPE, LockName::Turn, "")];
        names.extend(trees.iter().map(|(tree, table)| {
            let stripe = self.table_stripe(*tree).number();
            (stripe, LockName::Table(*tree), &***table)
        }));
        for (stripe, name, table) in &names {
            if !owner.has(name) {
                step_of(owner.ask((*stripe, name), mode, table, || ())?)?;
            }
        }
        assert!(
            names.iter().all(|(_, name, _)| owner.has(name)),
            "it has its turn with all of its tables locked"
        );
        // Its time begins now. If it was taken away while the tables were waited for, again.
        if !names
            .iter()
            .all(|(_, name, _)| owner.extend(name, Some(at_most)))
        {
            owner.release_all();
            return Err(Restart::Conflict.into());
        }
        // Commits that are inside may have entered before the locks could be seen.
        drop(self.store.close_gate());
        Ok(())
    }

    /// Returns a lock that a batch which changes tables has to wait for. The gate is closed.
    pub(crate) fn met_by_job(&self, set: &WriteSet, owner: Option<&LockOwner>) -> Option<Met> {
        let changed = set.table_changes.iter();
        let mut in_changed = changed.filter_map(|(table, _)| {
            let table = &set.tables[*table];
            let tree = table.tree()?.id;
            let (stripe, name) = self.locks.held_in(tree, owner.map(LockOwner::id))?;
            Some(Met {
                stripe,
                name,
                table: table.state.clone(),
            })
        });
        in_changed
            .next()
            .or_else(|| self.look_for_locks(set, owner))
    }

    /// Begins to wait for the lock that a batch which changes tables has met.
    pub(crate) fn ask_for_job(
        &self,
        owner: &mut Option<Box<LockOwner>>,
        met: &Met,
    ) -> Result<Asked> {
        let owner = owner.get_or_insert_with(|| {
            let kind = OwnerKind::Commit;
            Box::new(self.lock_owner(kind, None, None))
        });
        owner.ask((met.stripe, &met.name), Mode::Pass, &met.table.name, || ())
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

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::Waker;

    use crate::nonblocking::{Polled, Reactor, Transaction};
    use crate::writes::stripes::Wanted;
    use crate::{Db, TransactionOptions};

    /// Else a command that locks many keys, and begins again when one has to wait, would never get
    /// through beside busy writers.
    #[test]
    fn who_locks_a_key_again_waits_for_no_commit_of_another_key() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let reactor = Reactor::new(&db, Waker::noop().clone()).unwrap();
        let mut transaction =
            Transaction::begin(&db, TransactionOptions::default(), &reactor).unwrap();
        let mut lock = |key: &[u8]| match transaction.lock(&table, &[key]).unwrap() {
            Polled::Ready(()) => true,
            Polled::Pending(_) => false,
        };
        assert!(lock(b"key"));
        let engine = db.engine();
        let tree = table.state.tree().unwrap().id;
        let stripe = engine.stripes.of(tree, b"key");
        let held = [Wanted::write(stripe)];
        let _commit = engine.stripes.try_lock_all(&held, &mut 0).unwrap();
        assert!(lock(b"key"), "it has had the lock all along");
        let other = (0..u32::MAX)
            .map(u32::to_be_bytes)
            .find(|key| engine.stripes.of(tree, key) == stripe)
            .unwrap();
        assert!(!lock(&other), "the commit may be one of this key");
    }
}
