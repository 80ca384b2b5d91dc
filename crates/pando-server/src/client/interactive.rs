//! The transaction that a client has begun with PANDO BEGIN.

use crate::notifications::recorded::{Mark, Recorded};
use pando_sync::time::{Duration, Instant};
use pandodb::nonblocking::{Reactor, Transaction};
use pandodb::{Db, Savepoint, TransactionOptions};

use crate::tracking::written::Written;

/// A transaction of several commands of one client.
pub(crate) struct Interactive {
    options: TransactionOptions,
    state: State,
    /// Unix time of its beginning, in milliseconds: its commands decide expiry by it.
    pub(crate) now_ms: u64,
    /// Commands that write are refused.
    pub(crate) is_read_only: bool,
    /// It is rolled back after this time without a command.
    idle: Duration,
    /// When its last command ended, or something of the next one came.
    pub(crate) used: Instant,
    /// Those that ROLLBACK TO can go back to; the first one has number 1.
    savepoints: Vec<(Savepoint, Mark)>,
    /// What its commands have done to keys, to be told once it is committed.
    pub(crate) events: Recorded,
    /// The keys that its commands have written, those that it took back among them.
    pub(crate) written: Written,
}

enum State {
    /// No command has needed it yet, or one that does is running and has it.
    Absent,
    Present(Box<Transaction>),
    /// It was rolled back, for the reason that is in the reply.
    Lost(String),
}

impl Interactive {
    /// Begins at `now` and `now_ms`.
    pub(crate) fn new(
        (options, is_read_only): (TransactionOptions, bool),
        idle: Duration,
        (now, now_ms): (Instant, u64),
    ) -> Self {
        Self {
            options,
            state: State::Absent,
            now_ms,
            is_read_only,
            idle,
            used: now,
            savepoints: Vec::new(),
            events: Recorded::default(),
            written: Written::default(),
        }
    }

    /// Takes the transaction, for a command that runs in it, in the loop of `reactor`. It begins
    /// with the first of them.
    ///
    /// # Errors
    /// Those of the engine.
    ///
    /// # Panics
    /// If it is lost: no command runs in it then.
    pub(crate) fn take(&mut self, db: &Db, reactor: &Reactor) -> pandodb::Result<Box<Transaction>> {
        match std::mem::replace(&mut self.state, State::Absent) {
            State::Present(mut transaction) => {
                transaction.go_on_in(reactor);
                Ok(transaction)
            }
            State::Absent => Ok(Box::new(Transaction::begin(db, self.options, reactor)?)),
            State::Lost(why) => panic!("a command runs in a transaction that is lost: {why}"),
        }
    }

    /// Gives it back after the command, unless it was lost meanwhile.
    pub(crate) fn give_back(&mut self, transaction: Box<Transaction>) {
        if matches!(self.state, State::Absent) {
            self.state = State::Present(transaction);
        }
    }

    /// Rolls it back, for the reason in the reply `why`.
    pub(crate) fn lose(&mut self, why: String) {
        if self.lost().is_none() {
            self.events = Recorded::default();
            self.state = State::Lost(why);
        }
    }

    /// Returns the reply that says why it was rolled back, if it was.
    pub(crate) fn lost(&self) -> Option<&str> {
        match &self.state {
            State::Lost(why) => Some(why),
            State::Absent | State::Present(_) => None,
        }
    }

    /// Bytes that it takes, about. Those of a running command are not counted.
    pub(crate) fn memory(&self) -> usize {
        let kept = self.events.memory() + self.written.memory();
        let savepoints = size_of_val(&self.savepoints[..]) + kept;
        match &self.state {
            State::Present(transaction) => transaction.memory() + savepoints,
            State::Absent | State::Lost(_) => savepoints,
        }
    }

    /// Keeps the events of a command, unless the transaction was lost meanwhile.
    pub(crate) fn keep_events(&mut self, events: &Recorded) {
        if self.lost().is_none() {
            self.events.append(events);
        }
    }

    /// Notes a savepoint; returns its number.
    pub(crate) fn add_savepoint(&mut self, savepoint: Savepoint) -> usize {
        self.savepoints.push((savepoint, self.events.mark()));
        self.savepoints.len()
    }

    /// Goes back to the savepoint with this number. Returns false if there is none.
    pub(crate) fn rollback_to(&mut self, number: usize) -> bool {
        let place = number.checked_sub(1);
        let savepoint = place.and_then(|place| self.savepoints.get(place));
        let (Some(savepoint), State::Present(transaction)) = (savepoint, &mut self.state) else {
            return false;
        };
        let (savepoint, mark) = *savepoint;
        let went_back = transaction.rollback_to(savepoint).is_ok();
        if went_back {
            self.events.truncate(mark);
        }
        self.savepoints.truncate(number);
        went_back
    }

    /// Returns when it is rolled back, unless a command comes.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        match self.lost() {
            None => self.used.checked_add(self.idle),
            Some(_) => None,
        }
    }

    /// Rolls it back if it was not used for too long.
    pub(crate) fn end_if_idle(&mut self, now: Instant) {
        if self.ends_at().is_some_and(|end| end <= now) {
            let ms = self.idle.as_millis();
            self.lose(format!(
                "SNAPSHOTENDED the transaction had no command for {ms} ms, and was rolled back"
            ));
        }
    }
}
