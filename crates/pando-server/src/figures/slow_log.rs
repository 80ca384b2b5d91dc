//! The newest commands that were slow, for SLOWLOG.
//!
//! The number of entries is bounded, and so are the number and the length of an entry's arguments.

use std::collections::VecDeque;

use pando_resp::Arguments;
use pando_sync::Mutex;

/// Maximum number of arguments of an entry; the last one says how many more there were.
const ARGUMENTS_MAX: usize = 32;
/// Maximum number of bytes of an argument, and the entry says how many were cut off.
const ARGUMENT_BYTES_MAX: usize = 128;
const REDACTED: &[u8] = b"(redacted)";

/// A command that was slow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SlowCommand {
    /// Set by [`SlowLog::add`]; ascending from 0.
    pub(crate) id: i64,
    /// Unix time of the turn in which it finished, in seconds.
    pub(crate) unix_s: u64,
    /// Time that it took, in microseconds.
    pub(crate) micros: u64,
    /// As [`kept`] has shortened them, and without secrets.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Of the client.
    pub(crate) address: String,
    /// Empty if the client had given itself none.
    pub(crate) client_name: String,
}

/// The slow log.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    /// Guarded by its lock, held for an insertion or a copy.
    state: Mutex<LogEntries>,
}

#[derive(Debug, Default)]
struct LogEntries {
    /// The newest first.
    entries: VecDeque<SlowCommand>,
    next: i64,
}

impl SlowLog {
    /// Adds `command` under the next id, and drops all but the newest `entries_max` entries.
    pub(crate) fn add(&self, mut command: SlowCommand, entries_max: usize) {
        let mut state = self.state.lock();
        command.id = state.next;
        state.next += 1;
        state.entries.push_front(command);
        state.entries.truncate(entries_max);
    }

    /// Returns at most `count` entries, the newest first.
    pub(crate) fn newest(&self, count: usize) -> Vec<SlowCommand> {
        self.state
            .lock()
            .entries
            .iter()
            .take(count)
            .cloned()
            .collect()
    }

    /// Returns the number of entries.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().entries.len()
    }

    /// Drops all entries; ids continue.
    pub(crate) fn reset(&self) {
        self.state.lock().entries = VecDeque::new();
    }
}

/// Returns the arguments as an entry stores them: those are redacted of which
/// `hides` is true, which is asked of one after another.
pub(crate) fn kept(arguments: Arguments<'_>, mut hides: impl FnMut(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let whole = if count > ARGUMENTS_MAX {
        ARGUMENTS_MAX - 1
    } else {
        count
    };
    let mut kept: Vec<Vec<u8>> = Vec::with_capacity(whole + 1);
    for argument in arguments.from(0).take(whole) {
        kept.push(match argument.len().checked_sub(ARGUMENT_BYTES_MAX) {
            _ if hides(argument) => REDACTED.to_vec(),
            None | Some(0) => argument.to_vec(),
            Some(more) => {
                let mut cut = argument[..ARGUMENT_BYTES_MAX].to_vec();
                cut.extend_from_slice(format!("... ({more} more bytes)").as_bytes());
                cut
            }
        });
    }
    if count > whole {
        kept.push(format!("... ({} more arguments)", count - whole).into_bytes());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_resp::Span;

    fn keep(arguments: &[&[u8]], shown: usize) -> Vec<String> {
        let bytes = arguments.concat();
        let mut at = 0;
        let span = |argument: &&[u8]| {
            at += argument.len();
            Span::new(at - argument.len(), at)
        };
        let spans: Vec<_> = arguments.iter().map(span).collect();
        let mut asked = 0;
        let kept = kept(Arguments::new(&bytes, &spans), |_| {
            asked += 1;
            asked > shown
        });
        let text = |one: &Vec<u8>| String::from_utf8_lossy(one).into_owned();
        kept.iter().map(text).collect()
    }

    #[test]
    fn entries_are_cut_to_a_bounded_length() {
        let long = [b'x'; 200];
        let cut = format!("{}... (72 more bytes)", "x".repeat(128));
        assert_eq!(keep(&[b"SET", b"a", &long], 9), ["SET", "a", &cut]);
        let many = [&b"k"[..]; 100];
        let kept = keep(&many, 100);
        assert_eq!((kept.len(), &*kept[31]), (32, "... (69 more arguments)"));
        assert_eq!(keep(&many[..32], 100).len(), 32);
        assert_eq!(keep(&[b"AUTH", b"secret"], 1), ["AUTH", "(redacted)"]);
    }

    #[test]
    fn the_newest_stay_and_numbers_go_on() {
        let log = SlowLog::default();
        let command = |micros| SlowCommand {
            id: 0,
            unix_s: 1,
            micros,
            arguments: Vec::new(),
            address: String::new(),
            client_name: String::new(),
        };
        (0..10).for_each(|micros| log.add(command(micros), 3));
        let found: Vec<_> = log.newest(2).iter().map(|of| (of.id, of.micros)).collect();
        assert_eq!((log.len(), found), (3, vec![(9, 9), (8, 8)]));
        log.reset();
        assert_eq!(log.len(), 0);
        log.add(command(1), 3);
        assert_eq!(log.newest(9)[0].id, 10);
    }
}
