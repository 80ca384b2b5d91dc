//! What a thread of `bench pool` does: looks up random pages, parks each operation that misses on
//! the read of its page, publishes the page that was read, and runs the operation again.
//!
//! An operation that finds its page at once is a hit, and counted separately; an operation that had
//! to wait is measured, from the miss to the end of its second attempt.

use pando_device::{AnyFile, Channel, Completion, IoBuf};
use pando_format::cast::u32_of;
use pando_format::{PageDecoder, PageId};
use pando_pool::{Attempt, LoadStart, Pool, Restart};
use pando_stats::Histogram;
use pando_sync::thread;
use pando_sync::time::{self, Instant};

use super::options::PoolWorkload;
use super::pages::{Pages, VALUE_WORD, offset_of, value_of};
use super::parking::{Park, Parked};
use crate::error::{Error, Result};
use crate::phase::{Calls, Done};
use crate::random::Random;

/// Number of frames that are evicted at a time.
const EVICT_COUNT: usize = 64;
/// Maximum number of frames that are examined for that.
const EVICT_STEPS: usize = 4 * EVICT_COUNT;

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct PoolPlan<'a> {
    pub(crate) workload: PoolWorkload,
    pub(crate) pages: &'a Pages,
    /// Pages have the ids below this.
    pub(crate) pages_count: u64,
    /// Bytes of a page and of each buffer.
    pub(crate) page_bytes: usize,
    /// Most reads in flight of one thread.
    pub(crate) queue_depth: usize,
    /// Each thread derives a sequence of its own from it.
    pub(crate) seed: u64,
}

/// The operations of one thread.
#[derive(Debug)]
pub(crate) struct Pending<'a, C: Channel<File = AnyFile>, P: Park> {
    plan: &'a PoolPlan<'a>,
    pool: &'a Pool,
    decoder: PageDecoder,
    channel: C,
    /// The operations whose reads are in flight.
    parking: P,
    buffers: Vec<IoBuf>,
    completions: Vec<Completion>,
    random: Random,
    times: Histogram,
}

impl<'a, C: Channel<File = AnyFile>, P: Park> Pending<'a, C, P> {
    /// Returns the operations of thread `thread`, none of which has begun. `channel` has room for
    /// the queue depth.
    pub(crate) fn new(plan: &'a PoolPlan<'a>, mut channel: C, parking: P, thread: usize) -> Self {
        let depth = plan.queue_depth;
        Self {
            plan,
            pool: &plan.pages.pool,
            decoder: PageDecoder::default(),
            parking,
            buffers: channel.buffers(depth, plan.page_bytes),
            completions: Vec::with_capacity(depth),
            channel,
            random: Random::new(plan.seed, thread as u64),
            times: Histogram::default(),
        }
    }

    fn in_flight(&self) -> usize {
        self.parking.parked()
    }

    /// Looks up random pages until as many reads are in flight as may be. Returns the number of
    /// hits.
    fn start(&mut self, limit: u64) -> Result<u64> {
        let room = limit.saturating_sub(self.in_flight() as u64);
        let mut room = room.min((self.plan.queue_depth - self.in_flight()) as u64);
        let (mut hits, begun) = (0, time::now());
        while room > 0 {
            let page = PageId(u32_of(self.random.below(self.plan.pages_count)));
            match self.look(page) {
                Ok(()) => hits += 1,
                Err(Restart::Fault(page)) => {
                    if self.fetch(page, begun)? {
                        room -= 1;
                    }
                }
                Err(Restart::Conflict) => thread::spin_loop(),
                Err(restart) => return Err(self.wrong(format!("{page}: {restart:?}"))),
            }
        }
        Ok(hits)
    }

    /// One attempt of an operation: finds the page and reads a word of it.
    fn look(&self, page: PageId) -> Attempt<()> {
        let seen = self.pool.optimistic(page, 0)?;
        if self.plan.workload == PoolWorkload::Memory {
            let value = seen.words().load(VALUE_WORD);
            seen.validate()?;
            if value != value_of(page) {
                return Err(Restart::Damaged(page, "holds another page's word"));
            }
        } else {
            seen.validate()?;
        }
        seen.touch();
        Ok(())
    }

    /// Submits the read of a page that was missed, and parks the operation. Returns false if
    /// another thread was faster, or no frame is free.
    fn fetch(&mut self, page: PageId, begun: Instant) -> Result<bool> {
        if self.pool.free_count() <= self.pool.options().free_frames_high() {
            self.pool.sweep(EVICT_STEPS, EVICT_COUNT, &mut Vec::new());
        }
        let ticket = match self.pool.begin_load(page) {
            Ok(LoadStart::Claimed(ticket)) => ticket,
            Ok(_) => return Ok(false),
            Err(_) => {
                thread::yield_now();
                return Ok(false);
            }
        };
        let Some(buffer) = self.buffers.pop() else {
            unreachable!("there is a buffer for each read in flight");
        };
        let offset = offset_of(ticket.stored());
        let tag = self.parking.park(Parked { ticket, begun });
        let file = &self.plan.pages.file;
        match self.channel.submit_read(file, offset, buffer, tag) {
            Ok(()) => Ok(true),
            Err(_) => Err(self.wrong("the channel takes fewer reads than its depth".to_owned())),
        }
    }

    /// Reaps completed reads: publishes the pages and runs the operations again.
    fn reap(&mut self) -> Result<u64> {
        self.channel.wait(None);
        let mut completions = std::mem::take(&mut self.completions);
        self.channel.reap(&mut completions);
        let now = time::now();
        let mut ops = 0;
        for completion in completions.drain(..) {
            completion.result.map_err(Error::device("reading a page"))?;
            let Parked { ticket, begun } = self.parking.unpark(completion.tag);
            let page = ticket.page();
            let published = self
                .pool
                .finish_load(ticket, &completion.buffer, &mut self.decoder);
            self.buffers.push(completion.buffer);
            if let Err(error) = published {
                return Err(self.wrong(format!("{page}: {}", error.what)));
            }
            // Another thread may have evicted it already, or be examining its frame.
            match self.look(page) {
                Ok(()) | Err(Restart::Fault(_) | Restart::Conflict) => {}
                Err(restart) => return Err(self.wrong(format!("{page}: {restart:?}"))),
            }
            let ns = now.saturating_duration_since(begun).as_nanos();
            self.times.add(u64::try_from(ns).unwrap_or(u64::MAX));
            ops += 1;
        }
        self.completions = completions;
        Ok(ops)
    }

    fn wrong(&self, what: String) -> Error {
        Error::Wrong {
            workload: self.plan.workload.name(),
            what,
        }
    }
}

impl<C: Channel<File = AnyFile>, P: Park> Calls for Pending<'_, C, P> {
    fn begin(&mut self, _start: Instant) {
        self.times = Histogram::default();
    }

    /// `found` counts the hits in between.
    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        let found = self.start(limit)?;
        let ops = self.reap()?;
        Ok(Some(Done { ops, found }))
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

impl<C: Channel<File = AnyFile>, P: Park> Drop for Pending<'_, C, P> {
    fn drop(&mut self) {
        // A run that failed leaves claims behind.
        for parked in self.parking.take_all() {
            self.pool.fail_load(parked.ticket);
        }
    }
}
