//! A channel whose requests are timed from submission to reap. The inner channel's tags are slots
//! of this channel, which are made with it, so a request allocates nothing.

use std::os::fd::BorrowedFd;
use std::task::Waker;

use pando_stats::{Measure, Statistics};
use pando_sync::time::{Duration, Instant};
use pando_sync::{Arc, time};

use super::file::{TimedFile, count};
use crate::buffer::IoBuf;
use crate::cast::usize_of;
use crate::device::{Channel, Completion};

/// A request while the inner channel has it.
#[derive(Debug, Clone, Copy)]
struct TimedRequest {
    tag: u64,
    measure: Measure,
    begun: Instant,
}

/// Requests in flight that are timed.
#[derive(Debug)]
pub struct TimedChannel<C> {
    inner: C,
    statistics: Arc<Statistics>,
    slots: Vec<Option<TimedRequest>>,
    free: Vec<usize>,
}

impl<C: Channel> TimedChannel<C> {
    pub(super) fn new(inner: C, depth: usize, statistics: Arc<Statistics>) -> Self {
        Self {
            inner,
            statistics,
            slots: vec![None; depth],
            free: (0..depth).rev().collect(),
        }
    }

    fn submit(
        &mut self,
        measure: Measure,
        buffer: IoBuf,
        tag: u64,
        submit: impl FnOnce(&mut C, IoBuf, u64) -> Result<(), IoBuf>,
    ) -> Result<(), IoBuf> {
        let Some(slot) = self.free.pop() else {
            return Err(buffer);
        };
        // Before the submission, which may do the whole request.
        let begun = time::now();
        if let Err(buffer) = submit(&mut self.inner, buffer, slot as u64) {
            self.free.push(slot);
            return Err(buffer);
        }
        self.slots[slot] = Some(TimedRequest {
            tag,
            measure,
            begun,
        });
        let in_flight = self.inner.in_flight() as u64;
        self.statistics.record(Measure::DeviceQueueDepth, in_flight);
        Ok(())
    }
}

impl<C: Channel> Channel for TimedChannel<C> {
    type File = TimedFile<C::File>;

    fn submit_read(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(Measure::DeviceRead, buffer, tag, |inner, buffer, slot| {
            inner.submit_read(&file.inner, offset, buffer, slot)
        })
    }

    fn submit_write(
        &mut self,
        file: &Self::File,
        offset: u64,
        buffer: IoBuf,
        tag: u64,
    ) -> Result<(), IoBuf> {
        self.submit(Measure::DeviceWrite, buffer, tag, |inner, buffer, slot| {
            inner.submit_write(&file.inner, offset, buffer, slot)
        })
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) -> usize {
        let before = completions.len();
        let reaped = self.inner.reap(completions);
        if reaped == 0 {
            return 0;
        }
        // Reads the clock once for all of them.
        let now = time::now();
        for completion in &mut completions[before..] {
            let slot = usize_of(completion.tag);
            let request = self.slots[slot].take().expect("each request ends once");
            self.free.push(slot);
            completion.tag = request.tag;
            let ns = now.saturating_duration_since(request.begun).as_nanos();
            let ns = u64::try_from(ns).unwrap_or(u64::MAX);
            self.statistics.record(request.measure, ns);
            let (bytes, is_done) = (completion.buffer.len(), completion.result.is_ok());
            count(&self.statistics, request.measure, bytes, is_done);
        }
        reaped
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.inner.wait(timeout);
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn waker(&mut self) -> Waker {
        self.inner.waker()
    }

    fn completion_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.completion_fd()
    }

    fn buffers(&mut self, count: usize, len: usize) -> Vec<IoBuf> {
        self.inner.buffers(count, len)
    }
}
