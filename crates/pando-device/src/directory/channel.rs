//! The channel of a directory, of the kind of its back end.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use super::choice::Backend;
use super::file::DirectoryFile;
use crate::buffer::IoBuf;
use crate::device::{Channel, Completion};
use crate::libaio::LibaioChannel;
use crate::pread::PreadChannel;
use crate::uring::UringChannel;

/// Requests in flight to files of a directory.
#[derive(Debug)]
pub enum DirectoryChannel {
    /// Through an io_uring ring.
    Uring(Box<UringChannel>),
    /// Through a libaio context.
    Libaio(LibaioChannel),
    /// Through the device's threads.
    Pread(PreadChannel),
}

impl DirectoryChannel {
    /// Returns the back end that serves this channel.
    pub fn backend(&self) -> Backend {
        match self {
            Self::Uring(_) => Backend::Uring,
            Self::Libaio(_) => Backend::Libaio,
            Self::Pread(_) => Backend::Pread,
        }
    }
}

macro_rules! each {
    ($value:expr, $channel:ident => $call:expr) => {
        match $value {
            Self::Uring($channel) => $call,
            Self::Libaio($channel) => $call,
            Self::Pread($channel) => $call,
        }
    };
}

impl Channel for DirectoryChannel {
    type File = DirectoryFile;

    fn submit_read(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        each!(self, channel => channel.submit_read(file, offset, buffer, tag))
    }

    fn submit_write(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        each!(self, channel => channel.submit_write(file, offset, buffer, tag))
    }

    fn flush(&mut self) {
        each!(self, channel => channel.flush());
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        each!(self, channel => channel.reap(completions))
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        each!(self, channel => channel.wait(timeout));
    }

    fn in_flight(&self) -> usize {
        each!(self, channel => channel.in_flight())
    }

    fn waker(&mut self) -> Waker {
        each!(self, channel => channel.waker())
    }

    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, channel => channel.completion_fd())
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        each!(self, channel => channel.buffers(count, len))
    }
}
