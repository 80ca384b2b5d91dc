//! The files of the log: opening, preparing, look-up by slot. Only this module knows their names.
//!
//! A file is prepared before its first use: allocated, written with real bytes and synced, so that
//! a flush overwrites bytes and changes no metadata. Its header is written last, so that a file
//! whose preparation was interrupted is prepared again.

use pando_device::{Create, Device, File, IoBuf, OpenOptions};
use pando_format::log::{SEGMENT_HEADER_BYTES, SegmentHeader};
use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};
use crate::options::{FlushMethod, LogOptions, SEGMENTS_MIN};
use crate::probe;

const DIRECTORY: &str = "log/";
const PREPARE_CHUNK_BYTES: usize = 1 << 20;
/// Minimum sector size in bytes: every flush is a multiple of it.
pub(crate) const SECTOR_BYTES_MIN: usize = 512;

/// Returns the name of the file in `slot`.
fn name_of(slot: usize) -> String {
    format!("{DIRECTORY}{slot:016x}")
}

/// Lists all files of the log with their slots. Other files in the directory are ignored.
pub(crate) fn list<D: Device>(device: &D) -> Result<Vec<(usize, String)>> {
    let slot_of = |name: &String| {
        let digits = name.strip_prefix(DIRECTORY)?;
        let slot = usize::from_str_radix(digits, 16).ok()?;
        (name_of(slot) == *name).then_some(slot)
    };
    let names = device.list()?;
    Ok(names
        .into_iter()
        .filter_map(|name| slot_of(&name).map(|slot| (slot, name)))
        .collect())
}

