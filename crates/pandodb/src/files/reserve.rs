//! Room for the next merge of the mapping, kept back so that a checkpoint can end on a full disk
//! (decision 065).
//!
//! The files of the next mapping exist before a merge needs them: a base that is long enough for
//! all pages, and a journal that is long enough for the counts of all tables. Their bytes mean
//! nothing before a merge has written them. They grow before page ids are given out that would not
//! fit, and a merge takes them. The room of the files that it replaces becomes that of the next
//! ones; so that it is enough, the present base is as long as the next one, whatever it contains.

use pando_device::{AnyDevice, AnyFile, Create, Device, File, OpenOptions};
use pando_format::mapping::{SECTION_BYTES, SECTION_WORDS, sections};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Mutex, Rank};

use crate::error::{Error, Result};
use crate::files::names::{base_name, journal_name};

/// Bytes by which the files grow.
const STEP: u64 = 64 << 10;
/// Bytes of a journal besides its counts: for a few checkpoints of an idle store.
const JOURNAL_BYTES: u64 = 32 << 10;
/// If the disk has room, a journal is this fraction of its base longer, so that merges on a full
/// disk, which write the base, are rare.
const JOURNAL_SHARE: u64 = 8;
/// Bytes of a table's count in a group.
const COUNT_BYTES: u64 = 16;
/// Pages for which there is room beyond those that exist, if the disk has it. At least this many,
/// otherwise a fraction of the pages.
const AHEAD_PAGES: u64 = 8 << 10;
const AHEAD_SHARE: u64 = 16;
/// Pages that only deletes and background work may add.
const MARGIN_PAGES: u64 = 1024;

/// What the next mapping must have room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappingSize {
    /// One past the largest page id that was given out.
    pub(crate) pages: u64,
    /// Pages that may be made without a longer data file.
    pub(crate) free_pages: u64,
    /// Number of tables, whose counts are in the first group of the journal.
    pub(crate) tables: u64,
}

/// A file, and the bytes that are allocated for it from its start.
#[derive(Debug)]
pub(crate) struct Allocated {
    pub(crate) file: AnyFile,
    /// Length of the file, all of it allocated.
    pub(crate) bytes: u64,
}

impl Allocated {
    /// Opens a file, or creates it.
    fn open(device: &AnyDevice, name: &str) -> Result<Self> {
        let file = match device.open(name, OpenOptions::write()) {
            Err(error) if error.is_not_found() => {
                device.open(name, OpenOptions::create(Create::New))
            }
            opened => opened,
        };
        let file = file.map_err(Error::io("opening a file for the next mapping"))?;
        let bytes = file
            .len()
            .map_err(Error::io("opening a file for the next mapping"))?;
        Ok(Self { file, bytes })
    }

    /// Makes the file `bytes` long at least.
    fn grow_to(&mut self, bytes: u64) -> Result<()> {
        if bytes > self.bytes {
            let step = (bytes - self.bytes).next_multiple_of(STEP);
            let allocate = self.file.allocate(self.bytes, step);
            allocate.map_err(Error::io("allocating room for the mapping"))?;
            self.bytes += step;
        }
        Ok(())
    }
}

/// The files that the next merge writes.
#[derive(Debug)]
pub(crate) struct NextMapping {
    /// Number of the mapping, which the names of both files contain.
    pub(crate) number: u64,
    /// Its bytes mean nothing until a merge has written it.
    pub(crate) base: Allocated,
    /// Once a merge takes it, it has room for the counts of all tables.
    pub(crate) journal: Allocated,
}

impl NextMapping {
    /// Opens or creates both files.
    fn open(device: &AnyDevice, number: u64) -> Result<Self> {
        Ok(Self {
            number,
            base: Allocated::open(device, &base_name(number))?,
            journal: Allocated::open(device, &journal_name(number))?,
        })
    }

