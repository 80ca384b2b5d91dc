//! The lines of one command: its own, and those of the commands inside it. They leave when it has
//! ended; a run that is repeated drops them and makes them again.

use std::io::Write as _;

use pando_sync::time::SystemTime;

use super::line::{self, Argument, Caller};

/// Number of bytes of a line; what is left out of it is counted.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Number of bytes from which on the lines of one command go into another message.
const MESSAGE_BYTES: usize = 64 * 1024;
/// Number of bytes of lines that a command keeps until its end; further ones are counted.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// Lines that nobody has seen yet.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Whole lines in each.
    messages: Vec<Vec<u8>>,
    /// Of all messages.
    bytes: usize,
    /// Number of lines that were left out since there were too many.
    left_out: u64,
}

impl Lines {
    /// Adds a line of now.
    pub(crate) fn add<'a>(
        &mut self,
        from: (usize, Caller<'_>),
        arguments: impl ExactSizeIterator<Item = Argument<'a>>,
    ) {
        if self.bytes >= KEPT_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.push(from, arguments);
    }

    /// Adds the line of the command itself behind those inside it, and says how many of them were
    /// left out.
    pub(crate) fn add_own<'a>(
        &mut self,
        from: (usize, Caller<'_>),
        arguments: impl ExactSizeIterator<Item = Argument<'a>>,
    ) {
        self.end(from.0);
        self.push(from, arguments);
    }

    /// Adds a line that says how many were left out.
    fn end(&mut self, database: usize) {
        let left_out = std::mem::take(&mut self.left_out);
        if left_out > 0 {
            let text = format!("... ({left_out} more commands)");
            let argument = [Argument::Shown(text.as_bytes())];
            self.push((database, Caller::Script), argument.into_iter());
        }
    }

    fn push<'a>(
        &mut self,
        (database, caller): (usize, Caller<'_>),
        arguments: impl ExactSizeIterator<Item = Argument<'a>>,
    ) {
        let is_full = self
            .messages
            .last()
            .is_none_or(|of| of.len() >= MESSAGE_BYTES);
        if is_full {
            self.messages.push(Vec::new());
        }
        let out = self.messages.last_mut().expect("there is one now");
        let before = out.len();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        line::begin(out, since.unwrap_or_default(), database, caller);
        let mut left = arguments.len();
        for argument in arguments {
            let room = (before + LINE_BYTES_MAX).saturating_sub(out.len());
            if room == 0 {
                // Writing to a vector does not fail. The words of the slow log.
                let _ = write!(out, " \"... ({left} more arguments)\"");
                break;
            }
            line::append(out, argument, room);
            left -= 1;
        }
        line::end(out);
        self.bytes += out.len() - before;
    }

    /// Forgets all lines.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            *self = Self::default();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.left_out == 0
    }

    /// Returns the messages that they are, and says in the last how many lines were left out.
    pub(crate) fn into_messages(mut self, database: usize) -> Vec<Vec<u8>> {
        self.end(database);
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_say_how_much_is_left_out() {
        let mut lines = Lines::default();
        assert!(lines.is_empty());
        let long = [b'\n'; 1000];
        for count in [1, 1_000_000] {
            let arguments = vec![Argument::Shown(&long); count];
            lines.add((0, Caller::Script), arguments.into_iter());
        }
        let messages = lines.into_messages(0);
        let all = String::from_utf8(messages.concat()).unwrap();
        let (first, second) = all.split_once("\r\n").unwrap();
        assert!(first.len() > 2000 && !first.contains("more"));
        assert!(second.len() < LINE_BYTES_MAX + 3000, "{}", second.len());
        let shown = second.matches('"').count() / 2 - 1;
        let end = format!(" \"... ({} more arguments)\"\r\n", 1_000_000 - shown);
        assert!(second.ends_with(&end), "{}", &second[second.len() - 200..]);
    }

    #[test]
    fn many_lines_are_several_messages_and_no_more_than_are_kept() {
        let mut lines = Lines::default();
        let argument = [b'x'; 100];
        let count = 100_000;
        for _ in 0..count {
            let arguments = [Argument::Shown(&argument)];
            lines.add((7, Caller::Script), arguments.into_iter());
        }
        assert!(lines.bytes < KEPT_BYTES_MAX + 1000);
        let (bytes, messages) = (lines.bytes, lines.into_messages(7));
        assert!(messages.len() > 3);
        for message in &messages {
            assert!(message.len() < MESSAGE_BYTES + LINE_BYTES_MAX);
            assert!(message.starts_with(b"+") && message.ends_with(b"\"\r\n"));
        }
        let all = String::from_utf8(messages.concat()).unwrap();
        let shown = all.lines().count() - 1;
        assert!(all.len() > bytes && shown > 1000);
        let end = format!(" [7 lua] \"... ({} more commands)\"\r\n", count - shown);
        assert!(all.ends_with(&end), "{}", &all[all.len() - 100..]);
    }
}
