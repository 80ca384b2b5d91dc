//! The waits of a thread that carries out one command at a time, and has nothing else to do.
//!
//! An event loop waits for all its connections at once. A script thread (decision 095) waits for
//! one command, in the middle of its run: until whatever that waits for wakes it. Meanwhile the
//! thread delivers the engine's completions, since nobody else publishes the pages that it reads.

use std::io;
use std::task::Waker;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll};
use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::time::{Duration, Instant, now};
use pando_sync::{Arc, WakerArc};
#[cfg(feature = "scripts")]
use pandodb::nonblocking::Pending;
use pandodb::nonblocking::Reactor;

use crate::loop_handle::{LoopHandle, Token, TokenWake};

/// Token of the thread's own waker, and of the engine's descriptor.
pub(crate) const WAKER: mio::Token = mio::Token(0);
/// What its command is called: a thread has one.
const COMMAND: Token = Token::Connection {
    index: 0,
    generation: 0,
};
/// How long a wait for the engine lasts until it is asked again whether the command has to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Why a sleep has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Slept {
    /// The command was woken.
    Woken,
    /// Somebody has sent a message, which says nothing but to look.
    Told,
    /// The time is over.
    TimeOver,
}

/// Lets a thread sleep.
pub(crate) struct Sleeper {
    poll: Poll,
    events: Events,
    handle: Arc<LoopHandle>,
    reactor_wake: WakerArc<TokenWake>,
    command_wake: WakerArc<TokenWake>,
    /// The same as `command_wake`.
    pub(crate) waker: Waker,
    woken: Vec<Token>,
    /// Set when the client of the command is gone, or was killed: it need not go on.
    pub(crate) is_left: Arc<AtomicBool>,
}

impl Sleeper {
    /// Returns one for the thread that `handle` wakes from the waits of `poll`.
    pub(crate) fn new(poll: Poll, handle: Arc<LoopHandle>) -> Self {
        let wake = |token| TokenWake::new(token, handle.clone());
        let (reactor_wake, command_wake) = (wake(Token::Reactor), wake(COMMAND));
        Self {
            poll,
            events: Events::with_capacity(16),
            reactor_wake,
            waker: Waker::from(command_wake.clone()),
            command_wake,
            woken: Vec::new(),
            is_left: Arc::default(),
            handle,
        }
    }

    /// Returns what wakes the thread when the engine has completions.
    pub(crate) fn of_reactor(&self) -> Waker {
        Waker::from(self.reactor_wake.clone())
    }

    /// Has the descriptor of the reactor end sleeps, if it has one.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn watch(&self, reactor: &Reactor) -> io::Result<()> {
        match reactor.completion_fd() {
            Some(fd) => {
                let registry = self.poll.registry();
                registry.register(&mut SourceFd(&fd), WAKER, Interest::READABLE)
            }
            None => Ok(()),
        }
    }

    /// Returns true if the command need not go on.
    pub(crate) fn is_left(&self) -> bool {
        // Relaxed: what follows from it is read under the lock of the script threads.
        self.is_left.load(Ordering::Relaxed)
    }

    /// Waits for what is `pending`. Returns false if the wait was given up, since `gives_up` says
    /// so, or since nobody waits for the command.
    ///
    /// # Errors
    /// As [`Reactor::park`].
    #[cfg(feature = "scripts")]
    pub(crate) fn wait_for(
        &mut self,
        (reactor, pending): (&mut Reactor, Pending),
        gives_up: &dyn Fn() -> bool,
    ) -> pandodb::Result<bool> {
        reactor.park(pending, &self.waker)?;
        loop {
            if self.sleep(reactor, Some(now() + LOOK_INTERVAL)) == Slept::Woken {
                return Ok(true);
            }
            if self.is_left() || gives_up() {
                return Ok(false);
            }
        }
    }

    /// Waits until no read of the thread is under way. Takes wakes: who waits looks again after it.
    pub(crate) fn settle(&mut self, reactor: &mut Reactor) {
        while reactor.in_flight() > 0 {
            let _: Slept = self.sleep(reactor, Some(now() + LOOK_INTERVAL));
        }
    }

    /// Sleeps until the command is woken, or a message comes, or `until`.
    pub(crate) fn sleep(&mut self, reactor: &mut Reactor, until: Option<Instant>) -> Slept {
        loop {
            reactor.flush();
            let left = until.map(|until| until.saturating_duration_since(now()));
            // One millisecond more: the wait is truncated to milliseconds.
            let left = left.map(|left| match left.is_zero() {
                true => left,
                false => left + Duration::from_millis(1),
            });
            let timeout = if self.handle.fall_asleep() {
                left
            } else {
                Some(Duration::ZERO)
            };
            // What fails is a signal, or is found by those that the next look asks.
            let _: io::Result<()> = self.poll.poll(&mut self.events, timeout);
            self.handle.awake();
            let mut slept = None;
            loop {
                // In this order: completions that come behind the look for them wake again only if
                // the wake before was taken. What they have woken is taken in the next pass.
                let has_completions = self.take_wakes(&mut slept);
                // The commands find out by themselves that the engine has failed.
                let count = reactor.poll().unwrap_or(0);
                if count == 0 && !has_completions {
                    break;
                }
            }
            if let Some(slept) = slept {
                return slept;
            }
            if until.is_some_and(|until| now() >= until) {
                return Slept::TimeOver;
            }
        }
    }

    /// Takes what has come; that the command was woken counts before messages. Returns true if the
    /// engine may have completions.
    fn take_wakes(&mut self, slept: &mut Option<Slept>) -> bool {
        let mut messages = Vec::new();
        self.handle.drain_inbox(&mut messages);
        if !messages.is_empty() {
            slept.get_or_insert(Slept::Told);
        }
        let mut has_completions = false;
        self.handle.drain_woken(&mut self.woken);
        for token in self.woken.drain(..) {
            if token == COMMAND {
                self.command_wake.taken();
                *slept = Some(Slept::Woken);
            } else {
                self.reactor_wake.taken();
                has_completions = true;
            }
        }
        has_completions
    }
}
