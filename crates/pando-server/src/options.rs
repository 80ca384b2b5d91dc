//! What a server is started with.

use std::net::SocketAddr;
use std::time::Duration;

use crate::log::{LogLevel, LogLevelSetter};

/// What a reply to a write reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The write is on disk before its reply is sent.
    #[default]
    Durable,
    /// The log is flushed at intervals; a crash may lose the last one.
    Periodic,
    /// Whatever a crash leaves.
    None,
}

impl Durability {
    /// Its name in options and in INFO.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Periodic => "periodic",
            Self::None => "none",
        }
    }

    /// The same, of commits of the engine.
    pub fn of_engine(self) -> pandodb::Durability {
        match self {
            Self::Durable => pandodb::Durability::Durable,
            Self::Periodic => pandodb::Durability::Periodic,
            Self::None => pandodb::Durability::None,
        }
    }

    /// The level of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Durable, Self::Periodic, Self::None]
            .into_iter()
            .find(|level| level.name().eq_ignore_ascii_case(name))
    }
}

/// Options of a server; what can be changed at run time is a starting value.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// Where to serve metrics and probes over HTTP; nowhere by default. Asks for no password.
    pub metrics_listen: Vec<SocketAddr>,
    /// Event loops; 0 is one per core.
    pub threads: usize,
    /// Password that clients must give; none asks for none.
    pub requirepass: Option<String>,
    /// Without a password, refuses clients that are not on this machine.
    pub protected_mode: bool,
    /// What a reply to a write reservations.
    pub durability: Durability,
    /// Interval of [`Durability::Periodic`]; the engine keeps it, the server only reports it.
    pub periodic_ms: u64,
    /// Most connections at a time.
    pub maxclients: usize,
    /// Time a client has to authenticate.
    pub handshake_timeout: Duration,
    /// Seconds of silence after which the system asks a peer whether it is there; 0 is never.
    pub tcp_keepalive_s: u64,
    /// Time after which a connection ends whose peer takes nothing of a reply, or sends nothing
    /// more of a command that has begun; zero is never.
    pub stall_timeout: Duration,
    /// Unsent bytes of replies at which a connection's commands stop being executed.
    pub output_bytes_max: usize,
    /// Time that running commands and unsent replies have when the server stops.
    pub shutdown_timeout: Duration,
    /// Directory of the store, for `CONFIG GET dir`.
    pub dir: String,
    /// Configuration file, for INFO.
    pub config_file: String,
    /// Version of the product.
    pub version: String,
    /// From which importance on events are written, for `CONFIG GET loglevel`.
    pub log_level: LogLevel,
    /// Whom `CONFIG SET loglevel` tells; without one it is refused.
    pub log_level_setter: Option<LogLevelSetter>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 6379))],
            metrics_listen: Vec::new(),
            threads: 0,
            requirepass: None,
            protected_mode: true,
            durability: Durability::Durable,
            periodic_ms: 1000,
            maxclients: 10_000,
            handshake_timeout: Duration::from_secs(10),
            tcp_keepalive_s: 300,
            stall_timeout: Duration::from_secs(60),
            output_bytes_max: 1024 * 1024,
            shutdown_timeout: Duration::from_secs(10),
            dir: String::new(),
            config_file: String::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            log_level: LogLevel::default(),
            log_level_setter: None,
        }
    }
}
