//! The files that record where pages are stored: superblock, mapping base and journal
//! (decision 001).

use std::collections::BTreeMap;

use pando_device::{AnyDevice, AnyFile, Create, Device, File, IoBuf, OpenOptions};
use pando_format::mapping::{
    Group, SECTION_BYTES, SECTION_WORDS, decode_section, encode_section, sections,
};
use pando_format::superblock::{SLOT_BYTES, Superblock};
use pando_format::{Epoch, PageId, StoredPage, TreeId, VERSION};

use crate::error::{Error, Result};

/// Name of the superblock file.
pub(crate) const SUPERBLOCK: &str = "superblock";
/// Name of the data file.
pub(crate) const DATA: &str = "data";
/// Name of a file that exists only while a store is being created.
pub(crate) const CREATING: &str = "creating";
/// Sections whose words are merged at a time: 1 MiB of memory.
const WINDOW_SECTIONS: u64 = 256;
/// Bytes by which a journal file grows; half as many are always allocated beyond its end.
const JOURNAL_STEP: u64 = 1 << 20;
/// Bytes of the smallest journal that is worth merging.
const MERGE_MIN_BYTES: u64 = 4 << 20;
/// Bytes by which the journal must grow before a failed merge is tried again.
const MERGE_AGAIN_BYTES: u64 = 1 << 20;

/// Name of the base file with this number.
pub(crate) fn base_name(number: u64) -> String {
    format!("map.{number}")
}

/// Name of the journal file with this number.
pub(crate) fn journal_name(number: u64) -> String {
    format!("journal.{number}")
}

/// Reads the newest valid slot of the superblock.
pub(crate) fn read_superblock(file: &AnyFile) -> Result<Superblock> {
    let mut slots = IoBuf::new(2 * SLOT_BYTES);
    file.read_at(&mut slots, 0)
        .map_err(|error| Error::corrupt(SUPERBLOCK, error))?;
    let first = Superblock::decode(&slots[..SLOT_BYTES]);
    let second = Superblock::decode(&slots[SLOT_BYTES..]);
    match (first, second) {
        (Ok(first), Ok(second)) if second.generation > first.generation => Ok(second),
        (Ok(slot), _) | (Err(_), Ok(slot)) => Ok(slot),
        (Err(first), Err(second)) => match slots.chunks(SLOT_BYTES).find_map(other_version) {
            Some(found) => Err(Error::Version {
                found,
                known: VERSION,
            }),
            None => Err(Error::corrupt(
                SUPERBLOCK,
                format!("slot 0: {first}; slot 1: {second}"),
            )),
        },
    }
}

/// Returns the version of a valid slot if this program does not read that version.
fn other_version(slot: &[u8]) -> Option<u32> {
    Superblock::version_of(slot).filter(|version| *version != VERSION)
}

/// Writes both slots, one after the other: the first is durable before the second is written.
pub(crate) fn write_superblock(file: &AnyFile, superblock: &Superblock) -> Result<()> {
    let mut slot = IoBuf::new(SLOT_BYTES);
    slot.copy_from_slice(&superblock.encode());
    let read = Superblock::decode(&slot);
    assert_eq!(read.as_ref(), Ok(superblock), "what is written can be read");
    for offset in [0, SLOT_BYTES as u64] {
        file.write_at(&slot, offset)
            .map_err(Error::io("writing the superblock"))?;
        file.sync()
            .map_err(Error::io_fatal("syncing the superblock"))?;
    }
    Ok(())
}

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
            StoredPage::decode(*word).map(|stored| (PageId(index as u32), stored))
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
        let mut last = Epoch(0);
        read_groups(&journal, &name, superblock.journal_bytes, |group| {
            if group.generation <= last {
                let what = format!("a group of {} behind one of {last}", group.generation);
                return Err(Error::corrupt(&name, what));
            }
            last = group.generation;
            for (page, word) in &group.pairs {
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
                    let page = PageId(page as u32);
                    self.set(page, word)
                        .map_err(|what| Error::corrupt(&name, what))?;
                }
            }
        }
        Ok(())
    }
}

