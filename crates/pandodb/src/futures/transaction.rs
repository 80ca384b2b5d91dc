//! The calls of transactions as futures.
//!
//! A transaction keeps its store open, and so do its futures. The helper must not be the last to do
//! so, since it would wait for itself: what it is handed of a transaction has no handle of the
//! store.

use pando_format::{Lsn, PageId};
use pando_wal::Acknowledge;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::commit::scratch::CommitScratch;
use crate::engine::{Engine, Shared};
use crate::error::Result;
use crate::futures::drive::{Driven, answer_of, drive, drive_alone, durable, yield_once};
use crate::futures::given_up::GivenUp;
use crate::read::at::ReadAt;
use crate::transaction::commit::{CommitRun, PendingCommit};
use crate::transaction::handle::Transaction;
use crate::transaction::options::TransactionOptions;
use crate::transaction::precedence::Precedence;

impl Transaction {
    /// As [`Transaction::get`]. Blocks for a moment at most, if it is the first read and there was
    /// no snapshot for a while.
    ///
    /// # Errors
    /// As [`Transaction::get`].
    pub async fn get_async(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check_store(table)?;
        let engine = table.db.engine();
        let (mut work, mut out) = (ReadAt::default(), Vec::new());
        let driven = drive(engine, |wanted| {
            let read = self.try_get(table, key, &mut work, &mut out);
            wanted.append(&mut work.reader.wanted);
            read
        });
        if let Driven::Ended((found, debt)) = driven.await? {
            if let Some(lsn) = debt.lsn() {
                durable(engine, lsn).await?;
            }
            return Ok(found.then_some(out));
        }
        let Some(snapshot) = &self.snapshot else {
            return table.get_async(key).await;
        };
        let found = snapshot.get_async(table, key).await;
        let found = found.map_err(|error| self.of_failed_read(table, error))?;
        self.note_read(table, key)?;
        Ok(found)
    }

    /// As [`Transaction::lock`]. Never blocks. If the future is dropped, it keeps the locks that it
    /// has got.
    ///
    /// # Errors
    /// As [`Transaction::lock`].
    pub async fn lock_async(&mut self, table: &Table, keys: &[&[u8]]) -> Result<()> {
        let keys = self.begin_lock(table, keys)?;
        for key in keys {
            drive_alone(table.db.engine(), || self.try_lock_key(table, key)).await?;
        }
        Ok(())
    }

    /// As [`Transaction::get_for_update`], by [`Transaction::lock_async`] and
    /// [`Transaction::get_async`].
    ///
    /// # Errors
    /// As [`Transaction::get_for_update`].
    pub async fn get_for_update_async(
        &mut self,
        table: &Table,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.lock_async(table, &[key]).await?;
        self.get_async(table, key).await
    }

