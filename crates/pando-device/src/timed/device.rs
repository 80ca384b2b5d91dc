//! The device.

use pando_stats::Statistics;
use pando_sync::Arc;

use super::channel::TimedChannel;
use super::file::TimedFile;
use crate::device::{ChannelOptions, Device, OpenOptions};
use crate::error::Result;

/// A device whose requests are counted and timed.
#[derive(Debug, Clone)]
pub struct TimedDevice<D> {
    inner: D,
    statistics: Arc<Statistics>,
}

impl<D: Device> TimedDevice<D> {
    /// Wraps `inner`, and counts its requests in `statistics`.
    pub fn new(inner: D, statistics: Arc<Statistics>) -> Self {
        Self { inner, statistics }
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the statistics in which requests are counted.
    pub fn statistics(&self) -> &Arc<Statistics> {
        &self.statistics
    }
}

impl<D: Device> Device for TimedDevice<D> {
    type File = TimedFile<D::File>;
    type Channel = TimedChannel<D::Channel>;

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    fn open(&self, name: &str, options: OpenOptions) -> Result<Self::File> {
        let inner = self.inner.open(name, options)?;
        Ok(TimedFile::new(inner, self.statistics.clone()))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, name: &str, to: &str) -> Result<()> {
        self.inner.rename(name, to)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> Result<()> {
        self.inner.sync_directory()
    }

    fn channel(&self, options: ChannelOptions) -> Result<Self::Channel> {
        let depth = options.depth;
        let inner = self.inner.channel(options)?;
        Ok(TimedChannel::new(inner, depth, self.statistics.clone()))
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    #[inline]
    fn check_process(&self) -> Result<()> {
        self.inner.check_process()
    }
}
