//! Commits as futures. Nothing is written before the first poll; what was committed stays, even if
//! the future is dropped before the commit is durable.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use pando_format::Lsn;
use pando_sync::atomic::AtomicBool;
use pando_sync::{Arc, Mutex, Rank};
use pando_wal::Acknowledge;

use crate::api::batch::Batch;
use crate::api::db::Db;
use crate::api::table::Table;
use crate::commit::check::Check;
use crate::commit::key_locks::CommitLocks;
use crate::commit::outcome::Outcome;
use crate::commit::scratch::CommitScratch;
use crate::engine::{Engine, Shared};
use crate::error::Result;
use crate::futures::given_up::GivenUp;
use crate::futures::key::Key;
use crate::futures::{Next, TURNS_MAX, Waits};
use crate::locks::LockWait;
use crate::options::WriteOptions;
use crate::state::helper::Answer;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::set::WriteSet;

/// A batch on its way to its commit.
#[derive(Debug, Default)]
struct Work {
    set: WriteSet,
    scratch: CommitScratch,
    locks: CommitLocks,
    /// A key to be deleted if it exists; `set` then follows from the look at it.
    look: Option<(Arc<TableState>, Key)>,
    /// The key was found, and `set` has the delete.
    looked: bool,
    /// Set once its future is dropped; None if it has never left it.
    given_up: Option<Arc<AtomicBool>>,
}

/// How a batch ended.
#[derive(Debug, Clone, Copy)]
struct CommitEnd {
    /// The LSN to wait for in the log, if the caller wants that: of the batch, or of what it has
    /// read.
    lsn: Option<Lsn>,
    /// The key of the delete existed.
    existed: bool,
}

/// What the helper has done.
#[derive(Debug, Clone)]
enum Helped {
    Ended(CommitEnd),
    /// Nobody waits for a lock in the helper's thread, where others wait for their turn, perhaps
    /// those who hold it.
    Waits(Arc<Mutex<Option<Box<Work>>>>, Arc<LockWait>),
}

impl Work {
    fn of(set: WriteSet) -> Self {
        Self {
            set,
            ..Self::default()
        }
    }

    /// Makes one attempt; `lent` as in [`Engine::try_commit`]. Returns `None` if something has
    /// changed in between: another attempt makes sense at once.
    fn step(&mut self, engine: &Engine, lent: Option<u64>) -> Step<Option<CommitEnd>> {
        if let Some((state, key)) = &self.look
            && !self.looked
        {
            let found = engine.try_contains_stamped(state, key.bytes(), &mut self.set)?;
            let set = &mut self.set;
            if !found {
                return Ok(Some(CommitEnd {
                    lsn: set.debt.lsn(),
                    existed: false,
                }));
            }
            let table = set.table(state);
            set.write(table, key.bytes(), None);
            self.scratch.reset();
            self.looked = true;
        }
        if let Some(flag) = &self.given_up {
            let expects = self.set.expect_unset(flag);
            assert!(expects, "a batch of a future expects nothing else");
        }
        let memory = (&mut self.scratch, &mut self.locks);
        match engine.try_commit(&self.set, memory, lent, Check::Stamps)? {
            Outcome::Committed(lsn) => Ok(Some(CommitEnd { lsn, existed: true })),
            Outcome::Conflict { .. } => {
                self.set.check_flag()?;
                self.looked = false;
                if self.look.is_none() {
                    self.set.refresh_trees()?;
                }
                self.scratch.reset();
                Ok(None)
            }
        }
    }

    /// Runs it to its end, or until it has to wait for a lock. Blocks.
    fn run(mut self, engine: &Engine) -> Result<Helped> {
        loop {
            let end = engine.block(|blocked| {
                let writes = self.set.len().max(1);
                let end = self.step(engine, blocked.lend(writes));
                blocked.wanted.append(&mut self.scratch.wanted);
                match end {
                    Err(Unfinished::Wait(WaitReason::Lock(wait))) => Ok(Err(wait)),
                    other => other.map(Ok),
                }
            })?;
            match end {
                Ok(Some(end)) => return Ok(Helped::Ended(end)),
                Ok(None) => {}
                Err(wait) => {
                    let work = Arc::new(Mutex::new(Rank::Leaf, Some(Box::new(self))));
                    return Ok(Helped::Waits(work, wait));
                }
            }
        }
    }
}

#[expect(
    clippy::large_enum_variant,
    reason = "an operation has one of these: a box would only add an allocation"
)]
/// Phases of a pending write, in order: either [`CommitPhase::Commit`] alone or the helper commits.
#[derive(Debug)]
enum CommitPhase {
    Commit(Work),
    /// The helper has it.
    Helped(Arc<Answer<Helped>>),
    /// Committed; the future waits for the log.
    Durable(CommitEnd),
    Ended,
}

#[derive(Debug)]
struct PendingWrite {
    engine: Shared,
    phase: CommitPhase,
    waits: Waits,
    /// What is told to a helper that has the commit, or has had it.
    given_up: Option<GivenUp>,
    /// The future ends when the commit is durable, and not before.
    durable: bool,
}

