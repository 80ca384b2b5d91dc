//! What a transaction has read, so that a run that begins again after a fault reads it no
//! more (decision 013).
//!
//! Runs are repeated from their beginning and read the same keys in the same order. What was read
//! is played back: each run gets further than the one before, also when the pages that it needs
//! do not fit into the pool together. The stamps of the first read are the ones that the commit
//! compares. A run that asks for something else leaves the log there.

use std::ops::Range;

/// Longest value that is kept; longer ones are read again.
const VALUE_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug)]
struct Entry {
    /// The place of its stamp among those of the transaction.
    read: usize,
    table: usize,
    key: Range<usize>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Kept(Range<usize>),
    Absent,
    TooLong,
}

/// The reads of one transaction, in their order.
#[derive(Debug, Default)]
pub(crate) struct ReadLog {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// The next entry to be played back.
    next: usize,
}

/// What the log knows of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Played {
    /// It is the value, or there is none; `out` holds it.
    Read(bool),
    /// The device has to be asked; if `is_new` the result belongs into the log.
    Unknown { is_new: bool },
}

impl ReadLog {
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.next = 0;
    }

    /// The next run begins.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Plays the next read back, if it is that of `key`.
    pub(crate) fn play(&mut self, table: usize, key: &[u8], out: &mut Vec<u8>) -> Played {
        let Some(entry) = self.entries.get(self.next) else {
            return Played::Unknown { is_new: true };
        };
        if entry.table != table || self.bytes[entry.key.clone()] != *key {
            self.entries.truncate(self.next);
            return Played::Unknown { is_new: true };
        }
        match &entry.value {
            Value::TooLong => Played::Unknown { is_new: false },
            Value::Absent => {
                self.next += 1;
                Played::Read(false)
            }
            Value::Kept(value) => {
                out.extend_from_slice(&self.bytes[value.clone()]);
                self.next += 1;
                Played::Read(true)
            }
        }
    }

    /// Ends a read that was not played back, and whose stamp is at the place `read`.
    pub(crate) fn note(&mut self, read: usize, table: usize, key: &[u8], value: Option<&[u8]>) {
        self.assert_last(read);
        let key = self.append(key);
        let value = self.keep(value);
        self.entries.push(Entry {
            read,
            table,
            key,
            value,
        });
        self.next += 1;
    }

    /// Ends a read of a value that is too long to be played back.
    pub(crate) fn pass(&mut self) {
        assert!(self.next < self.entries.len(), "a read that is not known");
        self.next += 1;
    }

    fn keep(&mut self, value: Option<&[u8]>) -> Value {
        match value {
            Some(bytes) if Self::keeps(value) => Value::Kept(self.append(bytes)),
            Some(_) => Value::TooLong,
            None => Value::Absent,
        }
    }

    /// True if what was read is not too long to be kept.
    pub(crate) fn keeps(value: Option<&[u8]>) -> bool {
        value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX)
    }

    /// The entry whose stamp is at the place `read`, if it is known what was read; `from` is where
    /// to look, and moves on: places are asked for in ascending order.
    pub(crate) fn entry_of(&self, read: usize, from: &mut usize) -> Option<usize> {
        let behind = &self.entries[*from..];
        *from += behind.iter().take_while(|entry| entry.read < read).count();
        let entry = self.entries.get(*from)?;
        let is_known = !matches!(entry.value, Value::TooLong);
        (entry.read == read && is_known).then_some(*from)
    }

    /// Table and key of an entry.
    pub(crate) fn key_of(&self, at: usize) -> (usize, &[u8]) {
        let entry = &self.entries[at];
        (entry.table, &self.bytes[entry.key.clone()])
    }

    /// True if `value` is what was read.
    pub(crate) fn is(&self, at: usize, value: Option<&[u8]>) -> bool {
        match &self.entries[at].value {
            Value::Kept(kept) => value == Some(&self.bytes[kept.clone()]),
            Value::Absent => value.is_none(),
            Value::TooLong => false,
        }
    }

    /// The read of an entry finds `value` from here on.
    pub(crate) fn replace(&mut self, at: usize, value: Option<&[u8]>) {
        let value = match (&self.entries[at].value, value) {
            // Else a log that is replaced again and again would grow.
            (Value::Kept(kept), Some(new)) if new.len() <= kept.len() => {
                let place = kept.start..kept.start + new.len();
                self.bytes[place.clone()].copy_from_slice(new);
                Value::Kept(place)
            }
            _ => self.keep(value),
        };
        self.entries[at].value = value;
    }

    /// As [`ReadLog::note`], of a value that lies in chunks.
    pub(crate) fn note_long(&mut self, read: usize, table: usize, key: &[u8]) {
        self.assert_last(read);
        let key = self.append(key);
        let value = Value::TooLong;
        self.entries.push(Entry {
            read,
            table,
            key,
            value,
        });
        self.next += 1;
    }

    /// The next entry is the last, and its stamp comes behind those of the others:
    /// [`ReadLog::entry_of`] goes from one to the next.
    fn assert_last(&self, read: usize) {
        assert_eq!(self.next, self.entries.len(), "a read between others");
        let last = self.entries.last();
        assert!(last.is_none_or(|last| last.read < read), "stamps in order");
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read<'a> = (usize, &'a [u8], Option<&'a [u8]>);

    const NEW: Played = Played::Unknown { is_new: true };

    #[test]
    fn a_run_that_is_repeated_gets_what_it_got() {
        let mut log = ReadLog::default();
        let long = vec![1; VALUE_BYTES_MAX + 1];
        let reads: [Read<'_>; 4] = [
            (0, b"a", Some(b"1")),
            (1, b"a", None),
            (0, b"long", Some(&long)),
            (0, b"a", Some(b"1")),
        ];
        for (table, key, value) in reads {
            assert_eq!(log.play(table, key, &mut Vec::new()), NEW);
            log.note(log.len(), table, key, value);
        }
        for _ in 0..2 {
            log.rewind();
            for (table, key, value) in reads {
                let mut out = Vec::new();
                match log.play(table, key, &mut out) {
                    Played::Read(found) => assert_eq!(found.then_some(&out[..]), value),
                    Played::Unknown { is_new } => {
                        assert!(!is_new && key == b"long");
                        log.pass();
                    }
                }
            }
            assert_eq!(log.play(9, b"z", &mut Vec::new()), NEW);
        }
        log.rewind();
        assert_eq!(log.play(0, b"a", &mut Vec::new()), Played::Read(true));
        // Something else from here on.
        assert_eq!(log.play(0, b"b", &mut Vec::new()), NEW);
        log.note(1, 0, b"b", None);
        assert_eq!(log.play(0, b"long", &mut Vec::new()), NEW);
    }
}
