//! Locks of large collections in transactions at READCOMMITTED, which check no reads.
//!
//! The head of a large collection says what its elements are together. A transaction that writes
//! both after it has read the head must know at its commit that the head is still that one; at the
//! other levels a conflict tells. So it locks the key before a command that may write reads it.

use pandodb::Isolation;
use pandodb::nonblocking::Polled;

use super::{Context, Interrupted, Run};

impl Context<'_> {
    /// Checks that the large collection whose row was just read, and whose stored key is in the
    /// scratch, is locked if it has to be. If it is not, the command begins again with a lock.
    #[cold]
    pub(super) fn check_lock(&mut self) -> Run {
        if !self.command.may_write() {
            return Ok(());
        }
        let number = self.session.database;
        let database = self.database();
        let data = self.data();
        let batch = data.batch.as_deref_mut();
        let Some(transaction) = batch.and_then(|batch| batch.transaction()) else {
            return Ok(());
        };
        if transaction.isolation() != Isolation::ReadCommitted {
            return Ok(());
        }
        let stored = &data.scratch.stored[..];
        let before = transaction.locks();
        let to_lock = match transaction.lock(&database.keys, &[stored])? {
            Polled::Ready(()) if transaction.locks() == before => return Ok(()),
            // What was read before the lock may be old.
            Polled::Ready(()) => None,
            Polled::Pending(_) => Some((number, stored.to_vec())),
        };
        self.progress.to_lock = to_lock;
        Err(Interrupted::Yield)
    }

    /// Checks that the value at `key`, which is to get rows of its own, is locked if it has to be:
    /// two transactions that give it some would each leave those of the other behind.
    pub(super) fn check_new(&mut self, key: &[u8]) -> Run {
        if self.session.interactive.is_none() {
            return Ok(());
        }
        let data = self.data();
        data.engine.folder.store(key, &mut data.scratch.stored);
        self.check_lock()
    }

    /// Locks the collection that a run before this one has found, before anything is read.
    #[cold]
    pub(super) fn lock_large(&mut self) -> Run {
        let Some((number, stored)) = self.progress.to_lock.take() else {
            return Ok(());
        };
        let data = self.data();
        let keys = &data.engine.databases[number].keys;
        let batch = data.batch.as_deref_mut();
        let Some(transaction) = batch.and_then(|batch| batch.transaction()) else {
            return Ok(());
        };
        let locked = transaction.lock(keys, &[&stored[..]])?;
        // While it waits, nothing else would tell that the client is gone.
        self.progress.waiting = matches!(locked, Polled::Pending(_));
        match locked {
            Polled::Ready(()) => Ok(()),
            Polled::Pending(pending) => {
                self.progress.to_lock = Some((number, stored));
                Err(Interrupted::Pending(pending))
            }
        }
    }
}
