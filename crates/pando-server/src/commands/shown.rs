//! Names, flags and categories of commands, as COMMAND and ACL CAT tell clients: those of Redis.
//! What the server itself goes by is `Command::flags`.

use super::command_keys::{are_movable, specifications};
use crate::context::{Command, CommandIndex, Context, Flags, Group, Run};

/// All categories, in the order of Redis.
pub(super) const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Returns the name of a command, behind that of its container if it is a subcommand.
pub(super) fn full_name(container: Option<&str>, name: &str) -> String {
    match container {
        Some(container) => format!("{container}|{name}"),
        None => name.to_owned(),
    }
}

/// A command, behind its container if it is a subcommand.
pub(super) type Named<'a> = (Option<&'static str>, &'a Command);

/// Returns the command that `name` names: `get`, or `config|get`.
pub(super) fn named(index: &CommandIndex, name: &[u8]) -> Option<Named<'static>> {
    match name.iter().position(|byte| *byte == b'|') {
        None => index.find(name).map(|(_, command)| (None, command)),
        Some(bar) => {
            let (_, container) = index.find(&name[..bar])?;
            let (_, subcommand) = container.subcommand(&name[bar + 1..])?;
            Some((Some(container.name), subcommand))
        }
    }
}

/// Interrupts the command if it names so many commands that its reply has become too long. While
/// the store is being opened there is no bound for replies, and requests are short.
pub(super) fn check_reply(context: &Context<'_>) -> Run {
    match context.data {
        Some(_) => context.check_reply(),
        None => Ok(()),
    }
}

/// Returns the flags of a command, a subcommand of `container` if there is one.
pub(super) fn flags(container: Option<&str>, command: &Command) -> Flags {
    let more = match &*full_name(container, command.name) {
        "eval" | "eval_ro" | "evalsha" | "evalsha_ro" | "fcall" | "fcall_ro" => {
            Flags::STALE.and(Flags::SKIP_MONITOR)
        }
        "auth" | "discard" | "hello" | "multi" | "quit" | "reset" | "shutdown" | "unwatch" => {
            Flags::ALLOW_BUSY
        }
        "function|kill" | "function|stats" | "script|kill" => Flags::ALLOW_BUSY,
        "watch" => Flags::STALE.and(Flags::ALLOW_BUSY),
        "exec" => Flags::SKIP_SLOWLOG,
        "failover" | "script|load" => Flags::STALE,
        "replicaof" | "slaveof" => Flags::STALE.and(Flags::NO_ASYNC_LOADING),
        "bgrewriteaof" | "bgsave" | "save" | "module|load" | "module|loadex" | "module|unload" => {
            Flags::NO_ASYNC_LOADING
        }
        _ => Flags::NONE,
    };
    // What runs without data runs without a master.
    let stale = match command.flags.has(Flags::LOADING) {
        true => Flags::STALE,
        false => Flags::NONE,
    };
    let movable = match are_movable(&specifications(container, command)) {
        true => Flags::MOVABLE_KEYS,
        false => Flags::NONE,
    };
    command.flags.and(more).and(stale).and(movable)
}

/// Returns the access control categories of a command, a subcommand of `container` if there is
/// one, in the order of [`CATEGORIES`].
pub(super) fn categories(container: Option<&str>, command: &Command) -> Vec<&'static str> {
    let has = |flag| command.flags.has(flag);
    let more: &[&str] = match &*full_name(container, command.name) {
        "asking" | "readonly" | "readwrite" | "command" | "wait" | "waitaof" => &["connection"],
        _ if container == Some("command") => &["connection"],
        "info" | "keys" => &["dangerous"],
        "lastsave" | "role" => &["admin", "dangerous"],
        "dbsize" => &["keyspace"],
        "flushall" | "flushdb" | "swapdb" | "restore" => &["keyspace", "dangerous"],
        "sort" | "sort_ro" => &["set", "sortedset", "list", "dangerous"],
        _ => &[],
    };
    let of_group = match command.group {
        // Containers are not called themselves; these are of other categories.
        _ if !command.subcommands.is_empty() => "",
        _ if matches!(command.name, "sort" | "sort_ro" | "wait" | "waitaof") => "",
        Group::Generic => "keyspace",
        Group::SortedSet => "sortedset",
        Group::Transactions => "transaction",
        Group::Server | Group::PubSub | Group::Cluster => "",
        group => group.name(),
    };
    let is_of = |category: &str| match category {
        "read" => has(Flags::READONLY) && !command.is_script(),
        "write" => has(Flags::WRITE),
        "pubsub" => has(Flags::PUBSUB),
        "admin" | "dangerous" => has(Flags::ADMIN),
        "blocking" => has(Flags::BLOCKING),
        "fast" => has(Flags::FAST),
        "slow" => !has(Flags::FAST),
        _ => category == of_group,
    };
    let wanted = |category: &&str| is_of(category) || more.contains(category);
    CATEGORIES.into_iter().filter(wanted).collect()
}
