//! What a workload made the engine write, until it had finished what it put off, and what the
//! store takes on disk then.
//!
//! Two counts, the same for all engines. `/proc/self/io` has what the process gave to the kernel
//! for the disk: direct writes when they are made, pages of the page cache when they become dirty;
//! one that is written again before the kernel came to it counts once. The device that holds the
//! directory has what arrived there, metadata of the file system included, and from everybody: it
//! means something where nobody else writes to it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pando_bench::Result;
use serde::Serialize;

use crate::disk::Disk;
use crate::engine::Engine;
use crate::options::failed;

/// Of `/sys/dev/block/*/stat`, whatever the device calls a sector.
const SECTOR_BYTES: u64 = 512;
/// Field of that file.
const SECTORS_WRITTEN: usize = 6;

/// Counts at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Counts {
    disk: Option<Disk>,
    device_bytes: Option<u64>,
    engine: Vec<(&'static str, u64)>,
}

/// What came in between.
#[derive(Debug, Clone, Serialize)]
pub struct Writes {
    /// Bytes of keys and values that were written.
    pub user_bytes: u64,
    /// Bytes that the process gave to the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_bytes: Option<u64>,
    /// Bytes that the device of the directory got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// What the engine counts itself.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub engine: std::collections::BTreeMap<&'static str, u64>,
    /// Bytes of the store's files on disk.
    pub store_bytes: u64,
    /// These, in keys and values that the store holds.
    pub space_amplification: f64,
    /// `process_bytes` in `user_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
}

impl Counts {
    /// As of now, for the device that has `dir`.
    pub(crate) fn now(engine: &dyn Engine, dir: &Path) -> Self {
        Self {
            disk: Disk::now(),
            device_bytes: device_bytes(dir),
            engine: engine.write_counts(),
        }
    }
}

impl Writes {
    /// Since `before`, for `user_bytes`, into a store of `data_bytes`.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(crate) fn since(
        before: &Counts,
        engine: &dyn Engine,
        dir: &Path,
        user_bytes: u64,
        data_bytes: u64,
    ) -> Result<Self> {
        let process = Disk::now()
            .zip(before.disk)
            .map(|(after, before)| after.since(before).write_bytes);
        flush(dir)?;
        let after = Counts::now(engine, dir);
        let counted = after.engine.iter().zip(&before.engine);
        let store_bytes = store_bytes(dir)?;
        let ratio = |bytes: u64, of: u64| bytes as f64 / of.max(1) as f64;
        Ok(Self {
            user_bytes,
            process_bytes: process,
            device_bytes: after
                .device_bytes
                .zip(before.device_bytes)
                .map(|(after, before)| after.saturating_sub(before)),
            engine: counted
                .map(|((name, after), (_, before))| (*name, after - before))
                .collect(),
            store_bytes,
            space_amplification: ratio(store_bytes, data_bytes),
            write_amplification: process.map(|bytes| ratio(bytes, user_bytes)),
        })
    }
}

/// Has the kernel write what it holds for the file system of `dir`.
fn flush(dir: &Path) -> Result<()> {
    let status = Command::new("sync").arg("-f").arg(dir).status();
    status.map(drop).map_err(failed("sync -f"))
}

fn device_bytes(dir: &Path) -> Option<u64> {
    let device = fs::metadata(dir).ok()?.dev();
    // As the C library splits the number.
    let major = (device >> 8 & 0xfff) | (device >> 32 & !0xfff);
    let minor = (device & 0xff) | (device >> 12 & !0xff & 0xffff_ffff);
    let stat = fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    sectors_written(&stat).map(|sectors| sectors * SECTOR_BYTES)
}

fn sectors_written(stat: &str) -> Option<u64> {
    stat.split_whitespace().nth(SECTORS_WRITTEN)?.parse().ok()
}

/// Bytes of the blocks of all files, as `du` sees them.
fn store_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut left: Vec<PathBuf> = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let shown = format!("reading {}", dir.display());
        for entry in fs::read_dir(&dir).map_err(failed(shown.clone()))? {
            let entry = entry.map_err(failed(shown.clone()))?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => left.push(entry.path()),
                Ok(metadata) => bytes += metadata.blocks() * 512,
                // A file that the engine has just removed.
                Err(_) => {}
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{sectors_written, store_bytes};
    use std::fs;

    /// The field is that of sectors written in the statistics of a block device.
    #[test]
    fn the_seventh_field_counts_what_was_written() {
        let stat = "  1  2  3  4  5  6  7007  8  9 10 11\n";
        assert_eq!(sectors_written(stat), Some(7007));
        assert_eq!(sectors_written("1 2 3"), None);
    }

    /// The size of a store is that of the blocks of its files, including those in folders.
    #[test]
    fn files_count_with_their_blocks_in_all_folders() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::write(dir.path().join("data"), [1; 10_000]).unwrap();
        fs::write(dir.path().join("log/0"), [1; 5000]).unwrap();
        let bytes = store_bytes(dir.path()).unwrap();
        assert!((15_000..60_000).contains(&bytes), "{bytes}");
    }
}
