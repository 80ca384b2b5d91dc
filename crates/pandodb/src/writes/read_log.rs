//! What a transaction has read, so that a run that begins again after a fault need not read it
//! again (decision 013).
//!
//! Runs are repeated from their beginning, and read the same keys in the same order. The values
//! read before are played back, so each run gets further than the one before, even if the pages
//! that it needs do not fit into the pool together. The stamps of the first read are the ones that
//! the commit compares. If a run asks for another key than the log has, the rest of the log is
//! dropped: unless the log has a table of its keys, for runs whose order differs.
//!
//! A read may ask for no more than the beginning of a value. Then that is what is kept, and what
//! counts as read.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

/// Asked for as the number of bytes of a value: all of them.
pub(crate) const WHOLE: usize = usize::MAX;
/// Longest value that is always kept. The total of longer ones is bounded, and what exceeds it is
/// read again.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of longer values that are kept, unless set.
const LONG_BYTES_MAX: usize = 16 << 20;
/// Memory that is kept when the log is emptied.
const BYTES_KEPT: usize = 1 << 20;

/// One read.
#[derive(Debug)]
struct NotedRead {
    /// Position of its stamp among the reads of the transaction.
    read: usize,
    table: usize,
    /// In `ReadLog::bytes`.
    key: Range<usize>,
    value: ReadValue,
}

#[derive(Debug)]
enum ReadValue {
    /// Its first bytes, which may be all, in `ReadLog::bytes`, and its length.
    Kept {
        bytes: Range<usize>,
        len: usize,
    },
    Absent,
    TooLong,
}

/// What was read of a value: its first bytes, which may be all, and its length.
pub(crate) type Head<'v> = (&'v [u8], usize);

/// The reads of one transaction, in order.
#[derive(Debug)]
pub(crate) struct ReadLog {
    entries: Vec<NotedRead>,
    bytes: Vec<u8>,
    /// Of values over [`VALUE_BYTES_MAX`] in `bytes`.
    long_bytes: usize,
    /// Most that `long_bytes` may be.
    pub(crate) long_bytes_max: usize,
    /// Index of the next entry to be played back.
    next: usize,
    /// If reads may come in any order: where the newest entry of each key is.
    places: Option<Places>,
    /// Number of entries whose value was read again.
    repeated: u64,
}

impl Default for ReadLog {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            bytes: Vec::new(),
            long_bytes: 0,
            long_bytes_max: LONG_BYTES_MAX,
            next: 0,
            places: None,
            repeated: 0,
        }
    }
}

/// Entries by their keys.
#[derive(Debug, Default)]
struct Places {
    hasher: RandomState,
    /// By the hash of table and key. An entry that has gone, or that another one has replaced, may
    /// still be here.
    entries: HashMap<u64, usize>,
}

/// A state of the log: the number of reads that the current run has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogMark(usize);

/// What the log knows of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Played {
    /// As much of the value as was asked for, or more, was appended to `out`, and this is the
    /// length of all of it; None if the key has none.
    Read(Option<usize>),
    /// The key has to be read. If `is_new`, the result is to be noted in the log.
    Unknown { is_new: bool },
}

