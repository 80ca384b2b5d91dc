//! One who holds locks, or waits for one: a transaction, or a commit that has met a lock.

use std::collections::HashMap;

use pando_sync::Arc;
use pando_sync::time::{self, Duration, Instant};

use crate::error::{Error, Result};
use crate::locks::cycles::break_cycles;
use crate::locks::graph::Edge;
use crate::locks::lock::Mode;
use crate::locks::name::{LockName, OwnerId};
use crate::locks::table::LockTable;
use crate::locks::wait::{LockWait, WaitEnd};

/// Bytes of one lock besides its name.
const HELD_BYTES: usize = 64;
/// The longest wait.
const PATIENCE_MAX: Duration = Duration::from_hours(24 * 365);

/// A lock, or a pass, that an owner has.
#[derive(Debug, Clone, Copy)]
struct Holding {
    stripe: u32,
    /// See [`LockOwner::confirm`].
    is_confirmed: bool,
}

/// Holds locks until it is dropped. It waits for one lock at a time.
#[derive(Debug)]
pub(crate) struct LockOwner {
    locks: Arc<LockTable>,
    id: OwnerId,
    /// Its number, or that of an owner before it whose work it does again.
    age: OwnerId,
    kind: OwnerKind,
    /// How long one call waits for locks.
    patience: Duration,
    /// When the present call gives up; None before its first wait.
    deadline: Option<Instant>,
    /// What it holds.
    held: HashMap<LockName, Holding>,
    /// Bytes of the keys in `held`.
    held_key_bytes: usize,
    waiting: Option<AwaitedLock>,
}

/// Who an owner is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnerKind {
    /// Keeps its locks until it ends: it may be in a cycle of waits.
    Transaction,
    /// Has passes only. These end by themselves, and are taken away where they are in a cycle of
    /// waits.
    Commit,
}

#[derive(Debug)]
struct AwaitedLock {
    stripe: u32,
    /// Name of the table, for errors.
    table: Box<str>,
    wait: Arc<LockWait>,
}

/// What has become of a wish for a lock.
#[derive(Debug)]
pub(crate) enum Asked {
    Granted,
    Waits(Arc<LockWait>),
}

impl LockOwner {
    /// Makes one that holds nothing. Its calls wait for `patience`, but for a year at most.
    pub(crate) fn new(
        locks: Arc<LockTable>,
        kind: OwnerKind,
        age: Option<OwnerId>,
        patience: Duration,
    ) -> Self {
        let id = locks.new_owner();
        Self {
            locks,
            id,
            age: age.unwrap_or(id),
            kind,
            patience: patience.min(PATIENCE_MAX),
            deadline: None,
            held: HashMap::new(),
            held_key_bytes: 0,
            waiting: None,
        }
    }

    pub(crate) fn id(&self) -> OwnerId {
        self.id
    }

    /// Begins a call: its waits together last as long as the patience. An error of another kind may
    /// have cut off the wait of the call before, as when the store is closed.
    pub(crate) fn begin_call(&mut self) {
        self.cut_off();
        self.deadline = None;
    }

    /// Begins a call that waits for `patience`. Returns how long calls have waited before.
    pub(crate) fn set_patience(&mut self, patience: Duration) -> Duration {
        self.begin_call();
        std::mem::replace(&mut self.patience, patience.min(PATIENCE_MAX))
    }

    /// Holds the lock, which may be taken away from it, for `at_most` from now on, or until it is
    /// given back. Returns false if it was taken away before.
    pub(crate) fn extend(&mut self, name: &LockName, at_most: Option<Duration>) -> bool {
        let holding = self.held.get(name);
        holding.is_some_and(|of| self.locks.extend((of.stripe, name), self.id, at_most))
    }

    /// Holds the lock until it is given back. Returns false if it has none, or has lost it: it has
    /// to ask for it.
    pub(crate) fn keep(&mut self, name: &LockName) -> bool {
        let is_kept = self.extend(name, None);
        if !is_kept && self.held.remove(name).is_some() {
            self.held_key_bytes -= name.key().map_or(0, <[u8]>::len);
        }
        is_kept
    }

    /// Notes that no commit of others that had begun before the lock was taken can still write what
    /// is locked. This holds for as long as the lock is held.
    pub(crate) fn confirm(&mut self, name: &LockName) {
        if let Some(holding) = self.held.get_mut(name) {
            holding.is_confirmed = true;
        }
    }

    /// Returns whether this was noted of a lock that it has not lost since.
    pub(crate) fn is_confirmed(&self, name: &LockName) -> bool {
        self.held.get(name).is_some_and(|of| of.is_confirmed)
    }

    /// Number of locks and passes that it holds.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Bytes that what it holds takes, about.
    pub(crate) fn memory(&self) -> usize {
        let of_names = self.held_key_bytes;
        // Here, and in the table.
        2 * (of_names + self.held.len() * (size_of::<LockName>() + HELD_BYTES))
    }

    /// Returns whether it holds the lock, or has a pass.
    pub(crate) fn has(&self, name: &LockName) -> bool {
        self.held.contains_key(name)
    }

