//! The log on disk: segments, records in them, and the batches that records carry.
//!
//! LSNs are byte positions of one endless tape, cut into segments of equal size: segment `i` covers
//! `[i * S, (i + 1) * S)`. Its first [`SEGMENT_HEADER_BYTES`] are a header, the rest are records,
//! none of which crosses its end. The LSN of a record is the position right after it. Files are
//! recycled: the name of a file is the number of its slot, and its header tells which segment it
//! contains.
//!
//! Reading order: [`segment`], [`record`], [`batch`].

pub mod batch;
pub mod record;
pub mod segment;

pub use batch::{BatchReader, BatchWriter, ChunkedValue, Operation};
pub use record::{RECORD_HEADER_BYTES, RecordHeader, RecordKind, SIGNATURE_BITS, record_bytes};
pub use segment::{SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES, SegmentHeader};
