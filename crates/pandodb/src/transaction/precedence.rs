//! What a transaction gets that meets conflicts again and again: first the locks of the keys that
//! it has lost, then the tables that it touches for itself.
//!
//! Conflicts tell who was slower, so a long transaction beside short ones may lose for ever. With
//! the keys locked, nobody can write them; but a conflict by a range has no key that is known
//! before. So a transaction that still loses gets the *turn*, which one has at a time, and commits
//! of others into all tables that it has touched so far wait until it has ended. A table that it
//! touches for the first time may cost one more run. Others wait for the turn at most as long as
//! for any lock; whoever keeps it longer, and conflicts then, gets the conflict.

use std::collections::BTreeSet;

use pando_sync::Arc;
use pando_sync::time::{self, Instant};

use crate::api::db::Db;
use crate::error::{Error, Result};
use crate::locks::{LockOwner, OwnerId};
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
    /// Whose age counts when transactions wait for each other: that of the first run.
    age: Option<OwnerId>,
    /// The keys that it has lost, each with the number of its table in `tables`.
    keys: BTreeSet<(usize, Vec<u8>)>,
    /// All tables that it has touched.
    tables: Vec<Arc<TableState>>,
    /// When the turn of its present run ends.
    turn_ends: Option<Instant>,
}

impl Precedence {
    /// Number of conflicts so far.
    pub(crate) fn conflicts(&self) -> u32 {
        self.conflicts
    }

    /// Makes the locks that the next run has from its beginning. Blocks for those of others.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]; [`Error::Deadlock`], which counts as a conflict.
    pub(crate) fn locks(
        &mut self,
        db: &Db,
        options: TransactionOptions,
    ) -> Result<Option<Box<LockOwner>>> {
        if self.conflicts < CONFLICTS_BEFORE_LOCKS {
            return Ok(None);
        }
        let engine = db.engine();
        let mut owner = Box::new(engine.lock_owner(options.lock_timeout, self.age));
        self.age = Some(owner.id());
        if self.conflicts >= CONFLICTS_BEFORE_TURN {
            let at_most = engine.options.lock_timeout;
            engine.lock_tables(&mut owner, &self.tables, at_most)?;
            self.turn_ends = Some(time::now() + at_most);
        }
        for (table, key) in &self.keys {
            let state = &self.tables[*table];
            match engine.block(|_| engine.try_lock_key(&mut owner, state, key)) {
                Ok(_) | Err(Error::NoSuchTable { .. }) => {}
                Err(error) => {
                    self.conflicts += u32::from(error.is_conflict());
                    engine.count_lock_error(&error);
                    return Err(error);
                }
            }
        }
        Ok(Some(owner))
    }

    /// Notes that a run has ended with `conflict`.
    ///
    /// # Errors
    /// The conflict, if the run has had its turn and has outlasted it: another would, too.
    pub(crate) fn note(&mut self, transaction: &Transaction, conflict: Error) -> Result<()> {
        self.conflicts += 1;
        if self
            .turn_ends
            .take()
            .is_some_and(|ends| ends <= time::now())
        {
            return Err(conflict);
        }
        if self.conflicts == CONFLICTS_MANY {
            let conflicts = self.conflicts;
            tracing::warn!(conflicts, "a transaction meets conflicts again and again");
        }
        for table in &transaction.set.tables {
            if !self
                .tables
                .iter()
                .any(|known| Arc::ptr_eq(known, &table.state))
            {
                self.tables.push(table.state.clone());
            }
        }
        if let Error::Conflict {
            table,
            key: Some(key),
            ..
        } = conflict
            && self.keys.len() < KEYS_MAX
            && let Some(table) = self.tables.iter().position(|known| *known.name == *table)
        {
            self.keys.insert((table, key));
        }
        Ok(())
    }
}
