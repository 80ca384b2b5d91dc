//! A channel whose requests fail, or complete late and in another order.
//!
//! A request that is struck by an error never reaches the device; one that is struck otherwise
//! does. The inner channel's tags are slots of this channel.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;

use super::faults::error_of;
use super::file::InjectorFile;
use crate::buffer::IoBuf;
use crate::cast::usize_of;
use crate::device::{Channel, Completion, REAP_MAX};
use crate::error::Error;
use crate::faulty::plan::{Fault, Operation};

/// A request while the inner channel has it.
#[derive(Debug)]
struct InjectedRequest {
    tag: u64,
    /// The error with which it ends instead of success.
    error: Option<Error>,
    /// Number of reaps for which its completion is held back.
    delay: u32,
}

/// Requests in flight to files that fail on demand.
#[derive(Debug)]
pub struct InjectorChannel<C> {
    inner: C,
    depth: usize,
    notify: Waker,
    slots: Vec<Option<InjectedRequest>>,
    free: Vec<usize>,
    /// Completions that are held back, each for a number of reaps.
    late: Vec<(u32, Completion)>,
    reaped: Vec<Completion>,
    /// `wait` has returned, so the next reap must not hold back all completions.
    waited: bool,
}

impl<C: Channel> InjectorChannel<C> {
    pub(super) fn new(inner: C, depth: usize, notify: Waker) -> Self {
        Self {
            inner,
            depth,
            notify,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            late: Vec::with_capacity(depth),
            reaped: Vec::with_capacity(REAP_MAX),
            waited: false,
        }
    }

    /// Completes a request that the device does not see.
    fn end(&mut self, tag: u64, buffer: IoBuf, result: Result<(), Error>) -> Result<(), IoBuf> {
        let completion = Completion {
            tag,
            buffer,
            result,
        };
        self.late.push((0, completion));
        self.notify.wake_by_ref();
        Ok(())
    }

    fn submit(
        &mut self,
        write: bool,
        file: &InjectorFile<C::File>,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        if self.in_flight() >= self.depth {
            return Err(buffer);
        }
        let operation = if write {
            Operation::Write
        } else {
            Operation::Read
        };
        let mut request = InjectedRequest {
            tag,
            error: None,
            delay: file.injector.delay(),
        };
        let mut offset = offset;
        match file.injector.strike(operation, &file.name) {
            None => {}
            Some(Fault::Yield(reaps)) => request.delay += reaps,
            Some(Fault::Misdirected(to)) => offset = to,
            Some(Fault::Lost) => return self.end(tag, buffer, Ok(())),
            Some(Fault::Short(done)) if write => {
                let error = file.write_short(&buffer, offset, done);
                return self.end(tag, buffer, Err(error));
            }
            Some(Fault::Short(got)) => {
                request.error = Some(file.short_read(offset, buffer.len(), got));
            }
            Some(fault) => {
                let error = error_of(fault, operation, &file.name);
                return self.end(tag, buffer, Err(error));
            }
        }
        let slot = self.free.pop().expect("fewer are in flight than slots");
        let submitted = match write {
            true => self
                .inner
                .submit_write(&file.inner, offset, buffer, slot as u64),
            false => self
                .inner
                .submit_read(&file.inner, offset, buffer, slot as u64),
        };
        match submitted {
            Ok(()) => self.slots[slot] = Some(request),
            Err(_) => self.free.push(slot),
        }
        submitted
    }
}

impl<C: Channel> Channel for InjectorChannel<C> {
    type File = InjectorFile<C::File>;

    fn submit_read(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(false, file, offset, buffer, tag)
    }

    fn submit_write(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(true, file, offset, buffer, tag)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut reaped = std::mem::take(&mut self.reaped);
        self.inner.reap(&mut reaped);
        for completion in reaped.drain(..) {
            let slot = usize_of(completion.tag);
            let request = self.slots[slot].take().expect("each request ends once");
            self.free.push(slot);
            let result = match request.error {
                Some(error) => completion.result.and(Err(error)),
                None => completion.result,
            };
            let completion = Completion {
                tag: request.tag,
                buffer: completion.buffer,
                result,
            };
            self.late.push((request.delay, completion));
        }
        self.reaped = reaped;
        let mut count = 0;
        let mut at = 0;
        while at < self.late.len() {
            if count < REAP_MAX && self.late[at].0 == 0 {
                completions.push(self.late.swap_remove(at).1);
                count += 1;
            } else {
                self.late[at].0 = self.late[at].0.saturating_sub(1);
                at += 1;
            }
        }
        if std::mem::take(&mut self.waited) && count == 0 && !self.late.is_empty() {
            completions.push(self.late.swap_remove(0).1);
            count = 1;
        }
        if !self.late.is_empty() {
            self.notify.wake_by_ref();
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if self.late.is_empty() {
            self.inner.wait(timeout);
        }
        self.waited = true;
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.late.len()
    }

    fn waker(&mut self) -> Waker {
        self.inner.waker()
    }

    /// `notify` reports requests that the device does not see, or that are held back.
    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.completion_fd()
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        self.inner.buffers(count, len)
    }
}
