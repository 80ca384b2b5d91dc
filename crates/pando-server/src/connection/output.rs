//! Replies on their way out: which may be sent, which wait for the log, and which are incomplete.
//!
//! Positions count all bytes that the connection ever wrote, so they stay valid when sent bytes are
//! dropped. Replies leave in order, and two things hold them back:
//!
//! - a *gate*: the reply that begins at its position waits for an LSN to become durable;
//! - the *hold*: the command whose reply begins there has not finished, and may take its reply
//!   back.
//!
//! A *stream* is a large value that is sent at its position, between the bytes: piece by piece, and
//! each piece is read once the pieces before it have been sent. So are the elements of a large
//! collection. Or it is a long message, which is in memory once for all who receive it.

use std::collections::VecDeque;
use std::ops::Range;
use std::task::Waker;

use pandodb::Lsn;

use crate::context::reply_source::ReplySource;
use crate::pubsub::message::SharedBytes;
use crate::row_readers::Failure;

/// Memory that is kept for later replies, once all are sent.
const BYTES_KEPT: usize = 1 << 20;

/// A reply that waits for the log.
#[derive(Debug, Clone, Copy)]
struct Gate {
    position: u64,
    lsn: Lsn,
}

/// Where the bytes of a stream come from.
#[derive(Debug)]
pub(crate) enum Source {
    Stored(ReplySource),
    Shared(SharedBytes),
}

impl Source {
    /// Returns true if nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Stored(source) => source.is_done(),
            Self::Shared(bytes) => bytes.piece().is_empty(),
        }
    }

    /// Returns the next bytes that are in memory. If it returns none although some are left,
    /// `waker` is woken when there are.
    ///
    /// # Errors
    /// They cannot be read: the reply ends in the middle.
    pub(crate) fn piece(&mut self, waker: &Waker) -> Result<&[u8], Failure> {
        match self {
            Self::Stored(source) => source.piece(waker),
            Self::Shared(bytes) => Ok(bytes.piece()),
        }
    }

    /// Consumes `count` bytes of the last piece.
    pub(crate) fn consume(&mut self, count: usize) {
        match self {
            Self::Stored(source) => source.consume(count),
            Self::Shared(bytes) => bytes.consume(count),
        }
    }
}

/// A value that is sent at its position.
#[derive(Debug)]
struct Stream {
    position: u64,
    source: Source,
}

/// The replies of one connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Replies, of which the first `sent` bytes were sent; commands append to it.
    pub(crate) bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    base: u64,
    /// Number of bytes at the front of `bytes` that were sent.
    sent: usize,
    gates: VecDeque<Gate>,
    /// True while further gates of this turn join the last one: one flush serves them all.
    gate_open: bool,
    hold: Option<u64>,
    /// Ascending. A line end follows each, so none lies at the end of a reply.
    streams: VecDeque<Stream>,
}

impl Output {
    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    fn index(&self, position: u64) -> usize {
        usize::try_from(position - self.base).expect("unsent bytes are in memory")
    }

    /// Begins the reply of a command: it is held until [`Output::release`].
    pub(crate) fn hold(&mut self) {
        self.hold = Some(self.end());
    }

    /// Drops the reply of the running command.
    pub(crate) fn take_back(&mut self) {
        let hold = self.hold.expect("a command is running");
        let index = self.index(hold);
        self.bytes.truncate(index);
    }

    /// Inserts messages that are no replies, in front of the reply of the running command if there
    /// is one; with `gate`, they wait for this LSN to become durable. At places in them, bytes that
    /// are shared have to be sent.
    pub(crate) fn insert(
        &mut self,
        message: &[u8],
        shared: Vec<(usize, SharedBytes)>,
        gate: Option<Lsn>,
    ) {
        let hold = self.hold;
        let position = hold.unwrap_or_else(|| self.end());
        let index = self.index(position);
        self.bytes.splice(index..index, message.iter().copied());
        let last = self.streams.back().map_or(0, |last| last.position);
        assert!(last <= position, "streams of a reply come at its end");
        for (place, bytes) in shared {
            assert!(place < message.len(), "a line end follows");
            self.streams.push_back(Stream {
                position: position + place as u64,
                source: Source::Shared(bytes),
            });
        }
        self.hold = Some(position);
        self.release(gate);
        self.hold = hold.map(|hold| hold + message.len() as u64);
    }

