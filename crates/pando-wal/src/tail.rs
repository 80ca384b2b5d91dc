//! The end of the log in memory: the position of the next record, and the room for reservations.
//!
//! One lock guards everything here, and it is held for at most one copy. A record is appended only
//! against a reservation, and reservations are given only while all of them fit.
//!
//! # Why reserved records always fit
//!
//! *Buffer*: records in the active buffer and reservations together stay within `buffer_bytes`. The
//! buffer itself is larger, by the share of [`buffer_capacity`] for headers and padding.
//!
//! *File*: a reservation is charged its record and the padding of a flush of its own. The log
//! leaves a segment when the next record does not fit, so it wastes less than the largest charge.
//! Records that did not fit in the current and `n` free segments would have left `n` of them and
//! overflowed the last. So they do fit while the sum of their charges is at most the room in all of
//! them, less `n` times the largest charge, less one flush's padding for what is already in the
//! buffer.

use std::collections::VecDeque;
use std::mem::offset_of;

use pando_format::Lsn;
use pando_format::cast::{u32_of, u32_of_len, usize_of};
use pando_format::checksum::crc32c;
use pando_format::log::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_HEADER_BYTES, SegmentHeader,
    record_bytes,
};

use crate::buffer::LogBuffer;
use crate::options::LogOptions;
use crate::unused::{Unused, outside};

const HEADER: u64 = RECORD_HEADER_BYTES as u64;

/// A segment that is in use.
#[derive(Debug, Clone, Copy)]
struct LiveSegment {
    number: u64,
    slot: usize,
}

/// A prepared file that no record needs.
#[derive(Debug, Clone, Copy)]
struct FreeSegment {
    slot: usize,
    /// Position at which the segment that it held ended, 0 when this life has not used the file.
    held_until: u64,
}

/// Why there is no room for a reservation now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// A flush makes room.
    Buffer,
    /// A checkpoint, or a prepared segment, makes room.
    File,
}

/// See the module. Guarded by `SharedTail::tail`. The fields that each append writes come right
/// after the lock's word and are on its cache line, so that one cache line moves between cores for
/// an append instead of three.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Tail {
    /// Position of the next record, unless it opens a segment.
    position: u64,
    newest: Lsn,
    /// Reserved bytes of records in the buffer.
    reserved_bytes: u64,
    /// The same, with the padding of one flush for each record.
    reserved_charge: u64,
    active: LogBuffer,
    options: LogOptions,
    /// Size in bytes of a sector, to which flushes are padded.
    sector: u64,
    /// The other buffer, unless a flush is in flight.
    spare: Option<LogBuffer>,
    /// End of the current segment. Equal to `position` when there is none.
    segment_end: u64,
    current_slot: usize,
    /// Segments in use, oldest first.
    live: VecDeque<LiveSegment>,
    free: VecDeque<FreeSegment>,
    durable_position: u64,
    truncated_below: u64,
}

/// The lock's word takes eight bytes of the line.
const _: () = assert!(8 + offset_of!(Tail, active) + LogBuffer::WRITTEN_BYTES <= 64);

/// Returns the size of a buffer for `options.buffer_bytes` bytes of records: leaving a segment
/// costs its padding, the next one costs its header, and between two such switches lies at least
/// half a segment of records.
pub(crate) fn buffer_capacity(options: &LogOptions, sector: u64) -> usize {
    let switches = options.buffer_bytes / (options.segment_bytes as usize / 2) + 2;
    let padding = 2 * (usize_of(sector) + RECORD_HEADER_BYTES);
    options.buffer_bytes + switches * (SEGMENT_HEADER_BYTES + padding) + padding
}

impl FreeSegment {
    fn unused(slot: usize) -> Self {
        Self {
            slot,
            held_until: 0,
        }
    }
}

