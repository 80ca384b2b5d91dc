//! Options of a run of `bench resp`.

use std::path::PathBuf;

use pando_sync::time::Duration;
use pandodb::{Durability, IoBackend};

use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::options::KeyKind;

/// A workload of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RespWorkload {
    /// GET of random keys.
    Get,
    /// SET of random keys.
    Set,
    /// MGET of several random keys.
    Mget,
    /// INCR of random counters.
    Incr,
    /// Nine GETs per SET.
    Mixed,
}

impl RespWorkload {
    /// All workloads.
    pub const ALL: [Self; 5] = [Self::Get, Self::Set, Self::Mget, Self::Incr, Self::Mixed];

    /// Returns its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Mget => "mget",
            Self::Incr => "incr",
            Self::Mixed => "mixed",
        }
    }

    /// Returns the workload with this name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|one| one.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::option(
                "workloads",
                format!("'{name}' is no workload; there are {names}"),
            )
        })
    }

    /// Returns true if it reads keys that should exist.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Get | Self::Mget | Self::Mixed)
    }
}

/// Options of `bench resp`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct RespOptions {
    /// Workloads to run, in this order.
    pub workloads: Vec<RespWorkload>,
    /// Host of a running server; `None`: start one.
    pub host: Option<String>,
    /// Port of the running server.
    pub port: u16,
    /// Number of connections.
    pub clients: usize,
    /// Commands that a connection keeps in flight.
    pub pipeline: usize,
    /// Threads of the client.
    pub threads: usize,
    /// Number of keys; also the number of operations, unless a duration is given.
    pub num: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Keys of an MGET.
    pub batch: u64,
    /// Length of each workload.
    pub duration: Option<Duration>,
    /// Unmeasured time before a workload.
    pub warmup: Duration,
    /// Length of the steps of the series over time.
    pub interval: Option<Duration>,
    /// Keys per second of an open loop; `None`: each connection continues once it has its answers.
    pub rate: Option<f64>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Uses the keys that exist; else all are written first, untimed.
    pub use_existing_db: bool,
    /// Directory of its own server's store; `None`: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Memory budget of its own server.
    pub max_memory: u64,
    /// What replies of its own server promise.
    pub durability: Durability,
    /// Event loops of its own server; `None`: one per core.
    pub server_threads: Option<usize>,
    /// The I/O back end of its own server.
    pub io_backend: IoBackend,
    /// Maximum number of reads in flight per event loop of its own server.
    pub queue_depth: Option<usize>,
    /// Threads of the back end, if it uses threads.
    pub completion_threads: Option<usize>,
    /// Bytes of a page of its own server.
    pub page_bytes: Option<usize>,
}

impl Default for RespOptions {
    fn default() -> Self {
        Self {
            workloads: vec![RespWorkload::Set, RespWorkload::Get],
            host: None,
            port: 6379,
            clients: 50,
            pipeline: 1,
            threads: 1,
            num: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            batch: 16,
            duration: None,
            warmup: Duration::ZERO,
            interval: None,
            rate: None,
            seed: 1,
            use_existing_db: false,
            dir: None,
            max_memory: 1 << 30,
            durability: Durability::None,
            server_threads: None,
            io_backend: IoBackend::Auto,
            queue_depth: None,
            completion_threads: None,
            page_bytes: None,
        }
    }
}

impl RespOptions {
    pub(super) fn keys(&self) -> Keys {
        Keys::new(KeyKind::Decimal, self.key_bytes, self.seed)
    }

    pub(super) fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool, what: &str| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, what)),
        };
        let one = "at least 1 is needed";
        needed("workloads", !self.workloads.is_empty(), one)?;
        needed("num", self.num > 0, one)?;
        needed("batch", self.batch > 0, one)?;
        needed("pipeline", self.pipeline > 0, one)?;
        needed("threads", self.threads > 0, one)?;
        needed(
            "clients",
            self.clients >= self.threads,
            "at least one for each thread is needed",
        )?;
        needed(
            "rate",
            self.rate.is_none_or(|rate| rate > 0.0),
            "a number above 0 is needed",
        )?;
        needed(
            "dir",
            self.host.is_none() || self.dir.is_none(),
            "belongs to a server of its own, --host to one that runs: give one of both",
        )?;
        match self.keys().check(self.num) {
            Some(what) => Err(Error::option("key-size", what)),
            None => Ok(()),
        }
    }
}
