//! PANDO: a container for commands that Redis does not have.

use super::background::{COMPACT, DUMP};
use super::interactive::{BEGIN, COMMIT, LOCK, ROLLBACK, SAVEPOINT};
use super::key_range::{COUNT, RANGE};
use super::profile::PROFILE;
use crate::context::{Command, Context, Flags, Run};

pub(crate) const COMMANDS: &[Command] = &[Command {
    complexity: "Depends on subcommand.",
    summary: "A container for commands of PandoDB's own.",
    subcommands: &[
        BEGIN,
        LOCK,
        SAVEPOINT,
        ROLLBACK,
        COMMIT,
        COMPACT,
        DUMP,
        PROFILE,
        RANGE,
        COUNT,
        Command {
            flags: Flags::LOADING,
            summary: "Returns helpful text about the different subcommands.",
            ..Command::new("help", 2, help)
        },
    ],
    ..Command::new("pando", -2, help)
}];

fn help(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "PANDO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "BEGIN [SNAPSHOT|SERIALIZABLE|READCOMMITTED] [READONLY] [TIMEOUT ms]",
        "    Begin a transaction of this connection: the commands after it see one moment,",
        "    and their own writes, which others see after COMMIT. SERIALIZABLE unless said",
        "    otherwise. Commands of READCOMMITTED see what is stored when they run: those",
        "    that change what they have read, as INCR, may replace what others write before",
        "    COMMIT, unless the key was locked, as large collections are by what writes",
        "    them. What expires is decided by the time of BEGIN. It is rolled back when",
        "    nothing comes for TIMEOUT ms (10000).",
        "LOCK key [key ...]",
        "    Lock keys, 10000 at most, until the end of the transaction: others that write",
        "    or lock them wait. Reads do not.",
        "SAVEPOINT",
        "    Return the number of a savepoint.",
        "ROLLBACK [TO n]",
        "    Forget the writes of the transaction, and end it; or those since savepoint n.",
        "COMMIT",
        "    Make the writes of the transaction visible, all at once. Errors CONFLICT,",
        "    DEADLOCK, LOCKTIMEOUT and SNAPSHOTENDED, of COMMIT or of a command before it:",
        "    nothing was written; ROLLBACK, and begin again.",
        "COMPACT [ABORT]",
        "    Make the files of the store as small as what they hold, in the background:",
        "    underfull pages are packed, the data file is cut, the log gives back what it",
        "    does not use. INFO persistence tells how far it is. ABORT ends it early;",
        "    what was done stays done.",
        "DUMP [ABORT]",
        "    Write the whole store, as of one moment, to the file store.dump in its directory, in",
        "    the background: 'pando load' makes a store of it. The file of before stays until",
        "    all is written. It fails rather than fill the disk. INFO persistence tells how far",
        "    it is, and how the last one ended. ABORT ends it.",
        "PROFILE ON|OFF|GET",
        "    Turn profiles of the commands of this connection on or off, or get that of",
        "    the command before: runs, time, waits and steps of its commit, each with",
        "    how often and how many microseconds.",
        "RANGE from to [REV] [COUNT n] [VALUES] [TYPE t]",
        "    Return the keys between two bounds in order, as of one moment: [key with the key,",
        "    (key without it, - and + for the ends. REV goes down, and from is the upper bound.",
        "    VALUES adds the values: nil of what is no string.",
        "COUNT from to",
        "    Return how many keys lie between two bounds.",
        "HELP",
        "    Print this help.",
    ])
}