    /// Asks for the lock of `stripe` and `name`, which is in `table`. Calls `mark` under the lock
    /// of the shard, before anybody can see that the lock is held. Never blocks.
    ///
    /// # Errors
    /// [`Error::Deadlock`]: it has given back all that it held.
    pub(crate) fn ask(
        &mut self,
        (stripe, name): (u32, &LockName),
        mode: Mode,
        table: &str,
        mark: impl Fn(),
    ) -> Result<Asked> {
        assert!(self.waiting.is_none(), "it waits for one lock at a time");
        let (place, wish) = ((stripe, name), (self.id, mode));
        if self.locks.try_grant(place, wish, &mark) {
            self.note(stripe, name, mode);
            return Ok(Asked::Granted);
        }
        let deadline = *self
            .deadline
            .get_or_insert_with(|| time::now() + self.patience);
        let locks = self.locks.clone();
        let graph = self.may_block().then(|| locks.graph.lock());
        let (wait, mut ended) = locks.grant_or_wait(place, wish, deadline, &mark);
        let mut gives_up = false;
        if let (Some(wait), Some(mut graph)) = (&wait, graph) {
            let wait = wait.clone();
            let age = (self.kind == OwnerKind::Transaction).then_some(self.age);
            graph.begin(self.id, Edge { age, stripe, wait });
            gives_up = break_cycles(&mut graph, self.id, &locks, &mut ended);
        }
        assert!(
            !gives_up || self.kind == OwnerKind::Transaction,
            "a commit does not give up: its passes are taken away"
        );
        // Without the lock of the graph: wakers may be of users.
        for wait in ended {
            wait.notify();
        }
        let Some(wait) = wait else {
            self.note(stripe, name, mode);
            return Ok(Asked::Granted);
        };
        self.waiting = Some(AwaitedLock {
            stripe,
            table: table.into(),
            wait: wait.clone(),
        });
        match gives_up {
            true => Err(self.give_up()),
            false => Ok(Asked::Waits(wait)),
        }
    }

    /// Returns whether others may wait for it. Whoever holds nothing is in no cycle.
    fn may_block(&self) -> bool {
        !self.held.is_empty()
    }

    /// Notes what it was given at once. A pass that was not waited for has no entry in the table.
    fn note(&mut self, stripe: u32, name: &LockName, mode: Mode) {
        if matches!(mode, Mode::Exclusive { .. }) {
            assert_eq!(
                self.kind,
                OwnerKind::Transaction,
                "a commit has passes only"
            );
            self.hold(name.clone(), stripe);
        }
    }

    fn hold(&mut self, name: LockName, stripe: u32) {
        let key_bytes = name.key().map_or(0, <[u8]>::len);
        let holding = Holding {
            stripe,
            is_confirmed: false,
        };
        match self.held.insert(name, holding) {
            None => self.held_key_bytes += key_bytes,
            // A pass that was taken away, and is given again.
            Some(before) => assert_eq!(before.stripe, stripe, "a name has one stripe"),
        }
    }

    /// Looks at the lock that it waits for, if it does.
    ///
    /// # Errors
    /// [`Error::LockTimeout`]: what it held before is still held. [`Error::Deadlock`]: it has given
    /// back all that it held.
    pub(crate) fn look(&mut self) -> Result<Asked> {
        let Some(waiting) = &self.waiting else {
            return Ok(Asked::Granted);
        };
        let ended = waiting.wait.ended();
        if ended.is_none() && !waiting.wait.left().is_zero() {
            return Ok(Asked::Waits(waiting.wait.clone()));
        }
        let place = (waiting.stripe, &waiting.wait.name);
        let is_late = ended.is_none() && self.locks.leave_queue_late(place, self.id);
        let was_victim = waiting.wait.ended() == Some(WaitEnd::Victim);
        if was_victim {
            return Err(self.give_up());
        }
        let AwaitedLock {
            stripe,
            table,
            wait,
        } = self.end_wait();
        if is_late {
            return Err(Error::LockTimeout {
                table: table.into(),
                key: wait.name.key().map(<[u8]>::to_vec),
            });
        }
        assert_eq!(
            wait.ended(),
            Some(WaitEnd::Granted),
            "it goes on with a lock that it was not given"
        );
        self.hold(wait.name.clone(), stripe);
        Ok(Asked::Granted)
    }

    /// Forgets the wait, which has ended.
    fn end_wait(&mut self) -> AwaitedLock {
        let waiting = self.waiting.take().expect("it waits");
        if self.may_block() {
            self.locks.graph.lock().end(self.id);
        }
        debug_assert!(
            self.locks.graph.lock().wait_of(self.id).is_none(),
            "who does not wait is in no cycle"
        );
        waiting
    }

    /// Ends its wait and gives back everything, so that others in a cycle of waits can go on.
    fn give_up(&mut self) -> Error {
        let waiting = self.waiting.as_ref().expect("it waits in a cycle");
        let table = waiting.table.to_string();
        let key = waiting.wait.name.key().map(<[u8]>::to_vec);
        self.release_all();
        Error::Deadlock { table, key }
    }

    /// Waits for nothing any longer.
    fn cut_off(&mut self) {
        let Some(AwaitedLock { stripe, wait, .. }) = &self.waiting else {
            return;
        };
        let place = (*stripe, &wait.name);
        if !self.locks.leave_queue(place, self.id) && wait.ended() == Some(WaitEnd::Granted) {
            self.locks.release(place, self.id);
        }
        self.end_wait();
    }

    /// Gives back everything, and waits for nothing any longer.
    pub(crate) fn release_all(&mut self) {
        self.cut_off();
        self.held_key_bytes = 0;
        for (name, holding) in self.held.drain() {
            self.locks.release((holding.stripe, &name), self.id);
        }
    }
}

impl Drop for LockOwner {
    fn drop(&mut self) {
        self.release_all();
    }
}
