//! Options that a server is started with.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::log::{LogLevel, LogLevelSetter};

/// What the reply to a write promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The write is on disk before its reply is sent.
    #[default]
    Durable,
    /// The log is flushed at intervals; a crash may lose the writes of the last interval.
    Periodic,
    /// Nothing: what survives a crash is not defined.
    None,
}

impl Durability {
    /// Returns its name in options and in INFO.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Periodic => "periodic",
            Self::None => "none",
        }
    }

    /// Returns the corresponding durability of commits in the engine.
    pub fn of_engine(self) -> pandodb::Durability {
        match self {
            Self::Durable => pandodb::Durability::Durable,
            Self::Periodic => pandodb::Durability::Periodic,
            Self::None => pandodb::Durability::None,
        }
    }

    /// Returns the durability with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Durable, Self::Periodic, Self::None]
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Who may call DEBUG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DebugCommands {
    /// Nobody.
    #[default]
    No,
    /// Clients on this machine.
    Local,
    /// All clients.
    Yes,
}

impl DebugCommands {
    /// Returns its name in `enable-debug-command`.
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Local => "local",
            Self::Yes => "yes",
        }
    }

    /// Returns the one with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::No, Self::Local, Self::Yes]
            .into_iter()
            .find(|of| of.name().eq_ignore_ascii_case(name))
    }
}

/// What a configuration file is to say of a parameter of CONFIG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in CONFIG GET.
    pub name: &'static str,
    /// Its older names, which a file may have as well.
    pub other_names: Vec<&'static str>,
    /// Its value now.
    pub value: String,
    /// The value is another one than what the parameter has if no file names it.
    pub is_changed: bool,
}

/// Writes the configuration file for CONFIG REWRITE. It gets all parameters that can be set, and
/// returns why it failed. It may block.
#[derive(Clone, Copy)]
pub struct ConfigRewriter(pub &'static (dyn Fn(&[Parameter]) -> Result<(), String> + Send + Sync));

impl fmt::Debug for ConfigRewriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigRewriter")
    }
}

/// Options of a server. Those that can be changed at run time are starting values.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Addresses to listen on; with port 0 the system chooses a port.
    pub listen: Vec<SocketAddr>,
    /// Path of a socket in the file system to listen at, which is made by [`crate::Server::bind`]
    /// and removed at the end. One that a process has left when it ended is replaced.
    pub unix_socket: Option<PathBuf>,
    /// Permissions of that socket; `None`: what the umask of the process leaves.
    pub unix_socket_mode: Option<u32>,
    /// Addresses that serve metrics and probes over HTTP, without a password; none by default.
    pub metrics_listen: Vec<SocketAddr>,
    /// Number of event loops; 0 means one per core.
    pub threads: usize,
    /// Password that clients must give; without one, none is asked for.
    pub requirepass: Option<String>,
    /// Refuses clients from other machines while no password is set.
    pub protected_mode: bool,
    /// What the reply to a write promises.
    pub durability: Durability,
    /// Interval of [`Durability::Periodic`], in milliseconds. The engine applies it; the server
    /// only reports it.
    pub periodic_ms: u64,
    /// Maximum number of open connections.
    pub maxclients: usize,
    /// Time that a client has to authenticate.
    pub handshake_timeout: Duration,
    /// Longest time that a command waits until those are served who wait for elements of its keys.
    pub served_first_max: Duration,
    /// Seconds of silence after which the system probes whether a peer is still there; 0 means
    /// never.
    pub tcp_keepalive_s: u64,
    /// Time after which a connection is closed if its peer accepts no byte of a reply, or sends no
    /// further byte of a command that has begun; zero means never.
    pub stall_timeout: Duration,
    /// Number of unsent reply bytes at which a connection stops executing commands.
    pub output_bytes_max: usize,
    /// Time that running commands and unsent replies get when the server stops.
    pub shutdown_timeout: Duration,
    /// Directory of the store, as reported by `CONFIG GET dir`.
    pub dir: String,
    /// Path of the configuration file, as reported by INFO.
    pub config_file: String,
    /// Called by CONFIG REWRITE; without it, there is no configuration file.
    pub config_rewriter: Option<ConfigRewriter>,
    /// Parameters of CONFIG SET, which are set at the start, in this order.
    pub parameters: Vec<(String, String)>,
    /// Who may call DEBUG.
    pub debug_commands: DebugCommands,
    /// Version of the product.
    pub version: String,
    /// Lowest severity of events that are logged, as reported by `CONFIG GET loglevel`.
    pub log_level: LogLevel,
    /// Called by `CONFIG SET loglevel`; without it, that command is refused.
    pub log_level_setter: Option<LogLevelSetter>,
    /// Called by an event loop, once, when commands are executed: from then on no client is told
    /// that the store is being opened.
    pub on_ready: Option<fn()>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            unix_socket: None,
            unix_socket_mode: None,
            metrics_listen: Vec::new(),
            threads: 0,
            requirepass: None,
            protected_mode: true,
            durability: Durability::Durable,
            periodic_ms: 1000,
            maxclients: 10_000,
            handshake_timeout: Duration::from_secs(10),
            served_first_max: Duration::from_millis(2),
            tcp_keepalive_s: 300,
            stall_timeout: Duration::from_secs(60),
            output_bytes_max: 1024 * 1024,
            shutdown_timeout: Duration::from_secs(10),
            dir: String::new(),
            config_file: String::new(),
            config_rewriter: None,
            parameters: Vec::new(),
            debug_commands: DebugCommands::No,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            log_level: LogLevel::default(),
            log_level_setter: None,
            on_ready: None,
        }
    }
}
