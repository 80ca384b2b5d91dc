//! Who receives what: the subscribers of each channel and of each pattern, over all loops.
//!
//! Channels lie in shards by the hash of their names. A publisher holds the lock of its channel's
//! shard, and inside it the shared one of the patterns, if there are any, while it puts the message
//! into the mailbox of each receiver. From this follows:
//!
//! - **One order for each channel.** Of two messages to a channel, one is in all mailboxes before
//!   the other is in any, also in those of patterns. A mailbox is a queue, and its loop takes from
//!   it in that order.
//! - **Exact counts.** Nobody subscribes or leaves while receivers are counted.
//! - **Who has seen the reply to SUBSCRIBE gets what is published after that.** The subscriber is
//!   registered under the lock that a later publisher takes, before its reply is written.
//! - **Who has seen the reply to UNSUBSCRIBE gets nothing more.** A publisher that found the
//!   subscriber had put its message into the mailbox when the subscriber got the lock; the loop
//!   empties the mailbox after that, and before it writes the reply (`connection/messages.rs`).
//! - **Who receives a message sees what its publisher had committed before.** The commit came
//!   before the lock of the mailbox, and the receiver's next command comes after it.
//!
//! Monitors are the receivers of one channel more, whose messages are lines for commands.
//!
//! Lock order: shard, patterns, mailbox; or monitors, mailbox. Connections are woken after all of
//! them, and what was waiting for one that had too much is dropped then.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, CachePadded, Mutex, Rank, RwLock};
use pandodb::Lsn;

use super::limits::SubscriberLimits;
use super::mailbox::{Mailbox, Put, Room};
use super::message::{Delivery, Message, MessageBytes, Name, Reason, Space};
use crate::glob::{self, Comparisons};

/// Number of shards of each kind of channel.
const SHARDS: usize = 64;
/// Memory that a subscription takes besides its name, in the tables of registry and client.
pub(super) const SUBSCRIPTION_BYTES: u64 = 256;

/// Most steps in which a channel is compared with all patterns: a tenth of a second, about, which
/// ten million patterns of the usual kind need.
const MATCH_STEPS_MAX: u64 = 1 << 26;

/// A channel cannot be compared with all patterns in [`MATCH_STEPS_MAX`] steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManySteps;

/// Returns those of `patterns` that match `channel`, with their subscribers.
fn matching<'n>(
    patterns: &'n Names,
    channel: &[u8],
) -> Result<Vec<(&'n Name, &'n Members)>, TooManySteps> {
    let (mut steps, mut found) = (MATCH_STEPS_MAX, Vec::new());
    for (pattern, members) in patterns {
        // Also what stops at once takes some time.
        steps = steps.saturating_sub(4);
        if glob::matches_within(pattern, channel, &mut steps).ok_or(TooManySteps)? {
            found.push((pattern, members));
        }
    }
    Ok(found)
}

/// The subscribers of one name, by client: a client that subscribes twice receives once.
type Members = BTreeMap<u64, Arc<Mailbox>>;
type Names = HashMap<Name, Members>;

/// Who subscribes: the id of a client, and its mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Subscriber {
    pub(crate) id: u64,
    pub(crate) mailbox: Arc<Mailbox>,
}

/// All subscriptions of all clients.
#[derive(Debug)]
pub(crate) struct Channels {
    channels: Vec<Mutex<Names>>,
    shard_channels: Vec<Mutex<Names>>,
    patterns: RwLock<Names>,
    /// Set while there are patterns, and changed under their lock; each publisher reads it.
    /// Relaxed, as `has_monitors`. Of two publishers of a channel the later one has the lock of its
    /// shard after the earlier one, so it finds what that has found, or something newer.
    has_patterns: CachePadded<AtomicBool>,
    /// Those who see all commands. Held while lines go to all of them, which have one order so.
    monitors: Mutex<Members>,
    /// Set while there are monitors; every command reads it, so it shares its cache line with
    /// nothing. Relaxed: it is set before the reply to MONITOR is written, and what is sent after
    /// that reply was received runs later.
    has_monitors: CachePadded<AtomicBool>,
    hasher: RandomState,
    pub(crate) limits: SubscriberLimits,
    /// Memory of messages that wait, and of their places in mailboxes. The bytes of a message count
    /// once, however many receivers it has.
    waiting: Arc<MessageBytes>,
    /// Memory of subscriptions. Relaxed: it orders nothing.
    bytes: AtomicU64,
    /// Number of subscribers that were closed since they had too much waiting. Relaxed.
    overruns: AtomicU64,
}

