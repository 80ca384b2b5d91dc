//! Texts of error replies, word for word as clients know them.

use pando_resp::text_of;

use crate::data::keyspace::shown_of;
#[cfg(feature = "scripts")]
use crate::data::{function_table, functions};

pub(crate) const WRONG_TYPE: &str =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
pub(crate) const SYNTAX: &str = "ERR syntax error";
pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
pub(crate) const NOT_AN_INT: &str =
    "ERR value is out of range, value must between -2147483648 and 2147483647";
pub(crate) const NOT_A_FLOAT: &str = "ERR value is not a valid float";
pub(crate) const NOT_FINITE: &str = "ERR increment would produce NaN or Infinity";
pub(crate) const OVERFLOW: &str = "ERR increment or decrement would overflow";
pub(crate) const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
pub(crate) const NO_SUCH_KEY: &str = "ERR no such key";
pub(crate) const SAME_OBJECTS: &str = "ERR source and destination objects are the same";
pub(crate) const OFFSET: &str = "ERR offset is out of range";
pub(crate) const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
pub(crate) const STRING_TOO_LONG: &str =
    "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
pub(crate) const MUST_BE_POSITIVE: &str = "ERR value is out of range, must be positive";
pub(crate) const COUNT_OUT_OF_RANGE: &str = "ERR value is out of range, value must between \
     -9223372036854775807 and 9223372036854775807";
pub(crate) const NO_AUTH: &str = "NOAUTH Authentication required.";
pub(crate) const WRONG_PASSWORD: &str =
    "WRONGPASS invalid username-password pair or user is disabled.";
pub(crate) const NO_PASSWORD_CONFIGURED: &str = "ERR AUTH <password> called without any password \
     configured for the default user. Are you sure your configuration is correct?";
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub(crate) const DATABASE_OUT_OF_RANGE: &str = "ERR DB index is out of range";
pub(crate) const EXEC_ABORT: &str = "EXECABORT Transaction discarded because of previous errors.";
pub(crate) const REPLY_TOO_LONG: &str = "ERR reply exceeds the maximum allowed size";
pub(crate) const TOO_MANY_LONG_SETS: &str =
    "ERR the command reads sets that do not fit into memory together";
pub(crate) const TOO_MANY_LONG: &str =
    "ERR the command reads long strings that do not fit into memory together";
pub(crate) const TORN: &str = "ERR the elements of this key contradict its head: it is damaged";
pub(crate) const TOO_LONG_TO_LOAD: &str =
    "ERR the command reads a collection as a whole that does not fit into the memory for a reply";
pub(crate) const QUEUE_TOO_LONG: &str = "ERR transaction exceeds the maximum allowed size";
pub(crate) const MAX_CLIENTS: &str = "ERR max number of clients reached";
pub(crate) const DENIED: &str = "DENIED Redis is running in protected mode because protected mode \
     is enabled and no password is set for the default user. In this mode connections are only \
     accepted from the loopback interface. If you want to connect from external computers to \
     Redis you may adopt one of the following solutions: 1) Just disable protected mode sending \
     the command 'CONFIG SET protected-mode no' from the loopback interface by connecting to \
     Redis from the same host the server is running, however MAKE SURE Redis is not publicly \
     accessible from internet if you do so. 2) Setup a password for the default user with \
     --requirepass. NOTE: You only need to do one of the above things in order for the server to \
     start accepting connections from the outside.";
pub(crate) const NOT_BALANCED: &str = "ERR value is out of range, value must between \
     -9223372036854775807 and 9223372036854775807";
pub(crate) const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 \
     from the second ... or use negative to start from the end of the list";

/// WATCH was refused: none of its keys are watched.
pub(crate) const TOO_MANY_WATCHES: &str =
    "ERR too many watched keys: all memory that connections have for them is taken";
pub(crate) const TOO_MANY_AWAITED: &str =
    "ERR too many awaited keys: all memory that clients which wait have for them is taken";
pub(crate) const TOO_MANY_SUBSCRIPTIONS: &str =
    "ERR too many subscriptions: all memory that connections have for them is taken";
pub(crate) const OF_REPLICA: &str = "ERR Replica can't interact with the keyspace";
pub(crate) const CHANNEL_TOO_LONG: &str = "ERR the name of a channel has at most 65536 bytes";
pub(crate) const PATTERN_TOO_LONG: &str = "ERR a pattern of channels has at most 4096 bytes";
pub(crate) const NOT_FLOAT_BOUNDS: &str = "ERR min or max is not a float";
pub(crate) const NOT_MEMBER_BOUNDS: &str = "ERR min or max not valid string range item";

