//! A file whose blocking reads, writes and syncs are timed.

use pando_stats::{Measure, Statistics, Ticker};
use pando_sync::{Arc, time};

use crate::device::File;
use crate::error::Result;
use crate::read_context::ReadContext;

/// A file of a [`TimedDevice`](super::TimedDevice).
#[derive(Debug, Clone)]
pub struct TimedFile<F> {
    pub(super) inner: F,
    statistics: Arc<Statistics>,
}

impl<F: File> TimedFile<F> {
    pub(super) fn new(inner: F, statistics: Arc<Statistics>) -> Self {
        Self { inner, statistics }
    }

    /// Runs `request`, which moves `bytes` bytes if it succeeds.
    fn timed(
        &self,
        measure: Measure,
        bytes: usize,
        request: impl FnOnce(&F) -> Result<()>,
    ) -> Result<()> {
        let begun = time::now();
        let result = request(&self.inner);
        self.statistics.record_since(measure, begun);
        count(&self.statistics, measure, bytes, result.is_ok());
        result
    }
}

/// Counts a request that has completed.
pub(super) fn count(statistics: &Statistics, measure: Measure, bytes: usize, is_done: bool) {
    match (is_done, measure) {
        (false, _) => statistics.tick(Ticker::DeviceErrors, 1),
        (true, Measure::DeviceRead) => statistics.tick(Ticker::DeviceReadBytes, bytes as u64),
        (true, Measure::DeviceWrite) => statistics.tick(Ticker::DeviceWriteBytes, bytes as u64),
        (true, _) => {}
    }
}

impl<F: File> File for TimedFile<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let bytes = buffer.len();
        self.timed(Measure::DeviceRead, bytes, |inner| {
            inner.read_at(buffer, offset)
        })
    }

    fn read_at_with(
        &self,
        buffer: &mut [u8],
        offset: u64,
        context: &mut ReadContext,
    ) -> Result<()> {
        let bytes = buffer.len();
        self.timed(Measure::DeviceRead, bytes, |inner| {
            inner.read_at_with(buffer, offset, context)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.timed(Measure::DeviceWrite, bytes.len(), |inner| {
            inner.write_at(bytes, offset)
        })
    }

    fn write_vectored_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.timed(Measure::DeviceWrite, bytes, |inner| {
            inner.write_vectored_at(parts, offset)
        })
    }

    fn sync(&self) -> Result<()> {
        self.timed(Measure::DeviceSync, 0, F::sync)
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch(offset, len)
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }
}
