//! The files that record where pages are stored: mapping base and journal (decision 001).

use std::collections::BTreeMap;

use pando_device::{AnyDevice, AnyFile, Create, Device, File, IoBuf, OpenOptions};
use pando_format::cast::{u32_of, u32_of_len, usize_of};
use pando_format::mapping::{Group, SECTION_BYTES, SECTION_WORDS, decode_section, sections};
use pando_format::superblock::Superblock;
use pando_format::{Epoch, PageId, StoredPage, TreeId};

use crate::error::{Error, Result};
use crate::files::names::{base_name, journal_name};
use crate::files::reserve::MappingReserve;
use crate::files::superblock::SUPERBLOCK;

/// Bytes by which a journal file grows; half as many are always allocated beyond its end.
const JOURNAL_STEP: u64 = 1 << 20;
/// More page ids than are ever taken and given back before a page of theirs is stored or freed.
const IDS_UNNAMED_MAX: u64 = 1 << 24;
/// Bytes of a journal for each page that it names.
const PAIR_BYTES: u64 = 16;

/// The mapping of a checkpoint, as read from its files.
#[derive(Debug, Default)]
pub(crate) struct Mapping {
    /// Words of pages, by page id; 0 for none.
    pub(crate) words: Vec<u64>,
    /// Entries of tables.
    pub(crate) counts: BTreeMap<TreeId, u64>,
}

impl Mapping {
    /// Returns the pages that exist.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (PageId, StoredPage)> + '_ {
        self.words.iter().enumerate().filter_map(|(index, word)| {
            StoredPage::decode(*word).map(|stored| (PageId(u32_of_len(index)), stored))
        })
    }

    /// Reads base and journal of the checkpoint that `superblock` names.
    pub(crate) fn read(device: &AnyDevice, superblock: &Superblock) -> Result<Self> {
        let mut mapping = Self::default();
        if superblock.base_pages > u64::from(u32::MAX) {
            return Err(Error::corrupt(
                SUPERBLOCK,
                "more pages than there are page ids",
            ));
        }
        mapping.read_base(device, superblock)?;
        let name = journal_name(superblock.mapping);
        let journal = open(device, &name)?;
        let stored = journal.len().map_err(Error::io("opening the mapping"))?;
        if superblock.journal_bytes > stored {
            let named = superblock.journal_bytes;
            let what = format!("{stored} bytes long; the checkpoint has {named}");
            return Err(Error::corrupt(&name, what));
        }
        let limit = page_ids_limit(superblock.base_pages, superblock.journal_bytes);
        let mut last = Epoch(0);
        read_groups(&journal, &name, superblock.journal_bytes, |group| {
            if group.generation <= last {
                let what = format!("a group of {} behind one of {last}", group.generation);
                return Err(Error::corrupt(&name, what));
            }
            last = group.generation;
            for (page, word) in &group.pairs {
                if page.index() >= limit {
                    let what = format!("{page}: no store has as many pages");
                    return Err(Error::corrupt(&name, what));
                }
                mapping
                    .set(*page, *word)
                    .map_err(|what| Error::corrupt(&name, what))?;
            }
            mapping.counts.extend(group.counts.iter().copied());
            Ok(())
        })?;
        if last != superblock.generation {
            // Each checkpoint appends one group: this journal has the state of another checkpoint.
            let what = format!("ends with {last}, in {}", superblock.generation);
            return Err(Error::corrupt(&name, what));
        }
        Ok(mapping)
    }

    fn set(&mut self, page: PageId, word: u64) -> std::result::Result<(), String> {
        if page == PageId::NONE || (word != 0 && StoredPage::decode(word).is_none()) {
            return Err(format!("{page}: {word:#018x} is no place"));
        }
        if page.index() >= self.words.len() {
            self.words.resize(page.index() + 1, 0);
        }
        self.words[page.index()] = word;
        Ok(())
    }

    fn read_base(&mut self, device: &AnyDevice, superblock: &Superblock) -> Result<()> {
        let name = base_name(superblock.mapping);
        let base = open(device, &name)?;
        let mut bytes = IoBuf::new(SECTION_BYTES);
        for section in 0..sections(superblock.base_pages) {
            let offset = section * SECTION_BYTES as u64;
            base.read_at(&mut bytes, offset)
                .map_err(|error| Error::corrupt(&name, error))?;
            let words = decode_section(section, &bytes)
                .map_err(|damage| Error::corrupt(format!("{name} at byte {offset}"), damage))?;
            for (index, word) in words.enumerate() {
                let page = section * SECTION_WORDS as u64 + index as u64;
                if page < superblock.base_pages && word != 0 {
                    let page = PageId(u32_of(page));
                    self.set(page, word)
                        .map_err(|what| Error::corrupt(&name, what))?;
                }
            }
        }
        Ok(())
    }
}

/// Returns a bound that all page ids of a mapping are below, so that a damaged one does not take
/// all memory. Ids are given out one by one, and the base has had room for all until it was made.
pub(crate) fn page_ids_limit(base_pages: u64, journal_bytes: u64) -> usize {
    let named = base_pages.saturating_add(journal_bytes / PAIR_BYTES);
    let limit = named.saturating_add(IDS_UNNAMED_MAX);
    usize_of(limit.min(u64::from(u32::MAX)))
}

