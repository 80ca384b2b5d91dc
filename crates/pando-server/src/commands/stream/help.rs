//! Help of XGROUP and XINFO.

use super::text_of;
use crate::context::{Context, Run};

/// Returns the error for arguments that no form of the subcommand has.
pub(super) fn wrong_arguments(context: &Context<'_>, container: &str) -> String {
    let name = text_of(context.argument(1));
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    )
}

/// Replies with the help of XGROUP.
pub(super) fn of_groups(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
        "HELP",
        "    Prints this help.",
    ])
}

/// Replies with the help of XINFO.
pub(super) fn of_information(context: &mut Context<'_>) -> Run {
    context.lines(&[
        "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
        "HELP",
        "    Prints this help.",
    ])
}
