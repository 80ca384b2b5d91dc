//! Faults of a pipeline, submitted together.
//!
//! When a command has to wait for a page, the keys of the commands behind it in the buffer are
//! tried too, and what they miss is asked for at once: a pipeline of cold GETs costs the device
//! one deep queue and not one read after the other. Nothing is executed here; commands are run
//! again in their order, and mostly find their pages. Commands whose database or meaning depends
//! on those before them end the look.

use pando_resp::{Arguments, Limits, Parsed, Parser};
use pandodb::nonblocking::{Attempt, Prefetched};

use crate::commands::{Command, Kind};
use crate::engine::Engine;
use crate::session::Session;
use crate::shared::Shared;

/// Keys that are looked at.
const KEYS_MAX: usize = 1024;
/// Bytes of values in memory that are copied in passing before the look ends.
const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Reads in flight beyond which nothing is added.
const IN_FLIGHT_MAX: usize = 1024;

/// Buffers of the look.
#[derive(Default)]
pub(crate) struct Prefetch {
    parser: Parser,
    stored: Vec<u8>,
    value: Vec<u8>,
    keys: usize,
    value_bytes: usize,
    /// The device takes no more reads, or no frame is free.
    full: bool,
}

/// The place a look begins at.
pub(crate) struct Outlook<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a Session,
    pub(crate) limits: &'a Limits,
}

impl Prefetch {
    pub(crate) fn trim(&mut self, bytes: usize) {
        self.parser.shrink_to(1024);
        if self.value.capacity() > bytes {
            self.value = Vec::new();
        }
    }

    /// Asks for the pages that `command` and the commands in `behind` will miss. Returns how many
    /// bytes of `behind` were looked at.
    pub(crate) fn run(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut pandodb::nonblocking::Reactor,
        command: (&Command, Arguments<'_>),
        behind: &[u8],
    ) -> pandodb::Result<usize> {
        self.keys = 0;
        self.value_bytes = 0;
        self.full = false;
        if command.0.kind == Kind::Exec {
            if let Some(multi) = &outlook.session.multi {
                for place in 0..multi.len() {
                    let (index, arguments) = multi.at(place);
                    let queued = outlook.shared.commands.at(index);
                    self.fetch(outlook, reactor, queued, arguments)?;
                }
            }
            return Ok(0);
        }
        self.fetch(outlook, reactor, command.0, command.1)?;
        let mut looked = 0;
        while self.goes_on(reactor) {
            let mut parser = std::mem::take(&mut self.parser);
            parser.clear();
            let parsed = parser.peek(&behind[looked..], outlook.limits);
            let mut ends = true;
            if let Parsed::Command { consumed } = parsed {
                let arguments = parser.arguments(&behind[looked..]);
                let found = outlook.shared.commands.find(arguments.at(0));
                if let Some((_, command)) = found.filter(|(_, command)| is_followed(command)) {
                    self.fetch(outlook, reactor, command, arguments)?;
                    looked += consumed;
                    ends = false;
                }
            }
            self.parser = parser;
            if ends {
                break;
            }
        }
        Ok(looked)
    }

    fn goes_on(&self, reactor: &pandodb::nonblocking::Reactor) -> bool {
        self.keys < KEYS_MAX
            && self.value_bytes < VALUE_BYTES_MAX
            && !self.full
            && reactor.in_flight() < IN_FLIGHT_MAX
    }

    fn fetch(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut pandodb::nonblocking::Reactor,
        command: &Command,
        arguments: Arguments<'_>,
    ) -> pandodb::Result<()> {
        let table = &outlook.engine.databases[outlook.session.database].keys;
        for key in command.keys.of(arguments) {
            if !self.goes_on(reactor) {
                break;
            }
            self.keys += 1;
            outlook.engine.folder.store(key, &mut self.stored);
            self.value.clear();
            match table.try_prefetch(&self.stored, &mut self.value)? {
                // Nobody is woken: the command in front has its own waker, the others come later.
                Attempt::Pending(pending) => match reactor.prefetch(pending)? {
                    Prefetched::Reading => {
                        if matches!(command.kind, Kind::Read | Kind::ReadMany) {
                            reactor.count_misses(1);
                        }
                    }
                    Prefetched::Known => {}
                    Prefetched::Full => self.full = true,
                },
                Attempt::Ready(_) => self.value_bytes += self.value.len(),
            }
        }
        Ok(())
    }
}

/// Commands that can be passed: they change neither database nor mode of the session.
fn is_followed(command: &Command) -> bool {
    matches!(
        command.kind,
        Kind::Read | Kind::ReadMany | Kind::Transaction
    ) || matches!(command.name, "ping" | "echo")
}
