//! DUMP and RESTORE: values as payloads of Redis (`dump/`), for tools that copy keys from one
//! server to another.

mod restore;
mod write;

use crate::context::{Command, Flags, Group, Keys};

pub(super) const COMMANDS: &[Command] = &[
    Command {
        since: "2.6.0",
        flags: Flags::READONLY,
        group: Group::Generic,
        value_type: None,
        complexity: "O(N) where N is the length of the value.",
        summary: "Returns a serialized representation of the value stored at a key.",
        ..Command::read("dump", 2, write::dump)
    },
    Command {
        since: "2.6.0",
        flags: Flags::WRITE.and(Flags::DENYOOM),
        group: Group::Generic,
        value_type: None,
        large: Keys::THIRD,
        complexity: "O(N) where N is the length of the value.",
        summary: "Creates a key from the serialized representation of a value.",
        ..Command::write("restore", -4, restore::restore)
    },
];
