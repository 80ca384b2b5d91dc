//! Tests of read requests whose makers disappear, of errors for all waiters, and of closing with
//! reads in flight.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::task::{Wake, Waker};

use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pando_format::PageId;
use pando_pool::{LoadStart, LoadWait};
use pando_stats::Ticker;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, thread};

use crate::{Builder, Db, Durability, Error, Occupancy, WriteOptions};

/// A waker that counts its wakes and wakes the thread that made it.
struct Count(AtomicU64, Waker);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Release);
        self.1.wake_by_ref();
    }
}

impl Count {
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(0), pando_sync::thread_waker()))
    }

    fn wait_for(&self, count: u64) {
        while self.0.load(Ordering::Acquire) < count {
            pando_sync::park();
        }
    }
}

fn options() -> Builder {
    Db::builder().max_memory(16 << 20).frames(64)
}

fn fill(db: &Db) {
    let table = db.table("t").unwrap();
    let none = WriteOptions::durability(Durability::None);
    for number in 0..2000_u32 {
        let value = [number as u8; 900];
        table.put_with(&number.to_be_bytes(), &value, none).unwrap();
    }
    db.checkpoint().unwrap();
}

/// Returns the pages that are not in memory.
fn cold(db: &Db) -> Vec<PageId> {
    let pool = &db.engine().store.pool;
    (0..pool.page_ids().high_water())
        .map(PageId)
        .filter(|page| {
            let cold = pool.await_load(*page, Waker::noop()) == LoadWait::OnDisk;
            pool.end_load_wait(*page);
            cold
        })
        .collect()
}

fn rest(db: &Db) {
    while db.occupancy() != Occupancy::default() {
        thread::yield_now();
    }
}

#[test]
fn a_request_is_served_for_somebody_who_went_away() {
    let place = tempfile::tempdir().unwrap();
    let db = options().open(place.path()).unwrap();
    fill(&db);
    let page = cold(&db)[0];
    let reads = || db.statistics().get(Ticker::PageReads);
    let before = reads();
    let count = Count::new();
    let now = db.engine().request_page(page, &Waker::from(count.clone()));
    assert!(!now.unwrap(), "the page is on disk");
    count.wait_for(1);
    assert!(reads() > before, "the page was read");
    rest(&db);
}

#[test]
fn ten_thousand_requests_on_a_small_pool_all_end_and_hold_nothing() {
    let place = tempfile::tempdir().unwrap();
    let db = options().open(place.path()).unwrap();
    fill(&db);
    let pages = cold(&db);
    let count = Count::new();
    let mut waiting = Vec::new();
    for turn in 0..10_000 {
        let page = pages[turn % pages.len()];
        // Each request has its own waker, as if it were made by its own task.
        let own = Arc::new(Count(AtomicU64::new(0), Waker::from(count.clone())));
        // The waker of a request that is over at once may still be woken, by the read that the
        // request met.
        if !db.engine().request_page(page, &own.clone().into()).unwrap() {
            waiting.push(own);
        }
    }
    assert!(waiting.len() > 100, "{}", waiting.len());
    let wakes = |own: &Arc<Count>| own.0.load(Ordering::Acquire);
    while waiting.iter().any(|own| wakes(own) == 0) {
        pando_sync::park();
    }
    rest(&db);
    assert!(waiting.iter().all(|own| wakes(own) == 1), "woken once");
    // Other readers continue.
    let table = db.existing_table("t").unwrap();
    assert_eq!(table.iter().count(), 2000);
}

#[test]
fn closing_with_requests_and_reads_in_flight_wakes_everybody() {
    for turn in 0..10 {
        let place = tempfile::tempdir().unwrap();
        let db = options().open(place.path()).unwrap();
        fill(&db);
        let engine = db.engine().clone();
        let count = Count::new();
        let mut expected = 0;
        for page in cold(&db).into_iter().take(40 * turn) {
            let parent = Waker::from(count.clone());
            let waker = Waker::from(Arc::new(Count(AtomicU64::new(0), parent)));
            if !engine.request_page(page, &waker).unwrap() {
                expected += 1;
            }
        }
        let page = *cold(&db).last().unwrap();
        db.close().unwrap();
        count.wait_for(expected);
        assert_eq!(engine.occupancy(), Occupancy::default());
        let refused = engine.request_page(page, Waker::noop());
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }
}

