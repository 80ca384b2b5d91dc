//! Messages on their way to a subscriber, and what its commands do to its subscriptions (decision
//! 083). Those about keys that it has to forget come the same way, from a mailbox of their own:
//! they wait until a command that has read some of them has replied (decision 091).

use std::task::Waker;

use pando_sync::Arc;
use pando_sync::time::Instant;
use pandodb::Lsn;

use crate::connection::loop_data::Turn;
use crate::connection::{Connection, SpareBuffers};
use crate::context::{Command, Flags, replies};
use crate::options::Durability;
use crate::pubsub::limits::SubscriberLimits;
use crate::pubsub::mailbox::Mailbox;
use crate::pubsub::message::Receiver;
use crate::pubsub::subscriptions::Change;

/// Number of unsent bytes at which further messages stay in the mailbox, where receivers share
/// them.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

impl Connection {
    /// Refuses what a subscriber with RESP2 may not call: it could not tell replies from messages.
    /// A monitor may not use keys, as with Redis.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub(super) fn admit_beside_messages(
        &self,
        turn: &Turn<'_>,
        (id, command): (usize, &Command),
    ) -> Result<(), String> {
        if self.session.receives_only() && !command.flags.has(Flags::BESIDE_MESSAGES) {
            let name = turn.shared.statistics.commands.name(id);
            return Err(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT \
                 / RESET are allowed in this context"
            ));
        }
        let uses_keys = command.may_write() || command.flags.has(Flags::READONLY);
        if uses_keys && self.session.is_monitor() {
            return Err(replies::OF_REPLICA.to_owned());
        }
        Ok(())
    }

    /// Carries out what the command that ends has done to subscriptions, and publishes what it has
    /// published inside EXEC; `lsn` is that of its commit. Its reply is written and not released: a
    /// reply that says that a channel was left comes behind all its messages.
    #[cold]
    pub(super) fn carry_out_changes(&mut self, turn: &Turn<'_>, lsn: Option<Lsn>) {
        let subscriptions = self.session.subscriptions.as_mut();
        let changes = subscriptions
            .map(|of| of.take_changes())
            .unwrap_or_default();
        let after = lsn.max(self.session.last_write);
        let channels = &turn.shared.channels;
        // On a script thread the connection has another one for now.
        let own_waker = Waker::from(self.wake.clone());
        for change in changes {
            let subscriptions = self.session.subscriptions.get_or_insert_default();
            match change {
                Change::Subscribe(space, name) => {
                    let own = (self.record.id, &own_waker);
                    subscriptions.register(channels, (space, &name), own);
                }
                Change::Monitor => {
                    let own = (self.record.id, &own_waker);
                    subscriptions.register_monitor(channels, own);
                }
                Change::Unsubscribe(space, name) => {
                    subscriptions.unregister(space, &name);
                    if let Some(mailbox) = self.of_channels().cloned() {
                        self.take_messages(turn, &mailbox, usize::MAX);
                    }
                }
                Change::Publish(space, channel, text) => {
                    // It was counted when it ran.
                    let _receivers = channels.publish(space, (&channel, &text), after);
                }
            }
        }
    }

    /// Moves messages from the mailboxes to the output, in front of the reply of a command that
    /// runs.
    pub(super) fn receive(&mut self, turn: &Turn<'_>, spare: &mut SpareBuffers) {
        if self.session.closing {
            return;
        }
        for mailbox in [self.of_channels().cloned(), self.about_keys().cloned()] {
            let Some(mailbox) = mailbox.filter(|mailbox| mailbox.has_news()) else {
                continue;
            };
            self.buffers
                .get_or_insert_with(|| spare.pop().unwrap_or_default());
            self.take_messages(turn, &mailbox, UNSENT_BYTES_MAX);
        }
    }

    /// Returns the mailbox of its subscriptions.
    fn of_channels(&self) -> Option<&Arc<Mailbox>> {
        let subscriptions = self.session.subscriptions.as_ref();
        subscriptions.and_then(|of| of.mailbox())
    }

    /// Returns the mailbox for messages about keys, unless they have to stay behind the reply of
    /// the command that runs.
    fn about_keys(&self) -> Option<&Arc<Mailbox>> {
        let buffers = self.buffers.as_ref();
        let is_held = buffers.is_some_and(|buffers| buffers.progress.is_tracking);
        self.record.mail().filter(|_| !is_held)
    }

    /// Moves messages from a mailbox, until the output has `unsent_max` bytes.
    fn take_messages(&mut self, turn: &Turn<'_>, mailbox: &Mailbox, unsent_max: usize) {
        let receiver = Receiver {
            version: self.session.version,
            is_subscribed: self.session.is_subscribed(),
            is_silent: self.session.reply_mode.is_silent(),
        };
        let buffers = self.buffers.as_mut().expect("messages go into the buffers");
        let is_durable = turn.shared.settings.durability() == Durability::Durable;
        let data = turn.data.as_ref().filter(|_| is_durable);
        // They go out together, when the newest write of any of their publishers is durable. One by
        // one, each would move the reply behind them.
        let (mut bytes, mut gate) = (Vec::new(), None);
        let (mut shared, mut shared_bytes) = (Vec::new(), 0);
        loop {
            let unsent = buffers.output.unsent() + bytes.len() + shared_bytes;
            let room = unsent_max.saturating_sub(unsent);
            let mut taken = match room {
                0 => break,
                _ => mailbox.take(room),
            };
            if taken.is_empty() {
                break;
            }
            while let Some(delivery) = taken.pop() {
                if let Some(long) = delivery.write(receiver, &mut bytes) {
                    shared_bytes += long.1.piece().len();
                    shared.push(long);
                }
                gate = gate.max(delivery.message.after);
            }
        }
        // Also if there is no room: a client that does not read makes none.
        if mailbox.is_overrun() {
            self.broken = true;
            let client = &self.record.address;
            turn.shared.events.slow_subscriber(client);
            turn.shared.channels.count_overrun();
            return;
        }
        if bytes.is_empty() {
            return;
        }
        let gate = data.and_then(|data| {
            let durable = data.engine.db.durable_lsn();
            gate.filter(|lsn| *lsn > durable)
        });
        buffers.output.insert(&bytes, shared, gate);
    }

    /// Notes what is left unsent after a round. Returns true if there is room for messages that
    /// wait.
    #[inline]
    pub(crate) fn has_room_for_messages(&self) -> bool {
        if self.session.subscriptions.is_none() && self.record.mail().is_none() {
            return false;
        }
        let unsent = self.unsent();
        let has_room = unsent < UNSENT_BYTES_MAX && !self.session.closing;
        // That of a subscriber has to know what is unsent. Who tracks keys has no bound for its
        // replies, as other clients have none.
        let of_channels = self.of_channels().is_some_and(|of| of.sent(unsent));
        let about_keys = self.about_keys().is_some_and(|of| of.sent(0));
        // One that was held when it overran has woken nobody.
        let is_overrun = self.about_keys().is_some_and(|of| of.is_overrun());
        is_overrun || has_room && (of_channels || about_keys)
    }

    /// Returns true if it is a subscriber, and more than the soft limit has waited for longer than
    /// it may.
    pub(crate) fn is_slow_subscriber(&mut self, limits: &SubscriberLimits, now: Instant) -> bool {
        let is_told = self.session.is_subscribed() || self.session.is_monitor();
        let bytes = self.unsent() + self.mail_bytes();
        if !is_told || !limits.is_over_soft(bytes) {
            self.slow_since = None;
            return false;
        }
        let since = *self.slow_since.get_or_insert(now);
        now.saturating_duration_since(since) > limits.soft_time()
    }

    /// Returns the bytes that wait in the mailboxes.
    pub(crate) fn mail_bytes(&self) -> usize {
        let all = [self.of_channels(), self.record.mail()].into_iter();
        all.flatten().map(|mailbox| mailbox.bytes()).sum()
    }
}