/// Reads a file's header. Returns `None` when it has no valid one.
pub(crate) fn read_header<F: File>(file: &F) -> Result<Option<SegmentHeader>> {
    if file.len()? < SEGMENT_HEADER_BYTES as u64 {
        return Ok(None);
    }
    let mut bytes = IoBuf::new(SEGMENT_HEADER_BYTES);
    file.read_at(&mut bytes, 0)?;
    Ok(SegmentHeader::decode(&bytes).ok())
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Segments<D: Device> {
    device: D,
    options: LogOptions,
    /// Files by slot, `None` for a file that is not prepared.
    files: Mutex<Vec<Option<D::File>>>,
    /// Held while a file is made. Appends and flushes never take it.
    preparing: Mutex<()>,
}

impl<D: Device> Segments<D> {
    /// Opens the files that are ready, and tries to remove files beyond `options.segments`. At
    /// least [`SEGMENTS_MIN`] files are ready on return.
    pub(crate) fn open(device: D, options: LogOptions) -> Result<Self> {
        let mut files: Vec<Option<D::File>> = Vec::new();
        files.resize_with(options.segments as usize, || None);
        let mut segments = Self {
            device,
            options,
            files: Mutex::new(Rank::Leaf, files),
            preparing: Mutex::new(Rank::LogPreparation, ()),
        };
        for (slot, name) in list(&segments.device)? {
            if slot >= options.segments as usize {
                // A file that stays, or comes back after a crash, has only dead records. The next
                // opening tries again.
                let _ = segments.device.remove(&name);
            } else if let Some(file) = segments.open_ready(&name)? {
                segments.files.lock()[slot] = Some(file);
            }
        }
        while segments.ready().len() < SEGMENTS_MIN {
            segments.prepare_next()?;
        }
        if segments.options.flush_method == FlushMethod::Auto {
            segments.choose_method()?;
        }
        Ok(segments)
    }

    /// Chooses the flush method, and opens files again if they were opened for another one.
    fn choose_method(&mut self) -> Result<()> {
        let ready = self.ready();
        let first = ready.first().expect("some segments are ready");
        let method = probe::quicker(&self.device, &name_of(*first))?;
        assert_ne!(method, FlushMethod::Auto, "the probe decides");
        self.options.flush_method = method;
        if method == FlushMethod::Buffered {
            for slot in ready {
                let file = self.device.open(&name_of(slot), self.open_options())?;
                // The old file is closed after the lock is released.
                let _before = self.files.lock()[slot].replace(file);
            }
        }
        Ok(())
    }

    fn open_options(&self) -> OpenOptions {
        match self.options.flush_method {
            FlushMethod::Auto | FlushMethod::Direct => OpenOptions::write().direct(),
            FlushMethod::Buffered => OpenOptions::write(),
        }
    }

    fn open_ready(&self, name: &str) -> Result<Option<D::File>> {
        let file = self.device.open(name, self.open_options())?;
        let whole = file.len()? == u64::from(self.options.segment_bytes);
        let ours = read_header(&file)?.is_some_and(|header| {
            header.identity == self.options.identity
                && header.segment_bytes == self.options.segment_bytes
        });
        Ok((whole && ours).then_some(file))
    }

    /// Returns the slots whose files are prepared.
    pub(crate) fn ready(&self) -> Vec<usize> {
        let files = self.files.lock();
        let ready = files.iter().enumerate();
        ready
            .filter_map(|(slot, file)| file.as_ref().map(|_| slot))
            .collect()
    }

    /// Makes the file of the first slot without one, and returns the slot; `None` when all have
    /// one. Blocks for as long as writing a segment takes.
    pub(crate) fn prepare_next(&self) -> Result<Option<usize>> {
        let _one_at_a_time = self.preparing.lock();
        let missing = self.files.lock().iter().position(Option::is_none);
        let Some(slot) = missing else {
            return Ok(None);
        };
        let name = name_of(slot);
        match self.prepare(&name) {
            Ok(file) => {
                let before = self.files.lock()[slot].replace(file);
                assert!(before.is_none(), "a file in use is never prepared again");
                Ok(Some(slot))
            }
            Err(error) => {
                // Gives back the allocated space. Only the first error matters.
                let _ = self.device.remove(&name);
                Err(error)
            }
        }
    }

    fn prepare(&self, name: &str) -> Result<D::File> {
        match self.device.remove(name) {
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        let options = OpenOptions {
            create: Create::New,
            ..self.open_options()
        };
        let file = self.device.open(name, options)?;
        let bytes = u64::from(self.options.segment_bytes);
        file.allocate(0, bytes)?;
        let zeros = IoBuf::new(PREPARE_CHUNK_BYTES.min(self.options.segment_bytes as usize));
        for offset in (0..bytes).step_by(zeros.len()) {
            file.write_at(&zeros, offset)?;
        }
        file.sync()?;
        let mut header = IoBuf::new(SEGMENT_HEADER_BYTES);
        let prepared = SegmentHeader {
            segment: None,
            incarnation: self.options.incarnation,
            identity: self.options.identity,
            segment_bytes: self.options.segment_bytes,
        };
        prepared.encode_into(&mut header);
        file.write_at(&header, 0)?;
        file.sync()?;
        self.device.sync_directory()?;
        Ok(file)
    }

    /// Returns the prepared file in `slot`.
    pub(crate) fn file(&self, slot: usize) -> D::File {
        let files = self.files.lock();
        let file = files.get(slot).and_then(Clone::clone);
        file.expect("a slot is used after its file is prepared")
    }

    /// Returns the size in bytes that each flush must be a multiple of.
    pub(crate) fn sector(&self) -> Result<u64> {
        let slot = *self.ready().first().expect("some segments are ready");
        let alignment = self.file(slot).alignment().max(SECTOR_BYTES_MIN);
        if !alignment.is_power_of_two() || alignment > SEGMENT_HEADER_BYTES {
            return Err(Error::Options {
                what: format!("the device of the log has sectors of {alignment} bytes"),
            });
        }
        Ok(alignment as u64)
    }

    /// Returns whether flushes bypass the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.ready()
            .first()
            .is_some_and(|slot| self.file(*slot).is_direct())
    }
}
