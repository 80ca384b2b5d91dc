//! Faults of a pipeline, submitted together.
//!
//! When a command has to wait for a page, the keys of the commands behind it in the buffer are
//! tried too, and what they miss is asked for at once: a pipeline of cold GETs costs the device
//! one deep queue and not one read after the other. Nothing is executed here; commands are run
//! again in their order, and mostly find their pages. Commands whose database or meaning depends
//! on those before them end the look.
//!
//! A look ends when the device takes no more. It goes on behind its end, as soon as a command waits
//! while less than half of the reads are in flight: the queue of the device stays full, and no more
//! than a bounded number of keys lies between the command that waits and the end of the look.

use pando_resp::{Arguments, Limits, Parsed, Parser};
use pandodb::nonblocking::{Polled, Prefetched, Reactor};

use crate::client::session::Session;
use crate::context::{Command, CommandIndex, Kind};
use crate::data::engine::Engine;

/// Keys ahead of the one that waits that are looked at.
pub(crate) const KEYS_MAX: usize = 1024;
/// Bytes of values in memory that are copied in passing before the look ends.
const VALUE_BYTES_MAX: usize = 1024 * 1024;

/// Buffers of the look.
#[derive(Default)]
pub(crate) struct Prefetch {
    parser: Parser,
    stored: Vec<u8>,
    value: Vec<u8>,
    keys: usize,
    keys_max: usize,
    /// Keys to be passed over.
    keys_done: usize,
    value_bytes: usize,
    /// The device takes no more reads, or no frame is free.
    full: bool,
}

/// The place a look begins at.
pub(crate) struct Outlook<'a> {
    pub(crate) commands: &'a CommandIndex,
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a Session,
    pub(crate) limits: &'a Limits,
    /// Most keys to look at.
    pub(crate) keys_max: usize,
    /// Keys that the command has read already.
    pub(crate) keys_done: usize,
}

/// How far a look went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    /// Bytes of the commands behind that were looked at as a whole.
    pub(crate) bytes: usize,
    /// Keys of these.
    pub(crate) keys: usize,
}

impl Prefetch {
    pub(crate) fn trim(&mut self, bytes: usize) {
        self.parser.shrink_to(1024);
        if self.value.capacity() > bytes {
            self.value = Vec::new();
        }
    }

    /// Asks for the pages that `command`, if there is one, and the commands in `behind` will miss.
    pub(crate) fn run(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut Reactor,
        command: Option<(&Command, Arguments<'_>)>,
        behind: &[u8],
    ) -> pandodb::Result<Looked> {
        self.keys = 0;
        self.keys_max = outlook.keys_max;
        self.keys_done = outlook.keys_done;
        self.value_bytes = 0;
        self.full = false;
        if let Some((command, arguments)) = command {
            if command.kind == Kind::Exec {
                self.fetch_queued(outlook, reactor)?;
                return Ok(Looked::default());
            }
            self.fetch(outlook, reactor, command, arguments)?;
        }
        let own = self.keys;
        self.keys_done = 0;
        let mut looked = Looked::default();
        while self.goes_on() {
            let mut parser = std::mem::take(&mut self.parser);
            parser.clear();
            let parsed = parser.peek(&behind[looked.bytes..], outlook.limits);
            let mut ends = true;
            if let Parsed::Command { consumed } = parsed {
                let arguments = parser.arguments(&behind[looked.bytes..]);
                let found = outlook.commands.find(arguments.at(0));
                // What was looked at in part is looked at again.
                if let Some((_, command)) = found.filter(|(_, command)| is_followed(command))
                    && self.fetch(outlook, reactor, command, arguments)?
                {
                    looked.bytes += consumed;
                    looked.keys = self.keys - own;
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

    fn fetch_queued(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut Reactor,
    ) -> pandodb::Result<()> {
        if let Some(multi) = &outlook.session.multi {
            for place in 0..multi.len() {
                let (index, arguments) = multi.at(place);
                let queued = outlook.commands.at(index);
                self.fetch(outlook, reactor, queued, arguments)?;
            }
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.keys < self.keys_max && self.value_bytes < VALUE_BYTES_MAX && !self.full
    }

    /// False if it ended early.
    fn fetch(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut Reactor,
        command: &Command,
        arguments: Arguments<'_>,
    ) -> pandodb::Result<bool> {
        let table = &outlook.engine.databases[outlook.session.database].keys;
        for key in command.keys.of(arguments) {
            if !self.goes_on() {
                return Ok(false);
            }
            if self.keys_done > 0 {
                self.keys_done -= 1;
                continue;
            }
            self.keys += 1;
            outlook.engine.folder.store(key, &mut self.stored);
            self.value.clear();
            match table.try_prefetch(&self.stored, &mut self.value)? {
                // Nobody is woken: the command in front has its own waker, the others come later.
                Polled::Pending(pending) => match reactor.prefetch(pending)? {
                    Prefetched::Reading => {
                        if matches!(command.kind, Kind::Read | Kind::ReadMany) {
                            reactor.count_misses(1);
                        }
                    }
                    Prefetched::Known => {}
                    Prefetched::Full => {
                        self.full = true;
                        return Ok(false);
                    }
                },
                Polled::Ready(()) => self.value_bytes += self.value.len(),
            }
        }
        Ok(true)
    }
}

/// Commands that can be passed: they change neither database nor mode of the session.
fn is_followed(command: &Command) -> bool {
    matches!(
        command.kind,
        Kind::Read | Kind::ReadMany | Kind::Transaction
    ) || matches!(command.name, "ping" | "echo")
}
