//! CONFIG, over one table of parameters.

use pando_resp::parse_integer;

use crate::commands::{glob, output_limits};
use crate::context::{Command, Context, Flags, Run, replies};
use crate::data::engine::bytes;
use crate::data::keyspace::DATABASES;
use crate::data::limits::Limit;
use crate::log::LogLevel;
use crate::options::Durability;
use crate::shared::Shared;

const FLAGS: Flags = Flags::ADMIN.and(Flags::LOADING).and(Flags::NOSCRIPT);

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "2.0.0",
    complexity: "Depends on subcommand.",
    summary: "A container for server configuration commands.",
    subcommands: &[
        sub(
            "get",
            -3,
            get,
            "Returns the effective values of configuration parameters.",
        ),
        Command {
            shown: 3,
            ..sub("set", -4, set, "Sets configuration parameters in-flight.")
        },
        sub(
            "resetstat",
            2,
            reset_statistics,
            "Resets the server's statistics.",
        ),
        sub(
            "rewrite",
            2,
            rewrite,
            "Persists the effective configuration to file.",
        ),
        sub(
            "help",
            2,
            help,
            "Returns helpful text about the different subcommands.",
        ),
    ],
    ..Command::new("config", -2, help)
}];

/// Checks a value, and applies it if the last argument is true.
type Set = fn(&Shared, &[u8], bool) -> Result<(), &'static str>;

enum Value {
    /// Never changes. Setting it to the value that it has does nothing.
    Fixed(&'static str),
    /// Cannot be set.
    Computed(fn(&Shared) -> String),
    Settable(fn(&Shared) -> String, Set),
    /// Up to which size a collection has a compact encoding.
    Limit(Limit),
}

/// Greatest accepted limit of entries in the slow log, since these take memory.
const SLOW_ENTRIES_MAX: u64 = 100_000;
/// Greatest accepted length of a packed collection: each change writes all of it.
const PACKED_BYTES_MAX: u64 = 65_536;
const NOT_AN_INTEGER: &str = "argument couldn't be parsed into an integer";
const NOT_A_SWITCH: &str = "argument must be 'yes' or 'no'";
const IMMUTABLE: &str = "can't set immutable config";

/// Ordered by name.
const PARAMETERS: &[(&str, Value)] = &[
    ("activedefrag", Value::Fixed("no")),
    ("appendfsync", Value::Computed(appendfsync)),
    ("appendonly", Value::Fixed("yes")),
    ("bind", Value::Computed(bind)),
    (
        "client-output-buffer-limit",
        Value::Settable(output_limits::get, output_limits::set),
    ),
    ("cluster-enabled", Value::Fixed("no")),
    ("databases", Value::Computed(|_| DATABASES.to_string())),
    ("dbfilename", Value::Fixed("")),
    ("dir", Value::Computed(|shared| shared.options.dir.clone())),
    ("durability", Value::Settable(durability, set_durability)),
    ("enable-debug-command", Value::Fixed("no")),
    (
        "hash-max-listpack-entries",
        Value::Limit(Limit::HashElements),
    ),
    ("hash-max-listpack-value", Value::Limit(Limit::HashBytes)),
    (
        "hash-max-ziplist-entries",
        Value::Limit(Limit::HashElements),
    ),
    ("hash-max-ziplist-value", Value::Limit(Limit::HashBytes)),
    (
        "io-threads",
        Value::Computed(|shared| shared.loops.len().to_string()),
    ),
    (
        "latency-monitor-threshold",
        Value::Settable(monitor_ms, set_monitor_ms),
    ),
    ("latency-tracking", Value::Fixed("yes")),
    (
        "latency-tracking-info-percentiles",
        Value::Fixed("50 99 99.9"),
    ),
    ("list-max-listpack-size", Value::Limit(Limit::ListSize)),
    ("list-max-ziplist-size", Value::Limit(Limit::ListSize)),
    ("loglevel", Value::Settable(log_level, set_log_level)),
    ("lua-time-limit", Value::Fixed("5000")),
    ("maxclients", Value::Settable(maxclients, set_maxclients)),
    ("maxmemory", Value::Computed(maxmemory)),
    ("maxmemory-policy", Value::Fixed("noeviction")),
    ("notify-keyspace-events", Value::Fixed("")),
    (
        "packed-bytes-max",
        Value::Settable(packed_bytes_max, set_packed_bytes_max),
    ),
    (
        "periodic-ms",
        Value::Computed(|shared| shared.options.periodic_ms.to_string()),
    ),
    ("port", Value::Computed(port)),
    ("proto-max-bulk-len", Value::Computed(proto_max_bulk_len)),
    (
        "protected-mode",
        Value::Settable(protected_mode, set_protected_mode),
    ),
    ("requirepass", Value::Settable(requirepass, set_requirepass)),
    ("save", Value::Fixed("")),
    ("set-max-intset-entries", Value::Limit(Limit::SetIntegers)),
    ("set-max-listpack-entries", Value::Limit(Limit::SetElements)),
    ("set-max-listpack-value", Value::Limit(Limit::SetBytes)),
    (
        "slowlog-log-slower-than",
        Value::Settable(slow_us, set_slow_us),
    ),
    (
        "slowlog-max-len",
        Value::Settable(slow_entries_max, set_slow_entries_max),
    ),
    (
        "stall-timeout",
        Value::Settable(stall_timeout, set_stall_timeout),
    ),
    (
        "tcp-keepalive",
        Value::Settable(tcp_keepalive, set_tcp_keepalive),
    ),
    ("timeout", Value::Settable(timeout, set_timeout)),
    (
        "zset-max-listpack-entries",
        Value::Limit(Limit::SortedSetElements),
    ),
    (
        "zset-max-listpack-value",
        Value::Limit(Limit::SortedSetBytes),
    ),
    (
        "zset-max-ziplist-entries",
        Value::Limit(Limit::SortedSetElements),
    ),
    (
        "zset-max-ziplist-value",
        Value::Limit(Limit::SortedSetBytes),
    ),
];

fn switch(on: bool) -> String {
    if on { "yes" } else { "no" }.to_owned()
}

fn appendfsync(shared: &Shared) -> String {
    let name = match shared.settings.durability() {
        Durability::Durable => "always",
        Durability::Periodic => "everysec",
        Durability::None => "no",
    };
    name.to_owned()
}

fn packed_bytes_max(shared: &Shared) -> String {
    shared.settings.packed_bytes_max().to_string()
}

fn set_packed_bytes_max(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let bytes = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
    let bytes = u64::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= PACKED_BYTES_MAX);
    let bytes = bytes.ok_or("argument must be between 0 and 65536 inclusive")?;
    if apply {
        shared.settings.set_packed_bytes_max(bytes);
    }
    Ok(())
}

