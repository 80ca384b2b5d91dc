//! The engine over each I/O back end, and over devices that fail.

use std::task::{Wake, Waker};

use pando_sync::atomic::{AtomicU32, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Arc, WakerArc, thread};
use pandodb::device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
use pandodb::device::{AnyDevice, InjectorDevice, MemoryDevice};
use pandodb::nonblocking::{Polled, Reactor, Reads};
use pandodb::{Batch, Builder, Db, Error, IoBackend, Occupancy, Table};

use crate::fixture::{NONE, fill};
use crate::progress::Progress;

const WAYS: [IoBackend; 4] = [
    IoBackend::Auto,
    IoBackend::Uring,
    IoBackend::Libaio,
    IoBackend::Pread,
];
const KEYS: u32 = 4000;

/// Returns options with far fewer frames than the data need.
fn small() -> Builder {
    Db::builder().frames(96).max_memory(4 << 20)
}

fn key(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn value(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(60)
}

/// Fills the table without durability, since these tests are about reads.
fn fill_all(table: &Table) {
    fill(table, 0..KEYS, |number| (key(number), value(number)));
}

fn read_all(table: &Table) {
    for number in (0..KEYS).step_by(37) {
        assert_eq!(table.get(&key(number)).unwrap(), Some(value(number)));
    }
    let keys: Vec<Vec<u8>> = (0..KEYS).step_by(31).map(key).collect();
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for (place, found) in table.get_many(&slices).unwrap().into_iter().enumerate() {
        assert_eq!(found, Some(value(place as u32 * 31)));
    }
}

#[test]
fn every_way_to_the_disk_keeps_and_finds_the_same() {
    let directory = tempfile::tempdir().unwrap();
    for (round, way) in WAYS.into_iter().enumerate() {
        let db = small().io_backend(way).open(directory.path()).unwrap();
        let report = db.report();
        let named = IoBackend::from_name(report.io_backend).unwrap();
        // If another back end is used than the one asked for, a note says so.
        let told = way == IoBackend::Auto || named == way || !report.io_notes.is_empty();
        assert!(told, "{report:?}");
        let table = db.table("data").unwrap();
        if round == 0 {
            fill_all(&table);
        }
        read_all(&table);
        db.close().unwrap();
    }
}

/// The null device cannot hold a store, so opening one on it is refused.
#[test]
fn a_store_keeps_nothing_over_nothing() {
    let error = Db::builder()
        .io_backend(IoBackend::Null)
        .open("unused")
        .unwrap_err();
    assert!(error.to_string().contains("null"), "{error}");
}

#[test]
fn a_queue_deeper_than_any_ring_works() {
    for way in WAYS {
        let directory = tempfile::tempdir().unwrap();
        let db = small()
            .io_backend(way)
            .queue_depth(50_000)
            .open(directory.path())
            .unwrap();
        let table = db.table("data").unwrap();
        fill_all(&table);
        read_all(&table);
    }
}

#[test]
fn stores_of_different_depths_are_used_by_the_same_threads() {
    for way in WAYS {
        let places = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let open = |place: usize, depth| {
            let builder = small().io_backend(way).queue_depth(depth);
            let db = builder.open(places[place].path()).unwrap();
            let table = db.table("data").unwrap();
            fill_all(&table);
            (db, table)
        };
        let stores = [open(0, 2), open(1, 64)];
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for (_, table) in &stores {
                        read_all(table);
                    }
                });
            }
        });
    }
}

