//! Which files of a directory are a store's, and whether there is a store.

use std::ffi::OsStr;
use std::path::Path;

use pando_device::{AnyDevice, AnyFile, Device, OpenOptions};

use crate::error::{Error, Result};
use crate::files::names::{CREATING, DATA, DUMP, HALF_DUMP, LOADING};
use crate::files::superblock::SUPERBLOCK;

/// A file in the directory that belongs to benchmarks of the device, not to the store.
pub(crate) const BENCH_FILE: &str = "bench-device.dat";

/// Returns true if a store makes files of this name.
pub(crate) fn is_ours(name: &str) -> bool {
    [DATA, CREATING, LOADING, SUPERBLOCK, BENCH_FILE].contains(&name)
        || ["map.", "journal.", "log/"]
            .iter()
            .any(|start| name.starts_with(start))
}

/// Returns true of a file beside which a store may be made: what services keep in their directory,
/// and the dump of a store that was there before.
pub(crate) fn may_lie_beside(name: &str) -> bool {
    if [DUMP, HALF_DUMP].contains(&name) {
        return true;
    }
    let end = Path::new(name).extension().and_then(OsStr::to_str);
    let is_of_service = end.is_some_and(|end| ["conf", "log", "pid", "toml"].contains(&end));
    is_of_service && !name.contains('/')
}

/// Checks that files of a store, without a superblock, are not what is left of one.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn check_no_remains(ours: &[String]) -> Result<()> {
    let is_creating = ours.iter().any(|name| name == CREATING);
    let by_itself = |name: &String| [BENCH_FILE, LOADING].contains(&name.as_str());
    if !is_creating && !ours.iter().all(by_itself) {
        return Err(Error::corrupt(
            SUPERBLOCK,
            "the file is missing, though others are there",
        ));
    }
    Ok(())
}

/// Checks that `names`, those of a directory, are not of a store that is half filled, from a dump
/// or by a salvage.
///
/// # Errors
/// [`Error::InvalidOption`].
pub(crate) fn check_not_loading(names: &[String]) -> Result<()> {
    if !names.iter().any(|name| name == LOADING) {
        return Ok(());
    }
    let what = "a dump that was being loaded into it, or what was being salvaged, is not there as a \
                whole: load it again, or salvage it again, or choose another directory";
    Err(Error::InvalidOption {
        option: "dir",
        what: what.to_owned(),
    })
}

/// Returns the error of a directory in which a store was to be.
pub(crate) fn no_store() -> Error {
    Error::InvalidOption {
        option: "dir",
        what: "there is no store in it".into(),
    }
}

/// Opens the superblock of the store on `device`.
///
/// # Errors
/// [`Error::Corrupt`] if it is missing, and other files of a store are there;
/// [`Error::InvalidOption`] if there is no store, or half of one.
pub(crate) fn open_superblock(device: &AnyDevice, how: OpenOptions) -> Result<AnyFile> {
    let names = device.list().map_err(Error::io("listing the directory"))?;
    check_not_loading(&names)?;
    match device.open(SUPERBLOCK, how) {
        Err(error) if error.is_not_found() => {}
        opened => return opened.map_err(Error::io("opening the superblock")),
    }
    let ours: Vec<String> = names.into_iter().filter(|name| is_ours(name)).collect();
    check_no_remains(&ours)?;
    Err(no_store())
}
