//! The lock of a directory against other processes and other devices of this one.
//!
//! It is an advisory lock of the operating system on the file `LOCK`, which ends with the process
//! in every case, so a crash leaves no lock. The directory itself is locked in the same way: people
//! remove files of this name, which other programs leave behind, and the next process would make
//! another one. Some file systems over a network lock no directories; there the file has to do.
//!
//! A forked child has the same locks until it executes another program, or ends. So closing the
//! files would not do: the locks are given back, by the process that took them.

use std::fs;
use std::io;
use std::path::Path;
use std::process;

use super::root::Root;
use crate::device::{Create, OpenOptions};
use crate::error::{Error, Result};
use crate::name;

/// The lock of a directory, released on drop.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    /// None for a read-only directory that was never opened for writing.
    _file: Option<LockedFile>,
    /// None where directories cannot be locked.
    _directory: Option<LockedFile>,
    /// It has made the lock file.
    is_new: bool,
}

/// A file that is locked until this is dropped by the process that has locked it.
#[derive(Debug)]
struct LockedFile {
    file: fs::File,
    pid: u32,
}

impl LockedFile {
    /// Locks a file, shared with other readers or exclusively.
    fn lock(file: fs::File, read_only: bool) -> std::result::Result<Self, NotLocked> {
        let locked = match read_only {
            true => file.try_lock_shared(),
            false => file.try_lock(),
        };
        match locked {
            Ok(()) => Ok(Self {
                file,
                pid: process::id(),
            }),
            Err(fs::TryLockError::Error(error)) => Err(NotLocked::Failed(error)),
            // Those who read leave it to others who do. Closing the file ends this lock.
            Err(fs::TryLockError::WouldBlock) => Err(NotLocked::InUse {
                by_readers: !read_only && file.try_lock_shared().is_ok(),
            }),
        }
    }
}

/// Why a file is not locked.
enum NotLocked {
    /// Somebody else has locked it.
    InUse {
        /// They only read. It may have changed since.
        by_readers: bool,
    },
    /// It cannot be locked.
    Failed(io::Error),
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if process::id() == self.pid {
            // If it fails, closing the file does it, unless a child has it.
            let _ = self.file.unlock();
        }
    }
}

impl DirectoryLock {
    /// Locks `root`, whose path is `directory`, shared with other readers or exclusively.
    pub(super) fn take(root: &Root, directory: &Path, read_only: bool) -> Result<Self> {
        let path = directory.join(name::LOCK);
        let fail = |error| Error::from_io("lock", &path.to_string_lossy(), error);
        let found = match read_only {
            true => root.open_file(name::LOCK, OpenOptions::read(), 0),
            false => root.open_file(name::LOCK, OpenOptions::create(Create::Never), 0),
        };
        let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let is_new = !read_only && found.as_ref().is_err_and(is_absent);
        let found = match is_new {
            // Another process may have made it meanwhile: then one of the two gets the lock.
            true => root.open_file(name::LOCK, OpenOptions::create(Create::IfAbsent), 0),
            false => found,
        };
        let file = match found {
            Ok(file) => Some(file),
            // Without a lock file, nobody has the directory open for writing.
            Err(error) if read_only && is_absent(&error) => None,
            Err(error) => return Err(fail(error)),
        };
        let in_use = |by_readers| Error::InUse {
            directory: directory.to_string_lossy().into_owned(),
            by_readers,
        };
        let file = match file
            .map(|file| LockedFile::lock(file, read_only))
            .transpose()
        {
            Ok(file) => file,
            Err(NotLocked::InUse { by_readers }) => return Err(in_use(by_readers)),
            Err(NotLocked::Failed(error)) => return Err(fail(error)),
        };
        let opened = root.reopen().map_err(fail)?;
        let locked = match LockedFile::lock(opened, read_only) {
            Ok(locked) => Some(locked),
            Err(NotLocked::InUse { by_readers }) => return Err(in_use(by_readers)),
            Err(NotLocked::Failed(_)) => None,
        };
        Ok(Self {
            _file: file,
            _directory: locked,
            is_new,
        })
    }

    /// Removes the lock file, if this has made it. The directory stays locked by its other lock,
    /// where there is one.
    pub(super) fn remove_new(&self, root: &Root) {
        if self.is_new {
            // What is left of it is harmless.
            let _: io::Result<()> = root.remove(name::LOCK);
        }
    }
}
