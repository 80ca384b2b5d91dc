//! One script thread: takes commands, and carries them out one after the other.

use mio::Poll;
use pando_sync::Arc;
use pando_sync::time::{Duration, Instant, now, unix_ms};

use super::jobs::{Job, Next, ScriptThreads};
use crate::connection::Connection;
use crate::connection::executor::Step;
use crate::connection::loop_data::{LoopData, RoundCounts, Turn};
use crate::context::patience::Leaves;
use crate::loop_handle::LoopHandle;
use crate::sleeper::{Sleeper, Slept};

/// A command that has waited in the queue for longer begins at another moment: what it has read,
/// and the clock by which keys expire, would be as old.
const QUEUE_TIME_MAX: Duration = Duration::from_millis(20);

/// A script thread. Ends when it is dropped.
pub(super) struct ScriptThread {
    number: u64,
    all: Arc<ScriptThreads>,
    /// Until it runs.
    waits: Option<(Poll, Arc<LoopHandle>)>,
}

impl Drop for ScriptThread {
    fn drop(&mut self) {
        self.all.ended(self.number);
    }
}

impl ScriptThread {
    pub(super) fn new(
        number: u64,
        all: Arc<ScriptThreads>,
        waits: (Poll, Arc<LoopHandle>),
    ) -> Self {
        Self {
            number,
            all,
            waits: Some(waits),
        }
    }

    /// Runs until the server stops.
    pub(super) fn run(mut self) {
        let (poll, handle) = self.waits.take().expect("it runs once");
        let mut data = match self.data(poll, handle) {
            Ok(data) => data,
            Err(error) => {
                let all = self.all.clone();
                drop(self);
                return all.cannot_start(&error);
            }
        };
        loop {
            match self.all.next(self.number) {
                Next::Carry(mut job) => {
                    self.carry_out(&mut data, &mut job);
                    self.count_memory(&job.connection);
                    self.all.give_back(self.number, job);
                }
                Next::Wait => {
                    // Others may wait for pages that this thread has begun to read.
                    let sleeper = data.sleeper.as_mut().expect("a script thread has one");
                    let _: Slept = sleeper.sleep(&mut data.reactor, None);
                }
                Next::Stop => return,
            }
        }
    }

    /// Returns the thread's side of the engine.
    fn data(&self, poll: Poll, handle: Arc<LoopHandle>) -> pandodb::Result<LoopData> {
        let poisoned = |cause: String| pandodb::Error::Poisoned { cause };
        let engine = self.all.shared.engine();
        let engine = engine.ok_or_else(|| poisoned("the store is closed".to_owned()))?;
        let sleeper = Sleeper::new(poll, handle);
        let mut data = LoopData::new(engine, sleeper.of_reactor())?;
        let watched = sleeper.watch(&data.reactor);
        watched.map_err(|source| poisoned(format!("waiting for the device: {source}")))?;
        data.sleeper = Some(sleeper);
        Ok(data)
    }

    /// Goes on with the command of `job` to its end, or until nobody waits for it.
    fn carry_out(&self, data: &mut LoopData, job: &mut Job) {
        let shared = &self.all.shared;
        let sleeper = data.sleeper.as_mut().expect("a script thread has one");
        sleeper.is_left = job.is_left.clone();
        let waker = sleeper.waker.clone();
        let own = std::mem::replace(&mut job.connection.waker, waker);
        let began = now();
        if began.duration_since(job.since) > QUEUE_TIME_MAX {
            job.connection.begin_command_anew();
        }
        let mut turn = Turn {
            index: job.home,
            shared,
            commands: &self.all.commands,
            handle: &shared.loops[job.home],
            data: Some(data),
            read_buffer: &mut [],
            turns_since: began,
            clock: began,
            is_clock_new: true,
            now_ms: unix_ms(),
            counts: RoundCounts::default(),
            leaves: Leaves::Never,
            stopping: false,
        };
        run_to_end(&mut turn, &mut job.connection);
        settle(&mut turn);
        turn.tick();
        job.connection.waker = own;
        while data.tell_left(shared) {}
        data.trim();
    }

    /// Counts what the connection holds now: its loop may have much to do before it takes it back,
    /// and other scripts end meanwhile.
    fn count_memory(&self, connection: &Connection) {
        let shared = &self.all.shared;
        let held = &connection.record.held;
        if shared.clients.memory.count(held, connection.memory()) {
            shared.evict();
        }
    }
}

/// Gives the connection turns until its command has ended, or need not go on.
fn run_to_end(turn: &mut Turn<'_>, connection: &mut Connection) {
    loop {
        settle(turn);
        let step = connection.resume_elsewhere(turn);
        if step == Step::Done {
            return;
        }
        let data = turn.data.as_mut().expect("a script thread has an engine");
        let sleeper = data.sleeper.as_mut().expect("a script thread has one");
        loop {
            let until: Option<Instant> = match step {
                Step::Suspended => connection.deadline(),
                _ => Some(now()),
            };
            let slept = sleeper.sleep(&mut data.reactor, until);
            if sleeper.is_left() {
                return;
            }
            if slept != Slept::Told || step != Step::Suspended {
                break;
            }
        }
        turn.clock = now();
        turn.now_ms = unix_ms();
    }
}

/// Waits for all reads that the thread has begun. Others may want these pages, which only it makes
/// known, and who runs next may compute for long.
fn settle(turn: &mut Turn<'_>) {
    let data = turn.data.as_mut().expect("a script thread has an engine");
    let sleeper = data.sleeper.as_mut().expect("a script thread has one");
    sleeper.settle(&mut data.reactor);
}
