//! What script threads have to do, and who does what.
//!
//! Everything is in [`State`], under one lock, which is held for a look-up or a move. A connection
//! is in one place at any time: its loop, the queue, its thread, or the list of those that its loop
//! has still to take. What a thread did to it is seen by its loop since both take the lock, and
//! likewise in the other direction. Whoever puts something there tells the other side afterwards
//! (`loop_handle.rs` has the argument why that is not missed).

use std::collections::VecDeque;

use pando_sync::atomic::{AtomicBool, AtomicU8, Ordering};
use pando_sync::thread::JoinHandle;
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, Mutex, Rank};

use crate::connection::Connection;
use crate::context::CommandIndex;
use crate::context::patience::Leaves;
use crate::loop_handle::{LoopHandle, Message, Token};
use crate::shared::Shared;

/// Time after which a thread is started again, once the system has refused one: what it lacks,
/// files or threads, may be there by then.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// A command that is to be carried out.
pub(super) struct Job {
    /// Tells it from all others.
    id: u64,
    /// Names the connection in its loop.
    token: Token,
    /// Number of that loop.
    pub(super) home: usize,
    /// As [`crate::sleeper::Sleeper::is_left`].
    pub(super) is_left: Arc<AtomicBool>,
    /// When it came into the queue.
    pub(super) since: Instant,
    pub(super) connection: Box<Connection>,
}

/// A connection that its loop gets back.
pub(crate) struct Returned {
    pub(crate) token: Token,
    /// `None`: it was lost with its thread.
    pub(crate) connection: Option<Box<Connection>>,
}

/// A thread that was started and has not ended.
struct Started {
    number: u64,
    handle: Arc<LoopHandle>,
    /// What it carries out: id, loop, token, and what ends it early.
    job: Option<(u64, usize, Token, Arc<AtomicBool>)>,
    /// It has found nothing to do, and nobody has told it otherwise.
    is_idle: bool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    threads: Vec<Started>,
    /// To be waited for, when the server ends.
    to_join: Vec<JoinHandle<()>>,
    /// Connections that their loops have to take, for each loop.
    returned: Vec<Vec<Returned>>,
    /// Number of jobs and threads so far.
    count: u64,
    /// Most threads that there may be.
    most: usize,
    /// The system has refused a thread: until then none is started.
    refused: Option<Instant>,
    is_stopping: bool,
}

/// What a thread does next.
pub(super) enum Next {
    Carry(Job),
    /// Nothing, until it is told to look again.
    Wait,
    Stop,
}

/// The script threads of a server.
pub(crate) struct ScriptThreads {
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Arc<CommandIndex>,
    /// Guarded by its lock.
    state: Mutex<State>,
    /// A [`Leaves`] as a number: what holds for scripts at present. A hint, written under the lock.
    leaves: AtomicU8,
}

impl State {
    /// Returns how many threads there may be now.
    fn most(&self) -> usize {
        match self.refused {
            Some(_) => self.threads.len(),
            None => self.most,
        }
    }

    /// Lets threads be started again, if it is time.
    fn look_again(&mut self) {
        self.refused = self.refused.filter(|until| now() < *until);
    }

    fn leaves(&self) -> Leaves {
        let idle = self.threads.iter().filter(|of| of.is_idle).count();
        let most = self.most();
        let free = idle + most.saturating_sub(self.threads.len());
        match (most, free) {
            _ if self.is_stopping => Leaves::Never,
            (0, _) => Leaves::Never,
            (_, free) if free > self.queue.len() => Leaves::Early,
            _ => Leaves::Late,
        }
    }
}

impl ScriptThreads {
    /// Returns those of a server; none is started.
    pub(crate) fn new(shared: Arc<Shared>, commands: Arc<CommandIndex>) -> Arc<Self> {
        let loops = shared.loops.len();
        let state = State {
            returned: (0..loops).map(|_| Vec::new()).collect(),
            most: loops,
            ..State::default()
        };
        Arc::new(Self {
            shared,
            commands,
            leaves: AtomicU8::new(state.leaves() as u8),
            state: Mutex::new(Rank::Leaf, state),
        })
    }

    /// Returns whether scripts leave their loops now.
    pub(crate) fn leaves(&self) -> Leaves {
        // Relaxed: a hint. Who comes when there is no thread waits, or is sent back.
        match self.leaves.load(Ordering::Relaxed) {
            of if of == Leaves::Early as u8 => Leaves::Early,
            of if of == Leaves::Late as u8 => Leaves::Late,
            // That may be over.
            _ => self.with(|state| {
                state.look_again();
                state.leaves()
            }),
        }
    }

    /// Does something with the state, and publishes what follows from it.
    fn with<T>(&self, user: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let result = user(&mut state);
        // Relaxed: as in `leaves`.
        self.leaves.store(state.leaves() as u8, Ordering::Relaxed);
        result
    }

    /// Puts a command into the queue, and tells a thread that has nothing to do. Returns the number
    /// of the job, and whether another thread is to be started; or the connection.
    pub(super) fn push(
        &self,
        (home, token): (usize, Token),
        connection: Box<Connection>,
    ) -> Result<(u64, bool), Box<Connection>> {
        let (id, to_tell, starts) = self.with(|state| {
            state.look_again();
            if state.leaves() == Leaves::Never {
                return Err(connection);
            }
            state.count += 1;
            let id = state.count;
            state.queue.push_back(Job {
                id,
                token,
                home,
                is_left: Arc::default(),
                since: now(),
                connection,
            });
            let idle = state.threads.iter_mut().find(|of| of.is_idle);
            let to_tell = idle.map(|of| {
                of.is_idle = false;
                of.handle.clone()
            });
            let starts = to_tell.is_none() && state.threads.len() < state.most();
            Ok((id, to_tell, starts))
        })?;
        if let Some(handle) = to_tell {
            handle.send(Message::Turn);
        }
        Ok((id, starts))
    }

