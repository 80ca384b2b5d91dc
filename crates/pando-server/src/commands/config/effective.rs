//! Parameters that mean something here.

use super::form::{Form, Refusal, bytes, bytes_or_percent, one_of, switch};
use super::output_limits;
use super::parameter::{Number, Value};
use crate::data::engine::bytes as bytes_of;
use crate::data::keyspace::DATABASES;
use crate::data::limits::Limit;
use crate::log::LogLevel;
use crate::notifications::classes::Classes;
use crate::options::Durability;
use crate::settings::{Settings, allowed_clients};
use crate::shared::Shared;

/// Greatest accepted limit of entries in the slow log, since these take memory.
const SLOW_ENTRIES_MAX: i64 = 100_000;
/// Greatest accepted length of a packed collection: each change writes all of it.
const PACKED_BYTES_MAX: i64 = 65_536;
const SECONDS_MAX: i64 = 2_147_483_647;
const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];
/// The levels of durability, in the names of Redis.
const FLUSHES: [(&str, Durability); 3] = [
    ("everysec", Durability::Periodic),
    ("always", Durability::Durable),
    ("no", Durability::None),
];

const fn number(
    (least, most): (i64, i64),
    get: fn(&Settings) -> i64,
    set: fn(&Settings, i64),
) -> Value {
    Value::Number(Number {
        least,
        most,
        get,
        set,
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The bounds of a [`Number`] are checked before it is set.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// All of them, in no order.
pub(super) const EFFECTIVE: &[(&str, Value)] = &[
    (
        "activedefrag",
        Value::Only(
            Form::Switch,
            "no",
            "Active defragmentation cannot be enabled: there is nothing to defragment",
        ),
    ),
    ("aclfile", Value::Fixed("")),
    ("appendfsync", Value::Settable(appendfsync, set_appendfsync)),
    (
        "appendonly",
        Value::Only(
            Form::Switch,
            "yes",
            "the log cannot be turned off: appendfsync says when it is flushed",
        ),
    ),
    ("bind", Value::Computed(bind)),
    (
        "busy-reply-threshold",
        number(
            (0, i64::MAX),
            |settings| signed(settings.script_ms()),
            |settings, ms| settings.set_script_ms(unsigned(ms)),
        ),
    ),
    (
        "client-output-buffer-limit",
        Value::Settable(output_limits::get, output_limits::set),
    ),
    ("cluster-enabled", Value::Fixed("no")),
    ("daemonize", Value::Fixed("no")),
    ("databases", Value::Computed(|_| DATABASES.to_string())),
    ("dbfilename", Value::Fixed("")),
    ("dir", Value::Computed(|shared| shared.options.dir.clone())),
    ("durability", Value::Settable(durability, set_durability)),
    (
        "enable-debug-command",
        Value::Computed(|shared| shared.options.debug_commands.name().to_owned()),
    ),
    ("enable-module-command", Value::Fixed("no")),
    ("enable-protected-configs", Value::Fixed("no")),
    (
        "hash-max-listpack-entries",
        Value::Limit(Limit::HashElements),
    ),
    ("hash-max-listpack-value", Value::Limit(Limit::HashBytes)),
    (
        "hash-max-ziplist-entries",
        Value::Alias("hash-max-listpack-entries"),
    ),
    (
        "hash-max-ziplist-value",
        Value::Alias("hash-max-listpack-value"),
    ),
    (
        "io-threads",
        Value::Computed(|shared| shared.loops.len().to_string()),
    ),
    (
        "latency-monitor-threshold",
        number(
            (0, i64::MAX),
            |settings| signed(settings.monitor_ms()),
            |settings, ms| settings.set_monitor_ms(unsigned(ms)),
        ),
    ),
    (
        "latency-tracking",
        Value::Only(Form::Switch, "yes", "latencies are always tracked"),
    ),
    (
        "latency-tracking-info-percentiles",
        Value::Fixed("50 99 99.9"),
    ),
    ("list-max-listpack-size", Value::Limit(Limit::ListSize)),
    (
        "list-max-ziplist-size",
        Value::Alias("list-max-listpack-size"),
    ),
    ("loglevel", Value::Settable(log_level, set_log_level)),
    ("lua-time-limit", Value::Alias("busy-reply-threshold")),
    ("maxclients", Value::Settable(maxclients, set_maxclients)),
    ("maxmemory", Value::Settable(maxmemory, set_maxmemory)),
    (
        "maxmemory-clients",
        Value::Settable(maxmemory_clients, set_maxmemory_clients),
    ),
    (
        "maxmemory-policy",
        Value::Only(
            Form::OneOf(POLICIES),
            "noeviction",
            "keys are never evicted: noeviction is all there is",
        ),
    ),
    (
        "min-replicas-to-write",
        Value::Only(Form::Integer(0, SECONDS_MAX), "0", "there are no replicas"),
    ),
    ("min-slaves-to-write", Value::Alias("min-replicas-to-write")),
    (
        "notify-keyspace-events",
        Value::Settable(event_classes, set_event_classes),
    ),
    (
        "packed-bytes-max",
        number(
            (0, PACKED_BYTES_MAX),
            |settings| signed(settings.packed_bytes_max()),
            |settings, bytes| settings.set_packed_bytes_max(unsigned(bytes)),
        ),
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
    ("replicaof", Value::Fixed("")),
    ("requirepass", Value::Settable(requirepass, set_requirepass)),
    ("set-max-intset-entries", Value::Limit(Limit::SetIntegers)),
    ("set-max-listpack-entries", Value::Limit(Limit::SetElements)),
    ("set-max-listpack-value", Value::Limit(Limit::SetBytes)),
    (
        "shutdown-timeout",
        Value::Computed(|shared| shared.options.shutdown_timeout.as_secs().to_string()),
    ),
    ("slaveof", Value::Fixed("")),
    (
        "slowlog-log-slower-than",
        number((-1, i64::MAX), Settings::slow_us, Settings::set_slow_us),
    ),
    (
        "slowlog-max-len",
        number(
            (0, SLOW_ENTRIES_MAX),
            |settings| signed(settings.slow_entries_max()),
            |settings, count| settings.set_slow_entries_max(unsigned(count)),
        ),
    ),
    (
        "stall-timeout",
        number(
            (0, SECONDS_MAX),
            |settings| {
                settings
                    .stall_timeout()
                    .map_or(0, |time| signed(time.as_secs()))
            },
            |settings, seconds| settings.set_stall_timeout_s(unsigned(seconds)),
        ),
    ),
    ("supervised", Value::Fixed("no")),
    ("syslog-enabled", Value::Fixed("no")),
    (
        "tcp-keepalive",
        number(
            (0, SECONDS_MAX),
            |settings| signed(settings.tcp_keepalive_s()),
            |settings, seconds| settings.set_tcp_keepalive_s(unsigned(seconds)),
        ),
    ),
    (
        "stream-node-max-entries",
        Value::Limit(Limit::StreamEntries),
    ),
    (
        "timeout",
        number(
            (0, SECONDS_MAX),
            |settings| settings.timeout().map_or(0, |time| signed(time.as_secs())),
            |settings, seconds| settings.set_timeout_s(unsigned(seconds)),
        ),
    ),
    ("tls-port", Value::Fixed("0")),
    (
        "tracking-table-max-keys",
        Value::Settable(
            |shared| shared.tracking.keys_max().to_string(),
            set_tracked_keys_max,
        ),
    ),
    ("unixsocket", Value::Computed(unix_socket)),
    ("unixsocketperm", Value::Computed(unix_socket_mode)),
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
        Value::Alias("zset-max-listpack-entries"),
    ),
    (
        "zset-max-ziplist-value",
        Value::Alias("zset-max-listpack-value"),
    ),
];

fn appendfsync(shared: &Shared) -> String {
    let level = shared.settings.durability();
    let found = FLUSHES.iter().find(|(_, of)| *of == level);
    found.map_or("", |(name, _)| name).to_owned()
}

fn set_appendfsync(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let name = one_of(value, &FLUSHES.map(|(name, _)| name))?;
    let found = FLUSHES.iter().find(|(of, _)| *of == name);
    if let Some((_, level)) = found.filter(|_| apply) {
        shared.set_durability(*level);
    }
    Ok(())
}

fn durability(shared: &Shared) -> String {
    shared.settings.durability().name().to_owned()
}

fn set_durability(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let name = one_of(value, &["durable", "periodic", "none"])?;
    if let Some(level) = Durability::from_name(name).filter(|_| apply) {
        shared.set_durability(level);
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

fn unix_socket(shared: &Shared) -> String {
    let path = shared.options.unix_socket.as_ref();
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn unix_socket_mode(shared: &Shared) -> String {
    format!("{:o}", shared.options.unix_socket_mode.unwrap_or(0))
}

/// Returns the memory budget; `None` until the engine is open.
fn budget(shared: &Shared) -> Option<u64> {
    let engine = shared.engine()?;
    Some(bytes_of(engine.db.report().max_memory))
}

fn maxmemory(shared: &Shared) -> String {
    budget(shared).unwrap_or(0).to_string()
}

/// The engine divides its budget when it opens, and can leave a part of it unused. 0, which is no
/// limit in Redis, is that of the start.
fn set_maxmemory(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let wanted = bytes(value).ok_or("argument must be a memory value")?;
    let Some(engine) = shared.engine() else {
        return Err("the store is still being opened".into());
    };
    let range = engine.db.max_memory_range();
    let (least, most) = (*range.start(), *range.end());
    let wanted = if wanted == 0 { most } else { wanted };
    if !range.contains(&wanted) {
        return Err(format!(
            "the running server takes {least} to {most} bytes: start it with another max_memory"
        )
        .into());
    }
    if apply {
        let set = engine.db.set_max_memory(wanted);
        set.map_err(|error| error.to_string())?;
        shared.clients.memory.set_budget(wanted);
    }
    Ok(())
}

fn maxmemory_clients(shared: &Shared) -> String {
    match shared.clients.memory.bound() {
        percent @ ..0 => format!("{}%", percent.unsigned_abs()),
        bytes => bytes.to_string(),
    }
}

fn set_maxmemory_clients(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let bound = bytes_or_percent(value)?;
    if apply {
        shared.clients.memory.set_bound(bound);
    }
    Ok(())
}

fn proto_max_bulk_len(shared: &Shared) -> String {
    let engine = shared.engine();
    let bytes = engine.map_or(pando_resp::limits::BULK_BYTES_MAX, |engine| {
        usize::try_from(engine.string_bytes_max).unwrap_or(usize::MAX)
    });
    bytes.to_string()
}

fn maxclients(shared: &Shared) -> String {
    shared.settings.maxclients().to_string()
}

fn set_maxclients(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let count = super::form::integer(value, 1, u32::MAX.into())?;
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let most = allowed_clients(wanted, shared.loops.len());
    if wanted > most {
        return Err(format!(
            "The operating system is not able to handle the specified number of clients, try \
             with {most}"
        )
        .into());
    }
    if apply {
        shared.settings.set_maxclients(unsigned(count));
    }
    Ok(())
}

fn set_tracked_keys_max(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let count = unsigned(super::form::integer(value, 0, i64::MAX)?);
    if apply {
        shared.tracking.set_keys_max(count);
    }
    Ok(())
}

fn log_level(shared: &Shared) -> String {
    shared.settings.log_level().redis_name().to_owned()
}

fn set_log_level(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let level = LogLevel::from_name(&String::from_utf8_lossy(value)).ok_or(
        "argument(s) must be one of the following: debug, verbose, notice, warning, error, nothing",
    )?;
    if !shared.settings.has_log() {
        return Err("nobody writes a log".into());
    }
    if apply {
        shared.settings.set_log_level(level);
    }
    Ok(())
}

fn event_classes(shared: &Shared) -> String {
    shared.notifications.classes().letters()
}

fn set_event_classes(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let classes =
        Classes::parse(value).ok_or("Invalid event class character. Use 'Ag$lshzxeKEtmdn'.")?;
    if apply {
        shared.notifications.set_classes(classes);
    }
    Ok(())
}

fn protected_mode(shared: &Shared) -> String {
    let on = shared.settings.protected_mode();
    if on { "yes" } else { "no" }.to_owned()
}

fn set_protected_mode(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let on = switch(value)?;
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

fn set_requirepass(shared: &Shared, value: &[u8], apply: bool) -> Result<(), Refusal> {
    let password = std::str::from_utf8(value).map_err(|_| "argument must be text")?;
    if apply {
        shared.settings.set_password(password.to_owned());
    }
    Ok(())
}
