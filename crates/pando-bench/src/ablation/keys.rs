//! Ablations through the engine: `throttle`, `scatter-gather`, `fetch`. One store is filled first,
//! untimed, and opened again for what an open store cannot change.

use std::path::PathBuf;

use pando_device::{AnyDevice, MemoryDevice};
use pandodb::IoBackend;
use tempfile::TempDir;

use super::context::{Built, WithContext};
use super::options::AblationOptions;
use super::rounds::{self, Variant};
use crate::error::Result;
use crate::kv::{self, CallWay, Plainly};
use crate::options::{KvOptions, Workload};
use crate::phase::Observer;
use crate::place::temporary;
use crate::record::Record;
use crate::store::{Store, check_directory};
use crate::values::Values;

/// Approximate bytes of a key and its value in a leaf; tells how many keys fill the size.
const ENTRY_BYTES: u64 = 128;
/// A device in memory has room for this many times the size, since old pages wait for a checkpoint.
const DEVICE_TIMES: u64 = 8;
const DEVICE_SPARE_BYTES: u64 = 256 << 20;

/// A store that was filled and closed.
struct Filled {
    options: KvOptions,
    values: Values,
    /// The store's device, if it is in memory.
    device: Option<AnyDevice>,
    _directory: Option<TempDir>,
}

impl Filled {
    fn new(
        options: &AblationOptions,
        backend: IoBackend,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let (mut dir, mut directory, mut device) = (options.dir.clone(), None, None);
        if backend == IoBackend::Memory {
            let bytes = DEVICE_TIMES * options.size_bytes + DEVICE_SPARE_BYTES;
            device = Some(AnyDevice::from(MemoryDevice::new(bytes)));
        } else if dir.is_none() {
            let made = temporary()?;
            dir = Some(made.path().to_owned());
            directory = Some(made);
        }
        let mut filled = Self {
            options: kv_options(options, backend, dir),
            values: Values::sized(
                KvOptions::default().value_sizes,
                KvOptions::default().value_compress,
                options.seed,
            ),
            device,
            _directory: directory,
        };
        filled.options.check()?;
        if backend != IoBackend::Memory && options.use_existing_db {
            return Ok(filled);
        }
        filled.options.use_existing_db = false;
        let store = filled.open(&filled.options)?;
        let (options, values) = (&filled.options, &filled.values);
        kv::run_one(
            options,
            Workload::FillSeq,
            &store,
            values,
            &Plainly,
            observer,
        )?;
        store.close()?;
        filled.options.use_existing_db = backend != IoBackend::Memory;
        Ok(filled)
    }

    fn open(&self, options: &KvOptions) -> Result<Store> {
        match &self.device {
            Some(device) => Store::open_on(options, device.clone()),
            None => {
                let dir = options.dir.as_deref().expect("it is named or made");
                check_directory(dir, options.use_existing_db)?;
                Store::open(options)
            }
        }
    }

    /// One turn on an open store, of `num` operations.
    fn measure(
        &self,
        options: &KvOptions,
        workload: Workload,
        store: &Store,
        way: &impl CallWay,
        observer: &mut dyn Observer,
    ) -> Result<Record> {
        let mut record = kv::run_one(options, workload, store, &self.values, way, observer)?;
        record.size_bytes = Some(options.num * ENTRY_BYTES);
        Ok(record)
    }
}

fn kv_options(options: &AblationOptions, backend: IoBackend, dir: Option<PathBuf>) -> KvOptions {
    KvOptions {
        num: (options.size_bytes / ENTRY_BYTES).max(1),
        ops: Some(options.num()),
        threads: options.threads(),
        duration: options.duration,
        warmup: options.warmup,
        max_memory: options.max_memory,
        batch: options.batch,
        seed: options.seed,
        dir,
        use_existing_db: backend != IoBackend::Memory,
        io_backend: backend,
        queue_depth: Some(options.queue_depth),
        completion_threads: options.completion_threads,
        page_bytes: Some(options.page_bytes),
        ..KvOptions::default()
    }
}

/// Most reads in flight, of calls that could have more.
pub(super) fn throttle(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    const DEPTHS: [(&str, usize); 4] = [("16", 16), ("64", 64), ("120", 120), ("512", 512)];
    const ABOUT: &str = "so many reads in flight at most";
    let filled = Filled::new(options, options.io_backend, observer)?;
    let mut variants = DEPTHS.map(|(name, _)| Variant::other(name, ABOUT)).to_vec();
    variants.push(Variant::ours("as many as --queue-depth says"));
    let mut turn = |index: usize, observer: &mut dyn Observer| {
        let depth = DEPTHS
            .get(index)
            .map_or(options.queue_depth, |(_, depth)| *depth);
        let changed = KvOptions {
            queue_depth: Some(depth),
            ..filled.options.clone()
        };
        let store = filled.open(&changed)?;
        let workload = Workload::MultiReadRandom;
        let record = filled.measure(&changed, workload, &store, &Plainly, observer)?;
        store.close()?;
        Ok(record)
    };
    rounds::run(options, &variants, &mut turn, observer)
}

/// Reads many keys one after the other, or in one call.
pub(super) fn scatter_gather(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let filled = Filled::new(options, options.io_backend, observer)?;
    let variants = [
        Variant::other("off", "keys one after the other, each waiting for its page"),
        Variant {
            name: "on",
            about: "keys together, all their reads in flight at once",
            is_ours: true,
        },
    ];
    let store = filled.open(&filled.options)?;
    let mut turn = |index: usize, observer: &mut dyn Observer| {
        let workload = match variants[index].is_ours {
            true => Workload::MultiReadRandom,
            false => Workload::ReadRandom,
        };
        let options = &filled.options;
        let mut record = filled.measure(options, workload, &store, &Plainly, observer)?;
        record.workload = Workload::MultiReadRandom.name();
        Ok(record)
    };
    rounds::run(options, &variants, &mut turn, observer)?;
    store.close()
}

/// A context that is built for each read, or reused: over a device in memory, then beside a writer
/// on the device that was asked for.
pub(super) fn fetch(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let runs = [
        (Workload::ReadRandom, IoBackend::Memory),
        (Workload::ReadWhileWriting, options.io_backend),
    ];
    for (workload, backend) in runs {
        fetch_one(options, workload, backend, observer)?;
    }
    Ok(())
}

fn fetch_one(
    options: &AblationOptions,
    workload: Workload,
    backend: IoBackend,
    observer: &mut dyn Observer,
) -> Result<()> {
    let filled = Filled::new(options, backend, observer)?;
    let variants = [
        Variant::other("built", "each get builds a context and drops it"),
        Variant::ours("each thread has a context that each get puts back to its initial state"),
    ];
    let store = filled.open(&filled.options)?;
    let mut turn = |index: usize, observer: &mut dyn Observer| {
        let built = Built::new();
        let way = WithContext {
            is_reused: variants[index].is_ours,
            page_bytes: options.page_bytes,
            built: &built,
        };
        let options = &filled.options;
        let mut record = filled.measure(options, workload, &store, &way, observer)?;
        let ops = record.ops.max(1) as f64;
        record.constructions_per_op = Some(built.contexts() as f64 / ops);
        record.allocations_per_op = Some(built.allocations() as f64 / ops);
        Ok(record)
    };
    rounds::run(options, &variants, &mut turn, observer)?;
    store.close()
}