    /// Notes a thread that is about to be started. Returns its number, unless there are enough.
    pub(super) fn begin(&self, handle: Arc<LoopHandle>) -> Option<u64> {
        self.with(|state| {
            if state.is_stopping || state.threads.len() >= state.most() {
                return None;
            }
            state.count += 1;
            state.threads.push(Started {
                number: state.count,
                handle,
                job: None,
                is_idle: false,
            });
            Some(state.count)
        })
    }

    /// Keeps a thread that was started, to be waited for.
    pub(super) fn keep(&self, thread: JoinHandle<()>) {
        self.with(|state| state.to_join.push(thread));
    }

    /// A thread cannot be started: for a while there will be no more than those that there are.
    /// Without any, scripts go on on their loops.
    #[cold]
    pub(crate) fn cannot_start(&self, error: &dyn std::fmt::Display) {
        tracing::error!(%error, "a thread for scripts cannot be started");
        let loops = self.with(|state| {
            state.refused = Some(now() + REFUSED_PAUSE);
            match state.threads.len() {
                0 => send_back(state),
                _ => Vec::new(),
            }
        });
        self.tell(&loops);
    }

    /// Ends the job `id`, of which nobody needs the result. Returns the connection, if it was in
    /// the queue still; else it comes back as others do.
    pub(crate) fn withdraw(&self, id: u64) -> Option<Box<Connection>> {
        let (found, to_tell) = self.with(|state| {
            if let Some(place) = state.queue.iter().position(|job| job.id == id) {
                let job = state.queue.remove(place);
                return (job.map(|job| job.connection), None);
            }
            let thread = state.threads.iter().find_map(|thread| {
                let job = thread.job.as_ref().filter(|job| job.0 == id)?;
                // Relaxed: as in `Sleeper::is_left`.
                job.3.store(true, Ordering::Relaxed);
                Some(thread.handle.clone())
            });
            (None, thread)
        });
        if let Some(handle) = to_tell {
            handle.send(Message::Turn);
        }
        found
    }

    /// Takes the connections that come back to loop `home`.
    pub(crate) fn returned(&self, home: usize) -> Vec<Returned> {
        self.with(|state| std::mem::take(&mut state.returned[home]))
    }

    /// Stops all threads, and waits for that. The loops have ended: nobody waits for what runs.
    pub(crate) fn stop(&self) {
        let (handles, to_join) = self.with(|state| {
            state.is_stopping = true;
            let handles: Vec<_> = (state.threads.iter())
                .map(|thread| {
                    if let Some(job) = &thread.job {
                        job.3.store(true, Ordering::Relaxed);
                    }
                    thread.handle.clone()
                })
                .collect();
            (handles, std::mem::take(&mut state.to_join))
        });
        for handle in handles {
            handle.send(Message::Turn);
        }
        for thread in to_join {
            if thread.join().is_err() {
                tracing::error!("a thread for scripts has panicked");
            }
        }
        // No loop takes them any more: their clients, locks and snapshots end before the store.
        let left = self.with(|state| {
            let returned = std::mem::take(&mut state.returned);
            (std::mem::take(&mut state.queue), returned)
        });
        drop(left);
    }

    /// Returns what thread `number` does next.
    pub(super) fn next(&self, number: u64) -> Next {
        self.with(|state| {
            if state.is_stopping {
                return Next::Stop;
            }
            let thread = state.threads.iter_mut().find(|of| of.number == number);
            let Some(thread) = thread else {
                return Next::Stop;
            };
            match state.queue.pop_front() {
                Some(job) => {
                    thread.job = Some((job.id, job.home, job.token, job.is_left.clone()));
                    thread.is_idle = false;
                    Next::Carry(job)
                }
                None => {
                    thread.is_idle = true;
                    Next::Wait
                }
            }
        })
    }

    /// Gives the connection of a job back, which thread `number` has carried out.
    pub(super) fn give_back(&self, number: u64, job: Job) {
        let home = job.home;
        self.with(|state| {
            let thread = state.threads.iter_mut().find(|of| of.number == number);
            if let Some(thread) = thread {
                thread.job = None;
            }
            state.returned[home].push(Returned {
                token: job.token,
                connection: Some(job.connection),
            });
        });
        self.tell(&[home]);
    }

    /// Thread `number` has ended; it has lost its connection, if it had one.
    pub(super) fn ended(&self, number: u64) {
        let loops = self.with(|state| {
            let place = state.threads.iter().position(|of| of.number == number);
            let job = place.and_then(|place| state.threads.swap_remove(place).job);
            let mut loops = Vec::new();
            if let Some((_, home, token, _)) = job {
                let connection = None;
                state.returned[home].push(Returned { token, connection });
                loops.push(home);
            }
            if state.threads.is_empty() {
                loops.extend(send_back(state));
            }
            loops
        });
        self.tell(&loops);
    }

    /// Has loops take what comes back.
    fn tell(&self, loops: &[usize]) {
        for home in loops {
            self.shared.loops[*home].send(Message::Returned);
        }
    }
}

/// Sends back all that waits. Returns the loops that have to be told.
fn send_back(state: &mut State) -> Vec<usize> {
    let mut loops = Vec::new();
    for job in std::mem::take(&mut state.queue) {
        loops.push(job.home);
        state.returned[job.home].push(Returned {
            token: job.token,
            connection: Some(job.connection),
        });
    }
    loops
}
