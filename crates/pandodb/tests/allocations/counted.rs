//! Reads allocate neither memory nor disk space. A counting allocator checks that.

#![expect(unsafe_code, reason = "a global allocator is unsafe to implement")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

use pando_stats::Ticker;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{park, thread_waker};
use pandodb::{Batch, Db, Durability, Error, IoBackend, Table, WriteOptions};

pub(super) struct Counting {
    count: AtomicU64,
    bytes_taken: AtomicU64,
    bytes_given_back: AtomicU64,
}

impl Counting {
    /// Returns the number of bytes that are allocated now.
    pub(super) fn bytes(&self) -> u64 {
        // The bytes given back are read first, so that they never exceed the bytes taken.
        let given_back = self.bytes_given_back.load(Ordering::SeqCst);
        self.bytes_taken.load(Ordering::SeqCst) - given_back
    }
}

// SAFETY: all calls go to the system's allocator. The counts are atomic words.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes_taken
            .fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        self.bytes_given_back
            .fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract, and the arguments are passed on unchanged.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
pub(super) static ALLOCATOR: Counting = Counting {
    count: AtomicU64::new(0),
    bytes_taken: AtomicU64::new(0),
    bytes_given_back: AtomicU64::new(0),
};

/// Number of gets in a measurement.
const GETS: u32 = 100_000;
/// Number of keys. Each leaf holds three of them, and the pool has room for few leaves.
const KEYS: u32 = 6_000;
/// Distance between the keys of two successive gets, so that they never meet the same leaf.
const STRIDE: u32 = 7;
/// Number of gets before counting begins. By then queues and buffers have reached their size.
const WARM: u32 = 2 * KEYS;

/// How a measurement chooses its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cached,
    FromDisk,
}

/// Returns a key. Every other key is too long to be stored in a future.
fn key_of(number: u32) -> Vec<u8> {
    // The number comes first, so that separators are short and inner nodes stay in memory.
    let mut key = number.to_be_bytes().to_vec();
    key.resize(if number.is_multiple_of(2) { 16 } else { 100 }, b'k');
    key
}

fn value_of(number: u32) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    value.resize(1000, 7);
    value
}

/// Returns the number that `value` was made of.
fn check(value: &[u8]) -> u32 {
    assert_eq!(value.len(), 1000);
    u32::from_le_bytes(value[..4].try_into().unwrap())
}

struct Store {
    db: Db,
    table: Table,
    keys: Vec<Vec<u8>>,
    _place: Option<tempfile::TempDir>,
}

/// Returns a filled store on `backend`, or `None` if the system does not offer it. No other backend
/// is used instead.
fn filled(backend: IoBackend, frames: usize) -> Option<Store> {
    let options = || {
        Db::builder()
            .give_back_after(None)
            .max_memory(64 << 20)
            .frames(frames)
            .queue_depth(16)
            .io_backend(backend)
    };
    let (db, place) = match backend {
        IoBackend::Memory => (options().open_in_memory().unwrap(), None),
        _ => {
            // Files lie in memory if possible, since the speed of the disk is not measured.
            let places = [tempfile::tempdir_in("/dev/shm"), tempfile::tempdir()];
            let opened = places.into_iter().flatten().find_map(|place| {
                let opened = options().open(place.path());
                match opened {
                    Ok(db) => Some((db, Some(place))),
                    Err(Error::InvalidOption { what, .. }) => {
                        eprintln!("SKIPPED: {what}");
                        None
                    }
                    Err(error) => panic!("{error}"),
                }
            });
            opened?
        }
    };
    let table = db.table("t").unwrap();
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key_of).collect();
    let mut batch = Batch::new();
    for numbers in (0..KEYS).collect::<Vec<_>>().chunks(50) {
        batch.clear();
        for number in numbers {
            batch.put(&table, &keys[*number as usize], &value_of(*number));
        }
        let none = WriteOptions::durability(Durability::None);
        db.write(&mut batch, none).unwrap();
    }
    db.checkpoint().unwrap();
    Some(Store {
        db,
        table,
        keys,
        _place: place,
    })
}

