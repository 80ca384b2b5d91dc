//! A whole run of `bench recovery`.

use pando_device::faulty::{Fault, FaultPlan, Operation};
use pando_device::{AnyDevice, InjectorDevice};
use pando_sync::time::{self, Duration};
use pandodb::{Batch, Durability, WriteOptions};

use super::options::RecoveryOptions;
use crate::error::{Error, Result};
use crate::phase::Observer;
use crate::place::Place;
use crate::random::Random;
use crate::record::Record;
use crate::store::{Store, check_directory};
use crate::values::Values;

const WORKLOAD: &str = "recovery";
/// Number of writes in a batch.
const BATCH: u64 = 16;
/// Bytes of log that the last flush may add to records.
const PADDING_BYTES: u64 = 64 << 10;
const NONE: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Fills a store, checkpoints it, writes a log after the checkpoint, and takes the device away;
/// then opens the store and reads a key.
///
/// # Errors
/// Options that make no sense, errors of the engine, a read that returns something other than what
/// was written, and a log that a checkpoint has shortened.
pub fn run(options: &RecoveryOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let kv = options.store();
    if let Some(path) = &kv.dir {
        check_directory(path, false)?;
    }
    let dir = kv.dir.as_deref();
    let place = Place::open(kv.io_backend, dir, kv.completion_threads, MEMORY_BYTES)?;
    let (number, version) = write_log(options, &place, observer)?;
    let began = time::now();
    let store = Store::open_on(&kv, place.device.clone())?;
    let keys = kv.keys();
    let (mut key, mut scratch) = (Vec::new(), Vec::new());
    keys.write(number, &mut key);
    let value = store.table.get(&key)?;
    let first_read = began.elapsed();
    let values = Values::sized(kv.value_sizes, kv.value_compress, kv.seed);
    let found = value.and_then(|value| values.check(number, &value, &mut scratch));
    if found != Some(version) {
        return Err(Error::Wrong {
            workload: WORKLOAD,
            what: format!("key {number} in version {found:?}, expected {version}"),
        });
    }
    let report = store.db.report();
    if report.recovery_log_bytes < options.log_bytes {
        let what = format!(
            "a checkpoint has cut the log short, {} bytes were replayed: a larger --max-memory, or \
             a smaller --num",
            report.recovery_log_bytes
        );
        return Err(Error::option("log-size", what));
    }
    let took = Duration::from_millis(report.recovery_ms.max(1));
    let mut record = Record::new(WORKLOAD, "ours", 1, kv.seed);
    record.ops = report.recovery_batches;
    record.elapsed_s = took.as_secs_f64();
    record.ops_per_s = report.recovery_batches as f64 / record.elapsed_s;
    record.log_bytes = Some(report.recovery_log_bytes);
    record.replayed_mb_per_s = Some(report.recovery_log_bytes as f64 / 1e6 / record.elapsed_s);
    record.first_read_ms = Some(first_read.as_secs_f64() * 1e3);
    record.io_backend = Some(report.io_backend.to_owned());
    record.page_size = Some(report.page_size);
    record.max_memory = Some(report.max_memory);
    record.num = Some(kv.num);
    record.batch = Some(BATCH);
    record.set_value_sizes(kv.value_sizes);
    observer.record(&record)?;
    store.close()
}

/// Capacity of a device in memory.
const MEMORY_BYTES: u64 = 64 << 30;

/// Leaves a store as a crash does, with a log after its checkpoint. Returns the key that was
/// written last, and the version of its value.
fn write_log(
    options: &RecoveryOptions,
    place: &Place,
    observer: &mut dyn Observer,
) -> Result<(u64, u32)> {
    let kv = options.store();
    let device = InjectorDevice::new(place.device.clone(), kv.seed);
    let store = Store::open_on(&kv, AnyDevice::from(device.clone()))?;
    let values = Values::sized(kv.value_sizes, kv.value_compress, kv.seed);
    let keys = kv.keys();
    let (mut key, mut value, mut batch) = (Vec::new(), Vec::new(), Batch::new());
    let mut write = |number: u64, version: u32, last: bool| -> Result<()> {
        keys.write(number, &mut key);
        values.write(number, version, &mut value);
        batch.put(&store.table, &key, &value);
        if last {
            store.db.write(&mut batch, NONE)?;
            batch.clear();
        }
        Ok(())
    };
    for number in 0..kv.num {
        write(
            number,
            0,
            number % BATCH == BATCH - 1 || number + 1 == kv.num,
        )?;
    }
    store.db.checkpoint()?;
    let mut random = Random::new(kv.seed, 0);
    let (mut number, mut version) = (0, 0);
    // Padding at the end is not replayed.
    let goal = options.log_bytes + PADDING_BYTES;
    loop {
        version += 1;
        for left in (0..BATCH).rev() {
            number = random.below(kv.num);
            write(number, version, left == 0)?;
        }
        let bytes = store.db.report().log_bytes;
        if bytes >= goal {
            break;
        }
        let share = bytes as f64 / goal as f64;
        observer.progress("writing the log", share, 0.0);
    }
    store.db.flush()?;
    // As after a power cut: from here on nothing reaches the files.
    for operation in [Operation::Write, Operation::Sync, Operation::Allocate] {
        device.fail(FaultPlan::sticky(operation, "", 1, Fault::Io));
    }
    // It cannot close cleanly.
    let _ = store.close();
    Ok((number, version))
}