/// Returns the reply of an EXEC that was refused for the reason in `text`.
pub(crate) fn exec_aborted(text: &str) -> String {
    let reason = text.strip_prefix("ERR ").unwrap_or(text);
    format!("EXECABORT Transaction discarded because of: {reason}")
}

/// Returns the error for arguments that no form of a subcommand has.
pub(crate) fn wrong_form(subcommand: &[u8], container: &str) -> String {
    let name = shown(subcommand);
    format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {container} HELP."
    )
}

/// Returns the `wrong number of arguments` error of a command.
pub(crate) fn wrong_arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

/// Returns the error for an argument that is too long to be held and cannot be stored.
pub(crate) fn argument_too_long(command: &str, index: usize, bytes: usize, most: usize) -> String {
    format!("ERR argument {index} of '{command}' has {bytes} bytes, at most {most} are taken here")
}

/// Returns the `invalid expire time` error of a command.
pub(crate) fn invalid_expire(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

/// Returns text that a client sent in a form that a reply may show: at most 128 bytes, and those in
/// front of a NUL, where text ends for Redis.
pub(crate) fn shown(bytes: &[u8]) -> String {
    text_of(cut(bytes, 128))
}

/// Returns at most `most` of `bytes`, those in front of a NUL.
pub(crate) fn cut(bytes: &[u8], most: usize) -> &[u8] {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    &bytes[..bytes.len().min(most)]
}

/// Returns the reply to a command that failed since the store failed.
pub(crate) fn engine_error(error: &pandodb::Error) -> String {
    use pandodb::{ConflictKind, Error};
    const ALL: &str = "CONFLICT range - +";
    match error {
        // A row of a large collection, which does not say of which key it is.
        Error::Conflict { table, .. } if table.ends_with("/members") => ALL.to_owned(),
        Error::Conflict {
            key: Some(key),
            kind: ConflictKind::Range,
            table,
        } => {
            // The part of the range that is known to have changed.
            let key = shown_key(table, key);
            format!("CONFLICT range {key} {key}")
        }
        #[cfg(feature = "scripts")]
        Error::Conflict { key, table, .. } if table == function_table::NAME => {
            let key = key.as_deref().unwrap_or_default();
            format!("CONFLICT {}", functions::described(key))
        }
        Error::Conflict {
            key: Some(key),
            table,
            ..
        } => format!("CONFLICT key {}", shown_key(table, key)),
        // The whole database was changed.
        Error::Conflict { key: None, .. } => ALL.to_owned(),
        Error::LockTimeout { table, key } => {
            let key = key.as_ref().map(|key| shown_key(table, key));
            format!("LOCKTIMEOUT {}", key.unwrap_or_default())
        }
        Error::Deadlock { .. } => {
            "DEADLOCK others wait for this transaction, which waits for them".to_owned()
        }
        Error::SnapshotEnded => {
            "SNAPSHOTENDED there was no memory for what the transaction reads".to_owned()
        }
        error => format!("ERR {error}"),
    }
}

/// Returns the key of a client that the row at `stored` of a table is of, as one word: in quotes
/// and with escapes, unless it is plain text. A long key is cut off, and ends with dots.
fn shown_key(table: &str, stored: &[u8]) -> String {
    let (key, is_whole) = shown_of(table, stored);
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\".contains(byte);
    let dots = if is_whole { "" } else { "..." };
    match !key.is_empty() && key.iter().all(is_plain) {
        true => format!("{}{dots}", text_of(key)),
        false => format!("\"{}\"{dots}", key.escape_ascii()),
    }
}

/// Returns the error for something in a large collection that is too long.
#[cold]
pub(crate) fn too_long(what: &str, bytes: usize, most: usize) -> String {
    format!("ERR {what} has {bytes} bytes: longer ones than {most} bytes are not there yet")
}

#[cfg(test)]
mod tests {
    use pandodb::{ConflictKind, Error};

    use super::engine_error;

    #[test]
    fn a_conflict_names_no_rows_of_elements() {
        for kind in [ConflictKind::Written, ConflictKind::Range] {
            let shown = |table: &str, key: &[u8]| {
                engine_error(&Error::Conflict {
                    table: table.into(),
                    key: Some(key.into()),
                    kind,
                })
            };
            assert_eq!(shown("db/0/members", &[0; 17]), "CONFLICT range - +");
            assert!(shown("db/0/keys", b"\0key").starts_with("CONFLICT "));
            assert!(shown("db/0/keys", b"\0key").ends_with(" key"));
        }
    }
}
