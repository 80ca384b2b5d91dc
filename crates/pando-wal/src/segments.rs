//! The files of the log: opening, preparing, removing, look-up by slot. Only this module knows
//! their names.
//!
//! A file is prepared before its first use: allocated, written with real bytes and synced, so that
//! a flush overwrites bytes and changes no metadata. Its header is written last, so that a file
//! whose preparation was interrupted is prepared again.
//!
//! Files are as long as a segment or shorter (decision 077). At least two are ready at any moment,
//! on the device, too, so that a log opens on a full disk. A removal, or a cut, that a crash undoes
//! brings back a file without a record that is needed.

use pando_device::{Create, Device, File, IoBuf, OpenOptions};
use pando_format::cast::usize_of;
use pando_format::log::{SEGMENT_HEADER_BYTES, SegmentHeader};
use pando_sync::{Mutex, MutexGuard, Rank};

use crate::error::{Error, Result};
use crate::options::{FlushMethod, LogOptions, SEGMENTS_MIN};
use crate::probe;

const DIRECTORY: &str = "log/";
/// Bytes that are written at a time while a file is prepared.
const PREPARE_CHUNK_BYTES: usize = 256 << 10;
/// Minimum sector size in bytes: every flush is a multiple of it.
pub(crate) const SECTOR_BYTES_MIN: usize = 512;

/// Calls its argument, which allocates a file, while nobody else takes room that is promised.
pub(crate) type Alone<'a> = dyn Fn(&mut dyn FnMut()) + 'a;

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
    /// Files by slot, `None` where no file is ready.
    files: Mutex<Vec<Option<Ready<D::File>>>>,
    /// Held while files are made, cut or removed, or holes are made in them. Appends and flushes
    /// never take it.
    changing: Mutex<()>,
    /// What files are filled with. Kept, since an allocator that aligns buffers may have no use for
    /// the place of one that was freed, and each file would cost the memory of another one.
    zeros: IoBuf,
}

/// A prepared file.
#[derive(Debug)]
struct Ready<F> {
    file: F,
    bytes: u64,
}

