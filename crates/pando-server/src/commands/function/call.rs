//! FCALL and FCALL_RO: a function runs as a script does.

use std::cell::Cell;

use crate::commands::script::eval::{Subject, keys_of, run};
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run};

const FLAGS: Flags = Flags::NOSCRIPT.and(Flags::NO_MANDATORY_KEYS);

const fn calling(
    name: &'static str,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        keys: Keys::NONE.and_counted(2),
        group: Group::Scripting,
        kind: Kind::Transaction,
        since: "7.0.0",
        complexity: "Depends on the function that is executed.",
        summary,
        ..Command::new(name, -3, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    calling(
        "fcall",
        |context| call(context, false),
        "Invokes a function.",
    ),
    Command {
        flags: FLAGS.and(Flags::READONLY),
        ..calling(
            "fcall_ro",
            |context| call(context, true),
            "Invokes a read-only function.",
        )
    },
];

fn call(context: &mut Context<'_>, read_only: bool) -> Run {
    // In any case, as in Redis; names of other commands and of libraries are taken as they are.
    let name = &context.argument(1).to_ascii_lowercase()[..];
    let row = context.function(name)?;
    if context.progress.holds_writers && row.as_ref().is_none_or(|row| !row.no_writes()) {
        return Err(Interrupted::Held);
    }
    let Some(mut row) = row else {
        return context.fail("ERR Function not found");
    };
    let keys = keys_of(context, "ERR Bad number of keys provided")?;
    loop {
        let is_other = Cell::new(false);
        let function = Subject::Function {
            name,
            row: &row,
            is_other: &is_other,
        };
        let result = run(context, function, keys, read_only);
        if !is_other.get() {
            return result;
        }
        // A transaction that checks no reads sees what was committed between its two reads: the
        // row has another text's SHA-1 now. In others the row is the same, and the commit finds
        // the conflict, if it is not damage.
        match context.function(name)? {
            Some(now) if now != row => row = now,
            _ => {
                let text = "ERR the library of this function is damaged; FUNCTION LOAD REPLACE, \
                            or FUNCTION FLUSH, puts that right";
                return context.fail(text);
            }
        }
    }
}
