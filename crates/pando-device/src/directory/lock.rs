//! The lock of a directory against other processes and other devices of this one.
//!
//! It is an advisory lock of the operating system on the file `LOCK`, which ends with the process
//! in every case, so a crash leaves no lock.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::{Error, Result};
use crate::name;

/// The lock of a directory, released on drop.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    /// None for a read-only directory that was never opened for writing.
    _file: Option<fs::File>,
}

impl DirectoryLock {
    /// Locks `directory`, shared with other readers or exclusively.
    pub(super) fn take(directory: &Path, read_only: bool) -> Result<Self> {
        let path = directory.join(name::LOCK);
        let fail = |error| Error::from_io("lock", &path.to_string_lossy(), error);
        let mut how = fs::OpenOptions::new();
        how.read(true);
        if !read_only {
            how.write(true).create(true);
        }
        let file = match how.open(&path) {
            Ok(file) => file,
            // Without a lock file, nobody has the directory open for writing.
            Err(error) if read_only && error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { _file: None });
            }
            Err(error) => return Err(fail(error)),
        };
        let locked = if read_only {
            file.try_lock_shared()
        } else {
            file.try_lock()
        };
        match locked {
            Ok(()) => Ok(Self { _file: Some(file) }),
            Err(fs::TryLockError::WouldBlock) => Err(Error::InUse {
                directory: directory.to_string_lossy().into_owned(),
            }),
            Err(fs::TryLockError::Error(error)) => Err(fail(error)),
        }
    }
}
