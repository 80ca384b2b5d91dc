//! The counts of a timed device: for each ticker and measure of this layer there is an operation
//! that moves it, by exactly what was done.

use pando_device::faulty::plan::{Fault, FaultPlan, Operation};
use pando_device::{
    AnyDevice, AnyFile, Channel, ChannelOptions, Completion, Create, Device, File, InjectorDevice,
    IoBuf, MemoryDevice, OpenOptions,
};
use pando_stats::{Layer, Measure, Statistics, Ticker, Totals};
use pando_sync::Arc;

struct Rig {
    device: AnyDevice,
    injector: InjectorDevice<AnyDevice>,
    file: AnyFile,
    statistics: Arc<Statistics>,
}

fn rig() -> Rig {
    let statistics = Arc::new(Statistics::new());
    let injector = InjectorDevice::new(AnyDevice::from(MemoryDevice::new(1 << 20)), 1);
    let device = AnyDevice::from(injector.clone()).timed(statistics.clone());
    let file = device
        .open("data", OpenOptions::create(Create::New))
        .unwrap();
    file.set_len(1 << 16).unwrap();
    Rig {
        device,
        injector,
        file,
        statistics,
    }
}

impl Rig {
    /// Runs `run`. Returns the change of all tickers, and how many values each measure got.
    fn counted(&self, run: impl FnOnce(&Self)) -> (Totals, Vec<u64>) {
        let measured = || -> Vec<u64> {
            let of = |measure: &Measure| self.statistics.histogram(*measure).count();
            Measure::ALL.iter().map(of).collect()
        };
        let (ticks, before) = (self.statistics.snapshot(), measured());
        run(self);
        let after = measured();
        let values = after.iter().zip(&before).map(|(now, then)| now - then);
        (self.statistics.snapshot().since(&ticks), values.collect())
    }

    /// Runs one request for each element of `writes` to its end. Returns true if all succeed.
    fn request(&self, writes: &[bool], bytes: usize) -> bool {
        let mut channel = self.device.channel(ChannelOptions::new(8)).unwrap();
        for (tag, write) in writes.iter().enumerate() {
            let buffer = IoBuf::new(bytes);
            let submitted = match write {
                true => channel.submit_write(&self.file, 0, buffer, 70 + tag as u64),
                false => channel.submit_read(&self.file, 0, buffer, 70 + tag as u64),
            };
            submitted.unwrap();
        }
        let mut ended: Vec<Completion> = Vec::new();
        while channel.in_flight() > 0 {
            channel.wait(None);
            channel.reap(&mut ended);
        }
        let mut tags: Vec<u64> = ended.iter().map(|one| one.tag).collect();
        tags.sort_unstable();
        let expected: Vec<u64> = (70..70 + writes.len() as u64).collect();
        assert_eq!(tags, expected, "completions have the caller's tags");
        ended.iter().all(|one| one.result.is_ok())
    }
}

/// A drive: the name of what moves, the operation, and the expected change.
type Drive = (&'static str, fn(&Rig), u64);

fn fail(rig: &Rig, operation: Operation) {
    rig.injector
        .fail(FaultPlan::once(operation, "data", 1, Fault::Io));
}

const DRIVES: [Drive; 14] = [
    (
        "device_read_bytes",
        |rig| rig.file.read_at(&mut [0; 300], 7).unwrap(),
        300,
    ),
    (
        "device_read_bytes",
        |rig| assert!(rig.request(&[false, true, false], 512)),
        1024,
    ),
    (
        "device_write_bytes",
        |rig| rig.file.write_at(&[1; 200], 7).unwrap(),
        200,
    ),
    (
        "device_write_bytes",
        |rig| {
            rig.file
                .write_vectored_at(&[&[1; 200], &[2; 100]], 7)
                .unwrap()
        },
        300,
    ),
    (
        "device_write_bytes",
        |rig| assert!(rig.request(&[false, true, true], 512)),
        1024,
    ),
    (
        "device_errors",
        |rig| {
            fail(rig, Operation::Read);
            rig.file.read_at(&mut [0; 300], 7).unwrap_err();
        },
        1,
    ),
    (
        "device_errors",
        |rig| {
            fail(rig, Operation::Sync);
            rig.file.sync().unwrap_err();
        },
        1,
    ),
    (
        "device_errors",
        |rig| {
            fail(rig, Operation::Write);
            assert!(!rig.request(&[true, true], 512));
        },
        1,
    ),
    (
        "device_read_ns",
        |rig| rig.file.read_at(&mut [0; 300], 7).unwrap(),
        1,
    ),
    (
        "device_read_ns",
        |rig| assert!(rig.request(&[false, true, false], 512)),
        2,
    ),
    (
        "device_write_ns",
        |rig| rig.file.write_at(&[1; 200], 7).unwrap(),
        1,
    ),
    (
        "device_write_ns",
        |rig| assert!(rig.request(&[false, true, false], 512)),
        1,
    ),
    ("device_sync_ns", |rig| rig.file.sync().unwrap(), 1),
    (
        "device_queue_depth",
        |rig| assert!(rig.request(&[false, true, false], 512)),
        3,
    ),
];

#[test]
fn everything_of_this_layer_moves_by_what_is_done() {
    for (name, drive, by) in DRIVES {
        let (ticks, values) = rig().counted(drive);
        let ticked = ticks.iter().find(|(of, _)| of.name() == name);
        let measured = Measure::ALL.iter().position(|of| of.name() == name);
        let moved = ticked
            .map(|(_, count)| count)
            .or_else(|| measured.map(|at| values[at]));
        assert_eq!(moved, Some(by), "{name}");
    }
    let is_driven = |name| DRIVES.iter().any(|(driven, ..)| *driven == name);
    let tickers = Ticker::ALL.iter().filter(|of| of.layer() == Layer::Device);
    let measures = Measure::ALL.iter().filter(|of| of.layer() == Layer::Device);
    let names = tickers
        .map(|of| of.name())
        .chain(measures.map(|of| of.name()));
    for name in names {
        assert!(is_driven(name), "nothing drives {name}");
    }
}

#[test]
fn the_depth_of_a_queue_is_what_was_in_flight() {
    let rig = rig();
    assert!(rig.request(&[true; 5], 64));
    let depths = rig.statistics.histogram(Measure::DeviceQueueDepth);
    assert_eq!((depths.count(), depths.sum(), depths.max()), (5, 15, 5));
}
