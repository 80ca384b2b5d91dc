//! The back end as a value: chosen at run time, and dispatched by a `match`.
//!
//! Handles of different devices must not be mixed: using a file through a channel of another back
//! end is a programming error and panics.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_stats::Statistics;
use pando_sync::Arc;
use pando_sync::time::Duration;

use crate::buffer::IoBuf;
use crate::device::{Channel, ChannelOptions, Completion, Device, File, OpenOptions};
use crate::directory::{BackendChoice, DirectoryChannel, DirectoryDevice, DirectoryFile};
use crate::error::Result;
use crate::faulty::{FaultyChannel, FaultyDevice, FaultyFile};
use crate::injector::{InjectorChannel, InjectorDevice, InjectorFile};
use crate::memory::{MemoryChannel, MemoryDevice, MemoryFile};
use crate::null::{NullChannel, NullDevice, NullFile};
use crate::overlay::{OverlayChannel, OverlayDevice, OverlayFile};
use crate::read_context::ReadContext;
use crate::timed::{TimedChannel, TimedDevice, TimedFile};

/// A device of any back end.
#[derive(Debug, Clone)]
pub enum AnyDevice {
    /// Files of a directory.
    Directory(DirectoryDevice),
    /// Files in memory.
    Memory(MemoryDevice),
    /// Files without content.
    Null(NullDevice),
    /// Files in memory that fail on demand.
    Faulty(FaultyDevice),
    /// Faults over any of these.
    Injector(Box<InjectorDevice<AnyDevice>>),
    /// Any of these, counted and timed.
    Timed(Box<TimedDevice<AnyDevice>>),
    /// Any of these, only read: what is written stays in memory.
    Overlay(Box<OverlayDevice<AnyDevice>>),
}

/// A file of any back end.
#[derive(Debug, Clone)]
pub enum AnyFile {
    /// A file of a directory.
    Directory(DirectoryFile),
    /// A file in memory.
    Memory(MemoryFile),
    /// A file without content.
    Null(NullFile),
    /// A file in memory that fails on demand.
    Faulty(FaultyFile),
    /// A file of any of these, with faults.
    Injector(Box<InjectorFile<AnyFile>>),
    /// A file of any of these, counted and timed.
    Timed(Box<TimedFile<AnyFile>>),
    /// A file of any of these, whose writes stay in memory.
    Overlay(Box<OverlayFile<AnyFile>>),
}

/// A channel of any back end.
#[derive(Debug)]
pub enum AnyChannel {
    /// To files of a directory.
    Directory(DirectoryChannel),
    /// Requests that complete when the next one is submitted, or on a flush.
    Memory(MemoryChannel),
    /// Requests that complete at once and touch no bytes.
    Null(NullChannel),
    /// Requests that complete in an arbitrary order.
    Faulty(FaultyChannel),
    /// Any of these, with faults.
    Injector(Box<InjectorChannel<AnyChannel>>),
    /// Any of these, counted and timed.
    Timed(Box<TimedChannel<AnyChannel>>),
    /// Any of these, whose writes stay in memory.
    Overlay(Box<OverlayChannel<AnyChannel>>),
}

impl From<DirectoryDevice> for AnyDevice {
    fn from(device: DirectoryDevice) -> Self {
        Self::Directory(device)
    }
}

impl From<MemoryDevice> for AnyDevice {
    fn from(device: MemoryDevice) -> Self {
        Self::Memory(device)
    }
}

impl From<NullDevice> for AnyDevice {
    fn from(device: NullDevice) -> Self {
        Self::Null(device)
    }
}

impl AnyDevice {
    /// Gives up a directory that is not to be used: see [`DirectoryDevice::remove_new_lock`].
    pub fn give_up(&self) {
        if let Self::Directory(device) = self {
            device.remove_new_lock();
        }
    }

    /// Wraps the device so that it is counted and timed in `statistics`.
    pub fn timed(self, statistics: Arc<Statistics>) -> Self {
        Self::Timed(Box::new(TimedDevice::new(self, statistics)))
    }

    /// Returns the statistics in which requests are counted, new ones if they are not counted.
    pub fn statistics(&self) -> Arc<Statistics> {
        match self {
            Self::Timed(device) => device.statistics().clone(),
            Self::Overlay(device) => device.inner().statistics(),
            _ => Arc::default(),
        }
    }

    /// Returns whether this is a device for simulations, which crashes and fails on demand.
    pub fn is_simulated(&self) -> bool {
        match self {
            Self::Faulty(_) => true,
            Self::Injector(device) => device.inner().is_simulated(),
            Self::Timed(device) => device.inner().is_simulated(),
            Self::Overlay(device) => device.inner().is_simulated(),
            Self::Directory(_) | Self::Memory(_) | Self::Null(_) => false,
        }
    }

    /// Returns the back end that serves the channels, and those that were passed over, where there
    /// is a choice.
    pub fn choice(&self) -> Option<BackendChoice> {
        match self {
            Self::Directory(device) => Some(device.choice()),
            Self::Injector(device) => device.inner().choice(),
            Self::Timed(device) => device.inner().choice(),
            Self::Overlay(device) => device.inner().choice(),
            Self::Memory(_) | Self::Null(_) | Self::Faulty(_) => None,
        }
    }
}

impl From<InjectorDevice<AnyDevice>> for AnyDevice {
    fn from(device: InjectorDevice<AnyDevice>) -> Self {
        Self::Injector(Box::new(device))
    }
}

impl From<OverlayDevice<AnyDevice>> for AnyDevice {
    fn from(device: OverlayDevice<AnyDevice>) -> Self {
        Self::Overlay(Box::new(device))
    }
}

