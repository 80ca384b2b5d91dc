//! Locks of the keys that a transaction at READCOMMITTED writes, which checks no reads.
//!
//! The row of a key says what belongs to it in other tables: elements, pieces, an expiry entry. Who
//! replaces the row, or changes what belongs to it, must know at his commit that it is still the
//! row that he has read; at the other levels a conflict tells. So a command that writes locks its
//! keys before it reads them. A key that only shows itself later, such as that behind STORE of
//! SORT, is locked when its row is written, and the command begins again.

use pandodb::Isolation;
use pandodb::nonblocking::{Polled, Transaction};

use super::{Context, Flags, Interrupted, Run};

impl Context<'_> {
    /// Returns the transaction that the command is a step of, if that checks no reads.
    fn unchecked(&mut self) -> Option<&mut Transaction> {
        let batch = self.data().batch.as_deref_mut();
        let transaction = batch.and_then(|batch| batch.transaction());
        transaction.filter(|of| of.isolation() == Isolation::ReadCommitted)
    }

    /// Locks the keys of a command that writes, and first what a run before this one waits for.
    /// Nothing was read yet.
    #[cold]
    pub(super) fn lock_written(&mut self) -> Run {
        if self.exec_index.is_none() {
            self.lock_awaited()?;
        }
        if !self.command.flags.has(Flags::WRITE) || self.unchecked().is_none() {
            return Ok(());
        }
        let folder = self.engine().folder;
        let stored = |key: &[u8]| {
            let mut stored = Vec::new();
            folder.store(key, &mut stored);
            stored
        };
        let mut keys: Vec<_> = self.command.keys.of(self.arguments).map(stored).collect();
        // Whoever locks the same ones takes them in the same order.
        keys.sort_unstable();
        keys.dedup();
        self.lock_keys(keys)?;
        Ok(())
    }

    /// Checks that `key`, whose row is about to be replaced or removed, is locked if it has to be.
    /// If it was not, the command begins again: what it has read may be old.
    #[inline]
    pub(super) fn check_lock(&mut self, key: &[u8]) -> Run {
        match self.session.interactive.is_some() {
            true => self.check_lock_inside(key),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_lock_inside(&mut self, key: &[u8]) -> Run {
        let mut stored = Vec::new();
        self.engine().folder.store(key, &mut stored);
        match self.lock_keys(vec![stored])? {
            true => Err(Interrupted::Yield),
            false => Ok(()),
        }
    }

    /// Locks these rows of the present database, if they have to be. Returns whether any of them
    /// was not locked before. If others have one, the next run waits.
    fn lock_keys(&mut self, keys: Vec<Vec<u8>>) -> Result<bool, Interrupted> {
        let number = self.session.database;
        let database = self.database();
        let Some(transaction) = self.unchecked() else {
            return Ok(false);
        };
        let before = transaction.locks();
        let stored: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        match transaction.lock(&database.keys, &stored)? {
            Polled::Ready(()) => Ok(transaction.locks() != before),
            Polled::Pending(_) => {
                self.progress.to_lock = Some((number, keys));
                Err(Interrupted::Yield)
            }
        }
    }

    /// Locks the keys that a run before this one has not got, before anything is read.
    fn lock_awaited(&mut self) -> Run {
        let Some((number, keys)) = self.progress.to_lock.take() else {
            return Ok(());
        };
        let data = self.data();
        let table = &data.engine.databases[number].keys;
        let batch = data.batch.as_deref_mut();
        let Some(transaction) = batch.and_then(|batch| batch.transaction()) else {
            return Ok(());
        };
        let stored: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let locked = transaction.lock(table, &stored)?;
        // While it waits, nothing else would tell that the client is gone.
        self.progress.waiting = matches!(locked, Polled::Pending(_));
        match locked {
            Polled::Ready(()) => Ok(()),
            Polled::Pending(pending) => {
                self.progress.to_lock = Some((number, keys));
                Err(Interrupted::Pending(pending))
            }
        }
    }
}