fn open(device: &AnyDevice, name: &str) -> Result<AnyFile> {
    device.open(name, OpenOptions::read()).map_err(|error| {
        if error.is_not_found() {
            Error::corrupt(name, "the file is missing")
        } else {
            Error::io("opening the mapping")(error)
        }
    })
}

/// Calls `each` with the groups in the first `bytes` bytes of a journal.
fn read_groups(
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
        let mut whole = IoBuf::new(length as usize);
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
    device: AnyDevice,
    /// Number in the names of the files.
    pub(crate) number: u64,
    /// Number of pages that the base covers.
    pub(crate) base_pages: u64,
    journal: AnyFile,
    /// Bytes of the journal that groups use.
    pub(crate) journal_bytes: u64,
    /// Bytes of the journal that are allocated.
    allocated: u64,
    /// Set when a merge has failed: the next one waits until the journal is longer than this.
    merge_above: u64,
    /// Files that no superblock names once the next one is durable.
    obsolete: Vec<String>,
    /// The log says already that one of them cannot be removed.
    told: bool,
    /// Bytes written since the last [`MappingFiles::take_written_bytes`].
    written_bytes: u64,
}

impl MappingFiles {
    /// Creates an empty base and journal. Their names are durable after the next sync of the
    /// directory.
    pub(crate) fn create(device: &AnyDevice, number: u64) -> Result<Self> {
        let base = create_file(device, &base_name(number))?;
        base.sync().map_err(Error::io("syncing the mapping"))?;
        Self::create_journal(device, number)
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
        Ok(Self {
            device: device.clone(),
            number: superblock.mapping,
            base_pages: superblock.base_pages,
            journal,
            journal_bytes: superblock.journal_bytes,
            allocated,
            merge_above: 0,
            obsolete: Vec::new(),
            told: false,
            written_bytes: 0,
        })
    }

