//! What a transaction gets that meets conflicts again and again: first the locks of the keys that
//! it has lost, then the tables that it touches for itself.
//!
//! Conflicts tell who was slower, so a long transaction beside short ones may lose for ever. With
//! the keys locked, nobody can write them; but a conflict by a range has no key that is known
//! before. So a transaction that still loses gets the *turn*, which one has at a time, first come,
//! first served, and commits of others into all tables that it has touched so far wait until it has
//! ended. A table that it touches for the first time may cost one more run. All these locks end
//! after the lock timeout of the store, so that others get on, but for keys that the transaction
//! locks itself; whoever has had its turn for that time, and conflicts, gets the conflict.

use std::collections::BTreeSet;

use pando_sync::Arc;
use pando_sync::time::{self, Duration, Instant};

use crate::api::db::Db;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::locks::{LockOwner, OwnerId, OwnerKind};
use crate::tables::state::TableState;
use crate::transaction::handle::Transaction;
use crate::transaction::options::TransactionOptions;
use crate::wait::reason::{Step, Unfinished};

/// From as many conflicts on, a transaction locks what it has lost before it runs.
const CONFLICTS_BEFORE_LOCKS: u32 = 5;
/// From as many conflicts on, it runs while nobody else commits into its tables.
const CONFLICTS_BEFORE_TURN: u32 = 8;
/// Most keys that are locked for it.
const KEYS_MAX: usize = 1024;
/// A transaction with as many conflicts is worth a line in the log.
const CONFLICTS_MANY: u32 = 100;

/// The conflicts of one transaction so far, over all of its runs.
#[derive(Debug, Default)]
pub(crate) struct Precedence {
    conflicts: u32,
    /// Whose age counts when transactions wait for each other: that of the first conflict.
    age: Option<OwnerId>,
    /// The keys that it has lost, each with the number of its table in `tables`.
    keys: BTreeSet<(usize, Vec<u8>)>,
    /// All tables that it has touched.
    tables: Vec<Arc<TableState>>,
    /// Number of the keys that the next run has locked.
    locked: usize,
    /// How long the calls of its owner wait, while that waits for its turn.
    patience: Option<Duration>,
    /// The present run has its turn.
    has_turn: bool,
    /// When that ends, if ever.
    turn_ends: Option<Instant>,
}

impl Precedence {
    /// Number of conflicts so far.
    pub(crate) fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Begins the next run, with the locks that it has from its beginning. Blocks for those of
    /// others.
    ///
    /// # Errors
    /// [`Error::Closed`], and those of [`Db::begin`].
    pub(crate) fn begin(&mut self, db: &Db, options: TransactionOptions) -> Result<Transaction> {
        let engine = db.engine();
        let mut owner = self.owner(engine, options);
        let taken = match &mut owner {
            Some(owner) => engine.block(|_| self.try_take(engine, owner)),
            None => Ok(()),
        };
        self.begin_with(db, options, (owner, taken))
    }

    /// Returns who takes the locks of the next run, if it is to have any.
    pub(crate) fn owner(
        &mut self,
        engine: &Engine,
        options: TransactionOptions,
    ) -> Option<Box<LockOwner>> {
        self.locked = 0;
        if self.conflicts < CONFLICTS_BEFORE_LOCKS {
            return None;
        }
        let (kind, patience) = (OwnerKind::Transaction, options.lock_timeout);
        let mut owner = Box::new(engine.lock_owner(kind, patience, self.age));
        if self.wants_turn() {
            // It waits in the queue for as long as that takes.
            assert_eq!(self.patience, None, "the run before has its patience back");
            self.patience = Some(owner.set_patience(Duration::MAX));
        }
        Some(owner)
    }

    fn wants_turn(&self) -> bool {
        self.conflicts >= CONFLICTS_BEFORE_TURN
    }

