//! Announcing commits, handing their events over, and publishing them.
//!
//! One thread publishes at a time, and takes along what others hand over meanwhile. If they hand
//! over faster than it publishes, they wait for it: so what waits is bounded, and nobody publishes
//! for others without an end. Waiting is for the lock `turn`, which the publisher holds while it
//! publishes; nobody has a lock of the engine then. Who adds nothing does not wait.

use pando_sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Lsn;

use super::classes::{Class, Classes};
use super::order::{Announced, Batch, Order};
use super::recorded::{Recorded, Told};
use crate::pubsub::message::Space;
use crate::pubsub::registry::{Channels, TooManySteps};

/// What all loops share of notifications.
#[derive(Debug)]
pub(crate) struct Notifications {
    /// The classes that are asked for; none if there is no channel for them. Relaxed: a command
    /// that runs while it changes may have run before or after.
    wanted: AtomicU32,
    /// As it was set; for reports.
    set: Mutex<Classes>,
    /// Held for a look-up or a change.
    order: Mutex<Order>,
    /// Held while events are published.
    turn: Mutex<()>,
    /// Number of commits with messages that are announced, and of batches with messages that are
    /// not published yet. Raised before the commit can be seen, lowered when its messages are in
    /// all mailboxes.
    messages: AtomicUsize,
    channels: Arc<Channels>,
}

impl Notifications {
    pub(crate) fn new(channels: &Arc<Channels>) -> Arc<Self> {
        Arc::new(Self {
            wanted: AtomicU32::new(0),
            set: Mutex::new(Rank::Leaf, Classes::default()),
            order: Mutex::new(Rank::Leaf, Order::default()),
            turn: Mutex::new(Rank::Notifying, ()),
            messages: AtomicUsize::new(0),
            channels: Arc::clone(channels),
        })
    }

    /// Returns true if events of this class are published.
    #[inline]
    pub(crate) fn wants(&self, class: Class) -> bool {
        Classes::of_word(self.wanted.load(Ordering::Relaxed)).wants(class)
    }

    /// Returns the classes that were asked for.
    pub(crate) fn classes(&self) -> Classes {
        *self.set.lock()
    }

    /// Applies to commands that run from now on.
    pub(crate) fn set_classes(&self, classes: Classes) {
        let mut set = self.set.lock();
        *set = classes;
        self.wanted.store(classes.effective(), Ordering::Relaxed);
    }

    /// Announces a commit that has `events`; `newest` is the newest LSN of the log.
    pub(crate) fn announce(self: &Arc<Self>, newest: Lsn, events: &Recorded) -> Announcement {
        let announced = Some(self.order.lock().announce(newest));
        let has_messages = events.has_messages();
        self.begin_messages(has_messages);
        Announcement {
            of: Arc::clone(self),
            announced,
            has_messages,
        }
    }

    /// Publishes what belongs to no commit, behind what all commits up to `newest` tell. It may be
    /// shown once `after` is durable.
    pub(crate) fn tell(&self, events: Recorded, newest: Lsn, after: Option<Lsn>) {
        self.begin_messages(events.has_messages());
        let batch = Batch { events, after };
        self.order.lock().hand_over_behind(newest, batch);
        self.publish_ready(true);
    }

