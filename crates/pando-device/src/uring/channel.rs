//! The channel over a ring.
//!
//! Requests are passed to the kernel when at least four are queued (waiting for more would leave
//! the device idle between bursts), and at least a quarter as many as the device already has, and
//! whenever the channel is flushed, reaped or waited for. When the kernel refuses to be entered,
//! the requests that it has not taken end with that error, and so do all later ones.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_sync::time::Duration;
use pando_sync::{Arc, WakerArc};

use super::ring::{Answer, DEPTH_MAX, Ring};
use crate::buffer::IoBuf;
use crate::device::{Channel, ChannelOptions, Completion, REAP_MAX};
use crate::directory::{DirectoryFile, Notes};
use crate::eventfd::WakeEvent;
use crate::fork::ForkGuard;

/// Minimum number of requests that are passed to the kernel together.
const SUBMIT_MIN: usize = 4;
/// Maximum number of requests that are collected before they are passed to the kernel.
const SUBMIT_MAX: usize = 32;
/// Stands for the waker's poll in the list of queued entries.
const POLL: u32 = u32::MAX;

/// Requests in flight of one event loop, in a ring of its own.
#[derive(Debug)]
pub struct UringChannel {
    /// Declared, and so dropped, before `wake`, whose descriptor the ring may poll.
    ring: Ring,
    /// Slots that the kernel has not taken, in the order of the ring.
    queued: VecDeque<u32>,
    /// Slots that end with `broken`.
    failed: VecDeque<u32>,
    /// Error number of a kernel that cannot be entered.
    broken: Option<i32>,
    wake: WakerArc<WakeEvent>,
    /// Somebody has asked for the waker.
    has_waker: bool,
    /// The waker's poll is in the ring.
    is_polling: bool,
    notify: Waker,
    notes: Arc<Notes>,
    fork: Arc<ForkGuard>,
}