impl Store {
    /// Returns the number of the key of get `turn`.
    fn number(turn: u32) -> u32 {
        (turn * STRIDE) % KEYS
    }

    /// Counts the allocations of `GETS` gets. `gets` performs the gets of a range of turns.
    fn count(&self, kind: Kind, what: &str, mut gets: impl FnMut(u32, u32)) {
        gets(0, WARM);
        let faults = self.db.statistics().get(Ticker::PageReads);
        let before = ALLOCATOR.count.load(Ordering::Relaxed);
        gets(WARM, WARM + GETS);
        let allocations = ALLOCATOR.count.load(Ordering::Relaxed) - before;
        let faults = self.db.statistics().get(Ticker::PageReads) - faults;
        match kind {
            Kind::Cached => assert_eq!(faults, 0, "{what}: not cached"),
            Kind::FromDisk => assert!(faults >= u64::from(GETS), "{what}: {faults} reads"),
        }
        assert_eq!(
            allocations,
            0,
            "{what}: {kind:?}, {:?}",
            self.db.report().io_backend
        );
    }

    fn blocking(&self, kind: Kind) {
        self.count(kind, "get_with", |from, to| {
            for number in (from..to).map(Self::number) {
                let found = self.table.get_with(&self.keys[number as usize], check);
                assert_eq!(found.unwrap(), Some(number));
            }
        });
        let mut out = Vec::with_capacity(1000);
        self.count(kind, "get_into", |from, to| {
            for number in (from..to).map(Self::number) {
                let key = &self.keys[number as usize];
                assert!(self.table.get_into(key, &mut out).unwrap());
                assert_eq!(check(&out), number);
            }
        });
    }

    fn futures(&self, kind: Kind) {
        self.count(kind, "get_with_async", |from, to| {
            for number in (from..to).map(Self::number) {
                let future = self
                    .table
                    .get_with_async(&self.keys[number as usize], check);
                assert_eq!(block_on(future).unwrap(), Some(number));
            }
        });
        let mut out = Vec::with_capacity(1000);
        self.count(kind, "get_into_async", |from, to| {
            for number in (from..to).map(Self::number) {
                let key = &self.keys[number as usize];
                assert!(block_on(self.table.get_into_async(key, &mut out)).unwrap());
                assert_eq!(check(&out), number);
            }
        });
    }

    fn many(&self, kind: Kind) {
        let mut keys: Vec<&[u8]> = Vec::with_capacity(128);
        self.count(kind, "get_many_with", |from, to| {
            for first in (from..to).step_by(125) {
                keys.clear();
                let numbers = (first..first + 125).map(Self::number);
                keys.extend(numbers.map(|number| &self.keys[number as usize][..]));
                let mut seen = 0;
                let each = |at: usize, value: Option<&[u8]>| {
                    assert_eq!(check(value.unwrap()), Self::number(first + at as u32));
                    seen += 1;
                };
                self.table.get_many_with(&keys, each).unwrap();
                assert_eq!(seen, 125);
            }
        });
    }
}

/// Runs one future to its end: the simplest executor.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = thread_waker();
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => park(),
        }
    }
}

pub(super) fn gets_allocate_nothing() {
    assert!(ALLOCATOR.count.load(Ordering::Relaxed) > 0);
    for (backend, kind, frames) in [
        (IoBackend::Memory, Kind::Cached, 4000),
        (IoBackend::Memory, Kind::FromDisk, 256),
        (IoBackend::Pread, Kind::FromDisk, 256),
        (IoBackend::LibaioOnly, Kind::FromDisk, 256),
        (IoBackend::UringOnly, Kind::FromDisk, 256),
    ] {
        let Some(store) = filled(backend, frames) else {
            continue;
        };
        store.blocking(kind);
        store.many(kind);
        store.futures(kind);
    }
}