impl ReadLog {
    /// Forgets all reads.
    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
        self.long_bytes = 0;
        self.next = 0;
        self.places = None;
    }

    /// Starts the next run: entries are played back from the first on, or in any order.
    pub(crate) fn rewind(&mut self) {
        self.next = match self.places {
            Some(_) => self.entries.len(),
            None => 0,
        };
    }

    /// Has all reads answered in any order from now on, until the log is cleared. All of its
    /// entries count as read by this run.
    pub(crate) fn answer_in_any_order(&mut self) {
        if self.places.is_none() {
            self.places = Some(Places::default());
            (0..self.entries.len()).for_each(|at| self.place(at));
        }
        self.rewind();
    }

    /// Returns true if reads are answered in any order.
    pub(crate) fn answers_in_any_order(&self) -> bool {
        self.places.is_some()
    }

    /// Notes where the entry at `at` is.
    fn place(&mut self, at: usize) {
        if let Some(places) = &mut self.places {
            let entry = &self.entries[at];
            let key = &self.bytes[entry.key.clone()];
            let hash = places.hasher.hash_one((entry.table, key));
            places.entries.insert(hash, at);
        }
    }

    /// Returns the state of the log, for [`ReadLog::go_back`].
    pub(crate) fn mark(&self) -> LogMark {
        LogMark(self.next)
    }

    /// Has the reads since `mark` played back from there on.
    pub(crate) fn play_from(&mut self, mark: LogMark) {
        assert!(mark.0 <= self.next, "a state of a later read");
        if self.places.is_none() {
            self.next = mark.0;
        }
    }

    /// Forgets the reads since `mark`, and what further reads would have been answered with.
    pub(crate) fn go_back(&mut self, mark: LogMark) {
        assert!(mark.0 <= self.next, "a state of a later read");
        self.next = mark.0;
        self.forget_rest();
    }

    /// Forgets the reads from the next one on, and gives their room back.
    pub(crate) fn forget_rest(&mut self) {
        self.entries.truncate(self.next);
        // A value that was replaced may lie behind those of later reads.
        let (mut end, mut long) = (0, 0);
        for entry in &self.entries {
            end = end.max(entry.key.end);
            if let ReadValue::Kept { bytes, .. } = &entry.value {
                end = end.max(bytes.end);
                long += long_bytes(&self.bytes[bytes.clone()]);
            }
        }
        self.bytes.truncate(end);
        self.long_bytes = long;
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes that it takes.
    pub(crate) fn memory(&self) -> usize {
        let places = self.places.as_ref();
        let placed = places.map_or(0, |places| places.entries.len() * size_of::<[u64; 2]>());
        self.bytes.len() + size_of_val(&self.entries[..]) + placed
    }

    /// Number of entries whose value was read again.
    pub(crate) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Returns the entry of `key`, if reads come in any order.
    fn placed(&self, places: &Places, table: usize, key: &[u8]) -> Option<usize> {
        let at = *places.entries.get(&places.hasher.hash_one((table, key)))?;
        let entry = self.entries.get(at)?;
        (entry.table == table && self.bytes[entry.key.clone()] == *key).then_some(at)
    }

    /// As [`ReadLog::play`], of whichever entry it is.
    fn play_placed(&mut self, at: Option<usize>, asked: usize, out: &mut Vec<u8>) -> Played {
        self.rewind();
        let Some(at) = at else {
            return Played::Unknown { is_new: true };
        };
        match &self.entries[at].value {
            ReadValue::TooLong => {
                // It is the one to be skipped.
                self.next = at;
                Played::Unknown { is_new: false }
            }
            ReadValue::Absent => Played::Read(None),
            ReadValue::Kept { bytes, len } if bytes.len() < asked.min(*len) => {
                Played::Unknown { is_new: true }
            }
            ReadValue::Kept { bytes, len } => {
                out.extend_from_slice(&self.bytes[bytes.clone()]);
                Played::Read(Some(*len))
            }
        }
    }

    /// Plays the next entry back, if it is a read of at least the first `asked` bytes of `key`.
    pub(crate) fn play(
        &mut self,
        table: usize,
        (key, asked): (&[u8], usize),
        out: &mut Vec<u8>,
    ) -> Played {
        if let Some(places) = &self.places {
            let at = self.placed(places, table, key);
            return self.play_placed(at, asked, out);
        }
        let Some(entry) = self.entries.get(self.next) else {
            return Played::Unknown { is_new: true };
        };
        if entry.table != table || self.bytes[entry.key.clone()] != *key {
            self.forget_rest();
            return Played::Unknown { is_new: true };
        }
        match &entry.value {
            ReadValue::TooLong => Played::Unknown { is_new: false },
            ReadValue::Absent => {
                self.next += 1;
                Played::Read(None)
            }
            ReadValue::Kept { bytes, len } if bytes.len() < asked.min(*len) => {
                Played::Unknown { is_new: false }
            }
            ReadValue::Kept { bytes, len } => {
                out.extend_from_slice(&self.bytes[bytes.clone()]);
                self.next += 1;
                Played::Read(Some(*len))
            }
        }
    }

    /// Notes a read that was not played back; its stamp is at position `read`.
    pub(crate) fn note(&mut self, read: usize, table: usize, key: &[u8], value: Option<Head<'_>>) {
        self.assert_last(read);
        let key = self.append(key);
        let value = self.keep(value);
        self.entries.push(NotedRead {
            read,
            table,
            key,
            value,
        });
        self.place(self.next);
        self.next += 1;
    }

    /// Returns the position of the stamp of the next entry.
    pub(crate) fn next_stamp(&self) -> usize {
        self.entries[self.next].read
    }

    /// Skips the next entry, whose value was not kept, or not enough of it, and was read again.
    /// Unless that `is_same`, forgets what was read behind it.
    pub(crate) fn pass(&mut self, is_same: bool) {
        assert!(self.next < self.entries.len(), "there is no entry to skip");
        self.next += 1;
        self.repeated += 1;
        if !is_same {
            self.forget_rest();
        }
        if self.places.is_some() {
            self.rewind();
        }
    }

    /// Copies what was read of a value into the log, if there is room.
    fn keep(&mut self, value: Option<Head<'_>>) -> ReadValue {
        let Some((bytes, len)) = value else {
            return ReadValue::Absent;
        };
        let long = long_bytes(bytes);
        if !self.keeps(long) {
            return ReadValue::TooLong;
        }
        self.long_bytes += long;
        let bytes = self.append(bytes);
        ReadValue::Kept { bytes, len }
    }

    /// Returns true if there is room for `more` bytes of long values: see [`long_bytes`].
    pub(crate) fn keeps(&self, more: usize) -> bool {
        more == 0 || self.long_bytes.saturating_add(more) <= self.long_bytes_max
    }

    /// Returns the entry whose stamp is at position `read`, if its value is known. The search
    /// begins at entry `from`, and advances it: positions must be asked for in ascending order.
    pub(crate) fn entry_of(&self, read: usize, from: &mut usize) -> Option<usize> {
        let behind = &self.entries[*from..];
        *from += behind.iter().take_while(|entry| entry.read < read).count();
        let entry = self.entries.get(*from)?;
        let is_known = !matches!(entry.value, ReadValue::TooLong);
        (entry.read == read && is_known).then_some(*from)
    }

    /// Returns the entry whose stamp is at position `read`, whatever is known of its value.
    pub(crate) fn find(&self, read: usize) -> Option<usize> {
        let found = self.entries.binary_search_by_key(&read, |entry| entry.read);
        found.ok()
    }

    /// Returns table and key of an entry.
    pub(crate) fn key_of(&self, at: usize) -> (usize, &[u8]) {
        let entry = &self.entries[at];
        (entry.table, &self.bytes[entry.key.clone()])
    }

    /// Returns how many bytes of the value of an entry have to be read to compare them.
    pub(crate) fn asked(&self, at: usize) -> usize {
        match &self.entries[at].value {
            ReadValue::Kept { bytes, len } if bytes.len() < *len => bytes.len(),
            _ => WHOLE,
        }
    }

    /// Returns true if `value` is what was read.
    pub(crate) fn is(&self, at: usize, value: Option<Head<'_>>) -> bool {
        match &self.entries[at].value {
            ReadValue::Kept { bytes, len } => value == Some((&self.bytes[bytes.clone()], *len)),
            ReadValue::Absent => value.is_none(),
            ReadValue::TooLong => false,
        }
    }

    /// Replaces the value of an entry: from here on its read is answered with `value`.
    pub(crate) fn replace(&mut self, at: usize, value: Option<Head<'_>>) {
        let value = match (&self.entries[at].value, value) {
            // In place: otherwise a log that is replaced again and again would grow.
            (ReadValue::Kept { bytes, .. }, Some((new, len))) if new.len() <= bytes.len() => {
                let bytes = bytes.start..bytes.start + new.len();
                self.bytes[bytes.clone()].copy_from_slice(new);
                ReadValue::Kept { bytes, len }
            }
            _ => self.keep(value),
        };
        self.entries[at].value = value;
    }

    /// As [`ReadLog::note`], for a value in chunks.
    pub(crate) fn note_long(&mut self, read: usize, table: usize, key: &[u8]) {
        self.assert_last(read);
        let key = self.append(key);
        let value = ReadValue::TooLong;
        self.entries.push(NotedRead {
            read,
            table,
            key,
            value,
        });
        self.place(self.next);
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

/// Returns how many bytes of those that were read of a value count towards the bound of long ones.
pub(crate) fn long_bytes(read: &[u8]) -> usize {
    match read.len() > VALUE_BYTES_MAX {
        true => read.len(),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read<'a> = (usize, &'a [u8], Option<&'a [u8]>);

    const NEW: Played = Played::Unknown { is_new: true };

    fn whole(value: &[u8]) -> Head<'_> {
        (value, value.len())
    }

    /// Long values that were read behind a mark take no room once the log went back to it, and what
    /// lies before it is answered as before.
    #[test]
    fn a_log_that_goes_back_has_room_again() {
        let long = vec![1; VALUE_BYTES_MAX + 1];
        let mut log = ReadLog {
            long_bytes_max: 2 * long.len(),
            ..ReadLog::default()
        };
        log.note(0, 0, b"first", Some(whole(b"1")));
        log.note(1, 0, b"second", Some(whole(b"2")));
        log.replace(0, Some(whole(&long)));
        let mark = log.mark();
        for _ in 0..5 {
            assert!(log.keeps(long.len()));
            log.note(2, 0, b"long", Some(whole(&long)));
            assert!(!log.keeps(long.len()));
            log.go_back(mark);
            assert_eq!(log.len(), 2);
        }
        log.rewind();
        for (key, value) in [(&b"first"[..], &long[..]), (b"second", b"2")] {
            let mut out = Vec::new();
            let played = log.play(0, (key, WHOLE), &mut out);
            assert_eq!(played, Played::Read(Some(value.len())));
            assert!(out == value);
        }
    }

    /// A repeated run gets the results of its earlier reads, except values that were too long to
    /// keep.
    #[test]
    fn a_run_that_is_repeated_gets_what_it_got() {
        let mut log = ReadLog {
            long_bytes_max: VALUE_BYTES_MAX,
            ..ReadLog::default()
        };
        let long = vec![1; VALUE_BYTES_MAX + 1];
        let reads: [Read<'_>; 4] = [
            (0, b"a", Some(b"1")),
            (1, b"a", None),
            (0, b"long", Some(&long)),
            (0, b"a", Some(b"1")),
        ];
        for (table, key, value) in reads {
            assert_eq!(log.play(table, (key, WHOLE), &mut Vec::new()), NEW);
            log.note(log.len(), table, key, value.map(whole));
        }
        for _ in 0..2 {
            log.rewind();
            for (table, key, value) in reads {
                let mut out = Vec::new();
                match log.play(table, (key, WHOLE), &mut out) {
                    Played::Read(found) => {
                        assert_eq!(found.map(|len| (&out[..], len)), value.map(whole));
                    }
                    Played::Unknown { is_new } => {
                        assert!(!is_new && key == b"long");
                        log.pass(true);
                    }
                }
            }
            assert_eq!(log.play(9, (b"z", WHOLE), &mut Vec::new()), NEW);
        }
        log.rewind();
        let read = log.play(0, (b"a", WHOLE), &mut Vec::new());
        assert_eq!(read, Played::Read(Some(1)));
        // From here on the run reads other keys.
        assert_eq!(log.play(0, (b"b", WHOLE), &mut Vec::new()), NEW);
        log.note(1, 0, b"b", None);
        assert_eq!(log.play(0, (b"long", WHOLE), &mut Vec::new()), NEW);
    }

    /// A log with a table of its keys answers in any order, and with what was read last of a key.
    #[test]
    fn runs_in_other_orders_get_what_they_got() {
        let mut log = ReadLog {
            long_bytes_max: VALUE_BYTES_MAX,
            ..ReadLog::default()
        };
        let long = vec![1; VALUE_BYTES_MAX + 1];
        let play = |log: &mut ReadLog, table, key: &[u8], asked| {
            let mut out = Vec::new();
            let played = log.play(table, (key, asked), &mut out);
            (played, out)
        };
        log.note(0, 0, b"before", Some(whole(b"1")));
        log.answer_in_any_order();
        assert!(log.answers_in_any_order());
        let head = |asked: &'static [u8]| Some((asked, 9));
        log.note(1, 0, b"cut", head(b"be"));
        log.note(2, 1, b"before", None);
        log.note(3, 0, b"long", Some(whole(&long)));
        log.note(4, 0, b"last", Some(whole(b"5")));
        for _ in 0..2 {
            log.rewind();
            assert_eq!(
                play(&mut log, 0, b"last", WHOLE),
                (Played::Read(Some(1)), b"5".to_vec())
            );
            assert_eq!(
                play(&mut log, 1, b"before", WHOLE),
                (Played::Read(None), vec![])
            );
            assert_eq!(
                play(&mut log, 0, b"before", 1),
                (Played::Read(Some(1)), b"1".to_vec())
            );
            assert_eq!(
                play(&mut log, 0, b"cut", 2),
                (Played::Read(Some(9)), b"be".to_vec())
            );
            let again = Played::Unknown { is_new: false };
            assert_eq!(play(&mut log, 0, b"long", WHOLE), (again, vec![]));
            assert_eq!(log.next_stamp(), 3);
            log.pass(true);
            assert_eq!(log.len(), 5);
        }
        // More of it than there is: it is read again, and noted behind all others.
        let mark = log.mark();
        assert_eq!(play(&mut log, 0, b"cut", 3), (NEW, vec![]));
        log.note(5, 0, b"cut", head(b"begin"));
        assert_eq!(
            play(&mut log, 0, b"cut", 3),
            (Played::Read(Some(9)), b"begin".to_vec())
        );
        log.play_from(mark);
        assert_eq!(log.len(), 6);
        log.go_back(mark);
        assert_eq!(play(&mut log, 0, b"cut", 3), (NEW, vec![]));
        log.note(5, 0, b"other", None);
        assert_eq!(play(&mut log, 0, b"cut", 3), (NEW, vec![]));
        assert_eq!(play(&mut log, 0, b"none", WHOLE), (NEW, vec![]));
        // What was read behind a value that is another one now is forgotten.
        assert_eq!(
            play(&mut log, 0, b"long", WHOLE).0,
            Played::Unknown { is_new: false }
        );
        log.pass(false);
        assert_eq!(play(&mut log, 0, b"last", WHOLE), (NEW, vec![]));
        assert_eq!(
            play(&mut log, 1, b"before", WHOLE),
            (Played::Read(None), vec![])
        );
        log.clear();
        assert!(!log.answers_in_any_order());
    }

    /// As many long values are kept as are allowed, and the beginning of any.
    #[test]
    fn long_values_are_kept_within_bounds() {
        let long = vec![1; VALUE_BYTES_MAX + 1];
        let mut log = ReadLog {
            long_bytes_max: 2 * long.len(),
            ..ReadLog::default()
        };
        for (read, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            log.note(read, 0, key, Some(whole(&long)));
        }
        log.note(3, 0, b"d", Some((&long[..24], long.len())));
        log.rewind();
        let all = Played::Read(Some(long.len()));
        let again = Played::Unknown { is_new: false };
        assert_eq!(log.play(0, (b"a", 1), &mut Vec::new()), all);
        assert_eq!(log.play(0, (b"b", WHOLE), &mut Vec::new()), all);
        assert_eq!(log.play(0, (b"c", WHOLE), &mut Vec::new()), again);
        log.pass(true);
        assert_eq!(log.play(0, (b"d", 25), &mut Vec::new()), again);
        let mut out = Vec::new();
        assert_eq!(log.play(0, (b"d", 24), &mut out), all);
        assert_eq!(out, &long[..24]);
        assert_eq!((log.asked(3), log.asked(0)), (24, WHOLE));
        assert!(log.is(3, Some((&long[..24], long.len()))));
        assert!(!log.is(3, Some((&long[..24], 30))));
        log.clear();
        assert!(log.bytes.capacity() <= BYTES_KEPT && log.keeps(2 * long.len()));
    }
}
