//! Settings of a log, and the sizes that follow from them.
//!
//! | size            | meaning                                                                   |
//! |-----------------|---------------------------------------------------------------------------|
//! | segment bytes   | of a file, its header included                                            |
//! | segments        | most files; the budget of the log is their sum                            |
//! | buffer bytes    | most bytes of records that wait for a flush; there are two buffers        |

use pando_format::Lsn;
use pando_format::log::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES};

use crate::error::{Error, Result};

/// With one to write and one to recycle, a checkpoint always makes room.
pub(crate) const SEGMENTS_MIN: usize = 2;
/// Least bytes of a log buffer.
pub const BUFFER_BYTES_MIN: usize = 16 << 10;
/// What a buffer never gives to a record: its header, and padding to a sector.
const BUFFER_OVERHEAD: usize = 8192;
/// What a segment can never give to one of two records of the largest size.
const SEGMENT_OVERHEAD: usize = 3 * SEGMENT_HEADER_BYTES;

/// How a flush reaches the device. Every flush ends with a sync of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMethod {
    /// Whichever is quicker at open.
    #[default]
    Auto,
    /// Past the page cache where the file system can.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Settings of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Bytes of a segment: a power of two, at least [`SEGMENT_BYTES_MIN`].
    pub segment_bytes: u32,
    /// Most segments, at least 2.
    pub segments: u32,
    /// Most bytes of records that wait for a flush, at least [`BUFFER_BYTES_MIN`].
    pub buffer_bytes: usize,
    /// Identity of the store.
    pub identity: [u8; 16],
    /// This life of the log: the generation of the checkpoint that ended recovery, durable before
    /// the log is opened.
    pub incarnation: u64,
    /// What all records of this life carry and nobody knows who writes values: 48 bits. Who reads
    /// the log has the same in [`crate::ReplayOptions`].
    pub signature: u64,
    /// Where this life begins: a multiple of the segment size behind everything that any earlier
    /// life wrote ([`crate::ReplayEnd::restart`]); nothing before it is needed any more.
    pub start: Lsn,
    /// How a flush reaches the device.
    pub flush_method: FlushMethod,
}

impl LogOptions {
    /// Most bytes of the payload of a batch: what an empty buffer holds, or a little less than half
    /// of a segment.
    pub fn max_batch_bytes(&self) -> usize {
        let of_buffer = self.buffer_bytes - BUFFER_OVERHEAD;
        let of_segment = self.segment_bytes as usize / 2 - SEGMENT_OVERHEAD;
        of_buffer.min(of_segment)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Options { what });
        if !self.segment_bytes.is_power_of_two() || self.segment_bytes < SEGMENT_BYTES_MIN {
            return refuse(format!(
                "segments of {} bytes: a power of two from {SEGMENT_BYTES_MIN} is needed",
                self.segment_bytes
            ));
        }
        if (self.segments as usize) < SEGMENTS_MIN {
            return refuse(format!(
                "{} segments: at least {SEGMENTS_MIN}",
                self.segments
            ));
        }
        if self.buffer_bytes < BUFFER_BYTES_MIN {
            return refuse(format!(
                "a buffer of {} bytes: at least {BUFFER_BYTES_MIN}",
                self.buffer_bytes
            ));
        }
        if !self.start.0.is_multiple_of(u64::from(self.segment_bytes)) {
            return refuse(format!("start {}: not at a segment", self.start));
        }
        Ok(())
    }
}