impl UringChannel {
    /// Makes a channel of `options.depth` requests, or of as many as a ring can have.
    pub(crate) fn new(
        options: ChannelOptions,
        notes: Arc<Notes>,
        fork: Arc<ForkGuard>,
    ) -> io::Result<Self> {
        let depth = options.depth.clamp(1, DEPTH_MAX);
        Ok(Self {
            ring: Ring::new(depth)?,
            queued: VecDeque::with_capacity(depth + 1),
            failed: VecDeque::new(),
            broken: None,
            wake: WakerArc::new(WakeEvent::new()?),
            has_waker: false,
            is_polling: false,
            notify: options.notify,
            notes,
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
        let begun = self
            .ring
            .requests()
            .begin(write, file, offset, buffer, tag)?;
        if self.fork.is_child() {
            // Completes at the next reap, like all other requests.
            return Ok(());
        }
        if let Some(number) = begun.new_file {
            self.ring.register_file(number);
        }
        self.queue(begun.slot);
        if self.queued.len() >= self.enough() {
            self.enter(0, None);
        }
        Ok(())
    }

    /// Returns the number of requests that are passed to the kernel together: few while the device
    /// has little to do, more while it has enough to stay busy.
    fn enough(&self) -> usize {
        let taken = self.ring.in_flight().saturating_sub(self.queued.len());
        (taken / 4).clamp(SUBMIT_MIN, SUBMIT_MAX)
    }

    fn queue(&mut self, slot: u32) {
        if self.broken.is_some() {
            self.failed.push_back(slot);
            return;
        }
        self.ring.push(slot);
        self.queued.push_back(slot);
    }

    /// Submits the queued requests and waits for `answers` answers.
    fn enter(&mut self, answers: usize, timeout: Option<Duration>) {
        if self.broken.is_some() {
            return;
        }
        let result = self.ring.enter(answers, timeout);
        let left = self.ring.queued();
        assert!(left <= self.queued.len(), "more is queued than was");
        self.queued.drain(..self.queued.len() - left);
        let Err(error) = result else { return };
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        // The requests stay queued, and the next call tries again.
        let passing = [
            libc::ETIME,
            libc::EINTR,
            libc::EAGAIN,
            libc::EBUSY,
            libc::ENOMEM,
        ];
        if !passing.contains(&code) {
            self.broken = Some(code);
            for slot in self.queued.drain(..).filter(|slot| *slot != POLL) {
                self.ring.withdraw();
                self.failed.push_back(slot);
            }
        }
    }

    /// Makes sure that a wake ends a wait in the kernel.
    fn poll_waker(&mut self) {
        if self.has_waker && !self.is_polling && self.broken.is_none() {
            self.ring.push_poll(self.wake.raw_fd());
            self.queued.push_back(POLL);
            self.is_polling = true;
        }
    }

    /// Takes answers until [`REAP_MAX`] requests have completed or no answers are left.
    fn take_answers(&mut self, completions: &mut Vec<Completion>) -> usize {
        let mut count = 0;
        while count < REAP_MAX {
            match self.ring.take() {
                None => break,
                Some(Answer::Woken) => {
                    self.is_polling = false;
                    self.wake.drain();
                }
                Some(Answer::Piece(slot, answer)) => {
                    match self.ring.requests().end_piece(slot, answer.into()) {
                        Some(completion) => {
                            completions.push(completion);
                            count += 1;
                        }
                        None => self.queue(slot),
                    }
                }
            }
        }
        while count < REAP_MAX
            && let Some(slot) = self.failed.pop_front()
        {
            let source = io::Error::from_raw_os_error(self.broken.unwrap_or(libc::EIO));
            completions.push(self.ring.requests().fail(slot, source));
            count += 1;
        }
        count
    }
}

impl Channel for UringChannel {
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
        if !self.queued.is_empty() && !self.fork.is_child() {
            self.enter(0, None);
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        if self.fork.is_child() {
            return self.ring.requests().abandon(completions);
        }
        if !self.queued.is_empty() || (!self.ring.has_answers() && self.ring.has_unfinished()) {
            self.enter(0, None);
        }
        let mut count = self.take_answers(completions);
        if !self.queued.is_empty() {
            // Continues short pieces at once.
            self.enter(0, None);
            if count == 0 {
                count = self.take_answers(completions);
            }
        }
        if self.ring.has_answers() || !self.failed.is_empty() {
            self.notify.wake_by_ref();
        }
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if self.ring.in_flight() == 0 || self.fork.is_child() {
            return;
        }
        let woken = self.has_waker && self.wake.take();
        self.poll_waker();
        if woken || self.ring.has_answers() || !self.failed.is_empty() {
            self.flush();
            return;
        }
        self.enter(1, timeout);
        // If there was a wake, it has ended this wait.
        let _ = self.wake.take();
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight()
    }

    fn waker(&mut self) -> Waker {
        self.has_waker = true;
        self.wake.clone().into()
    }

    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.fd())
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        let buffers = IoBuf::many(count, len);
        if let Some(first) = buffers.first()
            && !self.fork.is_child()
            && let Err(error) = self.ring.register_memory(first)
        {
            self.notes.add(format!(
                "buffers are not registered with the ring: {error}{}",
                match error.raw_os_error() {
                    Some(libc::ENOMEM | libc::EPERM) =>
                        "; the limit of locked memory (ulimit -l) is too small for them",
                    _ => "",
                }
            ));
        }
        buffers
    }
}

impl Drop for UringChannel {
    fn drop(&mut self) {
        if self.fork.is_child() {
            self.ring.disown();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Backend, DirectoryChannel};
    use crate::waking_tests::{channel_of, every_wake_ends_a_wait};

    #[test]
    fn every_wake_ends_a_wait_in_which_nothing_completes() {
        let (made, file, _place) = channel_of(Backend::Uring);
        let DirectoryChannel::Uring(mut channel) = made else {
            return;
        };
        // This request is never passed to the kernel, so it never completes.
        let requests = channel.ring.requests();
        requests.begin(false, &file, 0, IoBuf::new(1), 0).unwrap();
        every_wake_ends_a_wait(&mut *channel);
    }
}
