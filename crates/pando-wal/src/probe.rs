//! Measures which flush method is faster: drives and file systems differ by 2 to 10 times.
//!
//! Both methods take turns at overwriting a place of their own in a prepared file that no life uses
//! yet (a cached page slows down direct writes to it). The minimum time of each counts, since
//! disturbances only add time. Devices without direct files (those of tests among them) are not
//! measured, so that their runs are reproducible.

use pando_device::{Device, File, IoBuf, OpenOptions};
use pando_format::log::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES};
use pando_sync::time;

use crate::error::Result;
use crate::options::FlushMethod;

const ROUNDS: usize = 12;
/// Distance between the two places in bytes.
const APART_BYTES: u64 = 32 << 10;

/// Measures both methods on the file `name`, whose content after the header is dead.
pub(crate) fn quicker<D: Device>(device: &D, name: &str) -> Result<FlushMethod> {
    let direct = device.open(name, OpenOptions::write().direct())?;
    if !direct.is_direct() {
        return Ok(FlushMethod::Buffered);
    }
    let buffered = device.open(name, OpenOptions::write())?;
    let mut direct_least = time::Duration::MAX;
    let mut buffered_least = time::Duration::MAX;
    for _ in 0..ROUNDS {
        direct_least = direct_least.min(flush_time(&direct, 0)?);
        buffered_least = buffered_least.min(flush_time(&buffered, APART_BYTES)?);
    }
    // Direct unless it is clearly slower, since it leaves the page cache to the data.
    if direct_least <= buffered_least + buffered_least / 8 {
        Ok(FlushMethod::Direct)
    } else {
        Ok(FlushMethod::Buffered)
    }
}

fn flush_time<F: File>(file: &F, place: u64) -> Result<time::Duration> {
    let sector = IoBuf::new(SEGMENT_HEADER_BYTES);
    let began = time::now();
    file.write_at(&sector, SEGMENT_HEADER_BYTES as u64 + place)?;
    file.sync()?;
    Ok(began.elapsed())
}

const _: () = assert!(APART_BYTES + 2 * SEGMENT_HEADER_BYTES as u64 <= SEGMENT_BYTES_MIN as u64);
