//! A running server that stops when the test ends.

use std::net::SocketAddr;
use std::path::Path;

use pando_server::{Error, Handle, Server, ServerOptions};
use pando_sync::thread::{self, JoinHandle};
use pandodb::Db;

use crate::client::Client;

/// Bytes of memory of a test's store.
const MEMORY: u64 = 32 << 20;
/// Number of frames of a store whose data do not fit.
const FRAMES: usize = 160;

/// Opens a store in memory, which is fast and flushes at no cost.
pub(crate) fn open(_: &Path) -> pandodb::Result<Db> {
    Db::builder().max_memory(MEMORY).open_in_memory()
}

/// Opens a store in `directory`.
pub(crate) fn open_on_disk(directory: &Path) -> pandodb::Result<Db> {
    Db::builder().max_memory(MEMORY).open(directory)
}

/// Opens a store with so few frames that most reads need a page from disk.
pub(crate) fn open_small(directory: &Path) -> pandodb::Result<Db> {
    Db::builder()
        .max_memory(MEMORY)
        .frames(FRAMES)
        .open(directory)
}

/// A server and the directory of its store.
pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    /// The address of the HTTP endpoint, if the options ask for one.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<Result<(), Error>>>,
    _directory: tempfile::TempDir,
}

/// Returns options for tests: port 0 and two event loops.
pub(crate) fn options() -> ServerOptions {
    ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: 2,
        maxclients: 500,
        ..ServerOptions::default()
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(options())
    }

    pub(crate) fn with(options: ServerOptions) -> Self {
        Self::opened_by(options, open)
    }

    pub(crate) fn opened_by(
        options: ServerOptions,
        opener: impl FnOnce(&Path) -> pandodb::Result<Db> + Send + 'static,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::bind(options).unwrap();
        let (address, handle) = (server.addresses()[0], server.handle());
        let metrics = server.metrics_addresses().first().copied();
        let path = directory.path().to_owned();
        let thread = thread::spawn(move || server.serve(move || opener(&path)));
        Self {
            address,
            metrics,
            handle,
            thread: Some(thread),
            _directory: directory,
        }
    }

    /// Returns a client of a server that is ready, and waits for that.
    pub(crate) fn client(&self) -> Client {
        let client = self.raw_client();
        while !self.handle.is_serving() {
            thread::yield_now();
        }
        client
    }

    /// Returns a client, whether the server is ready or not.
    pub(crate) fn raw_client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Waits for the end of a server that was told to stop.
    pub(crate) fn join(&mut self) -> Result<(), Error> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            // A failed test has reported its cause already. Tests that check the result call
            // `join`.
            drop(thread.join());
        }
    }
}
