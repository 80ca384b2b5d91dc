//! The parser of requests: arrays of bulk strings, and inline commands.
//!
//! The caller shows a [`Parser`] the bytes from the beginning of a command, and shows them again
//! whenever more have arrived. The parser remembers how far it has read, so the work is linear,
//! however the bytes arrive. Arguments are ranges of the caller's buffer; nothing is copied. After
//! a command the caller drops the consumed bytes and calls [`Parser::clear`].
//!
//! A length that a peer declares is only compared with limits and with the bytes that have arrived.

use std::fmt;

use crate::arguments::{Arguments, Span};
use crate::inline;
use crate::limits::{
    LINE_BYTES_MAX, Limits, UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX,
};
use crate::number::parse_integer;
use crate::text::text_of;

/// A breach of the protocol. The peer gets it as an error reply, and the connection is closed,
/// since the beginning of the next command is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The count of arguments is not a number, or exceeds the limit.
    MultibulkLength,
    /// The length of an argument is not a number, or exceeds the limit.
    BulkLength,
    /// An argument does not begin with `$`.
    ExpectedDollar {
        /// The byte that it begins with.
        got: u8,
    },
    /// The line of the count does not end.
    MultibulkLine,
    /// The line of a length does not end.
    BulkLine,
    /// An inline command does not end.
    InlineLine,
    /// A quote of an inline command is not closed.
    UnbalancedQuotes,
    /// More arguments than a peer that has not authenticated may send.
    UnauthenticatedMultibulk,
    /// A longer argument than a peer that has not authenticated may send.
    UnauthenticatedBulk,
    /// The whole command exceeds the limit.
    RequestTooBig,
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protocol error: ")?;
        match self {
            Self::MultibulkLength => f.write_str("invalid multibulk length"),
            Self::BulkLength => f.write_str("invalid bulk length"),
            Self::ExpectedDollar { got } => {
                // Other control characters could harm who reads the log.
                let shown = match got {
                    b'\r' | b'\n' => " ".to_owned(),
                    got if got.is_ascii_control() => "?".to_owned(),
                    got => text_of(&[*got]),
                };
                write!(f, "expected '$', got '{shown}'")
            }
            Self::MultibulkLine => f.write_str("too big mbulk count string"),
            Self::BulkLine => f.write_str("too big bulk count string"),
            Self::InlineLine => f.write_str("too big inline request"),
            Self::UnbalancedQuotes => f.write_str("unbalanced quotes in request"),
            Self::UnauthenticatedMultibulk => f.write_str("unauthenticated multibulk length"),
            Self::UnauthenticatedBulk => f.write_str("unauthenticated bulk length"),
            Self::RequestTooBig => f.write_str("too big request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// Result of parsing the bytes so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Parsed {
    /// A complete command; [`Parser::arguments`] returns its arguments.
    Command {
        /// Length of the command, from the beginning of the buffer.
        consumed: usize,
    },
    /// An empty line or an empty array: nothing to execute and nothing to answer.
    Nothing {
        /// Its length, from the beginning of the buffer.
        consumed: usize,
    },
    /// The next argument is longer than [`Limits::whole_bytes_max`]. The caller removes its bytes
    /// from the buffer, from `at` on, as they arrive, calling the parser as often as it likes or
    /// not, and then calls [`Parser::large_taken`]. Among the arguments it appears as an empty one.
    Large {
        /// Offset of its first byte in the buffer.
        at: usize,
        /// Its whole length in every call, whatever was removed already.
        bytes: usize,
        /// Index of the argument; [`Parser::spans`] has those before it.
        index: usize,
        /// Number of arguments of the command, the name included.
        count: usize,
    },
    /// At least `needed` more bytes must arrive first.
    Incomplete {
        /// Never 0, and never more than the limits allow.
        needed: usize,
    },
    /// The peer violates the protocol.
    Broken(ProtocolError),
}

/// The parser's state in a command that is arriving.
#[derive(Debug, Default)]
pub struct Parser {
    /// Everything before this offset was parsed.
    position: usize,
    /// Where the search for the end of the current line continues.
    searched: usize,
    /// Number of arguments that are still to come; `None` until the count is known.
    remaining: Option<usize>,
    /// Length of the argument whose bytes have not all arrived.
    bulk: Option<usize>,
    /// The caller was told that it has to take the bytes of this argument.
    large: bool,
    /// Arguments from this offset on are left out.
    skips_from: Option<usize>,
    spans: Vec<Span>,
}

/// Result of parsing an argument.
enum Argument {
    Taken,
    Large(usize),
    More(usize),
    Broken(ProtocolError),
}

/// Result of a step that may need more bytes.
enum Step<T> {
    Done(T),
    More(usize),
    Broken(ProtocolError),
}

/// Returns the number of the line that `rest` begins with, and the bytes of the line with its end,
/// if it has three digits at most, as nearly all have. Other lines, right or wrong, are for
/// [`Parser::line`].
#[inline]
fn short_line(rest: &[u8]) -> Option<(i64, usize)> {
    let digit = |byte: u8| i64::from(byte - b'0');
    match *rest {
        [_, a @ b'0'..=b'9', b'\r', b'\n', ..] => Some((digit(a), 4)),
        [_, a @ b'1'..=b'9', b @ b'0'..=b'9', b'\r', b'\n', ..] => {
            Some((digit(a) * 10 + digit(b), 5))
        }
        [
            _,
            a @ b'1'..=b'9',
            b @ b'0'..=b'9',
            c @ b'0'..=b'9',
            b'\r',
            b'\n',
            ..,
        ] => Some((digit(a) * 100 + digit(b) * 10 + digit(c), 6)),
        _ => None,
    }
}

impl Parser {
    /// Creates a parser at the beginning of a command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the next command. Keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.position = 0;
        self.searched = 0;
        self.remaining = None;
        self.bulk = None;
        self.large = false;
        self.skips_from = None;
        self.spans.clear();
    }

    /// Returns true if the command is so long that arguments are left out
    /// ([`Limits::kept_bytes_max`]).
    pub fn skips(&self) -> bool {
        self.skips_from.is_some()
    }

    /// Removes the bytes of the arguments that were left out so far from `buffer`, in which the
    /// command begins at offset `begin`; returns their number. Offsets in what was parsed last are
    /// smaller by that.
    pub fn skip(&mut self, buffer: &mut Vec<u8>, begin: usize) -> usize {
        let Some(from) = self.skips_from else {
            return 0;
        };
        let skipped = self.position - from;
        buffer.drain(begin + from..begin + self.position);
        self.searched = self.searched.saturating_sub(skipped).max(from);
        self.position = from;
        skipped
    }

    /// Tells the parser that all bytes of the argument in [`Parsed::Large`] were removed from the
    /// buffer.
    ///
    /// # Panics
    /// If no such argument was announced.
    pub fn large_taken(&mut self) {
        assert!(self.large, "a large argument was announced");
        self.large = false;
        self.bulk = Some(0);
    }

    /// Frees the memory for more than `count` arguments.
    pub fn shrink_to(&mut self, count: usize) {
        self.spans.shrink_to(count);
    }

    /// Returns the memory for the spans of arguments, in bytes.
    #[inline]
    pub fn memory(&self) -> usize {
        self.spans.capacity() * size_of::<Span>()
    }

    /// Returns the spans of the parsed command's arguments.
    #[inline]
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns the arguments of the parsed command, in the buffer that was parsed.
    #[inline]
    pub fn arguments<'a>(&'a self, buffer: &'a [u8]) -> Arguments<'a> {
        Arguments::new(buffer, &self.spans)
    }

    /// Parses `buffer`, which begins with the command and has at least the bytes of the previous
    /// call. The quotes of an inline command are removed in place; nothing else in the buffer
    /// changes.
    #[inline]
    pub fn parse(&mut self, buffer: &mut [u8], limits: &Limits) -> Parsed {
        match buffer.first() {
            None => Parsed::Incomplete { needed: 1 },
            Some(b'*') => self.parse_array(buffer, limits),
            Some(_) => self.parse_inline(buffer),
        }
    }

    /// Like [`Parser::parse`], but only for arrays: never changes the buffer. Reports inline
    /// commands as incomplete.
    pub fn peek(&mut self, buffer: &[u8], limits: &Limits) -> Parsed {
        match buffer.first() {
            Some(b'*') => self.parse_array(buffer, limits),
            _ => Parsed::Incomplete { needed: 1 },
        }
    }

    /// Parses a command of short arguments that has arrived as a whole, as nearly all are and have,
    /// and returns its length. What is anything else, right or wrong, is for
    /// [`Parser::parse_any`]. Tried once for each command, so the work stays linear.
    #[inline]
    fn parse_short(&mut self, buffer: &[u8], limits: &Limits) -> Option<usize> {
        if self.remaining.is_some() || limits.unauthenticated {
            return None;
        }
        let consumed = self.short_arguments(buffer, limits);
        match consumed {
            Some(consumed) => {
                (self.position, self.searched) = (consumed, consumed);
                self.remaining = Some(0);
            }
            None => self.spans.clear(),
        }
        consumed
    }

    #[inline]
    fn short_arguments(&mut self, buffer: &[u8], limits: &Limits) -> Option<usize> {
        let (count, mut at) = short_line(buffer)?;
        let count = usize::try_from(count).ok()?;
        if count == 0 || count > limits.arguments_max {
            return None;
        }
        let longest = limits.whole_bytes_max.min(limits.bulk_bytes_max);
        for _ in 0..count {
            let rest = buffer.get(at..)?;
            let (length, line) = short_line(rest)?;
            let length = usize::try_from(length).ok()?;
            let start = at + line;
            let end = start + length + 2;
            if rest[0] != b'$' || length > longest || end > buffer.len() {
                return None;
            }
            self.spans.push(Span::new(start, start + length));
            at = end;
        }
        let most = limits.request_bytes_max.min(limits.kept_bytes_max);
        (at <= most.min(u32::MAX as usize)).then_some(at)
    }

    #[inline]
    fn parse_array(&mut self, buffer: &[u8], limits: &Limits) -> Parsed {
        match self.parse_short(buffer, limits) {
            Some(consumed) => Parsed::Command { consumed },
            None => self.parse_any(buffer, limits),
        }
    }

    fn parse_any(&mut self, buffer: &[u8], limits: &Limits) -> Parsed {
        let remaining = match self.remaining {
            Some(remaining) => remaining,
            None => match self.count(buffer, limits) {
                Step::Done(0) => {
                    return Parsed::Nothing {
                        consumed: self.position,
                    };
                }
                Step::Done(count) => count,
                Step::More(needed) => return Parsed::Incomplete { needed },
                Step::Broken(error) => return Parsed::Broken(error),
            },
        };
        for left in (0..remaining).rev() {
            match self.argument(buffer, limits) {
                Argument::Taken => self.remaining = Some(left),
                Argument::Large(bytes) => {
                    let index = self.spans.len();
                    return Parsed::Large {
                        at: self.position,
                        bytes,
                        index,
                        count: index + left + 1,
                    };
                }
                Argument::More(needed) => {
                    let whole = buffer.len().saturating_add(needed);
                    if whole > limits.request_bytes_max.min(u32::MAX as usize) {
                        return Parsed::Broken(ProtocolError::RequestTooBig);
                    }
                    return Parsed::Incomplete { needed };
                }
                Argument::Broken(error) => return Parsed::Broken(error),
            }
        }
        Parsed::Command {
            consumed: self.position,
        }
    }

    /// Parses the line `*count`.
    fn count(&mut self, buffer: &[u8], limits: &Limits) -> Step<usize> {
        let number = match self.number(buffer, ProtocolError::MultibulkLine) {
            Step::Done(number) => number,
            Step::More(needed) => return Step::More(needed),
            Step::Broken(error) => return Step::Broken(error),
        };
        let Some(count) = number else {
            return Step::Broken(ProtocolError::MultibulkLength);
        };
        let count = usize::try_from(count).unwrap_or(0);
        if count > limits.arguments_max {
            return Step::Broken(ProtocolError::MultibulkLength);
        }
        if limits.unauthenticated && count > UNAUTHENTICATED_ARGUMENTS_MAX {
            return Step::Broken(ProtocolError::UnauthenticatedMultibulk);
        }
        self.remaining = Some(count);
        Step::Done(count)
    }

    /// Parses the line `$length` and the bytes after it.
    #[inline]
    fn argument(&mut self, buffer: &[u8], limits: &Limits) -> Argument {
        let length = match self.bulk {
            Some(length) => length,
            None if self.position > limits.kept_bytes_max && self.skips_from.is_none() => {
                self.skips_from = Some(self.position);
                return self.argument(buffer, limits);
            }
            None => match self.bulk_length(buffer, limits) {
                Step::Done(length) => length,
                Step::More(needed) => return Argument::More(needed),
                Step::Broken(error) => return Argument::Broken(error),
            },
        };
        // An argument that was announced as large stays large, even if the limits have changed
        // since.
        if length > limits.whole_bytes_max || self.large {
            self.large = true;
            return Argument::Large(length);
        }
        // Cannot overflow: lengths are below the limits, and these are below the range of the type.
        let end = self.position + length + 2;
        if end > buffer.len() {
            return Argument::More(end - buffer.len());
        }
        if end > limits.request_bytes_max.min(u32::MAX as usize) {
            return Argument::Broken(ProtocolError::RequestTooBig);
        }
        if self.skips_from.is_none() {
            self.spans
                .push(Span::new(self.position, self.position + length));
        }
        self.position = end;
        self.searched = end;
        self.bulk = None;
        Argument::Taken
    }

    fn bulk_length(&mut self, buffer: &[u8], limits: &Limits) -> Step<usize> {
        match buffer.get(self.position) {
            None => return Step::More(1),
            Some(b'$') => {}
            Some(other) => return Step::Broken(ProtocolError::ExpectedDollar { got: *other }),
        }
        let number = match self.number(buffer, ProtocolError::BulkLine) {
            Step::Done(number) => number,
            Step::More(needed) => return Step::More(needed),
            Step::Broken(error) => return Step::Broken(error),
        };
        let length = number
            .and_then(|length| usize::try_from(length).ok())
            .filter(|length| *length <= limits.bulk_bytes_max.min(u32::MAX as usize / 2));
        let Some(length) = length else {
            return Step::Broken(ProtocolError::BulkLength);
        };
        if limits.unauthenticated && length > UNAUTHENTICATED_BULK_BYTES_MAX {
            return Step::Broken(ProtocolError::UnauthenticatedBulk);
        }
        self.bulk = Some(length);
        Step::Done(length)
    }

    /// Returns the number behind the first byte of the line at `position`, `None` if it is none;
    /// moves `position` past the line.
    #[inline]
    fn number(&mut self, buffer: &[u8], too_long: ProtocolError) -> Step<Option<i64>> {
        if let Some((number, length)) = short_line(&buffer[self.position..]) {
            self.position += length;
            self.searched = self.position;
            return Step::Done(Some(number));
        }
        match self.line(buffer, too_long) {
            Step::Done(line) => Step::Done(parse_integer(&line.of(buffer)[1..])),
            Step::More(needed) => Step::More(needed),
            Step::Broken(error) => Step::Broken(error),
        }
    }

    /// Returns the line at `position`, without its end; moves `position` past it.
    fn line(&mut self, buffer: &[u8], too_long: ProtocolError) -> Step<Span> {
        let searched = self.searched.max(self.position);
        let Some(found) = memchr::memchr(b'\r', &buffer[searched..]) else {
            self.searched = buffer.len();
            if buffer.len() - self.position > LINE_BYTES_MAX {
                return Step::Broken(too_long);
            }
            return Step::More(1);
        };
        let end = searched + found;
        if end - self.position > LINE_BYTES_MAX {
            return Step::Broken(too_long);
        }
        self.searched = end;
        if end + 2 > buffer.len() {
            return Step::More(1);
        }
        let line = Span::new(self.position, end);
        self.position = end + 2;
        self.searched = self.position;
        Step::Done(line)
    }

    fn parse_inline(&mut self, buffer: &mut [u8]) -> Parsed {
        let Some(found) = memchr::memchr(b'\n', &buffer[self.searched..]) else {
            self.searched = buffer.len();
            if buffer.len() > LINE_BYTES_MAX {
                return Parsed::Broken(ProtocolError::InlineLine);
            }
            return Parsed::Incomplete { needed: 1 };
        };
        let newline = self.searched + found;
        if newline > LINE_BYTES_MAX {
            return Parsed::Broken(ProtocolError::InlineLine);
        }
        let consumed = newline + 1;
        let end = match newline.checked_sub(1) {
            Some(before) if buffer[before] == b'\r' => before,
            _ => newline,
        };
        if !inline::split(buffer, 0, end, &mut self.spans) {
            return Parsed::Broken(ProtocolError::UnbalancedQuotes);
        }
        if self.spans.is_empty() {
            return Parsed::Nothing { consumed };
        }
        Parsed::Command { consumed }
    }
}

#[cfg(test)]
#[path = "request/tests.rs"]
mod tests;
