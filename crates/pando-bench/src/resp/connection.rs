//! One connection: bytes to send, bytes received, and commands that wait for their answers.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use mio::net::TcpStream;
use pando_format::cast::usize_of;
use pando_resp::Answer;
use pando_stats::Histogram;
use pando_sync::time::{self, Instant};

use super::command::{Commands, Sent};
use crate::error::{Error, Result};
use crate::phase::Done;

const INPUT_BYTES: usize = 64 << 10;

/// A connection that does not block.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    out: Vec<u8>,
    /// Number of bytes of `out` that were sent.
    gone: usize,
    input: Vec<u8>,
    /// Number of bytes in `input` that were received; `taken` is the number of these that were
    /// parsed.
    come: usize,
    taken: usize,
    sent: VecDeque<Sent>,
    numbers: VecDeque<u64>,
    /// When the commands in flight were due.
    begun: Instant,
}

fn failed(source: io::Error) -> Error {
    Error::Io {
        during: "talking to the server".to_owned(),
        source,
    }
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        let connect = || {
            let stream = std::net::TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(TcpStream::from_std(stream))
        };
        let stream = connect().map_err(|source| Error::Io {
            during: format!("connecting to {address}"),
            source,
        })?;
        Ok(Self {
            stream,
            out: Vec::new(),
            gone: 0,
            input: vec![0; INPUT_BYTES],
            come: 0,
            taken: 0,
            sent: VecDeque::new(),
            numbers: VecDeque::new(),
            begun: time::now(),
        })
    }

    /// Returns true if no answer is outstanding.
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty()
    }

    /// Sends up to `count` commands, which were due at `begun`, for at most `limit` keys. Returns
    /// the number of keys; 0: nothing is left to do.
    pub(super) fn start(
        &mut self,
        commands: &mut Commands<'_>,
        count: usize,
        limit: u64,
        begun: Instant,
    ) -> Result<u64> {
        debug_assert!(self.is_idle() && self.gone == self.out.len());
        self.out.clear();
        self.gone = 0;
        self.begun = begun;
        let mut ops = 0;
        while self.sent.len() < count && ops < limit {
            let written = commands.write(limit - ops, &mut self.out, &mut self.numbers);
            let Some(sent) = written else {
                break;
            };
            ops += sent.ops();
            self.sent.push_back(sent);
        }
        self.flush()?;
        Ok(ops)
    }

    /// Writes as much as the socket accepts.
    pub(super) fn flush(&mut self) -> Result<()> {
        while self.gone < self.out.len() {
            match self.stream.write(&self.out[self.gone..]) {
                Ok(count) => self.gone += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Parses the answers that have arrived.
    pub(super) fn take(
        &mut self,
        commands: &mut Commands<'_>,
        times: &mut Histogram,
    ) -> Result<Done> {
        let mut done = Done::default();
        loop {
            let drained = self.fill()?;
            let part = self.answers(commands, times)?;
            done.ops += part.ops;
            done.found += part.found;
            if drained {
                return Ok(done);
            }
        }
    }

    /// Reads once. Returns true if there is no more for now.
    fn fill(&mut self) -> Result<bool> {
        if self.taken == self.come {
            (self.taken, self.come) = (0, 0);
        } else if self.come == self.input.len() {
            self.input.copy_within(self.taken..self.come, 0);
            self.come -= self.taken;
            self.taken = 0;
            if self.come == self.input.len() {
                self.input.resize(2 * self.come, 0);
            }
        }
        let room = self.input.len() - self.come;
        match self.stream.read(&mut self.input[self.come..]) {
            Ok(0) => Err(failed(ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.come += count;
                Ok(count < room)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    fn answers(&mut self, commands: &mut Commands<'_>, times: &mut Histogram) -> Result<Done> {
        let now = time::now();
        let ns = now.saturating_duration_since(self.begun).as_nanos();
        let ns = u64::try_from(ns).unwrap_or(u64::MAX);
        let mut done = Done::default();
        while let Some(sent) = self.sent.front().copied() {
            let bytes = &self.input[self.taken..self.come];
            let length = Answer::length(bytes).map_err(|error| {
                let source = io::Error::new(ErrorKind::InvalidData, error.to_string());
                failed(source)
            })?;
            let Some(length) = length else {
                break;
            };
            let numbers = self.numbers.drain(..usize_of(sent.ops()));
            let part = commands.check(sent, &bytes[..length], numbers)?;
            self.sent.pop_front();
            self.taken += length;
            times.add(ns);
            done.ops += part.ops;
            done.found += part.found;
        }
        Ok(done)
    }
}
