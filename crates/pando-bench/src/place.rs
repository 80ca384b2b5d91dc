//! Where a benchmark below the engine puts its file: a device of the requested back end, over a
//! named directory, a temporary one, or none.

use std::path::Path;

use pando_device::{AnyDevice, MemoryDevice};
use pandodb::IoBackend;
use tempfile::TempDir;

use crate::error::{Error, Result};

/// Default number of threads of a back end that uses threads; the same as the engine's.
const COMPLETION_THREADS: usize = 16;

/// A device. Its temporary directory is removed with it.
#[derive(Debug)]
pub(crate) struct Place {
    /// Use it only as long as this lives.
    pub(crate) device: AnyDevice,
    _directory: Option<TempDir>,
}

impl Place {
    /// Opens `dir`, or a temporary directory; a device in memory holds at most `memory_bytes`.
    pub(crate) fn open(
        backend: IoBackend,
        dir: Option<&Path>,
        completion_threads: Option<usize>,
        memory_bytes: u64,
    ) -> Result<Self> {
        if backend == IoBackend::Memory {
            return Ok(Self {
                device: MemoryDevice::new(memory_bytes).into(),
                _directory: None,
            });
        }
        let directory = match dir {
            None if backend.has_files() => Some(temporary()?),
            _ => None,
        };
        let path = match (&directory, dir) {
            (Some(directory), _) => directory.path(),
            (None, named) => named.unwrap_or_else(|| Path::new("")),
        };
        let threads = completion_threads.unwrap_or(COMPLETION_THREADS);
        let device = backend.open_device(path, threads)?;
        Ok(Self {
            device,
            _directory: directory,
        })
    }
}

/// Creates a directory that is removed with its handle.
pub(crate) fn temporary() -> Result<TempDir> {
    TempDir::with_prefix("pando-bench-").map_err(|source| Error::Io {
        during: "making a temporary directory".to_owned(),
        source,
    })
}