    /// Makes base and journal this long at least.
    fn grow(&mut self, base_bytes: u64, journal_bytes: u64) -> Result<()> {
        self.journal.grow_to(journal_bytes)?;
        self.base.grow_to(base_bytes)
    }
}

/// Bytes of a journal that must have room for the counts of `tables` tables.
fn journal_bytes(tables: u64) -> u64 {
    JOURNAL_BYTES + tables * COUNT_BYTES
}

/// Bytes of a base of `pages` pages.
fn base_bytes(pages: u64) -> u64 {
    sections(pages) * SECTION_BYTES as u64
}

/// Keeps room for the next merge.
#[derive(Debug)]
pub(crate) struct MappingReserve {
    device: AnyDevice,
    /// Number of page ids that the page table has.
    ids_max: u64,
    state: Mutex<ReserveState>,
    /// Number of page ids that must not be given out, since a mapping with them has no room.
    /// Written under `state`.
    ids_without_room: AtomicU64,
}

#[derive(Debug, Default)]
struct ReserveState {
    /// Number of the next mapping; 0 as long as the store is being opened.
    number: u64,
    /// The base of the present mapping.
    present: Option<Allocated>,
    next: Option<NextMapping>,
    /// Pages for which there is room in files that a merge has replaced, and that are removed once
    /// a superblock names the new ones.
    owed: u64,
    /// Why there was less room at the last attempt than is needed.
    refused: Option<Error>,
}

impl ReserveState {
    /// Number of pages for which this merge and the one after it have room.
    fn pages(&self, tables: u64) -> u64 {
        let (Some(present), Some(next)) = (&self.present, &self.next) else {
            return self.owed;
        };
        if next.journal.bytes < journal_bytes(tables) {
            return self.owed;
        }
        let bytes = present.bytes.min(next.base.bytes);
        let pages = bytes / SECTION_BYTES as u64 * SECTION_WORDS as u64;
        pages.max(self.owed)
    }

    /// Makes the bases and the next journal this long at least.
    fn grow(&mut self, device: &AnyDevice, base_bytes: u64, journal_bytes: u64) -> Result<()> {
        let next = match self.next.take() {
            Some(next) => next,
            None => NextMapping::open(device, self.number)?,
        };
        self.next.insert(next).grow(base_bytes, journal_bytes)?;
        match &mut self.present {
            Some(present) => present.grow_to(base_bytes),
            None => Ok(()),
        }
    }
}

impl MappingReserve {
    /// Returns a reserve without room, for a page table of `ids_max` ids.
    pub(crate) fn new(device: AnyDevice, ids_max: u64) -> Self {
        Self {
            device,
            ids_max,
            state: Mutex::new(Rank::MappingReserve, ReserveState::default()),
            ids_without_room: AtomicU64::new(ids_max),
        }
    }

    /// Number of page ids that the page table has.
    pub(crate) fn ids_max(&self) -> u64 {
        self.ids_max
    }

    /// Number of page ids that must not be given out to puts, because a mapping with them would
    /// have no room on a full disk.
    pub(crate) fn ids_without_room(&self) -> u64 {
        // Relaxed: no more than a number. Whoever finds too few ids asks for more room under the
        // lock.
        self.ids_without_room.load(Ordering::Relaxed)
    }

    /// Returns the error for an operation that needs pages for which there is no room.
    pub(crate) fn error(&self) -> Error {
        let refused = self.state.lock().refused.clone();
        let what = match refused {
            Some(error) if !matches!(error, Error::Full { .. }) => format!(
                "a mapping of more pages needs files that the system refuses ({error}); remove the \
                 cause, or delete keys"
            ),
            _ => "there is no room for a mapping of more pages; delete keys or make room".into(),
        };
        Error::Full { what }
    }

    /// Begins to keep room for a merge of mapping `present`. An earlier life may have left the
    /// files of the next one; whatever is in them means nothing.
    pub(crate) fn begin(&self, present: u64) -> Result<()> {
        let mut state = self.state.lock();
        assert_eq!(state.number, 0, "begun once");
        state.present = Some(Allocated::open(&self.device, &base_name(present))?);
        state.number = present + 1;
        Ok(())
    }