impl Tail {
    /// Returns the tail of a log without records. `sector` is the size to which flushes are padded,
    /// in bytes; `ready` are the slots of prepared files.
    pub(crate) fn new(options: LogOptions, sector: u64, ready: &[usize]) -> Self {
        assert!(sector.is_power_of_two());
        assert!(sector <= SEGMENT_HEADER_BYTES as u64);
        let buffer = || LogBuffer::new(buffer_capacity(&options, sector));
        Self {
            options,
            sector,
            active: buffer(),
            spare: Some(buffer()),
            position: options.start.0,
            segment_end: options.start.0,
            current_slot: 0,
            live: VecDeque::new(),
            free: ready
                .iter()
                .map(|slot| FreeSegment::unused(*slot))
                .collect(),
            reserved_bytes: 0,
            reserved_charge: 0,
            newest: options.start,
            durable_position: options.start.0,
            truncated_below: options.start.0,
        }
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.options.segment_bytes)
    }

    /// Returns the maximum number of padding bytes after the last record of a flush.
    fn padding_max(&self) -> u64 {
        self.sector + HEADER
    }

    fn charge(&self, record: u64) -> u64 {
        record + self.padding_max()
    }

    /// Returns the number of bytes of files that all reservations together may claim.
    fn claimable(&self) -> u64 {
        let largest = self.charge(record_bytes(self.options.max_batch_bytes()));
        let of_current = self.segment_end - self.position;
        let of_free = self.segment_bytes() - SEGMENT_HEADER_BYTES as u64 - largest;
        (of_current + self.free.len() as u64 * of_free).saturating_sub(self.padding_max())
    }

    /// Reserves room for a record of `record` bytes, header included.
    pub(crate) fn try_reserve(&mut self, record: u64) -> Result<(), NoRoom> {
        let buffered = self.active.record_bytes + self.reserved_bytes + record;
        if buffered > self.options.buffer_bytes as u64 {
            return Err(NoRoom::Buffer);
        }
        if !self.file_has_room(record) {
            return Err(NoRoom::File);
        }
        self.reserved_bytes += record;
        self.reserved_charge += self.charge(record);
        Ok(())
    }

    /// Returns whether the files have room for a record of `record` bytes, independently of the
    /// buffer.
    pub(crate) fn file_has_room(&self, record: u64) -> bool {
        self.reserved_charge + self.charge(record) <= self.claimable()
    }

    /// Takes back a reservation of `record` bytes.
    pub(crate) fn release(&mut self, record: u64) {
        let charge = self.charge(record);
        assert!(self.reserved_bytes >= record, "reservations sum up");
        assert!(self.reserved_charge >= charge, "charges sum up");
        self.reserved_bytes -= record;
        self.reserved_charge -= charge;
    }

    /// Copies a record into the buffer, against a reservation of at least `record` bytes.
    pub(crate) fn append(
        &mut self,
        kind: RecordKind,
        flags: u8,
        payload: &[u8],
        payload_crc: u32,
    ) -> Lsn {
        let bytes = record_bytes(payload.len());
        if self.position + bytes > self.segment_end {
            self.next_segment();
        }
        self.continue_run();
        let lsn = Lsn(self.position + bytes);
        let header = RecordHeader {
            length: u32_of_len(payload.len()),
            kind,
            flags,
            lsn,
            incarnation: self.options.incarnation,
            durable: Lsn(self.durable_position),
            signature: self.options.signature,
        };
        let record = self.active.extend(usize_of(bytes));
        record[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode(payload_crc));
        let (stored, rest) = record[RECORD_HEADER_BYTES..].split_at_mut(payload.len());
        stored.copy_from_slice(payload);
        rest.fill(0);
        assert!(lsn > self.newest, "LSNs only grow");
        assert!(lsn.0 <= self.segment_end, "a record lies in one segment");
        self.position = lsn.0;
        self.newest = lsn;
        self.active.records += 1;
        self.active.record_bytes += bytes;
        debug_assert!(
            self.active.record_bytes + self.reserved_bytes <= self.options.buffer_bytes as u64,
            "what is in the buffer and what is reserved of it fit together"
        );
        lsn
    }

    /// Makes a fresh buffer continue where the last flush ended, in the same file.
    fn continue_run(&mut self) {
        let offset = self.position % self.segment_bytes();
        match self.active.run_end() {
            Some(end) => debug_assert_eq!(end, offset),
            None => {
                debug_assert!(offset.is_multiple_of(self.sector));
                self.active.begin_run(self.current_slot, offset);
            }
        }
    }

    /// Leaves the current segment, whose rest becomes padding, and opens the next one.
    fn next_segment(&mut self) {
        let rest = self.segment_end - self.position;
        if rest >= HEADER {
            self.continue_run();
            let rest_of_sector = self.position.next_multiple_of(self.sector) - self.position;
            let stored = if rest_of_sector >= HEADER {
                rest_of_sector
            } else {
                rest_of_sector + self.sector
            };
            // At most the rest, since the segment ends at a sector and a header fits before its
            // end.
            self.push_padding(rest, stored.min(rest));
        } else if !self.active.is_empty() {
            self.active.extend(usize_of(rest)).fill(0);
        }
        let number = self.segment_end / self.segment_bytes();
        let free = self.free.pop_front();
        let FreeSegment { slot, held_until } = free.expect("a reservation covers the segment");
        assert!(
            held_until <= self.truncated_below,
            "only what the truncation has passed is written over"
        );
        assert!(
            self.live.iter().all(|live| live.slot != slot),
            "a file holds one segment"
        );
        assert!(
            self.live
                .back()
                .is_none_or(|last| last.number + 1 == number),
            "segments follow each other"
        );
        self.live.push_back(LiveSegment { number, slot });
        self.current_slot = slot;
        self.active.begin_run(slot, 0);
        self.active.push_segment_header(&SegmentHeader {
            segment: Some(number),
            incarnation: self.options.incarnation,
            identity: self.options.identity,
            segment_bytes: self.options.segment_bytes,
        });
        self.position = self.segment_end + SEGMENT_HEADER_BYTES as u64;
        self.segment_end += self.segment_bytes();
    }

    /// Appends a padding record of `bytes` bytes, of which the first `stored` go to the device.
    fn push_padding(&mut self, bytes: u64, stored: u64) {
        let header = RecordHeader {
            length: u32_of(bytes - HEADER),
            kind: RecordKind::Padding,
            flags: 0,
            lsn: Lsn(self.position + bytes),
            incarnation: self.options.incarnation,
            durable: Lsn(self.durable_position),
            signature: self.options.signature,
        };
        assert_eq!(header.bytes(), bytes, "padding ends where it was to end");
        assert!((HEADER..=bytes).contains(&stored), "its header is stored");
        let record = self.active.extend(usize_of(stored));
        record[..RECORD_HEADER_BYTES].copy_from_slice(&header.encode(crc32c(&[])));
        record[RECORD_HEADER_BYTES..].fill(0);
        self.position += bytes;
    }

    /// Pads to the end of the sector, so that the next flush does not rewrite it.
    fn pad(&mut self) {
        let rest = self.position.next_multiple_of(self.sector) - self.position;
        if rest == 0 {
            return;
        }
        if rest >= HEADER {
            self.push_padding(rest, rest);
        } else if self.position + rest == self.segment_end {
            self.active.extend(usize_of(rest)).fill(0);
            self.position += rest;
        } else {
            self.push_padding(rest + self.sector, rest + self.sector);
        }
    }

    /// Takes the buffer to flush, `None` when it is empty. Only the leader calls this.
    pub(crate) fn take(&mut self) -> Option<LogBuffer> {
        if self.active.is_empty() {
            return None;
        }
        self.pad();
        self.active.end = self.position;
        self.active.newest = self.newest;
        self.check_runs();
        let mut next = self.spare.take().expect("one flush is in flight at most");
        next.clear();
        Some(std::mem::replace(&mut self.active, next))
    }

    /// Checks that a flush writes whole sectors of live segments, from the end of the last flush to
    /// `position`.
    fn check_runs(&self) {
        let size = self.segment_bytes();
        let mut begin = self.durable_position;
        let mut end = begin;
        for run in self.active.runs() {
            let live = self.live.iter().find(|live| live.slot == run.slot);
            let start = live.expect("a flush writes to live segments").number * size;
            assert_eq!(start + run.offset, begin, "a flush leaves no gap");
            end = begin + run.bytes.len() as u64;
            assert!(end <= start + size, "a run lies in one segment");
            let aligned = begin.is_multiple_of(self.sector) && end.is_multiple_of(self.sector);
            assert!(aligned, "a flush is made of whole sectors");
            begin = start + size;
        }
        assert_eq!(end, self.position, "nothing is left for the next flush");
    }

    /// Takes `buffer` back, whose flush is durable.
    pub(crate) fn give_back(&mut self, buffer: LogBuffer) {
        assert!(self.durable_position < buffer.end, "durable only grows");
        assert!(
            buffer.end <= self.position,
            "only what was appended is durable"
        );
        assert!(
            buffer.newest.0 <= buffer.end,
            "a flush ends behind its records"
        );
        assert!(self.spare.is_none(), "one flush was in flight");
        self.durable_position = buffer.end;
        self.spare = Some(buffer);
    }

    /// Recycles segments that end at or below `lsn` and are durable.
    pub(crate) fn truncate_below(&mut self, lsn: Lsn) {
        let limit = lsn.0.min(self.durable_position);
        self.truncated_below = self.truncated_below.max(limit);
        while let Some(oldest) = self.live.front() {
            let end = (oldest.number + 1) * self.segment_bytes();
            if end > limit {
                break;
            }
            self.free.push_back(FreeSegment {
                slot: oldest.slot,
                held_until: end,
            });
            self.live.pop_front();
        }
        assert!(self.truncated_below <= self.durable_position);
        assert!(
            !self.live.is_empty() || self.position == self.segment_end,
            "the segment that records go to is live"
        );
    }

    /// Returns the parts of files that neither the records after the last truncation need, nor the
    /// records that will be written before the next flush begins.
    pub(crate) fn unused(&self) -> Vec<Unused> {
        let size = self.segment_bytes();
        let of_slot = |slot: usize, used| outside(used, size).map(|range| (slot, range));
        let free = self.free.iter().flat_map(|free| of_slot(free.slot, 0..0));
        // Of each live segment, the used part is from the truncation to the end of the records.
        let live = self.live.iter().flat_map(|segment| {
            let start = segment.number * size;
            let within = |position: u64| position.clamp(start, start + size) - start;
            of_slot(
                segment.slot,
                within(self.truncated_below)..within(self.position),
            )
        });
        free.chain(live).collect()
    }

    /// Adds a prepared segment to the budget.
    pub(crate) fn add_slot(&mut self, slot: usize) {
        let known = self.free.iter().any(|free| free.slot == slot)
            || self.live.iter().any(|live| live.slot == slot);
        assert!(!known, "a file joins once");
        self.free.push_back(FreeSegment::unused(slot));
    }

    /// Returns the LSN of the newest record.
    pub(crate) fn newest(&self) -> Lsn {
        self.newest
    }

    /// Returns the number of bytes of records that wait for a flush.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.active.record_bytes
    }

    /// Returns the number of bytes of the log that a checkpoint would free.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.position - self.truncated_below
    }

    /// Returns the reserved bytes of records: 0 when the store is idle.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_format::bytes::u32_at;

    const SECTOR: u64 = 512;
    /// The kind byte of a padding record.
    const PADDING: u8 = 2;

    /// Walks over the bytes that a flush writes. Checks that all bytes outside of payloads are
    /// zeros. Returns the number of bytes of padding.
    fn check_padding(buffer: &LogBuffer, segment_bytes: u64) -> u64 {
        let mut padding = 0;
        for run in buffer.runs() {
            let bytes = run.bytes;
            let base = |position: usize| run.offset + position as u64;
            let mut position = if run.offset == 0 {
                SEGMENT_HEADER_BYTES
            } else {
                0
            };
            while position + RECORD_HEADER_BYTES <= bytes.len() {
                let header = &bytes[position..position + RECORD_HEADER_BYTES];
                let length = u32_at(header, 4) as usize;
                let start = position + RECORD_HEADER_BYTES;
                let end = (start + length).next_multiple_of(8).min(bytes.len());
                let is_padding = header[8] == PADDING;
                let zeros = if is_padding { start } else { start + length };
                assert!(
                    bytes[zeros..end].iter().all(|byte| *byte == 0),
                    "after {} of the segment",
                    base(zeros)
                );
                assert!(is_padding || bytes[start..zeros].iter().all(|byte| *byte == 0xFF));
                padding += (end - zeros) as u64;
                position = end;
            }
            assert!(bytes[position..].iter().all(|byte| *byte == 0));
            assert!(base(bytes.len()) <= segment_bytes);
        }
        padding
    }

    #[test]
    fn what_pads_a_flush_is_zeros_whatever_the_buffer_held() {
        let options = LogOptions {
            segment_bytes: 64 << 10,
            segments: 4,
            buffer_bytes: 16 << 10,
            identity: [1; 16],
            incarnation: 1,
            signature: 7,
            start: Lsn(0),
            flush_method: crate::options::FlushMethod::Auto,
        };
        let mut tail = Tail::new(options, SECTOR, &[0, 1, 2, 3]);
        let payload = vec![0xFF; 8000];
        let mut random = fastrand::Rng::with_seed(7);
        let mut padding = 0;
        for _ in 0..2000 {
            for _ in 0..random.u32(1..=3) {
                let length = random.usize(..3000);
                let bytes = record_bytes(length);
                tail.try_reserve(bytes).unwrap();
                tail.release(bytes);
                tail.append(RecordKind::Batch, 0, &payload[..length], 0);
            }
            let buffer = tail.take().unwrap();
            padding += check_padding(&buffer, u64::from(options.segment_bytes));
            tail.give_back(buffer);
            tail.truncate_below(tail.newest());
        }
        assert!(padding > 100_000, "{padding}");
    }
}
