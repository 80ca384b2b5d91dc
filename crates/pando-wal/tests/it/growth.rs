//! The files of the log: made when records need them, removed when checkpoints have freed them, on
//! full devices and with power cuts (decision 077).

use fastrand::Rng;
use pando_device::faulty::{CrashMode, Fault, FaultPlan, Operation};
use pando_device::{Device, FaultyDevice};
use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, thread};
use pando_wal::{Acknowledge, Error, Log, LogOptions, Surroundings};

use crate::support::{
    Records, Report, TestDevice, append, append_waiting, options, read_segments, wait_until,
};

const SEGMENT: u32 = 1 << 20;
const FILE: u64 = 64 << 10;

/// Options of a log of at most four segments, in files of at least a sixteenth of one.
fn short(incarnation: u64, start: u64) -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT,
        file_bytes: FILE as u32,
        buffer_bytes: 512 << 10,
        ..options(4, incarnation, start)
    }
}

/// The same without short files, as programs before them made the log.
fn whole(incarnation: u64, start: u64) -> LogOptions {
    LogOptions {
        file_bytes: SEGMENT,
        ..short(incarnation, start)
    }
}

fn open<D: Device>(device: &D, options: LogOptions) -> Arc<Log<D>> {
    Arc::new(Log::open(device.clone(), options, Default::default()).unwrap())
}

/// Counts what it is told.
#[derive(Default)]
struct Told {
    failed: AtomicU64,
    again: AtomicU64,
}

impl Surroundings for Told {
    fn alone(&self, allocate: &mut dyn FnMut()) {
        allocate();
    }

