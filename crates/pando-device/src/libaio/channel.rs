//! The channel over a context. Submission and waiting work like those of the ring.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;
use pando_sync::{Arc, WakerArc};

use super::context::{Context, WAKER};
use crate::buffer::IoBuf;
use crate::device::{Channel, ChannelOptions, Completion, REAP_MAX};
use crate::directory::DirectoryFile;
use crate::eventfd::WakeEvent;
use crate::fork::ForkGuard;

/// Number of requests that are passed to the kernel together.
const SUBMIT_AT: usize = 4;
/// Maximum time of a wait while the kernel has not taken the waker's poll.
const DEAF_WAIT: Duration = Duration::from_millis(10);
/// File with the kernel's limit of the requests of all contexts together.
const LIMIT: &str = "/proc/sys/fs/aio-max-nr";

/// Requests in flight of one event loop, in a context of its own.
#[derive(Debug)]
pub struct LibaioChannel {
    context: Context,
    depth: usize,
    /// Slots that end with an error number, because the kernel has refused them or has never seen
    /// them.
    refused: VecDeque<(u32, i32)>,
    wake: WakerArc<WakeEvent>,
    has_waker: bool,
    /// The waker's poll is in the context, or queued for it.
    is_polling: bool,
    /// Signalled by completions once somebody has asked for the descriptor.
    completed: WakeEvent,
    is_signalled: Cell<bool>,
    notify: Waker,
    fork: Arc<ForkGuard>,
}

impl LibaioChannel {
    /// Makes a channel of `options.depth` requests.
    pub(crate) fn new(options: ChannelOptions, fork: Arc<ForkGuard>) -> io::Result<Self> {
        let depth = options.depth.max(1);
        Ok(Self {
            context: Context::new(depth).map_err(explain)?,
            depth,
            refused: VecDeque::new(),
            wake: WakerArc::new(WakeEvent::new()?),
            has_waker: false,
            is_polling: false,
            completed: WakeEvent::new()?,
            is_signalled: Cell::new(false),
            notify: options.notify,
            fork,
        })
    }

    fn submit(
        &mut self,
        write: bool,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        let requests = self.context.requests();
        let slot = requests.begin(write, file, offset, buffer, tag)?.slot;
        if self.fork.is_child() {
            // Completes at the next reap, like all other requests.
            return Ok(());
        }
        if self.context.requests().piece(slot).refused {
            self.refuse(slot, libc::EINVAL);
            return Ok(());
        }
        self.queue(slot);
        if self.context.queued() >= SUBMIT_AT {
            self.hand_over();
        }
        Ok(())
    }

    fn queue(&mut self, slot: u32) {
        let signal = self.is_signalled.get().then(|| self.completed.raw_fd());
        self.context.push(slot, signal);
    }

    fn refuse(&mut self, slot: u32, code: i32) {
        self.refused.push_back((slot, code));
        if self.is_signalled.get() {
            self.completed.signal();
        }
    }

    fn hand_over(&mut self) {
        while let Err((slot, error)) = self.context.submit() {
            if slot == WAKER {
                self.is_polling = false;
            } else {
                self.refuse(slot, error.raw_os_error().unwrap_or(libc::EIO));
            }
        }
    }

    /// Takes answers until [`REAP_MAX`] requests have completed or no answers are left.
    fn take_answers(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut count = 0;
        while count < REAP_MAX
            && let Some((slot, answer)) = self.context.take()
        {
            if slot == WAKER {
                self.is_polling = false;
                self.wake.drain();
                continue;
            }
            match self.context.requests().end_piece(slot, answer) {
                Some(completion) => {
                    completions.push(completion);
                    count += 1;
                }
                None => self.queue(slot),
            }
        }
        while count < REAP_MAX
            && let Some((slot, code)) = self.refused.pop_front()
        {
            let source = io::Error::from_raw_os_error(code);
            completions.push(self.context.requests().fail(slot, source));
            count += 1;
        }
        count
    }
}

/// Adds to an error the limit that a new context has exceeded.
fn explain(error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EAGAIN) {
        return error;
    }
    let limit = std::fs::read_to_string(LIMIT).unwrap_or_default();
    io::Error::other(format!(
        "all contexts of this machine have as many requests as fs.aio-max-nr allows ({})",
        limit.trim()
    ))
}

impl Channel for LibaioChannel {
    type File = DirectoryFile;

    fn submit_read(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(false, file, offset, buffer, tag)
    }

    fn submit_write(
        &mut self,
        file: &DirectoryFile,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(true, file, offset, buffer, tag)
    }

    fn flush(&mut self) {
        if self.context.queued() > 0 && !self.fork.is_child() {
            self.hand_over();
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.fork.is_child() {
            return self.context.requests().abandon(completions);
        }
        self.flush();
        if self.context.in_flight() > self.refused.len() {
            self.context.ask(false, None);
        }
        let count = self.take_answers(completions);
        // Continues short pieces at once.
        self.flush();
        if self.context.has_answers() || !self.refused.is_empty() || count == REAP_MAX {
            self.notify.wake_by_ref();
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if self.context.in_flight() == 0 || self.fork.is_child() {
            return;
        }
        let woken = self.has_waker && self.wake.take();
        if self.has_waker && !self.is_polling {
            self.context.push_poll(self.wake.raw_fd());
            self.is_polling = true;
        }
        self.flush();
        if woken || self.context.has_answers() || !self.refused.is_empty() {
            return;
        }
        let is_deaf = self.context.queued() > 0 || (self.has_waker && !self.is_polling);
        let timeout = match is_deaf {
            true => Some(timeout.map_or(DEAF_WAIT, |time| time.min(DEAF_WAIT))),
            false => timeout,
        };
        self.context.ask(true, timeout);
        // If there was a wake, it has ended this wait.
        let _ = self.wake.take();
    }

    fn in_flight(&self) -> usize {
        debug_assert!(self.context.in_flight() <= self.depth);
        self.context.in_flight()
    }

    fn waker(&mut self) -> Waker {
        self.has_waker = true;
        self.wake.clone().into()
    }

    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.is_signalled.set(true);
        Some(self.completed.fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Backend, DirectoryChannel};
    use crate::waking_tests::{channel_of, every_wake_ends_a_wait};

    #[test]
    fn every_wake_ends_a_wait_in_which_nothing_completes() {
        let (made, file, _place) = channel_of(Backend::Libaio);
        let DirectoryChannel::Libaio(mut channel) = made else {
            return;
        };
        // This request is never passed to the kernel, so it never completes.
        let requests = channel.context.requests();
        requests.begin(false, &file, 0, IoBuf::new(1), 0).unwrap();
        every_wake_ends_a_wait(&mut channel);
    }
}
