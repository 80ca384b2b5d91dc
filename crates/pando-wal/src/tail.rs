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
//! *File*: a reservation is charged its record and the padding of a flush of its own. Let W be at
//! least the largest charge. The log leaves a file when the next record does not fit, so it wastes
//! less than W; then it takes a free file in which the record fits. Call a free file large if it
//! holds more than W: a record finds a place as long as one of these is left. If the last of them,
//! of u bytes, overflowed, then the current file and all other large ones would have been left,
//! each with less than W to spare. So it does not overflow while the sum of all charges is at most
//! the rest of the current file, plus what each large file holds beyond W, less one flush's padding
//! for what is already in the buffer. (Without a large file: at most the rest of the current one.)
//! Smaller files only help. This is checked when a reservation is made and when a free file is
//! taken away; in between, what fits in any order goes on fitting.
//!
//! W is the charge of the largest small record, unless a larger one is reserved: then it is that of
//! the largest batch, so that files which could hold it are needed. A record that is alone fits
//! where any file holds it.
//!
//! # Files shorter than a segment
//!
//! A file may be shorter than a segment. Positions of the segment behind its end exist, but no
//! record lies there: the log leaves such a file early, with a padding record that reaches to the
//! end of the segment, and whose header is always within the file.

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
use crate::options::{LogOptions, SEGMENTS_MIN};

const HEADER: u64 = RECORD_HEADER_BYTES as u64;
/// A new file has this fraction of the log.
const GROWTH_SHARE: u64 = 4;
/// A file is made ahead when less than this fraction of the log has room.
const AHEAD_SHARE: u64 = 8;

/// A segment that is in use.
#[derive(Debug, Clone, Copy)]
struct LiveSegment {
    number: u64,
    slot: usize,
    /// Length of the file.
    bytes: u64,
    /// Position behind the last byte that was written, once the log has left it.
    end: u64,
}

/// A prepared file that no record needs.
#[derive(Debug, Clone, Copy)]
struct FreeSegment {
    slot: usize,
    /// Length of the file.
    bytes: u64,
    /// Position at which the segment that it held ended, 0 when this life has not used the file.
    held_until: u64,
}

/// Why there is no room for a reservation now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// A flush makes room.
    Buffer,
    /// A checkpoint, or a new file, makes room.
    File,
    /// The log has ended.
    Closed,
}

/// What is done with a free file that is longer than needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spare {
    /// Slot of the file. It belongs to the caller now.
    pub(crate) slot: usize,
    /// The length to which it is cut; 0 if it is removed.
    pub(crate) keeps: u64,
    /// Its length before.
    pub(crate) bytes: u64,
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
    /// Length of the largest record that is small, header included.
    small_max: u64,
    /// Size in bytes of a sector, to which flushes are padded.
    sector: u64,
    /// The other buffer, unless a flush is in flight.
    spare: Option<LogBuffer>,
    /// End of the current segment. Equal to `position` when there is none.
    segment_end: u64,
    /// End of the records in the current file: behind it a short file has room for padding only.
    record_end: u64,
    current_slot: usize,
    /// Segments in use, oldest first.
    live: VecDeque<LiveSegment>,
    free: VecDeque<FreeSegment>,
    durable_position: u64,
    truncated_below: u64,
    /// Number of reservations that are not small.
    large_reserved: usize,
    /// Position up to which reservations may claim: for small records, and if there are large ones.
    claim_end: [u64; 2],
    /// Bytes that the log needed between checkpoints lately.
    need: u64,
    /// Nothing is appended any more.
    closed: bool,
    /// A file was left early since the last flush began: [`buffer_capacity`] has room for one.
    left_early: bool,
}

/// The lock's word takes eight bytes of the line.
const _: () = assert!(8 + offset_of!(Tail, active) + LogBuffer::WRITTEN_BYTES <= 64);

/// Returns the size of a buffer for `options.buffer_bytes` bytes of records: leaving a file costs
/// its padding, the next one costs its header, and two files that follow each other hold more
/// records than fit into the smallest, but for one that is left early (`left_early`).
pub(crate) fn buffer_capacity(options: &LogOptions, sector: u64) -> usize {
    let least = options.file_bytes as usize / 2 - 2 * SEGMENT_HEADER_BYTES;
    let switches = options.buffer_bytes / least + 2;
    let padding = 2 * (usize_of(sector) + RECORD_HEADER_BYTES);
    options.buffer_bytes + switches * (SEGMENT_HEADER_BYTES + padding) + padding
}

