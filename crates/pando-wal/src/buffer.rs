//! Buffers of records that wait for a flush: bytes for the device, in runs that are contiguous in
//! one file.
//!
//! A run begins at a sector boundary both in the buffer and in its file. The buffer has additional
//! room for all segment headers and padding that its records can need, so that a reserved record
//! always fits.

use std::mem::offset_of;

use pando_device::IoBuf;
use pando_format::Lsn;
use pando_format::log::{SEGMENT_HEADER_BYTES, SegmentHeader};

use crate::segments::SECTOR_BYTES_MIN;

/// The start of a run: the bytes of the buffer from `start` to the next run go to the file in
/// `slot`, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunStart {
    slot: usize,
    offset: u64,
    start: usize,
}

/// A run: bytes of the buffer for the file in `slot`, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    /// Slot of the segment's file.
    pub(crate) slot: usize,
    /// Offset in that file, in bytes.
    pub(crate) offset: u64,
    /// What has been appended to the run so far.
    pub(crate) bytes: &'a [u8],
}

/// One of the two buffers of a log. Appends fill it under the tail's lock, and the leader writes it
/// to the device.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LogBuffer {
    used: usize,
    /// Number of records in it, without padding.
    pub(crate) records: u64,
    /// Sum of their bytes, which the buffer's budget counts.
    pub(crate) record_bytes: u64,
    // An append does not write the following fields.
    bytes: IoBuf,
    runs: Vec<RunStart>,
    /// LSN of the newest record. Set when the buffer is taken for a flush.
    pub(crate) newest: Lsn,
    /// Position after the padding at its end. Set when the buffer is taken for a flush.
    pub(crate) end: u64,
}

impl LogBuffer {
    /// Length of the first part of the struct, which each append writes.
    pub(crate) const WRITTEN_BYTES: usize = offset_of!(Self, bytes);

    /// Makes an empty buffer of `capacity` bytes; see [`crate::tail::buffer_capacity`].
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            bytes: IoBuf::new(capacity),
            used: 0,
            runs: Vec::new(),
            records: 0,
            record_bytes: 0,
            newest: Lsn(0),
            end: 0,
        }
    }

    /// True if it has no bytes, of records or of padding and headers.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Empties it and keeps its memory; `newest` and `end` are set again by the next flush.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
        self.records = 0;
        self.record_bytes = 0;
    }

    /// Begins a run: later bytes go to the file in `slot`, from `offset` on.
    pub(crate) fn begin_run(&mut self, slot: usize, offset: u64) {
        assert!(
            self.used.is_multiple_of(SECTOR_BYTES_MIN),
            "a run begins at a sector of the buffer"
        );
        self.runs.push(RunStart {
            slot,
            offset,
            start: self.used,
        });
    }

    /// Returns the next `count` bytes, which the caller writes.
    pub(crate) fn extend(&mut self, count: usize) -> &mut [u8] {
        let start = self.used;
        self.used += count;
        assert!(!self.runs.is_empty(), "bytes belong to a run");
        &mut self.bytes[start..self.used]
    }

    /// Appends a segment's header, at the start of a run.
    pub(crate) fn push_segment_header(&mut self, header: &SegmentHeader) {
        assert_eq!(self.run_end(), Some(0), "a header begins its segment");
        header.encode_into(self.extend(SEGMENT_HEADER_BYTES));
    }

    /// Returns whether there is an open run.
    pub(crate) fn has_run(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Returns the offset in its file at which the open run ends, `None` without a run.
    pub(crate) fn run_end(&self) -> Option<u64> {
        let run = self.runs.last()?;
        Some(run.offset + (self.used - run.start) as u64)
    }

    /// Returns the runs in the order in which they were begun.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        let starts = self.runs.iter().map(|run| run.start);
        let ends = starts.skip(1).chain([self.used]);
        self.runs.iter().zip(ends).map(|(run, end)| Run {
            slot: run.slot,
            offset: run.offset,
            bytes: &self.bytes[run.start..end],
        })
    }
}
