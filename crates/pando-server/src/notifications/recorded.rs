//! The events of a command that is not committed yet, and what it publishes, in their order.

use crate::pubsub::message::Space;

/// Capacity in bytes that is kept for the next command.
const KEPT_BYTES: usize = 1024;
/// The event of a read that has found no value.
pub(crate) const MISS: &str = "keymiss";

/// Something that is told.
#[derive(Debug, Clone, Copy)]
enum Kind {
    /// What has happened to a key, which the bytes have.
    Event { name: &'static str, database: usize },
    /// A message that a script or a command of EXEC publishes: the bytes have its channel and its
    /// text, which begins there.
    Message { space: Space, text: usize },
}

/// An event or a message.
#[derive(Debug, Clone, Copy)]
struct Event {
    kind: Kind,
    /// Where its bytes are.
    start: usize,
    end: usize,
}

/// An event or a message, as it is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told<'r> {
    Event {
        database: usize,
        key: &'r [u8],
        name: &'static str,
    },
    Message {
        space: Space,
        channel: &'r [u8],
        text: &'r [u8],
    },
}

/// Events, with the numbers of their databases and their keys, and messages between them. Empty,
/// it has no memory.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    bytes: Vec<u8>,
    events: Vec<Event>,
    /// Number of messages.
    messages: usize,
}

/// A place among events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    bytes: usize,
    events: usize,
    messages: usize,
}

impl Recorded {
    /// Adds an event. A key that has several in a row is kept once.
    pub(crate) fn add(&mut self, database: usize, key: &[u8], name: &'static str) {
        let last = self.events.last().copied();
        let (start, end) = match last {
            Some(Event {
                kind: Kind::Event { .. },
                start,
                end,
            }) if &self.bytes[start..end] == key => (start, end),
            _ => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(key);
                (start, self.bytes.len())
            }
        };
        let kind = Kind::Event { name, database };
        self.events.push(Event { kind, start, end });
    }

    /// Adds a message.
    pub(crate) fn add_message(&mut self, space: Space, (channel, text): (&[u8], &[u8])) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(channel);
        let kind = Kind::Message {
            space,
            text: self.bytes.len(),
        };
        self.bytes.extend_from_slice(text);
        let end = self.bytes.len();
        self.events.push(Event { kind, start, end });
        self.messages += 1;
    }

    /// Returns true if messages are among them.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.messages > 0
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.events.capacity() * size_of::<Event>()
    }

    /// Returns the place behind its last event.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            events: self.events.len(),
            messages: self.messages,
        }
    }

    /// Forgets the events behind `mark`.
    #[inline]
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.events.truncate(mark.events);
        self.messages = mark.messages;
    }

    /// Forgets all events, and keeps no unusual memory.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.events.capacity() == 0 {
            return;
        }
        if self.memory() > KEPT_BYTES {
            *self = Self::default();
        }
        self.truncate(Mark::default());
    }

    /// Returns all of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Told<'_>> {
        let of = |event: &Event| match event.kind {
            Kind::Event { name, database } => Told::Event {
                database,
                key: &self.bytes[event.start..event.end],
                name,
            },
            Kind::Message { space, text } => Told::Message {
                space,
                channel: &self.bytes[event.start..text],
                text: &self.bytes[text..event.end],
            },
        };
        self.events.iter().map(of)
    }

    fn push(&mut self, told: Told<'_>) {
        match told {
            Told::Event {
                database,
                key,
                name,
            } => self.add(database, key, name),
            Told::Message {
                space,
                channel,
                text,
            } => self.add_message(space, (channel, text)),
        }
    }

    /// Adds all of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        other.iter().for_each(|told| self.push(told));
    }

    /// Takes out those that `is_it` knows.
    fn take_those(&mut self, is_it: impl Fn(Told<'_>) -> bool) -> Self {
        let (mut taken, mut rest) = (Self::default(), Self::default());
        for told in self.iter() {
            let part = if is_it(told) { &mut taken } else { &mut rest };
            part.push(told);
        }
        *self = rest;
        taken
    }

    /// Takes the misses out: what they tell is not part of any commit.
    pub(crate) fn take_misses(&mut self) -> Self {
        self.take_those(|told| matches!(told, Told::Event { name, .. } if name == MISS))
    }

    /// Takes the messages out.
    pub(crate) fn take_messages(&mut self) -> Self {
        self.take_those(|told| matches!(told, Told::Message { .. }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(recorded: &Recorded) -> Vec<String> {
        let lossy = String::from_utf8_lossy;
        let of = |told: Told<'_>| match told {
            Told::Event {
                database,
                key,
                name,
            } => format!("{name} {}@{database}", lossy(key)),
            Told::Message { channel, text, .. } => format!("{}: {}", lossy(channel), lossy(text)),
        };
        recorded.iter().map(of).collect()
    }

    #[test]
    fn events_behind_a_mark_can_be_forgotten() {
        let mut recorded = Recorded::default();
        recorded.add(0, b"a", "set");
        let mark = recorded.mark();
        recorded.add(0, b"a", "expire");
        recorded.add(1, b"a", "del");
        recorded.add(0, b"", MISS);
        recorded.add(0, b"long", "set");
        let all = [
            "set a@0",
            "expire a@0",
            "del a@1",
            "keymiss @0",
            "set long@0",
        ];
        assert_eq!(shown(&recorded), all);
        let mut both = Recorded::default();
        both.append(&recorded);
        assert_eq!(shown(&both.take_misses()), ["keymiss @0"]);
        assert_eq!(
            shown(&both),
            ["set a@0", "expire a@0", "del a@1", "set long@0"]
        );
        recorded.truncate(mark);
        recorded.add(0, b"b", "set");
        assert_eq!(shown(&recorded), ["set a@0", "set b@0"]);
        recorded.clear();
        assert!(recorded.is_empty() && recorded.memory() <= KEPT_BYTES);
    }

    #[test]
    fn messages_have_their_places_among_events() {
        let mut recorded = Recorded::default();
        recorded.add_message(Space::Channel, (b"c", b"one"));
        recorded.add(0, b"cone", "set");
        let mark = recorded.mark();
        recorded.add_message(Space::Shard, (b"", b""));
        recorded.add(0, b"", "del");
        assert_eq!(shown(&recorded), ["c: one", "set cone@0", ": ", "del @0"]);
        let mut both = Recorded::default();
        both.append(&recorded);
        assert_eq!(shown(&both.take_messages()), ["c: one", ": "]);
        assert!(!both.has_messages());
        assert_eq!(shown(&both), ["set cone@0", "del @0"]);
        recorded.truncate(mark);
        assert!(recorded.has_messages());
        recorded.clear();
        assert!(!recorded.has_messages());
    }
}
