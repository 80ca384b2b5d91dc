//! The settings of a server: the texts of the layers, parsed and checked.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

use pando_server::{DebugCommands, Durability, LogLevel};
use pandodb::{Compression, IoBackend};

use crate::backend;
use crate::failure::Failure;
use crate::layers::{Layers, Value};
use crate::log_format::LogFormat;
use crate::memory;
use crate::quantity::{parse_duration, parse_size, show_size};

/// Smallest memory budget of a server.
const MAX_MEMORY_MIN: u64 = 16 << 20;

/// Settings of `pando serve`.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Directory of the store; may be relative.
    pub(crate) dir: PathBuf,
    /// Addresses for Redis clients.
    pub(crate) listen: Vec<SocketAddr>,
    /// Socket for Redis clients; there is one if there is no address.
    pub(crate) unix_socket: Option<PathBuf>,
    /// Permissions of that socket; `None`: those of the umask.
    pub(crate) unix_socket_mode: Option<u32>,
    /// Bytes; at least [`MAX_MEMORY_MIN`].
    pub(crate) max_memory: u64,
    /// The budget was derived from the memory of the machine.
    pub(crate) max_memory_is_default: bool,
    /// What is guaranteed when a write is answered.
    pub(crate) durability: Durability,
    /// Interval of [`Durability::Periodic`], in milliseconds; at least 1.
    pub(crate) periodic_ms: u64,
    /// Bytes, for a new store; `None`: the engine's default.
    pub(crate) page_size: Option<usize>,
    /// Bytes, for a new store; `None`: the engine's default.
    pub(crate) block_size: Option<usize>,
    /// `None`: the engine's default.
    pub(crate) compression: Option<Compression>,
    /// One that keeps files.
    pub(crate) io_backend: IoBackend,
    /// Most reads in flight of one event loop; `None`: the engine's default.
    pub(crate) queue_depth: Option<usize>,
    /// `None`: the engine's default.
    pub(crate) completion_threads: Option<usize>,
    /// Number of event loops; 0: one per core.
    pub(crate) threads: usize,
    /// `None` if clients need no password; never empty.
    pub(crate) requirepass: Option<String>,
    /// Addresses for `/metrics` and the dashboard; none if there are none.
    pub(crate) metrics_listen: Vec<SocketAddr>,
    /// Silence before the system probes a peer, in seconds; 0 means never.
    pub(crate) tcp_keepalive_s: u64,
    /// Time after which a stalled peer is closed, in seconds; 0 means never.
    pub(crate) stall_timeout_s: u64,
    /// Messages below this level are not written.
    pub(crate) log_level: LogLevel,
    /// How each message is written.
    pub(crate) log_format: LogFormat,
    /// Path of the file that was read; empty if there was none.
    pub(crate) config_file: String,
    /// Parameters of CONFIG SET that are set at the start.
    pub(crate) parameters: Vec<(String, String)>,
    /// The file is a redis.conf.
    pub(crate) is_redis: bool,
    /// The file of the log; `None`: standard error.
    pub(crate) log_file: Option<PathBuf>,
    /// Who may call DEBUG.
    pub(crate) debug_commands: DebugCommands,
    /// `None`: the default of the server.
    pub(crate) maxclients: Option<usize>,
    /// What people should know, for the log.
    pub(crate) notes: Vec<String>,
}

fn wrong(value: &Value, what: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}: {what}", value.origin))
}

/// Parses the value of `key` with `parse`, if there is one.
fn read<T>(
    layers: &Layers,
    key: &'static str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let Some(value) = layers.get(key) else {
        return Ok(None);
    };
    let text = value.texts.last().map_or("", String::as_str);
    parse(text).map(Some).map_err(|what| wrong(value, what))
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.trim().parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("'{text}' is no number from 1 on"))
}

/// Parses a duration of whole seconds.
fn parse_seconds(text: &str) -> Result<u64, String> {
    if let Ok(seconds) = text.trim().parse() {
        return Ok(seconds);
    }
    let whole = parse_duration(text).ok();
    let whole = whole.filter(|duration| duration.subsec_nanos() == 0);
    let seconds = whole.map(|duration| duration.as_secs());
    seconds.ok_or_else(|| format!("'{text}': whole seconds, or a number and s, m or h"))
}

fn parse_bytes(text: &str) -> Result<usize, String> {
    let bytes = parse_size(text)?;
    usize::try_from(bytes).map_err(|_| format!("'{text}' is more than this machine can address"))
}

fn parse_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    text.to_socket_addrs()
        .map(Iterator::collect)
        .map_err(|error| format!("'{text}' is no ADDR:PORT, as in 127.0.0.1:6379 ({error})"))
}

fn parse_optional_addresses(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.trim() {
        "" | "off" => Ok(Vec::new()),
        address => parse_addresses(address),
    }
}

/// The limit of open files is raised for as many clients as the start asks for, so their number is
/// no parameter that is set later.
type Maxclients = (Option<usize>, Vec<(String, String)>);