/// Returns a device that injects faults over a directory.
fn faulty(way: IoBackend) -> (tempfile::TempDir, InjectorDevice<AnyDevice>) {
    let directory = tempfile::tempdir().unwrap();
    let device = way.open_device(directory.path(), 4).unwrap();
    (directory, InjectorDevice::new(device, 3))
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_with_its_place() {
    for way in &WAYS[1..] {
        for fault in [Fault::Io, Fault::Short(512)] {
            let (_directory, device) = faulty(*way);
            let db = Db::open_device(small(), device.clone().into()).unwrap();
            let table = db.table("data").unwrap();
            fill_all(&table);
            read_all(&table);
            device.fail(FaultPlan::sticky(Operation::Read, "data", 1, fault));
            let keys: Vec<Vec<u8>> = (0..KEYS).step_by(31).map(key).collect();
            let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let many = table.get_many(&slices).unwrap_err();
            let single = keys.iter().find_map(|key| table.get(key).err()).unwrap();
            for error in [many, single] {
                assert!(
                    matches!(
                        error,
                        Error::CorruptPage {
                            extent: Some(_),
                            ..
                        }
                    ),
                    "{error}"
                );
                let text = error.to_string();
                let why = match fault {
                    Fault::Io => "Input/output error",
                    _ => "ends early: 512 of 4096",
                };
                assert!(text.contains("page") && text.contains(why), "{text}");
            }
            // The pages can be read again as soon as the device works.
            device.clear_faults();
            read_all(&table);
        }
    }
}

#[test]
fn a_file_that_may_not_be_opened_is_an_error_and_a_later_opening_works() {
    for file in ["superblock", "data", "log/", "map."] {
        let (_directory, device) = faulty(IoBackend::Auto);
        let open = || Db::open_device(small(), device.clone().into());
        let db = open().unwrap();
        fill_all(&db.table("data").unwrap());
        db.close().unwrap();
        device.fail(FaultPlan::once(Operation::Open, file, 1, Fault::Denied));
        let struck = device.faults_struck();
        let error = open().unwrap_err();
        assert!(device.faults_struck() > struck, "no file is called {file}");
        assert!(
            error.to_string().contains("ermission denied"),
            "{file}: {error}"
        );
        read_all(&open().unwrap().table("data").unwrap());
    }
}

#[test]
fn a_disk_that_is_full_when_the_file_grows_refuses_writes_and_reads_go_on() {
    for way in [IoBackend::Auto, IoBackend::Pread] {
        let (_directory, device) = faulty(way);
        let db = Db::open_device(small(), device.clone().into()).unwrap();
        let table = db.table("data").unwrap();
        fill_all(&table);
        device.fail(FaultPlan::sticky(
            Operation::Allocate,
            "data",
            1,
            Fault::Full,
        ));
        let large = vec![7; 3000];
        let refused = (0..40_000u32).find_map(|number| {
            let key = [&b"more"[..], &number.to_be_bytes()].concat();
            table.put_with(&key, &large, NONE).err()
        });
        let error = refused.expect("the data file cannot grow");
        assert!(matches!(error, Error::Full { .. }), "{error}");
        read_all(&table);
        device.clear_faults();
        // Writes succeed as soon as the file has grown.
        let deadline = time::now() + Duration::from_secs(30);
        while let Err(error) = table.put(b"after", &large) {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert!(time::now() < deadline, "the file does not grow");
            thread::yield_now();
        }
        assert_eq!(table.get(b"after").unwrap(), Some(large));
    }
}

/// The log is full before the frames are dirty, and only a checkpoint that cannot be written would
/// make room in it. Puts and deletes are refused as on any full disk, and do not wait.
#[test]
fn a_log_that_gets_full_while_pages_cannot_be_written_refuses_writes() {
    for file in ["data", "superblock"] {
        let device = InjectorDevice::new(MemoryDevice::new(1 << 30).into(), 1);
        let options = Db::builder().max_memory(256 << 20).log_bytes(1 << 20);
        let db = Db::open_device(options, device.clone().into()).unwrap();
        let table = db.table("data").unwrap();
        fill(&table, 0..40_000, |number| (key(number), value(number)));
        device.fail(FaultPlan::sticky(Operation::Write, file, 1, Fault::Full));
        let progress = Arc::new(Progress::default());
        let writer = thread::spawn({
            let (table, progress) = (table.clone(), progress.clone());
            move || {
                let mut puts =
                    (0..10_000).map(|number| table.put_with(&key(number), &[7; 900], NONE));
                let put = puts.find_map(Result::err);
                let mut deletes = (0..40_000).map(|number| table.delete_with(&key(number), NONE));
                let delete = deletes.find_map(Result::err);
                progress.step();
                [put, delete]
            }
        });
        progress.wait_for(1);
        for error in writer.join().unwrap() {
            assert!(
                matches!(error, Some(Error::Full { .. })),
                "{file}: {error:?}"
            );
        }
        device.clear_faults();
        let deadline = time::now() + Duration::from_secs(30);
        while let Err(error) = table.put(b"after", b"1") {
            assert!(matches!(error, Error::Full { .. }), "{error}");
            assert!(time::now() < deadline, "writes are refused forever");
            thread::yield_now();
        }
        db.close().unwrap();
    }
}

/// If no channel can be made, pages are read one by one, and no call fails.
#[test]
fn a_ring_that_cannot_be_had_costs_no_call() {
    let (_directory, device) = faulty(IoBackend::Auto);
    let db = Db::open_device(small(), device.clone().into()).unwrap();
    let table = db.table("data").unwrap();
    fill_all(&table);
    device.fail(FaultPlan::sticky(Operation::Channel, "", 1, Fault::Io));
    // Pages are read one by one meanwhile.
    read_all(&table);
    let struck = device.faults_struck();
    assert!(struck > 0, "a channel was wanted");
    // The batches touch distant leaves, of which few are in memory.
    for first in 0..20 {
        let mut batch = Batch::new();
        for number in (first..KEYS).step_by(200) {
            batch.put(&table, &key(number), &value(number));
        }
        db.write(&mut batch, NONE).unwrap();
    }
    assert!(device.faults_struck() > struck, "pages were read ahead");
    device.clear_faults();
    read_all(&table);
}

#[test]
fn a_load_without_a_channel_writes_all() {
    let (_directory, device) = faulty(IoBackend::Auto);
    let db = Db::open_device(small(), device.clone().into()).unwrap();
    let table = db.table("data").unwrap();
    device.fail(FaultPlan::sticky(Operation::Channel, "", 1, Fault::Io));
    let mut loader = table.loader().unwrap();
    for number in 0..KEYS {
        loader.put(&key(number), &value(number)).unwrap();
    }
    loader.finish().unwrap();
    assert!(device.faults_struck() > 0, "a channel was wanted");
    read_all(&table);
}

/// Threads that wait for a channel that others make are told that it cannot be made.
#[test]
fn nobody_waits_for_a_channel_that_cannot_be_made() {
    const THREADS: u32 = 48;
    const ROUNDS: u32 = 50;
    let device = FaultyDevice::new(3);
    let slow = InjectorDevice::new(AnyDevice::from(device.clone()), 3);
    let db = Db::open_device(small(), slow.clone().into()).unwrap();
    let table = db.table("data").unwrap();
    fill_all(&table);
    // The attempt takes a while, so that other threads wait for it.
    slow.fail(FaultPlan::sticky(
        Operation::Channel,
        "",
        1,
        Fault::Yield(100),
    ));
    device.fail(FaultPlan::sticky(Operation::Channel, "", 1, Fault::Io));
    let progress = Arc::new(Progress::default());
    let readers: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (table, progress) = (table.clone(), progress.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    let numbers = (0..16).map(|at| (thread * 61 + round * 977 + at * 251) % KEYS);
                    let keys: Vec<Vec<u8>> = numbers.clone().map(key).collect();
                    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                    let values = table.get_many(&keys).unwrap();
                    assert!(values.into_iter().eq(numbers.map(|at| Some(value(at)))));
                    progress.step();
                }
            })
        })
        .collect();
    progress.wait_for(u64::from(THREADS * ROUNDS));
    for reader in readers {
        reader.join().unwrap();
    }
    assert!(device.faults_struck() > 0, "a channel was wanted");
    assert_eq!(db.occupancy(), Occupancy::default());
}

