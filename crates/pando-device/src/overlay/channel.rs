//! A channel whose writes stay in memory. Reads of what was written are done at once; all others
//! go through the inner channel.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use super::content::Found;
use super::file::OverlayFile;
use crate::buffer::IoBuf;
use crate::device::{Channel, Completion, File, REAP_MAX};
use crate::error::Error;

/// Requests in flight to files whose writes stay in memory.
#[derive(Debug)]
pub struct OverlayChannel<C> {
    inner: C,
    depth: usize,
    notify: Waker,
    /// Requests that the inner channel does not see.
    done: Vec<Completion>,
}

impl<C: Channel> OverlayChannel<C> {
    pub(super) fn new(inner: C, depth: usize, notify: Waker) -> Self {
        Self {
            inner,
            depth,
            notify,
            done: Vec::with_capacity(depth),
        }
    }

    /// Completes a request that the inner channel does not see.
    fn end(&mut self, tag: u64, buffer: IoBuf, result: Result<(), Error>) -> Result<(), IoBuf> {
        self.done.push(Completion {
            tag,
            buffer,
            result,
        });
        self.notify.wake_by_ref();
        Ok(())
    }
}

impl<C: Channel> Channel for OverlayChannel<C> {
    type File = OverlayFile<C::File>;

    fn submit_read(
        &mut self,
        file: &Self::File,
        offset: u64,
        mut buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        if self.in_flight() >= self.depth {
            return Err(buffer);
        }
        match file.content.find(&mut buffer, offset) {
            Ok(Found::Below) => self.inner.submit_read(file.below(), offset, buffer, tag),
            // A page is written as a whole, so that nothing of it is left below.
            Ok(Found::Here(below)) => {
                let result = file.content.read_below(&mut buffer, offset, below);
                self.end(tag, buffer, result)
            }
            Err(error) => self.end(tag, buffer, Err(error)),
        }
    }

    fn submit_write(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        if self.in_flight() >= self.depth {
            return Err(buffer);
        }
        let result = file.write_at(&buffer, offset);
        self.end(tag, buffer, result)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.done.is_empty() {
            return self.inner.reap(completions);
        }
        self.inner.flush();
        let count = self.done.len().min(REAP_MAX);
        completions.extend(self.done.drain(..count));
        if self.in_flight() > 0 {
            self.notify.wake_by_ref();
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        match self.done.is_empty() {
            true => self.inner.wait(timeout),
            false => self.inner.flush(),
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.done.len()
    }

    fn waker(&mut self) -> Waker {
        self.inner.waker()
    }

    /// `notify` reports requests that the inner channel does not see.
    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.completion_fd()
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        self.inner.buffers(count, len)
    }
}
