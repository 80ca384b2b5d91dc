//! A device in memory that counts, slows down and fails on command, and shortcuts for using a log.

use std::collections::BTreeMap;
use std::task::{Wake, Waker};

use pando_device::{
    Channel, ChannelOptions, Completion, Device, Error as DeviceError, File, IoBuf, MemoryDevice,
    OpenOptions, Result as DeviceResult,
};
use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_stats::Statistics;
use pando_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use pando_sync::time::{Duration, now};
use pando_sync::{Arc, Mutex, park, thread, thread_waker};
use pando_wal::{
    Acknowledge, Error, FlushMethod, Log, LogOptions, ReplayEnd, ReplayOptions, replay,
};

pub(crate) const SEGMENT: u64 = 64 << 10;
pub(crate) const IDENTITY: [u8; 16] = *b"identity of test";

#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) syncs: AtomicU64,
    /// Duration of a sync.
    pub(crate) sync_us: AtomicU64,
    /// The n-th sync from now fails (1: the next), once.
    pub(crate) fail_sync: AtomicU64,
    /// The n-th write from now fails, once.
    pub(crate) fail_write: AtomicU64,
    /// The n-th sync from now panics, once.
    pub(crate) panic_sync: AtomicU64,
    /// If true, writes and allocations find no space.
    pub(crate) full: AtomicBool,
    /// A thread makes files beside the flushes, of which only one is in flight.
    pub(crate) grows: AtomicBool,
    /// Number of allocations.
    pub(crate) allocations: AtomicU64,
    /// If true, allocations find no space.
    pub(crate) no_files: AtomicBool,
    /// What finds no space returns only once this is false.
    pub(crate) held: AtomicBool,
    /// Number of writes refused because the device is full.
    pub(crate) refused: AtomicU64,
    /// Number of syncs that are running.
    pub(crate) in_sync: AtomicUsize,
    /// Ranges that were written to each file.
    pub(crate) written: Mutex<BTreeMap<String, Vec<(u64, u64)>>>,
}

fn comes_due(counter: &AtomicU64) -> bool {
    let left = counter.load(Ordering::SeqCst);
    left > 0 && counter.fetch_sub(1, Ordering::SeqCst) == 1
}

#[derive(Debug, Clone)]
pub(crate) struct TestDevice {
    pub(crate) memory: MemoryDevice,
    pub(crate) control: Arc<Control>,
}

#[derive(Debug, Clone)]
pub(crate) struct TestFile {
    name: String,
    file: <MemoryDevice as Device>::File,
    control: Arc<Control>,
}

#[derive(Debug)]
pub(crate) struct NoChannel;

impl Channel for NoChannel {
    type File = TestFile;
    fn submit_read(&mut self, _: &TestFile, _: u64, buffer: IoBuf, _: u64) -> Result<(), IoBuf> {
        Err(buffer)
    }
    fn submit_write(&mut self, _: &TestFile, _: u64, buffer: IoBuf, _: u64) -> Result<(), IoBuf> {
        Err(buffer)
    }
    fn reap(&mut self, _: &mut Vec<Completion>) -> usize {
        0
    }
    fn wait(&mut self, _: Option<Duration>) {}
    fn in_flight(&self) -> usize {
        0
    }
    fn waker(&mut self) -> Waker {
        Waker::noop().clone()
    }
}

impl TestDevice {
    pub(crate) fn new() -> Self {
        Self {
            memory: MemoryDevice::new(1 << 30),
            control: Arc::new(Control::default()),
        }
    }

    /// Returns all bytes of a file.
    pub(crate) fn bytes_of(&self, name: &str) -> Vec<u8> {
        let file = self.memory.open(name, OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Waits until a flush has begun its sync.
    pub(crate) fn wait_for_sync(&self) {
        while self.control.in_sync.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
    }

    /// Returns a device with the same files.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        for name in self.memory.list().unwrap() {
            copy.overwrite(&name, 0, &self.bytes_of(&name));
        }
        copy
    }

    pub(crate) fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) {
        let options = OpenOptions::create(pando_device::Create::IfAbsent);
        let file = self.memory.open(name, options).unwrap();
        file.write_at(bytes, offset).unwrap();
    }
}

impl Device for TestDevice {
    type File = TestFile;
    type Channel = NoChannel;

    fn backend(&self) -> &'static str {
        "test"
    }
    fn open(&self, name: &str, options: OpenOptions) -> DeviceResult<TestFile> {
        Ok(TestFile {
            name: name.to_owned(),
            file: self.memory.open(name, options)?,
            control: self.control.clone(),
        })
    }
    fn remove(&self, name: &str) -> DeviceResult<()> {
        self.memory.remove(name)
    }
    fn rename(&self, name: &str, to: &str) -> DeviceResult<()> {
        self.memory.rename(name, to)
    }
    fn list(&self) -> DeviceResult<Vec<String>> {
        self.memory.list()
    }
    fn sync_directory(&self) -> DeviceResult<()> {
        self.memory.sync_directory()
    }
    fn channel(&self, _: ChannelOptions) -> DeviceResult<NoChannel> {
        Ok(NoChannel)
    }
    fn free_bytes(&self) -> DeviceResult<u64> {
        self.memory.free_bytes()
    }
}

impl TestFile {
    fn error(&self, operation: &'static str) -> DeviceError {
        let source = std::io::Error::from_raw_os_error(5);
        DeviceError::from_io(operation, &self.name, source)
    }