impl FreeSegment {
    fn unused((slot, bytes): (usize, u64)) -> Self {
        Self {
            slot,
            bytes,
            held_until: 0,
        }
    }
}

impl Tail {
    /// Returns the tail of a log without records. `sector` is the size to which flushes are padded,
    /// in bytes; `ready` are slots and lengths of prepared files.
    pub(crate) fn new(options: LogOptions, sector: u64, ready: &[(usize, u64)]) -> Self {
        assert!(sector.is_power_of_two());
        assert!(sector <= SEGMENT_HEADER_BYTES as u64);
        let buffer = || LogBuffer::new(buffer_capacity(&options, sector));
        let mut tail = Self {
            options,
            small_max: record_bytes(options.small_batch_bytes()),
            sector,
            active: buffer(),
            spare: Some(buffer()),
            position: options.start.0,
            segment_end: options.start.0,
            record_end: options.start.0,
            current_slot: 0,
            live: VecDeque::new(),
            free: ready.iter().copied().map(FreeSegment::unused).collect(),
            reserved_bytes: 0,
            reserved_charge: 0,
            newest: options.start,
            durable_position: options.start.0,
            truncated_below: options.start.0,
            large_reserved: 0,
            claim_end: [options.start.0; 2],
            need: 0,
            closed: false,
            left_early: false,
        };
        tail.note_files();
        tail
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

    /// Returns the charge of the largest record: of small ones, or of all.
    fn charge_max(&self, is_large: bool) -> u64 {
        let record = match is_large {
            true => record_bytes(self.options.max_batch_bytes()),
            false => self.small_max,
        };
        self.charge(record)
    }

    fn is_large(&self, record: u64) -> bool {
        record > self.small_max
    }

    /// Returns the length of the part of a file of `bytes` bytes where records may lie, its header
    /// included. A short file has two sectors behind it: the last flush may pad into the first, and
    /// the header of the padding that reaches to the end of the segment lies in the second at the
    /// latest.
    fn record_part(&self, bytes: u64) -> u64 {
        if bytes == self.segment_bytes() {
            bytes
        } else {
            bytes - 2 * self.sector
        }
    }

    /// Returns the number of bytes of records that a file of `bytes` bytes holds.
    fn holds(&self, bytes: u64) -> u64 {
        self.record_part(bytes) - SEGMENT_HEADER_BYTES as u64
    }

    /// Computes anew what reservations may claim. Called when files have changed.
    fn note_files(&mut self) {
        for is_large in [false, true] {
            let largest = self.charge_max(is_large);
            let of_file = |free: &FreeSegment| self.holds(free.bytes).saturating_sub(largest);
            let of_free: u64 = self.free.iter().map(of_file).sum();
            let end = self.record_end + of_free;
            self.claim_end[usize::from(is_large)] = end.saturating_sub(self.padding_max());
        }
    }

    /// Reserves room for a record of `record` bytes, header included.
    pub(crate) fn try_reserve(&mut self, record: u64) -> Result<(), NoRoom> {
        let buffered = self.active.record_bytes + self.reserved_bytes + record;
        if buffered > self.options.buffer_bytes as u64 {
            return Err(NoRoom::Buffer);
        }
        if !self.file_has_room(record) {
            return Err(match self.closed {
                true => NoRoom::Closed,
                false => NoRoom::File,
            });
        }
        if self.is_large(record) {
            self.large_reserved += 1;
        }
        self.reserved_bytes += record;
        self.reserved_charge += self.charge(record);
        Ok(())
    }

    /// Returns whether the files have room for a record of `record` bytes, independently of the
    /// buffer.
    pub(crate) fn file_has_room(&self, record: u64) -> bool {
        let is_large = self.large_reserved > 0 || self.is_large(record);
        let end = self.position + self.reserved_charge + self.charge(record);
        end <= self.claim_end[usize::from(is_large)]
            || is_large && self.reserved_charge == 0 && self.fits_alone(record, true)
    }

    /// Returns whether a record that is alone fits into a free file, or into the current one if
    /// `is_free`; otherwise into any file that is free after the next checkpoint.
    fn fits_alone(&self, record: u64, is_free: bool) -> bool {
        let charge = self.charge(record) + self.padding_max();
        if self.position + charge <= self.record_end {
            return true;
        }
        let live = self.live.iter().rev().skip(1).map(|live| live.bytes);
        let live = live.filter(|_| !is_free);
        let mut files = self.free.iter().map(|free| free.bytes).chain(live);
        files.any(|bytes| self.holds(bytes) >= charge)
    }

    /// Returns whether a record of `record` bytes fits once a checkpoint has freed what it can.
    pub(crate) fn fits_after_checkpoint(&self, record: u64) -> bool {
        self.fits_alone(record, false)
    }

    /// Takes back a reservation of `record` bytes.
    pub(crate) fn release(&mut self, record: u64) {
        let charge = self.charge(record);
        assert!(self.reserved_bytes >= record, "reservations sum up");
        assert!(self.reserved_charge >= charge, "charges sum up");
        self.reserved_bytes -= record;
        self.reserved_charge -= charge;
        if self.is_large(record) {
            assert!(self.large_reserved > 0, "large reservations sum up");
            self.large_reserved -= 1;
        }
    }

    /// Copies a record into the buffer, against a reservation of at least its bytes.
    pub(crate) fn append(
        &mut self,
        kind: RecordKind,
        flags: u8,
        payload: &[u8],
        payload_crc: u32,
    ) -> Lsn {
        let bytes = record_bytes(payload.len());
        if self.position + bytes > self.record_end {
            self.next_segment(bytes);
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
        if let Some(last) = record.last_chunk_mut::<8>() {
            // A record has whole words; the payload may leave some bytes of the last one.
            *last = [0; 8];
        }
        let begin = record.first_chunk_mut();
        header.encode_to(begin.expect("a record has a header"), payload_crc);
        record[RECORD_HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        assert!(lsn > self.newest, "LSNs only grow");
        assert!(lsn.0 <= self.record_end, "a record lies in one file");
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
        debug_assert!(
            self.active.run_end().is_none_or(|end| end == offset),
            "a run goes on in its file"
        );
        if !self.active.has_run() {
            debug_assert!(offset.is_multiple_of(self.sector));
            self.active.begin_run(self.current_slot, offset);
        }
    }

    /// Leaves the current segment, whose rest becomes padding, and opens the next one, in a file
    /// that holds a record of `record` bytes.
    fn next_segment(&mut self, record: u64) {
        let rest = self.segment_end - self.position;
        let mut end = self.position;
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
            end += stored.min(rest);
        } else if !self.active.is_empty() {
            self.active.extend(usize_of(rest)).fill(0);
        }
        let number = self.segment_end / self.segment_bytes();
        let fitting = |free: &FreeSegment| self.holds(free.bytes) >= record;
        let place = self.free.iter().position(fitting);
        let free = place.and_then(|place| self.free.remove(place));
        let free = free.expect("a reservation covers the segment");
        let FreeSegment {
            slot,
            bytes,
            held_until,
        } = free;
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
        if let Some(left) = self.live.back_mut() {
            left.end = end;
        }
        self.live.push_back(LiveSegment {
            number,
            slot,
            bytes,
            end: 0,
        });
        self.current_slot = slot;
        self.active.begin_run(slot, 0);
        self.active.push_segment_header(&SegmentHeader {
            segment: Some(number),
            incarnation: self.options.incarnation,
            identity: self.options.identity,
            segment_bytes: self.options.segment_bytes,
        });
        self.position = self.segment_end + SEGMENT_HEADER_BYTES as u64;
        self.record_end = self.segment_end + self.record_part(bytes);
        self.segment_end += self.segment_bytes();
        self.note_files();
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
        self.left_early = false;
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
            assert!(
                end <= start + live.expect("found above").bytes,
                "a flush makes no file longer"
            );
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
        self.need = self.used_bytes().max(self.need / 2);
        self.truncated_below = self.truncated_below.max(limit);
        while let Some(oldest) = self.live.front() {
            let end = (oldest.number + 1) * self.segment_bytes();
            if end > limit {
                break;
            }
            self.free.push_back(FreeSegment {
                slot: oldest.slot,
                bytes: oldest.bytes,
                held_until: end,
            });
            self.live.pop_front();
        }
        self.note_files();
        assert!(self.truncated_below <= self.durable_position);
        assert!(
            !self.live.is_empty() || self.position == self.segment_end,
            "the segment that records go to is live"
        );
    }

    /// Adds a prepared file of `bytes` bytes.
    pub(crate) fn add_slot(&mut self, slot: usize, bytes: u64) {
        let known = self.free.iter().any(|free| free.slot == slot)
            || self.live.iter().any(|live| live.slot == slot);
        assert!(!known, "a file joins once");
        self.free.push_back(FreeSegment::unused((slot, bytes)));
        self.note_files();
    }

    /// Takes the free file at `place` away, if the others hold all that is promised. Two files at
    /// least stay, and one of them free, so that a checkpoint always makes room.
    fn take_free(&mut self, place: usize) -> bool {
        if self.free.len() < 2 || self.free.len() + self.live.len() <= SEGMENTS_MIN {
            return false;
        }
        let Some(taken) = self.free.remove(place) else {
            return false;
        };
        self.note_files();
        let is_enough = self.holds_promised();
        if !is_enough {
            self.free.insert(place, taken);
            self.note_files();
        }
        is_enough
    }

    fn total_bytes(&self) -> u64 {
        let live: u64 = self.live.iter().map(|live| live.bytes).sum();
        live + self.free.iter().map(|free| free.bytes).sum::<u64>()
    }

    /// Returns the number of bytes in the current file and in free ones that no record has taken.
    fn room_bytes(&self) -> u64 {
        let of_current = self.record_end.saturating_sub(self.position);
        of_current + self.free.iter().map(|free| free.bytes).sum::<u64>()
    }

    fn file_bytes(&self) -> u64 {
        u64::from(self.options.file_bytes)
    }

    /// Returns whether another file should be made before somebody has to wait for it.
    pub(crate) fn is_low(&self) -> bool {
        let total = self.total_bytes();
        let ahead = self.file_bytes().max(total / AHEAD_SHARE);
        let is_low = self.free.is_empty() || self.room_bytes() < ahead;
        is_low && total + self.file_bytes() <= self.options.budget_bytes() && !self.closed
    }

    /// Returns the length of the next file to make, `None` if a record of `record` bytes needs a
    /// checkpoint and no file. Files are made within the budget, except for one in which the
    /// largest batch fits: without it, that batch would wait for ever.
    pub(crate) fn growth(&self, record: u64) -> Option<u64> {
        if self.closed {
            return None;
        }
        let least = self.file_bytes();
        let total = self.total_bytes();
        let left = self.options.budget_bytes().saturating_sub(total) / least * least;
        let share = 1 << (total / GROWTH_SHARE).max(1).ilog2();
        let step = share.clamp(least, self.segment_bytes()).min(left);
        let large = 2 * self.charge_max(true) + self.padding_max();
        // A record that is larger than the rest of the current file needs another one.
        let others = self.live.iter().rev().skip(1).map(|live| live.bytes);
        let mut files = others.chain(self.free.iter().map(|free| free.bytes));
        if self.is_large(record) && !files.any(|bytes| self.holds(bytes) >= large) {
            let overhead = SEGMENT_HEADER_BYTES as u64 + 2 * self.sector;
            let needed = (large + overhead).next_multiple_of(least);
            return Some(needed.min(self.segment_bytes()).max(step));
        }
        (step > 0).then_some(step)
    }

    /// Takes a free file away that is longer than what records will need until the next checkpoint,
    /// by what they have needed lately. The largest go first; then one is cut.
    pub(crate) fn take_spare(&mut self) -> Option<Spare> {
        let least = self.file_bytes();
        let kept = least + (self.need + self.need / 2).max(least);
        self.leave_longer_than(kept);
        let excess = self.room_bytes().saturating_sub(kept) / least * least;
        // Less than a new file would have is no reason: it might be made again soon.
        if excess < self.total_bytes() / GROWTH_SHARE {
            return None;
        }
        let mut places: Vec<usize> = (0..self.free.len()).collect();
        places.sort_by_key(|place| std::cmp::Reverse(self.free[*place].bytes));
        for place in places.iter().copied() {
            let FreeSegment { slot, bytes, .. } = self.free[place];
            if bytes <= excess && self.take_free(place) {
                let keeps = 0;
                return Some(Spare { slot, keeps, bytes });
            }
        }
        for place in places {
            let FreeSegment { slot, bytes, .. } = self.free[place];
            let keeps = bytes.saturating_sub(excess).max(least);
            if keeps < bytes && self.take_free(place) {
                return Some(Spare { slot, keeps, bytes });
            }
        }
        None
    }

    /// Lets the next record go to another file if the current one is longer than `kept` bytes, so
    /// that a checkpoint can free it, and if the others hold all that is promised.
    fn leave_longer_than(&mut self, kept: u64) {
        let is_longer = self.live.back().is_some_and(|live| live.bytes > kept);
        // At most once in a buffer, whose capacity has room for one file that is left early.
        let is_left = self.left_early;
        if !is_longer || is_left || self.free.is_empty() || self.position >= self.record_end {
            return;
        }
        let record_end = std::mem::replace(&mut self.record_end, self.position);
        self.note_files();
        self.left_early = self.holds_promised();
        if !self.left_early {
            self.record_end = record_end;
            self.note_files();
        }
    }

    /// Returns whether what is reserved fits, in any order.
    fn holds_promised(&self) -> bool {
        let claimed = self.position + self.reserved_charge;
        self.reserved_charge == 0 || claimed <= self.claim_end[usize::from(self.large_reserved > 0)]
    }

    /// Forgets what records have needed lately: what is free is spare, but for a file or two.
    pub(crate) fn forget_need(&mut self) {
        self.need = 0;
    }

    /// Ends the log, if nothing is reserved and no record is needed any more: then no file is
    /// needed, and returns true.
    pub(crate) fn close(&mut self) -> bool {
        let is_idle = self.reserved_charge == 0
            && self.active.is_empty()
            && self.spare.is_some()
            && self.newest.0 <= self.truncated_below;
        if !is_idle {
            return false;
        }
        self.closed = true;
        self.live.clear();
        self.free.clear();
        self.segment_end = self.position;
        self.record_end = self.position;
        self.note_files();
        assert!(!self.file_has_room(HEADER), "no record follows");
        true
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
        self.position - self.truncated_below - self.skipped_bytes()
    }

    /// Returns how many positions between the last truncation and the next record were left out at
    /// the ends of segments.
    fn skipped_bytes(&self) -> u64 {
        let size = self.segment_bytes();
        let left = self.live.iter().rev().skip(1);
        left.map(|live| (live.number + 1) * size - live.end.max(self.truncated_below))
            .sum()
    }

    /// Returns the position at which the log would have begun after the last truncation if it had
    /// skipped none since.
    pub(crate) fn base(&self) -> u64 {
        self.position - self.used_bytes()
    }

    /// Returns the number of bytes that may be written between checkpoints if no more files can be
    /// made.
    pub(crate) fn capacity(&self) -> u64 {
        self.total_bytes()
    }

    /// Returns the reserved bytes of records: 0 when the store is idle.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        self.reserved_bytes
    }

    /// Returns the end of the current segment.
    pub(crate) fn segment_end(&self) -> u64 {
        self.segment_end
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

    /// A compaction takes free files away, one after the other, and leaves the current one early
    /// each time; a writer appends in between, and no flush ends.
    #[test]
    fn files_that_are_left_early_do_not_fill_the_buffer() {
        let options = LogOptions {
            segment_bytes: 2 << 20,
            segments: 8,
            file_bytes: 512 << 10,
            buffer_bytes: 300 << 10,
            identity: [1; 16],
            incarnation: 1,
            signature: 7,
            start: Lsn(0),
            flush_method: crate::options::FlushMethod::Auto,
        };
        let ready: Vec<_> = (0..8).map(|slot| (slot, 2 << 20)).collect();
        let mut tail = Tail::new(options, SECTOR, &ready);
        let payload = vec![0xFF; 1000];
        let bytes = record_bytes(payload.len());
        let append = |tail: &mut Tail| {
            let is_reserved = tail.try_reserve(bytes).is_ok();
            if is_reserved {
                tail.release(bytes);
                tail.append(RecordKind::Batch, 0, &payload, 0);
            }
            is_reserved
        };
        assert!(append(&mut tail));
        tail.forget_need();
        let mut taken = 0;
        while let Some(spare) = tail.take_spare() {
            taken += 1;
            assert!(append(&mut tail));
            if spare.keeps > 0 {
                tail.add_slot(spare.slot, spare.keeps);
            }
        }
        assert!(taken > 2, "{taken} files");
        while append(&mut tail) {}
        assert!(
            tail.active.record_bytes + bytes > 300 << 10,
            "a full buffer"
        );
    }

    #[test]
    fn what_pads_a_flush_is_zeros_whatever_the_buffer_held() {
        let options = LogOptions {
            segment_bytes: 64 << 10,
            segments: 4,
            file_bytes: 64 << 10,
            buffer_bytes: 16 << 10,
            identity: [1; 16],
            incarnation: 1,
            signature: 7,
            start: Lsn(0),
            flush_method: crate::options::FlushMethod::Auto,
        };
        let ready = [0, 1, 2, 3].map(|slot| (slot, 64 << 10));
        let mut tail = Tail::new(options, SECTOR, &ready);
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