impl Default for Channels {
    fn default() -> Self {
        let shards = || {
            let shard = |_| Mutex::new(Rank::Channels, Names::default());
            (0..SHARDS).map(shard).collect()
        };
        Self {
            channels: shards(),
            shard_channels: shards(),
            patterns: RwLock::new(Rank::Patterns, Names::default()),
            has_patterns: CachePadded(AtomicBool::new(false)),
            monitors: Mutex::new(Rank::Channels, Members::default()),
            has_monitors: CachePadded(AtomicBool::new(false)),
            hasher: RandomState::new(),
            limits: SubscriberLimits::default(),
            waiting: Arc::default(),
            bytes: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
        }
    }
}

/// Adds a subscriber. Returns false if it was there.
fn insert(names: &mut Names, name: &Name, subscriber: &Subscriber) -> bool {
    let members = names.entry(Arc::clone(name)).or_default();
    let mailbox = Arc::clone(&subscriber.mailbox);
    members.insert(subscriber.id, mailbox).is_none()
}

/// Removes a subscriber. Returns false if it was not there.
fn remove(names: &mut Names, name: &[u8], id: u64) -> bool {
    let Some(members) = names.get_mut(name) else {
        return false;
    };
    let was_there = members.remove(&id).is_some();
    if members.is_empty() {
        names.remove(name);
        if names.len() < names.capacity() / 8 {
            names.shrink_to(names.len() * 2);
        }
    }
    was_there
}

/// A message that is being put into mailboxes.
struct Round {
    /// How much may wait in a mailbox.
    room: Room,
    message: Arc<Message>,
    count: usize,
    /// Those that have to be woken.
    asleep: Vec<(Arc<Mailbox>, Put)>,
}

impl Round {
    /// Wakes those that have to be, without any lock.
    fn wake(&self) {
        self.asleep.iter().for_each(|(mailbox, _)| mailbox.wake());
    }

    fn put(&mut self, members: &Members, reason: &Reason) {
        for mailbox in members.values() {
            let delivery = Delivery::new(reason.clone(), Arc::clone(&self.message));
            self.count += 1;
            let put = mailbox.put(delivery, self.room);
            if put.wakes {
                self.asleep.push((Arc::clone(mailbox), put));
            }
        }
    }
}

impl Channels {
    fn all_of(&self, space: Space) -> &[Mutex<Names>] {
        match space {
            Space::Shard => &self.shard_channels,
            Space::Channel | Space::Pattern => &self.channels,
        }
    }

    /// Returns the shard of a channel.
    fn shard(&self, space: Space, channel: &[u8]) -> &Mutex<Names> {
        assert!(space != Space::Pattern, "patterns have one table");
        let hash = self.hasher.hash_one(channel);
        let shards = self.all_of(space);
        let index = usize::try_from(hash % shards.len() as u64);
        &shards[index.expect("it is smaller than their number")]
    }

