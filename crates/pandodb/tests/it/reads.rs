//! The number of pages that are read, and that no read is left over.

use fastrand::Rng;
use pando_sync::thread;
use pandodb::statistics::{Ticker, Totals};
use pandodb::{Builder, Db, IoBackend, Occupancy, Table};

use crate::fixture::{fill, padded_key};

const KEYS: u32 = 12_000;

/// Returns a store with 4,000 leaves.
fn filled(options: Builder) -> (Db, Table) {
    let db = options.open_in_memory().unwrap();
    let table = fill_all(&db);
    (db, table)
}

fn fill_all(db: &Db) -> Table {
    let table = db.table("t").unwrap();
    fill(&table, 0..KEYS, |number| {
        (padded_key(number), [number as u8; 1000])
    });
    db.checkpoint().unwrap();
    table
}

fn options(frames: usize) -> Builder {
    Db::builder().max_memory(64 << 20).frames(frames)
}

/// Returns a sequence that looks random and is always the same.
fn numbers(seed: u64) -> impl Iterator<Item = u32> {
    let mut random = Rng::with_seed(seed);
    std::iter::repeat_with(move || random.u32(..KEYS))
}

fn counted(db: &Db, gets: impl FnOnce()) -> Totals {
    let before = db.statistics();
    gets();
    db.statistics().since(&before)
}

/// The data are sixty times the memory, and are read by blocking gets, `get_many` and futures.
#[test]
fn a_get_that_misses_reads_one_page() {
    let (db, table) = filled(options(64));
    let single = |count| {
        for number in numbers(1).take(count) {
            assert!(
                table
                    .get_with(&padded_key(number), |_| ())
                    .unwrap()
                    .is_some()
            );
        }
    };
    single(500);
    let many = || {
        let keys: Vec<[u8; 16]> = numbers(2).take(20_000).map(padded_key).collect();
        for keys in keys.chunks(10) {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            table.get_many_with(&keys, |_, _| ()).unwrap();
        }
    };
    let threads = || {
        thread::scope(|scope| {
            for seed in 0..4 {
                let table = &table;
                scope.spawn(move || {
                    for number in numbers(10 + seed).take(5_000) {
                        table.get_with(&padded_key(number), |_| ()).unwrap();
                    }
                });
            }
        });
    };
    let each: [(&str, &dyn Fn()); 3] = [
        ("one thread", &|| single(20_000)),
        ("get_many", &many),
        ("threads", &threads),
    ];
    for (what, gets) in each {
        let counted = counted(&db, gets);
        let [gets, missed, reads] =
            [Ticker::Gets, Ticker::GetsMissed, Ticker::PageReads].map(|one| counted.get(one));
        assert_eq!(gets, 20_000, "{what}");
        assert!(missed > gets * 9 / 10, "{what}: {missed} misses");
        assert!(missed < gets, "{what}: no hits");
        // With four threads on so small a pool, a page is sometimes evicted before it is used.
        let allowed = if what == "threads" { 15 } else { 5 };
        assert!(
            reads * 1000 <= missed * (1000 + allowed),
            "{what}: {reads} reads for {missed} misses"
        );
    }
}

#[test]
fn cached_gets_miss_nothing() {
    let (db, table) = filled(options(9_000));
    let counted = counted(&db, || {
        for number in numbers(3).take(1000) {
            table.get(&padded_key(number)).unwrap();
        }
    });
    assert_eq!(counted.get(Ticker::Gets), 1000);
    assert_eq!(counted.get(Ticker::GetsMissed), 0);
}

/// Returns a store on disk with 4,000 leaves, whose reads take time.
fn on_disk(frames: usize) -> (Db, Table, tempfile::TempDir) {
    let place = tempfile::tempdir().unwrap();
    let options = options(frames).io_backend(IoBackend::Pread);
    let db = options.queue_depth(16).open(place.path()).unwrap();
    let table = fill_all(&db);
    (db, table, place)
}

#[test]
fn a_scan_from_disk_reads_ahead_and_each_leaf_once() {
    let (db, table, _place) = on_disk(128);
    for backwards in [false, true] {
        // On a busy machine a scan may be so slow that pages it has read ahead are evicted.
        let once = (0..5).any(|_| scan_reads_each_leaf_once(&db, &table, backwards));
        assert!(once, "leaves are read again and again");
    }
}

/// Scans the table. Returns false if leaves were read more than once.
fn scan_reads_each_leaf_once(db: &Db, table: &Table, backwards: bool) -> bool {
    let mut iter = table.iter();
    let (mut count, mut depth) = (0, 0);
    let counted = counted(db, || {
        loop {
            let entry = if backwards {
                iter.next_back()
            } else {
                iter.next()
            };
            let Some(entry) = entry else { break };
            let number = if backwards { KEYS - 1 - count } else { count };
            let (key, value) = entry.unwrap();
            assert_eq!(
                (key, value),
                (padded_key(number).to_vec(), vec![number as u8; 1000])
            );
            count += 1;
            let now = db.occupancy();
            depth = depth.max(now.reads);
        }
    });
    assert_eq!(count, KEYS);
    let (leaves, reads) = (
        counted.get(Ticker::ScanLeaves),
        counted.get(Ticker::PageReads),
    );
    assert!(leaves >= u64::from(KEYS) / 4);
    assert!(depth > 1, "the device never had two reads");
    drop(iter);
    while db.occupancy() != Occupancy::default() {
        thread::yield_now();
    }
    // The bound adds inner nodes, and pages that were evicted before they were used.
    reads <= leaves + leaves / 20 + 40
}

#[test]
fn a_scan_that_ends_early_has_read_little_ahead() {
    let (db, table, _place) = on_disk(512);
    for turn in 0..20_u32 {
        let start = padded_key(turn * 577);
        let reads = counted(&db, || {
            // The range has four leaves, of which two or three are not in memory.
            assert_eq!(table.range(&start[..]..).take(10).count(), 10);
            while db.occupancy() != Occupancy::default() {
                thread::yield_now();
            }
        });
        let reads = reads.get(Ticker::PageReads);
        assert!(reads <= 16, "{reads} pages");
        let start = padded_key(turn * 577 + 300);
        let reads = counted(&db, || {
            // Twelve leaves and more: it waits for half as many that it does not use, at most.
            assert_eq!(table.range(&start[..]..).take(36).count(), 36);
            while db.occupancy() != Occupancy::default() {
                thread::yield_now();
            }
        });
        let reads = reads.get(Ticker::PageReads);
        assert!(reads <= 45, "{reads} pages");
        // The end of the range is known, so nothing after it is read.
        let (start, end) = (padded_key(turn * 577 + 200), padded_key(turn * 577 + 212));
        let reads = counted(&db, || {
            assert_eq!(table.range(&start[..]..&end[..]).count(), 12);
            while db.occupancy() != Occupancy::default() {
                thread::yield_now();
            }
        });
        let reads = reads.get(Ticker::PageReads);
        assert!(reads <= 8, "{reads} pages");
    }
}

#[test]
fn a_cached_scan_asks_for_nothing() {
    let (db, table) = filled(options(9_000));
    let counted = counted(&db, || {
        assert_eq!(table.iter().count(), KEYS as usize);
        assert_eq!(table.iter().rev().count(), KEYS as usize);
    });
    assert_eq!(counted.get(Ticker::PageReads), 0);
    assert_eq!(counted.get(Ticker::Faults), 0);
    assert_eq!(db.occupancy(), Occupancy::default());
}