    /// Notes that messages are on their way, if there are any.
    fn begin_messages(&self, has_messages: bool) {
        if has_messages {
            // Relaxed: whoever sees what is committed after this sees it, too.
            self.messages.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Publishes a message of a PUBLISH that stands by itself: at once, unless messages of commits
    /// are on their way, which its client may know of. Returns the number of receivers.
    ///
    /// # Errors
    /// As [`Channels::publish`].
    pub(crate) fn publish_alone(
        &self,
        space: Space,
        (channel, text): (&[u8], &[u8]),
        newest: impl FnOnce() -> Lsn,
        after: Option<Lsn>,
    ) -> Result<usize, TooManySteps> {
        // Acquire: pairs with the Release where it is lowered, so those messages are in front.
        if self.messages.load(Ordering::Acquire) == 0 {
            return self.channels.publish(space, (channel, text), after);
        }
        let count = self.channels.receivers(space, channel)?;
        let mut message = Recorded::default();
        message.add_message(space, (channel, text));
        self.tell(message, newest(), after);
        Ok(count)
    }

    /// Publishes what is ready, unless somebody does that already; for him waits, if too much is
    /// waiting, who `has_added` to it.
    fn publish_ready(&self, has_added: bool) {
        loop {
            let mut order = self.order.lock();
            let Some(batch) = order.next(false) else {
                let waits = has_added && order.is_crowded();
                drop(order);
                if !waits {
                    return;
                }
                drop(self.turn.lock());
                continue;
            };
            drop(order);
            let turn = self.turn.lock();
            let mut next = Some(batch);
            while let Some(batch) = next {
                self.publish(&batch);
                self.end_messages(batch.events.has_messages());
                drop(batch);
                next = self.order.lock().next(true);
            }
            drop(turn);
            return;
        }
    }

    fn publish(&self, batch: &Batch) {
        let classes = Classes::of_word(self.wanted.load(Ordering::Relaxed));
        let mut channel = Vec::new();
        let mut number = itoa::Buffer::new();
        for told in batch.events.iter() {
            let (database, key, name) = match told {
                Told::Event {
                    database,
                    key,
                    name,
                } => (database, key, name),
                Told::Message {
                    space,
                    channel,
                    text,
                } => {
                    let message = (channel, text);
                    // Unless patterns have come since, it was counted.
                    let _receivers = self.channels.publish(space, message, batch.after);
                    continue;
                }
            };
            let database = number.format(database).as_bytes();
            let mut publish = |space: &str, end: &[u8], text: &[u8]| {
                channel.clear();
                for part in [space.as_bytes(), database, b"__:", end] {
                    channel.extend_from_slice(part);
                }
                // There is nobody to say that patterns are too long for it.
                let _receivers =
                    self.channels
                        .publish(Space::Channel, (&channel, text), batch.after);
            };
            if classes.by_key() {
                publish("__keyspace@", key, name.as_bytes());
            }
            if classes.by_name() {
                publish("__keyevent@", name.as_bytes(), key);
            }
        }
    }

    /// Notes that messages are published, or will not be, if there were any.
    fn end_messages(&self, had_messages: bool) {
        if had_messages {
            // Release: pairs with the Acquire of who publishes alone.
            self.messages.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A commit that was announced. Dropped, it is withdrawn: it has failed, or has to wait, or its
/// client is gone.
#[derive(Debug)]
#[must_use = "dropped, it is withdrawn"]
pub(crate) struct Announcement {
    of: Arc<Notifications>,
    /// `None`: it was handed over.
    announced: Option<Announced>,
    /// It counts among those with messages.
    has_messages: bool,
}

impl Announcement {
    /// Hands the events of the commit over, which has this LSN.
    pub(crate) fn hand_over(self, lsn: Lsn, events: Recorded) {
        let after = Some(lsn);
        let batch = Batch { events, after };
        self.hand_over_by(batch, |order, batch| order.hand_over(lsn, batch));
    }

    /// Hands over what a transaction tells that has written nothing. It was validated after it was
    /// announced, so what it has read is what there was at its bound: its place is behind the
    /// commits up to that, and before all others. It may be shown once `after` is durable.
    pub(crate) fn hand_over_read(self, events: Recorded, after: Option<Lsn>) {
        let (bound, _) = self.announced.expect("it was not handed over");
        let batch = Batch { events, after };
        self.hand_over_by(batch, |order, batch| order.hand_over_behind(bound, batch));
    }

    fn hand_over_by(mut self, batch: Batch, by: impl FnOnce(&mut Order, Batch)) {
        self.of.begin_messages(batch.events.has_messages());
        let mut order = self.of.order.lock();
        by(&mut order, batch);
        // Under the same lock: else others could publish later ones in between.
        if let Some(announced) = self.announced.take() {
            order.withdraw(announced);
        }
        drop(order);
        self.of.publish_ready(true);
    }

    /// Notes that an engine thread carries the commit out.
    pub(crate) fn goes_elsewhere(&self) {
        if let Some(announced) = self.announced {
            self.of.order.lock().goes_elsewhere(announced);
        }
        // It holds back less from now on.
        self.of.publish_ready(false);
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Those that were handed over are counted by themselves.
        self.of.end_messages(self.has_messages);
        if let Some(announced) = self.announced.take() {
            self.of.order.lock().withdraw(announced);
            self.of.publish_ready(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::mailbox::Mailbox;
    use crate::pubsub::message::{Name, Receiver};
    use crate::pubsub::registry::Subscriber;
    use pando_resp::Version;
    use pando_sync::atomic::AtomicU64;
    use pando_sync::thread;
    use std::task::Waker;

    const THREADS: u64 = 4;
    const COMMITS: u64 = 3_000;

    fn subscriber(channels: &Channels) -> Arc<Mailbox> {
        channels.limits.set(0, 0, 0);
        channels.limits.set_bytes_max(u64::MAX);
        let mailbox = Arc::new(Mailbox::new(Waker::noop().clone()));
        let subscriber = Subscriber {
            id: 1,
            mailbox: Arc::clone(&mailbox),
        };
        let name = Name::from(&b"__keyevent@*"[..]);
        channels.subscribe(Space::Pattern, &name, &subscriber);
        mailbox
    }

    fn keys(mailbox: &Mailbox) -> Vec<u64> {
        let mut keys = Vec::new();
        while let Some(delivery) = mailbox.take(1).pop() {
            let mut out = Vec::new();
            let receiver = Receiver {
                version: Version::Resp2,
                is_subscribed: true,
                is_silent: false,
            };
            assert!(delivery.write(receiver, &mut out).is_none());
            let text = String::from_utf8(out).expect("it is text");
            let key = text.trim_end().rsplit("\r\n").next().expect("it has lines");
            keys.push(key.parse().expect("a key is a number"));
        }
        keys
    }

    /// Threads commit, meet conflicts and publish at once: all events come, in the order of the
    /// LSNs.
    #[test]
    fn threads_publish_in_the_order_of_their_commits() {
        let channels = Arc::new(Channels::default());
        let mailbox = subscriber(&channels);
        let notifications = Notifications::new(&channels);
        notifications.set_classes(Classes::parse(b"E$").expect("they are known"));
        let newest = Arc::new(AtomicU64::new(0));
        let committing = |seed: u64| {
            let (notifications, newest) = (Arc::clone(&notifications), Arc::clone(&newest));
            move || {
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..COMMITS {
                    let bound = Lsn(newest.load(Ordering::SeqCst));
                    let announcement = notifications.announce(bound, &Recorded::default());
                    if random.u8(..) < 50 {
                        continue;
                    }
                    let lsn = newest.fetch_add(1, Ordering::SeqCst) + 1;
                    if random.u8(..) < 50 {
                        thread::yield_now();
                    }
                    let mut events = Recorded::default();
                    events.add(0, itoa::Buffer::new().format(lsn).as_bytes(), "set");
                    announcement.hand_over(Lsn(lsn), events);
                }
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|at| thread::spawn(committing(at)))
            .collect();
        threads
            .into_iter()
            .for_each(|of| of.join().expect("it ends"));
        let expected: Vec<u64> = (1..=newest.load(Ordering::SeqCst)).collect();
        assert_eq!(keys(&mailbox), expected);
    }

    #[test]
    fn what_belongs_to_no_commit_comes_behind_those_before() {
        let channels = Arc::new(Channels::default());
        let mailbox = subscriber(&channels);
        let notifications = Notifications::new(&channels);
        notifications.set_classes(Classes::parse(b"Em$").expect("they are known"));
        let events = |key: &[u8]| {
            let mut events = Recorded::default();
            events.add(0, key, "set");
            events
        };
        let none = Recorded::default();
        let (one, other) = (
            notifications.announce(Lsn(5), &none),
            notifications.announce(Lsn(5), &none),
        );
        other.hand_over(Lsn(7), events(b"7"));
        notifications.tell(events(b"70"), Lsn(7), None);
        notifications.tell(events(b"50"), Lsn(5), None);
        assert_eq!(keys(&mailbox), [50]);
        drop(one);
        assert_eq!(keys(&mailbox), [7, 70]);
    }

    /// What commits publish comes in their order, what was published alone behind what it may know
    /// of, and what a transaction tells that has only read before the commits behind its bound.
    #[test]
    fn messages_come_in_the_order_of_commits() {
        let channels = Arc::new(Channels::default());
        let mailbox = subscriber(&channels);
        let notifications = Notifications::new(&channels);
        let channel = &b"__keyevent@"[..];
        let message = |text: &[u8]| {
            let mut message = Recorded::default();
            message.add_message(Space::Channel, (channel, text));
            message
        };
        let alone = |text: &[u8], newest: u64| {
            let newest = || Lsn(newest);
            notifications.publish_alone(Space::Channel, (channel, text), newest, None)
        };
        assert_eq!(alone(b"1", 0), Ok(1));
        assert_eq!(keys(&mailbox), [1]);
        let announce = |of: &[u8], bound: u64| notifications.announce(Lsn(bound), &message(of));
        let (first, reader, second) = (announce(b"6", 5), announce(b"61", 6), announce(b"7", 6));
        second.hand_over(Lsn(7), message(b"7"));
        reader.hand_over_read(message(b"61"), None);
        assert_eq!(alone(b"71", 7), Ok(1));
        assert_eq!(keys(&mailbox), [0; 0], "a commit may come before them");
        first.hand_over(Lsn(6), message(b"6"));
        assert_eq!(keys(&mailbox), [6, 61, 7, 71]);
        drop(announce(b"8", 8));
        assert_eq!(notifications.messages.load(Ordering::Relaxed), 0);
    }
}
