//! `pread-handles`: blocking reads of many threads, each by a descriptor that it takes from a pool
//! behind a semaphore, or all by one that they share.

use pando_device::{AnyDevice, AnyFile, Device, File, IoBuf, OpenOptions};
use pando_sync::{Condvar, Mutex, Rank};

use super::options::AblationOptions;
use super::rounds::{self, Variant};
use crate::device::{DeviceOptions, DeviceWorkload, content, file};
use crate::error::{Error, Result};
use crate::phase::{self, Calls, Done, Observer, Phase};
use crate::place::Place;
use crate::random::Random;
use crate::record::Record;

const WORKLOAD: &str = "randread";
/// Descriptors of the pool: fewer than threads, as in the source document, whose pool is what
/// bounds the reads in flight.
const HANDLES: usize = 8;
/// Space of a device in memory beside the file.
const MEMORY_SPARE_BYTES: u64 = 1 << 20;

/// Where a thread gets the descriptor for its read.
#[derive(Debug)]
enum Handles {
    Shared(AnyFile),
    Pool(HandlePool),
}

/// A pool of descriptors, and the threads that wait for one.
#[derive(Debug)]
struct HandlePool {
    idle: Mutex<Vec<AnyFile>>,
    returned: Condvar,
}

impl HandlePool {
    fn open(device: &AnyDevice) -> Result<Self> {
        let open = |_| {
            let file = device.open(file::NAME, OpenOptions::read().direct());
            file.map_err(Error::device("opening the file of the benchmark once more"))
        };
        Ok(Self {
            idle: Mutex::new(Rank::Leaf, (0..HANDLES).map(open).collect::<Result<_>>()?),
            returned: Condvar::new(),
        })
    }

    fn take(&self) -> AnyFile {
        let mut idle = self.idle.lock();
        loop {
            match idle.pop() {
                Some(file) => return file,
                None => idle = self.returned.wait(idle),
            }
        }
    }

    fn give_back(&self, file: AnyFile) {
        self.idle.lock().push(file);
        self.returned.notify_one();
    }
}

impl Handles {
    fn read(&self, buffer: &mut IoBuf, offset: u64) -> Result<()> {
        let failed = Error::device("reading a block");
        match self {
            Self::Shared(file) => file.read_at(buffer, offset).map_err(failed),
            Self::Pool(pool) => {
                let file = pool.take();
                let result = file.read_at(buffer, offset);
                pool.give_back(file);
                result.map_err(failed)
            }
        }
    }
}

/// The reads of one thread.
struct HandleReads<'a> {
    handles: &'a Handles,
    blocks: u64,
    buffer: IoBuf,
    random: Random,
}

impl Calls for HandleReads<'_> {
    fn call(&mut self, _limit: u64) -> Result<Option<Done>> {
        let offset = self.random.below(self.blocks) * self.buffer.len() as u64;
        self.handles.read(&mut self.buffer, offset)?;
        if !content::is_at(&self.buffer, offset) {
            return Err(Error::Wrong {
                workload: WORKLOAD,
                what: format!("the block at {offset} is another one"),
            });
        }
        Ok(Some(Done { ops: 1, found: 1 }))
    }
}

/// Returns the options of the layer below that correspond to those of the ablation.
fn device_options(options: &AblationOptions) -> Result<DeviceOptions> {
    let device = DeviceOptions {
        workloads: vec![DeviceWorkload::RandRead],
        block_bytes: options.page_bytes,
        size_bytes: options.size_bytes,
        queue_depth: options.queue_depth,
        threads: options.threads(),
        duration: options.duration,
        warmup: options.warmup,
        interval: None,
        seed: options.seed,
        dir: options.dir.clone(),
        io_backend: options.io_backend,
        completion_threads: options.completion_threads,
    };
    device.check()?;
    Ok(device)
}

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let below = device_options(options)?;
    let place = Place::open(
        below.io_backend,
        below.dir.as_deref(),
        below.completion_threads,
        below.file_bytes() + MEMORY_SPARE_BYTES,
    )?;
    let file = file::open(&place.device, &below, observer)?;
    let (backend, is_direct) = (place.device.backend(), file.is_direct());
    let variants = [
        Variant::other("pool", "a pool of descriptors behind a semaphore"),
        Variant::ours("one descriptor that all share"),
    ];
    let handles = [
        Handles::Pool(HandlePool::open(&place.device)?),
        Handles::Shared(file),
    ];
    let mut turn = |index: usize, observer: &mut dyn Observer| {
        let phase = Phase {
            name: WORKLOAD,
            threads: options.threads(),
            beside: false,
            total: options.total(),
            duration: options.duration,
            warmup: options.warmup,
            interval: None,
            rate: None,
            call_ops: 1,
        };
        let make = |thread: usize| {
            Ok(HandleReads {
                handles: &handles[index],
                blocks: below.blocks(),
                buffer: IoBuf::new(below.block_bytes),
                random: Random::new(options.seed, thread as u64),
            })
        };
        let measured = phase::run(&phase, make, observer, &mut || ())?;
        let mut record = Record::new(WORKLOAD, "ours", options.threads(), options.seed);
        record.set_measured(&measured);
        record.io_backend = Some(backend.to_owned());
        record.direct_io = Some(is_direct);
        record.block_size_bytes = Some(below.block_bytes);
        record.size_bytes = Some(below.file_bytes());
        record.handles = Some(if variants[index].is_ours { 1 } else { HANDLES });
        Ok(record)
    };
    rounds::run(options, &variants, &mut turn, observer)
}
