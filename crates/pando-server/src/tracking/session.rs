//! How one client tracks keys, as its commands see it.
//!
//! Commands change [`TrackingOptions`], which an EXEC that runs again sets back; other loops learn
//! of them by [`ClientTracking::apply`], before the commit of the EXEC, or at the end of the
//! command.

use std::collections::BTreeSet;

use pando_sync::Arc;

use super::reads::TrackedReads;
use super::registry::{Tracking, Writer, message};
pub(crate) use super::tracker::Redirection;
use super::tracker::Tracker;
use super::written::Written;
use crate::pubsub::mailbox::Mailbox;
use crate::pubsub::message::{Message, Name};
use crate::pubsub::registry::Channels;

/// Most keys that are told in one turn.
const KEYS_PER_TURN: usize = 4096;
/// Number of keys beyond which a client is told to forget everything.
const FORGOTTEN_MAX: usize = 4096;

/// What a client has asked for.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct TrackingOptions {
    pub(crate) is_on: bool,
    /// It hears of all keys with its prefixes, whether it has read them or not.
    pub(crate) is_broadcast: bool,
    /// It hears of the keys that commands behind CLIENT CACHING YES read.
    pub(crate) opt_in: bool,
    /// It hears of the keys that commands read, but for those behind CLIENT CACHING NO.
    pub(crate) opt_out: bool,
    /// It does not hear of what it writes itself.
    pub(crate) no_loop: bool,
    /// CLIENT CACHING was called for the next command.
    pub(crate) caching: bool,
    pub(crate) redirection: Option<Redirection>,
    /// Empty unless `is_broadcast`.
    pub(crate) prefixes: BTreeSet<Name>,
}

impl TrackingOptions {
    /// Returns true if what a command reads now is kept by the client.
    pub(crate) fn keeps(&self) -> bool {
        let is_left_out = self.opt_in && !self.caching || self.opt_out && self.caching;
        self.is_on && !is_left_out
    }

    /// Returns true if the client hears of the keys that a command reads now, since it reads them.
    pub(crate) fn listens(&self) -> bool {
        self.keeps() && !self.is_broadcast
    }
}

/// How one client tracks keys. Ends that when it is dropped.
#[derive(Debug)]
pub(crate) struct ClientTracking {
    pub(crate) options: TrackingOptions,
    /// What other loops know, which do not care for its `caching`.
    applied: TrackingOptions,
    /// `options` may differ from `applied`.
    is_changed: bool,
    tracker: Arc<Tracker>,
    all: Arc<Tracking>,
}

impl ClientTracking {
    /// Returns that of client `id`, which does not track keys yet.
    pub(crate) fn new(all: &Arc<Tracking>, (id, mailbox): (u64, Arc<Mailbox>)) -> Self {
        Self {
            options: TrackingOptions::default(),
            applied: TrackingOptions::default(),
            is_changed: false,
            tracker: Arc::new(Tracker::new(id, mailbox)),
            all: Arc::clone(all),
        }
    }

    /// Sets what the client asks for.
    pub(crate) fn set(&mut self, options: TrackingOptions) {
        self.options = options;
        self.is_changed = true;
    }

    /// Forgets that the client that its messages go to was gone.
    pub(crate) fn mend(&self) {
        self.tracker.mend();
    }

    /// Returns true if other loops have to learn of something.
    #[inline]
    pub(crate) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Lets other loops know what the client asks for.
    pub(crate) fn apply(&mut self) {
        self.is_changed = false;
        self.applied.caching = self.options.caching;
        if self.options == self.applied {
            return;
        }
        let (new, old) = (&self.options, &self.applied);
        let (tracker, all) = (&self.tracker, &self.all);
        let listens = new.is_on && !new.is_broadcast;
        tracker.set(listens, new.redirection.clone(), new.no_loop);
        for gone in old.prefixes.difference(&new.prefixes) {
            all.remove_prefix(gone, tracker.id);
        }
        for prefix in new.prefixes.difference(&old.prefixes) {
            all.add_prefix(prefix, tracker);
        }
        match new.is_on {
            true => all.join(tracker),
            false => all.leave(tracker.id),
        }
        self.applied = new.clone();
    }

