//! Replay: reads the log after a crash, every batch after a checkpoint, in order, up to the end.
//!
//! The end is the first position without a valid record of this life. A torn tail looks like that,
//! and so do lost or damaged records. Therefore replay searches the rest of this life's segments
//! for a valid record which says that the end was already durable when that record was reserved.
//! Such a record proves that an acknowledged record is gone. That is reported as damage, and never
//! silently taken for the end.
//!
//! Nor are files that cannot be those of the superblock: none at all, though every store has two,
//! and files of a later life, though the superblock of a life is durable before its first file. So
//! it is with a backup that leaves `log` out, and with files of two backups.
//!
//! The search also meets the bytes of values, which may look like any record. So it accepts only
//! records with the signature of this life, which writers of values do not know.

use std::collections::BTreeMap;

use pando_device::{Device, File, OpenOptions};
use pando_format::Lsn;
use pando_format::bytes::u64_at;
use pando_format::cast::usize_of;
use pando_format::log::record::RECORD_ALIGNMENT;
use pando_format::log::{
    RECORD_HEADER_BYTES, RecordHeader, RecordKind, SEGMENT_BYTES_MIN, SEGMENT_HEADER_BYTES,
};

use crate::error::Error;
use crate::segments;

const WINDOW_BYTES: usize = 1 << 20;
const HEADER_BYTES: u64 = SEGMENT_HEADER_BYTES as u64;
const RECORD_HEADER: u64 = RECORD_HEADER_BYTES as u64;
/// Offset of the incarnation in a record's header.
const INCARNATION_OFFSET: usize = 24;

/// Which log to read, and from where. The superblock has all of them but `expects_files`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayOptions {
    /// Size of a segment in bytes.
    pub segment_bytes: u32,
    /// Identity of the store.
    pub identity: [u8; 16],
    /// The life of the log to read.
    pub incarnation: u64,
    /// The signature that its records carry.
    pub signature: u64,
    /// The LSN of the checkpoint: the LSN of a record, or the start of the life.
    pub from: Lsn,
    /// The log has been opened once, so that there are files of it.
    pub expects_files: bool,
}

/// Result of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayEnd {
    /// LSN of the last record, `from` if there is none.
    pub end: Lsn,
    /// Start of the next life: the LSN of the checkpoint that ends recovery, and the next
    /// [`crate::LogOptions::start`]. Nothing of an earlier life lies at or after it.
    pub restart: Lsn,
    /// Number of batches delivered.
    pub records: u64,
    /// Sum of their payloads in bytes.
    pub bytes: u64,
    /// Number of positions between `from` and `end` that were left out at the ends of segments.
    pub skipped: u64,
}

/// Calls `apply` with LSN and payload of each batch after `options.from`, in order. Writes nothing.
///
/// # Errors
/// [`Error::Corrupt`] when an acknowledged record is gone, or the files are not those of the
/// superblock, which is found out behind the last record; [`Error::Device`]; the error of `apply`.
pub fn replay<D: Device, E: From<Error>>(
    device: &D,
    options: &ReplayOptions,
    mut apply: impl FnMut(Lsn, &[u8]) -> Result<(), E>,
) -> Result<ReplayEnd, E> {
    let mut directory = Directory::read(device, options)?;
    let mut found = ReplayEnd {
        end: options.from,
        restart: options.from,
        records: 0,
        bytes: 0,
        skipped: 0,
    };
    let mut skipped = 0;
    let mut position = options.from.0;
    loop {
        position = directory.record_place(position);
        let Some((header, payload)) = directory.record_at(position)? else {
            break;
        };
        assert!(
            header.lsn > found.end,
            "records ascend, from the checkpoint on"
        );
        match header.kind {
            RecordKind::Batch => {
                found.skipped = skipped;
                apply(header.lsn, payload)?;
                found.records += 1;
                found.bytes += payload.len() as u64;
                found.end = header.lsn;
            }
            RecordKind::Void => found.end = header.lsn,
            RecordKind::Padding => skipped += directory.left_out(position, header.lsn.0),
        }
        assert!(header.lsn.0 > position, "each record ends behind its place");
        position = header.lsn.0;
        // Lives that older versions have begun have no signature.
        directory.is_signed &= header.signature != 0;
    }
    directory.search_behind(position)?;
    directory.check_moment(position)?;
    found.restart = directory.restart(found.end)?;
    assert!(
        found.restart >= found.end,
        "a new life begins behind the old one"
    );
    Ok(found)
}