    fn check_space(&self, operation: &'static str) -> DeviceResult<()> {
        if !self.control.full.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.control.refused.fetch_add(1, Ordering::SeqCst);
        while self.control.held.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let source = std::io::Error::from_raw_os_error(28);
        Err(DeviceError::from_io(operation, &self.name, source))
    }
}

impl File for TestFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> DeviceResult<()> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> DeviceResult<()> {
        self.check_space("write")?;
        if comes_due(&self.control.fail_write) {
            return Err(self.error("write"));
        }
        let mut written = self.control.written.lock();
        let ranges = written.entry(self.name.clone()).or_default();
        ranges.push((offset, offset + bytes.len() as u64));
        drop(written);
        self.file.write_at(bytes, offset)
    }
    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> DeviceResult<()> {
        self.write_at(&parts.concat(), offset)
    }
    fn sync(&self) -> DeviceResult<()> {
        let others = self.control.in_sync.fetch_add(1, Ordering::SeqCst);
        let grows = self.control.grows.load(Ordering::SeqCst);
        assert!(others == 0 || grows, "two flushes are in flight");
        match self.control.sync_us.load(Ordering::SeqCst) {
            0 => thread::yield_now(),
            us => thread::sleep(Duration::from_micros(us)),
        }
        self.control.in_sync.fetch_sub(1, Ordering::SeqCst);
        assert!(!comes_due(&self.control.panic_sync), "planned panic");
        self.control.syncs.fetch_add(1, Ordering::SeqCst);
        if comes_due(&self.control.fail_sync) {
            return Err(self.error("sync"));
        }
        self.file.sync()
    }
    fn len(&self) -> DeviceResult<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> DeviceResult<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.check_space("allocate")?;
        if self.control.no_files.load(Ordering::SeqCst) {
            let source = std::io::Error::from_raw_os_error(28);
            return Err(DeviceError::from_io("allocate", &self.name, source));
        }
        self.control.allocations.fetch_add(1, Ordering::SeqCst);
        self.file.allocate(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.file.punch(offset, len)
    }
    fn alignment(&self) -> usize {
        self.file.alignment()
    }
    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }
}

/// Returns a signature that clients do not know.
pub(crate) fn signature_of(incarnation: u64) -> u64 {
    0x5ec2_e700_0000 + incarnation
}

pub(crate) fn options(segments: u32, incarnation: u64, start: u64) -> LogOptions {
    LogOptions {
        segment_bytes: SEGMENT as u32,
        segments,
        file_bytes: SEGMENT as u32,
        buffer_bytes: 48 << 10,
        identity: IDENTITY,
        incarnation,
        signature: signature_of(incarnation),
        start: Lsn(start),
        flush_method: FlushMethod::Auto,
    }
}

/// Opens a log with all its segments.
pub(crate) fn open<D: Device>(device: &D, options: LogOptions) -> Arc<Log<D>> {
    let log = Log::open(device.clone(), options, Arc::new(Statistics::new())).unwrap();
    log.make_all_files().unwrap();
    Arc::new(log)
}

/// Appends a record for which there is room, and marks it as applied.
pub(crate) fn append<D: Device>(log: &Log<D>, payload: &[u8]) -> Lsn {
    let reservation = log.try_reserve(payload.len()).unwrap().expect("room");
    let lsn = log.append(
        reservation,
        RecordKind::Batch,
        Acknowledge::WhenDurable,
        payload,
    );
    log.mark_applied(lsn);
    lsn
}

/// Appends a record, and waits for room if needed.
pub(crate) fn append_waiting<D: Device>(log: &Log<D>, payload: &[u8]) -> Result<Lsn, Error> {
    let acknowledge = Acknowledge::WhenDurable;
    loop {
        let mut reserved = log.try_reserve(payload.len())?;
        if reserved.is_none() {
            log.space_waiters().register(&thread_waker());
            reserved = log.try_reserve(payload.len())?;
        }
        if let Some(reservation) = reserved {
            return Ok(log.append(reservation, RecordKind::Batch, acknowledge, payload));
        }
        park();
    }
}

pub(crate) type Records = Vec<(Lsn, Vec<u8>)>;

pub(crate) fn read<D: Device>(
    device: &D,
    incarnation: u64,
    from: u64,
) -> Result<(Records, ReplayEnd), Error> {
    read_segments(device, SEGMENT as u32, incarnation, from)
}

/// As [`read`], with segments of `segment_bytes` bytes.
pub(crate) fn read_segments<D: Device>(
    device: &D,
    segment_bytes: u32,
    incarnation: u64,
    from: u64,
) -> Result<(Records, ReplayEnd), Error> {
    let options = ReplayOptions {
        segment_bytes,
        identity: IDENTITY,
        incarnation,
        signature: signature_of(incarnation),
        from: Lsn(from),
        expects_files: false,
    };
    let mut records = Vec::new();
    let end = replay(device, &options, |lsn, payload| {
        records.push((lsn, payload.to_vec()));
        Ok::<(), Error>(())
    })?;
    assert_eq!(end.records, records.len() as u64);
    Ok((records, end))
}

/// A waker that records that it was woken.
#[derive(Debug, Default)]
pub(crate) struct Report(AtomicBool);

impl Wake for Report {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Report {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let report = Arc::new(Self::default());
        (report.clone(), Waker::from(report))
    }

    pub(crate) fn woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until `done` returns true. Panics after 20 seconds, which is enough for a slow machine.
pub(crate) fn wait_until(what: &str, done: impl Fn() -> bool) {
    let begun = now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        thread::yield_now();
    }
}
