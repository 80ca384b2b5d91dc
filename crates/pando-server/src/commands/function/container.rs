//! FUNCTION: its table, KILL and HELP.

use super::list::{list, stats};
use super::load::{delete, flush, load};
use super::payload::{dump, restore};
use crate::context::{Command, Context, Flags, Group, Kind, Run};

const CHANGES: Flags = Flags::WRITE.and(Flags::NOSCRIPT).and(Flags::NO_INTERACTIVE);

const fn sub(
    name: &'static str,
    arity: i32,
    (flags, kind): (Flags, Kind),
    run: fn(&mut Context<'_>) -> Run,
    (complexity, summary): (&'static str, &'static str),
) -> Command {
    Command {
        flags,
        kind,
        group: Group::Scripting,
        since: "7.0.0",
        complexity,
        summary,
        ..Command::new(name, arity, run)
    }
}

const READS: (Flags, Kind) = (Flags::NOSCRIPT, Kind::Transaction);
const WRITES: (Flags, Kind) = (CHANGES, Kind::Transaction);
const GROWS: (Flags, Kind) = (CHANGES.and(Flags::DENYOOM), Kind::Transaction);

pub(crate) const COMMANDS: &[Command] = &[Command {
    group: Group::Scripting,
    since: "7.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for function commands.",
    subcommands: &[
        sub(
            "delete",
            3,
            WRITES,
            delete,
            ("O(1)", "Deletes a library and its functions."),
        ),
        sub(
            "dump",
            2,
            READS,
            dump,
            (
                "O(N) where N is the number of functions",
                "Dumps all libraries into a serialized binary payload.",
            ),
        ),
        sub(
            "flush",
            -2,
            WRITES,
            flush,
            (
                "O(N) where N is the number of functions deleted",
                "Deletes all libraries and functions.",
            ),
        ),
        sub(
            "help",
            2,
            (Flags::LOADING, Kind::Session),
            help,
            (
                "O(1)",
                "Returns helpful text about the different subcommands.",
            ),
        ),
        sub(
            "kill",
            2,
            (Flags::NOSCRIPT, Kind::Session),
            |context| context.once(kill),
            ("O(1)", "Terminates a function during execution."),
        ),
        sub(
            "list",
            -2,
            READS,
            list,
            (
                "O(N) where N is the number of functions",
                "Returns information about all libraries.",
            ),
        ),
        sub(
            "load",
            -3,
            GROWS,
            load,
            (
                "O(1) (considering compilation time is redundant)",
                "Creates a library.",
            ),
        ),
        sub(
            "restore",
            -3,
            GROWS,
            restore,
            (
                "O(N) where N is the number of functions on the payload",
                "Restores all libraries from a payload.",
            ),
        ),
        sub(
            "stats",
            2,
            READS,
            stats,
            (
                "O(1)",
                "Returns information about a function during execution.",
            ),
        ),
    ],
    ..Command::new("function", -2, help)
}];

fn kill(context: &mut Context<'_>) -> Run {
    let shared = context.shared;
    match shared.functions.kill() {
        true => context.ok(),
        false if shared.scripts.any() => context.fail(
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        ),
        false => context.fail("NOTBUSY No scripts in execution right now."),
    }
}

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given library name and code.",
        "DELETE <LIBRARY NAME>",
        "    Delete the given library.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries:",
        "    * Library name",
        "    * The engine used to run the Library",
        "    * Library description",
        "    * Functions list",
        "    * Library code (if WITHCODE is given)",
        "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.",
        "STATS",
        "    Return information about the current function running:",
        "    * Function name",
        "    * Command used to run the function",
        "    * Duration in MS that the function is running",
        "    If no function is running, return nil",
        "    In addition, returns a list of available engines.",
        "KILL",
        "    Kill the current running function.",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "    When called without the optional mode argument, the behavior is determined by the",
        "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
        "    * ASYNC: Asynchronously flush the libraries.",
        "    * SYNC: Synchronously flush the libraries.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored using \
         FUNCTION RESTORE command",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries represented by the given payload, it is possible to give a \
         restore policy to",
        "    control how to handle existing libraries (default APPEND):",
        "    * FLUSH: delete all existing libraries.",
        "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
        "    * REPLACE: appends the restored libraries to the existing libraries, On collision, \
         replace the old",
        "      libraries with the new libraries (notice that even on this option there is a chance \
         of failure",
        "      in case of functions name collision with another library).",
        "HELP",
        "    Prints this help.",
    ])
}
