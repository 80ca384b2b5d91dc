//! The file of the benchmark: filled once, and reused.

use pando_device::{AnyDevice, AnyFile, Create, Device, File, IoBuf, OpenOptions};
use pando_format::cast::usize_of;

use super::content;
use super::options::DeviceOptions;
use crate::error::{Error, Result};
use crate::phase::Observer;
use crate::random::Random;

/// Name of the file; a store in the same directory ignores it.
pub(crate) const NAME: &str = "bench-device.dat";

const FILL_BYTES: usize = 1 << 20;
/// Number of blocks of an existing file that are checked.
const SAMPLES: u64 = 64;

/// Opens the file; fills it unless it exists in the wanted size.
pub(crate) fn open(
    device: &AnyDevice,
    options: &DeviceOptions,
    observer: &mut dyn Observer,
) -> Result<AnyFile> {
    let how = OpenOptions::create(Create::IfAbsent).direct();
    let failed = Error::device("opening the file of the benchmark");
    let file = device.open(NAME, how).map_err(failed)?;
    let alignment = file.alignment();
    if !options.block_bytes.is_multiple_of(alignment) {
        let what = format!("the file system wants multiples of {alignment} bytes");
        return Err(Error::option("block-size", what));
    }
    if !is_filled(&file, options)? {
        fill(&file, options, observer)?;
    }
    Ok(file)
}

/// Returns true if an earlier run has left the file as this one needs it.
fn is_filled(file: &AnyFile, options: &DeviceOptions) -> Result<bool> {
    let failed = || Error::device("looking at the file of the benchmark");
    if file.len().map_err(failed())? != options.file_bytes() {
        return Ok(false);
    }
    let mut block = IoBuf::new(options.block_bytes);
    let last = options.blocks() - 1;
    // The last block first, since files are filled in order.
    for sample in (0..=SAMPLES).rev() {
        let index = u128::from(last) * u128::from(sample) / u128::from(SAMPLES);
        let index = u64::try_from(index).expect("a part of a number of blocks");
        let offset = index * options.block_bytes as u64;
        file.read_at(&mut block, offset).map_err(failed())?;
        if !content::is_at(&block, offset) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn fill(file: &AnyFile, options: &DeviceOptions, observer: &mut dyn Observer) -> Result<()> {
    let failed = || Error::device("filling the file of the benchmark");
    // Truncated first, so that a fill that is interrupted is detected.
    file.set_len(0).map_err(failed())?;
    let bytes = options.file_bytes();
    let mut random = Random::new(options.seed, u64::MAX);
    let mut chunk = IoBuf::new(FILL_BYTES.next_multiple_of(options.block_bytes));
    let chunk_bytes = chunk.len() as u64;
    for offset in (0..bytes).step_by(chunk.len()) {
        let len = chunk_bytes.min(bytes - offset);
        chunk.set_len(usize_of(len));
        content::scramble(&mut chunk, &mut random);
        content::place(&mut chunk, offset);
        file.write_at(&chunk, offset).map_err(failed())?;
        observer.progress(
            "filling the file",
            (offset + len) as f64 / bytes as f64,
            0.0,
        );
    }
    file.sync().map_err(failed())
}