    /// Registers a subscriber, if it is not there.
    pub(crate) fn subscribe(&self, space: Space, name: &Name, subscriber: &Subscriber) {
        let is_new = match space {
            Space::Pattern => {
                let mut patterns = self.patterns.write();
                self.has_patterns.store(true, Ordering::Relaxed);
                insert(&mut patterns, name, subscriber)
            }
            _ => insert(&mut self.shard(space, name).lock(), name, subscriber),
        };
        if is_new {
            let bytes = name.len() as u64 + SUBSCRIPTION_BYTES;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Removes a subscriber, if it is there.
    pub(crate) fn unsubscribe(&self, space: Space, name: &[u8], id: u64) {
        let was_there = match space {
            Space::Pattern => {
                let mut patterns = self.patterns.write();
                let was_there = remove(&mut patterns, name, id);
                self.has_patterns
                    .store(!patterns.is_empty(), Ordering::Relaxed);
                was_there
            }
            _ => remove(&mut self.shard(space, name).lock(), name, id),
        };
        if was_there {
            let bytes = name.len() as u64 + SUBSCRIPTION_BYTES;
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Publishes `text`; `after` is the newest write that came before it. Returns the number of
    /// receivers. A client with patterns may receive it several times.
    ///
    /// # Errors
    /// Nobody receives it: patterns and channel are too long together.
    pub(crate) fn publish(
        &self,
        space: Space,
        (channel, text): (&[u8], &[u8]),
        after: Option<Lsn>,
    ) -> Result<usize, TooManySteps> {
        let names = self.shard(space, channel).lock();
        let members = names.get(channel);
        let may_match = space == Space::Channel && self.has_patterns.load(Ordering::Relaxed);
        let patterns = may_match.then(|| self.patterns.read());
        if members.is_none() && patterns.is_none() {
            return Ok(0);
        }
        let by_pattern = match &patterns {
            Some(patterns) => matching(patterns, channel)?,
            None => Vec::new(),
        };
        let message = Message::new((channel, text), after, &self.waiting);
        let mut round = self.round(Arc::new(message));
        if let Some(members) = members {
            let reason = match space {
                Space::Shard => Reason::Shard,
                Space::Channel | Space::Pattern => Reason::Channel,
            };
            round.put(members, &reason);
        }
        for (pattern, members) in by_pattern {
            round.put(members, &Reason::Pattern(Arc::clone(pattern)));
        }
        drop(patterns);
        drop(names);
        round.wake();
        Ok(round.count)
    }

    /// Makes `subscriber` see the commands of all clients.
    pub(crate) fn monitor(&self, subscriber: &Subscriber) {
        let mut monitors = self.monitors.lock();
        monitors.insert(subscriber.id, Arc::clone(&subscriber.mailbox));
        self.has_monitors.store(true, Ordering::Relaxed);
    }

    /// Ends that, if it was so.
    pub(crate) fn end_monitor(&self, id: u64) {
        let mut monitors = self.monitors.lock();
        monitors.remove(&id);
        self.has_monitors
            .store(!monitors.is_empty(), Ordering::Relaxed);
    }

    /// Returns true if somebody wants to see commands.
    #[inline]
    pub(crate) fn has_monitors(&self) -> bool {
        self.has_monitors.load(Ordering::Relaxed)
    }

    /// Sends lines to all monitors, with nothing between them.
    #[cold]
    pub(crate) fn tell_monitors(&self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let mut rounds = Vec::new();
        let monitors = self.monitors.lock();
        for lines in messages {
            let message = Arc::new(Message::of_lines(lines, &self.waiting));
            let mut round = self.round(message);
            round.put(&monitors, &Reason::Monitor);
            rounds.push(round);
        }
        drop(monitors);
        rounds.iter().for_each(Round::wake);
    }

    /// Returns how much may wait in a mailbox now.
    fn room(&self) -> Room {
        Room {
            bytes_max: self.limits.hard(),
            share_max: self.limits.share(self.waiting.used()),
        }
    }

    fn round(&self, message: Arc<Message>) -> Round {
        Round {
            room: self.room(),
            message,
            count: 0,
            asleep: Vec::new(),
        }
    }

    /// Puts a message into one mailbox that is no subscriber's, and wakes its connection.
    pub(crate) fn deliver(&self, mailbox: &Mailbox, reason: Reason, message: &Arc<Message>) {
        let delivery = Delivery::new(reason, Arc::clone(message));
        if mailbox.put(delivery, self.room()).wakes {
            mailbox.wake();
        }
    }

    /// Returns what counts the memory of messages.
    pub(crate) fn message_bytes(&self) -> &Arc<MessageBytes> {
        &self.waiting
    }

    /// Returns how many would receive a message now; a client with patterns may be several.
    pub(crate) fn receivers(&self, space: Space, channel: &[u8]) -> Result<usize, TooManySteps> {
        self.count(space, channel, Members::len)
    }

    /// Returns how many others than client `id` would receive a message now.
    pub(crate) fn receivers_besides(
        &self,
        space: Space,
        channel: &[u8],
        id: u64,
    ) -> Result<usize, TooManySteps> {
        let others = |members: &Members| members.len() - usize::from(members.contains_key(&id));
        self.count(space, channel, others)
    }

    fn count(
        &self,
        space: Space,
        channel: &[u8],
        of: impl Fn(&Members) -> usize,
    ) -> Result<usize, TooManySteps> {
        let names = self.shard(space, channel).lock();
        let mut count = names.get(channel).map_or(0, &of);
        if space == Space::Channel {
            let patterns = self.patterns.read();
            let matching = matching(&patterns, channel)?.into_iter();
            count += matching.map(|(_, members)| of(members)).sum::<usize>();
        }
        Ok(count)
    }

    /// Returns the number of subscribers of a channel; those of patterns do not count.
    pub(crate) fn members(&self, space: Space, channel: &[u8]) -> usize {
        let names = self.shard(space, channel).lock();
        names.get(channel).map_or(0, Members::len)
    }

    /// Returns the number of names that somebody has subscribed to.
    pub(crate) fn len(&self, space: Space) -> usize {
        match space {
            Space::Pattern => self.patterns.read().len(),
            _ => {
                let shards = self.all_of(space).iter();
                shards.map(|shard| shard.lock().len()).sum()
            }
        }
    }

    /// Returns the channels that have subscribers and match `pattern`.
    ///
    /// # Errors
    /// The text of the error reply, if that takes too many steps.
    pub(crate) fn active(
        &self,
        space: Space,
        pattern: Option<&[u8]>,
    ) -> Result<Vec<Name>, &'static str> {
        let comparisons = Comparisons::new();
        let mut found = Vec::new();
        for shard in self.all_of(space) {
            let names = shard.lock();
            let matching = names
                .keys()
                .filter(|name| pattern.is_none_or(|pattern| comparisons.matches(pattern, name)));
            found.extend(matching.cloned());
        }
        comparisons.end()?;
        Ok(found)
    }

    /// Returns true if there is memory for a further subscription to `names`, besides the
    /// `pending_bytes` of those that the registry does not know yet.
    pub(crate) fn has_room<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]>,
        pending_bytes: u64,
    ) -> bool {
        let more: u64 = names
            .map(|name| name.len() as u64 + SUBSCRIPTION_BYTES)
            .sum();
        self.bytes.load(Ordering::Relaxed) + pending_bytes + more <= self.limits.bytes_max()
    }

    /// Returns the memory of subscriptions and of messages that wait, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed) + self.waiting.used()
    }

