//! Replies on their way out: what may be sent, what waits for the log, what is still being made.
//!
//! Positions count all bytes the connection ever wrote, so that they stay valid while sent bytes
//! are dropped. Replies leave in order, and two things hold them back:
//!
//! - a *gate*: the reply at its position acknowledges a write that is not yet durable;
//! - the *hold*: the command whose reply begins there has not ended, and may take it back.
//!
//! A *stream* is a large value that is sent at its position, between the bytes: piece by piece,
//! each read when those before it have left.

use std::collections::VecDeque;

use pandodb::Lsn;
use pandodb::nonblocking::ValueSource;

/// A reply that waits for the log.
#[derive(Debug, Clone, Copy)]
struct Gate {
    position: u64,
    lsn: Lsn,
}

/// A value that is sent at its position.
#[derive(Debug)]
struct Stream {
    position: u64,
    source: ValueSource,
}

/// The replies of one connection.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    base: u64,
    /// Bytes of `bytes` that are sent.
    sent: usize,
    gates: VecDeque<Gate>,
    /// Gates of this turn are one: one flush serves them all.
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

    /// A command begins: its reply is held until [`Output::release`].
    pub(crate) fn hold(&mut self) {
        self.hold = Some(self.end());
    }

    /// Takes the reply of the running command back.
    pub(crate) fn take_back(&mut self) {
        let hold = self.hold.expect("a command is running");
        let index = self.index(hold);
        self.bytes.truncate(index);
    }

    /// The reply of the running command, so far.
    pub(crate) fn running(&self) -> &[u8] {
        let hold = self.hold.expect("a command is running");
        &self.bytes[self.index(hold)..]
    }

    /// A value belongs to the reply of the running command, `offset` bytes behind its beginning.
    /// Those of one reply come in their order, before [`Output::release`].
    pub(crate) fn push_stream(&mut self, offset: usize, source: ValueSource) {
        let hold = self.hold.expect("a command is running");
        assert!(offset > 0, "its length comes before it");
        let position = hold + offset as u64;
        assert!(position < self.end(), "a line end follows");
        self.streams.push_back(Stream { position, source });
    }

    /// The command has ended; `gate`: its reply waits for this LSN.
    pub(crate) fn release(&mut self, gate: Option<Lsn>) {
        let position = self.hold.take().expect("a command is running");
        let Some(lsn) = gate else { return };
        match self.gates.back_mut() {
            Some(last) if self.gate_open => last.lsn = last.lsn.max(lsn),
            _ => self.gates.push_back(Gate { position, lsn }),
        }
        self.gate_open = true;
    }

    /// The turn ends: later gates are separate. The newest LSN that is waited for.
    pub(crate) fn close_gate(&mut self) -> Option<Lsn> {
        self.gate_open = false;
        self.gates.back().map(|gate| gate.lsn)
    }

    /// True if a reply waits for the log.
    pub(crate) fn is_gated(&self) -> bool {
        !self.gates.is_empty()
    }

    /// Opens the gates that wait for `durable` or less.
    pub(crate) fn open_gates(&mut self, durable: Lsn) {
        while self.gates.front().is_some_and(|gate| gate.lsn <= durable) {
            self.gates.pop_front();
        }
    }

    /// The log has failed: replies that waited for it are dropped, what was before them is sent.
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

    /// Bytes that may be sent now.
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

    /// The value that is to be sent next, if it may be and all before it is sent.
    pub(crate) fn stream(&mut self) -> Option<&mut ValueSource> {
        // Its reply begins in front of it: what is sent up to here was neither gated nor held.
        let at = self.base + self.sent as u64;
        let stream = self.streams.front_mut()?;
        (stream.position == at).then_some(&mut stream.source)
    }

    /// The value that was to be sent next is sent.
    pub(crate) fn end_stream(&mut self) {
        let ended = self.streams.pop_front();
        assert!(
            ended.is_some_and(|stream| stream.source.left() == 0),
            "all of it is sent"
        );
    }

    /// `count` more bytes are sent.
    pub(crate) fn advance(&mut self, count: usize) {
        self.sent += count;
        assert!(
            self.sent <= self.bytes.len(),
            "only what was written is sent"
        );
        let all = self.sent == self.bytes.len();
        // Dropping from the front moves the rest: only when it pays.
        if all || self.sent > self.bytes.len() / 2 && self.sent > 64 * 1024 {
            self.base += self.sent as u64;
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Bytes in memory that wait, for whatever reason.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// As [`Output::unsent`], with what is still to come of values in the store.
    #[inline]
    pub(crate) fn owed(&self) -> usize {
        let mut owed = self.unsent();
        for stream in &self.streams {
            let left = usize::try_from(stream.source.left()).unwrap_or(usize::MAX);
            owed = owed.saturating_add(left);
        }
        owed
    }

    /// True if nothing waits and nothing runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.unsent() == 0 && self.hold.is_none() && self.gates.is_empty()
    }

    /// As new, with memory of at most `bytes` kept.
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

    fn reply(output: &mut Output, text: &str, gate: Option<u64>) {
        output.hold();
        output.bytes.extend_from_slice(text.as_bytes());
        output.release(gate.map(Lsn));
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
    fn a_failed_log_acknowledges_nothing() {
        let mut output = Output::default();
        reply(&mut output, "read.", None);
        reply(&mut output, "+OK", Some(10));
        output.fail_gates();
        assert_eq!(output.sendable(), b"read.");
        assert!(!output.is_gated());
    }
}
