//! The traits: a directory of files, a file, and a channel of requests in flight.
//!
//! Any thread may call a blocking method. A channel belongs to one event loop at a time. A channel
//! may hold back submitted requests to pass several to the device at once: after submitting, the
//! caller calls `flush`, `reap` or `wait` before it does anything else. The conformance tests of
//! this crate check what a back end must do beyond these signatures.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use crate::buffer::IoBuf;
use crate::error::Result;
use crate::read_context::ReadContext;

/// Maximum number of completions that one [`Channel::reap`] takes.
pub const REAP_MAX: usize = 64;

/// Whether opening may make the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Create {
    /// The file must exist.
    #[default]
    Never,
    /// The file is made, empty, if it does not exist.
    IfAbsent,
    /// The file is made, empty; it is an error if it exists.
    New,
}

/// How a file is opened. The default reads an existing file through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Whether the file may be made; needs `write`.
    pub create: Create,
    /// Bypass the page cache where the file system can: see [`File::is_direct`].
    pub direct: bool,
    /// Open for reading and writing, not only for reading.
    pub write: bool,
}

impl OpenOptions {
    /// Opens an existing file for reading.
    pub fn read() -> Self {
        Self::default()
    }

    /// Opens an existing file for reading and writing.
    pub fn write() -> Self {
        Self {
            write: true,
            ..Self::default()
        }
    }

    /// Opens a file for reading and writing, and makes it as `create` says.
    pub fn create(create: Create) -> Self {
        Self {
            create,
            write: true,
            ..Self::default()
        }
    }

    /// Adds bypassing the page cache.
    pub fn direct(self) -> Self {
        Self {
            direct: true,
            ..self
        }
    }
}

/// Options of a channel. See [`Device::channel`].
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Maximum number of requests in flight, at least 1.
    pub depth: usize,
    /// Woken when a completion arrives at an empty queue, unless [`Channel::completion_fd`] reports
    /// it. Runs on any thread and must not block.
    pub notify: Waker,
}

impl ChannelOptions {
    /// Options of a channel of `depth` requests that wakes nobody, for callers of
    /// [`Channel::wait`].
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            notify: Waker::noop().clone(),
        }
    }

    /// Makes the channel wake `waker`.
    pub fn notify(self, waker: Waker) -> Self {
        Self {
            notify: waker,
            ..self
        }
    }
}

/// A directory of named files. Clones are handles of the same one.
///
/// A name is one or two components joined by '/', each of letters, digits, '.', '_' and '-', not
/// beginning with '.'; the name `LOCK` is reserved.
pub trait Device: Debug + Clone + Send + Sync + 'static {
    /// Open files.
    type File: File;
    /// Requests in flight.
    type Channel: Channel<File = Self::File>;

    /// Name of the back end for reports: "uring", "libaio", "pread", "memory", "null", "faulty".
    fn backend(&self) -> &'static str;

    /// Opens a file. If the file may be made, the directory part of its name is made, too.
    fn open(&self, name: &str, options: OpenOptions) -> Result<Self::File>;

    /// Removes a name. Open handles remain valid.
    fn remove(&self, name: &str) -> Result<()>;

    /// Gives a file another name in the same directory, and takes it from the file that has had it,
    /// if there is one: at any moment, and after a crash, the new name leads to the one or to the
    /// other. Open handles remain valid.
    fn rename(&self, name: &str, to: &str) -> Result<()>;

    /// Returns the sorted names of all files, those in directories as `directory/file`.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes all creations, removals and new names so far durable.
    fn sync_directory(&self) -> Result<()>;

    /// Makes a channel for one event loop, or for the blocking calls of one thread at a time.
    ///
    /// # Errors
    /// When the system refuses what the channel needs (a ring, a context, threads).
    fn channel(&self, options: ChannelOptions) -> Result<Self::Channel>;

    /// Returns the number of bytes that can still be written.
    fn free_bytes(&self) -> Result<u64>;

    /// Checks that this process made the device. For callers that wait for threads of that process,
    /// which a forked child does not have. Costs one load.
    ///
    /// # Errors
    /// `Forked` in such a child.
    #[inline]
    fn check_process(&self) -> Result<()> {
        Ok(())
    }
}

