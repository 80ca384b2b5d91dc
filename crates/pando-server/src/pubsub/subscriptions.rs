//! What one client has subscribed to, as its commands see it.
//!
//! Commands change the names here, and note the change; the registry learns of it when the command
//! has ended (`connection/messages.rs`). Inside EXEC that is after the commit: until then a run may
//! be given up and repeated, and its changes are undone by [`Subscriptions::revert`]. What is
//! published inside EXEC waits among the changes, and so goes out once.

use std::collections::BTreeSet;
use std::task::Waker;

use pando_sync::Arc;

use super::mailbox::Mailbox;
use super::message::{Name, Space};
use super::registry::{Channels, SUBSCRIPTION_BYTES, Subscriber};
use crate::glob;

/// What an allocation takes besides its bytes, about.
const ALLOCATION_BYTES: usize = 16;

/// Most steps in which a channel is compared with the client's own patterns.
const OWN_STEPS_MAX: u64 = 1 << 26;

/// Something that a command has done and nobody else has seen yet.
#[derive(Debug)]
pub(crate) enum Change {
    Subscribe(Space, Name),
    Unsubscribe(Space, Name),
    /// Channel and text.
    Publish(Space, Box<[u8]>, Box<[u8]>),
    /// Sees the commands of all clients from now on.
    Monitor,
}

impl Change {
    /// Memory of a message, about; others take none that counts.
    fn message_bytes(&self) -> usize {
        match self {
            Self::Publish(_, channel, text) => {
                size_of::<Self>() + channel.len() + text.len() + 2 * ALLOCATION_BYTES
            }
            Self::Subscribe(..) | Self::Unsubscribe(..) | Self::Monitor => 0,
        }
    }
}

/// Where a client is registered. Ends all its subscriptions when it is dropped.
#[derive(Debug)]
struct Place {
    channels: Arc<Channels>,
    subscriber: Subscriber,
}

/// The subscriptions of one client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeSet<Name>,
    patterns: BTreeSet<Name>,
    shard_channels: BTreeSet<Name>,
    /// It sees the commands of all clients.
    is_monitor: bool,
    /// In the order in which they were made.
    changes: Vec<Change>,
    /// Memory of the messages in `changes`.
    message_bytes: usize,
    /// Memory of the subscriptions in `changes`, of which the registry does not know.
    pending_bytes: u64,
    /// From the first subscription on.
    place: Option<Place>,
}

impl Subscriptions {
    fn names(&self, space: Space) -> &BTreeSet<Name> {
        match space {
            Space::Channel => &self.channels,
            Space::Pattern => &self.patterns,
            Space::Shard => &self.shard_channels,
        }
    }

    fn names_mut(&mut self, space: Space) -> &mut BTreeSet<Name> {
        match space {
            Space::Channel => &mut self.channels,
            Space::Pattern => &mut self.patterns,
            Space::Shard => &mut self.shard_channels,
        }
    }

    /// Returns the number of names in `space`.
    pub(crate) fn len(&self, space: Space) -> usize {
        self.names(space).len()
    }

    /// Returns the number that replies about `space` show: channels and patterns count together.
    pub(crate) fn shown(&self, space: Space) -> usize {
        match space {
            Space::Channel | Space::Pattern => self.channels.len() + self.patterns.len(),
            Space::Shard => self.shard_channels.len(),
        }
    }

    /// Returns true if it has subscribed to anything.
    pub(crate) fn any(&self) -> bool {
        self.shown(Space::Channel) + self.shown(Space::Shard) > 0
    }

    /// Returns true if it sees the commands of all clients.
    pub(crate) fn is_monitor(&self) -> bool {
        self.is_monitor
    }

    /// Sees the commands of all clients from the end of this one on.
    pub(crate) fn monitor(&mut self) {
        if !std::mem::replace(&mut self.is_monitor, true) {
            self.changes.push(Change::Monitor);
        }
    }