impl From<FaultyDevice> for AnyDevice {
    fn from(device: FaultyDevice) -> Self {
        Self::Faulty(device)
    }
}

/// Calls the same method on the back end that `$value` is.
macro_rules! each {
    ($kind:ident, $value:expr, $inner:ident => $call:expr) => {
        match $value {
            $kind::Directory($inner) => $call,
            $kind::Memory($inner) => $call,
            $kind::Null($inner) => $call,
            $kind::Faulty($inner) => $call,
            $kind::Injector($inner) => $call,
            $kind::Timed($inner) => $call,
            $kind::Overlay($inner) => $call,
        }
    };
}

/// Calls a method of the back end that a channel and a file both belong to.
macro_rules! of_one {
    ($channel:expr, $file:expr, $own:ident, $own_file:ident => $call:expr) => {
        match ($channel, $file) {
            (AnyChannel::Directory($own), AnyFile::Directory($own_file)) => $call,
            (AnyChannel::Memory($own), AnyFile::Memory($own_file)) => $call,
            (AnyChannel::Null($own), AnyFile::Null($own_file)) => $call,
            (AnyChannel::Faulty($own), AnyFile::Faulty($own_file)) => $call,
            (AnyChannel::Injector($own), AnyFile::Injector($own_file)) => $call,
            (AnyChannel::Timed($own), AnyFile::Timed($own_file)) => $call,
            (AnyChannel::Overlay($own), AnyFile::Overlay($own_file)) => $call,
            _ => panic!("a file goes through a channel of another back end"),
        }
    };
}

impl Device for AnyDevice {
    type File = AnyFile;
    type Channel = AnyChannel;

    fn backend(&self) -> &'static str {
        each!(AnyDevice, self, device => device.backend())
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<AnyFile> {
        Ok(match self {
            Self::Directory(device) => AnyFile::Directory(device.open(name, options)?),
            Self::Memory(device) => AnyFile::Memory(device.open(name, options)?),
            Self::Null(device) => AnyFile::Null(device.open(name, options)?),
            Self::Faulty(device) => AnyFile::Faulty(device.open(name, options)?),
            Self::Injector(device) => AnyFile::Injector(Box::new(device.open(name, options)?)),
            Self::Timed(device) => AnyFile::Timed(Box::new(device.open(name, options)?)),
            Self::Overlay(device) => AnyFile::Overlay(Box::new(device.open(name, options)?)),
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        each!(AnyDevice, self, device => device.remove(name))
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        each!(AnyDevice, self, device => device.rename(name, to))
    }

    fn list(&self) -> Result<Vec<String>> {
        each!(AnyDevice, self, device => device.list())
    }

    fn sync_directory(&self) -> Result<()> {
        each!(AnyDevice, self, device => device.sync_directory())
    }

    fn channel(&self, options: ChannelOptions) -> Result<AnyChannel> {
        Ok(match self {
            Self::Directory(device) => AnyChannel::Directory(device.channel(options)?),
            Self::Memory(device) => AnyChannel::Memory(device.channel(options)?),
            Self::Null(device) => AnyChannel::Null(device.channel(options)?),
            Self::Faulty(device) => AnyChannel::Faulty(device.channel(options)?),
            Self::Injector(device) => AnyChannel::Injector(Box::new(device.channel(options)?)),
            Self::Timed(device) => AnyChannel::Timed(Box::new(device.channel(options)?)),
            Self::Overlay(device) => AnyChannel::Overlay(Box::new(device.channel(options)?)),
        })
    }

    fn free_bytes(&self) -> Result<u64> {
        each!(AnyDevice, self, device => device.free_bytes())
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        each!(AnyDevice, self, device => device.check_process())
    }
}

impl File for AnyFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        each!(AnyFile, self, file => file.read_at(buffer, offset))
    }

    #[inline]
    fn read_at_with(
        &self,
        buffer: &mut [u8],
        offset: u64,
        context: &mut ReadContext,
    ) -> Result<()> {
        each!(AnyFile, self, file => file.read_at_with(buffer, offset, context))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        each!(AnyFile, self, file => file.write_at(bytes, offset))
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        each!(AnyFile, self, file => file.write_vectored_at(parts, offset))
    }

    fn sync(&self) -> Result<()> {
        each!(AnyFile, self, file => file.sync())
    }

    fn len(&self) -> Result<u64> {
        each!(AnyFile, self, file => file.len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        each!(AnyFile, self, file => file.set_len(len))
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        each!(AnyFile, self, file => file.allocate(offset, len))
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        each!(AnyFile, self, file => file.punch(offset, len))
    }

    fn alignment(&self) -> usize {
        each!(AnyFile, self, file => file.alignment())
    }

    fn is_direct(&self) -> bool {
        each!(AnyFile, self, file => file.is_direct())
    }
}

impl Channel for AnyChannel {
    type File = AnyFile;

    fn submit_read(
        &mut self,
        file: &AnyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        of_one!(self, file, channel, own => channel.submit_read(own, offset, buffer, tag))
    }

    fn submit_write(
        &mut self,
        file: &AnyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        of_one!(self, file, channel, own => channel.submit_write(own, offset, buffer, tag))
    }

    fn flush(&mut self) {
        each!(AnyChannel, self, channel => channel.flush());
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        each!(AnyChannel, self, channel => channel.reap(completions))
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        each!(AnyChannel, self, channel => channel.wait(timeout));
    }

    fn in_flight(&self) -> usize {
        each!(AnyChannel, self, channel => channel.in_flight())
    }

    fn waker(&mut self) -> Waker {
        each!(AnyChannel, self, channel => channel.waker())
    }

    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(AnyChannel, self, channel => channel.completion_fd())
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        each!(AnyChannel, self, channel => channel.buffers(count, len))
    }
}