/// An open file. Clones are handles of the same one. All methods block.
pub trait File: Debug + Clone + Send + Sync + 'static {
    /// Fills `buffer` from `offset` on. For a direct file, buffer, offset and length must be
    /// aligned.
    ///
    /// # Errors
    /// `ShortRead` when the file ends early, `Unaligned`. The content of the buffer is undefined
    /// then.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// Like [`File::read_at`], with a reusable context of the caller in its initial state. The
    /// device may leave notes for the caller in it; most devices do not.
    ///
    /// # Errors
    /// As [`File::read_at`].
    #[inline]
    fn read_at_with(
        &self,
        buffer: &mut [u8],
        offset: u64,
        _context: &mut ReadContext,
    ) -> Result<()> {
        self.read_at(buffer, offset)
    }

    /// Writes all of `bytes` at `offset`, and extends the file if necessary.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Writes `parts` one after the other from `offset` on, with one system call where possible.
    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()>;

    /// Makes content and length durable (not the name: see [`Device::sync_directory`]).
    ///
    /// # Errors
    /// After a failure it is unknown which writes since the last success are durable, and a later
    /// success does not change that. Callers do not retry.
    fn sync(&self) -> Result<()>;

    /// Returns the length in bytes.
    fn len(&self) -> Result<u64>;

    /// Returns whether the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates the file, or extends it by zeros without allocating.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Allocates space for `offset .. offset + len`, and extends the file to that end. Existing
    /// bytes stay, and new ones are zeros. A full disk is reported here, not at the write. If it
    /// fails, the file is as long as before: nothing that was found beyond its end is kept.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Gives back the space of `offset .. offset + len`, which then reads as zeros. The length
    /// stays.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;

    /// Returns the alignment in bytes of offsets, lengths and buffers: 1 unless
    /// [`File::is_direct`].
    fn alignment(&self) -> usize;

    /// Returns whether the file bypasses the page cache.
    fn is_direct(&self) -> bool;
}

/// Requests in flight of one event loop.
///
/// The channel owns a buffer from its submission until its completion is reaped. A channel may be
/// dropped with requests in flight: their buffers are freed when the device is done with them, and
/// their writes may or may not happen until then.
pub trait Channel: Debug + Send {
    /// The files that can be read and written.
    type File: File;

    /// Queues a read of `buffer.len()` bytes at `offset`. The completion returns `tag`. Never
    /// blocks.
    ///
    /// # Errors
    /// Returns the buffer when as many requests are in flight as the channel's depth allows.
    fn submit_read(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf>;

    /// Queues a write of all of `buffer`, otherwise like [`Channel::submit_read`]. Requests in
    /// flight have no order among each other.
    ///
    /// # Errors
    /// As [`Channel::submit_read`].
    fn submit_write(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf>;

    /// Passes all queued requests to the device. Never blocks. `reap` and `wait` do it, too.
    fn flush(&mut self) {}

    /// Appends up to [`REAP_MAX`] completions and returns their number. Never blocks. If some
    /// remain, the channel's `notify` waker is woken again.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Blocks until there is a completion to reap, `timeout` has passed, or the channel's
    /// [`Channel::waker`] is woken. May return early without a reason. Returns at once when nothing
    /// is in flight.
    fn wait(&mut self, timeout: Option<Duration>);

    /// Returns the number of requests that were submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// Returns a waker that makes the running [`Channel::wait`], or else the next one, return
    /// early. Any thread may wake it, even after the channel was dropped.
    fn waker(&mut self) -> Waker;

    /// Returns a descriptor that becomes readable when completions arrive (an edge each time), for
    /// callers that also wait for sockets. They ask for it before the first submission, flush
    /// before they wait, and are also woken by `notify` when a reap leaves completions. `None`
    /// means that `notify` of the channel's options reports all completions.
    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Makes `count` buffers of `len` bytes, of the kind that is fastest with this channel. They
    /// also work with every other channel, and may outlive this one.
    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        IoBuf::many(count, len)
    }
}

/// A finished request.
#[derive(Debug)]
pub struct Completion {
    /// As given at submission.
    pub tag: u64,
    /// As given at submission. The buffer of a read is filled if `result` is `Ok`, otherwise its
    /// content is undefined.
    pub buffer: IoBuf,
    /// Whether all bytes were read or written.
    pub result: Result<()>,
}
