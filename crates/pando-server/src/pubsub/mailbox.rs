//! What waits for one subscriber. Publishers of all loops put messages in; its own loop takes them
//! out, as fast as the client reads.
//!
//! **No message stays behind.** Whoever puts something into an empty mailbox wakes the connection,
//! after the lock: so the loop looks after that. If something was in it already, either somebody
//! else is about to wake it, or the loop has left it there for want of room in the output; then the
//! loop comes again when it has sent that ([`Mailbox::sent`]).
//!
//! A subscriber that has too much waiting loses all of it and is closed by its loop. Publishers
//! pass it by.

use std::task::Waker;

use pando_sync::{Mutex, Rank};

use super::message::Delivery;
use super::queue::Queue;

/// What is left to do when a message was put in, after all locks were given back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Put {
    /// The client has to be woken.
    pub(crate) wakes: bool,
    /// What was waiting, if that was too much: it takes a while to drop.
    _dropped: Queue,
}

impl Put {
    fn new(wakes: bool) -> Self {
        Self {
            wakes,
            _dropped: Queue::default(),
        }
    }
}

/// How much may wait in a mailbox.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Together with what is unsent, always.
    pub(crate) bytes_max: usize,
    /// Now, behind another message: less than that while all messages take too much memory.
    pub(crate) share_max: usize,
}

/// The mailbox of one client.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// Gives the connection a turn.
    waker: Waker,
    /// Held for a push or a pop.
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// Of the queue.
    bytes: usize,
    /// Of the connection's unsent output, as of its last round.
    unsent: usize,
    /// It had too much waiting: it is about to be closed.
    overrun: bool,
    /// Its connection has ended: nothing is taken out any more.
    closed: bool,
}

