//! A directory of files, locked against other processes.
//!
//! The lock is an advisory lock of the operating system on the file `LOCK`: it ends with the
//! process, however that ends, so a crash leaves nothing behind that blocks. It is held until the
//! last handle of the device, of a channel and of a file has gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pando_sync::Arc;

use super::file::PreadFile;
use super::pool::{Pool, PreadChannel};
use super::system;
use crate::device::{ChannelOptions, Create, Device, OpenOptions};
use crate::error::{Error, Result};
use crate::name;

/// Threads that serve channels, unless said otherwise.
pub const COMPLETION_THREADS_DEFAULT: usize = 8;

/// The lock of a directory; dropping it releases it.
#[derive(Debug)]
pub(super) struct DirectoryLock {
    /// Absent when a directory is read that was never opened for writing.
    _file: Option<fs::File>,
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct PreadDevice {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    directory: PathBuf,
    read_only: bool,
    pool: Arc<Pool>,
    lock: Arc<DirectoryLock>,
}

impl PreadDevice {
    /// Opens the directory `path`, which is made when it is absent, and locks it; at most
    /// `completion_threads` threads serve the channels.
    ///
    /// With `read_only` nothing is made or changed, so that a directory without write permission
    /// works, and any number of readers share the directory.
    ///
    /// # Errors
    /// `InUse` when it is open for writing elsewhere, or for reading and is wanted for writing.
    pub fn open_directory(
        path: impl AsRef<Path>,
        read_only: bool,
        completion_threads: usize,
    ) -> Result<Self> {
        let path = path.as_ref();
        if !read_only {
            make_durable_directory(path)?;
        }
        // Absolute, so that a change of the working directory changes nothing.
        let directory = fs::canonicalize(path)
            .map_err(|error| Error::from_io("open", &path.to_string_lossy(), error))?;
        let lock = lock_directory(&directory, read_only)?;
        Ok(Self {
            inner: Arc::new(Inner {
                directory,
                read_only,
                pool: Arc::new(Pool::new(completion_threads)),
                lock: Arc::new(lock),
            }),
        })
    }

    /// Where the files are.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    fn check_writable(&self, operation: &'static str, name: &str) -> Result<()> {
        if self.inner.read_only {
            return Err(Error::from_kind(
                operation,
                name,
                io::ErrorKind::ReadOnlyFilesystem,
            ));
        }
        Ok(())
    }
}

fn sync_path(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Makes `path` and what is missing above it, each durable in its parent.
fn make_durable_directory(path: &Path) -> Result<()> {
    let fail = |error| Error::from_io("make", &path.to_string_lossy(), error);
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.as_os_str().is_empty() && !ancestor.exists())
        .collect();
    fs::create_dir_all(path).map_err(fail)?;
    for made in missing {
        let parent = match made.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        sync_path(parent).map_err(fail)?;
    }
    Ok(())
}

fn lock_directory(directory: &Path, read_only: bool) -> Result<DirectoryLock> {
    let path = directory.join(name::LOCK);
    let fail = |error| Error::from_io("lock", &path.to_string_lossy(), error);
    let mut how = fs::OpenOptions::new();
    how.read(true);
    if !read_only {
        how.write(true).create(true);
    }
    let file = match how.open(&path) {
        Ok(file) => file,
        // Nobody has it open for writing, or there would be a lock file.
        Err(error) if read_only && error.kind() == io::ErrorKind::NotFound => {
            return Ok(DirectoryLock { _file: None });
        }
        Err(error) => return Err(fail(error)),
    };
    let locked = if read_only {
        file.try_lock_shared()
    } else {
        file.try_lock()
    };
    match locked {
        Ok(()) => Ok(DirectoryLock { _file: Some(file) }),
        Err(fs::TryLockError::WouldBlock) => Err(Error::InUse {
            directory: directory.to_string_lossy().into_owned(),
        }),
        Err(fs::TryLockError::Error(error)) => Err(fail(error)),
    }
}

/// Calls `found` with the name of each entry and whether it is a directory.
fn read_directory(path: &Path, mut found: impl FnMut(String, bool)) -> Result<()> {
    let fail = |error| Error::from_io("list", &path.to_string_lossy(), error);
    for entry in fs::read_dir(path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let kind = entry.file_type().map_err(fail)?;
        if let Ok(name) = entry.file_name().into_string()
            && (kind.is_file() || kind.is_dir())
        {
            found(name, kind.is_dir());
        }
    }
    Ok(())
}

impl Device for PreadDevice {
    type File = PreadFile;
    type Channel = PreadChannel;

    fn backend(&self) -> &'static str {
        "pread"
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<PreadFile> {
        name::check_open(name, options)?;
        if options.write {
            self.check_writable("open for writing", name)?;
        }
        if options.create != Create::Never
            && let Some((directory, _)) = name.split_once('/')
        {
            match fs::create_dir(self.inner.directory.join(directory)) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::from_io("make", directory, error));
                }
                _ => {}
            }
        }
        let path = self.inner.directory.join(name);
        PreadFile::open(&path, name, options, self.inner.lock.clone())
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        self.check_writable("remove", name)?;
        fs::remove_file(self.inner.directory.join(name))
            .map_err(|error| Error::from_io("remove", name, error))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut directories = Vec::new();
        read_directory(&self.inner.directory, |name, is_directory| {
            if is_directory {
                directories.push(name);
            } else {
                names.push(name);
            }
        })?;
        for directory in directories {
            read_directory(&self.inner.directory.join(&directory), |name, is_dir| {
                if !is_dir {
                    names.push(format!("{directory}/{name}"));
                }
            })?;
        }
        // Foreign files (and the lock) have no name here.
        names.retain(|name| name::check("list", name).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self) -> Result<()> {
        let root = &self.inner.directory;
        let mut directories = vec![root.clone()];
        read_directory(root, |name, is_directory| {
            if is_directory {
                directories.push(root.join(name));
            }
        })?;
        for directory in directories {
            sync_path(&directory)
                .map_err(|error| Error::from_io("sync", &directory.to_string_lossy(), error))?;
        }
        Ok(())
    }

    fn channel(&self, options: ChannelOptions) -> Result<PreadChannel> {
        self.inner.pool.channel(options)
    }

    fn free_bytes(&self) -> Result<u64> {
        let directory = &self.inner.directory;
        system::free_bytes(directory)
            .map_err(|error| Error::from_io("measure", &directory.to_string_lossy(), error))
    }
}
