//! A directory of files, locked against other processes.
//!
//! It is held open, and stays the same one when somebody renames it (decision 123).
//! The lock is held until the last handle of the device, of a channel and of a file is dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pando_sync::Arc;

use super::channel::DirectoryChannel;
use super::choice::{Backend, BackendChoice, Notes};
use super::file::DirectoryFile;
use super::lock::DirectoryLock;
use super::making::{make_durable, sync_path};
use super::probe::{self, DirectIo, Probe};
use super::root::Root;
use crate::device::{ChannelOptions, Create, Device, OpenOptions};
use crate::error::{Error, Result};
use crate::fork::ForkGuard;
use crate::libaio::LibaioChannel;
use crate::name;
use crate::pread::Pool;
use crate::uring::UringChannel;

/// Default number of threads that serve channels.
pub const COMPLETION_THREADS_DEFAULT: usize = 8;

/// Options for opening a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Open only for reading: nothing is made or changed, so that a directory without write
    /// permission works, and any number of readers can share it.
    pub read_only: bool,
    /// The back end of the channels, `None` for the best that works here.
    pub backend: Option<Backend>,
    /// Fail instead of using another back end.
    pub strict: bool,
    /// Maximum number of threads that serve channels where no better back end works, at least 1.
    pub completion_threads: usize,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            backend: None,
            strict: false,
            completion_threads: COMPLETION_THREADS_DEFAULT,
        }
    }
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct DirectoryDevice {
    inner: Arc<DirectoryInner>,
}

#[derive(Debug)]
struct DirectoryInner {
    /// Its path when it was opened, for messages.
    directory: PathBuf,
    root: Root,
    read_only: bool,
    strict: bool,
    direct: DirectIo,
    notes: Arc<Notes>,
    pool: Arc<Pool>,
    fork: Arc<ForkGuard>,
    lock: Arc<DirectoryLock>,
}

impl DirectoryDevice {
    /// Opens the directory `path` with channels that are served by at most `completion_threads`
    /// threads, which works everywhere. Otherwise like [`DirectoryDevice::open_with`].
    ///
    /// # Errors
    /// As [`DirectoryDevice::open_with`].
    pub fn open_directory(
        path: impl AsRef<Path>,
        read_only: bool,
        completion_threads: usize,
    ) -> Result<Self> {
        let options = DirectoryOptions {
            read_only,
            backend: Some(Backend::Pread),
            strict: true,
            completion_threads,
        };
        Self::open_with(path, options)
    }

    /// Removes the lock file if it was made by this opening: the directory is no place for a store,
    /// and nothing is left in it.
    pub fn remove_new_lock(&self) {
        self.inner.lock.remove_new(&self.inner.root);
    }

    /// Opens and locks the directory `path`. Makes it if it is absent and `options` allow that.
    ///
    /// # Errors
    /// `InUse` when it is open for writing elsewhere, or is open for reading and is to be opened
    /// for writing; `Unavailable` for a required back end that does not work; errors of the file
    /// system.
    pub fn open_with(path: impl AsRef<Path>, options: DirectoryOptions) -> Result<Self> {
        let path = path.as_ref();
        if !options.read_only {
            make_durable(path, sync_path)?;
        }
        let fail = |error| Error::from_io("open", &path.to_string_lossy(), error);
        let root = Root::open(path).map_err(fail)?;
        let directory = fs::canonicalize(path).map_err(fail)?;
        let lock = DirectoryLock::take(&root, &directory, options.read_only)?;
        let probe = match options.read_only {
            true => Probe::of_a_reader(),
            false => probe::look(&root).map_err(fail)?,
        };
        let notes = Notes::new(options.backend.unwrap_or(Backend::Uring));
        let fork = Arc::new(ForkGuard::new());
        let device = Self {
            inner: Arc::new(DirectoryInner {
                directory,
                root,
                read_only: options.read_only,
                strict: options.strict && options.backend.is_some(),
                direct: probe.direct.clone(),
                notes: Arc::new(notes),
                pool: Arc::new(Pool::new(options.completion_threads, fork.clone())),
                fork,
                lock: Arc::new(lock),
            }),
        };
        device.choose(options.backend, &probe)?;
        Ok(device)
    }

    /// Chooses the back end that is tried first for new channels.
    fn choose(&self, wanted: Option<Backend>, probe: &Probe) -> Result<()> {
        let inner = &self.inner;
        for backend in wanted.unwrap_or(Backend::Uring).and_next() {
            match self.objection(backend, wanted == Some(backend), probe) {
                None => {
                    inner.notes.set_used(backend);
                    return Ok(());
                }
                Some(reason) if inner.strict => return Err(Error::Unavailable { backend, reason }),
                Some(reason) => inner.notes.pass_over(backend, reason),
            }
        }
        panic!("nothing is held against pread");
    }

