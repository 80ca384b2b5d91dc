//! The traits: a directory of files, a file, and a channel of requests in flight.
//!
//! A blocking method may be called by any thread; a channel belongs to one event loop at a time.
//! A channel may keep submitted requests back to hand several to the device at once: who submits
//! calls `flush`, `reap` or `wait` before it turns to anything else.
//! What a back end must do beyond these signatures is in the conformance tests of this crate.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use crate::buffer::IoBuf;
use crate::error::Result;
use crate::read_context::ReadContext;

/// Most completions that one [`Channel::reap`] takes.
pub const REAP_MAX: usize = 64;

/// Whether opening may make the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Create {
    /// The file must exist.
    #[default]
    Never,
    /// Made empty when it does not exist.
    IfAbsent,
    /// Made empty; an error when it exists.
    New,
}

/// How a file is opened. The default reads an existing file through the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Whether the file may be made; needs `write`.
    pub create: Create,
    /// Past the page cache where the file system can: see [`File::is_direct`].
    pub direct: bool,
    /// Reading and writing, not only reading.
    pub write: bool,
}

impl OpenOptions {
    /// An existing file, for reading.
    pub fn read() -> Self {
        Self::default()
    }

    /// An existing file, for reading and writing.
    pub fn write() -> Self {
        Self {
            write: true,
            ..Self::default()
        }
    }

    /// For reading and writing; made as `create` says.
    pub fn create(create: Create) -> Self {
        Self {
            create,
            write: true,
            ..Self::default()
        }
    }

    /// The same, past the page cache.
    pub fn direct(self) -> Self {
        Self {
            direct: true,
            ..self
        }
    }
}

/// What a channel is made for. See [`Device::channel`].
#[derive(Debug, Clone)]
pub struct ChannelOptions {
    /// Requests that may be in flight at a time; at least 1.
    pub depth: usize,
    /// Woken when a completion meets an empty queue, unless [`Channel::completion_fd`] tells of
    /// it; runs on any thread and must not block.
    pub notify: Waker,
}

impl ChannelOptions {
    /// A channel of `depth` requests that any thread may use and that wakes nobody: for those who
    /// call [`Channel::wait`].
    pub fn new(depth: usize) -> Self {
        Self {
            depth,
            notify: Waker::noop().clone(),
        }
    }

    /// The same, waking `waker`.
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
/// beginning with '.'; the name `LOCK` is taken.
pub trait Device: Debug + Clone + Send + Sync + 'static {
    /// Open files.
    type File: File;
    /// Requests in flight.
    type Channel: Channel<File = Self::File>;

    /// Name of the back end for reports: "uring", "libaio", "pread", "memory", "null", "faulty".
    fn backend(&self) -> &'static str;

    /// Opens a file; the directory part of its name is made when the file may be.
    fn open(&self, name: &str, options: OpenOptions) -> Result<Self::File>;

    /// Removes a name. Open handles go on working.
    fn remove(&self, name: &str) -> Result<()>;

    /// Names of all files, sorted, those in directories as `directory/file`.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes creations and removals up to now durable.
    fn sync_directory(&self) -> Result<()>;

    /// A channel for one event loop, or for the blocking calls of one thread at a time.
    ///
    /// # Errors
    /// What the channel takes of the system (a ring, a context, threads) is not to be had.
    fn channel(&self, options: ChannelOptions) -> Result<Self::Channel>;

    /// Bytes that can still be written.
    fn free_bytes(&self) -> Result<u64>;

    /// For whoever waits for threads of the process that made the device: a forked child has none
    /// of them. Costs one load.
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
    /// Fills `buffer` from `offset`. Of a direct file, buffer, offset and length are aligned.
    ///
    /// # Errors
    /// `ShortRead` when the file ends early, `Unaligned`; the buffer's content is then undefined.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()>;

    /// As [`File::read_at`], with a context that the caller uses again and again: it is in its
    /// initial state, and the device may note in it what the caller may want to know. Most do not.
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

    /// Writes all of `bytes` at `offset`, extending the file when need be.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;

    /// Writes `parts` one behind the other from `offset`, with one system call where possible.
    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()>;

    /// Makes content and length durable (not the name: see [`Device::sync_directory`]).
    ///
    /// # Errors
    /// After a failure nothing is known about what was written since the last success; a later
    /// success does not say more. Callers do not retry.
    fn sync(&self) -> Result<()>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// True if the length is 0.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts the file, or extends it by zeros without allocating.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Allocates space for `offset .. offset + len` and extends the file to its end; existing bytes
    /// stay, new ones are zeros. A full disk shows here, not at the write.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Gives the space of `offset .. offset + len` back; it reads as zeros; the length stays.
    ///
    /// # Errors
    /// `Unsupported` where the file system cannot.
    fn punch(&self, offset: u64, len: u64) -> Result<()>;

    /// What offsets, lengths and buffers must be multiples of: 1 unless [`File::is_direct`].
    fn alignment(&self) -> usize;

    /// True if the file goes past the page cache.
    fn is_direct(&self) -> bool;
}

/// Requests in flight of one event loop.
///
/// The channel owns a buffer from its submission until its completion is reaped. A channel may be
/// dropped with requests in flight: their buffers are freed when the device is done with them, and
/// a write among them may happen, or not, until then.
pub trait Channel: Debug + Send {
    /// The files that can be read and written.
    type File: File;

    /// Queues a read of `buffer.len()` bytes; `tag` comes back with the completion. Never blocks.
    ///
    /// # Errors
    /// Gives the buffer back when as many requests are in flight as the channel's depth allows.
    fn submit_read(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf>;

    /// Queues a write of all of `buffer`; otherwise as [`Channel::submit_read`]. Requests in
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

    /// Hands everything that is queued to the device. Never blocks. `reap` and `wait` do it too.
    fn flush(&mut self) {}

    /// Appends up to [`REAP_MAX`] completions and returns how many. Never blocks. When it leaves
    /// some behind, the channel's waker is woken again.
    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize;

    /// Blocks until there is a completion to reap, `timeout` has passed, or the channel's
    /// [`Channel::waker`] is woken; may return early for no reason. Returns at once when nothing
    /// is in flight.
    fn wait(&mut self, timeout: Option<Duration>);

    /// Requests submitted and not yet reaped.
    fn in_flight(&self) -> usize;

    /// A waker that makes the [`Channel::wait`] that runs, or else the next one, return early.
    /// Any thread may wake it, also when the channel has gone.
    fn waker(&mut self) -> Waker;

    /// A descriptor that becomes readable when completions come (an edge each time), for those who
    /// wait for sockets at the same time. They ask for it before the first submission, flush before
    /// they wait, and are woken by `notify`, too, when a reap leaves some behind. `None`: `notify`
    /// of the channel's options tells of all completions.
    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// `count` buffers of `len` bytes, of the kind that is quickest with this channel. They work
    /// with every other, and outlive it.
    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        IoBuf::many(count, len)
    }
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion {
    /// As given at submission.
    pub tag: u64,
    /// As given at submission; of a read filled if `result` is `Ok`, else of undefined content.
    pub buffer: IoBuf,
    /// Whether all bytes were read or written.
    pub result: Result<()>,
}