    /// Appends a group and makes it durable. No superblock refers to it yet, so the next attempt
    /// overwrites a failed one.
    pub(crate) fn append(&mut self, group: &Group) -> Result<()> {
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

    /// True if the journal should be merged into its base.
    pub(crate) fn wants_merge(&self) -> bool {
        let base_bytes = sections(self.base_pages) * SECTION_BYTES as u64;
        self.journal_bytes > base_bytes.max(MERGE_MIN_BYTES).max(self.merge_above)
    }

    /// Merges if possible. A merge saves space and time, but nothing is lost without it, and
    /// nothing names its files until it has ended. If the disk is full, every checkpoint tries
    /// again; after another error, the next attempt is made once the journal has grown by
    /// [`MERGE_AGAIN_BYTES`].
    pub(crate) fn merge_if_possible(&mut self, page_count: u64) {
        match self.merge(page_count) {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "the mapping was not merged; it is tried again");
                self.merge_above = self.journal_bytes + MERGE_AGAIN_BYTES;
            }
        }
    }

    /// Merges base and journal into files of the next number, reading from disk one window at a
    /// time. The next superblock names them. `page_count` is one past the largest page id.
    pub(crate) fn merge(&mut self, page_count: u64) -> Result<()> {
        let next = self.number + 1;
        let is_next = |name: &String| *name == base_name(next) || *name == journal_name(next);
        assert!(
            !self.obsolete.iter().any(is_next),
            "a file to be written is to be removed"
        );
        let old_base = open(&self.device, &base_name(self.number))?;
        let old_name = journal_name(self.number);
        let (new_base_name, new_journal_name) = (base_name(next), journal_name(next));
        for name in [&new_base_name, &new_journal_name] {
            match self.device.remove(name) {
                Err(error) if !error.is_not_found() => {
                    return Err(Error::io("removing an unfinished mapping")(error));
                }
                _ => {}
            }
        }
        let new_base = create_file(&self.device, &new_base_name)?;
        let mut first = 0;
        while first < sections(page_count) {
            let count = WINDOW_SECTIONS.min(sections(page_count) - first);
            self.merge_window(&old_base, &old_name, &new_base, first, count)?;
            first += count;
        }
        new_base.sync().map_err(Error::io("syncing the mapping"))?;
        let mut files = Self::create_journal(&self.device, next)?;
        self.device
            .sync_directory()
            .map_err(Error::io("syncing the directory"))?;
        files.base_pages = page_count;
        let base_bytes = sections(page_count) * SECTION_BYTES as u64;
        files.written_bytes = self.written_bytes + base_bytes;
        files.told = self.told;
        files.obsolete = std::mem::take(&mut self.obsolete);
        files.obsolete.extend([base_name(self.number), old_name]);
        *self = files;
        Ok(())
    }

    fn create_journal(device: &AnyDevice, number: u64) -> Result<Self> {
        let journal = create_file(device, &journal_name(number))?;
        journal
            .allocate(0, JOURNAL_STEP)
            .map_err(Error::io("allocating the journal"))?;
        journal.sync().map_err(Error::io("syncing the journal"))?;
        Ok(Self {
            device: device.clone(),
            number,
            base_pages: 0,
            journal,
            journal_bytes: 0,
            allocated: JOURNAL_STEP,
            merge_above: 0,
            obsolete: Vec::new(),
            told: false,
            written_bytes: 0,
        })
    }

    /// Merges the words of `count` sections from `first` on, and writes them to the new base.
    fn merge_window(
        &self,
        old_base: &AnyFile,
        old_name: &str,
        new_base: &AnyFile,
        first: u64,
        count: u64,
    ) -> Result<()> {
        let start = first * SECTION_WORDS as u64;
        let mut words = vec![0; (count as usize) * SECTION_WORDS];
        let mut section = IoBuf::new(SECTION_BYTES);
        for index in first..(first + count).min(sections(self.base_pages)) {
            let name = base_name(self.number);
            let read = old_base.read_at(&mut section, index * SECTION_BYTES as u64);
            read.map_err(|error| Error::corrupt(&name, error))?;
            let decoded = decode_section(index, &section)
                .map_err(|damage| Error::corrupt(format!("{name}, section {index}"), damage))?;
            let at = ((index - first) as usize) * SECTION_WORDS;
            for (word, slot) in decoded.zip(&mut words[at..]) {
                *slot = word;
            }
        }
        read_groups(&self.journal, old_name, self.journal_bytes, |group| {
            for (page, word) in group.pairs {
                let inside = u64::from(page.0).checked_sub(start).map(|at| at as usize);
                if let Some(slot) = inside.and_then(|at| words.get_mut(at)) {
                    *slot = word;
                }
            }
            Ok(())
        })?;
        for (index, part) in words.chunks(SECTION_WORDS).enumerate() {
            let number = first + index as u64;
            encode_section(number, part, &mut section);
            let write = new_base.write_at(&section, number * SECTION_BYTES as u64);
            write.map_err(Error::io("writing the mapping"))?;
        }
        Ok(())
    }

    /// Removes files that the durable superblock does not name. A file that cannot be removed does
    /// no harm: the next checkpoint and the next opening try again.
    pub(crate) fn remove_obsolete(&mut self) {
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
mod tests {
    use super::*;
    use pando_device::faulty::{CrashMode, Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::{Epoch, Extent, Lsn, StoredKind};

    fn superblock(generation: u64) -> Superblock {
        Superblock {
            generation: Epoch(generation),
            incarnation: 1,
            checkpoint_lsn: Lsn(0),
            page_bytes: 4096,
            block_bytes: 4096,
            segment_bytes: 1 << 16,
            next_tree: 16,
            mapping: 1,
            base_pages: 0,
            journal_bytes: 0,
            data_blocks: 0,
            identity: [1; 16],
            hash_key: [1, 2],
        }
    }

    /// Slots as an earlier process has left them: `slots[0]` was written and not synced.
    fn left(slots: [Option<u64>; 2]) -> FaultyDevice {
        let device = FaultyDevice::new(1);
        let any = AnyDevice::from(device.clone());
        let file = create_file(&any, SUPERBLOCK).unwrap();
        any.sync_directory().unwrap();
        file.allocate(0, 2 * SLOT_BYTES as u64).unwrap();
        for slot in [1, 0] {
            let bytes = slots[slot].map_or([7; SLOT_BYTES], |g| superblock(g).encode());
            file.write_at(&bytes, (slot * SLOT_BYTES) as u64).unwrap();
            if slot == 1 {
                file.sync().unwrap();
            }
        }
        device
    }

    fn read(device: &FaultyDevice) -> Result<Superblock> {
        let device = AnyDevice::from(device.clone());
        read_superblock(&device.open(SUPERBLOCK, OpenOptions::write()).unwrap())
    }

    /// One slot is valid wherever the process ends, and whichever of its writes are lost or torn.
    fn check(slots: [Option<u64>; 2], durable: u64) {
        let left = left(slots);
        let chosen = read(&left).unwrap();
        for (operation, nth) in [
            (Operation::Write, 1),
            (Operation::Sync, 1),
            (Operation::Write, 2),
            (Operation::Sync, 2),
            (Operation::Sync, 3),
        ] {
            let device = left.after_exit(1);
            device.fail(FaultPlan::once(operation, SUPERBLOCK, nth, Fault::Crash));
            let any = AnyDevice::from(device.clone());
            let file = any.open(SUPERBLOCK, OpenOptions::write()).unwrap();
            let done = write_superblock(&file, &chosen);
            assert_eq!(done.is_ok(), nth == 3);
            for seed in 0..50 {
                let after = device.after_crash(seed, CrashMode::TornSectors);
                let found = read(&after).map(|found| found.generation.0);
                let found = found.unwrap_or_else(|error| panic!("{slots:?}, {nth}: {error}"));
                assert!(found == chosen.generation.0 || found == durable && nth < 3);
            }
        }
    }

    fn group(generation: u64, pairs: &[(u32, u64)]) -> Group {
        Group {
            generation: Epoch(generation),
            pairs: pairs
                .iter()
                .map(|(page, word)| (PageId(*page), *word))
                .collect(),
            counts: Vec::new(),
        }
    }

    fn word(block: u32) -> u64 {
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
        files.append(&group(4, &[(0, word(1))])).unwrap();
        files.append(&group(5, &[(1, word(2))])).unwrap();
        let read = |generation, journal_bytes| {
            let superblock = Superblock {
                journal_bytes,
                ..superblock(generation)
            };
            Mapping::read(&device, &superblock).map(|mapping| mapping.words.len())
        };
        assert_eq!(read(5, files.journal_bytes).unwrap(), 2);
        assert_eq!(read(4, files.journal_bytes / 2).unwrap(), 1);
        // As long as that of the checkpoint before, or as if the last one had added no group.
        for (generation, bytes) in [(5, files.journal_bytes / 2), (6, files.journal_bytes)] {
            let error = read(generation, bytes).unwrap_err();
            assert!(error.is_corruption(), "{error}");
        }
        files.append(&group(5, &[(2, word(3))])).unwrap();
        assert!(read(5, files.journal_bytes).unwrap_err().is_corruption());
    }

    #[test]
    fn a_merge_leaves_out_pages_that_were_freed_since_the_checkpoint() {
        let device = AnyDevice::from(FaultyDevice::new(1));
        let mut files = MappingFiles::create(&device, 1).unwrap();
        let far = 3 * SECTION_WORDS as u32;
        files
            .append(&group(4, &[(3, word(1)), (9, word(2)), (far, word(3))]))
            .unwrap();
        // The largest page in use is page 3; no group says yet that the other two were freed.
        files.merge(4).unwrap();
        assert_eq!((files.number, files.base_pages), (2, 4));
        files.append(&group(5, &[(9, 0), (far, 0)])).unwrap();
        let superblock = Superblock {
            mapping: files.number,
            base_pages: files.base_pages,
            journal_bytes: files.journal_bytes,
            ..superblock(5)
        };
        let mapping = Mapping::read(&device, &superblock).unwrap();
        let named = mapping.words.iter().enumerate();
        let named: Vec<_> = named.filter(|(_, word)| **word != 0).collect();
        assert_eq!(named, [(3, &word(1))]);
        files.remove_obsolete();
        let names = device.list().unwrap();
        assert!(!names.contains(&base_name(1)) && names.contains(&base_name(2)));
    }

    #[test]
    fn one_slot_is_whole_wherever_a_superblock_that_was_read_is_written_again() {
        check([Some(5), Some(4)], 4);
        check([None, Some(4)], 4);
        check([Some(4), Some(4)], 4);
    }
}
