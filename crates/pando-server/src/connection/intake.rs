//! Finds the next command of a connection, and decides where arguments go that are too long to be
//! held in memory (decision 029).

use pando_resp::Parsed;

use crate::client::staging::{Destination, Intake};
use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::context::replies;

/// What the input so far contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Input {
    Command {
        consumed: usize,
    },
    /// More bytes must arrive.
    Starved,
    /// The store has no room for bytes that have arrived; it wakes the connection once it has.
    Stuck,
}

impl Connection {
    /// Finds the next command in the input.
    #[inline]
    pub(crate) fn parse(&mut self, turn: &Turn<'_>) -> Input {
        let limits = self.limits(turn);
        loop {
            let Some(buffers) = self.buffers.as_mut() else {
                return Input::Starved;
            };
            let rest = &mut buffers.input[buffers.offset..];
            let parsed = buffers.parser.parse(rest, &limits);
            let mut skipped = 0;
            if buffers.parser.skips() {
                buffers.staging.refuse(replies::LOADING.to_owned());
                skipped = (buffers.parser).skip(&mut buffers.input, buffers.offset);
            }
            match parsed {
                Parsed::Command { consumed } => {
                    let consumed = consumed - skipped;
                    return Input::Command { consumed };
                }
                Parsed::Large {
                    at,
                    bytes,
                    index,
                    count,
                } => {
                    let at = at - skipped;
                    if !buffers.staging.is_arriving() {
                        self.begin_large(turn, (index, at, bytes), count);
                    }
                    match self.take_large(at) {
                        Intake::Whole => {}
                        Intake::Hungry => return Input::Starved,
                        Intake::Waits => return Input::Stuck,
                    }
                }
                Parsed::Nothing { consumed } => {
                    // As in Redis, it is the command whose reply CLIENT REPLY SKIP means.
                    self.session.reply_mode = self.session.reply_mode.after_command();
                    // So it is the command that CLIENT CACHING is about.
                    if let Some(tracking) = &mut self.session.tracking
                        && self.session.multi.is_none()
                    {
                        tracking.options.caching = false;
                    }
                    buffers.offset += consumed;
                    self.position += consumed as u64;
                    buffers.parser.clear();
                }
                Parsed::Incomplete { .. } => return Input::Starved,
                Parsed::Broken(error) => {
                    self.session.closing = true;
                    let text = format!("ERR {error}");
                    if !self.session.reply_mode.is_silent() {
                        self.write_error(&text);
                    }
                    let client = &self.record.address;
                    turn.shared.events.protocol_error(client, &text);
                    turn.count_error(b"ERR");
                    return Input::Starved;
                }
            }
        }
    }

    /// Decides where an argument goes that is too long to be held.
    #[cold]
    fn begin_large(&mut self, turn: &Turn<'_>, argument: (usize, usize, usize), count: usize) {
        let destination = self.destination(turn, argument, count);
        let db = turn.data.as_ref().map(|data| &data.engine.db);
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        buffers.staging.begin(argument, destination, db);
    }

    fn destination(
        &self,
        turn: &Turn<'_>,
        (index, _, bytes): (usize, usize, usize),
        count: usize,
    ) -> Destination {
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let name = arguments.get(0).unwrap_or_default();
        let command = turn.commands.find(name);
        let Some((_, command)) = command.filter(|(_, command)| command.takes(count)) else {
            return Destination::Nowhere(None);
        };
        let Some(data) = &turn.data else {
            return Destination::Nowhere(Some(replies::LOADING.to_owned()));
        };
        if self.session.multi.as_ref().is_some_and(|multi| multi.dirty) {
            return Destination::Nowhere(None);
        }
        if command.large.has(index, count) {
            return Destination::Store;
        }
        let most = data.engine.whole_bytes_max;
        Destination::Nowhere(Some(replies::argument_too_long(
            command.name,
            index,
            bytes,
            most,
        )))
    }

    /// Takes the bytes that have arrived of an argument, which begins at offset `at` of the
    /// command.
    #[cold]
    fn take_large(&mut self, at: usize) -> Intake {
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let from = buffers.offset + at;
        let intake = (buffers.staging).take(&mut buffers.input, from, &self.waker);
        if intake == Intake::Whole {
            buffers.parser.large_taken();
        }
        intake
    }
}
