//! The server that is measured: a running one, or one of its own in this process.

use std::net::{SocketAddr, ToSocketAddrs};

use pando_server::{Handle, Server, ServerOptions};
use pando_sync::thread::{self, JoinHandle};
use pando_sync::time::{self, Duration};
use pandodb::{Db, Durability, IoBackend};
use tempfile::TempDir;

use super::control::Control;
use super::options::RespOptions;
use crate::error::{Error, Result};
use crate::place::temporary;
use crate::store::check_directory;

/// Maximum time to wait for recovery.
const READY_WAIT: Duration = Duration::from_secs(60);
const READY_STEP: Duration = Duration::from_millis(5);

/// A server, and how to reach it.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    own: Option<Own>,
}

/// A server in this process.
struct Own {
    handle: Handle,
    thread: Option<JoinHandle<std::result::Result<(), pando_server::Error>>>,
    _directory: Option<TempDir>,
}

impl Target {
    /// Opens the server that `options` name, and waits until it is ready for commands.
    pub(super) fn open(options: &RespOptions) -> Result<Self> {
        let mut target = match &options.host {
            Some(host) => Self {
                address: resolve(host, options.port)?,
                own: None,
            },
            None => Self::start(options)?,
        };
        target.wait_until_ready()?;
        Ok(target)
    }

    /// Returns true if client and server are in one process.
    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    fn start(options: &RespOptions) -> Result<Self> {
        let builder = builder(options);
        let (path, directory) = match &options.dir {
            _ if options.io_backend == IoBackend::Memory => (None, None),
            Some(path) => {
                check_directory(path, options.use_existing_db)?;
                (Some(path.clone()), None)
            }
            None => {
                let directory = temporary()?;
                (Some(directory.path().to_owned()), Some(directory))
            }
        };
        let server = Server::bind(ServerOptions {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            threads: options.server_threads.unwrap_or(0),
            durability: durability(options.durability),
            ..ServerOptions::default()
        })
        .map_err(Error::Server)?;
        let (address, handle) = (server.addresses()[0], server.handle());
        let serve = move || {
            server.serve(move || match path {
                Some(path) => builder.open(path),
                None => builder.open_in_memory(),
            })
        };
        let spawned = thread::Builder::new()
            .name("pando-serve".to_owned())
            .spawn(serve);
        let thread = spawned.map_err(|source| Error::Io {
            during: "starting a thread".to_owned(),
            source,
        })?;
        Ok(Self {
            address,
            own: Some(Own {
                handle,
                thread: Some(thread),
                _directory: directory,
            }),
        })
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let end = time::now() + READY_WAIT;
        loop {
            if let Some(own) = &mut self.own
                && own.thread.as_ref().is_some_and(JoinHandle::is_finished)
            {
                own.join()?;
            }
            let ready = Control::new(self.address).and_then(|mut control| control.is_ready());
            let late = time::now() >= end;
            match ready {
                Ok(true) => return Ok(()),
                // A server of its own that goes down reports the reason in a moment.
                Err(error) if late || self.own.is_none() => return Err(error),
                Ok(false) if late => {
                    return Err(Error::option("host", "the server is still loading"));
                }
                Ok(false) | Err(_) => thread::sleep(READY_STEP),
            }
        }
    }

    /// Stops the server if it is its own.
    pub(super) fn close(mut self) -> Result<()> {
        match &mut self.own {
            None => Ok(()),
            Some(own) => {
                own.handle.shutdown();
                own.join()
            }
        }
    }
}

impl Own {
    fn join(&mut self) -> Result<()> {
        match self.thread.take() {
            None => Ok(()),
            Some(thread) => {
                let served = thread.join().expect("the server's thread panicked");
                served.map_err(Error::Server)
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.handle.shutdown();
        // If it is dropped early, the caller has an error already.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |what: String| Error::option("host", what);
    let mut addresses = (host, port)
        .to_socket_addrs()
        .map_err(|error| unknown(format!("'{host}': {error}")))?;
    addresses
        .next()
        .ok_or_else(|| unknown(format!("'{host}' has no address")))
}

fn durability(level: Durability) -> pando_server::Durability {
    match level {
        Durability::Durable => pando_server::Durability::Durable,
        Durability::Periodic => pando_server::Durability::Periodic,
        Durability::None => pando_server::Durability::None,
    }
}

fn builder(options: &RespOptions) -> pandodb::Builder {
    let mut builder = Db::builder()
        .max_memory(options.max_memory)
        .durability(options.durability)
        .io_backend(options.io_backend);
    if let Some(reads) = options.queue_depth {
        builder = builder.queue_depth(reads);
    }
    if let Some(threads) = options.completion_threads {
        builder = builder.completion_threads(threads);
    }
    if let Some(bytes) = options.page_bytes {
        builder = builder.page_size(bytes);
    }
    builder
}
