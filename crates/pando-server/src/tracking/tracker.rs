//! A client that tracks keys, as all loops see it.

use pando_sync::atomic::{AtomicBool, Ordering};
use pando_sync::{Arc, Mutex, Rank};

use crate::pubsub::mailbox::Mailbox;
use crate::pubsub::message::{Message, Reason};
use crate::pubsub::registry::Channels;

/// The client that another one has its messages sent to.
#[derive(Debug, Clone)]
pub(crate) struct Redirection {
    pub(crate) id: u64,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl PartialEq for Redirection {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// Where messages go, and which.
#[derive(Debug, Default)]
struct Mode {
    redirection: Option<Redirection>,
    /// It is not told of what it has written itself.
    no_loop: bool,
}

/// One client. Its loop changes it; all loops read it. It lives as long as an entry of the table
/// names it: those of a client that is gone are skipped.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(crate) id: u64,
    own: Arc<Mailbox>,
    /// It wants to hear of the keys that it has read. Relaxed: who finds it in the table has taken
    /// the lock under which it came there; who finds an old value after the client has stopped
    /// sends a message too many.
    listens: AtomicBool,
    /// The client that its messages go to was gone. Relaxed: a report.
    is_broken: AtomicBool,
    /// Held for a copy.
    mode: Mutex<Mode>,
}

impl Tracker {
    /// Returns a client that tracks nothing yet.
    pub(super) fn new(id: u64, own: Arc<Mailbox>) -> Self {
        Self {
            id,
            own,
            listens: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            mode: Mutex::new(Rank::Leaf, Mode::default()),
        }
    }

    /// Sets how it is told from now on.
    pub(super) fn set(&self, listens: bool, redirection: Option<Redirection>, no_loop: bool) {
        *self.mode.lock() = Mode {
            redirection,
            no_loop,
        };
        self.listens.store(listens, Ordering::Relaxed);
    }

    /// Forgets that the client that its messages go to was gone.
    pub(super) fn mend(&self) {
        self.is_broken.store(false, Ordering::Relaxed);
    }

    /// Returns true if entries of the table count for it.
    pub(super) fn listens(&self) -> bool {
        self.listens.load(Ordering::Relaxed)
    }

    /// Returns true if it is not told of what it has written itself.
    pub(super) fn is_no_loop(&self) -> bool {
        self.mode.lock().no_loop
    }

    /// Returns true if the client that its messages go to was gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Puts a message into its mailbox, or that of the client that its messages go to.
    pub(super) fn tell(&self, channels: &Channels, message: &Arc<Message>) {
        let redirection = self.mode.lock().redirection.clone();
        match redirection {
            None => channels.deliver(&self.own, Reason::Changed, message),
            Some(to) if !to.mailbox.is_closed() => {
                channels.deliver(&to.mailbox, Reason::ChangedForOther, message);
            }
            Some(to) => {
                self.is_broken.store(true, Ordering::Relaxed);
                let message = Arc::new(Message::of_broken(to.id, channels.message_bytes()));
                channels.deliver(&self.own, Reason::RedirectionBroken, &message);
            }
        }
    }
}
