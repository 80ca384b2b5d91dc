//! Finds a command by its name: a hash table with open addressing, built at start.

use pando_resp::{Arguments, text_of};

use super::absent::absent;
use super::{Command, replies};

/// Number of slots of the hash table; several times the number of commands.
const SLOTS: usize = 512;
/// Longest name that is looked up.
const NAME_BYTES_MAX: usize = 32;
const EMPTY: u16 = u16::MAX;

/// The table of commands, with a hash table over it.
pub(crate) struct CommandIndex {
    all: Vec<&'static Command>,
    /// Names of all commands, then of all subcommands, by number.
    names: Vec<String>,
    /// For each command, the number of its first subcommand.
    first: Vec<usize>,
    slots: Box<[u16; SLOTS]>,
}

impl CommandIndex {
    /// Builds the table of all commands in `families`.
    pub(crate) fn new(families: &[&'static [Command]]) -> Self {
        let all: Vec<&'static Command> = families.iter().flat_map(|family| family.iter()).collect();
        assert!(all.len() * 2 < SLOTS, "look-ups stay short");
        let mut slots = Box::new([EMPTY; SLOTS]);
        for (index, command) in all.iter().enumerate() {
            let name = command.name;
            assert!(name.len() <= NAME_BYTES_MAX, "names fit the look-up");
            let mut slot = hash(name.as_bytes());
            while slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            slots[slot] = u16::try_from(index).expect("there are few commands");
        }
        let mut names: Vec<String> = all.iter().map(|of| of.name.to_owned()).collect();
        let mut first = Vec::with_capacity(all.len());
        for command in &all {
            first.push(names.len());
            let subcommands = command.subcommands.iter();
            names.extend(subcommands.map(|sub| format!("{}|{}", command.name, sub.name)));
        }
        Self {
            all,
            names,
            first,
            slots,
        }
    }

    /// Returns the command called `name`, in any case, and its index.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<(usize, &'static Command)> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let mut slot = hash(name);
        loop {
            let index = usize::from(self.slots[slot]);
            let command = self.all.get(index)?;
            if command.name.as_bytes().eq_ignore_ascii_case(name) {
                return Some((index, command));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Returns the subcommand that `arguments` name if command `index` is a container, else the
    /// command itself, with its number in [`CommandIndex::names`]; checks the number of arguments.
    ///
    /// # Errors
    /// The text of the error reply, and the number of the refused command if it is known.
    #[inline]
    pub(crate) fn resolve(
        &self,
        index: usize,
        arguments: Arguments<'_>,
    ) -> Result<(usize, &'static Command), (Option<usize>, String)> {
        let command = self.all[index];
        if !command.takes(arguments.len()) {
            return Err((Some(index), replies::wrong_arity(command.name)));
        }
        if command.subcommands.is_empty() || arguments.len() < 2 {
            return Ok((index, command));
        }
        let name = arguments.at(1);
        let Some((place, subcommand)) = command.subcommand(name) else {
            let (name, container) = (replies::shown(name), command.name.to_ascii_uppercase());
            if let Some(text) = absent(&format!("{}|{name}", command.name)) {
                return Err((None, text));
            }
            let text = format!("ERR unknown subcommand '{name}'. Try {container} HELP.");
            return Err((None, text));
        };
        let id = self.first[index] + place;
        if !subcommand.takes(arguments.len()) {
            return Err((Some(id), replies::wrong_arity(&self.names[id])));
        }
        Ok((id, subcommand))
    }

    /// Returns true if it is a subcommand of CLIENT, also one with too few arguments.
    #[cold]
    pub(crate) fn is_about_client(&self, arguments: Arguments<'_>) -> bool {
        let found = self.find(arguments.at(0));
        let found = found.filter(|(_, command)| command.name == "client" && arguments.len() > 1);
        found.is_some_and(|(index, _)| !matches!(self.resolve(index, arguments), Err((None, _))))
    }

    /// Returns the error reply for an unknown command.
    #[cold]
    pub(crate) fn unknown(arguments: Arguments<'_>) -> String {
        let name = replies::shown(arguments.at(0));
        if let Some(text) = absent(&name) {
            return text;
        }
        let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
        // All arguments have 128 bytes together, as Redis counts them.
        let mut left: usize = 128;
        for argument in arguments.from(1) {
            let cut = replies::cut(argument, left);
            text.push_str(&format!("'{}' ", text_of(cut)));
            left = left.saturating_sub(cut.len() + "'' ".len());
            if left == 0 {
                break;
            }
        }
        text
    }

    /// Returns the command with number `index`, which is no subcommand. Panics if there is none.
    pub(crate) fn at(&self, index: usize) -> &'static Command {
        self.all[index]
    }

    /// Returns the names of all commands and subcommands (`config|get`), by number.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns all commands, without subcommands, by number.
    pub(crate) fn all(&self) -> &[&'static Command] {
        &self.all
    }
}

#[inline]
fn hash(name: &[u8]) -> usize {
    let fold = |hash: u32, byte: &u8| (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193);
    let hash = name.iter().fold(0x811c_9dc5, fold);
    (hash ^ hash >> 15) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::FAMILIES;

    #[test]
    fn every_command_is_found_in_any_case() {
        let index = CommandIndex::new(FAMILIES);
        for (at, command) in index.all().iter().enumerate() {
            let name = command.name.to_ascii_uppercase();
            assert_eq!(index.find(name.as_bytes()).map(|found| found.0), Some(at));
            assert!(!command.summary.is_empty(), "{} is explained", command.name);
        }
        assert!(index.find(b"").is_none());
        assert!(index.find(b"nosuch").is_none());
        assert!(index.find(&[b'x'; 100]).is_none());
    }
}
