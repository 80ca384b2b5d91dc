//! A running server that stops when the test ends.

use std::net::SocketAddr;
use std::path::Path;

use pando_server::{Error, Handle, Server, ServerOptions, check_rows};
use pando_sync::thread::{self, JoinHandle};
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Mutex, Rank};
use pandodb::{Db, TableOptions};

use crate::client::Client;

/// Bytes of memory of a test's store.
const MEMORY: u64 = 32 << 20;
/// Number of frames of a store whose data do not fit.
const FRAMES: usize = 160;

/// Opens a store in memory, which is fast and flushes at no cost.
pub(crate) fn open(_: &Path) -> pandodb::Result<Db> {
    Db::builder().max_memory(MEMORY).open_in_memory()
}

/// Opens a store in memory whose tables of elements are those of earlier programs: lists do not lie
/// in blocks.
pub(crate) fn open_counted(_: &Path) -> pandodb::Result<Db> {
    let db = Db::builder().max_memory(MEMORY).open_in_memory()?;
    db.table_with("db/0/members", TableOptions::new().counted(true))?;
    Ok(db)
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

/// Checks that servers of a store remove all of its rows that nothing leads to, of which `rows`
/// returns the number while none has it open.
pub(crate) fn all_is_given_back(server: impl Fn() -> Fixture, rows: impl Fn() -> u64) {
    let began = now();
    while rows() > 0 && began.elapsed() < Duration::from_secs(20) {
        let server = server();
        let _ready = server.client();
        thread::sleep(Duration::from_millis(1200));
    }
    assert_eq!(rows(), 0);
}

/// A server and the directory of its store.
pub(crate) struct Fixture {
    pub(crate) address: SocketAddr,
    /// The address of the HTTP endpoint, if the options ask for one.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) handle: Handle,
    thread: Option<JoinHandle<Result<(), Error>>>,
    /// The store, to be checked at the end.
    opened: Arc<Mutex<Option<Db>>>,
    is_damaged: bool,
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
        let opened = Arc::new(Mutex::new(Rank::Leaf, None));
        let db = opened.clone();
        let opener = move || {
            let opened = opener(&path)?;
            *db.lock() = Some(opened.clone());
            Ok(opened)
        };
        let thread = thread::spawn(move || server.serve(opener));
        Self {
            address,
            metrics,
            handle,
            thread: Some(thread),
            opened,
            is_damaged: false,
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

    /// The test has damaged the store: its rows are not checked at the end.
    pub(crate) fn is_damaged(&mut self) {
        self.is_damaged = true;
    }

    /// Waits for the end of a server that was told to stop.
    pub(crate) fn join(&mut self) -> Result<(), Error> {
        let joined = self.thread.take().unwrap().join().unwrap();
        // Outside of the lock: the last handle of a store waits for its threads.
        let db = self.opened.lock().take();
        drop(db);
        joined
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let db = self.opened.lock().take();
        // One that a test has broken cannot be read.
        let db = db.filter(|_| !self.is_damaged);
        let checked = db.and_then(|db| check_rows(&db).ok());
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            // A failed test has reported its cause already. Tests that check the result call
            // `join`.
            drop(thread.join());
        }
        if let Some(report) = checked.filter(|_| !thread::panicking()) {
            assert_eq!(report.descriptions, [""; 0], "{report:?}");
        }
    }
}