fn bind(shared: &Shared) -> String {
    let addresses: Vec<String> = shared
        .addresses
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    addresses.join(" ")
}

fn port(shared: &Shared) -> String {
    shared
        .addresses
        .first()
        .map_or(0, std::net::SocketAddr::port)
        .to_string()
}

fn maxmemory(shared: &Shared) -> String {
    let engine = shared.engine();
    engine
        .map_or(0, |engine| bytes(engine.db.report().max_memory))
        .to_string()
}

fn proto_max_bulk_len(shared: &Shared) -> String {
    let engine = shared.engine();
    let bytes = engine.map_or(pando_resp::limits::BULK_BYTES_MAX, |engine| {
        usize::try_from(engine.string_bytes_max).unwrap_or(usize::MAX)
    });
    bytes.to_string()
}

fn durability(shared: &Shared) -> String {
    shared.settings.durability().name().to_owned()
}

fn set_durability(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let level = Durability::from_name(&String::from_utf8_lossy(value))
        .ok_or("argument must be one of the following: durable, periodic, none")?;
    if apply {
        shared.settings.set_durability(level);
        if let Some(engine) = shared.engine() {
            engine.db.set_durability(level.of_engine());
        }
    }
    Ok(())
}

fn number(value: &[u8]) -> Result<u64, &'static str> {
    let number = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
    u64::try_from(number).map_err(|_| "argument must be between 0 and 2147483647 inclusive")
}

fn set_limit(shared: &Shared, limit: Limit, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let number = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
    if limit == Limit::ListSize && i32::try_from(number).is_err() {
        return Err("argument must be between -2147483648 and 2147483647 inclusive");
    }
    if limit != Limit::ListSize && number < 0 {
        return Err("argument must be between 0 and 9223372036854775807 inclusive");
    }
    if apply {
        shared.settings.encoding_limits.set(limit, number);
    }
    Ok(())
}

fn maxclients(shared: &Shared) -> String {
    shared.settings.maxclients().to_string()
}

fn set_maxclients(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let count = number(value)?;
    if count == 0 {
        return Err("argument must be between 1 and 4294967295 inclusive");
    }
    // The limit of open files was raised at start, for the number of clients configured then.
    if count > shared.options.maxclients as u64 {
        return Err("The operating system is not able to handle the specified number of clients");
    }
    if apply {
        shared.settings.set_maxclients(count);
    }
    Ok(())
}

fn timeout(shared: &Shared) -> String {
    shared
        .settings
        .timeout()
        .map_or(0, |timeout| timeout.as_secs())
        .to_string()
}

fn set_timeout(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let seconds = number(value)?;
    if apply {
        shared.settings.set_timeout_s(seconds);
    }
    Ok(())
}

fn stall_timeout(shared: &Shared) -> String {
    let timeout = shared.settings.stall_timeout();
    timeout.map_or(0, |timeout| timeout.as_secs()).to_string()
}

fn set_stall_timeout(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let seconds = number(value)?;
    if apply {
        shared.settings.set_stall_timeout_s(seconds);
    }
    Ok(())
}

fn tcp_keepalive(shared: &Shared) -> String {
    shared.settings.tcp_keepalive_s().to_string()
}

fn set_tcp_keepalive(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let seconds = number(value)?;
    if apply {
        shared.settings.set_tcp_keepalive_s(seconds);
    }
    Ok(())
}

fn slow_us(shared: &Shared) -> String {
    shared.settings.slow_us().to_string()
}