struct Called(AtomicU32);

impl Wake for Called {
    fn wake(self: WakerArc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gets a key as an event loop does: it retries when it is woken, and not before.
fn get_by_loop(reactor: &mut Reactor, table: &Table, key: &[u8]) -> bool {
    let called = WakerArc::new(Called(AtomicU32::new(0)));
    let waker = Waker::from(called.clone());
    let mut out = Vec::new();
    loop {
        match Reads::of(table).get(key, &mut out, &mut None).unwrap() {
            Polled::Ready(found) => return found,
            Polled::Pending(pending) => reactor.park(pending, &waker).unwrap(),
        }
        reactor.flush();
        while called.0.swap(0, Ordering::Relaxed) == 0 {
            reactor.poll().unwrap();
            thread::yield_now();
        }
    }
}

/// Keys of the test below: more than its frames hold.
const MANY_KEYS: u32 = 24_000;

type Threads = Vec<thread::JoinHandle<()>>;

/// A reader that misses a page and finds no free frame helps to write dirty pages, but not if that
/// waits for room.
#[test]
fn reads_that_need_frames_go_on_while_pages_wait_for_room() {
    for of_loops in [true, false] {
        reads_while_pages_wait(of_loops);
    }
}

/// Reads all keys, in threads. Returns how long that took, or none if it took longer than `most`;
/// the threads go on then.
fn read_in_threads(table: &Table, of_loops: bool, most: Duration) -> (Option<Duration>, Threads) {
    // There is only one loop, since several loops would make frames for each other.
    let readers_max = if of_loops { 1 } else { 12 };
    let ended = Arc::new(AtomicU32::new(0));
    let began = time::now();
    let readers = (0..readers_max)
        .map(|reader| {
            let (table, ended) = (table.clone(), ended.clone());
            thread::spawn(move || {
                let mut reactor = Reactor::new(table.db(), pando_sync::thread_waker()).unwrap();
                for number in (reader..MANY_KEYS).step_by(readers_max as usize) {
                    let key = key(number);
                    assert!(match of_loops {
                        true => get_by_loop(&mut reactor, &table, &key),
                        false => table.get(&key).unwrap().is_some(),
                    });
                }
                ended.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    while ended.load(Ordering::Relaxed) < readers_max && time::now() < began + most {
        thread::park_timeout(Duration::from_millis(10));
    }
    let in_time = ended.load(Ordering::Relaxed) == readers_max;
    (in_time.then(|| time::now() - began), readers)
}

fn reads_while_pages_wait(of_loops: bool) {
    let device = InjectorDevice::new(MemoryDevice::new(1 << 30).into(), 1);
    let options = Db::builder().frames(2048).max_memory(64 << 20);
    let db = Db::open_device(options, device.clone().into()).unwrap();
    let table = db.table("data").unwrap();
    let value = vec![7; 900];
    for number in 0..MANY_KEYS {
        table.put_with(&key(number), &value, NONE).unwrap();
    }
    db.checkpoint().unwrap();
    let join = |threads: Threads| threads.into_iter().for_each(|it| it.join().unwrap());
    // What the machine needs beside all else that it does.
    let (undisturbed, readers) = read_in_threads(&table, of_loops, Duration::from_secs(1000));
    join(readers);
    device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
    let writer = thread::spawn({
        let (table, value) = (table.clone(), value);
        move || {
            let keys = (0..MANY_KEYS).cycle().step_by(5).map(key);
            let mut puts = keys.map(|key| table.put_with(&key, &value, NONE));
            puts.find_map(Result::err)
        }
    });
    let deadline = time::now() + Duration::from_secs(15);
    while device.faults_struck() == 0 && time::now() < deadline {
        thread::yield_now();
    }
    // By now every thread that writes pages knows that the disk is full.
    thread::park_timeout(Duration::from_millis(300));
    let most = Duration::from_secs(3) + undisturbed.unwrap() * 5;
    let (in_time, readers) = read_in_threads(&table, of_loops, most);
    let struck = device.faults_struck();
    device.clear_faults();
    join(readers);
    let refused = writer.join().unwrap();
    assert!(struck > 0, "no page was written");
    assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
    assert!(
        in_time.is_some(),
        "others waited for room; loops: {of_loops}, {most:?}"
    );
    db.close().unwrap();
}
