//! Pipelined GETs allocate nothing after their first batch. A counting allocator checks that.

#![expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use pando_server::{Durability, Server, ServerOptions};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Mutex, Rank, thread};
use pandodb::Db;

/// Counts the allocations of event loops.
struct Counting {
    /// True while something is measured.
    counts: AtomicBool,
    count: AtomicU64,
}

thread_local! {
    /// Whether this thread is an event loop, or `None` if that is not known yet.
    static IS_LOOP: Cell<Option<bool>> = const { Cell::new(None) };
}

fn is_loop() -> bool {
    IS_LOOP.get().unwrap_or_else(|| {
        // While that is found out, which may allocate, the thread counts as none.
        IS_LOOP.set(Some(false));
        let current = thread::current();
        let is_loop = current
            .name()
            .is_some_and(|name| name.starts_with("pando-loop"));
        IS_LOOP.set(Some(is_loop));
        is_loop
    })
}

// SAFETY: all calls go to the system's allocator. The count is an atomic word.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.counts.load(Ordering::Relaxed) && is_loop() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting {
    counts: AtomicBool::new(false),
    count: AtomicU64::new(0),
};

/// Number of GETs in a measurement.
const GETS: usize = 100_000;
/// Number of commands in a pipeline.
const BATCH: usize = 125;
/// Number of bytes of a value.
const VALUE: usize = 900;
/// Number of keys of a store.
const KEYS: usize = 5_000;

struct Client {
    stream: TcpStream,
    replies: Vec<u8>,
}

impl Client {
    fn call(&mut self, request: &[u8], reply_bytes: usize) {
        self.stream.write_all(request).unwrap();
        self.replies.resize(reply_bytes, 0);
        self.stream.read_exact(&mut self.replies).unwrap();
    }
}

fn key_of(number: usize) -> String {
    format!("key:{number:08}")
}

fn fill(client: &mut Client) {
    let value = "v".repeat(VALUE);
    for first in (0..KEYS).step_by(BATCH) {
        let mut request = String::new();
        for number in first..first + BATCH {
            let key = key_of(number);
            let (keys, values) = (key.len(), value.len());
            let parts = format!("*3\r\n$3\r\nSET\r\n${keys}\r\n{key}\r\n${values}\r\n{value}\r\n");
            request.push_str(&parts);
        }
        client.call(request.as_bytes(), 5 * BATCH);
        assert!(client.replies.chunks(5).all(|reply| reply == b"+OK\r\n"));
    }
}

/// Returns one request for each pipeline of a walk over all keys. Successive keys lie in different
/// leaves.
fn requests() -> Vec<Vec<u8>> {
    let key = |at: usize| key_of((at * 7) % KEYS);
    let request = |first: usize| {
        let mut request = String::new();
        for key in (first..first + BATCH).map(key) {
            write!(request, "*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).unwrap();
        }
        request.into_bytes()
    };
    (0..KEYS).step_by(BATCH).map(request).collect()
}

/// Returns the number of page reads and of allocations while `GETS` keys are read.
fn measure(frames: usize, warm_batches: usize) -> (u64, u64) {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.unwrap();
    let server = Server::bind(ServerOptions {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        threads: 1,
        durability: Durability::None,
        ..ServerOptions::default()
    });
    let server = server.unwrap();
    let (address, handle) = (server.addresses()[0], server.handle());
    let opened: Mutex<Option<Db>> = Mutex::new(Rank::Caller, None);
    let path = directory.path();
    let mut counted = (0, 0);
    thread::scope(|scope| {
        let opened = &opened;
        let store = Db::builder().max_memory(64 << 20).frames(frames).open(path);
        let store = store.unwrap();
        *opened.lock() = Some(store.clone());
        let serving = scope.spawn(move || server.serve(move || Ok(store)));
        while !handle.is_serving() {
            thread::yield_now();
        }
        let mut client = Client {
            stream: TcpStream::connect(address).unwrap(),
            replies: Vec::with_capacity(1 << 20),
        };
        // On a busy machine any command may be slow, and an entry of the slow log needs memory.
        client.call(b"CONFIG SET slowlog-log-slower-than -1\r\n", 5);
        fill(&mut client);
        let store = opened.lock().take().unwrap();
        store.checkpoint().unwrap();
        let requests = requests();
        let reply_bytes = BATCH * (VALUE + "$900\r\n\r\n".len());
        let mut run = |from: usize, batches: usize| {
            for at in from..from + batches {
                client.call(&requests[at % requests.len()], reply_bytes);
                assert!(client.replies.starts_with(b"$900\r\nvvv"));
            }
        };
        ALLOCATOR.counts.store(true, Ordering::Relaxed);
        run(0, warm_batches);
        let reads = store.statistics().get(Ticker::PageReads);
        let before = ALLOCATOR.count.load(Ordering::Relaxed);
        assert!(before > 0, "the allocator does not count");
        run(warm_batches, GETS / BATCH);
        ALLOCATOR.counts.store(false, Ordering::Relaxed);
        let allocations = ALLOCATOR.count.load(Ordering::Relaxed) - before;
        let reads = store.statistics().get(Ticker::PageReads) - reads;
        counted = (reads, allocations);
        handle.shutdown();
        serving.join().unwrap().unwrap();
    });
    counted
}

pub(super) fn pipelined_gets_allocate_nothing() {
    let (reads, allocations) = measure(8_000, 1);
    assert_eq!(reads, 0, "all pages are cached");
    assert_eq!(allocations, 0, "cached");
    // In one walk over the keys, all lists of waiting commands reach their final size.
    let (reads, allocations) = measure(256, 2 * KEYS / BATCH);
    assert!(reads > GETS as u64 / 4, "{reads} reads");
    assert_eq!(allocations, 0, "from disk");
}
