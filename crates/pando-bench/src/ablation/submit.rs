//! `submit`: each read handed to the device by itself, or as many together as the channel likes.
//!
//! Only channels that keep requests back differ: over the others both are the same.

use pando_device::Device;

use super::options::AblationOptions;
use super::rounds::{self, Variant};
use crate::device::requests::Plan;
use crate::device::run::run_one;
use crate::device::{DeviceOptions, DeviceWorkload, file};
use crate::error::Result;
use crate::phase::Observer;
use crate::place::Place;

/// Space of a device in memory beside the file.
const MEMORY_SPARE_BYTES: u64 = 1 << 20;

/// Options of the layer below that stand for those of the ablation.
pub(super) fn device_options(options: &AblationOptions) -> Result<DeviceOptions> {
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

/// The device that the options ask for.
pub(super) fn place(options: &DeviceOptions) -> Result<Place> {
    Place::open(
        options.io_backend,
        options.dir.as_deref(),
        options.completion_threads,
        options.file_bytes() + MEMORY_SPARE_BYTES,
    )
}

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let below = device_options(options)?;
    let place = place(&below)?;
    let file = file::open(&place.device, &below, observer)?;
    let variants = [
        Variant::other("single", "a system call for each read"),
        Variant::ours("a system call for as many as are ready"),
    ];
    let mut turn = |index: usize, observer: &mut dyn Observer| {
        let plan = Plan {
            options: &below,
            workload: DeviceWorkload::RandRead,
            file: &file,
            is_checked: place.device.backend() != "null",
            one_by_one: !variants[index].is_ours,
            total: options.total(),
        };
        run_one(&plan, &place.device, observer)
    };
    rounds::run(options, &variants, &mut turn, observer)
}