pub(crate) fn open(device: &AnyDevice, name: &str) -> Result<AnyFile> {
    device.open(name, OpenOptions::read()).map_err(|error| {
        if error.is_not_found() {
            Error::corrupt(name, "the file is missing")
        } else {
            Error::io("opening the mapping")(error)
        }
    })
}

/// Calls `each` with the groups in the first `bytes` bytes of a journal.
pub(super) fn read_groups(
    journal: &AnyFile,
    name: &str,
    bytes: u64,
    mut each: impl FnMut(Group) -> Result<()>,
) -> Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let mut head = IoBuf::new(SECTION_BYTES);
        let damaged = |what: String| Error::corrupt(format!("{name} at byte {offset}"), what);
        journal
            .read_at(&mut head, offset)
            .map_err(|error| damaged(error.to_string()))?;
        let length = Group::encoded_bytes(&head).map_err(|damage| damaged(damage.what))?;
        if length > bytes - offset {
            return Err(damaged(
                "a group reaches past the end of the journal".into(),
            ));
        }
        let mut whole = IoBuf::new(usize_of(length));
        journal
            .read_at(&mut whole, offset)
            .map_err(|error| damaged(error.to_string()))?;
        let (group, _) = Group::decode(&whole).map_err(|damage| damaged(damage.what))?;
        each(group)?;
        offset += length;
    }
    Ok(())
}

/// The mapping files that checkpoints append to. Guarded by the lock of `Files`.
#[derive(Debug)]
pub(crate) struct MappingFiles {
    pub(super) device: AnyDevice,
    /// Number in the names of the files.
    pub(crate) number: u64,
    /// Number of pages that the base covers.
    pub(crate) base_pages: u64,
    pub(super) journal: AnyFile,
    /// Bytes of the journal that groups use.
    pub(crate) journal_bytes: u64,
    /// Bytes of the journal that are allocated.
    pub(super) allocated: u64,
    /// False after a merge, until a durable superblock names its files.
    pub(super) is_named: bool,
    /// Somebody reads the base as it is, for as long as it exists.
    pub(super) is_base_kept: bool,
    /// Set while a checkpoint appends a group to merged files: the last counts of the journal that
    /// was merged.
    pub(super) carried: Option<BTreeMap<TreeId, u64>>,
    /// Set when a merge has failed: the next one waits until the journal is longer than this.
    pub(super) merge_above: u64,
    /// Files that no superblock names once the next one is durable.
    pub(super) obsolete: Vec<String>,
    /// The log says already that one of them cannot be removed.
    told: bool,
    /// Bytes written since the last [`MappingFiles::take_written_bytes`].
    pub(super) written_bytes: u64,
}

impl MappingFiles {
    /// Creates an empty base and journal. Their names are durable after the next sync of the
    /// directory.
    pub(crate) fn create(device: &AnyDevice, number: u64) -> Result<Self> {
        let base = create_file(device, &base_name(number))?;
        base.sync().map_err(Error::io("syncing the mapping"))?;
        let journal = create_file(device, &journal_name(number))?;
        journal
            .allocate(0, JOURNAL_STEP)
            .map_err(Error::io("allocating the journal"))?;
        journal.sync().map_err(Error::io("syncing the journal"))?;
        Ok(Self::of_journal(device, number, journal, JOURNAL_STEP))
    }

    /// Continues with the files of a checkpoint.
    pub(crate) fn reopen(device: &AnyDevice, superblock: &Superblock) -> Result<Self> {
        let name = journal_name(superblock.mapping);
        let journal = device
            .open(&name, OpenOptions::write())
            .map_err(Error::io("opening the mapping journal"))?;
        let allocated = journal
            .len()
            .map_err(Error::io("opening the mapping journal"))?;
        let files = Self::of_journal(device, superblock.mapping, journal, allocated);
        Ok(Self {
            base_pages: superblock.base_pages,
            journal_bytes: superblock.journal_bytes,
            ..files
        })
    }

    fn of_journal(device: &AnyDevice, number: u64, journal: AnyFile, allocated: u64) -> Self {
        Self {
            device: device.clone(),
            number,
            base_pages: 0,
            journal,
            journal_bytes: 0,
            allocated,
            is_named: true,
            is_base_kept: false,
            carried: None,
            merge_above: 0,
            obsolete: Vec::new(),
            told: false,
            written_bytes: 0,
        }
    }

    /// Appends a group and makes it durable; if the journal cannot grow, in the files of a merge.
    /// No superblock refers to it yet, so the next attempt, with the same group, overwrites a
    /// failed one.
    ///
    /// # Errors
    /// One of which [`Error::is_want_of_room`] is true when there is room for neither.
    pub(crate) fn append(&mut self, group: &Group, reserve: &MappingReserve) -> Result<()> {
        if self.carried.is_none() {
            match self.append_to_journal(group) {
                Err(error) if error.is_want_of_room() => {}
                appended => return appended,
            }
        }
        self.append_merged(group, reserve)
    }