    /// Returns the reply of the running command, as far as it is written.
    pub(crate) fn running(&self) -> &[u8] {
        let hold = self.hold.expect("a command is running");
        &self.bytes[self.index(hold)..]
    }

    /// Replaces a part of the reply of the running command, counted from its beginning.
    pub(crate) fn replace(&mut self, part: Range<usize>, bytes: &[u8]) {
        let hold = self.hold.expect("a command is running");
        let start = self.index(hold);
        let part = start + part.start..start + part.end;
        self.bytes.splice(part, bytes.iter().copied());
    }

    /// Adds a value to the reply of the running command, `offset` bytes after its beginning. The
    /// values of one reply are added in their order, before [`Output::release`].
    pub(crate) fn push_stream(&mut self, offset: usize, source: ReplySource) {
        let hold = self.hold.expect("a command is running");
        assert!(offset > 0, "its length comes before it");
        let position = hold + offset as u64;
        assert!(position < self.end(), "a line end follows");
        let source = Source::Stored(source);
        self.streams.push_back(Stream { position, source });
    }

    /// Ends the hold, as the command has finished; with `gate`, its reply waits for this LSN.
    pub(crate) fn release(&mut self, gate: Option<Lsn>) {
        let position = self.hold.take().expect("a command is running");
        let Some(lsn) = gate else { return };
        // Replies leave in order, so no gate opens before the one in front of it: with a smaller
        // LSN of its own, of a read after a write, it would be asked for too early and then
        // forgotten.
        let lsn = self.gates.back().map_or(lsn, |last| last.lsn.max(lsn));
        match self.gates.back_mut() {
            Some(last) if self.gate_open => last.lsn = lsn,
            _ => self.gates.push_back(Gate { position, lsn }),
        }
        self.gate_open = true;
    }

    /// Ends the gate of this turn: later replies get a gate of their own. Returns the LSN of the
    /// last gate.
    pub(crate) fn close_gate(&mut self) -> Option<Lsn> {
        self.gate_open = false;
        self.gates.back().map(|gate| gate.lsn)
    }

    /// Returns true if a reply waits for the log.
    pub(crate) fn is_gated(&self) -> bool {
        !self.gates.is_empty()
    }

    /// Opens the gates that wait for `durable` or an older LSN.
    pub(crate) fn open_gates(&mut self, durable: Lsn) {
        while self.gates.front().is_some_and(|gate| gate.lsn <= durable) {
            self.gates.pop_front();
        }
    }

    /// Drops the replies that wait for the log, which has failed; replies before them are still
    /// sent.
    pub(crate) fn fail_gates(&mut self) {
        if let Some(first) = self.gates.front().copied() {
            let index = self.index(first.position);
            self.bytes.truncate(index);
            self.streams
                .retain(|stream| stream.position < first.position);
            self.gates.clear();
            self.hold = None;
        }
    }

    /// Returns the bytes that may be sent now.
    pub(crate) fn sendable(&self) -> &[u8] {
        let gate = self.gates.front().map(|gate| gate.position);
        let stream = self.streams.front().map(|stream| stream.position);
        let end = [gate, stream, self.hold, Some(self.end())]
            .into_iter()
            .flatten()
            .min();
        let end = self.index(end.expect("the end is one of them"));
        &self.bytes[self.sent..end.max(self.sent)]
    }

    /// Returns the value that is to be sent next, if everything before it was sent.
    pub(crate) fn stream(&mut self) -> Option<&mut Source> {
        // Its reply begins before it: as that was sent up to here, it is neither gated nor held.
        let at = self.base + self.sent as u64;
        let stream = self.streams.front_mut()?;
        (stream.position == at).then_some(&mut stream.source)
    }