fn split_maxclients(layers: &Layers) -> Result<Maxclients, Failure> {
    let is = |name: &str| name.eq_ignore_ascii_case("maxclients");
    let given = layers.parameters.iter().rfind(|(name, _)| is(name));
    let count = given.map(|(name, text)| {
        let count = text.parse().ok();
        let count = count.filter(|count| (1..=u32::MAX as usize).contains(count));
        let range = "argument must be between 1 and 4294967295 inclusive";
        count.ok_or_else(|| Failure::usage(format!("{name}: {range}")))
    });
    let mut rest = layers.parameters.clone();
    rest.retain(|(name, _)| !is(name));
    Ok((count.transpose()?, rest))
}

/// Returns what people should know of directives of redis-server.
fn notes_of(layers: &Layers) -> Vec<String> {
    let mut notes = layers.notes.clone();
    notes.dedup();
    if !layers.without_effect.is_empty() {
        let names = layers.without_effect.join(", ");
        notes.push(format!("directives without an effect: {names}"));
    }
    notes
}

fn parse_mode(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text.trim(), 8).ok();
    let mode = mode.filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("'{text}' is no mode, as in 770"))
}

/// Parses an address for clients; a bare port is one of this machine, `off` is none.
fn parse_listen(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.trim().parse::<u16>() {
        Err(_) if text.trim() == "off" => Ok(Vec::new()),
        Ok(port) => Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]),
        Err(_) => parse_addresses(text),
    }
}

/// Returns the addresses and the path that clients connect to; there is one at least.
fn sockets(layers: &Layers) -> Result<(Vec<SocketAddr>, Option<PathBuf>), Failure> {
    let mut listen = Vec::new();
    if let Some(value) = layers.get("listen") {
        for text in &value.texts {
            listen.extend(parse_listen(text).map_err(|what| wrong(value, what))?);
        }
    } else {
        listen.push(SocketAddr::from(([127, 0, 0, 1], 6379)));
    }
    let path = read(layers, "unix_socket", |text| Ok(text.to_owned()))?;
    let path = path.filter(|path| !path.is_empty() && path != "off");
    if listen.is_empty() && path.is_none() {
        let text = "--listen off needs --unix-socket: clients could not connect";
        return Err(Failure::usage(text));
    }
    Ok((listen, path.map(PathBuf::from)))
}

