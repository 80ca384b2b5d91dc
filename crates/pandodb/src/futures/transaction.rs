//! The calls of transactions and snapshots as futures.
//!
//! A transaction keeps its store open, and so do its futures. The helper must not be the last to do
//! so, since it would wait for itself: what it is handed of a transaction has no handle of the
//! store.

use std::future::poll_fn;
use std::task::Poll;

use pando_format::{Lsn, PageId};
use pando_sync::Arc;
use pando_wal::Acknowledge;

use crate::api::db::Db;
use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::commit::scratch::CommitScratch;
use crate::engine::{Engine, Shared};
use crate::error::{Error, Result};
use crate::futures::{Next, TURNS_MAX, Waits};
use crate::read::at::{FoundAt, ReadAt};
use crate::state::helper::Answer;
use crate::transaction::commit::{CommitRun, PendingCommit};
use crate::transaction::handle::Transaction;
use crate::transaction::options::TransactionOptions;
use crate::transaction::precedence::Precedence;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// How far a step has come without help.
enum Driven<T> {
    Ended(T),
    /// Its pages are evicted again and again, or it has to read chunks.
    NeedsHelp,
}

/// Makes attempts at `step` until it ends, and hands it the list of the further pages that it
/// wants.
async fn drive<T>(
    engine: &Engine,
    mut step: impl FnMut(&mut Vec<PageId>) -> Step<T>,
) -> Result<Driven<T>> {
    let mut waits = Waits::default();
    let mut wanted = Vec::new();
    poll_fn(move |context| {
        if let Some(error) = waits.failure(engine) {
            return Poll::Ready(Err(error));
        }
        for _ in 0..TURNS_MAX {
            match waits.arrange(engine, context.waker())? {
                Next::Try => {}
                Next::Wait => return Poll::Pending,
                Next::AskForHelp => return Poll::Ready(Ok(Driven::NeedsHelp)),
            }
            match step(&mut wanted) {
                Ok(value) => return Poll::Ready(Ok(Driven::Ended(value))),
                Err(Unfinished::Error(error)) => return Poll::Ready(Err(error)),
                Err(Unfinished::Wait(reason)) => waits.reason = Some(reason),
            }
            for page in wanted.drain(..) {
                engine.reads.request(page);
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// As [`drive`], for a step that reads no pages: it needs no help.
async fn drive_alone<T>(engine: &Engine, mut step: impl FnMut() -> Step<T>) -> Result<T> {
    loop {
        if let Driven::Ended(value) = drive(engine, |_| step()).await? {
            return Ok(value);
        }
    }
}

async fn answer_of<T>(answer: Arc<Answer<T>>) -> Result<T> {
    poll_fn(|context| answer.poll(context.waker())).await
}

/// Waits until the record of `lsn` is durable.
async fn durable(engine: &Engine, lsn: Lsn) -> Result<()> {
    poll_fn(|context| match engine.when_durable(lsn, context.waker()) {
        Ok(true) => Poll::Ready(Ok(())),
        Ok(false) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    })
    .await
}

/// Has the helper read `key` at `snapshot`.
async fn read_with_help(snapshot: &Snapshot, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let registration = snapshot.register_again()?.ok_or(Error::SnapshotEnded)?;
    let (state, key) = (table.state.clone(), key.to_vec());
    let answer = table.db.engine().helper.ask(move |engine: &Engine| {
        let (mut work, mut out) = (ReadAt::default(), Vec::new());
        let found = engine.read_at(&registration, &state, &key, &mut work, &mut out)?;
        Ok(found.then_some(out))
    });
    answer_of(answer).await
}

impl Snapshot {
    /// As [`Snapshot::get`]. Never blocks.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn get_async(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        // Checks that the table is of this store.
        self.tree_of(table)?;
        if self.settled().is_none() {
            let read = self.get_async_in_memory(table, key).await;
            if !matches!(read, Err(Error::SnapshotEnded)) {
                return read;
            }
        }
        let settled = self.settled().ok_or(Error::SnapshotEnded)?;
        let (tree, key) = (self.tree_of(table)?, key.to_vec());
        let answer = table.db.engine().helper.ask(move |engine: &Engine| {
            let mut out = Vec::new();
            let found = settled.get(tree, &key, &mut out)?;
            engine.count_get();
            Ok(found.then_some(out))
        });
        answer_of(answer).await
    }

    /// As [`Snapshot::get_async`], for one that is not settled.
    async fn get_async_in_memory(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let engine = table.db.engine();
        let (mut work, mut out) = (ReadAt::default(), Vec::new());
        let driven = drive(engine, |wanted| {
            let read =
                engine.try_read_at(self.registration(), &table.state, key, &mut work, &mut out);
            wanted.append(&mut work.reader.wanted);
            match read? {
                (FoundAt::Nothing, debt) => Ok((false, debt)),
                (FoundAt::Value, debt) => Ok((true, debt)),
                (FoundAt::Chunks(_), _) => Err(WaitReason::Chunks.into()),
            }
        });
        let Driven::Ended((found, debt)) = driven.await? else {
            return read_with_help(self, table, key).await;
        };
        engine.count_get();
        if let Some(lsn) = debt.lsn() {
            durable(engine, lsn).await?;
        }
        Ok(found.then_some(out))
    }
}

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
        let found = found.map_err(|error| self.unless_made_since(table, error))?;
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

/// Lets other tasks run.
async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