    /// Counts a subscriber that is closed since it had too much waiting.
    pub(crate) fn count_overrun(&self) {
        self.overruns.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of subscribers that were closed since they had too much waiting.
    pub(crate) fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn subscriber(id: u64) -> Subscriber {
        let mailbox = Arc::new(Mailbox::new(Waker::noop().clone()));
        Subscriber { id, mailbox }
    }

    #[test]
    fn receivers_are_those_of_the_channel_and_of_each_pattern() {
        let channels = Channels::default();
        let (one, two) = (subscriber(1), subscriber(2));
        let name = |text: &str| Name::from(text.as_bytes());
        channels.subscribe(Space::Channel, &name("news"), &one);
        channels.subscribe(Space::Channel, &name("news"), &one);
        channels.subscribe(Space::Pattern, &name("n*"), &one);
        channels.subscribe(Space::Pattern, &name("n*"), &two);
        channels.subscribe(Space::Shard, &name("news"), &two);
        let news = (&b"news"[..], &b"text"[..]);
        assert_eq!(channels.publish(Space::Channel, news, None), Ok(3));
        assert_eq!(channels.publish(Space::Shard, news, None), Ok(1));
        assert_eq!(
            channels.receivers_besides(Space::Channel, b"news", 1),
            Ok(1)
        );
        assert_eq!(channels.receivers_besides(Space::Shard, b"news", 1), Ok(1));
        assert_eq!(channels.publish(Space::Channel, (b"old", b""), None), Ok(0));
        let lens = |channels: &Channels| {
            [Space::Channel, Space::Pattern, Space::Shard].map(|space| channels.len(space))
        };
        assert_eq!(lens(&channels), [1, 1, 1]);
        for (space, text) in [
            (Space::Channel, "news"),
            (Space::Pattern, "n*"),
            (Space::Shard, "news"),
        ] {
            for id in [1, 2, 2] {
                channels.unsubscribe(space, text.as_bytes(), id);
            }
        }
        assert_eq!(lens(&channels), [0; 3]);
        drop((one, two));
        assert_eq!(channels.bytes(), 0);
    }

    /// Publishers look at patterns as long as there are any.
    #[test]
    fn a_pattern_whose_other_subscriber_leaves_still_receives() {
        let channels = Channels::default();
        let (one, two) = (subscriber(1), subscriber(2));
        let name = Name::from(&b"n*"[..]);
        let publish = || channels.publish(Space::Channel, (b"news", b"text"), None);
        assert_eq!(publish(), Ok(0));
        channels.subscribe(Space::Pattern, &name, &one);
        channels.subscribe(Space::Pattern, &name, &two);
        channels.unsubscribe(Space::Pattern, &name, 1);
        assert_eq!(publish(), Ok(1));
        channels.unsubscribe(Space::Pattern, &name, 2);
        assert_eq!(publish(), Ok(0));
        assert!(one.mailbox.take(1).is_empty() && !two.mailbox.take(1).is_empty());
    }

    #[test]
    fn a_channel_is_compared_with_patterns_for_so_long_only() {
        let channels = Channels::default();
        let one = subscriber(1);
        let long = [&b"*"[..], &[b'a'; 4000], b"b"].concat();
        channels.subscribe(Space::Pattern, &Name::from(&b"a*"[..]), &one);
        channels.subscribe(Space::Pattern, &Name::from(&long[..]), &one);
        let publish = |bytes: usize| {
            let message = (&vec![b'a'; bytes][..], &b"x"[..]);
            channels.publish(Space::Channel, message, None)
        };
        assert_eq!(
            (publish(1_000), publish(64_000)),
            (Ok(1), Err(TooManySteps))
        );
        let long = vec![b'a'; 64_000];
        assert_eq!(channels.receivers(Space::Channel, &long), Err(TooManySteps));
        let mut count = 0;
        while one.mailbox.take(1).pop().is_some() {
            count += 1;
        }
        assert_eq!(count, 1, "what is refused goes to nobody");
    }
}