/// The files of one life of the log, by segment.
struct Directory<F> {
    options: ReplayOptions,
    segments: BTreeMap<u64, Window<F>>,
    /// All records read so far had a signature.
    is_signed: bool,
    /// Number of the first segment that no life has begun.
    unused: u64,
    /// There is no file at all.
    is_empty: bool,
    /// A file of a later life, with its number.
    later: Option<(String, u64)>,
}

impl<F: File> Directory<F> {
    fn read<D: Device<File = F>>(device: &D, options: &ReplayOptions) -> Result<Self, Error> {
        let mut directory = Self {
            options: *options,
            segments: BTreeMap::new(),
            is_signed: true,
            unused: 0,
            is_empty: true,
            later: None,
        };
        directory.check_options()?;
        for (_, name) in segments::list(device)? {
            directory.is_empty = false;
            let file = device.open(&name, OpenOptions::read())?;
            let Some(header) = segments::read_header(&file)? else {
                continue;
            };
            if header.identity != options.identity {
                continue;
            }
            if header.incarnation > options.incarnation {
                directory.later = Some((name.clone(), header.incarnation));
            }
            let Some(number) = header.segment else {
                continue;
            };
            if header.segment_bytes != options.segment_bytes {
                let what = format!("{name} has segments of {} bytes", header.segment_bytes);
                return Err(directory.damage(options.from.0, what));
            }
            if number >= Lsn::LIMIT.0 / directory.segment_bytes() {
                let what = format!("{name} claims to be segment {number}");
                return Err(directory.damage(options.from.0, what));
            }
            directory.unused = directory.unused.max(number + 1);
            if header.incarnation != options.incarnation {
                continue;
            }
            let window = Window::new(file, directory.segment_bytes())?;
            if directory.segments.insert(number, window).is_some() {
                let what = format!("segment {number} is there twice");
                return Err(directory.damage(options.from.0, what));
            }
        }
        Ok(directory)
    }

    /// The options come from a superblock, which may be damaged.
    fn check_options(&self) -> Result<(), Error> {
        let ReplayOptions {
            segment_bytes,
            from,
            ..
        } = self.options;
        if !segment_bytes.is_power_of_two() || segment_bytes < SEGMENT_BYTES_MIN {
            let what = format!("it has segments of {segment_bytes} bytes");
            return Err(self.damage(from.0, what));
        }
        if from >= Lsn::LIMIT || !from.0.is_multiple_of(RECORD_ALIGNMENT) {
            return Err(self.damage(from.0, "no record ends there".to_owned()));
        }
        Ok(())
    }

