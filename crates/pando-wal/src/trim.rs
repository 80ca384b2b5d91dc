//! Trimming: gives back the space that nothing needs in files that are in use: what lies before the
//! last checkpoint or after the newest record. Free files are cut or removed (`growth`).
//!
//! The files keep their names, lengths and headers, and the trimmed parts read as zeros. The next
//! flush that reaches such a place allocates it again, so it is slower than one over prepared
//! bytes, and on a full disk it waits for room. Only the leader of flushes writes to segments, so
//! only a leader trims.

use pando_device::{Device, File};

use crate::error::Result;
use crate::log::Log;

impl<D: Device> Log<D> {
    /// Gives back the space that no record after the last [`Log::truncate_below`] needs. Returns an
    /// upper bound of the number of bytes, 0 if the file system cannot do it. Blocks flushes
    /// meanwhile.
    ///
    /// # Errors
    /// Errors of the device, which do not poison the log, or the reason why the log is poisoned.
    pub fn trim(&self) -> Result<u64> {
        // Otherwise a file might be freed and removed before its hole is made.
        let _change = self.segments.begin_change();
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
