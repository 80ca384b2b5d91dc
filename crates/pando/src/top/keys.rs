//! The keys that the view understands, read from the terminal.
//!
//! The terminal is read only when it has input, and the input is interpreted at once: an incomplete
//! character or sequence is ignored, and its rest is not waited for.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;

use pando_sync::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// What a pressed key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// The terminal that keys are read from.
#[derive(Debug)]
pub(super) struct Keys(File);

impl Keys {
    pub(super) fn new() -> io::Result<Self> {
        let input = io::stdin();
        let terminal = match input.is_terminal() {
            true => File::from(input.as_fd().try_clone_to_owned()?),
            false => File::open("/dev/tty")?,
        };
        Ok(Self(terminal))
    }

    /// Waits for keys for at most `tick`. Returns `None` if the terminal is gone: not every
    /// terminal sends a signal then.
    pub(super) fn wait(&mut self, tick: Duration) -> io::Result<Option<Vec<Key>>> {
        let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
        let tick = Timespec::try_from(tick).expect("a few milliseconds");
        match poll(&mut ready, Some(&tick)) {
            // A signal: the caller checks for signals after the keys.
            Ok(0) | Err(Errno::INTR) => return Ok(Some(Vec::new())),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        if ready[0].revents().intersects(gone) {
            return Ok(None);
        }
        let mut bytes = [0; 256];
        match self.0.read(&mut bytes) {
            Ok(0) => Ok(None),
            Ok(count) => Ok(Some(keys_of(&bytes[..count]))),
            Err(error) => match Errno::from_io_error(&error) {
                // The terminal is gone.
                Some(Errno::IO) => Ok(None),
                Some(Errno::INTR | Errno::AGAIN) => Ok(Some(Vec::new())),
                _ => Err(error),
            },
        }
    }
}

/// Returns the keys in the bytes that a terminal has sent.
fn keys_of(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while let Some((first, rest)) = bytes.split_first() {
        let (key, length) = match first {
            0x1b => after_escape(rest),
            // Control-C.
            b'q' | 0x03 => (Some(Key::Quit), 0),
            b'j' => (Some(Key::Down), 0),
            b'k' => (Some(Key::Up), 0),
            b' ' => (Some(Key::PageDown), 0),
            _ => (None, 0),
        };
        keys.extend(key);
        bytes = &rest[length..];
    }
    keys
}

/// Returns what an escape and the bytes after it mean, and how many of these bytes belong to it.
fn after_escape(rest: &[u8]) -> (Option<Key>, usize) {
    match rest {
        // The escape key itself.
        [] => (Some(Key::Quit), 0),
        [b'[', sequence @ ..] => {
            let ends = |byte: &u8| matches!(byte, 0x40..=0x7e);
            match sequence.iter().position(ends) {
                Some(end) => (of_sequence(&sequence[..end], sequence[end]), end + 2),
                None => (None, rest.len()),
            }
        }
        [b'O', letter, ..] => (of_sequence(&[], *letter), 2),
        // Alt and a key: the escape is dropped, and the key means the same as alone.
        _ => (None, 0),
    }
}

fn of_sequence(parameters: &[u8], end: u8) -> Option<Key> {
    match (parameters, end) {
        (_, b'A') => Some(Key::Up),
        (_, b'B') => Some(Key::Down),
        (_, b'H') | (b"1" | b"7", b'~') => Some(Key::First),
        (_, b'F') | (b"4" | b"8", b'~') => Some(Key::Last),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_terminals_send_for_them() {
        use Key::{Down, First, Last, PageDown, PageUp, Quit, Up};
        let cases: &[(&[u8], &[Key])] = &[
            (b"q", &[Quit]),
            (b"\x03", &[Quit]),
            (b"\x1b", &[Quit]),
            (b"jk x", &[Down, Up, PageDown]),
            (b"\x1b[A\x1b[B\x1bOA\x1bOB", &[Up, Down, Up, Down]),
            (b"\x1b[1;5A\x1bj", &[Up, Down]),
            (b"\x1b[H\x1bOF\x1b[1~\x1b[4~", &[First, Last, First, Last]),
            (b"\x1b[5~j\x1b[6~", &[PageUp, Down, PageDown]),
            (b"\x1b[15~\x1b[2q\x1bOP", &[]),
            // These characters are incomplete.
            (b"\xc3", &[]),
            (b"\xc3\xa4j\xe2\x82", &[Down]),
            (b"\x1b[", &[]),
            (b"\x1b[1;", &[]),
            (b"\x1bO", &[]),
            (b"", &[]),
        ];
        for (bytes, keys) in cases {
            assert_eq!(keys_of(bytes), *keys, "{}", bytes.escape_ascii());
        }
    }
}