    /// Makes room for the pages and tables that there are, and for pages that are made next. Blocks
    /// while files grow.
    ///
    /// # Errors
    /// [`Error::Full`] when the disk has too little for the pages that there are.
    pub(crate) fn extend(&self, size: MappingSize) -> Result<()> {
        let mut state = self.state.lock();
        let extended = self.extend_locked(&mut state, size);
        self.count(&state, size);
        extended
    }

    fn extend_locked(&self, state: &mut ReserveState, size: MappingSize) -> Result<()> {
        let extended = self.grow(state, size);
        state.refused = extended.clone().err();
        extended
    }

    fn grow(&self, state: &mut ReserveState, size: MappingSize) -> Result<()> {
        if state.number == 0 {
            return Ok(());
        }
        let ahead = (size.pages / AHEAD_SHARE).max(AHEAD_PAGES);
        let wanted = size.pages + size.free_pages + ahead;
        if state.next.is_some() && state.pages(size.tables) >= wanted - ahead / 2 {
            return Ok(());
        }
        let base = base_bytes(size.pages + MARGIN_PAGES);
        let journal = journal_bytes(size.tables);
        state.grow(&self.device, base, journal)?;
        // No error: this is more than is needed now.
        let base = base_bytes(wanted);
        let _ahead = state.grow(&self.device, base, journal + base / JOURNAL_SHARE);
        Ok(())
    }

    /// Updates the number of ids.
    fn count(&self, state: &ReserveState, size: MappingSize) {
        let room = state.pages(size.tables).saturating_sub(MARGIN_PAGES);
        let without = match room < size.pages {
            true => self.ids_max,
            false => self.ids_max.saturating_sub(room),
        };
        self.ids_without_room.store(without, Ordering::Relaxed);
    }

    /// Takes the files for a merge of `pages` pages, with the counts of `tables` tables. The next
    /// ones have the next number. A call of [`MappingReserve::merged`] or
    /// [`MappingReserve::put_back`] follows.
    ///
    /// # Errors
    /// [`Error::Full`] when there is no room for them.
    pub(crate) fn take(&self, pages: u64, tables: u64) -> Result<NextMapping> {
        let mut state = self.state.lock();
        assert!(state.number > 0, "a merge before the store was opened");
        let room = state.pages(tables);
        let mut next = match state.next.take() {
            Some(next) => next,
            None => NextMapping::open(&self.device, state.number)?,
        };
        if let Err(error) = next.grow(base_bytes(pages), journal_bytes(tables)) {
            state.next = Some(next);
            return Err(error);
        }
        state.owed = room;
        state.number = next.number + 1;
        Ok(next)
    }

    /// Notes that a merge has written `base`.
    pub(crate) fn merged(&self, base: Allocated) {
        self.state.lock().present = Some(base);
    }

    /// Takes back the files of a merge that has failed.
    pub(crate) fn put_back(&self, next: NextMapping) {
        let mut state = self.state.lock();
        assert_eq!(state.number, next.number + 1, "one merge at a time");
        if state.next.take().is_some() {
            // Nothing names them. What cannot be removed is a stray.
            let names = [base_name(state.number), journal_name(state.number)];
            names.iter().for_each(|name| {
                let _stray = self.device.remove(name);
            });
        }
        state.number = next.number;
        state.next = Some(next);
        state.owed = 0;
    }

    /// Notes that the files that a merge has replaced are removed, and takes their room for the
    /// next merge, as [`MappingReserve::extend`] does.
    pub(crate) fn replaced(&self, size: MappingSize) {
        let mut state = self.state.lock();
        state.owed = 0;
        // An error leaves less room, which is counted.
        let _less = self.extend_locked(&mut state, size);
        self.count(&state, size);
    }
}
