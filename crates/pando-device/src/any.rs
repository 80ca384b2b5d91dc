//! The back end as a value: chosen at run time, dispatched by a `match`.
//!
//! Handles of different devices do not mix: using a file through a channel of another back end is
//! a programmer error and panics.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use crate::buffer::IoBuf;
use crate::device::{Channel, ChannelOptions, Completion, Device, File, OpenOptions};
use crate::error::Result;
use crate::faulty::{FaultyChannel, FaultyDevice, FaultyFile};
use crate::memory::{MemoryChannel, MemoryDevice, MemoryFile};
use crate::pread::{PreadChannel, PreadDevice, PreadFile};
use crate::read_context::ReadContext;

/// A device of any back end.
#[derive(Debug, Clone)]
pub enum AnyDevice {
    /// Files of a directory.
    Pread(PreadDevice),
    /// Files in memory.
    Memory(MemoryDevice),
    /// Files in memory that fail on demand.
    Faulty(FaultyDevice),
}

/// A file of any back end.
#[derive(Debug, Clone)]
pub enum AnyFile {
    /// Of a directory.
    Pread(PreadFile),
    /// In memory.
    Memory(MemoryFile),
    /// In memory, failing on demand.
    Faulty(FaultyFile),
}

/// A channel of any back end.
#[derive(Debug)]
pub enum AnyChannel {
    /// Served by a pool of threads.
    Pread(PreadChannel),
    /// Done at once.
    Memory(MemoryChannel),
    /// Done in an arbitrary order.
    Faulty(FaultyChannel),
}

impl From<PreadDevice> for AnyDevice {
    fn from(device: PreadDevice) -> Self {
        Self::Pread(device)
    }
}

impl From<MemoryDevice> for AnyDevice {
    fn from(device: MemoryDevice) -> Self {
        Self::Memory(device)
    }
}

impl From<FaultyDevice> for AnyDevice {
    fn from(device: FaultyDevice) -> Self {
        Self::Faulty(device)
    }
}

/// Calls the same method on whichever back end `$value` is.
macro_rules! each {
    ($kind:ident, $value:expr, $inner:ident => $call:expr) => {
        match $value {
            $kind::Pread($inner) => $call,
            $kind::Memory($inner) => $call,
            $kind::Faulty($inner) => $call,
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
            Self::Pread(device) => AnyFile::Pread(device.open(name, options)?),
            Self::Memory(device) => AnyFile::Memory(device.open(name, options)?),
            Self::Faulty(device) => AnyFile::Faulty(device.open(name, options)?),
        })
    }

    fn remove(&self, name: &str) -> Result<()> {
        each!(AnyDevice, self, device => device.remove(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        each!(AnyDevice, self, device => device.list())
    }

    fn sync_directory(&self) -> Result<()> {
        each!(AnyDevice, self, device => device.sync_directory())
    }

    fn channel(&self, options: ChannelOptions) -> Result<AnyChannel> {
        Ok(match self {
            Self::Pread(device) => AnyChannel::Pread(device.channel(options)?),
            Self::Memory(device) => AnyChannel::Memory(device.channel(options)?),
            Self::Faulty(device) => AnyChannel::Faulty(device.channel(options)?),
        })
    }

    fn free_bytes(&self) -> Result<u64> {
        each!(AnyDevice, self, device => device.free_bytes())
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
        match (self, file) {
            (Self::Pread(channel), AnyFile::Pread(file)) => {
                channel.submit_read(file, offset, buffer, tag)
            }
            (Self::Memory(channel), AnyFile::Memory(file)) => {
                channel.submit_read(file, offset, buffer, tag)
            }
            (Self::Faulty(channel), AnyFile::Faulty(file)) => {
                channel.submit_read(file, offset, buffer, tag)
            }
            _ => panic!("a file is read through a channel of another back end"),
        }
    }

    fn submit_write(
        &mut self,
        file: &AnyFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> std::result::Result<(), IoBuf> {
        match (self, file) {
            (Self::Pread(channel), AnyFile::Pread(file)) => {
                channel.submit_write(file, offset, buffer, tag)
            }
            (Self::Memory(channel), AnyFile::Memory(file)) => {
                channel.submit_write(file, offset, buffer, tag)
            }
            (Self::Faulty(channel), AnyFile::Faulty(file)) => {
                channel.submit_write(file, offset, buffer, tag)
            }
            _ => panic!("a file is written through a channel of another back end"),
        }
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
