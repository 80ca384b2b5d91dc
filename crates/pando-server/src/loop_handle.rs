//! What other threads see of an event loop: its inbox, its wakers, its errors.
//!
//! The loop is told in two steps: put the message or token into a list, then wake the loop if it
//! sleeps. The loop announces sleep, then looks at the lists once more. Both lists are behind
//! locks that are held for a push or a swap only, never across a call.

use std::io;
use std::net::SocketAddr;
use std::task::Wake;

use mio::net::TcpStream;
use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pando_sync::{Arc, Mutex, Rank, WakerArc};

use crate::figures::error_codes::ErrorCodes;

/// Something another thread wants of a loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new connection.
    Accept(TcpStream, SocketAddr),
    /// Close the connection of client `id` if it is at this token.
    Kill(Token),
    /// The engine is open.
    EngineReady,
    /// Finish and end.
    Stop,
}

/// Names what can be woken: a connection, or one of the loop's own tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    /// A place in the slab; the generation tells it from its predecessors there.
    Connection { index: u32, generation: u32 },
    /// The engine has completions.
    Reactor,
    /// The log has become durable up to some point.
    Durable,
    /// The expiry cleaner can go on.
    Cleaner,
}

/// The shared part of a loop.
#[derive(Debug)]
pub(crate) struct LoopHandle {
    waker: mio::Waker,
    /// True while the loop is in, or about to enter, its wait for events.
    asleep: AtomicBool,
    inbox: Mutex<Vec<Message>>,
    woken: Mutex<Vec<Token>>,
    /// Open connections; the acceptor looks for the least.
    pub(crate) connections: AtomicUsize,
    /// Connections that want to be woken at a time, as of the last round; for reports.
    pub(crate) timers: AtomicUsize,
    pub(crate) errors: ErrorCodes,
}

impl LoopHandle {
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Self {
            waker,
            asleep: AtomicBool::new(false),
            inbox: Mutex::new(Rank::Leaf, Vec::new()),
            woken: Mutex::new(Rank::Leaf, Vec::new()),
            connections: AtomicUsize::new(0),
            timers: AtomicUsize::new(0),
            errors: ErrorCodes::default(),
        }
    }

    /// Sends `message`; never waits for the loop.
    pub(crate) fn send(&self, message: Message) {
        self.inbox.lock().push(message);
        self.rouse();
    }

    fn wake(&self, token: Token) {
        self.woken.lock().push(token);
        self.rouse();
    }

    fn rouse(&self) {
        // SeqCst: pairs with the store in fall_asleep. Whoever comes second sees the other: the
        // loop the pushed item, or this the announced sleep.
        if self.asleep.swap(false, Ordering::SeqCst) {
            // A waker that cannot be written to is full, so the loop is awake.
            let _: io::Result<()> = self.waker.wake();
        }
    }

    /// Announces that the loop is going to wait. True if nothing is there for it to do.
    pub(crate) fn fall_asleep(&self) -> bool {
        // SeqCst: pairs with the swap in rouse.
        self.asleep.store(true, Ordering::SeqCst);
        // One after the other: each is a leaf.
        let is_told = !self.inbox.lock().is_empty();
        !is_told && self.woken.lock().is_empty()
    }

    /// The loop is back.
    pub(crate) fn awake(&self) {
        // Relaxed: a rouse that still sees true only writes the waker once too often.
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Moves all messages to `into`.
    pub(crate) fn drain_inbox(&self, into: &mut Vec<Message>) {
        into.append(&mut self.inbox.lock());
    }

    /// Moves all woken tokens to `into`.
    pub(crate) fn drain_woken(&self, into: &mut Vec<Token>) {
        into.append(&mut self.woken.lock());
    }
}

/// Wakes one token of one loop. Further wakes before the loop has seen the first are dropped.
#[derive(Debug)]
pub(crate) struct TokenWake {
    token: Token,
    queued: AtomicBool,
    handle: Arc<LoopHandle>,
}

impl TokenWake {
    pub(crate) fn new(token: Token, handle: Arc<LoopHandle>) -> WakerArc<Self> {
        WakerArc::new(Self {
            token,
            queued: AtomicBool::new(false),
            handle,
        })
    }

    /// The loop has taken the token out of its list: later wakes queue it again.
    pub(crate) fn taken(&self) {
        // SeqCst: pairs with the swap in wake_by_ref. A waker that finds `true` before this
        // has its reason seen by the loop, which looks at all reasons after this call.
        self.queued.store(false, Ordering::SeqCst);
    }
}

impl Wake for TokenWake {
    fn wake(self: WakerArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        // SeqCst: pairs with the store in taken.
        if !self.queued.swap(true, Ordering::SeqCst) {
            self.handle.wake(self.token);
        }
    }
}