    /// Returns the reason against `backend`, if there is one. A back end that was asked for by name
    /// only has to work.
    fn objection(&self, backend: Backend, is_wanted: bool, probe: &Probe) -> Option<String> {
        match backend {
            Backend::Pread => return None,
            Backend::Uring if !is_wanted && probe.ring_hands_over.is_some() => {
                return probe.ring_hands_over.clone();
            }
            Backend::Libaio if !is_wanted => {
                if let DirectIo::Refused(why) = &probe.direct {
                    return Some(format!("it needs direct I/O, and {why}"));
                }
            }
            Backend::Uring | Backend::Libaio => {}
        }
        self.make(backend, ChannelOptions::new(1))
            .err()
            .map(|error| error.to_string())
    }

    fn make(&self, backend: Backend, options: ChannelOptions) -> Result<DirectoryChannel> {
        let inner = &self.inner;
        let fork = inner.fork.clone();
        let fail = |error| Error::from_io("set up", backend.name(), error);
        Ok(match backend {
            Backend::Uring => {
                let channel = UringChannel::new(options, inner.notes.clone(), fork);
                DirectoryChannel::Uring(Box::new(channel.map_err(fail)?))
            }
            Backend::Libaio => {
                DirectoryChannel::Libaio(LibaioChannel::new(options, fork).map_err(fail)?)
            }
            Backend::Pread => DirectoryChannel::Pread(Pool::channel(&inner.pool, options)?),
        })
    }

    /// Returns the back end of new channels, and those that were passed over so far.
    pub fn choice(&self) -> BackendChoice {
        self.inner.notes.choice()
    }

    /// Returns whether files of this directory can bypass the page cache, as measured when it was
    /// opened. For a read-only directory, each file tells.
    pub fn direct(&self) -> &DirectIo {
        &self.inner.direct
    }

    /// Returns the path that the directory had when it was opened.
    pub fn directory(&self) -> &Path {
        &self.inner.directory
    }

    /// Returns what makes an error of one about the directory as a whole.
    fn fail(&self, operation: &'static str) -> impl Fn(io::Error) -> Error {
        let name = self.inner.directory.to_string_lossy();
        move |error| Error::from_io(operation, &name, error)
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

impl Device for DirectoryDevice {
    type File = DirectoryFile;
    type Channel = DirectoryChannel;

    fn backend(&self) -> &'static str {
        self.inner.notes.used().name()
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<DirectoryFile> {
        name::check_open(name, options)?;
        self.inner.fork.check()?;
        if options.write {
            self.check_writable("open for writing", name)?;
        }
        if options.create != Create::Never
            && let Some((directory, _)) = name.split_once('/')
        {
            let made = self.inner.root.make_directory(directory);
            made.map_err(|error| Error::from_io("make", directory, error))?;
        }
        let (fork, lock) = (self.inner.fork.clone(), self.inner.lock.clone());
        DirectoryFile::open(&self.inner.root, name, options, fork, lock)
    }

    fn remove(&self, name: &str) -> Result<()> {
        name::check("remove", name)?;
        self.inner.fork.check()?;
        self.check_writable("remove", name)?;
        let removed = self.inner.root.remove(name);
        removed.map_err(|error| Error::from_io("remove", name, error))
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        name::check_rename(name, to)?;
        self.inner.fork.check()?;
        self.check_writable("rename", name)?;
        let renamed = self.inner.root.rename(name, to);
        // What is in the way of it has the new name.
        renamed.map_err(|error| Error::from_io("rename", to, error))
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names = self.inner.root.files().map_err(self.fail("list"))?;
        // Foreign files (and the lock) have no name here.
        names.retain(|name| name::check("list", name).is_ok());
        names.sort_unstable();
        Ok(names)
    }

    fn sync_directory(&self) -> Result<()> {
        self.inner.fork.check()?;
        self.inner.root.sync().map_err(self.fail("sync"))
    }

    fn channel(&self, options: ChannelOptions) -> Result<DirectoryChannel> {
        let inner = &self.inner;
        inner.fork.check()?;
        let mut refused = None;
        for backend in inner.notes.used().and_next() {
            match self.make(backend, options.clone()) {
                Ok(channel) => return Ok(channel),
                Err(error) => {
                    if !inner.strict {
                        inner.notes.pass_over(backend, error.to_string());
                    }
                    refused.get_or_insert(error);
                    if inner.strict {
                        break;
                    }
                }
            }
        }
        Err(refused.expect("one back end at least was tried"))
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.root.free_bytes().map_err(self.fail("measure"))
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        self.inner.fork.check()
    }
}
