//! The events of a command that is not committed yet, in their order.

/// Capacity in bytes that is kept for the next command.
const KEPT_BYTES: usize = 1024;
/// The event of a read that has found no value.
pub(crate) const MISS: &str = "keymiss";

/// What has happened to a key.
#[derive(Debug, Clone, Copy)]
struct Event {
    name: &'static str,
    database: usize,
    /// Where the key is in the bytes.
    start: usize,
    end: usize,
}

/// Events, with the numbers of their databases and their keys. Empty, it has no memory.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    bytes: Vec<u8>,
    events: Vec<Event>,
}

/// A place among events.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mark {
    bytes: usize,
    events: usize,
}

impl Recorded {
    /// Adds an event. A key that has several in a row is kept once.
    pub(crate) fn add(&mut self, database: usize, key: &[u8], name: &'static str) {
        let last = self.events.last().copied();
        let (start, end) = match last {
            Some(last) if &self.bytes[last.start..last.end] == key => (last.start, last.end),
            _ => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(key);
                (start, self.bytes.len())
            }
        };
        self.events.push(Event {
            name,
            database,
            start,
            end,
        });
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
        }
    }

    /// Forgets the events behind `mark`.
    #[inline]
    pub(crate) fn truncate(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.events.truncate(mark.events);
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

    /// Returns the events: database, key and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[u8], &'static str)> {
        let of = |event: &Event| {
            (
                event.database,
                &self.bytes[event.start..event.end],
                event.name,
            )
        };
        self.events.iter().map(of)
    }

    /// Adds all events of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        for (database, key, name) in other.iter() {
            self.add(database, key, name);
        }
    }

    /// Takes the misses out: what they tell is not part of any commit.
    pub(crate) fn take_misses(&mut self) -> Self {
        let (mut misses, mut rest) = (Self::default(), Self::default());
        for (database, key, name) in self.iter() {
            let part = if name == MISS { &mut misses } else { &mut rest };
            part.add(database, key, name);
        }
        *self = rest;
        misses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(recorded: &Recorded) -> Vec<String> {
        let of = |(database, key, name): (usize, &[u8], &str)| {
            format!("{name} {}@{database}", String::from_utf8_lossy(key))
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
}