    /// Subscribes to `name`, if it has not.
    pub(crate) fn subscribe(&mut self, space: Space, name: &[u8]) {
        if self.names(space).contains(name) {
            return;
        }
        let name = Name::from(name);
        self.pending_bytes += name.len() as u64 + SUBSCRIPTION_BYTES;
        self.names_mut(space).insert(Arc::clone(&name));
        self.changes.push(Change::Subscribe(space, name));
    }

    /// Leaves `name`, if it has subscribed to it.
    pub(crate) fn unsubscribe(&mut self, space: Space, name: &[u8]) {
        if let Some(name) = self.names_mut(space).take(name) {
            self.changes.push(Change::Unsubscribe(space, name));
        }
    }

    /// Leaves all names.
    pub(crate) fn unsubscribe_all(&mut self) {
        for space in [Space::Channel, Space::Pattern, Space::Shard] {
            for name in self.all(space) {
                self.unsubscribe(space, &name);
            }
        }
    }

    /// Returns all names in `space`, in their order.
    pub(crate) fn all(&self, space: Space) -> Vec<Name> {
        self.names(space).iter().cloned().collect()
    }

    /// Publishes a message when the command has ended.
    pub(crate) fn publish_later(&mut self, space: Space, channel: &[u8], text: &[u8]) {
        let publish = Change::Publish(space, channel.into(), text.into());
        self.message_bytes += publish.message_bytes();
        self.changes.push(publish);
    }

    /// Returns how often the client itself would receive a message; the channel was compared with
    /// the patterns that the registry knows.
    pub(crate) fn receives(&self, space: Space, channel: &[u8]) -> usize {
        let mut count = usize::from(self.names(space).contains(channel));
        if space == Space::Channel {
            let patterns = self.patterns.iter();
            let mut steps = OWN_STEPS_MAX;
            let mut is_match = |of: &&Name| glob::matches_within(of, channel, &mut steps);
            count += patterns
                .filter(|of| is_match(of).is_some_and(|of| of))
                .count();
        }
        count
    }

    /// Returns true if changes wait to be carried out.
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Takes the changes out, in order, so that each is carried out.
    pub(crate) fn take_changes(&mut self) -> Vec<Change> {
        (self.message_bytes, self.pending_bytes) = (0, 0);
        std::mem::take(&mut self.changes)
    }