    fn told(&self, failed: Option<&Error>) {
        let counter = if failed.is_some() {
            &self.failed
        } else {
            &self.again
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// A log whose thread makes and removes files.
struct Running<D: Device> {
    log: Arc<Log<D>>,
    told: Arc<Told>,
    thread: thread::JoinHandle<()>,
}

impl Running<TestDevice> {
    fn new(device: &TestDevice, options: LogOptions) -> Self {
        let log = open(device, options);
        device.control.grows.store(true, Ordering::SeqCst);
        let told = Arc::new(Told::default());
        let (shared, around) = (log.clone(), told.clone());
        let thread = thread::spawn(move || shared.run_files(&*around));
        Self { log, told, thread }
    }
}

impl<D: Device> Running<D> {
    fn end(self) {
        self.log.stop();
        self.thread.join().unwrap();
    }
}

/// Appends a record; where there is no room, asks for a longer log, as the engine does. Returns
/// `None` if only a checkpoint makes room.
fn append_growing<D: Device>(log: &Log<D>, payload: &[u8]) -> Option<Lsn> {
    loop {
        if let Some(reservation) = log.try_reserve(payload.len()).unwrap() {
            let acknowledge = Acknowledge::WhenDurable;
            let lsn = log.append(reservation, RecordKind::Batch, acknowledge, payload);
            log.mark_applied(lsn);
            return Some(lsn);
        }
        let (report, waker) = Report::new();
        log.space_waiters().register(&waker);
        if log.try_reserve(payload.len()).unwrap().is_some() {
            continue;
        }
        if log.file_has_room(payload.len()) {
            log.flush_now().unwrap();
        } else if log.ask_for_room(payload.len()) {
            wait_until("the thread answers", || report.woken());
        } else {
            return None;
        }
    }
}

#[test]
fn a_log_begins_short_and_grows_to_its_budget() {
    let device = TestDevice::new();
    let running = Running::new(&device, short(1, 0));
    let log = &running.log;
    assert_eq!(log.capacity_bytes(), 2 * FILE);
    let mut expected: Records = Vec::new();
    let mut random = Rng::with_seed(1);
    loop {
        let payload = vec![7; random.usize(..12_000)];
        let Some(lsn) = append_growing(log, &payload) else {
            break;
        };
        expected.push((lsn, payload));
        if random.u8(..3) == 0 {
            log.flush_now().unwrap();
        }
    }
    let budget = 4 * u64::from(SEGMENT);
    assert_eq!(log.capacity_bytes(), budget);
    let bytes: usize = expected.iter().map(|(_, payload)| payload.len()).sum();
    assert!(bytes as u64 > budget * 3 / 4, "{bytes} bytes of records");
    // Positions that lie in no file do not count.
    let last = expected.last().unwrap().0;
    assert!(last.0 > 2 * budget, "{last}");
    assert!((bytes as u64..=budget).contains(&log.used_bytes()));
    let (filled, limit) = log.fill();
    assert!((bytes as u64..=budget).contains(&filled), "{filled}");
    assert_eq!(limit, budget);
    log.flush_now().unwrap();
    let (records, end) = read_segments(&device, SEGMENT, 1, 0).unwrap();
    assert_eq!(records, expected);
    assert_eq!(end.end, last);
    let replayed = end.end.0 - end.skipped;
    assert!((bytes as u64..=budget).contains(&replayed), "{replayed}");
    for name in device.list().unwrap() {
        let length = device.bytes_of(&name).len() as u64;
        assert!(length.is_multiple_of(FILE) && length <= u64::from(SEGMENT));
    }
    running.end();
}

/// The log keeps the files that records have needed between checkpoints lately, and gives the
/// others back step by step.
#[test]
fn what_checkpoints_free_goes_unless_it_is_needed_again() {
    let device = TestDevice::new();
    let running = Running::new(&device, short(1, 0));
    let log = &running.log;
    let write = |count: usize| {
        for _ in 0..count {
            append_growing(log, &[3; 10_000]).expect("within the budget");
            log.flush_now().unwrap();
        }
        log.truncate_below(log.reserved_end());
    };
    // About 1.2 MB between checkpoints. After some of them hardly a file comes or goes.
    for _ in 0..20 {
        write(120);
    }
    let made = || device.control.allocations.load(Ordering::SeqCst);
    let before = made();
    for _ in 0..40 {
        write(120);
    }
    let files = made() - before;
    assert!(files < 5, "{files} files were made during 40 checkpoints");
    let bytes = log.capacity_bytes();
    assert!((1_200_000..3_000_000).contains(&bytes), "{bytes}");
    // Less and less is kept for the same load.
    for _ in 0..12 {
        write(1);
    }
    wait_until("a short log", || {
        // The file that records go to is left for the next one, and freed by a checkpoint.
        write(1);
        log.capacity_bytes() <= 4 * FILE
    });
    let lsn = append(log, b"last");
    log.flush_now().unwrap();
    let from = log.reserved_end().0 - 48;
    // Before that, files may go while they are read.
    running.end();
    let (records, _) = read_segments(&device, SEGMENT, 1, from).unwrap();
    assert_eq!(records, [(lsn, b"last".to_vec())]);
}

/// Records of all sizes find the room that was promised to them, though files come and go between
/// the promise and the append.
#[test]
fn promised_room_stays_though_files_are_taken_away() {
    let mut large = 0;
    for seed in 1..80 {
        let device = TestDevice::new();
        let log = open(&device, short(1, 0));
        let mut random = Rng::with_seed(seed);
        let max = log.max_batch_bytes();
        let mut expected: Records = Vec::new();
        let mut from = 0;
        for _ in 0..30 {
            let mut promised = Vec::new();
            for _ in 0..random.usize(1..12) {
                let most = [500, 16 << 10, max][random.usize(..3)];
                let bytes = random.usize(..most);
                if let Some(reservation) = log.try_reserve(bytes).unwrap() {
                    promised.push((reservation, bytes));
                    large += usize::from(bytes > 100 << 10);
                }
                match random.u8(..12) {
                    0 => drop(log.make_all_files().unwrap()),
                    1..4 => drop(log.remove_free(&Told::default())),
                    _ => {}
                }
            }
            while !promised.is_empty() {
                let (reservation, bytes) = promised.swap_remove(random.usize(..promised.len()));
                if random.u8(..4) == 0 {
                    log.remove_free(&Told::default());
                }
                let payload = vec![seed as u8; bytes];
                let acknowledge = Acknowledge::WhenDurable;
                let lsn = log.append(reservation, RecordKind::Batch, acknowledge, &payload);
                log.mark_applied(lsn);
                expected.push((lsn, payload));
                if random.u8(..4) == 0 {
                    log.flush_now().unwrap();
                }
            }
            log.flush_now().unwrap();
            if random.u8(..3) == 0 {
                from = log.reserved_end().0;
                log.truncate_below(Lsn(from));
                expected.clear();
            }
        }
        let (records, _) = read_segments(&device, SEGMENT, 1, from).unwrap();
        assert!(records == expected, "seed {seed}");
    }
    assert!(large > 100, "{large} large records");
}

/// On a full device small records go on in the files that are there, as checkpoints free them. One
/// that no file holds is refused, and nobody waits for ever. When there is room, it goes on.
#[test]
fn a_full_device_refuses_what_no_file_holds_until_there_is_room() {
    let device = TestDevice::new();
    let running = Running::new(&device, short(1, 0));
    let log = &running.log;
    device.control.full.store(true, Ordering::SeqCst);
    let large = vec![5; 300_000];
    // Asked once, the thread finds that there is no room, and says so to all that wait.
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    assert!(log.try_reserve(large.len()).unwrap().is_none());
    assert!(log.fits(large.len()), "nobody knows yet");
    // False if the answer is there already.
    let _asked = log.ask_for_room(large.len());
    wait_until("the thread answers", || report.woken());
    wait_until("the answer", || !log.fits(large.len()));
    assert!(!log.ask_for_room(large.len()));
    assert_eq!(running.told.failed.load(Ordering::SeqCst), 1);
    assert_eq!(device.list().unwrap().len(), 2, "nothing of it stays");
    assert!(log.fits(1000) && log.fits(16 << 10));
    assert_eq!(log.fill().1, 2 * FILE, "checkpoints are due earlier");
    // What is there is written without an allocation.
    device.control.full.store(false, Ordering::SeqCst);
    let full = FullFiles::new(&device);
    for _ in 0..200 {
        if append_growing(log, &[1; 2000]).is_none() {
            log.flush_now().unwrap();
            log.truncate_below(log.reserved_end());
        }
    }
    drop(full);
    let (report, waker) = Report::new();
    log.space_waiters().register(&waker);
    wait_until("a file", || report.woken() && log.fits(large.len()));
    append_growing(log, &large).unwrap();
    assert_eq!(running.told.again.load(Ordering::SeqCst), 1);
    running.end();
}

/// Who was refused need not ask again: the file is made as soon as there is room for it.
#[test]
fn a_file_that_found_no_room_is_tried_again() {
    let device = TestDevice::new();
    let running = Running::new(&device, short(1, 0));
    let log = &running.log;
    let full = FullFiles::new(&device);
    let _asked = log.ask_for_room(300_000);
    wait_until("the answer", || !log.fits(300_000));
    assert_eq!(log.capacity_bytes(), 2 * FILE);
    drop(full);
    wait_until("a file", || log.capacity_bytes() > 2 * FILE);
    // It may need one more.
    wait_until("room", || log.try_reserve(300_000).unwrap().is_some());
    append(log, &[1; 300_000]);
    running.end();
}

/// While it exists, no file can be allocated.
struct FullFiles<'a>(&'a TestDevice);

impl<'a> FullFiles<'a> {
    fn new(device: &'a TestDevice) -> Self {
        device.control.no_files.store(true, Ordering::SeqCst);
        Self(device)
    }
}

impl Drop for FullFiles<'_> {
    fn drop(&mut self) {
        self.0.control.no_files.store(false, Ordering::SeqCst);
    }
}

/// Whoever can be served by a checkpoint alone is told so, and never that nothing helps.
#[test]
fn a_budget_that_is_reached_leaves_the_rest_to_checkpoints() {
    let device = TestDevice::new();
    let log = open(&device, whole(1, 0));
    log.make_all_files().unwrap();
    while log.try_reserve(100_000).unwrap().is_some() {
        append(&log, &[1; 100_000]);
        log.flush_now().unwrap();
    }
    assert!(!log.ask_for_room(100_000));
    assert!(log.fits(100_000));
    log.truncate_below(log.reserved_end());
    append(&log, &[1; 100_000]);
}

#[test]
fn what_is_left_at_the_end_is_what_an_opening_needs() {
    let device = TestDevice::new();
    let log = open(&device, short(1, 0));
    log.make_all_files().unwrap();
    for number in 0..300_u32 {
        append_waiting(&log, &vec![number as u8; 9000]).unwrap();
        log.flush_now().unwrap();
    }
    // A record that no checkpoint covers keeps all.
    log.truncate_below(log.reserved_end());
    let lsn = append(&log, b"not covered");
    log.flush_now().unwrap();
    log.close_files();
    assert_eq!(log.capacity_bytes(), 4 * u64::from(SEGMENT));
    log.truncate_below(lsn);
    let held = log.try_reserve(10).unwrap();
    log.close_files();
    assert_eq!(
        log.capacity_bytes(),
        4 * u64::from(SEGMENT),
        "room is promised"
    );
    drop(held);
    log.close_files();
    assert_eq!(log.capacity_bytes(), 2 * FILE);
    assert_eq!(device.list().unwrap().len(), 2);
    assert!(matches!(log.try_reserve(10), Err(Error::Closed)));
    let (records, end) = read_segments(&device, SEGMENT, 1, lsn.0).unwrap();
    assert_eq!(records, []);
    assert!(end.restart > lsn);
    // The next life needs no room.
    device.control.full.store(true, Ordering::SeqCst);
    let log = open(&device, short(2, end.restart.0));
    device.control.full.store(false, Ordering::SeqCst);
    let lsn = append(&log, b"next life");
    log.flush_now().unwrap();
    let (records, _) = read_segments(&device, SEGMENT, 2, end.restart.0).unwrap();
    assert_eq!(records, [(lsn, b"next life".to_vec())]);
}

/// Programs before this one knew files of full length only. Each opens what the other has left.
#[test]
fn logs_of_whole_segments_and_of_short_files_follow_each_other() {
    let device = TestDevice::new();
    let (mut start, mut random) = (0, Rng::with_seed(1));
    for incarnation in 1..12 {
        let options = match incarnation % 2 {
            0 => short(incarnation, start),
            _ => whole(incarnation, start),
        };
        let log = open(&device, options);
        if incarnation % 2 == 0 {
            assert_eq!(log.capacity_bytes(), 2 * FILE);
        }
        log.make_all_files().unwrap();
        assert_eq!(log.capacity_bytes(), 4 * u64::from(SEGMENT));
        let mut expected: Records = Vec::new();
        while let Some(reservation) = log.try_reserve(30_000).unwrap() {
            let payload = vec![incarnation as u8; random.usize(..30_000)];
            let acknowledge = Acknowledge::WhenDurable;
            let lsn = log.append(reservation, RecordKind::Batch, acknowledge, &payload);
            log.mark_applied(lsn);
            log.flush_now().unwrap();
            expected.push((lsn, payload));
        }
        drop(log);
        let (records, end) = read_segments(&device, SEGMENT, incarnation, start).unwrap();
        assert_eq!(records, expected, "life {incarnation}");
        start = end.restart.0;
    }
}

/// Lives that end in power cuts while files are made and removed, at every sync point and after any
/// write. Acknowledged records stay, and each life opens in what it finds.
#[test]
fn power_cuts_while_files_come_and_go_lose_nothing() {
    for mode in [
        CrashMode::AllLost,
        CrashMode::AllSurvive,
        CrashMode::RandomSubset,
        CrashMode::TornSectors,
    ] {
        for point in 1..50 {
            live(point, mode, |device, _| device.crash_at_sync(point));
            live(point + 100, mode, |device, random| {
                device.crash_after_writes(1 + random.u64(..60));
            });
        }
    }
}

fn live(seed: u64, mode: CrashMode, plan: impl Fn(&FaultyDevice, &mut Rng)) {
    let mut random = Rng::with_seed(seed);
    let mut device = FaultyDevice::new(seed);
    let (mut from, mut acknowledged) = (0, Lsn(0));
    for incarnation in 1..4 {
        plan(&device, &mut random);
        let mut expected: Records = Vec::new();
        let ended = (|| {
            let log = Log::open(device.clone(), short(incarnation, from), Default::default())?;
            for step in 0..40_u8 {
                match random.u8(..10) {
                    0 => drop(log.make_all_files()?),
                    1 => drop(log.remove_free(&Told::default())),
                    2 => {
                        log.flush_now()?;
                        acknowledged = log.durable();
                        from = acknowledged.0;
                        log.truncate_below(acknowledged);
                    }
                    3 => {
                        log.flush_now()?;
                        acknowledged = log.durable();
                    }
                    _ => {
                        let payload = vec![step; random.usize(..12_000)];
                        if let Some(reservation) = log.try_reserve(payload.len())? {
                            let how = Acknowledge::WhenDurable;
                            let lsn = log.append(reservation, RecordKind::Batch, how, &payload);
                            log.mark_applied(lsn);
                            expected.push((lsn, payload));
                        }
                    }
                }
            }
            log.flush_now()?;
            acknowledged = log.durable();
            if random.bool() {
                from = acknowledged.0;
                log.truncate_below(acknowledged);
                log.close_files();
            }
            Ok::<(), Error>(())
        })();
        if ended.is_ok() {
            device.crash_now();
        }
        device = device.after_crash(seed ^ incarnation, mode);
        let context = format!("seed {seed}, {mode:?}, life {incarnation}");
        let (records, end) = read_segments(&device, SEGMENT, incarnation, from)
            .unwrap_or_else(|error| panic!("{context}: {error}"));
        expected.retain(|(lsn, _)| lsn.0 > from);
        let least = expected.iter().filter(|(lsn, _)| *lsn <= acknowledged);
        assert!(records.len() >= least.count(), "{context}: lost");
        assert_eq!(records, expected[..records.len()], "{context}");
        from = end.restart.0;
        acknowledged = end.restart;
    }
}

/// Whatever of the making of a file fails, nothing is left of it, the log goes on, and the next try
/// makes it.
#[test]
fn a_file_that_fails_at_any_step_is_made_later() {
    const THIRD: &str = "log/0000000000000002";
    for (operation, nth, fault) in [
        (Operation::Open, 1, Fault::Full),
        (Operation::Allocate, 1, Fault::Full),
        (Operation::Write, 1, Fault::Full),
        (Operation::Write, 2, Fault::Full),
        (Operation::Sync, 1, Fault::Full),
        (Operation::Sync, 2, Fault::Full),
        (Operation::SyncDirectory, 1, Fault::Full),
        (Operation::Allocate, 1, Fault::Io),
    ] {
        let device = FaultyDevice::new(1);
        let log = open(&device, short(1, 0));
        let prefix = if operation == Operation::SyncDirectory {
            ""
        } else {
            THIRD
        };
        device.fail(FaultPlan::once(operation, prefix, nth, fault));
        let context = format!("{operation:?} {nth}");
        log.make_all_files().unwrap_err();
        assert_eq!(device.faults_struck(), 1, "{context}");
        assert_eq!(log.capacity_bytes(), 2 * FILE, "{context}");
        assert_eq!(device.list().unwrap().len(), 2, "{context}");
        append(&log, b"goes on");
        log.flush_now().unwrap();
        assert!(log.make_all_files().unwrap() > 2);
        assert_eq!(log.capacity_bytes(), 4 * u64::from(SEGMENT), "{context}");
    }
}
