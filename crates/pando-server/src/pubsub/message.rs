//! A message on its way. Its bytes are made once, and all who receive it share them: the protocol
//! versions differ only in how a message begins.

use pando_resp::{Version, Writer};
use pando_sync::Arc;
use pando_sync::atomic::{AtomicU64, Ordering};
use pandodb::Lsn;

/// The name of a channel, or a pattern.
pub(crate) type Name = Arc<[u8]>;

/// What is subscribed to. Each kind has names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// A channel of PUBLISH.
    Channel,
    /// All channels of PUBLISH whose names match.
    Pattern,
    /// A channel of SPUBLISH.
    Shard,
}

/// Memory that messages take which wait for somebody, and their places in mailboxes. Relaxed
/// throughout: it orders nothing.
#[derive(Debug, Default)]
pub(crate) struct MessageBytes(AtomicU64);

impl MessageBytes {
    pub(crate) fn used(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Length from which on the bytes of a message are sent from where they lie (decision 128): as
/// copies they would be in memory for each client that receives it.
const SHARED_BYTES_MIN: usize = 16 * 1024;

/// The end of every message.
const LINE_END: &[u8] = b"\r\n";

/// The bytes of a message on their way to one client, without the line end behind them.
#[derive(Debug)]
pub(crate) struct SharedBytes {
    message: Arc<Message>,
    sent: usize,
}

impl SharedBytes {
    /// Returns those that are still to be sent.
    pub(crate) fn piece(&self) -> &[u8] {
        &self.message.bytes[self.sent..self.message.bytes.len() - LINE_END.len()]
    }

    /// Records that `count` of them were sent.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.piece().len(), "only what was there");
        self.sent += count;
    }
}

/// What was published.
#[derive(Debug)]
pub(crate) struct Message {
    /// Channel and text, as two strings of any protocol version.
    bytes: Vec<u8>,
    /// The newest write of its publisher before it: who may not see the one does not see the other.
    pub(crate) after: Option<Lsn>,
    /// Counts `bytes` while the message exists.
    waiting: Arc<MessageBytes>,
}

impl Message {
    pub(crate) fn new(
        (channel, text): (&[u8], &[u8]),
        after: Option<Lsn>,
        waiting: &Arc<MessageBytes>,
    ) -> Self {
        let mut bytes = Vec::with_capacity(channel.len() + text.len() + 32);
        // Strings are the same in all versions.
        let mut writer = Writer::new(&mut bytes, Version::Resp3);
        writer.bulk(channel);
        writer.bulk(text);
        let mut message = Self::of_bytes(bytes, waiting);
        message.after = after;
        message
    }

    /// Returns the message that tells a client to forget `keys`.
    pub(crate) fn of_changed<'k>(
        keys: impl ExactSizeIterator<Item = &'k [u8]>,
        waiting: &Arc<MessageBytes>,
    ) -> Self {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes, Version::Resp3);
        writer.array(keys.len());
        keys.for_each(|key| writer.bulk(key));
        Self::of_bytes(bytes, waiting)
    }

    /// Returns the message that tells a client to forget everything.
    pub(crate) fn of_all(waiting: &Arc<MessageBytes>) -> Self {
        // Null, which the protocol versions write in different ways.
        Self::of_bytes(Vec::new(), waiting)
    }

    /// Returns the message that says that client `id`, to which others go, is no longer there.
    pub(crate) fn of_broken(id: u64, waiting: &Arc<MessageBytes>) -> Self {
        let mut bytes = Vec::new();
        let id = i64::try_from(id).unwrap_or(i64::MAX);
        Writer::new(&mut bytes, Version::Resp3).integer(id);
        Self::of_bytes(bytes, waiting)
    }

    /// Returns lines for monitors, which are complete replies.
    pub(crate) fn of_lines(lines: Vec<u8>, waiting: &Arc<MessageBytes>) -> Self {
        Self::of_bytes(lines, waiting)
    }

    fn of_bytes(bytes: Vec<u8>, waiting: &Arc<MessageBytes>) -> Self {
        waiting.add(bytes.len() as u64);
        Self {
            bytes,
            // Who forgets a value too early reads it again, and waits for the log then.
            after: None,
            waiting: Arc::clone(waiting),
        }
    }

    /// Returns what counts it.
    pub(super) fn count(&self) -> Arc<MessageBytes> {
        Arc::clone(&self.waiting)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.waiting.sub(self.bytes.len() as u64);
    }
}

/// Why somebody receives a message.
#[derive(Debug, Clone)]
pub(crate) enum Reason {
    Channel,
    Shard,
    /// The channel matches this pattern.
    Pattern(Name),
    /// It has read keys that have changed.
    Changed,
    /// Another client has, which has its messages sent here.
    ChangedForOther,
    /// The client that its messages go to is gone.
    RedirectionBroken,
    /// It sees the commands of all clients.
    Monitor,
}