    fn damage(&self, position: u64, what: String) -> Error {
        Error::Corrupt {
            position: Lsn(position),
            what,
        }
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.options.segment_bytes)
    }

    /// Returns the first position at or after `position` where a record can begin: not in a segment
    /// header, and not where no record fits.
    fn record_place(&self, position: u64) -> u64 {
        let size = self.segment_bytes();
        let offset = position % size;
        if offset < HEADER_BYTES {
            position - offset + HEADER_BYTES
        } else if size - offset < RECORD_HEADER {
            position - offset + size + HEADER_BYTES
        } else {
            position
        }
    }

    /// Returns the valid record at `position`, if there is one.
    fn record_at(&mut self, position: u64) -> Result<Option<(RecordHeader, &[u8])>, Error> {
        let size = self.segment_bytes();
        let (number, offset) = (position / size, position % size);
        let incarnation = self.options.incarnation;
        let Some(window) = self.segments.get_mut(&number) else {
            return Ok(None);
        };
        let Some(bytes) = window.bytes(offset, RECORD_HEADER_BYTES)? else {
            return Ok(None);
        };
        let segment_end = (number + 1) * size;
        let Ok(header) = RecordHeader::decode(bytes, position, segment_end, incarnation) else {
            return Ok(None);
        };
        let stored = RECORD_HEADER_BYTES + header.stored_payload();
        let Some(bytes) = window.bytes(offset, stored)? else {
            return Ok(None);
        };
        if !header.verify(bytes) {
            return Ok(None);
        }
        Ok(Some((header, &bytes[RECORD_HEADER_BYTES..])))
    }

    /// Fails if a valid record after `position` says that a record at `position` was durable.
    fn search_behind(&mut self, position: u64) -> Result<(), Error> {
        let size = self.segment_bytes();
        let first = position / size;
        let signature = if self.is_signed {
            self.options.signature
        } else {
            0
        };
        let numbers: Vec<u64> = self.segments.range(first..).map(|(n, _)| *n).collect();
        for number in numbers {
            let mut place = position.max(number * size + HEADER_BYTES);
            while let Some(candidate) = self.candidate(number, place)? {
                assert!(candidate >= place, "the search goes forward");
                if let Some((header, _)) = self.record_at(candidate)?
                    && header.durable.0 > position
                    && header.signature == signature
                {
                    let what = format!(
                        "the record there is gone, but that at {candidate} was written when \
                         everything up to {} was durable",
                        header.durable
                    );
                    return Err(self.damage(position, what));
                }
                place = candidate + 8;
            }
        }
        Ok(())
    }

    /// Fails if the files are not those of the superblock that `options` come from, whatever has
    /// been read of them up to `position`.
    fn check_moment(&self, position: u64) -> Result<(), Error> {
        if self.is_empty && self.options.expects_files {
            let what = "no file of it is there, and every store has two: put the directory 'log' \
                        back, that of the same moment as the other files";
            return Err(self.damage(position, what.to_owned()));
        }
        if let Some((name, life)) = &self.later {
            let what = format!(
                "{name} was made in life {life} of the store, and the superblock is of life {}: \
                 they are of different moments. Take all files of one backup",
                self.options.incarnation
            );
            return Err(self.damage(position, what));
        }
        Ok(())
    }

    /// Returns the first place at or after `position` in segment `number` that could be a record of
    /// this life.
    fn candidate(&mut self, number: u64, mut position: u64) -> Result<Option<u64>, Error> {
        let size = self.segment_bytes();
        let incarnation = self.options.incarnation;
        let Some(window) = self.segments.get_mut(&number) else {
            return Ok(None);
        };
        while (number + 1) * size - position >= RECORD_HEADER {
            let Some(bytes) = window.loaded(position % size, RECORD_HEADER_BYTES)? else {
                return Ok(None);
            };
            let last = bytes.len() - RECORD_HEADER_BYTES;
            let hit = (0..=last)
                .step_by(8)
                .find(|offset| u64_at(bytes, offset + INCARNATION_OFFSET) == incarnation);
            match hit {
                Some(offset) => return Ok(Some(position + offset as u64)),
                None => position += last as u64 / 8 * 8 + 8,
            }
        }
        Ok(None)
    }

    /// Returns the number of positions of a padding record from `begin` to `end` if it ends its
    /// segment; other ones belong to flushes.
    fn left_out(&self, begin: u64, end: u64) -> u64 {
        if end.is_multiple_of(self.segment_bytes()) {
            end - begin
        } else {
            0
        }
    }

    fn restart(&self, end: Lsn) -> Result<Lsn, Error> {
        let size = self.segment_bytes();
        let segment = self.unused.max(end.0.div_ceil(size));
        let restart = segment.checked_mul(size).map(Lsn);
        let restart = restart.filter(|restart| *restart < Lsn::LIMIT);
        restart.ok_or_else(|| self.damage(end.0, "the log is at its end".to_owned()))
    }
}

/// A file that is read in windows.
struct Window<F> {
    file: F,
    /// Of the file, or of its segment if the file is longer.
    len: u64,
    /// Bytes of the file from `offset` on.
    bytes: Vec<u8>,
    offset: u64,
}

impl<F: File> Window<F> {
    fn new(file: F, segment_bytes: u64) -> Result<Self, Error> {
        let len = file.len()?.min(segment_bytes);
        Ok(Self {
            file,
            len,
            bytes: Vec::new(),
            offset: 0,
        })
    }

    /// Returns `count` bytes from `offset` on, `None` if the file is shorter.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<Option<&[u8]>, Error> {
        let loaded = self.loaded(offset, count)?;
        Ok(loaded.map(|bytes| &bytes[..count]))
    }

    /// Returns at least `least` bytes from `offset` on, with all bytes after them that are in
    /// memory.
    fn loaded(&mut self, offset: u64, least: usize) -> Result<Option<&[u8]>, Error> {
        let end = offset + least as u64;
        if end > self.len {
            return Ok(None);
        }
        if offset < self.offset || end > self.offset + self.bytes.len() as u64 {
            let wanted = (self.len - offset).min(least.max(WINDOW_BYTES) as u64);
            self.bytes.resize(usize_of(wanted), 0);
            self.offset = offset;
            let read = self.file.read_at(&mut self.bytes, offset);
            if read.is_err() {
                self.bytes.clear();
            }
            read?;
        }
        Ok(Some(&self.bytes[usize_of(offset - self.offset)..]))
    }
}
