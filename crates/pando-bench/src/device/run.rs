//! A whole run of `bench device`.

use pando_device::{AnyDevice, ChannelOptions, Device, File};

use super::file;
use super::options::DeviceOptions;
use super::requests::{DevicePlan, Requests};
use crate::error::{Error, Result};
use crate::phase::{self, Measured, Observer, Phase};
use crate::place::Place;
use crate::record::Record;

/// Space of a device in memory, in addition to the file.
const MEMORY_SPARE_BYTES: u64 = 1 << 20;

/// Runs all workloads of `options`, and reports each to `observer`.
///
/// # Errors
/// Options that make no sense, errors of the device, and reads that return something other than
/// what was written; the run ends there.
pub fn run(options: &DeviceOptions, observer: &mut dyn Observer) -> Result<()> {
    options.check()?;
    let place = Place::open(
        options.io_backend,
        options.dir.as_deref(),
        options.completion_threads,
        options.file_bytes() + MEMORY_SPARE_BYTES,
    )?;
    let file = file::open(&place.device, options, observer)?;
    for workload in &options.workloads {
        let plan = DevicePlan {
            options,
            workload: *workload,
            file: &file,
            is_checked: place.device.backend() != "null",
            total: options.total(),
        };
        let record = run_one(&plan, &place.device, observer)?;
        observer.record(&record)?;
    }
    Ok(())
}

/// Runs the workload of `plan`.
pub(crate) fn run_one(
    plan: &DevicePlan<'_>,
    device: &AnyDevice,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let (options, workload) = (plan.options, plan.workload);
    let phase = Phase {
        name: workload.name(),
        threads: options.threads,
        beside: false,
        total: plan.total,
        duration: options.duration,
        warmup: options.warmup,
        interval: options.interval,
        rate: None,
        call_ops: 1,
    };
    let make = |index| {
        let how = ChannelOptions::new(options.queue_depth);
        let channel = device
            .channel(how)
            .map_err(Error::device("making an I/O channel"))?;
        let region = phase.share(options.blocks(), index);
        Ok(Requests::new(plan, channel, region, index))
    };
    let measured = phase::run(&phase, make, observer, &mut || ())?;
    Ok(record(plan, device, &measured))
}

fn record(plan: &DevicePlan<'_>, device: &AnyDevice, measured: &Measured) -> Record {
    let options = plan.options;
    let name = plan.workload.name();
    let mut record = Record::new(name, "ours", options.threads, options.seed);
    record.set_measured(measured);
    record.io_backend = Some(device.backend().to_owned());
    record.direct_io = Some(plan.file.is_direct());
    record.queue_depth = Some(options.queue_depth);
    record.block_size_bytes = Some(options.block_bytes);
    record.size_bytes = Some(options.file_bytes());
    record.interval_s = options.interval.map(|interval| interval.as_secs_f64());
    record
}
