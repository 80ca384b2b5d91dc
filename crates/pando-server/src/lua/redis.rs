//! The library `redis`, without what needs commands.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};
use pando_resp::Version;
use sha1::{Digest as _, Sha1};

use super::guard::Guard;
use super::native::{Native, nothing, number, refused, returned, text, until_zero};

/// The version of Redis that scripts are told: that of INFO.
const VERSION: (u32, u32, u32) = (7, 2, 5);

/// Returns the name of a script, or of any text.
pub(crate) fn sha1_of(text: &[u8]) -> [u8; 20] {
    Sha1::digest(text).into()
}

/// Returns a name in the form in which clients see it.
pub(crate) fn hex(name: &[u8; 20]) -> String {
    name.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a table with the functions.
pub(super) fn table(lua: &Lua, guard: &Rc<Guard>) -> mlua::Result<Table> {
    let redis = lua.create_table()?;
    let (major, minor, patch) = VERSION;
    redis.raw_set("REDIS_VERSION", format!("{major}.{minor}.{patch}"))?;
    redis.raw_set("REDIS_VERSION_NUM", major << 16 | minor << 8 | patch)?;
    let numbers = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
    ];
    for (name, number) in numbers {
        redis.raw_set(name, number)?;
    }
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    redis.raw_set("log", lua.create_function(log)?)?;
    redis.raw_set("set_repl", lua.create_function(set_repl)?)?;
    let of_version = guard.clone();
    let set_version = move |lua: &Lua, arguments: MultiValue| {
        if arguments.len() != 1 {
            return refused(lua, "ERR redis.setresp() requires one argument.");
        }
        let version = number(lua, arguments.front())?.map(f64::trunc);
        of_version.version.set(match version {
            Some(2.0) => Version::Resp2,
            Some(3.0) => Version::Resp3,
            _ => return refused(lua, "ERR RESP version must be 2 or 3."),
        });
        nothing()
    };
    redis.raw_set("setresp", lua.create_function(set_version)?)?;
    let yes = |lua: &Lua, _: MultiValue| returned(lua, true);
    redis.raw_set("replicate_commands", lua.create_function(yes)?)?;
    let no = |lua: &Lua, _: MultiValue| returned(lua, false);
    redis.raw_set("breakpoint", lua.create_function(no)?)?;
    redis.raw_set("debug", lua.create_function(|_, _: MultiValue| nothing())?)?;
    Ok(redis)
}

fn sha1hex(lua: &Lua, arguments: MultiValue) -> Native {
    match (arguments.front(), arguments.len()) {
        (Some(value), 1) => {
            let of = text(lua, value)?;
            let bytes = of.as_ref().map(mlua::LuaString::as_bytes);
            let name = sha1_of(bytes.as_deref().unwrap_or_default());
            returned(lua, hex(&name))
        }
        _ => refused(lua, "ERR wrong number of arguments"),
    }
}

fn reply_table(lua: &Lua, field: &str, text: &[u8]) -> Native {
    let table = lua.create_table()?;
    table.raw_set(field, lua.create_string(text)?)?;
    returned(lua, table)
}

const NOT_A_STRING: &[u8] = b"ERR wrong number or type of arguments";

fn error_reply(lua: &Lua, arguments: MultiValue) -> Native {
    let (Some(Value::String(text)), 1) = (arguments.front(), arguments.len()) else {
        return reply_table(lua, "err", NOT_A_STRING);
    };
    let bytes = text.as_bytes();
    let bytes = until_zero(&bytes);
    let bytes = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let end = bytes.iter().rposition(|byte| !b"\r\n".contains(byte));
    let bytes = &bytes[..end.map_or(0, |end| end + 1)];
    // A text of one word has no code.
    let error = match bytes.contains(&b' ') {
        true => bytes.to_vec(),
        false => {
            let start = bytes.iter().position(|byte| !b"\r\n".contains(byte));
            [b"ERR ", &bytes[start.unwrap_or(bytes.len())..]].concat()
        }
    };
    reply_table(lua, "err", &error)
}

fn status_reply(lua: &Lua, arguments: MultiValue) -> Native {
    match (arguments.front(), arguments.len()) {
        (Some(Value::String(text)), 1) => reply_table(lua, "ok", &text.as_bytes()),
        _ => reply_table(lua, "err", NOT_A_STRING),
    }
}

fn set_repl(lua: &Lua, arguments: MultiValue) -> Native {
    if arguments.len() != 1 {
        return refused(lua, "ERR redis.set_repl() requires two arguments.");
    }
    // There are no replicas. What is no number is none of the flags.
    let flags = number(lua, arguments.front())?.unwrap_or(0.0);
    match [0.0, 1.0, 2.0, 3.0].contains(&flags.trunc()) {
        true => nothing(),
        false => refused(
            lua,
            "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        ),
    }
}

/// Length of a line in the log.
const LINE_BYTES_MAX: usize = 1024;

fn log(lua: &Lua, arguments: MultiValue) -> Native {
    if arguments.len() < 2 {
        return refused(lua, "ERR redis.log() requires two arguments or more.");
    }
    let Some(level) = number(lua, arguments.front())? else {
        return refused(lua, "ERR First argument must be a number (log level).");
    };
    if !(0.0..4.0).contains(&level) {
        return refused(lua, "ERR Invalid debug level.");
    }
    let mut line = String::new();
    for value in arguments.iter().skip(1) {
        let Some(word) = text(lua, value)?.filter(|_| line.len() < LINE_BYTES_MAX) else {
            continue;
        };
        if !line.is_empty() {
            line.push(' ');
        }
        let word = word.as_bytes();
        let most = word.len().min(LINE_BYTES_MAX);
        line.push_str(&String::from_utf8_lossy(&word[..most]));
    }
    let line: String = line.chars().take(LINE_BYTES_MAX).collect();
    if level < 2.0 {
        tracing::debug!(line, "a script logs");
    } else if level < 3.0 {
        tracing::info!(line, "a script logs");
    } else {
        tracing::warn!(line, "a script logs");
    }
    nothing()
}