    /// Appends a group to the journal and makes it durable.
    pub(super) fn append_to_journal(&mut self, group: &Group) -> Result<()> {
        let mut bytes = Vec::new();
        group.encode(&mut bytes);
        assert_eq!(
            Group::encoded_bytes(&bytes),
            Ok(bytes.len() as u64),
            "the next group is expected after this one"
        );
        let end = self.journal_bytes + bytes.len() as u64;
        self.allocate_to(end)?;
        assert!(end <= self.allocated, "the journal ends within its file");
        let write = self.journal.write_at(&bytes, self.journal_bytes);
        write.map_err(Error::io("writing the mapping journal"))?;
        self.written_bytes += bytes.len() as u64;
        self.journal
            .sync()
            .map_err(Error::io_fatal("syncing the mapping journal"))?;
        assert!(end > self.journal_bytes, "a journal only grows");
        self.journal_bytes = end;
        // On a full disk, later groups are the ones that make room; they use what was allocated
        // here, ahead of time. That this fails is no error of this group.
        let _ahead = self.allocate_to(end + JOURNAL_STEP / 2);
        Ok(())
    }

    fn allocate_to(&mut self, end: u64) -> Result<()> {
        if end > self.allocated {
            let step = (end - self.allocated).next_multiple_of(JOURNAL_STEP);
            let allocate = self.journal.allocate(self.allocated, step);
            allocate.map_err(Error::io("allocating the mapping journal"))?;
            self.allocated += step;
        }
        Ok(())
    }

    /// True if the next group is the first of its journal; it must contain all counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.journal_bytes == 0
    }

    /// Returns the bytes written to journal and base since the last call.
    pub(crate) fn take_written_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.written_bytes)
    }

    /// Makes sure that the base is never changed, although no superblock may name it yet.
    pub(crate) fn keep_base(&mut self) {
        self.is_base_kept = true;
    }

    /// Notes that a durable superblock names these files, and removes those that none names. A file
    /// that cannot be removed does no harm: the next checkpoint and the next opening try again.
    pub(crate) fn named(&mut self) {
        self.is_named = true;
        let names = [base_name(self.number), journal_name(self.number)];
        assert!(
            !self.obsolete.iter().any(|name| names.contains(name)),
            "a file of the superblock is to be removed"
        );
        let Self {
            device,
            obsolete,
            told,
            ..
        } = self;
        obsolete.retain(|name| !remove_stray(device, name, told));
    }
}

/// Removes a mapping file that nothing names; returns false if it still exists. Logs only the first
/// file that cannot be removed.
pub(crate) fn remove_stray(device: &AnyDevice, name: &str, told: &mut bool) -> bool {
    match device.remove(name) {
        Err(error) if !error.is_not_found() => {
            if !std::mem::replace(told, true) {
                tracing::warn!(%error, "an old file of the mapping cannot be removed");
            }
            false
        }
        _ => true,
    }
}

fn create_file(device: &AnyDevice, name: &str) -> Result<AnyFile> {
    device
        .open(name, OpenOptions::create(Create::New))
        .map_err(Error::io("creating a mapping file"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::files::superblock::tests::superblock;
    use pando_device::faulty::FaultyDevice;
    use pando_format::{Epoch, Extent, StoredKind};

    pub(crate) fn group(generation: u64, pairs: &[(u32, u64)]) -> Group {
        Group {
            generation: Epoch(generation),
            pairs: pairs
                .iter()
                .map(|(page, word)| (PageId(*page), *word))
                .collect(),
            counts: Vec::new(),
        }
    }

    pub(crate) fn word(block: u32) -> u64 {
        let stored = StoredPage {
            extent: Extent { block, blocks: 1 },
            tag: 0,
            names_chunks: false,
            kind: StoredKind::Page,
        };
        stored.encode()
    }

    #[test]
    fn a_journal_of_another_checkpoint_is_damage() {
        let device = AnyDevice::from(FaultyDevice::new(1));
        let mut files = MappingFiles::create(&device, 1).unwrap();
        files.append_to_journal(&group(4, &[(0, word(1))])).unwrap();
        files.append_to_journal(&group(5, &[(1, word(2))])).unwrap();
        let read = |generation, journal_bytes| {
            let superblock = Superblock {
                journal_bytes,
                ..superblock(generation)
            };
            Mapping::read(&device, &superblock).map(|mapping| mapping.words.len())
        };
        assert_eq!(read(5, files.journal_bytes).unwrap(), 2);
        assert_eq!(read(4, files.journal_bytes / 2).unwrap(), 1);
        // The journal is as long as that of the previous checkpoint, or as if the last checkpoint
        // had added no group.
        for (generation, bytes) in [(5, files.journal_bytes / 2), (6, files.journal_bytes)] {
            let error = read(generation, bytes).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
        files.append_to_journal(&group(5, &[(2, word(3))])).unwrap();
        assert!(read(5, files.journal_bytes).unwrap_err().is_corruption());
    }
}