impl PendingWrite {
    fn new(db: &Db, mut work: Work, options: WriteOptions) -> Self {
        let engine = db.engine().clone();
        work.set.durability = options.durability;
        Self {
            phase: CommitPhase::Commit(work),
            waits: Waits::default(),
            given_up: None,
            durable: engine.acknowledge(options.durability) == Acknowledge::WhenDurable,
            engine,
        }
    }

    /// Returns true if the key of a delete existed.
    fn poll(&mut self, waker: &Waker) -> Poll<Result<bool>> {
        let result = self.poll_phases(waker);
        if result.is_ready() {
            self.phase = CommitPhase::Ended;
        }
        result
    }

    /// Hands the commit to the helper, which gives it up if this future is dropped.
    fn ask_for_help(&mut self, mut work: Work) {
        let given_up = self.given_up.get_or_insert_default();
        work.given_up = Some(given_up.flag().clone());
        let shared = self.engine.clone();
        let answer = self.engine.helper.ask(move |engine| {
            Engine::spill(&shared, &mut work.set)?;
            work.scratch.reset();
            work.run(engine)
        });
        self.phase = CommitPhase::Helped(answer);
    }

    /// As [`PendingWrite::poll`], for as many phases as end now.
    fn poll_phases(&mut self, waker: &Waker) -> Poll<Result<bool>> {
        if let Some(error) = self.waits.failure(&self.engine) {
            return Poll::Ready(Err(error));
        }
        for _ in 0..TURNS_MAX {
            let end = match &mut self.phase {
                CommitPhase::Commit(work) => {
                    let is_long = work
                        .set
                        .first_longer(self.engine.plain_bytes_max())
                        .is_some();
                    let next = match is_long {
                        // Its chunks have to be written before the commit, and writing them blocks.
                        true => Next::AskForHelp,
                        false => self.waits.arrange(&self.engine, waker)?,
                    };
                    match next {
                        Next::Try => {}
                        Next::Wait => return Poll::Pending,
                        Next::AskForHelp => {
                            let work = std::mem::take(work);
                            self.ask_for_help(work);
                            continue;
                        }
                    }
                    let step = work.step(&self.engine, None);
                    for page in work.scratch.wanted.drain(..) {
                        self.engine.reads.request(page);
                    }
                    match step {
                        Ok(Some(end)) => end,
                        Ok(None) => continue,
                        Err(Unfinished::Error(error)) => return Poll::Ready(Err(error)),
                        Err(Unfinished::Wait(reason)) => {
                            self.waits.reason = Some(reason);
                            continue;
                        }
                    }
                }
                CommitPhase::Helped(answer) => match answer.poll(waker)? {
                    Poll::Ready(Helped::Ended(end)) => end,
                    Poll::Ready(Helped::Waits(work, wait)) => {
                        let work = work.lock().take().expect("one future takes it");
                        self.phase = CommitPhase::Commit(*work);
                        self.waits = Waits::default();
                        self.waits.reason = Some(WaitReason::Lock(wait));
                        continue;
                    }
                    Poll::Pending => return Poll::Pending,
                },
                CommitPhase::Durable(end) => {
                    let lsn = end.lsn.expect("only what was written waits for the log");
                    if self.engine.when_durable(lsn, waker)? {
                        return Poll::Ready(Ok(end.existed));
                    }
                    return Poll::Pending;
                }
                CommitPhase::Ended => panic!("a future ends once"),
            };
            if end.lsn.is_none() || !self.durable {
                return Poll::Ready(Ok(end.existed));
            }
            self.phase = CommitPhase::Durable(end);
        }
        waker.wake_by_ref();
        Poll::Pending
    }
}

/// A commit; see [`Db::write_async`].
#[derive(Debug)]
#[must_use = "nothing is written unless it is polled"]
pub struct WriteAsync(PendingWrite);

impl Future for WriteAsync {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context.waker()).map(|result| result.map(drop))
    }
}

/// See [`Table::delete_async`].
#[derive(Debug)]
#[must_use = "nothing is deleted unless it is polled"]
pub struct DeleteAsync(PendingWrite);

impl Future for DeleteAsync {
    type Output = Result<bool>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context.waker())
    }
}

impl Db {
    /// Commits a batch as [`Db::write`] does, and ends when it is as durable as asked. If the
    /// future is dropped before its end, the batch has happened as a whole or not at all: it comes
    /// after nothing that is written to its keys from then on. Never blocks, except for pages of
    /// the change itself once the batch is in the log.
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn write_async(&self, batch: Batch, options: WriteOptions) -> WriteAsync {
        WriteAsync(PendingWrite::new(self, Work::of(batch.set), options))
    }
}

impl Table {
    /// Sets `key` to `value`: as [`Db::write_async`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn put_async(&self, key: &[u8], value: &[u8]) -> WriteAsync {
        let mut batch = Batch::new();
        batch.put(self, key, value);
        self.db.write_async(batch, WriteOptions::default())
    }

    /// Removes `key`; true if it existed. As [`Db::write_async`].
    ///
    /// # Errors
    /// As [`Db::write`].
    pub fn delete_async(&self, key: &[u8]) -> DeleteAsync {
        let key = Key::new(self.db.engine(), key);
        let work = Work {
            look: Some((self.state.clone(), key)),
            ..Work::default()
        };
        DeleteAsync(PendingWrite::new(&self.db, work, WriteOptions::default()))
    }
}
