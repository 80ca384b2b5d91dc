//! Directories for tests, opened with the back ends that this kernel has.

use std::path::Path;

use pando_device::{Backend, DirectoryDevice, DirectoryOptions};

/// A tmpfs that every Linux has.
const TMPFS: &str = "/dev/shm";

/// Opens `path` with `backend` and no other. If the kernel refuses it, prints that and returns
/// `None`.
pub(crate) fn open(path: &Path, backend: Backend) -> Option<DirectoryDevice> {
    let options = DirectoryOptions {
        backend: Some(backend),
        strict: true,
        completion_threads: 3,
        ..DirectoryOptions::default()
    };
    match DirectoryDevice::open_with(path, options) {
        Ok(device) => Some(device),
        Err(pando_device::Error::Unavailable { backend, reason }) => {
            eprintln!("SKIPPED: {backend}: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs `case` over an empty directory with `backend`, if the kernel has it.
pub(crate) fn with(backend: Backend, case: impl FnOnce(DirectoryDevice)) {
    let place = tempfile::tempdir().unwrap();
    if let Some(device) = open(place.path(), backend) {
        case(device);
    }
}

/// Runs `case` as [`with`] does, on tmpfs, where a ring passes every read to a worker thread.
pub(crate) fn with_tmpfs(backend: Backend, case: impl FnOnce(DirectoryDevice)) {
    let Ok(place) = tempfile::tempdir_in(TMPFS) else {
        eprintln!("SKIPPED: no {TMPFS}");
        return;
    };
    if let Some(device) = open(place.path(), backend) {
        case(device);
    }
}