#[test]
fn everybody_who_waits_for_a_page_learns_of_its_error_and_it_is_read_once() {
    let device = FaultyDevice::new(3);
    let db = Db::open_device(options(), device.clone().into()).unwrap();
    fill(&db);
    let engine = db.engine();
    // The page is a leaf, since the engine's threads read the roots of their own tables.
    let page = *cold(&db).last().unwrap();
    // These are read requests; one failed read ends all of them.
    device.fail(FaultPlan::sticky(Operation::Read, "data", 1, Fault::Io));
    let count = Count::new();
    let parent = || {
        Waker::from(Arc::new(Count(
            AtomicU64::new(0),
            Waker::from(count.clone()),
        )))
    };
    let ticket = match engine.store.pool.begin_load(page).unwrap() {
        LoadStart::Claimed(ticket) => ticket,
        other => panic!("{other:?}"),
    };
    let wakers: Vec<Waker> = (0..5).map(|_| parent()).collect();
    let before = engine.store.failed_reads.now();
    for waker in &wakers {
        assert!(!engine.request_page(page, waker).unwrap());
    }
    // These are threads that wait for the same read.
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| engine.store.fetch(page).unwrap_err()))
            .collect();
        while engine.store.pool.waiting_for_load(page).len() < 9 {
            thread::yield_now();
        }
        engine.store.read_claimed(ticket).unwrap_err();
        for thread in waiting {
            assert!(thread.join().unwrap().to_string().contains("reading it"));
        }
    });
    count.wait_for(5);
    // Other pages may be read as well, for instance by the maintenance thread.
    assert_eq!(
        engine.store.failed_reads.count_of(page),
        1,
        "one read for all"
    );
    for waker in &wakers {
        assert!(engine.store.failed_reads.tell(page, waker).is_some());
    }
    assert!(engine.store.failed_reads.since(page, before).is_some());
    // This read is done by the read thread itself.
    let waker = parent();
    assert!(!engine.request_page(page, &waker).unwrap());
    count.wait_for(6);
    assert!(engine.store.failed_reads.tell(page, &waker).is_some());
    rest(&db);
    device.clear_faults();
    engine.store.fetch(page).unwrap();
}

/// A waker that blocks the thread that wakes it until the door is opened.
struct Door(AtomicU64);

impl Door {
    const CLOSED: u64 = 0;
    const ENTERED: u64 = 1;
    const OPEN: u64 = 2;

    fn wait_until(&self, state: u64) {
        while self.0.load(Ordering::Acquire) != state {
            thread::yield_now();
        }
    }
}

impl Wake for Door {
    fn wake(self: Arc<Self>) {
        self.0.store(Self::ENTERED, Ordering::Release);
        self.wait_until(Self::OPEN);
    }
}

#[test]
fn what_a_scan_has_passed_is_not_read_for_it_any_more() {
    let db = options().open_in_memory().unwrap();
    fill(&db);
    let table = db.existing_table("t").unwrap();
    let count = || db.statistics().get(Ticker::PageReads);
    for backward in [false, true] {
        let door = Arc::new(Door(AtomicU64::new(Door::CLOSED)));
        let waker = Waker::from(door.clone());
        while db.engine().request_page(cold(&db)[0], &waker).unwrap() {}
        door.wait_until(Door::ENTERED);
        // From here on the read thread is blocked.
        let before = count();
        let mut entries = table.iter();
        let entries = std::iter::from_fn(|| match backward {
            false => entries.next(),
            true => entries.next_back(),
        });
        assert_eq!(entries.count(), 2000);
        // The read thread will also find the read requests of this scan.
        let mut next = table.iter();
        next.nth(20).unwrap().unwrap();
        let by_itself = count() - before;
        assert!(by_itself > 400, "{by_itself}: the scan read nothing itself");
        door.0.store(Door::OPEN, Ordering::Release);
        rest(&db);
        let for_nobody = count() - before - by_itself;
        assert!(
            for_nobody < 8,
            "{for_nobody} pages that the scan has passed"
        );
    }
}