impl Settings {
    /// Parses all settings of `layers`.
    pub(crate) fn new(layers: &Layers) -> Result<Self, Failure> {
        let text = |text: &str| Ok(text.to_owned());
        let durability = |text: &str| {
            Durability::from_name(text)
                .ok_or_else(|| format!("'{text}': there are durable, periodic and none"))
        };
        let log_level = |text: &str| {
            LogLevel::from_name(text)
                .ok_or_else(|| format!("'{text}': there are off, error, warn, info and debug"))
        };
        let (listen, unix_socket) = sockets(layers)?;
        let mode = read(layers, "unix_socket_mode", parse_mode)?;
        let max_memory = read(layers, "max_memory", |text| match parse_size(text)? {
            bytes if bytes < MAX_MEMORY_MIN => Err(format!(
                "'{text}': at least {} are needed",
                show_size(MAX_MEMORY_MIN)
            )),
            bytes => Ok(bytes),
        })?;
        let (maxclients, parameters) = split_maxclients(layers)?;
        let debug_commands = layers.debug_commands.as_deref().map(|text| {
            let words = "argument(s) must be one of the following: no, yes, local";
            DebugCommands::from_name(text)
                .ok_or_else(|| Failure::usage(format!("enable-debug-command: {words}")))
        });
        let debug_commands = debug_commands.transpose()?;
        let log_file = layers.log_file.as_ref().filter(|path| !path.is_empty());
        let half = (memory::available() / 2).max(MAX_MEMORY_MIN);
        let backend = read(layers, "io_backend", text)?;
        Ok(Self {
            dir: read(layers, "dir", text)?.map_or_else(|| "./pando-data".into(), PathBuf::from),
            listen,
            unix_socket,
            // That is what redis.conf has for none.
            unix_socket_mode: mode.filter(|mode| *mode > 0),
            max_memory: max_memory.unwrap_or(half),
            max_memory_is_default: max_memory.is_none(),
            durability: read(layers, "durability", durability)?.unwrap_or_default(),
            periodic_ms: read(layers, "periodic_ms", parse_count)?.unwrap_or(1000) as u64,
            page_size: read(layers, "page_size", parse_bytes)?,
            block_size: read(layers, "block_size", parse_bytes)?,
            compression: read(layers, "compression", Compression::parse)?,
            io_backend: backend::choose(backend.as_deref().unwrap_or("auto"), false)?,
            queue_depth: read(layers, "queue_depth", parse_count)?,
            completion_threads: read(layers, "completion_threads", parse_count)?,
            threads: read(layers, "threads", parse_count)?.unwrap_or(0),
            metrics_listen: read(layers, "metrics_listen", parse_optional_addresses)?
                .unwrap_or_default(),
            tcp_keepalive_s: read(layers, "tcp_keepalive", parse_seconds)?.unwrap_or(300),
            stall_timeout_s: read(layers, "stall_timeout", parse_seconds)?.unwrap_or(60),
            requirepass: read(layers, "requirepass", text)?.filter(|word| !word.is_empty()),
            log_level: read(layers, "log_level", log_level)?.unwrap_or_default(),
            log_format: read(layers, "log_format", LogFormat::parse)?.unwrap_or_default(),
            config_file: layers.file.clone(),
            parameters,
            is_redis: layers.is_redis,
            log_file: log_file.map(PathBuf::from),
            debug_commands: debug_commands.unwrap_or_default(),
            maxclients,
            notes: notes_of(layers),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use crate::failure::Failure;
    use crate::layers::Layers;
    use pando_server::Durability;
    use pandodb::Compression;
    use std::path::Path;

    fn read(flags: &[(&'static str, &str)]) -> Result<Settings, Failure> {
        let flags = flags
            .iter()
            .map(|(key, text)| (*key, vec![(*text).to_owned()]));
        let layers = Layers::read(
            Some(Path::new("/dev/null")),
            std::iter::empty::<(String, String)>(),
            flags.collect(),
        );
        Settings::new(&layers.unwrap())
    }

    /// Without any value, all settings have a default.
    #[test]
    fn defaults_need_nothing() {
        let settings = read(&[]).unwrap();
        assert_eq!(settings.dir.to_str(), Some("./pando-data"));
        assert_eq!(settings.listen[0].to_string(), "127.0.0.1:6379");
        assert_eq!(settings.durability, Durability::Durable);
        assert!(settings.max_memory >= 16 << 20 && settings.max_memory_is_default);
    }

    #[test]
    fn values_are_read() {
        let settings = read(&[
            ("max_memory", "64M"),
            ("listen", "[::1]:7000"),
            ("durability", "Periodic"),
            ("periodic_ms", "250"),
            ("page_size", "8k"),
            ("compression", "zstd:5"),
            ("threads", "3"),
            ("requirepass", "secret"),
            ("metrics_listen", "127.0.0.1:9121"),
        ]);
        let settings = settings.unwrap();
        assert_eq!(settings.max_memory, 64 << 20);
        assert_eq!(settings.listen[0].to_string(), "[::1]:7000");
        assert_eq!(settings.durability, Durability::Periodic);
        assert_eq!(
            (settings.periodic_ms, settings.page_size),
            (250, Some(8192))
        );
        assert_eq!(settings.compression, Some(Compression::Zstd(5)));
        assert_eq!(settings.threads, 3);
        assert_eq!(settings.metrics_listen[0].port(), 9121);
        assert!(
            read(&[("metrics_listen", "off")])
                .unwrap()
                .metrics_listen
                .is_empty()
        );
        assert_eq!(settings.requirepass.as_deref(), Some("secret"));
    }

    #[test]
    fn durations_are_whole_seconds_or_say_their_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("90", 90),
            ("2m", 120),
            ("1h", 3600),
            ("2000ms", 2),
        ] {
            let settings = read(&[("tcp_keepalive", text), ("stall_timeout", text)]).unwrap();
            let found = (settings.tcp_keepalive_s, settings.stall_timeout_s);
            assert_eq!(found, (seconds, seconds), "{text}");
        }
    }

    #[test]
    fn a_bare_port_is_one_of_this_machine() {
        let settings = read(&[("listen", "7000")]).unwrap();
        assert_eq!(settings.listen[0].to_string(), "127.0.0.1:7000");
    }

    #[test]
    fn wrong_values_name_their_flag() {
        for (key, text, part) in [
            (
                "max_memory",
                "15m",
                "--max-memory: '15m': at least 16.0 MiB",
            ),
            ("max_memory", "much", "--max-memory: 'much' is no size"),
            ("listen", "host", "--listen: 'host' is no ADDR:PORT"),
            ("listen", "65536", "--listen: '65536' is no ADDR:PORT"),
            ("durability", "sometimes", "--durability: 'sometimes'"),
            ("threads", "0", "--threads: '0'"),
            ("tcp_keepalive", "-1", "--tcp-keepalive: '-1'"),
            ("tcp_keepalive", "1500ms", "--tcp-keepalive: '1500ms'"),
            ("stall_timeout", "0.5", "--stall-timeout: '0.5'"),
            ("compression", "zip", "--compression: 'zip': there are none"),
            ("io_backend", "disk", "--io-backend 'disk'"),
            (
                "metrics_listen",
                "9121",
                "--metrics-listen: '9121' is no ADDR:PORT",
            ),
        ] {
            let text = read(&[(key, text)]).unwrap_err().text;
            assert!(text.contains(part), "{text}");
        }
    }
}
