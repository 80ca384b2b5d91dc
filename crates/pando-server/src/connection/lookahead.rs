//! The page faults of a pipeline, submitted together.
//!
//! When a command has to wait for a page, the lookahead tries the keys of the commands after it in
//! the buffer, too, and requests at once the pages that they miss: a pipeline of cold GETs costs
//! the device one deep queue instead of one read after the other. Nothing is executed here; the
//! commands run later, in their order, and mostly find their pages in memory. A command whose
//! database or meaning depends on the commands before it ends the lookahead.
//!
//! The lookahead stops when the device accepts no further read. It continues from there as soon as
//! a command waits while less than half of the reads are in flight: so the queue of the device
//! stays full, and the number of keys between the command that waits and the end of the lookahead
//! is bounded.

use pando_resp::{Arguments, Limits, Parsed, Parser};
use pandodb::nonblocking::{Polled, Prefetched, Reactor, Reads};

use crate::client::session::Session;
use crate::context::{Command, CommandIndex, Kind};
use crate::data::engine::Engine;

/// Maximum number of keys that are looked up ahead of the command that waits.
pub(crate) const KEYS_MAX: usize = 1024;
/// Number of bytes of cached values after which a lookahead stops: it copies them as it passes.
const VALUE_BYTES_MAX: usize = 1024 * 1024;
/// Number of bytes of one value that are requested. The command asks for the rest of a longer one:
/// the pages of several might not fit into the frames together.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Buffers of the lookahead.
#[derive(Default)]
pub(crate) struct Prefetch {
    parser: Parser,
    stored: Vec<u8>,
    value: Vec<u8>,
    keys: usize,
    keys_max: usize,
    /// Number of keys that are still to be skipped.
    keys_done: usize,
    value_bytes: usize,
    /// The device accepts no further read, or no frame is free.
    full: bool,
}

/// What a lookahead works with.
pub(crate) struct Outlook<'a> {
    pub(crate) commands: &'a CommandIndex,
    pub(crate) engine: &'a Engine,
    /// Selects the table. Commands that could change it end the lookahead.
    pub(crate) session: &'a Session,
    /// Those of the next request, which the parser keeps to.
    pub(crate) limits: &'a Limits,
    /// Maximum number of keys to look up.
    pub(crate) keys_max: usize,
    /// Number of keys that the waiting command has read already.
    pub(crate) keys_done: usize,
}

/// How far a lookahead got.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Looked {
    /// Number of bytes of the following commands that were covered in full.
    pub(crate) bytes: usize,
    /// Number of keys of these commands.
    pub(crate) keys: usize,
}

impl Prefetch {
    /// Frees the memory of buffers of more than `bytes` bytes.
    pub(crate) fn trim(&mut self, bytes: usize) {
        self.parser.shrink_to(1024);
        if self.value.capacity() > bytes {
            self.value = Vec::new();
        }
    }

    /// Requests the pages that `command`, if there is one, and the commands in `behind` are going
    /// to miss.
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
                // A command that was covered in part is looked up again from its beginning.
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

    /// Requests the missing pages of `command`; returns false if it stopped early.
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
            match Reads::of(table).prefetch(&self.stored, HEAD_BYTES_MAX, &mut self.value)? {
                // No waker is registered: the command that waits has its own, and the others run
                // later.
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

/// Returns true for commands that can be passed: they change neither the database nor the mode of
/// the session.
fn is_followed(command: &Command) -> bool {
    matches!(
        command.kind,
        Kind::Read | Kind::ReadMany | Kind::ReadAll | Kind::Transaction
    ) || matches!(command.name, "ping" | "echo")
}