impl Mailbox {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            waker,
            waiting: Mutex::new(Rank::Leaf, Waiting::default()),
        }
    }

    /// Puts a message in, if there is room for it.
    pub(crate) fn put(&self, delivery: Delivery, room: Room) -> Put {
        let mut waiting = self.waiting.lock();
        if waiting.overrun || waiting.closed {
            return Put::new(false);
        }
        let was_empty = waiting.queue.is_empty();
        let bytes = waiting.bytes + delivery.bytes();
        let has_share = was_empty || bytes <= room.share_max;
        if bytes + waiting.unsent > room.bytes_max || !has_share {
            let dropped = std::mem::take(&mut *waiting);
            waiting.overrun = true;
            return Put {
                wakes: true,
                _dropped: dropped.queue,
            };
        }
        waiting.bytes = bytes;
        waiting.queue.push(delivery);
        Put::new(was_empty)
    }

    /// Drops what waits, and all that comes: the connection has ended.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        let dropped = std::mem::take(&mut *waiting);
        waiting.closed = true;
        drop(waiting);
        drop(dropped);
    }

    /// Returns true if the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.waiting.lock().closed
    }

    /// Gives the client's connection a turn.
    pub(crate) fn wake(&self) {
        self.waker.wake_by_ref();
    }

    /// Takes the oldest messages out: of `bytes_max` bytes, and the one that goes beyond that.
    pub(crate) fn take(&self, bytes_max: usize) -> Queue {
        let mut waiting = self.waiting.lock();
        if waiting.bytes <= bytes_max {
            waiting.bytes = 0;
            return std::mem::take(&mut waiting.queue);
        }
        let (mut taken, mut bytes) = (Queue::default(), 0);
        while bytes < bytes_max
            && let Some(delivery) = waiting.queue.pop()
        {
            bytes += delivery.bytes();
            taken.push(delivery);
        }
        waiting.bytes -= bytes;
        taken
    }

    /// Returns true if more was waiting than may. There is nothing to take any more.
    pub(crate) fn is_overrun(&self) -> bool {
        self.waiting.lock().overrun
    }

    /// Returns true if messages wait, or more would have waited than may.
    pub(crate) fn has_news(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.queue.is_empty() || waiting.overrun
    }

    /// Notes how much of the connection's output is unsent. Returns true if messages wait.
    pub(crate) fn sent(&self, unsent: usize) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.unsent = unsent;
        !waiting.queue.is_empty()
    }

    /// Returns the bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::message::{Message, MessageBytes, Reason, Receiver};
    use pando_resp::Version;
    use pando_sync::Arc;

    fn delivery(text: &[u8], waiting: &Arc<MessageBytes>) -> Delivery {
        let message = Arc::new(Message::new((b"c", text), None, waiting));
        Delivery::new(Reason::Channel, message)
    }

    const fn room(bytes_max: usize, share_max: usize) -> Room {
        Room {
            bytes_max,
            share_max,
        }
    }

    #[test]
    fn who_has_too_much_waiting_loses_it_and_gets_nothing_more() {
        let waiting = Arc::default();
        let mailbox = Mailbox::new(Waker::noop().clone());
        let one = || delivery(&[b'x'; 100], &waiting);
        let bytes = one().bytes();
        let room = room(bytes * 2, usize::MAX);
        assert!(mailbox.put(one(), room).wakes);
        assert!(!mailbox.put(one(), room).wakes);
        assert_eq!(mailbox.bytes(), bytes * 2);
        assert!(mailbox.take(1).pop().is_some());
        // The unsent output counts.
        assert!(mailbox.sent(1));
        assert!(mailbox.put(one(), room).wakes, "it is to be closed");
        assert_eq!((mailbox.bytes(), waiting.used()), (0, 0));
        assert!(!mailbox.put(one(), room).wakes);
        assert!(mailbox.is_overrun() && mailbox.has_news());
        assert!(mailbox.take(1).is_empty());
        assert_eq!(waiting.used(), 0);
    }

    #[test]
    fn when_memory_is_short_nobody_may_be_far_behind() {
        let waiting = Arc::default();
        let mailbox = Mailbox::new(Waker::noop().clone());
        let one = || delivery(b"x", &waiting);
        for _ in 0..2 {
            assert!(mailbox.put(one(), room(usize::MAX, 0)).wakes);
            assert!(mailbox.take(1).pop().is_some());
        }
        let share = room(usize::MAX, one().bytes() * 3);
        assert!(mailbox.put(one(), share).wakes);
        for _ in 0..2 {
            assert!(!mailbox.put(one(), share).wakes);
        }
        assert!(!mailbox.is_overrun());
        assert!(mailbox.put(one(), share).wakes);
        assert!(mailbox.is_overrun() && mailbox.has_news());
        assert!(mailbox.take(1).is_empty());
    }

    /// The queue that is taken has the messages in their order, and as many bytes as were asked
    /// for; long queues count their places.
    #[test]
    fn messages_are_taken_in_their_order_and_places_are_counted() {
        let waiting = Arc::default();
        let mailbox = Mailbox::new(Waker::noop().clone());
        let room = room(usize::MAX, usize::MAX);
        let texts: Vec<String> = (100..200).map(|number| number.to_string()).collect();
        for text in &texts {
            let _put = mailbox.put(delivery(text.as_bytes(), &waiting), room);
        }
        let (all, of_texts) = (mailbox.bytes(), 100 * (7 + 9) as u64);
        let places = 100 * size_of::<Delivery>() as u64;
        let counted = waiting.used() - of_texts;
        assert!(counted < places && counted > places * 3 / 4, "{counted}");
        let receiver = Receiver {
            version: Version::Resp3,
            is_subscribed: true,
            is_silent: false,
        };
        let mut out = Vec::new();
        for bytes_max in [1, all / 2, usize::MAX] {
            let mut taken = mailbox.take(bytes_max);
            while let Some(delivery) = taken.pop() {
                assert!(delivery.write(receiver, &mut out).is_none());
            }
            let left = 101 - out.split(|byte| *byte == b'>').count();
            let wanted = match bytes_max {
                1 => 99,
                usize::MAX => 0,
                _ => 49,
            };
            assert_eq!((left, mailbox.bytes()), (wanted, all / 100 * wanted));
        }
        let out = String::from_utf8(out).unwrap();
        let shown: Vec<&str> = out.split("\r\n").filter(|of| of.len() == 3).collect();
        assert_eq!(shown, texts);
        assert_eq!(waiting.used(), 0);
    }
}
