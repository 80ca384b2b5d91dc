//! Giving the space of log files back that holds nothing: free segments, and of the current one
//! what lies before the last checkpoint and behind the newest record.
//!
//! The files keep their names, lengths and headers; what is given back reads as zeros. The next
//! flush to reach such a place allocates it again: it is slower than one over prepared bytes, and a
//! full disk shows there, where a flush waits for room. Only the leader of flushes writes to
//! segments, so this is done by who leads.

use pando_device::{Device, File};

use crate::error::Result;
use crate::log::Log;

impl<D: Device> Log<D> {
    /// Gives back what no record behind the last [`Log::truncate_below`] needs. Returns how many
    /// bytes that were, at most; 0 where the file system cannot. Blocks flushes meanwhile.
    ///
    /// # Errors
    /// What the device reports. The log is not poisoned; why it is, if it is.
    pub fn trim(&self) -> Result<u64> {
        let trimmed = self.group.while_leading(|| self.trim_leading());
        match trimmed {
            Some(trimmed) => trimmed,
            None => self.poisoned().map_or(Ok(0), Err),
        }
    }

    fn trim_leading(&self) -> Result<u64> {
        let unused = self.shared.tail.lock().unused();
        let mut bytes = 0;
        for (slot, range) in unused {
            if range.is_empty() {
                continue;
            }
            let count = range.end - range.start;
            match self.segments.file(slot).punch(range.start, count) {
                Ok(()) => bytes += count,
                Err(pando_device::Error::Unsupported { .. }) => return Ok(bytes),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }
}
