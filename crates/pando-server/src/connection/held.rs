//! Commands that wait until those are served who wait for elements of their keys
//! (`client/waiters`, decision 111).
//!
//! A command is asked for before it begins, alone or as the first one of a pipeline run: so while
//! it waits it holds nothing, and its time does not count. It waits for a bounded time, since those
//! who are to be served may have a busy loop, or wait for a page or a lock.
//!
//! Commands that wait for elements themselves queue up behind those who are awake for their keys,
//! and are held for those who are about to bring some. FLUSHALL, FLUSHDB and SWAPDB wait for all
//! who are awake. Not asked are commands between PANDO BEGIN and COMMIT, which may hold locks for
//! which these wait, and those that have no keys among their arguments. MULTI queues at once, and
//! EXEC is asked for the keys of all that it runs. Which keys it watches is not known by name
//! (`client/watches.rs`): if it watches any, it waits for everybody who is about to bring elements
//! to a key. Not known is the key behind STORE of SORT and GEORADIUS.

use std::task::Waker;

use pando_resp::{Arguments, parse_integer};
use pando_sync::time::Instant;

use crate::connection::loop_data::Turn;
use crate::connection::{Connection, Held};
use crate::context::{Command, Flags, Kind};
use crate::data::keyspace::ValueType;

/// So many times as long as a command is held at most, none is held after one whose time was over.
const PAUSES: u32 = 10;

impl Connection {
    /// Returns true if the command that the parser has found must not begin yet: others are to be
    /// served first, or have the turn of its key. The connection is woken then.
    #[inline]
    pub(super) fn is_kept_back(&mut self, turn: &mut Turn<'_>) -> bool {
        turn.shared.waiters.is_anyone_awake() && self.asks_for_others(turn)
            || self.waits_for_turn(turn)
    }

    /// Returns true if others are to be served before that command.
    #[cold]
    fn asks_for_others(&mut self, turn: &Turn<'_>) -> bool {
        let most = turn.shared.options.served_first_max;
        if let Some(held) = &mut self.held
            && held.position == self.position
            && held.until.is_none_or(|until| turn.clock >= until)
        {
            if held.until.take().is_some() {
                held.pause = Some(turn.clock + most * PAUSES);
            }
            return false;
        }
        let pause = self.held.as_ref().and_then(|held| held.pause);
        if pause.is_some_and(|until| turn.clock < until) {
            return false;
        }
        let held = self.held.as_ref();
        let is_held = held.is_some_and(|held| held.position == self.position);
        let buffers = self.buffers.as_ref().expect("a command is in the buffers");
        let arguments = buffers.parser.arguments(&buffers.input[buffers.offset..]);
        let command = (turn.commands.find(arguments.at(0)))
            .and_then(|(index, _)| turn.commands.resolve(index, arguments).ok())
            .map(|(_, command)| command);
        let own = Some((self.record.id, &self.waker));
        let waits = command.is_some_and(|of| self.comes_between(turn, (of, arguments), own));
        if waits && !is_held {
            self.held = Some(Box::new(Held {
                position: self.position,
                until: Some(turn.clock + most),
                pause: None,
            }));
        }
        waits
    }

    /// The command that was found waits for others no longer, and is not asked for again.
    pub(super) fn end_hold(&mut self) {
        if let Some(held) = &mut self.held {
            held.until = None;
        }
    }

    /// Returns when the command that was found waits for others no longer.
    pub(super) fn held_until(&self) -> Option<Instant> {
        let waits = self.found.is_some() && !self.stalled;
        self.held.as_ref().filter(|_| waits)?.until
    }

    /// Returns true if somebody is about to take elements of a key of `call`. Then `held`, a client
    /// with its waker, is woken when that is over.
    pub(super) fn comes_between(
        &self,
        turn: &Turn<'_>,
        (command, arguments): (&'static Command, Arguments<'_>),
        held: Option<(u64, &Waker)>,
    ) -> bool {
        let is_asked = self.session.authenticated && self.session.interactive.is_none();
        if !is_asked {
            return false;
        }
        let mut database = self.session.database;
        let waiters = &turn.shared.waiters;
        if command.flags.has(Flags::BLOCKING) && self.session.multi.is_none() {
            let keys = || command.keys.of(arguments).map(|key| (database, key));
            // What these take from the first of their keys goes to the second.
            let sources = match command.name {
                "blmove" | "brpoplpush" => 1,
                _ => usize::MAX,
            };
            return command.value_type != Some(ValueType::Stream)
                && (waiters.hold_waiter(keys().take(sources), held)
                    || waiters.hold(keys().skip(sources), held));
        }
        match &self.session.multi {
            None if changes_all(command) => waiters.hold_for_all(held),
            None => {
                let keys = command.keys.of(arguments);
                waiters.hold(keys.map(|key| (database, key)), held)
            }
            Some(multi) if command.kind == Kind::Exec => {
                let keys = (0..multi.len()).flat_map(|place| {
                    let (index, arguments) = multi.at(place);
                    let queued = turn.commands.at(index);
                    if queued.name == "select" {
                        let chosen = arguments.get(1).and_then(parse_integer);
                        database = chosen.and_then(|of| of.try_into().ok()).unwrap_or(database);
                    }
                    let of = database;
                    queued.keys.of(arguments).map(move |key| (of, key))
                });
                let watches = self.session.watches.len() > 0;
                let mut queued = (0..multi.len()).map(|place| turn.commands.at(multi.at(place).0));
                queued.any(changes_all) && waiters.hold_for_all(held)
                    || watches && waiters.hold_for_any(held)
                    || waiters.hold(keys, held)
            }
            // It is queued.
            Some(_) => false,
        }
    }
}

/// Returns true for commands that change keys which they do not name.
fn changes_all(command: &Command) -> bool {
    matches!(command.name, "flushall" | "flushdb" | "swapdb")
}
