//! What a connection remembers between commands.

use pando_resp::{Arguments, Span, Version};
use pando_sync::atomic::Ordering;
use pando_sync::time::{Instant, now};
use pandodb::Lsn;

use crate::client::interactive::Interactive;
use crate::client::record::{ClientRecord, IS_BROADCAST, IS_BROKEN, TRACKS};
use crate::client::staging::Staged;
use crate::client::watches::Watches;
use crate::figures::command_profile::Profiles;
use crate::pubsub::message::Space;
use crate::pubsub::subscriptions::Subscriptions;
use crate::tracking::session::{ClientTracking, TrackingOptions};

/// Commands between MULTI and EXEC.
#[derive(Debug, Default)]
pub(crate) struct Multi {
    /// A command was refused while queueing, so EXEC will be refused.
    pub(crate) dirty: bool,
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// For each command, its index in the table of commands and the end of its spans.
    commands: Vec<(usize, usize)>,
    /// Arguments that were too long to be held in memory; ascending by place.
    staged: Vec<Staged>,
    /// Database and protocol version when EXEC first began.
    before: Option<(usize, Version)>,
    /// How the client tracked keys then.
    tracking_before: Option<TrackingOptions>,
}

impl Multi {
    /// Returns the number of queued commands.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Returns the memory that the queue takes.
    pub(crate) fn bytes(&self) -> usize {
        let staged = self.staged.iter().map(|staged| staged.value.idle_bytes());
        let staged = staged.sum::<usize>();
        self.bytes.len() + self.spans.len() * size_of::<Span>() + self.commands.len() * 16 + staged
    }

    /// The same, with what is kept for further ones.
    pub(crate) fn memory(&self) -> usize {
        let spare = (self.bytes.capacity() - self.bytes.len())
            + (self.spans.capacity() - self.spans.len()) * size_of::<Span>();
        self.bytes() + spare
    }

    /// Begins an EXEC, perhaps again: undoes what its commands did to the session.
    pub(crate) fn enter(&mut self, session: &mut Session) {
        session.closes_after_exec = false;
        if let Some(subscriptions) = &mut session.subscriptions {
            subscriptions.revert();
        }
        match self.before {
            Some((database, version)) => {
                session.database = database;
                session.version = version;
                if let Some(tracking) = &mut session.tracking {
                    tracking.set(self.tracking_before.clone().unwrap_or_default());
                }
            }
            None => {
                self.before = Some((session.database, session.version));
                let tracking = session.tracking.as_ref();
                self.tracking_before = tracking.map(|tracking| tracking.options.clone());
            }
        }
    }

    /// Queues a command, and moves its staged arguments here.
    pub(crate) fn push(
        &mut self,
        command: usize,
        arguments: Arguments<'_>,
        staged: &mut Vec<Staged>,
    ) {
        let place = self.commands.len();
        self.staged
            .extend(staged.drain(..).map(|of| Staged { place, ..of }));
        for argument in arguments.from(0) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.spans.push(Span::new(start, self.bytes.len()));
        }
        self.commands.push((command, self.spans.len()));
    }

    /// Returns the staged arguments of command `index`.
    pub(crate) fn staged(&self, index: usize) -> &[Staged] {
        let from = self.staged.partition_point(|staged| staged.place < index);
        let to = self.staged.partition_point(|staged| staged.place <= index);
        &self.staged[from..to]
    }

    /// Returns command `index` (its index in the table of commands) and its arguments.
    pub(crate) fn at(&self, index: usize) -> (usize, Arguments<'_>) {
        let from = match index {
            0 => 0,
            _ => self.commands[index - 1].1,
        };
        let (command, to) = self.commands[index];
        (command, Arguments::new(&self.bytes, &self.spans[from..to]))
    }
}

/// Whether replies to commands are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ReplyMode {
    #[default]
    On,
    /// No reply is sent.
    Off,
    /// That to the next command is not sent.
    SkipNext,
    /// That to the running command is not sent.
    Skip,
}

impl ReplyMode {
    /// Returns true if the reply to what comes from the client now is not sent.
    pub(crate) fn is_silent(self) -> bool {
        matches!(self, Self::Off | Self::Skip)
    }

    /// Returns the mode of the command after the one that has finished.
    pub(crate) fn after_command(self) -> Self {
        match self {
            Self::On | Self::Skip => Self::On,
            Self::Off => Self::Off,
            Self::SkipNext => Self::Skip,
        }
    }
}