    /// As [`Transaction::commit`]; it ends when the commit is as durable as asked. If the future is
    /// dropped before its end, the transaction was committed as a whole, or not at all. Never
    /// blocks, except for pages of the change itself once it is in the log, and, if ranges or very
    /// many keys were read, for commits that are being applied.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub async fn commit_async(mut self) -> Result<Option<Lsn>> {
        self.commit_in_place_async().await
    }

    async fn commit_in_place_async(&mut self) -> Result<Option<Lsn>> {
        self.check_usable()?;
        if self.set.is_read_only() {
            return Ok(None);
        }
        let engine: Shared = self.db.engine().clone();
        let durability = self.options.write.durability;
        let debt = self.set.debt;
        let mut commit = Box::new(self.take_commit());
        let mut given_up: Option<GivenUp> = None;
        let lsn = loop {
            let is_long = commit.set.first_longer(engine.plain_bytes_max()).is_some();
            let driven = match is_long {
                // Its chunks have to be written before the commit, and writing them blocks.
                true => Driven::NeedsHelp,
                false => {
                    let step = |wanted: &mut Vec<PageId>| {
                        let step = commit.step(&engine, None);
                        wanted.append(&mut commit.scratch.wanted);
                        step
                    };
                    drive(&engine, step).await?
                }
            };
            if let Driven::Ended(lsn) = driven {
                break lsn;
            }
            let given_up = given_up.get_or_insert_default();
            let expects = commit.set.expect_unset(given_up.flag());
            assert!(expects, "a transaction expects nothing else");
            let shared = engine.clone();
            let answer = engine.helper.ask(move |engine: &Engine| {
                Engine::spill(&shared, &mut commit.set)?;
                commit.scratch.reset();
                commit.run(engine)
            });
            match answer_of(answer).await? {
                CommitRun::Ended(lsn) => break lsn,
                CommitRun::Waits(back) => commit = back,
            }
        };
        let owed = match engine.acknowledge(durability) {
            Acknowledge::WhenDurable => lsn,
            Acknowledge::AtOnce => debt.lsn(),
        };
        if let Some(owed) = owed {
            durable(&engine, owed).await?;
        }
        Ok(lsn)
    }

    /// Takes out what its commit works on.
    fn take_commit(&mut self) -> PendingCommit {
        self.end_reads();
        self.set.durability = self.options.write.durability;
        if let Some(owner) = &mut self.locks.owner {
            owner.begin_call();
        }
        let set = std::mem::take(&mut self.set);
        // Which tables it has touched is asked for after a conflict.
        self.set.tables.clone_from(&set.tables);
        PendingCommit {
            isolation: self.options.isolation,
            snapshot: self
                .snapshot
                .take()
                .map(|snapshot| snapshot.of_transaction().clone()),
            reads: std::mem::take(&mut self.reads),
            set,
            locks: std::mem::take(&mut self.locks),
            scratch: CommitScratch::default(),
            counted: std::mem::take(&mut self.counted),
        }
    }
}

impl Db {
    /// As [`Db::transact`], for an async closure whose calls are those of [`Transaction`] that end
    /// with `_async`, besides [`Transaction::put`] and others that never block. Between two runs it
    /// lets other tasks run once, and does not pause. For an executor that moves tasks between
    /// threads, let the closure own what it uses (`async move`): the compiler cannot see that a
    /// future is `Send` whose closure borrows.
    ///
    /// ```
    /// # fn main() -> Result<(), pandodb::Error> {
    /// # let db = pandodb::Db::builder().open_in_memory()?;
    /// # let counters = db.table("counters")?;
    /// # let work = async {
    /// let visits = db
    ///     .transact_async(async |transaction| {
    ///         let old = transaction.get_async(&counters, b"visits").await?;
    ///         let visits = old.map_or(0, |old| old[0]) + 1;
    ///         transaction.put(&counters, b"visits", &[visits])?;
    ///         Ok(visits)
    ///     })
    ///     .await?;
    /// # assert_eq!(visits, 1);
    /// # Ok::<(), pandodb::Error>(())
    /// # };
    /// # let mut work = std::pin::pin!(work);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # while work.as_mut().poll(&mut context)?.is_pending() {
    /// #     std::thread::yield_now();
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact_async<T>(
        &self,
        f: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_async_with(TransactionOptions::default(), f)
            .await
    }

    /// As [`Db::transact_async`], with options.
    ///
    /// # Errors
    /// As [`Db::transact`].
    pub async fn transact_async_with<T>(
        &self,
        options: TransactionOptions,
        mut f: impl AsyncFnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let engine = self.engine();
        let mut precedence = Precedence::default();
        loop {
            let mut owner = precedence.owner(engine, options);
            let taken = match &mut owner {
                Some(owner) => drive_alone(engine, || precedence.try_take(engine, owner)).await,
                None => Ok(()),
            };
            let mut transaction = precedence.begin_with(self, options, (owner, taken))?;
            match f(&mut transaction).await {
                Ok(value) => match transaction.commit_in_place_async().await {
                    Ok(_) => return Ok(value),
                    Err(error) => precedence.note_commit(&transaction, error)?,
                },
                Err(error) => precedence.note_run(&transaction, error)?,
            }
            // With its locks: nobody waits for them any longer.
            drop(transaction);
            yield_once().await;
        }
    }
}