/// The channel on which clients with RESP2 learn what others are to forget.
const INVALIDATION: &[u8] = b"__redis__:invalidate";

/// What a message depends on at its receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    pub(crate) version: Version,
    /// It has subscribed to something: with RESP2 it can tell messages from replies.
    pub(crate) is_subscribed: bool,
    /// It wants no replies, which the lines of a monitor are.
    pub(crate) is_silent: bool,
}

/// A message for one client.
#[derive(Debug)]
pub(crate) struct Delivery {
    reason: Reason,
    pub(crate) message: Arc<Message>,
}

impl Delivery {
    pub(crate) fn new(reason: Reason, message: Arc<Message>) -> Self {
        Self { reason, message }
    }

    /// Returns the memory that it counts for at its receiver, as if it shared nothing.
    pub(crate) fn bytes(&self) -> usize {
        let pattern = match &self.reason {
            Reason::Pattern(pattern) => pattern.len(),
            _ => 0,
        };
        self.message.bytes.len() + pattern + size_of::<Self>() + 32
    }

    /// Writes it in the protocol of its receiver. Nothing, if that protocol has no way to say it.
    /// Of a long message only its frame: what is returned is to be sent at that place in `out`.
    #[must_use]
    pub(crate) fn write(
        &self,
        receiver: Receiver,
        out: &mut Vec<u8>,
    ) -> Option<(usize, SharedBytes)> {
        let mut writer = Writer::new(out, receiver.version);
        let is_new = receiver.version == Version::Resp3;
        match &self.reason {
            Reason::Channel => {
                writer.push(3);
                writer.bulk(b"message");
            }
            Reason::Shard => {
                writer.push(3);
                writer.bulk(b"smessage");
            }
            Reason::Pattern(pattern) => {
                writer.push(4);
                writer.bulk(b"pmessage");
                writer.bulk(pattern);
            }
            Reason::Changed | Reason::ChangedForOther if is_new => {
                writer.push(2);
                writer.bulk(b"invalidate");
            }
            Reason::ChangedForOther if receiver.is_subscribed => {
                writer.push(3);
                writer.bulk(b"message");
                writer.bulk(INVALIDATION);
            }
            Reason::RedirectionBroken if is_new => {
                writer.push(2);
                writer.bulk(b"tracking-redir-broken");
            }
            Reason::Changed | Reason::ChangedForOther | Reason::RedirectionBroken => return None,
            Reason::Monitor if receiver.is_silent => return None,
            Reason::Monitor => {}
        }
        let bytes = &self.message.bytes;
        if bytes.is_empty() {
            writer.null();
        } else if bytes.len() < SHARED_BYTES_MIN {
            writer.raw(bytes);
        } else {
            assert!(bytes.ends_with(LINE_END), "it is a reply of any protocol");
            let place = out.len();
            out.extend_from_slice(LINE_END);
            let message = Arc::clone(&self.message);
            return Some((place, SharedBytes { message, sent: 0 }));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_counted_while_somebody_has_it() {
        let waiting = Arc::default();
        let message = Arc::new(Message::new((b"c", b"text"), None, &waiting));
        assert_eq!(waiting.used(), 17);
        let reason = Reason::Pattern(Arc::from(&b"*"[..]));
        let delivery = Delivery::new(reason, Arc::clone(&message));
        drop(message);
        for (version, first) in [(Version::Resp2, '*'), (Version::Resp3, '>')] {
            let mut out = Vec::new();
            let is_subscribed = true;
            let receiver = Receiver {
                version,
                is_subscribed,
                is_silent: false,
            };
            assert!(delivery.write(receiver, &mut out).is_none());
            let text = "4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$4\r\ntext\r\n";
            assert_eq!(String::from_utf8(out).unwrap(), format!("{first}{text}"));
        }
        assert_eq!(waiting.used(), 17);
        drop(delivery);
        assert_eq!(waiting.used(), 0);
    }
    #[test]
    fn a_long_message_stays_where_it_lies() {
        let waiting = Arc::default();
        let text = vec![b'x'; 1 << 20];
        let message = Arc::new(Message::new((b"c", &text), None, &waiting));
        let delivery = Delivery::new(Reason::Channel, Arc::clone(&message));
        let receiver = Receiver {
            version: Version::Resp2,
            is_subscribed: true,
            is_silent: false,
        };
        let mut out = b"before".to_vec();
        let (place, mut shared) = delivery.write(receiver, &mut out).expect("it is long");
        assert_eq!(out, b"before*3\r\n$7\r\nmessage\r\n\r\n");
        assert_eq!(&out[place..], LINE_END);
        drop((delivery, message));
        let whole = [b"$1\r\nc\r\n$1048576\r\n", &text[..]].concat();
        assert_eq!(shared.piece(), whole);
        shared.consume(1000);
        assert_eq!(shared.piece(), &whole[1000..]);
        assert_eq!(waiting.used(), whole.len() as u64 + 2);
        drop(shared);
        assert_eq!(waiting.used(), 0);
    }
}
