//! What a transaction has read, so that a run that begins again after a fault need not read it
//! again (decision 013).
//!
//! Runs are repeated from their beginning, and read the same keys in the same order. The values
//! read before are played back, so each run gets further than the one before, even if the pages
//! that it needs do not fit into the pool together. The stamps of the first read are the ones that
//! the commit compares. If a run asks for another key than the log has, the rest of the log is
//! dropped.

use std::ops::Range;

/// Longest value that is kept; longer ones are read again.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// One read.
#[derive(Debug)]
struct Entry {
    /// Position of its stamp among the reads of the transaction.
    read: usize,
    table: usize,
    /// In `ReadLog::bytes`.
    key: Range<usize>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// In `ReadLog::bytes`.
    Kept(Range<usize>),
    Absent,
    TooLong,
}

/// The reads of one transaction, in order.
#[derive(Debug, Default)]
pub(crate) struct ReadLog {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// Index of the next entry to be played back.
    next: usize,
}

/// What the log knows of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Played {
    /// The value was appended to `out` (true), or the key has none (false).
    Read(bool),
    /// The key has to be read. If `is_new`, the result is to be noted in the log.
    Unknown { is_new: bool },
}

impl ReadLog {
    /// Forgets all reads.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.next = 0;
    }

    /// Starts the next run: entries are played back from the first on.
    pub(crate) fn rewind(&mut self) {
        self.next = 0;
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Plays the next entry back, if it is a read of `key`.
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

    /// Notes a read that was not played back; its stamp is at position `read`.
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

    /// Skips the next entry, whose value was too long to be played back and has been read again.
    pub(crate) fn pass(&mut self) {
        assert!(self.next < self.entries.len(), "there is no entry to skip");
        self.next += 1;
    }

    /// Copies a value into the log, if it is short enough.
    fn keep(&mut self, value: Option<&[u8]>) -> Value {
        match value {
            Some(bytes) if Self::keeps(value) => Value::Kept(self.append(bytes)),
            Some(_) => Value::TooLong,
            None => Value::Absent,
        }
    }

    /// Returns true if a value is short enough to be kept.
    pub(crate) fn keeps(value: Option<&[u8]>) -> bool {
        value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX)
    }

    /// Returns the entry whose stamp is at position `read`, if its value is known. The search
    /// begins at entry `from`, and advances it: positions must be asked for in ascending order.
    pub(crate) fn entry_of(&self, read: usize, from: &mut usize) -> Option<usize> {
        let behind = &self.entries[*from..];
        *from += behind.iter().take_while(|entry| entry.read < read).count();
        let entry = self.entries.get(*from)?;
        let is_known = !matches!(entry.value, Value::TooLong);
        (entry.read == read && is_known).then_some(*from)
    }

    /// Returns table and key of an entry.
    pub(crate) fn key_of(&self, at: usize) -> (usize, &[u8]) {
        let entry = &self.entries[at];
        (entry.table, &self.bytes[entry.key.clone()])
    }

    /// Returns true if `value` is what was read.
    pub(crate) fn is(&self, at: usize, value: Option<&[u8]>) -> bool {
        match &self.entries[at].value {
            Value::Kept(kept) => value == Some(&self.bytes[kept.clone()]),
            Value::Absent => value.is_none(),
            Value::TooLong => false,
        }
    }

    /// Replaces the value of an entry: from here on its read is answered with `value`.
    pub(crate) fn replace(&mut self, at: usize, value: Option<&[u8]>) {
        let value = match (&self.entries[at].value, value) {
            // In place: otherwise a log that is replaced again and again would grow.
            (Value::Kept(kept), Some(new)) if new.len() <= kept.len() => {
                let place = kept.start..kept.start + new.len();
                self.bytes[place.clone()].copy_from_slice(new);
                Value::Kept(place)
            }
            _ => self.keep(value),
        };
        self.entries[at].value = value;
    }

    /// As [`ReadLog::note`], for a value in chunks.
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

    /// Checks that an entry is appended at the end, and that its stamp comes after those of the
    /// others, which [`ReadLog::entry_of`] relies on.
    fn assert_last(&self, read: usize) {
        assert_eq!(self.next, self.entries.len(), "an entry in between");
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

    /// A repeated run gets the results of its earlier reads, except values that were too long to
    /// keep.
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
        // From here on the run reads other keys.
        assert_eq!(log.play(0, b"b", &mut Vec::new()), NEW);
        log.note(1, 0, b"b", None);
        assert_eq!(log.play(0, b"long", &mut Vec::new()), NEW);
    }
}
