//! Runs a function as a transaction until its commit meets no conflict.

use std::hash::BuildHasher;

use pando_format::cast::u32_of;
use pando_sync::thread;
use pando_sync::time::{self, Duration};
use rapidhash::fast::RandomState;

use crate::api::db::Db;
use crate::error::Result;
use crate::transaction::handle::Transaction;
use crate::transaction::options::TransactionOptions;
use crate::transaction::precedence::Precedence;

/// The pause after the second conflict; twice as long after each further one.
const PAUSE_LEAST: Duration = Duration::from_micros(50);
/// The longest pause.
const PAUSE_MOST: Duration = Duration::from_millis(10);

impl Db {
    /// Runs `f` as a serializable transaction, commits it, and returns what `f` has returned. After
    /// a conflict it is run again from the beginning, with a new transaction, after a pause that
    /// grows up to 10 ms: so `f` may run often, and whatever else it does, it does each time. An
    /// error of `f` ends the transaction without a commit; [`crate::Error::aborted`] makes one for
    /// reasons of its own.
    ///
    /// Beside others who keep changing what `f` reads, faster than it runs, it gets precedence:
    /// from the fifth conflict on it locks the keys that it has lost before it runs `f` again, and
    /// from the eighth on commits of others into the tables that it has touched wait while it runs.
    /// So it ends, unless `f` takes longer than [`crate::Builder::lock_timeout`]: then it may
    /// return the conflict. If `f` writes to these tables in another way, by a [`crate::Table`] or
    /// another transaction, it waits for itself for as long; if it changes what it reads, it never
    /// succeeds, and returns a conflict or [`crate::Error::LockTimeout`].
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let (people, by_city) = (db.table("people")?, db.table("by city")?);
    /// // A secondary index that is always right, whoever else writes.
    /// let moved = |person: &[u8], city: &[u8]| {
    ///     db.transact(|transaction| {
    ///         if let Some(old) = transaction.get(&people, person)? {
    ///             transaction.delete(&by_city, &[&old[..], b"/", person].concat())?;
    ///         }
    ///         transaction.put(&people, person, city)?;
    ///         transaction.put(&by_city, &[city, b"/", person].concat(), b"")
    ///     })
    /// };
    /// moved(b"alice", b"Rome")?;
    /// moved(b"alice", b"Oslo")?;
    /// let keys = by_city.iter().map(|entry| Ok(entry?.0));
    /// let keys: Vec<Vec<u8>> = keys.collect::<Result<_, pandodb::Error>>()?;
    /// assert_eq!(keys, [b"Oslo/alice"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `f`, and of [`Transaction::commit`], conflicts only as said above.
    /// [`crate::Error::LockTimeout`] if the commit writes a key that somebody else has locked for
    /// too long.
    pub fn transact<T>(&self, f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(TransactionOptions::default(), f)
    }

    /// As [`Db::transact`], with options.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub fn transact_with<T>(
        &self,
        options: TransactionOptions,
        mut f: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut precedence = Precedence::default();
        loop {
            let mut transaction = precedence.begin(self, options)?;
            match f(&mut transaction) {
                Ok(value) => match transaction.commit_in_place() {
                    Ok(_) => return Ok(value),
                    Err(error) => precedence.note_commit(&transaction, error)?,
                },
                Err(error) => precedence.note_run(&transaction, error)?,
            }
            // With its locks: nobody waits for them any longer.
            drop(transaction);
            pause(precedence.conflicts() - 1);
        }
    }
}

/// Pauses after a conflict, with `conflicts` before it: at random for a half to all of a time that
/// doubles, so that two do not meet again and again.
fn pause(conflicts: u32) {
    let Some(doubled) = conflicts.checked_sub(1) else {
        return thread::yield_now();
    };
    let pause = (PAUSE_LEAST * (1 << doubled.min(8))).min(PAUSE_MOST);
    let random = RandomState::default().hash_one(time::now()) % 128;
    thread::park_timeout(pause * (128 + u32_of(random)) / 256);
}
