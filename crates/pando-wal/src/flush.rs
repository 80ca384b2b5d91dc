//! Flushes: how a leader writes the log, and the log thread, which leads for callers that cannot
//! block.
//!
//! A flush swaps the buffers under the tail's lock and writes without it. Files are synced before a
//! record counts as durable. A failure, or a panic, poisons the log.

use pando_device::{Device, File};
use pando_format::Lsn;
use pando_stats::{Measure, Ticker};
use pando_sync::atomic::Ordering;
use pando_sync::{park, thread, thread_waker, time};

use crate::buffer::LogBuffer;
use crate::error::{Error, Result};
use crate::group::Role;
use crate::log::Log;

/// Pause between two tries of a write that found the device full.
const FULL_RETRY: time::Duration = time::Duration::from_millis(20);

impl<D: Device> Log<D> {
    /// Runs the log thread: flushes for event loops, when the buffer is half full, and every
    /// `interval`. Returns after [`Log::stop`], or when the log is poisoned.
    pub fn run_flusher(&self, interval: Option<time::Duration>) {
        let mut flushed = time::now();
        // Acquire: pairs with the Release in stop.
        while !self.stopping.load(Ordering::Acquire) && !self.group.failed() {
            if interval.is_some_and(|interval| flushed.elapsed() >= interval) {
                flushed = time::now();
                self.request_flush(self.reserved_end());
            }
            let requested = self.requested();
            if requested > self.durable() {
                // A failure poisons the log, which ends the loop.
                let _ = self.wait(requested, Role::Background);
                continue;
            }
            self.flusher.register(&thread_waker());
            let idle = self.requested() <= self.durable()
                && !self.stopping.load(Ordering::Acquire)
                && !self.group.failed();
            match interval {
                _ if !idle => {}
                None => park(),
                Some(interval) => thread::park_timeout(interval.saturating_sub(flushed.elapsed())),
            }
        }
    }

    fn requested(&self) -> Lsn {
        // Relaxed: the fences of the wait list order it. The record was appended before.
        Lsn(self.requested.load(Ordering::Relaxed)).min(self.reserved_end())
    }

    /// Makes [`Log::run_flusher`] and [`Log::run_files`] return. Does not flush: see
    /// [`Log::flush_now`].
    pub fn stop(&self) {
        // Release: pairs with the Acquire in run_flusher, run_files and write_run.
        self.stopping.store(true, Ordering::Release);
        self.flusher.notify_all();
        self.growth.wake();
    }

    /// Does one flush and returns the LSN that is durable then, `None` if the log is poisoned. Only
    /// the leader calls this.
    pub(crate) fn flush(&self) -> Option<Lsn> {
        let mut unwinding = PoisonOnUnwind {
            log: self,
            armed: true,
        };
        let flushed = self.flush_taken();
        unwinding.armed = false;
        flushed
    }

    fn flush_taken(&self) -> Option<Lsn> {
        let (taken, newest) = {
            let mut tail = self.shared.tail.lock();
            if self.group.failed() {
                // What an append has left that was cut off is not written.
                return None;
            }
            let taken = tail.take();
            self.group.batch_closed(tail.newest());
            (taken, tail.newest())
        };
        let Some(buffer) = taken else {
            assert_eq!(
                newest,
                self.durable(),
                "what is not durable is in the buffer"
            );
            return Some(newest);
        };
        self.shared.space.notify_all();
        assert_eq!(buffer.newest, newest, "a flush takes all there is");
        assert!(buffer.records > 0, "padding alone is no flush");
        let begun = time::now();
        if let Err(error) = self.write(&buffer) {
            self.poison(error);
            return None;
        }
        self.statistics.record_since(Measure::LogFlush, begun);
        let records = buffer.records;
        self.statistics.record(Measure::LogFlushRecords, records);
        self.statistics.tick(Ticker::LogFlushes, 1);
        self.statistics.tick(Ticker::LogFlushedRecords, records);
        self.shared.tail.lock().give_back(buffer);
        // Callers that were refused while the device was full may try again.
        self.shared.space.notify_all();
        Some(newest)
    }

    fn write(&self, buffer: &LogBuffer) -> Result<()> {
        for run in buffer.runs() {
            let file = self.segments.file(run.slot);
            self.write_run(&file, run.bytes, run.offset)?;
            let ticker = Ticker::LogWriteBytes;
            self.statistics.tick(ticker, run.bytes.len() as u64);
        }
        for run in buffer.runs() {
            self.segments.file(run.slot).sync()?;
        }
        Ok(())
    }

    /// Sets a deadline in milliseconds of [`time::steady_ms`], 0 for none. From then on a write
    /// that finds the device full fails and poisons the log, so that closing the store does not
    /// wait for space for ever.
    pub fn set_disk_full_deadline(&self, steady_ms: u64) {
        // Relaxed: a waiting write reads it again and again.
        self.disk_full_deadline.store(steady_ms, Ordering::Relaxed);
    }

    fn waits_for_space(&self) -> bool {
        let until = self.disk_full_deadline.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in stop.
        !self.stopping.load(Ordering::Acquire) && (until == 0 || time::steady_ms() < until)
    }

    /// Writes, and tries again while the device is full. Meanwhile the log accepts nothing new.
    fn write_run(&self, file: &D::File, bytes: &[u8], offset: u64) -> Result<()> {
        loop {
            let written = file.write_at(bytes, offset);
            let full = written.as_ref().is_err_and(pando_device::Error::is_full);
            // Relaxed: a hint for try_reserve. Those who wait for this flush read it again when
            // they are woken.
            if !self.full.swap(full, Ordering::Relaxed) && full {
                self.shared.space.notify_all();
            }
            if !full || !self.waits_for_space() {
                return Ok(written?);
            }
            thread::park_timeout(FULL_RETRY);
        }
    }
}

/// Poisons the log when the leader panics, and so wakes all waiters.
struct PoisonOnUnwind<'a, D: Device> {
    log: &'a Log<D>,
    armed: bool,
}

impl<D: Device> Drop for PoisonOnUnwind<'_, D> {
    fn drop(&mut self) {
        if self.armed {
            self.log.poison(Error::Abandoned);
        }
    }
}
