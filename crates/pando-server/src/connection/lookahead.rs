//! The page faults of a pipeline, submitted together.
//!
//! When a command has to wait for a page, the lookahead tries the keys of the commands after it in
//! the buffer, too, and the elements that they name of large collections, and requests at once the
//! pages that they miss: a pipeline of cold GETs or HSETs costs the device one deep queue instead
//! of one read after the other. Nothing is executed here; the commands run later, in their order,
//! and mostly find their pages in memory. A command whose database or meaning depends on the
//! commands before it ends the lookahead. Of EXEC it goes on at the command that waits.
//!
//! The lookahead stops when the device accepts no further read. It continues from there as soon as
//! a command waits while less than half of the reads are in flight: so the queue of the device
//! stays full, and the number of keys between the command that waits and the end of the lookahead
//! is bounded. EXEC, which begins again behind each wait, looks ahead at every one.

use pando_resp::{Arguments, Limits, Parsed, Parser};
use pandodb::Table;
use pandodb::nonblocking::{Polled, Prefetched, Reactor, Reads};

use super::element_names::ElementNames;
use crate::client::session::Session;
use crate::context::{Command, CommandIndex, Kind};
use crate::data::engine::Engine;
use crate::data::keyspace::{Row, ValueType};
use crate::data::tree_head::tree_of;

/// Maximum number of keys and elements that are looked up ahead of the command that waits.
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
    /// Number of elements of large collections.
    elements: usize,
    /// Most of both.
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
    /// Place of the command of EXEC that waits.
    pub(crate) queued: usize,
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
        (self.keys, self.elements) = (0, 0);
        self.keys_max = outlook.keys_max;
        self.keys_done = 0;
        self.value_bytes = 0;
        self.full = false;
        if let Some((command, arguments)) = command {
            if command.kind == Kind::Exec {
                self.fetch_queued(outlook, reactor)?;
                return Ok(Looked::default());
            }
            self.keys_done = outlook.keys_done;
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
            for place in outlook.queued..multi.len() {
                let (index, arguments) = multi.at(place);
                let queued = outlook.commands.at(index);
                if !self.fetch(outlook, reactor, queued, arguments)? {
                    break;
                }
            }
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.keys + self.elements < self.keys_max
            && self.value_bytes < VALUE_BYTES_MAX
            && !self.full
    }

    /// Requests the missing pages of `command`; returns false if it stopped early.
    fn fetch(
        &mut self,
        outlook: &Outlook<'_>,
        reactor: &mut Reactor,
        command: &Command,
        arguments: Arguments<'_>,
    ) -> pandodb::Result<bool> {
        let database = &outlook.engine.databases[outlook.session.database];
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
            if !self.request(&database.keys, command, reactor)? {
                continue;
            }
            let (Some(names), Some(id)) = (ElementNames::of(command), self.large_collection())
            else {
                continue;
            };
            let Some(members) = database.members.table() else {
                continue;
            };
            for at in names.places(arguments.len()) {
                if !self.goes_on() {
                    return Ok(false);
                }
                self.elements += 1;
                let keys = &outlook.engine.element_keys;
                keys.name(id, arguments.at(at), &mut self.stored);
                self.request(members, command, reactor)?;
            }
        }
        Ok(!self.full)
    }

    /// Reads what is stored at `self.stored` in `table`, or requests the page that is missing.
    /// Returns false if that has to be read first.
    fn request(
        &mut self,
        table: &Table,
        command: &Command,
        reactor: &mut Reactor,
    ) -> pandodb::Result<bool> {
        self.value.clear();
        match Reads::of(table).prefetch(&self.stored, HEAD_BYTES_MAX, &mut self.value)? {
            // No waker is registered: the command that waits has its own, and the others run later.
            Polled::Pending(pending) => match reactor.prefetch(pending)? {
                Prefetched::Reading => {
                    if matches!(command.kind, Kind::Read | Kind::ReadMany) {
                        reactor.count_misses(1);
                    }
                }
                Prefetched::Known => {}
                Prefetched::Full => self.full = true,
            },
            Polled::Ready(()) => {
                self.value_bytes += self.value.len();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the id of the collection that was read, if its elements have rows of their own.
    fn large_collection(&self) -> Option<u64> {
        // Of a row that is damaged, the command tells.
        let row = Row::decode(&self.stored, &self.value).ok()?;
        let has_names = matches!(
            row.value_type,
            ValueType::Hash | ValueType::Set | ValueType::SortedSet
        );
        tree_of(&row, &self.value).ok()?.filter(|_| has_names)
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
