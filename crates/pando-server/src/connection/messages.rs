//! Messages on their way to a subscriber, and what its commands do to its subscriptions (decision
//! 083).

use pando_sync::time::Instant;
use pandodb::Lsn;

use crate::connection::loop_data::Turn;
use crate::connection::{Connection, SpareBuffers};
use crate::context::{Command, Flags};
use crate::options::Durability;
use crate::pubsub::limits::SubscriberLimits;
use crate::pubsub::subscriptions::Change;

/// Number of unsent bytes at which further messages stay in the mailbox, where receivers share
/// them.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

impl Connection {
    /// Refuses what a subscriber with RESP2 may not call: it could not tell replies from messages.
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
        for change in changes {
            let subscriptions = self.session.subscriptions.get_or_insert_default();
            match change {
                Change::Subscribe(space, name) => {
                    let own = (self.record.id, &self.waker);
                    subscriptions.register(channels, (space, &name), own);
                }
                Change::Unsubscribe(space, name) => {
                    subscriptions.unregister(space, &name);
                    self.take_messages(turn, usize::MAX);
                }
                Change::Publish(space, channel, text) => {
                    channels.publish(space, (&channel, &text), after);
                }
            }
        }
    }

    /// Moves messages from the mailbox to the output, in front of the reply of a command that runs.
    pub(super) fn receive(&mut self, turn: &Turn<'_>, spare: &mut SpareBuffers) {
        let subscriptions = self.session.subscriptions.as_ref();
        let waits = subscriptions
            .and_then(|of| of.mailbox())
            .is_some_and(|mailbox| mailbox.has_news());
        if !waits || self.session.closing {
            return;
        }
        self.buffers
            .get_or_insert_with(|| spare.pop().unwrap_or_default());
        self.take_messages(turn, UNSENT_BYTES_MAX);
    }

    /// As [`Connection::receive`], until the output has `unsent_max` bytes.
    fn take_messages(&mut self, turn: &Turn<'_>, unsent_max: usize) {
        let buffers = self.buffers.as_mut().expect("messages go into the buffers");
        let subscriptions = self.session.subscriptions.as_ref();
        let Some(mailbox) = subscriptions.and_then(|of| of.mailbox()) else {
            return;
        };
        let is_durable = turn.shared.settings.durability() == Durability::Durable;
        let data = turn.data.as_ref().filter(|_| is_durable);
        // They go out together, when the newest write of any of their publishers is durable. One by
        // one, each would move the reply behind them.
        let (mut bytes, mut gate) = (Vec::new(), None);
        while buffers.output.unsent() + bytes.len() < unsent_max
            && let Some(delivery) = mailbox.take()
        {
            delivery.write(self.session.version, &mut bytes);
            gate = gate.max(delivery.message.after);
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
        buffers.output.insert(&bytes, gate);
    }

    /// Notes what is left unsent after a round. Returns true if there is room for messages that
    /// wait.
    #[inline]
    pub(crate) fn has_room_for_messages(&self) -> bool {
        let Some(subscriptions) = &self.session.subscriptions else {
            return false;
        };
        let Some(mailbox) = subscriptions.mailbox() else {
            return false;
        };
        let unsent = self.unsent();
        mailbox.sent(unsent) && unsent < UNSENT_BYTES_MAX && !self.session.closing
    }

    /// Returns true if more than the soft limit has waited for longer than it may.
    pub(crate) fn is_slow_subscriber(&mut self, limits: &SubscriberLimits, now: Instant) -> bool {
        let bytes = self.unsent() + self.mail_bytes();
        let Some(subscriptions) = &mut self.session.subscriptions else {
            return false;
        };
        if !subscriptions.any() || !limits.is_over_soft(bytes) {
            subscriptions.over_since = None;
            return false;
        }
        let since = *subscriptions.over_since.get_or_insert(now);
        now.saturating_duration_since(since) > limits.soft_time()
    }

    /// Returns the bytes that wait in the mailbox.
    pub(crate) fn mail_bytes(&self) -> usize {
        let subscriptions = self.session.subscriptions.as_ref();
        let mailbox = subscriptions.and_then(|of| of.mailbox());
        mailbox.map_or(0, |mailbox| mailbox.bytes())
    }
}
