//! A budget that changes while the store is open.
//!
//! Opening divides the budget. Most of it are the frames of the pool, and these are all that
//! changes later: with a smaller budget some of them are parked (`pando-pool`, `free_frames.rs`),
//! up to half. Pins and wired roots may take more than is left then: instead of waiting for ever,
//! whoever finds no frame that can be emptied takes parked ones (`pages/writeback.rs`).

use std::ops::RangeInclusive;

use pando_sync::atomic::Ordering;

use super::db::Db;
use crate::engine::Engine;
use crate::error::{Error, Result};

impl Engine {
    /// Bytes that a frame takes, with its header.
    fn frame_bytes(&self) -> u64 {
        self.store.pool.page_size().bytes() as u64 + 64
    }
}

impl Db {
    /// Returns the budgets that [`Db::set_max_memory`] takes: at most that of the opening, and all
    /// of that but half of the frames for pages at least.
    pub fn max_memory_range(&self) -> RangeInclusive<u64> {
        let engine = self.engine();
        let most = engine.options.max_memory;
        let half = engine.store.pool.frames() as u64 / 2 * engine.frame_bytes();
        most.saturating_sub(half)..=most
    }

    /// Changes the memory budget of the open store: fewer pages stay in memory, or more. Memory is
    /// given back as pages leave it, soon after this call. While all others are in use, more pages
    /// than the budget has room for may be in memory.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] if it is not in [`Db::max_memory_range`].
    pub fn set_max_memory(&self, bytes: u64) -> Result<()> {
        let range = self.max_memory_range();
        if !range.contains(&bytes) {
            let (least, most) = (range.start(), range.end());
            return Err(Error::InvalidOption {
                option: "max_memory",
                what: format!(
                    "{bytes} bytes: an open store takes {least} to {most}, which it was opened \
                     with; open it anew for others"
                ),
            });
        }
        let engine = self.engine();
        // SeqCst, here, for the load below and where the pool stores the number of frames: whoever
        // stores that number last loads the budget after this, and if it is not the one that the
        // number was made of, stores again. What the pool does besides is done again then, too.
        engine.max_memory.store(bytes, Ordering::SeqCst);
        loop {
            let bytes = engine.max_memory.load(Ordering::SeqCst);
            let parked = (range.end() - bytes) / engine.frame_bytes();
            let parked = usize::try_from(parked).unwrap_or(usize::MAX);
            engine.store.pool.park_frames(parked);
            if engine.max_memory.load(Ordering::SeqCst) == bytes {
                return Ok(());
            }
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::PageId;
    use pando_sync::atomic::AtomicBool;
    use pando_sync::thread;
    use pando_sync::time::{Duration, now};

    use super::*;
    use crate::{Durability, Table};

    /// Waits until the frames with pages are as many as the budget has room for.
    fn wait_for(db: &Db) -> u64 {
        let limit = now() + Duration::from_secs(20);
        loop {
            let frames = db.memory().frames;
            if frames.used_bytes <= frames.budget_bytes {
                return frames.used_bytes;
            }
            assert!(now() < limit, "{frames:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_smaller_budget_has_fewer_pages_in_memory_and_all_data() {
        let directory = tempfile::tempdir().unwrap();
        let most = 8 << 20;
        let db = Db::builder()
            .durability(Durability::None)
            .max_memory(most)
            .open(directory.path())
            .unwrap();
        let table = db.table("t").unwrap();
        let key = |number: u32| number.to_be_bytes();
        let value = [7; 1000];
        let put = |numbers: std::ops::Range<u32>| {
            numbers.for_each(|number| table.put(&key(number), &value).unwrap());
        };
        put(0..12_000);
        let full = db.memory().frames.budget_bytes;
        let range = db.max_memory_range();
        assert_eq!(*range.end(), most);
        for wrong in [0, range.start() - 1, most + 1, u64::MAX] {
            let error = db.set_max_memory(wrong).unwrap_err();
            assert!(matches!(error, Error::InvalidOption { .. }), "{error}");
        }
        for round in 0..3 {
            db.set_max_memory(*range.start()).unwrap();
            assert_eq!((db.memory().max_memory, db.report().max_memory), {
                (*range.start(), *range.start())
            });
            let less = wait_for(&db);
            assert!(less < full * 2 / 3, "{less} of {full}");
            put(round * 1000..round * 1000 + 3000);
            let found = |number: &u32| table.get(&key(*number)).unwrap() == Some(value.to_vec());
            assert!((0..12_000).all(|number| found(&number)));
            wait_for(&db);
            db.set_max_memory(most).unwrap();
            assert_eq!(db.memory().max_memory, most);
            assert!((0..12_000).all(|number| found(&number)));
            let more = db.memory().frames.used_bytes;
            assert!(more > less, "{more} after {less}");
        }
        drop((table, db));
        let db = Db::builder()
            .max_memory(most)
            .open(directory.path())
            .unwrap();
        assert_eq!(db.table("t").unwrap().len(), 12_000);
    }

    /// All frames of the budget hold pages that cannot leave: reads go on, with those beyond it.
    #[test]
    fn a_store_goes_on_when_its_budget_is_pinned() {
        const FRAMES: usize = 64;
        let directory = tempfile::tempdir().unwrap();
        let options = Db::builder().max_memory(8 << 20).frames(FRAMES);
        let options = options.durability(Durability::None);
        let db = options.open(directory.path()).unwrap();
        let table = db.table("t").unwrap();
        for number in 0..1000_u32 {
            table.put(&number.to_be_bytes(), &[7; 1000]).unwrap();
        }
        db.checkpoint().unwrap();
        db.set_max_memory(*db.max_memory_range().start()).unwrap();
        wait_for(&db);
        read_and_pin(&db, &table, 0..1000, || {
            let frames = db.memory().frames;
            assert!(frames.used_bytes > frames.budget_bytes);
        });
        wait_for(&db);
    }

    /// Reads keys again and again, each at least once, while it pins what was read, until three
    /// quarters of all frames are pinned: more than the budget leaves, so that parked frames were
    /// taken for them. Looks at the store, then lets go of all.
    fn read_and_pin(db: &Db, table: &Table, keys: std::ops::Range<u32>, look: impl FnOnce()) {
        let pool = &db.engine().store.pool;
        let parked = pool.parked_count();
        let most = pool.frames() * 3 / 4;
        let mut pins = Vec::new();
        let is_enough = AtomicBool::new(false);
        let limit = now() + Duration::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| {
                let read_all = || {
                    for key in keys.clone() {
                        let found = table.get(&key.to_be_bytes());
                        assert!(matches!(found, Ok(Some(_))), "{key}: {found:?}");
                        // Time for the other thread to pin what was read.
                        thread::sleep(Duration::from_millis(1));
                    }
                };
                read_all();
                while !is_enough.load(Ordering::SeqCst) && now() < limit {
                    read_all();
                }
            });
            while pins.len() < most && now() < limit {
                for page in 0..pool.page_ids().high_water() {
                    let is_new = pins.iter().all(|(of, _)| *of != page);
                    if is_new && let Ok(pin) = pool.pin(PageId(page), 0) {
                        pins.push((page, pin));
                    }
                }
            }
            is_enough.store(true, Ordering::SeqCst);
            assert!(pins.len() >= most, "{} of {most} were pinned", pins.len());
        });
        assert!(pool.parked_count() < parked, "some had to be taken");
        look();
    }

    /// A store with a smaller budget that a failed write has poisoned: reads that find all else
    /// pinned or dirty take parked frames, it tells its state, its budget changes, it closes, and
    /// it opens again with all that was acknowledged.
    #[test]
    fn a_poisoned_store_with_parked_frames_is_read_and_closed_and_opened_again() {
        const FRAMES: usize = 128;
        const KEYS: u32 = 600;
        let device = FaultyDevice::new(1);
        let open = || {
            let options = Db::builder().frames(FRAMES).max_memory(8 << 20);
            Db::open_device(options.page_size(4096), device.clone().into()).unwrap()
        };
        let db = open();
        let table = db.table("t").unwrap();
        for key in 0..KEYS {
            table.put(&key.to_be_bytes(), &[7; 1000]).unwrap();
        }
        db.checkpoint().unwrap();
        let (least, most) = db.max_memory_range().into_inner();
        db.set_max_memory(least).unwrap();
        let pool = &db.engine().store.pool;
        let is_parked = || pool.parked_count() >= FRAMES / 2 - 2;
        let limit = now() + Duration::from_secs(30);
        while !is_parked() {
            assert!(now() < limit, "{} are parked", pool.parked_count());
            thread::sleep(Duration::from_millis(1));
        }
        device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Io));
        for key in 0..9_u32 {
            assert!(table.delete(&key.to_be_bytes()).unwrap());
        }
        assert!(matches!(
            db.checkpoint(),
            Err(Error::Poisoned { .. } | Error::Io { .. })
        ));
        assert!(db.engine().store.life.is_poisoned());
        assert!(db.report().poisoned.is_some());
        assert!(is_parked(), "nobody needs them yet");
        read_and_pin(&db, &table, 9..KEYS, || ());
        let memory = db.memory();
        assert_eq!((memory.max_memory, db.report().max_memory), (least, least));
        for bytes in [most, least] {
            db.set_max_memory(bytes).unwrap();
            assert_eq!(db.memory().max_memory, bytes);
        }
        assert!(table.put(b"key", b"value").is_err(), "it takes no writes");
        drop(table);
        let closing = thread::spawn(move || db.close());
        while !closing.is_finished() {
            assert!(now() < limit + Duration::from_secs(30), "the close hangs");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(
            closing.join().unwrap().is_err(),
            "its checkpoint is missing"
        );
        device.clear_faults();
        let db = open();
        assert_eq!(db.memory().max_memory, most);
        let table = db.table("t").unwrap();
        assert_eq!(table.len(), u64::from(KEYS) - 9);
        for key in 9..KEYS {
            assert!(table.get(&key.to_be_bytes()).unwrap().is_some(), "{key}");
        }
        drop(table);
        db.close().unwrap();
    }
}