    /// Takes the locks, as far as need be, for `owner`.
    pub(crate) fn try_take(&mut self, engine: &Engine, owner: &mut LockOwner) -> Step<()> {
        let at_most = engine.options.lock_timeout;
        if self.wants_turn() {
            engine.try_lock_tables(owner, &self.tables, at_most)?;
            self.has_turn = true;
            self.turn_ends = time::now().checked_add(at_most);
            return Ok(());
        }
        assert!(
            self.locked <= self.keys.len(),
            "more is locked than was lost"
        );
        for (table, key) in self.keys.iter().skip(self.locked) {
            let state = &self.tables[*table];
            match engine.try_lock_key(owner, state, key, Some(at_most)) {
                Ok(_) | Err(Unfinished::Error(Error::NoSuchTable { .. })) => self.locked += 1,
                Err(stopped) => return Err(stopped),
            }
        }
        Ok(())
    }

    /// Begins the next run with what it has got of locks.
    ///
    /// # Errors
    /// As [`Precedence::begin`].
    pub(crate) fn begin_with(
        &mut self,
        db: &Db,
        options: TransactionOptions,
        (mut owner, taken): (Option<Box<LockOwner>>, Result<()>),
    ) -> Result<Transaction> {
        if let (Some(owner), Some(patience)) = (&mut owner, self.patience.take()) {
            owner.set_patience(patience);
        }
        match taken {
            // It has lost what it had of locks, or has not got all. It may succeed without.
            Err(error @ (Error::Deadlock { .. } | Error::LockTimeout { .. })) => {
                db.engine().count_lock_error(&error);
            }
            other => other?,
        }
        db.begin_as(options, owner, self.age)
    }

    /// Notes that the commit of a run has ended with `error`.
    ///
    /// # Errors
    /// The error, if another run would not help.
    pub(crate) fn note_commit(&mut self, transaction: &Transaction, error: Error) -> Result<()> {
        match error {
            // Perhaps others have precedence at the moment.
            Error::LockTimeout { .. } if !self.has_turn => self.note(transaction, error),
            error if error.is_conflict() => self.note(transaction, error),
            error => Err(error),
        }
    }

    /// Notes that the function has ended with `error`.
    ///
    /// # Errors
    /// The error, if another run would not help.
    pub(crate) fn note_run(&mut self, transaction: &Transaction, error: Error) -> Result<()> {
        match error {
            Error::Conflict { .. } | Error::Deadlock { .. } => self.note(transaction, error),
            // Another snapshot that the function reads stays ended, however often it is run.
            Error::SnapshotEnded if transaction.is_ended() => self.note(transaction, error),
            error => Err(error),
        }
    }

    /// Notes that a run has ended with `conflict`. After a lock timeout the next run has its turn.
    ///
    /// # Errors
    /// The conflict, if the run has had its turn and has outlasted it: another would, too.
    fn note(&mut self, transaction: &Transaction, conflict: Error) -> Result<()> {
        self.conflicts += 1;
        let engine = transaction.db.engine();
        self.age.get_or_insert_with(|| engine.locks.new_owner());
        let turn_ends = self.turn_ends.take();
        assert!(
            self.has_turn || turn_ends.is_none(),
            "a turn ends that was not had"
        );
        self.has_turn = false;
        if turn_ends.is_some_and(|ends| ends <= time::now()) {
            return Err(conflict);
        }
        if self.conflicts == CONFLICTS_MANY {
            let conflicts = self.conflicts;
            tracing::warn!(conflicts, "a transaction meets conflicts again and again");
        }
        for table in &transaction.set.tables {
            let is_known = |known: &Arc<TableState>| Arc::ptr_eq(known, &table.state);
            if !self.tables.iter().any(is_known) {
                self.tables.push(table.state.clone());
            }
        }
        if matches!(conflict, Error::LockTimeout { .. }) {
            self.conflicts = self.conflicts.max(CONFLICTS_BEFORE_TURN);
        }
        if let Error::Conflict {
            table,
            key: Some(key),
            ..
        } = conflict
            && self.keys.len() < KEYS_MAX
        {
            // A table that was dropped and made again has the same name as before.
            let is_it = |known: &Arc<TableState>| *known.name == *table && known.tree().is_some();
            let place = self.tables.iter().position(is_it);
            self.keys.extend(place.map(|place| (place, key)));
        }
        Ok(())
    }
}