impl<D: Device> Segments<D> {
    /// Opens files that are ready, no record of which is needed, and keeps the two shortest. At
    /// least [`SEGMENTS_MIN`] files are ready on return.
    pub(crate) fn open(device: D, options: LogOptions) -> Result<Self> {
        let mut segments = Self {
            zeros: IoBuf::new(PREPARE_CHUNK_BYTES.min(usize_of(options.segment_bytes.into()))),
            device,
            options,
            files: Mutex::new(Rank::Leaf, Vec::new()),
            changing: Mutex::new(Rank::LogPreparation, ()),
        };
        let mut unusable = Vec::new();
        for (slot, name) in list(&segments.device)? {
            match segments.open_ready(&name)? {
                Some(ready) => segments.put(slot, ready),
                None => unusable.push((slot, name)),
            }
        }
        segments.keep_least();
        // Each takes the place of one that is unusable, if there is one: a log without any file
        // is one that was lost, so there is one at every moment.
        while segments.ready().len() < SEGMENTS_MIN {
            segments.make(u64::from(options.file_bytes), &|allocate| allocate())?;
        }
        for (slot, name) in unusable {
            if !segments.is_ready(slot) {
                // A file that stays has no record of this life. The next opening tries again.
                let _ = segments.device.remove(&name);
            }
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
        let method = probe::quicker(&self.device, &name_of(first.0))?;
        assert_ne!(method, FlushMethod::Auto, "the probe decides");
        self.options.flush_method = method;
        if method == FlushMethod::Buffered {
            for (slot, bytes) in ready {
                let file = self.device.open(&name_of(slot), self.open_options())?;
                // The old file is closed after the lock is released.
                let _before = self.files.lock()[slot].replace(Ready { file, bytes });
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

    fn open_ready(&self, name: &str) -> Result<Option<Ready<D::File>>> {
        let file = self.device.open(name, self.open_options())?;
        let bytes = file.len()?;
        let least = u64::from(self.options.file_bytes);
        let segment = u64::from(self.options.segment_bytes);
        let fits = (least..=segment).contains(&bytes) && bytes.is_multiple_of(least);
        let ours = read_header(&file)?.is_some_and(|header| {
            header.identity == self.options.identity
                && header.segment_bytes == self.options.segment_bytes
        });
        Ok((fits && ours).then_some(Ready { file, bytes }))
    }

    fn is_ready(&self, slot: usize) -> bool {
        self.files.lock().get(slot).is_some_and(Option::is_some)
    }

    /// Returns slots and lengths of the prepared files, the shortest first.
    pub(crate) fn ready(&self) -> Vec<(usize, u64)> {
        let files = self.files.lock();
        let ready = files.iter().enumerate();
        let mut ready: Vec<_> = ready
            .filter_map(|(slot, file)| file.as_ref().map(|ready| (slot, ready.bytes)))
            .collect();
        drop(files);
        ready.sort_by_key(|(_, bytes)| *bytes);
        ready
    }

    /// Keeps others from making, cutting and removing files.
    pub(crate) fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    fn put(&self, slot: usize, ready: Ready<D::File>) {
        let mut files = self.files.lock();
        if files.len() <= slot {
            files.resize_with(slot + 1, || None);
        }
        let before = files[slot].replace(ready);
        assert!(before.is_none(), "a file in use is never prepared again");
    }

    /// Makes a file of `bytes` bytes, and returns its slot. `alone` calls its argument, which
    /// allocates the file, when nobody else counts on the room. Blocks for as long as writing the
    /// file takes.
    pub(crate) fn make(&self, bytes: u64, alone: &Alone<'_>) -> Result<usize> {
        let _one_at_a_time = self.begin_change();
        let slot = {
            let files = self.files.lock();
            files
                .iter()
                .position(Option::is_none)
                .unwrap_or(files.len())
        };
        let name = name_of(slot);
        match self.prepare(&name, bytes, alone) {
            Ok(file) => {
                self.put(slot, Ready { file, bytes });
                Ok(slot)
            }
            Err(error) => {
                // Gives back the allocated space. Only the first error matters.
                let _ = self.device.remove(&name);
                Err(error)
            }
        }
    }

    /// Cuts the file in `slot`, whose records are dead and which nobody writes to, to `keeps`
    /// bytes, or removes it if that is 0. Returns its length if it is ready for further use. The
    /// caller has begun the change.
    ///
    /// Blocks until that is durable: others use the room from then on, and a file that came back
    /// after a crash would leave recovery without it. If it cannot be made durable, it may.
    pub(crate) fn shorten(&self, slot: usize, keeps: u64) -> Option<u64> {
        let taken = self.files.lock().get_mut(slot).and_then(Option::take);
        let mut ready = taken?;
        if keeps == 0 {
            drop(ready);
            // A file that stays has dead records only, and is found by the next opening.
            if self.device.remove(&name_of(slot)).is_ok() {
                let _ = self.device.sync_directory();
            }
            return None;
        }
        if ready.file.set_len(keeps).is_ok() {
            ready.bytes = keeps;
            let _ = ready.file.sync();
        }
        let bytes = ready.bytes;
        self.put(slot, ready);
        Some(bytes)
    }

    /// Keeps the two shortest files, cut to the least length, and tries to remove the others. No
    /// record of any is needed.
    pub(crate) fn keep_least(&self) {
        let _change = self.begin_change();
        let least = u64::from(self.options.file_bytes);
        for (place, (slot, bytes)) in self.ready().into_iter().enumerate() {
            if place >= SEGMENTS_MIN {
                self.shorten(slot, 0);
            } else if bytes > least {
                self.shorten(slot, least);
            }
        }
    }

    fn prepare(&self, name: &str, bytes: u64, alone: &Alone<'_>) -> Result<D::File> {
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
        let mut allocated = Ok(());
        alone(&mut || allocated = file.allocate(0, bytes));
        allocated?;
        for offset in (0..bytes).step_by(self.zeros.len()) {
            let rest = self.zeros.len().min(usize_of(bytes - offset));
            file.write_at(&self.zeros[..rest], offset)?;
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
        let ready = files.get(slot).and_then(Option::as_ref);
        let file = ready.map(|ready| ready.file.clone());
        file.expect("a slot is used after its file is prepared")
    }

    /// Returns the shortest prepared file: at any time, also while others are removed.
    fn shortest(&self) -> Option<D::File> {
        let files = self.files.lock();
        let shortest = files.iter().flatten().min_by_key(|ready| ready.bytes);
        shortest.map(|ready| ready.file.clone())
    }

    /// Returns the size in bytes that each flush must be a multiple of.
    pub(crate) fn sector(&self) -> Result<u64> {
        let file = self.shortest().expect("some segments are ready");
        let alignment = file.alignment().max(SECTOR_BYTES_MIN);
        if !alignment.is_power_of_two() || alignment > SEGMENT_HEADER_BYTES {
            return Err(Error::Options {
                what: format!("the device of the log has sectors of {alignment} bytes"),
            });
        }
        Ok(alignment as u64)
    }

    /// Returns whether flushes bypass the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.shortest().is_some_and(|file| file.is_direct())
    }
}
