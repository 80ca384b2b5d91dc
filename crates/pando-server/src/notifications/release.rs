//! Announcing commits, handing their events over, and publishing them.
//!
//! One thread publishes at a time, and takes along what others hand over meanwhile. If they hand
//! over faster than it publishes, they wait for it: so what waits is bounded, and nobody publishes
//! for others without an end. Waiting is for the lock `turn`, which the publisher holds while it
//! publishes; nobody has a lock of the engine then. Who adds nothing does not wait.

use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::Lsn;

use super::classes::{Class, Classes};
use super::order::{Announced, Batch, Order};
use super::recorded::Recorded;
use crate::pubsub::message::Space;
use crate::pubsub::registry::Channels;

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
    channels: Arc<Channels>,
}

impl Notifications {
    pub(crate) fn new(channels: &Arc<Channels>) -> Arc<Self> {
        Arc::new(Self {
            wanted: AtomicU32::new(0),
            set: Mutex::new(Rank::Leaf, Classes::default()),
            order: Mutex::new(Rank::Leaf, Order::default()),
            turn: Mutex::new(Rank::Notifying, ()),
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

    /// Announces a commit; `newest` is the newest LSN of the log.
    pub(crate) fn announce(self: &Arc<Self>, newest: Lsn) -> Announcement {
        Announcement {
            of: Arc::clone(self),
            announced: Some(self.order.lock().announce(newest)),
        }
    }

    /// Publishes events that belong to no commit, behind those of all commits up to `newest`. They
    /// may be shown once `after` is durable.
    pub(crate) fn tell(&self, events: Recorded, newest: Lsn, after: Option<Lsn>) {
        self.order.lock().hand_over(newest, Batch { events, after });
        self.publish_ready(true);
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
        for (database, key, name) in batch.events.iter() {
            let database = number.format(database).as_bytes();
            let mut publish = |space: &str, end: &[u8], text: &[u8]| {
                channel.clear();
                for part in [space.as_bytes(), database, b"__:", end] {
                    channel.extend_from_slice(part);
                }
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
}

/// A commit that was announced. Dropped, it is withdrawn: it has failed, or has to wait, or its
/// client is gone.
#[derive(Debug)]
#[must_use = "dropped, it is withdrawn"]
pub(crate) struct Announcement {
    of: Arc<Notifications>,
    /// `None`: it was handed over.
    announced: Option<Announced>,
}

impl Announcement {
    /// Hands the events of the commit over, which has this LSN.
    pub(crate) fn hand_over(mut self, lsn: Lsn, events: Recorded) {
        let after = Some(lsn);
        let mut order = self.of.order.lock();
        order.hand_over(lsn, Batch { events, after });
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
        while let Some(delivery) = mailbox.take() {
            let mut out = Vec::new();
            let receiver = Receiver {
                version: Version::Resp2,
                is_subscribed: true,
            };
            delivery.write(receiver, &mut out);
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
                    let announcement = notifications.announce(bound);
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
        let (one, other) = (
            notifications.announce(Lsn(5)),
            notifications.announce(Lsn(5)),
        );
        other.hand_over(Lsn(7), events(b"7"));
        notifications.tell(events(b"70"), Lsn(7), None);
        notifications.tell(events(b"50"), Lsn(5), None);
        assert_eq!(keys(&mailbox), [50]);
        drop(one);
        assert_eq!(keys(&mailbox), [7, 70]);
    }
}