/// State of one connection that commands can change.
#[derive(Default)]
pub(crate) struct Session {
    /// Number of the selected database, which exists.
    pub(crate) database: usize,
    /// Protocol that replies are written in.
    pub(crate) version: Version,
    /// False until the client has given the password, if one is asked for.
    pub(crate) authenticated: bool,
    /// Since when it has to give that: from the beginning, or from a RESET on.
    pub(crate) asked_since: Option<Instant>,
    /// The connection is closed once the replies so far are sent.
    pub(crate) closing: bool,
    /// A command of the running EXEC closes the connection, once that has ended.
    pub(crate) closes_after_exec: bool,
    /// Set by CLIENT REPLY.
    pub(crate) reply_mode: ReplyMode,
    /// None outside MULTI.
    pub(crate) multi: Option<Multi>,
    /// The transaction of PANDO BEGIN.
    pub(crate) interactive: Option<Box<Interactive>>,
    /// Watched keys; EXEC, DISCARD and UNWATCH drop them.
    pub(crate) watches: Watches,
    /// LSN of the newest write of this connection.
    pub(crate) last_write: Option<Lsn>,
    /// Channels and patterns, from the first one on.
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
    /// The keys that it is told to forget, from the first CLIENT TRACKING on.
    pub(crate) tracking: Option<Box<ClientTracking>>,
    /// Where its commands spend their time, if it has asked for that.
    pub(crate) profiles: Option<Box<Profiles>>,
}

impl Session {
    /// Drops MULTI and WATCH.
    pub(crate) fn end_transaction(&mut self) {
        self.multi = None;
        self.watches = Watches::default();
    }

    /// Returns true if it has subscribed to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.as_ref().is_some_and(|of| of.any())
    }

    /// Returns true if it sees the commands of all clients.
    #[inline]
    pub(crate) fn is_monitor(&self) -> bool {
        self.subscriptions
            .as_ref()
            .is_some_and(|of| of.is_monitor())
    }

    /// Returns true if the client could not tell replies from messages, so that few commands are
    /// allowed.
    #[inline]
    pub(crate) fn receives_only(&self) -> bool {
        self.version == Version::Resp2 && self.is_subscribed()
    }

    /// Publishes what CLIENT LIST shows of this session.
    pub(crate) fn publish(&self, record: &ClientRecord) {
        // Relaxed throughout: each field is a report of its own.
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        record
            .database
            .store(small(self.database), Ordering::Relaxed);
        let version = if self.version == Version::Resp3 { 3 } else { 2 };
        record.version.store(version, Ordering::Relaxed);
        let (queued, queued_bytes) = match &self.multi {
            Some(multi) => (
                i64::try_from(multi.len()).unwrap_or(i64::MAX),
                multi.bytes(),
            ),
            None => (-1, 0),
        };
        record.queued.store(queued, Ordering::Relaxed);
        let open = self.interactive.as_ref();
        let open = open.filter(|interactive| interactive.lost().is_none());
        let began = open.map_or(0, |interactive| interactive.now_ms);
        record.transaction_ms.store(began, Ordering::Relaxed);
        let of_transaction = self.interactive.as_ref().map_or(0, |of| of.memory());
        record
            .queued_bytes
            .store(queued_bytes as u64, Ordering::Relaxed);
        record
            .transaction_bytes
            .store(of_transaction as u64, Ordering::Relaxed);
        record
            .watched
            .store(small(self.watches.len()), Ordering::Relaxed);
        for (space, count) in [
            (Space::Channel, &record.channels),
            (Space::Pattern, &record.patterns),
            (Space::Shard, &record.shard_channels),
        ] {
            let subscriptions = self.subscriptions.as_ref();
            let names = subscriptions.map_or(0, |of| of.len(space));
            count.store(small(names), Ordering::Relaxed);
        }
        // Read by reports only.
        record
            .is_monitor
            .store(self.is_monitor(), Ordering::Relaxed);
        let watched_bytes = self.watches.memory();
        record.watched_bytes.store(watched_bytes, Ordering::Relaxed);
        if let Some(tracking) = &self.tracking {
            publish_tracking(tracking, record);
        } else if record.tracking.load(Ordering::Relaxed) != 0 {
            record.tracking.store(0, Ordering::Relaxed);
            record.redirection.store(-1, Ordering::Relaxed);
        }
    }

    /// RESET: restores the state after connecting.
    pub(crate) fn reset(&mut self, authenticated: bool) {
        self.end_transaction();
        self.interactive = None;
        self.subscriptions = None;
        self.tracking = None;
        self.database = 0;
        // RESET itself is left out if the command before it asked for that.
        if self.reply_mode != ReplyMode::Skip {
            self.reply_mode = ReplyMode::On;
        }
        self.version = Version::Resp2;
        self.profiles = None;
        // Who has not given the password is not given more time for it.
        if self.authenticated && !authenticated {
            self.asked_since = Some(now());
        }
        self.authenticated = authenticated;
    }
}

/// Publishes what CLIENT LIST shows of how a client tracks keys.
fn publish_tracking(tracking: &ClientTracking, record: &ClientRecord) {
    let options = &tracking.options;
    let redirection = options.redirection.as_ref().map_or(0, |to| to.id);
    let (mut flags, mut shown) = (0, -1);
    if options.is_on {
        flags |= TRACKS;
        shown = i64::try_from(redirection).unwrap_or(i64::MAX);
    }
    if tracking.is_broken() {
        flags |= IS_BROKEN;
    }
    if options.is_broadcast {
        flags |= IS_BROADCAST;
    }
    // Relaxed: each is a report of its own.
    record.tracking.store(flags, Ordering::Relaxed);
    record.redirection.store(shown, Ordering::Relaxed);
}
