//! Options of a log, and the sizes that follow from them.
//!
//! | size            | meaning                                                                   |
//! |-----------------|---------------------------------------------------------------------------|
//! | segment bytes   | of a file, its header included                                            |
//! | segments        | the budget of the log in segments of full size                            |
//! | file bytes      | of the smallest files; the log is made of two of them at first            |
//! | buffer bytes    | most bytes of records that wait for a flush; there are two buffers        |

use pando_format::Lsn;
use pando_format::log::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES};

use crate::error::{Error, Result};

/// With one segment to write and one to recycle, a checkpoint always makes room.
pub(crate) const SEGMENTS_MIN: usize = 2;
/// Minimum size of a log buffer in bytes.
pub const BUFFER_BYTES_MIN: usize = 16 << 10;
/// Bytes of a buffer that a payload cannot use: the record's header, and padding to a sector.
const BUFFER_OVERHEAD: usize = 8192;
/// Records of up to a quarter of the smallest file are small: the usual ones, which are promised
/// room without a look at how large the files are.
const SMALL_SHARE: usize = 4;
/// Bytes of a segment that two records of the largest size cannot use.
const SEGMENT_OVERHEAD: usize = 3 * SEGMENT_HEADER_BYTES;

/// How a flush reaches the device. Every flush ends with a sync of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMethod {
    /// The method that is faster, measured at open.
    #[default]
    Auto,
    /// Bypasses the page cache where the file system can.
    Direct,
    /// Writes through the page cache.
    Buffered,
}

/// Options of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of a segment in bytes: a power of two, at least [`SEGMENT_BYTES_MIN`].
    pub segment_bytes: u32,
    /// Maximum number of segments of full size, at least 2: the files have no more bytes than these
    /// together, but for one more that the largest batch may need.
    pub segments: u32,
    /// Size of the smallest files in bytes: a power of two from [`SEGMENT_BYTES_MIN`] to the size
    /// of a segment.
    pub file_bytes: u32,
    /// Maximum number of bytes of records that wait for a flush, at least [`BUFFER_BYTES_MIN`].
    pub buffer_bytes: usize,
    /// Identity of the store.
    pub identity: [u8; 16],
    /// Number of this life of the log: the generation of the checkpoint that ended recovery, which
    /// was durable before the log is opened.
    pub incarnation: u64,
    /// A secret of 48 bits that all records of this life carry, and that writers of values do not
    /// know. [`crate::ReplayOptions`] has the same.
    pub signature: u64,
    /// Start of this life: a multiple of the segment size after everything that any earlier life
    /// wrote ([`crate::ReplayEnd::restart`]). Nothing before it is needed any longer.
    pub start: Lsn,
    /// How a flush reaches the device.
    pub flush_method: FlushMethod,
}

impl LogOptions {
    /// Returns the maximum length of a batch's payload in bytes: what an empty buffer holds, or a
    /// little less than half of a segment, whichever is less.
    pub fn max_batch_bytes(&self) -> usize {
        let of_buffer = self.buffer_bytes - BUFFER_OVERHEAD;
        let of_segment = self.segment_bytes as usize / 2 - SEGMENT_OVERHEAD;
        of_buffer.min(of_segment)
    }

    /// Returns the maximum number of bytes of the files of the log.
    pub(crate) fn budget_bytes(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.segment_bytes)
    }

    /// Returns the maximum length of a small payload in bytes.
    pub(crate) fn small_batch_bytes(&self) -> usize {
        let of_file = self.file_bytes as usize / SMALL_SHARE;
        self.max_batch_bytes().min(of_file)
    }

    /// Refuses sizes and a start that no log can have.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::Options { what });
        if !self.segment_bytes.is_power_of_two() || self.segment_bytes < SEGMENT_BYTES_MIN {
            return refuse(format!(
                "segments of {} bytes: a power of two from {SEGMENT_BYTES_MIN} is needed",
                self.segment_bytes
            ));
        }
        let files = SEGMENT_BYTES_MIN..=self.segment_bytes;
        if !self.file_bytes.is_power_of_two() || !files.contains(&self.file_bytes) {
            return refuse(format!(
                "files of {} bytes: a power of two from {SEGMENT_BYTES_MIN} to {} is needed",
                self.file_bytes, self.segment_bytes
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
