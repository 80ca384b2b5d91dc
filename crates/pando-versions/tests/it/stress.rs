//! Commits, snapshots, scans and dropped generations at the same time.

use std::ops::Bound;

use pando_format::{Lsn, PageSize, TreeId};
use pando_stats::Statistics;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, Gate, Mutex, Rank, thread};
use pando_versions::{
    BeforeImage, Found, Registration, Snapshots, VersionRange, VersionScratch, Versions,
};

const TREE: TreeId = TreeId(16);
/// Keys of one writer: each of its batches writes two of them.
const KEYS: usize = 16;

/// The log: LSNs, and those that are appended and not applied.
#[derive(Default)]
struct Order {
    end: u64,
    applying: Vec<u64>,
}

/// A store whose leaves have one key each: the value is the LSN of the batch that wrote it.
struct Store {
    versions: Versions,
    snapshots: Snapshots,
    gate: Gate,
    order: Mutex<Order>,
    leaves: Vec<AtomicU64>,
    is_done: AtomicBool,
    reads: AtomicU64,
    ended: AtomicU64,
}

impl Store {
    fn new(writers: usize) -> Self {
        let page_size = PageSize::new(4096).expect("a page size");
        let versions = Versions::new(page_size, 512 << 10, Arc::new(Statistics::new()));
        let order = Order {
            end: 8,
            ..Order::default()
        };
        Self {
            versions: versions.expect("memory"),
            snapshots: Snapshots::new(),
            gate: Gate::new(),
            order: Mutex::new(Rank::Leaf, order),
            leaves: (0..writers * KEYS).map(|_| AtomicU64::new(8)).collect(),
            is_done: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    fn end(&self) -> Lsn {
        Lsn(self.order.lock().end)
    }

    /// Two writes of one batch. Nobody else writes these keys.
    fn commit(&self, keys: [usize; 2], scratch: &mut VersionScratch) -> bool {
        let frames = self.versions.frames_for(2, 100);
        let room = self.versions.try_reserve(frames);
        let Some(guard) = self.gate.try_enter() else {
            return false;
        };
        let is_on = self.snapshots.is_on();
        if is_on && room.is_none() {
            return false;
        }
        let lsn = {
            let mut order = self.order.lock();
            order.end += 8;
            let lsn = order.end;
            order.applying.push(lsn);
            lsn
        };
        if is_on {
            let readers = self.snapshots.look(Lsn(lsn));
            if !readers.is_empty() {
                for (number, key) in keys.into_iter().enumerate() {
                    let old = self.leaves[key].load(Ordering::Relaxed).to_le_bytes();
                    let name = key.to_be_bytes();
                    let number = u32::try_from(number).expect("two");
                    let image = BeforeImage::Bytes(&old);
                    let saved = self
                        .versions
                        .save(&readers, (TREE, &name), number, image, scratch);
                    saved.expect("room was reserved");
                }
            }
        }
        for key in keys {
            self.leaves[key].store(lsn, Ordering::Release);
        }
        self.order.lock().applying.retain(|other| *other != lsn);
        drop(guard);
        true
    }

    fn begin(&self) -> Registration {
        let beginning = self.snapshots.begin(self.end());
        if !self.snapshots.is_on() {
            let closed = self.gate.close();
            if !self.snapshots.is_on() {
                assert!(self.versions.open_generation(&closed));
                self.snapshots.turn_on(&closed);
            }
        }
        let snapshot = beginning.at(self.end());
        let is_applied = || {
            let order = self.order.lock();
            order.applying.iter().all(|lsn| *lsn > snapshot.lsn().0)
        };
        while !is_applied() {
            thread::yield_now();
        }
        snapshot
    }

    fn number(image: BeforeImage<'_>) -> u64 {
        let BeforeImage::Bytes(bytes) = image else {
            panic!("{image:?}");
        };
        u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
    }

    /// Reads both keys of a writer that each of its batches writes, one by one and as a range.
    fn read(&self, keys: [usize; 2], scratch: &mut VersionScratch, range: &mut VersionRange) {
        let snapshot = self.begin();
        let lsn = snapshot.lsn();
        let mut values = [0; 4];
        for (value, key) in values.iter_mut().zip(keys) {
            *value = self.leaves[key].load(Ordering::Acquire);
            if *value > lsn.0 {
                let name = key.to_be_bytes();
                match self.versions.find((TREE, &name), lsn, scratch) {
                    Ok(Found::Replaced(image)) => *value = Self::number(image),
                    found => assert!(snapshot.is_ended(), "{found:?} at {lsn}"),
                }
            }
        }
        for (value, key) in values[2..].iter_mut().zip(keys) {
            *value = self.leaves[key].load(Ordering::Acquire);
        }
        let (low, high) = (keys[0].to_be_bytes(), keys[1].to_be_bytes());
        let bounds = (Bound::Included(&low[..]), Bound::Included(&high[..]));
        let collected = self.versions.collect(TREE, bounds, lsn, range, scratch);
        if collected.is_ok() {
            for (key, image) in range.iter() {
                for (place, own) in [(2, low), (3, high)] {
                    if key == own {
                        values[place] = Self::number(image);
                    }
                }
            }
        }
        if snapshot.is_ended() {
            self.ended.fetch_add(1, Ordering::Relaxed);
            return;
        }
        collected.expect("nothing was dropped");
        assert!(values[0] <= lsn.0, "{values:?} at {lsn}");
        assert_eq!(values, [values[0]; 4], "a batch in part, at {lsn}");
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// What the engine's maintenance thread does.
    fn maintain(&self) {
        let mut turn = 0;
        while !self.is_done.load(Ordering::Relaxed) {
            turn += 1;
            if self.versions.wants_generation() {
                self.versions.open_generation(&self.gate.close());
            }
            let horizon = self.snapshots.horizon(|| self.end());
            self.versions.drop_unneeded(horizon);
            if self.versions.used() * 2 > self.versions.frames() {
                self.snapshots.end_oldest();
            }
            if turn % 16 == 0 {
                let closed = self.gate.close();
                if self.snapshots.is_on() && self.snapshots.turn_off(&closed) {
                    let horizon = self.snapshots.horizon(|| self.end());
                    let hidden = self.versions.hide_unneeded(horizon, &closed);
                    drop(closed);
                    self.versions.free(&hidden);
                }
            }
            thread::yield_now();
        }
    }
}

fn run(writers: usize, readers: usize, reads: u64) {
    let store = Store::new(writers);
    thread::scope(|scope| {
        let store = &store;
        for writer in 0..writers {
            scope.spawn(move || {
                let mut scratch = VersionScratch::default();
                let mut turn = 0;
                while !store.is_done.load(Ordering::Relaxed) {
                    let pair = writer * KEYS + turn % (KEYS / 2) * 2;
                    match store.commit([pair, pair + 1], &mut scratch) {
                        true => turn += 1,
                        false => thread::yield_now(),
                    }
                }
            });
        }
        scope.spawn(|| store.maintain());
        for reader in 0..readers {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(reader as u64);
                let mut scratch = VersionScratch::default();
                let mut range = VersionRange::default();
                // Keeps versions alive across generations.
                let mut old = Vec::new();
                while store.reads.load(Ordering::Relaxed) < reads {
                    let pair = random.usize(..writers * KEYS / 2) * 2;
                    store.read([pair, pair + 1], &mut scratch, &mut range);
                    if random.u32(..20) == 0 {
                        old.push(store.begin());
                    }
                    if old.len() > 10 {
                        old.clear();
                    }
                }
                store.is_done.store(true, Ordering::Relaxed);
            });
        }
    });
    assert!(store.snapshots.is_empty());
    let closed = store.gate.close();
    assert!(store.snapshots.turn_off(&closed));
    store
        .versions
        .free(&store.versions.hide_unneeded(store.end(), &closed));
    assert_eq!(store.versions.used(), 0, "a frame was lost");
    assert_eq!(store.versions.reserved(), 0);
}

#[test]
fn snapshots_beside_commits_see_whole_batches_of_their_lsn() {
    run(2, 2, 20_000);
}

/// More threads than processors by far: everybody is interrupted everywhere.
#[test]
fn crowds_of_snapshots_and_commits_see_whole_batches() {
    run(40, 24, 5_000);
}