    /// Records that the value that [`Output::stream`] returned was sent completely.
    pub(crate) fn end_stream(&mut self) {
        let ended = self.streams.pop_front();
        assert!(
            ended.is_some_and(|stream| stream.source.is_done()),
            "all of it is sent"
        );
    }

    /// Records that `count` more bytes were sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        assert!(
            self.sent <= self.bytes.len(),
            "only what was written is sent"
        );
        let all = self.sent == self.bytes.len();
        // Dropping bytes at the front moves the rest, so it is done only when it pays.
        if all || self.sent > self.bytes.len() / 2 && self.sent > 64 * 1024 {
            self.base += self.sent as u64;
            self.bytes.drain(..self.sent);
            self.sent = 0;
            if all && self.bytes.capacity() > BYTES_KEPT {
                self.bytes = Vec::new();
            }
        }
    }

    /// Returns the number of bytes in memory that wait, for whatever reason.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        let own = self.bytes.len() - self.sent;
        match self.streams.is_empty() {
            true => own,
            false => own + self.stream_bytes(),
        }
    }

    /// Returns the memory that it takes.
    pub(crate) fn memory(&self) -> usize {
        match self.streams.is_empty() {
            true => self.bytes.capacity(),
            false => self.bytes.capacity() + self.stream_bytes(),
        }
    }

    /// Returns the bytes of messages that others have, too, and of elements that were read.
    fn stream_bytes(&self) -> usize {
        let sources = self.streams.iter().map(|stream| &stream.source);
        let left = sources.map(|source| match source {
            Source::Shared(bytes) => bytes.piece().len(),
            Source::Stored(ReplySource::Rows(rows)) => rows.in_memory(),
            Source::Stored(ReplySource::String(_)) => 0,
        });
        left.sum()
    }

    /// Like [`Output::unsent`], but includes what is still to be read of values in the store.
    #[inline]
    pub(crate) fn owed(&self) -> usize {
        let mut owed = self.unsent();
        for stream in &self.streams {
            if let Source::Stored(source) = &stream.source {
                owed = owed.saturating_add(source.owed());
            }
        }
        owed
    }

    /// Returns true if nothing waits and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsent() == 0 && self.hold.is_none() && self.gates.is_empty()
    }

    /// Resets it, and keeps memory for at most `bytes` bytes.
    pub(crate) fn reset(&mut self, bytes: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(bytes);
        self.base = 0;
        self.sent = 0;
        self.gates.clear();
        self.gate_open = false;
        self.hold = None;
        self.streams.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pubsub::message::{Delivery, Message, Reason, Receiver};
    use pando_resp::Version;
    use pando_sync::Arc;

    fn reply(output: &mut Output, text: &str, gate: Option<u64>) {
        output.hold();
        output.bytes.extend_from_slice(text.as_bytes());
        output.release(gate.map(Lsn));
    }

    /// A gate waits at least for the LSN of the previous gate.
    #[test]
    fn a_later_gate_asks_for_no_less_than_the_one_before() {
        let mut output = Output::default();
        reply(&mut output, "write20.", Some(20));
        assert_eq!(output.close_gate(), Some(Lsn(20)));
        reply(&mut output, "read15.", Some(15));
        assert_eq!(output.close_gate(), Some(Lsn(20)));
        output.open_gates(Lsn(15));
        assert_eq!(output.sendable(), b"");
        output.open_gates(Lsn(20));
        assert_eq!(output.sendable(), b"write20.read15.");
    }

    #[test]
    fn replies_behind_a_gate_wait_in_order() {
        let mut output = Output::default();
        reply(&mut output, "read.", None);
        reply(&mut output, "write10.", Some(10));
        reply(&mut output, "read.", None);
        assert_eq!(output.close_gate(), Some(Lsn(10)));
        reply(&mut output, "write20.", Some(20));
        reply(&mut output, "write30.", Some(30));
        assert_eq!(output.close_gate(), Some(Lsn(30)));
        assert_eq!(output.sendable(), b"read.");
        output.advance(5);
        assert_eq!(output.sendable(), b"");
        output.open_gates(Lsn(9));
        assert_eq!(output.sendable(), b"");
        output.open_gates(Lsn(20));
        assert_eq!(output.sendable(), b"write10.read.");
        output.advance(13);
        output.open_gates(Lsn(30));
        assert_eq!(output.sendable(), b"write20.write30.");
        output.advance(16);
        assert!(output.is_idle());
    }

    #[test]
    fn a_running_command_can_take_its_reply_back() {
        let mut output = Output::default();
        reply(&mut output, "first.", None);
        output.hold();
        output.bytes.extend_from_slice(b"half");
        assert_eq!(output.sendable(), b"first.");
        output.advance(6);
        output.take_back();
        assert_eq!(output.running(), b"");
        output.bytes.extend_from_slice(b"whole.");
        output.release(None);
        assert_eq!(output.sendable(), b"whole.");
    }

    #[test]
    fn a_message_comes_before_the_reply_of_the_running_command() {
        let mut output = Output::default();
        output.insert(b"first.", Vec::new(), None);
        output.hold();
        output.bytes.extend_from_slice(b"reply.");
        output.insert(b"second.", Vec::new(), None);
        output.insert(b"third.", Vec::new(), Some(Lsn(7)));
        assert_eq!(output.running(), b"reply.");
        assert_eq!(output.sendable(), b"first.second.");
        output.advance(13);
        output.release(None);
        assert_eq!(output.sendable(), b"");
        output.open_gates(Lsn(7));
        assert_eq!(output.sendable(), b"third.reply.");
    }

    #[test]
    fn a_failed_log_acknowledges_nothing() {
        let mut output = Output::default();
        reply(&mut output, "read.", None);
        reply(&mut output, "+OK", Some(10));
        output.fail_gates();
        assert_eq!(output.sendable(), b"read.");
        assert!(!output.is_gated());
    }
    /// Sends all that may be sent, some bytes at a time.
    fn send(output: &mut Output) -> Vec<u8> {
        let mut sent = Vec::new();
        loop {
            let some = output.sendable();
            let some = &some[..some.len().min(1000)];
            if !some.is_empty() {
                sent.extend_from_slice(some);
                output.advance(some.len());
                continue;
            }
            let Some(source) = output.stream() else {
                return sent;
            };
            if source.is_done() {
                output.end_stream();
                continue;
            }
            let piece = source.piece(Waker::noop()).unwrap();
            let count = piece.len().min(1000);
            sent.extend_from_slice(&piece[..count]);
            source.consume(count);
        }
    }

    #[test]
    fn long_messages_leave_in_their_order_and_count_as_unsent() {
        let waiting = Arc::default();
        let text = vec![b'x'; 50_000];
        let message = Arc::new(Message::new((b"c", &text), None, &waiting));
        let delivery = Delivery::new(Reason::Channel, message);
        let receiver = Receiver {
            version: Version::Resp3,
            is_subscribed: true,
            is_silent: false,
        };
        let (mut bytes, mut shared) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            shared.extend(delivery.write(receiver, &mut bytes));
        }
        drop(delivery);
        assert_eq!(shared.len(), 2);
        let mut output = Output::default();
        reply(&mut output, "before.", None);
        output.hold();
        output.bytes.extend_from_slice(b"running.");
        output.insert(&bytes, shared, Some(Lsn(5)));
        assert_eq!(output.running(), b"running.");
        output.release(None);
        reply(&mut output, "behind.", None);
        let whole = [
            b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$50000\r\n",
            &text[..],
            b"\r\n",
        ];
        let expected = [whole.concat().repeat(2), b"running.behind.".to_vec()].concat();
        assert_eq!(output.unsent(), expected.len() + "before.".len());
        assert_eq!(output.owed(), output.unsent());
        assert_eq!(send(&mut output), b"before.");
        output.open_gates(Lsn(5));
        assert!(send(&mut output) == expected, "in their order");
        assert!(output.is_idle() && output.unsent() == 0);
        assert_eq!(waiting.used(), 0);
    }
}