    /// Notes that the client is about to read keys, or to commit what it has read of them.
    pub(crate) fn add_reads<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, channels: &Channels) {
        self.all.add_reads(keys, &self.tracker, channels);
    }

    /// Tells the client itself to forget keys: it has read them as they were at an earlier moment.
    pub(crate) fn forget<'k>(&self, keys: impl Iterator<Item = &'k [u8]>, channels: &Channels) {
        let is_wanted = |key: &&[u8]| {
            let mut prefixes = self.options.prefixes.iter();
            !self.options.is_broadcast || prefixes.any(|prefix| key.starts_with(prefix))
        };
        let keys: Vec<_> = keys.filter(is_wanted).take(FORGOTTEN_MAX + 1).collect();
        if keys.len() > FORGOTTEN_MAX {
            return self.forget_all(channels);
        }
        for key in keys {
            self.tracker.tell(channels, &message(&[key], channels));
        }
    }

    /// Tells the client itself to forget everything.
    pub(crate) fn forget_all(&self, channels: &Channels) {
        let message = Arc::new(Message::of_all(channels.message_bytes()));
        self.tracker.tell(channels, &message);
    }

    /// Returns true if the client that its messages go to was gone.
    pub(crate) fn is_broken(&self) -> bool {
        self.options.is_on && self.tracker.is_broken()
    }

    /// Returns it as the writer of keys; those in `reads` were read by the same command.
    pub(crate) fn writer(&self, reads: Option<Box<TrackedReads>>) -> OwnedWriter {
        OwnedWriter {
            tracker: Arc::clone(&self.tracker),
            reads,
        }
    }
}

impl Drop for ClientTracking {
    fn drop(&mut self) {
        self.options = TrackingOptions::default();
        self.apply();
    }
}

/// A client that has written keys, and may not want to hear of it.
#[derive(Debug)]
pub(crate) struct OwnedWriter {
    tracker: Arc<Tracker>,
    /// What it has read with them.
    reads: Option<Box<TrackedReads>>,
}

/// Keys that were committed, and are told some at a time.
#[derive(Debug)]
pub(crate) struct LeftTold {
    written: Written,
    writer: Option<OwnedWriter>,
    /// Number of those that were told.
    pub(crate) from: usize,
}

impl LeftTold {
    pub(crate) fn new(written: Written, writer: Option<OwnedWriter>) -> Self {
        Self {
            written,
            writer,
            from: 0,
        }
    }

    /// Tells all who must hear of them the next keys. Returns their number; 0: there are no more.
    pub(crate) fn tell(&self, all: &Tracking, channels: &Channels) -> usize {
        let written = &self.written;
        if written.has_all() || written.is_partial() {
            if self.from == 0 {
                all.changed_all(channels);
            }
            return usize::from(self.from == 0);
        }
        let to = written.len().min(self.from + KEYS_PER_TURN);
        let reads = self.writer.as_ref().and_then(|of| of.reads.as_ref());
        // Later its client may have read any of them again.
        let is_late = self.from > 0;
        let has_read = |key: &[u8]| is_late || reads.is_some_and(|reads| reads.has(key));
        let writer = self.writer.as_ref().map(|of| Writer {
            tracker: &of.tracker,
            has_read: &has_read,
        });
        all.changed(written.keys_at(self.from..to), writer, channels);
        to - self.from
    }

    /// Returns the memory that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        let reads = self.writer.as_ref().and_then(|of| of.reads.as_ref());
        self.written.memory() + reads.map_or(0, |reads| reads.memory()) + size_of::<Self>()
    }

    /// Returns true if all are told.
    pub(crate) fn is_done(&self) -> bool {
        let is_all = self.written.has_all() || self.written.is_partial();
        self.from >= if is_all { 1 } else { self.written.len() }
    }
}
