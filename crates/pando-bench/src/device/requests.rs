//! What a thread of `bench device` does: keeps its channel full, and reaps completions.
//!
//! Each request is timed from its submission to its reaping. For each reaped request a new one is
//! submitted; the channel decides when requests reach the device.

use std::ops::Range;

use pando_device::{AnyChannel, AnyFile, Channel, Completion, IoBuf};
use pando_format::cast::usize_of;
use pando_stats::Histogram;
use pando_sync::time::{self, Instant};

use super::content;
use super::options::{DeviceOptions, DeviceWorkload};
use crate::error::{Error, Result};
use crate::phase::{Calls, Done};
use crate::random::Random;

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct DevicePlan<'a> {
    pub(crate) options: &'a DeviceOptions,
    pub(crate) workload: DeviceWorkload,
    /// Was filled before the first workload; opened for direct I/O.
    pub(crate) file: &'a AnyFile,
    /// Reads are checked: the device keeps the bytes.
    pub(crate) is_checked: bool,
    /// Number of requests of all threads, unless the run ends by time.
    pub(crate) total: Option<u64>,
}

/// A request in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    begun: Instant,
    offset: u64,
}

/// The requests of one thread.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    plan: &'a DevicePlan<'a>,
    channel: AnyChannel,
    /// Indexed by tag.
    slots: Vec<Slot>,
    free_tags: Vec<usize>,
    buffers: Vec<IoBuf>,
    completions: Vec<Completion>,
    random: Random,
    /// Blocks of this thread, for sequential workloads.
    region: Range<u64>,
    next: u64,
    times: Histogram,
}

impl<'a> Requests<'a> {
    pub(super) fn new(
        plan: &'a DevicePlan<'a>,
        mut channel: AnyChannel,
        region: Range<u64>,
        thread: usize,
    ) -> Self {
        let options = plan.options;
        let depth = options.queue_depth;
        let stream = (plan.workload as u64) << 32 | thread as u64;
        let mut random = Random::new(options.seed, stream);
        let mut buffers = channel.buffers(depth, options.block_bytes);
        if plan.workload.writes() {
            for buffer in &mut buffers {
                content::scramble(buffer, &mut random);
            }
        }
        let begun = time::now();
        Self {
            plan,
            channel,
            slots: vec![Slot { begun, offset: 0 }; depth],
            free_tags: (0..depth).rev().collect(),
            buffers,
            completions: Vec::with_capacity(depth),
            random,
            next: region.start,
            region,
            times: Histogram::default(),
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free_tags.len()
    }

    /// Returns the offset of the next request.
    fn choose(&mut self) -> u64 {
        let block = if self.plan.workload.is_random() {
            self.random.below(self.plan.options.blocks())
        } else {
            let block = self.next;
            self.next += 1;
            if self.next == self.region.end {
                self.next = self.region.start;
            }
            block
        };
        block * self.plan.options.block_bytes as u64
    }

    /// Submits as many requests as may be in flight, but at most `limit`.
    fn submit(&mut self, limit: u64) -> Result<()> {
        let room = limit.saturating_sub(self.in_flight() as u64);
        let room = room.min(self.free_tags.len() as u64);
        if room == 0 {
            return Ok(());
        }
        let begun = time::now();
        for _ in 0..room {
            let offset = self.choose();
            let (Some(tag), Some(mut buffer)) = (self.free_tags.pop(), self.buffers.pop()) else {
                unreachable!("there is a tag and a buffer for each request in flight");
            };
            self.slots[tag] = Slot { begun, offset };
            let file = self.plan.file;
            let submitted = if self.plan.workload.writes() {
                content::place(&mut buffer, offset);
                self.channel.submit_write(file, offset, buffer, tag as u64)
            } else {
                self.channel.submit_read(file, offset, buffer, tag as u64)
            };
            if submitted.is_err() {
                let what = "the channel takes fewer requests than its depth".to_owned();
                return Err(self.wrong(what));
            }
        }
        Ok(())
    }

    /// Waits for completions, and reaps them.
    fn reap(&mut self) -> Result<u64> {
        self.channel.wait(None);
        let mut completions = std::mem::take(&mut self.completions);
        self.channel.reap(&mut completions);
        let now = time::now();
        let mut count = 0;
        for completion in completions.drain(..) {
            completion
                .result
                .map_err(Error::device("running a request"))?;
            let tag = usize_of(completion.tag);
            let Slot { begun, offset } = self.slots[tag];
            let is_read = !self.plan.workload.writes();
            if is_read && self.plan.is_checked && !content::is_at(&completion.buffer, offset) {
                return Err(self.wrong(format!("the block at {offset} is another one")));
            }
            let ns = now.saturating_duration_since(begun).as_nanos();
            self.times.add(u64::try_from(ns).unwrap_or(u64::MAX));
            self.buffers.push(completion.buffer);
            self.free_tags.push(tag);
            count += 1;
        }
        self.completions = completions;
        Ok(count)
    }

    fn wrong(&self, what: String) -> Error {
        Error::Wrong {
            workload: self.plan.workload.name(),
            what,
        }
    }
}

impl Calls for Requests<'_> {
    fn begin(&mut self, _start: Instant) {
        self.times = Histogram::default();
    }

    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        self.submit(limit)?;
        let ops = self.reap()?;
        Ok(Some(Done { ops, found: ops }))
    }

    fn end(&mut self) -> Result<()> {
        while self.in_flight() > 0 {
            self.reap()?;
        }
        Ok(())
    }

    fn times(&mut self) -> Option<Histogram> {
        Some(std::mem::take(&mut self.times))
    }
}