    /// Returns the memory of the subscriptions that wait to be carried out.
    pub(crate) fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }

    /// Returns the memory of the messages that wait to be published.
    #[cfg_attr(not(feature = "scripts"), expect(dead_code, reason = "scripts ask"))]
    pub(crate) fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// Returns the number of changes that wait to be carried out.
    #[cfg_attr(not(feature = "scripts"), expect(dead_code, reason = "scripts ask"))]
    pub(crate) fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Forgets the messages that were to be published since there were `count` changes; all changes
    /// since then are messages.
    #[cfg_attr(not(feature = "scripts"), expect(dead_code, reason = "scripts ask"))]
    pub(crate) fn forget_messages(&mut self, count: usize) {
        let later = self.changes.drain(count.min(self.changes.len())..);
        debug_assert!(
            later
                .as_slice()
                .iter()
                .all(|of| matches!(of, Change::Publish(..)))
        );
        let bytes: usize = later.as_slice().iter().map(Change::message_bytes).sum();
        drop(later);
        self.message_bytes -= bytes;
    }

    /// Undoes the changes: nobody has seen them.
    pub(crate) fn revert(&mut self) {
        (self.message_bytes, self.pending_bytes) = (0, 0);
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Subscribe(space, name) => {
                    self.names_mut(space).remove(&name);
                }
                Change::Unsubscribe(space, name) => {
                    self.names_mut(space).insert(name);
                }
                Change::Monitor => self.is_monitor = false,
                Change::Publish(..) => {}
            }
        }
    }

    /// Registers client `id`, which `waker` wakes, with `name`.
    pub(crate) fn register(
        &mut self,
        channels: &Arc<Channels>,
        (space, name): (Space, &Name),
        (id, waker): (u64, &Waker),
    ) {
        let place = self.place(channels, (id, waker));
        channels.subscribe(space, name, &place.subscriber);
    }

    /// Registers client `id`, which `waker` wakes, as one that sees all commands.
    pub(crate) fn register_monitor(&mut self, channels: &Arc<Channels>, own: (u64, &Waker)) {
        channels.monitor(&self.place(channels, own).subscriber);
    }

    fn place(&mut self, channels: &Arc<Channels>, (id, waker): (u64, &Waker)) -> &Place {
        self.place.get_or_insert_with(|| Place {
            channels: Arc::clone(channels),
            subscriber: Subscriber {
                id,
                mailbox: Arc::new(Mailbox::new(waker.clone())),
            },
        })
    }

    /// Ends the registration with `name`.
    pub(crate) fn unregister(&mut self, space: Space, name: &Name) {
        if let Some(Place {
            channels,
            subscriber,
        }) = &self.place
        {
            channels.unsubscribe(space, name, subscriber.id);
        }
    }

    /// Returns the mailbox, once there is one.
    pub(crate) fn mailbox(&self) -> Option<&Arc<Mailbox>> {
        self.place.as_ref().map(|place| &place.subscriber.mailbox)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        // What was left without the registry knowing is still registered.
        self.revert();
        for space in [Space::Channel, Space::Pattern, Space::Shard] {
            for name in std::mem::take(self.names_mut(space)) {
                self.unregister(space, &name);
            }
        }
        if let Some(place) = self.place.as_ref().filter(|_| self.is_monitor) {
            place.channels.end_monitor(place.subscriber.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries out all changes, as the connection does.
    fn carry_out(of: &mut Subscriptions, channels: &Arc<Channels>) {
        for change in of.take_changes() {
            match change {
                Change::Subscribe(space, name) => {
                    of.register(channels, (space, &name), (7, Waker::noop()));
                }
                Change::Unsubscribe(space, name) => of.unregister(space, &name),
                Change::Monitor => of.register_monitor(channels, (7, Waker::noop())),
                Change::Publish(..) => {}
            }
        }
    }

    #[test]
    fn what_is_given_up_leaves_nothing_behind() {
        let channels = Arc::new(Channels::default());
        let mut own = Subscriptions::default();
        for space in [Space::Channel, Space::Pattern, Space::Shard] {
            own.subscribe(space, b"a");
            own.subscribe(space, b"b");
        }
        own.monitor();
        own.revert();
        assert!(!own.is_monitor() && !own.any());
        for space in [Space::Channel, Space::Pattern, Space::Shard] {
            own.subscribe(space, b"a");
            own.subscribe(space, b"b");
        }
        own.monitor();
        carry_out(&mut own, &channels);
        assert!(channels.has_monitors());
        own.unsubscribe(Space::Channel, b"a");
        own.subscribe(Space::Channel, b"c");
        own.subscribe(Space::Channel, b"a");
        own.unsubscribe(Space::Pattern, b"b");
        own.publish_later(Space::Channel, b"c", b"x");
        assert_eq!(
            (own.receives(Space::Channel, b"c"), own.shown(Space::Shard)),
            (1, 2)
        );
        own.revert();
        let names: Vec<_> = own.all(Space::Channel);
        assert_eq!(names, [Name::from(&b"a"[..]), Name::from(&b"b"[..])]);
        assert_eq!((own.len(Space::Pattern), own.has_changes()), (2, false));
        // Dropped in the middle of an EXEC.
        own.unsubscribe(Space::Shard, b"a");
        own.unsubscribe(Space::Channel, b"a");
        own.subscribe(Space::Pattern, b"new");
        assert_eq!(channels.len(Space::Channel), 2);
        drop(own);
        let lens = [Space::Channel, Space::Pattern, Space::Shard].map(|of| channels.len(of));
        assert_eq!((lens, channels.bytes()), ([0; 3], 0));
        assert!(!channels.has_monitors());
    }
}
