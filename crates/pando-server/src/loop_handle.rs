//! The part of an event loop that other threads see: its inbox, its wakers, its error counts.
//!
//! To tell the loop something, a thread first puts a message or a token into a list, and then wakes
//! the loop if it sleeps. The loop announces its sleep first, and then checks the lists once more.
//! Each list has a lock, which is held for a push or a swap only, never across a call.

use std::io;
use std::task::{Wake, Waker};

use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use pando_sync::{Arc, Mutex, Rank, WakerArc};

use crate::figures::error_codes::ErrorCodes;
use crate::socket::{Address, Stream};

/// A request of another thread to a loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new connection.
    Accept(Stream, Address),
    /// Give a turn to the connection with this token, if it is still there: its client record says
    /// that it is killed, or that its wait has ended; or it has messages about keys.
    Touch(Token),
    /// As [`Message::Touch`], of a connection that was killed. From here on the loop begins none of
    /// its commands; somebody waits for that.
    Kill(Token, Arrival),
    /// Have a round: the loop has the turn of a contended key. To a script thread: look.
    Turn,
    /// Script threads have given connections back.
    Returned,
    /// The engine is open.
    EngineReady,
    /// Finish what runs, then end.
    Stop,
}

/// Counts messages that have not arrived at their loops.
#[derive(Debug)]
pub(crate) struct Underway {
    count: AtomicUsize,
    /// Woken when the last one has arrived.
    waker: Waker,
}

impl Underway {
    /// Returns a count of `count` messages, for each of which there is to be an [`Arrival`].
    pub(crate) fn new(count: usize, waker: Waker) -> Arc<Self> {
        let count = AtomicUsize::new(count);
        Arc::new(Self { count, waker })
    }

    /// Returns true if all have arrived.
    pub(crate) fn has_ended(&self) -> bool {
        // Acquire: pairs with the Release of the arrivals, so what their loops did before has been.
        self.count.load(Ordering::Acquire) == 0
    }
}

/// A part of a message; that has arrived when this is dropped, also if its loop has ended and does
/// not read it.
#[derive(Debug)]
pub(crate) struct Arrival(pub(crate) Arc<Underway>);

impl Drop for Arrival {
    fn drop(&mut self) {
        // AcqRel: the last one hands on what the others have released.
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.waker.wake_by_ref();
        }
    }
}

/// Names something that can be woken: a connection, or a task of the loop itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Token {
    /// An index into the slab; the generation tells the connection from earlier ones at this index.
    Connection { index: u32, generation: u32 },
    /// The engine has completions.
    Reactor,
    /// The log has become durable up to an LSN that was asked for.
    Durable,
    /// The expiry cleaner can continue.
    Cleaner,
}

/// The part of a loop that other threads share.
#[derive(Debug)]
pub(crate) struct LoopHandle {
    waker: mio::Waker,
    /// True while the loop is in, or about to enter, its wait for events.
    asleep: AtomicBool,
    /// Guarded by its lock; swapped out by the loop. `None` once the loop has ended.
    inbox: Mutex<Option<Vec<Message>>>,
    /// Tokens to wake; guarded by its lock, swapped out by the loop.
    woken: Mutex<Vec<Token>>,
    /// Number of open connections; the acceptor picks the loop with the fewest.
    pub(crate) connections: AtomicUsize,
    /// Number of connections that have a timer, as of the last round; for reports.
    pub(crate) timers: AtomicUsize,
    /// Error replies by code; counted by this loop.
    pub(crate) errors: ErrorCodes,
}

impl LoopHandle {
    /// Returns the handle of a loop that `waker` wakes from its wait for events.
    pub(crate) fn new(waker: mio::Waker) -> Self {
        Self {
            waker,
            asleep: AtomicBool::new(false),
            inbox: Mutex::new(Rank::Leaf, Some(Vec::new())),
            woken: Mutex::new(Rank::Leaf, Vec::new()),
            connections: AtomicUsize::new(0),
            timers: AtomicUsize::new(0),
            errors: ErrorCodes::default(),
        }
    }

    /// Sends `message`; does not wait for the loop.
    pub(crate) fn send(&self, message: Message) {
        // What is not taken is dropped without the lock, since that wakes somebody.
        let unread = match &mut *self.inbox.lock() {
            Some(inbox) => {
                inbox.push(message);
                None
            }
            None => Some(message),
        };
        if unread.is_none() {
            self.rouse();
        }
    }