fn set_slow_us(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let us = parse_integer(value).ok_or(NOT_AN_INTEGER)?;
    if us < -1 {
        return Err("argument must be between -1 and 9223372036854775807 inclusive");
    }
    if apply {
        shared.settings.set_slow_us(us);
    }
    Ok(())
}

fn slow_entries_max(shared: &Shared) -> String {
    shared.settings.slow_entries_max().to_string()
}

fn set_slow_entries_max(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let count = number(value)?;
    if count > SLOW_ENTRIES_MAX {
        return Err("argument must be between 0 and 100000 inclusive");
    }
    if apply {
        shared.settings.set_slow_entries_max(count);
    }
    Ok(())
}

fn monitor_ms(shared: &Shared) -> String {
    shared.settings.monitor_ms().to_string()
}

fn set_monitor_ms(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let ms = number(value)?;
    if apply {
        shared.settings.set_monitor_ms(ms);
    }
    Ok(())
}

fn log_level(shared: &Shared) -> String {
    shared.settings.log_level().redis_name().to_owned()
}

fn set_log_level(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let level = LogLevel::from_name(&String::from_utf8_lossy(value)).ok_or(
        "argument must be one of the following: debug, verbose, notice, warning, error, nothing",
    )?;
    if !shared.settings.has_log() {
        return Err("nobody writes a log");
    }
    if apply {
        shared.settings.set_log_level(level);
    }
    Ok(())
}

fn protected_mode(shared: &Shared) -> String {
    switch(shared.settings.protected_mode())
}

fn set_protected_mode(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let on = match value.to_ascii_lowercase().as_slice() {
        b"yes" => true,
        b"no" => false,
        _ => return Err(NOT_A_SWITCH),
    };
    if apply {
        shared.settings.set_protected_mode(on);
    }
    Ok(())
}

/// Never shows the password itself.
fn requirepass(shared: &Shared) -> String {
    if shared.settings.has_password() {
        "********"
    } else {
        ""
    }
    .to_owned()
}

fn set_requirepass(shared: &Shared, value: &[u8], apply: bool) -> Result<(), &'static str> {
    let password = std::str::from_utf8(value).map_err(|_| "argument must be text")?;
    if apply {
        shared.settings.set_password(password.to_owned());
    }
    Ok(())
}

fn value_of(shared: &Shared, value: &Value) -> String {
    match value {
        Value::Fixed(text) => (*text).to_owned(),
        Value::Computed(get) | Value::Settable(get, _) => get(shared),
        Value::Limit(limit) => shared.settings.encoding_limits.get(*limit).to_string(),
    }
}

fn get(context: &mut Context<'_>) -> Run {
    let patterns = || context.arguments.from(2);
    let wanted: Vec<_> = PARAMETERS
        .iter()
        .filter(|(name, _)| {
            patterns().any(|pattern| glob::matches_ignoring_case(pattern, name.as_bytes()))
        })
        .collect();
    let shared = context.shared;
    let mut reply = context.reply();
    reply.map(wanted.len());
    for (name, value) in wanted {
        reply.bulk(name.as_bytes());
        reply.bulk(value_of(shared, value).as_bytes());
    }
    Ok(())
}

fn set(context: &mut Context<'_>) -> Run {
    if !context.count().is_multiple_of(2) {
        return context.fail("ERR wrong number of arguments for 'config|set' command");
    }
    // All values are checked before any is changed.
    for apply in [false, true] {
        for at in (2..context.count()).step_by(2) {
            let name = context.argument(at);
            let known = PARAMETERS
                .iter()
                .find(|(known, _)| known.as_bytes().eq_ignore_ascii_case(name));
            let shown = replies::shown(name);
            let Some((_, value)) = known else {
                let text =
                    format!("ERR Unknown option or number of arguments for CONFIG SET - '{shown}'");
                return context.fail(&text);
            };
            let twice = (2..at)
                .step_by(2)
                .any(|earlier| context.argument(earlier).eq_ignore_ascii_case(name));
            let given = context.argument(at + 1);
            let result = match value {
                _ if twice => Err("duplicate parameter"),
                Value::Settable(_, set) => set(context.shared, given, apply),
                Value::Limit(limit) => set_limit(context.shared, *limit, given, apply),
                other if value_of(context.shared, other).as_bytes() == given => Ok(()),
                _ => Err(IMMUTABLE),
            };
            if let Err(reason) = result {
                let text = format!(
                    "ERR CONFIG SET failed (possibly related to argument '{shown}') - {reason}"
                );
                return context.fail(&text);
            }
        }
    }
    context.ok()
}

fn reset_statistics(context: &mut Context<'_>) -> Run {
    context.shared.reset_statistics();
    context.ok()
}

fn rewrite(context: &mut Context<'_>) -> Run {
    context.fail("ERR The server is running without a config file")
}

fn help(context: &mut Context<'_>) -> Run {
    const LINES: &[&str] = &[
        "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "HELP",
        "    Print this help.",
    ];
    context.reply().array(LINES.len());
    for line in LINES {
        context.reply().simple(line);
    }
    Ok(())
}
