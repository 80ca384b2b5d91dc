//! What a transaction gets that meets conflicts again and again: first the locks of the keys that
//! it has lost, then the tables that it touches for itself.
//!
//! Conflicts tell who was slower, so a long transaction beside short ones may lose for ever. With
//! the keys locked, nobody can write them; but a conflict by a range has no key that is known
//! before. So a transaction that still loses gets the *turn*, which one has at a time, first come,
//! first served, and commits of others into all tables that it has touched so far wait until it has
//! ended. A table that it touches for the first time may cost one more run. All these locks end
//! after the lock timeout of the store, so that others get on; whoever has had its turn for that
//! time, and conflicts, gets the conflict.

use std::collections::BTreeSet;

use pando_sync::Arc;
use pando_sync::time::{self, Duration, Instant};

use crate::api::db::Db;
use crate::error::{Error, Result};
use crate::locks::{LockOwner, OwnerId, OwnerKind};
use crate::tables::state::TableState;
use crate::transaction::handle::Transaction;
use crate::transaction::options::TransactionOptions;

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
        if self.conflicts < CONFLICTS_BEFORE_LOCKS {
            return db.begin_as(options, None, self.age);
        }
        let engine = db.engine();
        let (kind, patience) = (OwnerKind::Transaction, options.lock_timeout);
        let mut owner = Box::new(engine.lock_owner(kind, patience, self.age));
        let locked = match self.conflicts < CONFLICTS_BEFORE_TURN {
            true => self.lock_keys(db, &mut owner),
            false => self.take_turn(db, &mut owner),
        };
        match locked {
            // It has lost what it had of locks, or has not got all. It may succeed without.
            Err(error @ (Error::Deadlock { .. } | Error::LockTimeout { .. })) => {
                engine.count_lock_error(&error);
            }
            other => other?,
        }
        db.begin_as(options, Some(owner), self.age)
    }

    /// Returns whether the present run has its turn.
    pub(crate) fn has_turn(&self) -> bool {
        self.has_turn
    }

    fn lock_keys(&self, db: &Db, owner: &mut LockOwner) -> Result<()> {
        let engine = db.engine();
        let at_most = Some(engine.options.lock_timeout);
        for (table, key) in &self.keys {
            let state = &self.tables[*table];
            match engine.block(|_| engine.try_lock_key(owner, state, key, at_most)) {
                Ok(_) | Err(Error::NoSuchTable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the turn. It waits in the queue for as long as that takes.
    fn take_turn(&mut self, db: &Db, owner: &mut LockOwner) -> Result<()> {
        let engine = db.engine();
        let at_most = engine.options.lock_timeout;
        let patience = owner.set_patience(Duration::MAX);
        let locked = engine.lock_tables(owner, &self.tables, at_most);
        owner.set_patience(patience);
        locked?;
        self.has_turn = true;
        self.turn_ends = time::now().checked_add(at_most);
        Ok(())
    }

    /// Notes that a run has ended with `conflict`. After a lock timeout the next run has its turn.
    ///
    /// # Errors
    /// The conflict, if the run has had its turn and has outlasted it: another would, too.
    pub(crate) fn note(&mut self, transaction: &Transaction, conflict: Error) -> Result<()> {
        self.conflicts += 1;
        let engine = transaction.db.engine();
        self.age.get_or_insert_with(|| engine.locks.new_owner());
        self.has_turn = false;
        let turn_ends = self.turn_ends.take();
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