    /// To be called when the loop has ended: drops the messages that it has not read, and those
    /// that come from now on.
    pub(crate) fn close(&self) {
        let unread = self.inbox.lock().take();
        drop(unread);
    }

    fn wake(&self, token: Token) {
        self.woken.lock().push(token);
        self.rouse();
    }

    fn rouse(&self) {
        // SeqCst: pairs with the store in fall_asleep. Of the two threads, the one that comes
        // second in the order of SeqCst sees what the other did: the loop sees the item that was
        // pushed, or this thread sees the announced sleep.
        if self.asleep.swap(false, Ordering::SeqCst) {
            // If the waker cannot be written to, it is full, so the loop is awake.
            let _: io::Result<()> = self.waker.wake();
        }
    }

    /// Announces that the loop is going to wait. Returns true if both lists are empty, so that it
    /// may.
    pub(crate) fn fall_asleep(&self) -> bool {
        // SeqCst: pairs with the swap in rouse.
        self.asleep.store(true, Ordering::SeqCst);
        // The locks are taken one after the other, since each is a leaf of the lock order.
        let is_told = self.inbox.lock().as_ref().is_some_and(|of| !of.is_empty());
        !is_told && self.woken.lock().is_empty()
    }

    /// Records that the loop is awake again.
    pub(crate) fn awake(&self) {
        // Relaxed: a rouse that still reads true writes the waker once too often, and that is all.
        self.asleep.store(false, Ordering::Relaxed);
    }

    /// Moves all messages to `into`.
    pub(crate) fn drain_inbox(&self, into: &mut Vec<Message>) {
        if let Some(inbox) = &mut *self.inbox.lock() {
            into.append(inbox);
        }
    }

    /// Moves all woken tokens to `into`.
    pub(crate) fn drain_woken(&self, into: &mut Vec<Token>) {
        into.append(&mut self.woken.lock());
    }
}

/// Has a loop give a connection a turn, from wherever it is known.
#[derive(Debug)]
pub(crate) struct TouchWake {
    token: Token,
    handle: Arc<LoopHandle>,
}

impl TouchWake {
    /// Returns a waker of the connection with this token, in the loop of `handle`.
    pub(crate) fn new(token: Token, handle: Arc<LoopHandle>) -> WakerArc<Self> {
        WakerArc::new(Self { token, handle })
    }
}

impl Wake for TouchWake {
    fn wake(self: WakerArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        self.handle.send(Message::Touch(self.token));
    }
}

/// Wakes one token of one loop. A second wake is dropped if the loop has not yet seen the first.
#[derive(Debug)]
pub(crate) struct TokenWake {
    token: Token,
    /// True from the wake that queues the token until [`TokenWake::taken`].
    queued: AtomicBool,
    handle: Arc<LoopHandle>,
}

impl TokenWake {
    /// Returns a waker that gives `token` to the loop of `handle`.
    pub(crate) fn new(token: Token, handle: Arc<LoopHandle>) -> WakerArc<Self> {
        WakerArc::new(Self {
            token,
            queued: AtomicBool::new(false),
            handle,
        })
    }

    /// Records that the loop has taken the token out of its list: from now on a wake queues it
    /// again.
    pub(crate) fn taken(&self) {
        // SeqCst: pairs with the swap in wake_by_ref. If that swap still finds `true`, it comes
        // before this store, and the loop sees the reason for that wake, since it checks all
        // reasons after this call.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits for an arrival goes on, whether the loop ends before the message or after it.
    #[test]
    fn messages_to_a_loop_that_has_ended_arrive() {
        let poll = mio::Poll::new().unwrap();
        let handle = LoopHandle::new(mio::Waker::new(poll.registry(), mio::Token(0)).unwrap());
        let underway = Underway::new(2, Waker::noop().clone());
        let (index, generation) = (0, 0);
        let kill = || {
            let arrival = Arrival(Arc::clone(&underway));
            handle.send(Message::Kill(
                Token::Connection { index, generation },
                arrival,
            ));
        };
        kill();
        assert!(!underway.has_ended() && !handle.fall_asleep());
        handle.close();
        kill();
        assert!(underway.has_ended());
        handle.drain_inbox(&mut Vec::new());
        assert!(handle.fall_asleep());
    }
}
