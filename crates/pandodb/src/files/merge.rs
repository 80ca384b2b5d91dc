//! Merges of the mapping: base and journal become the base of the next number (decisions 001, 065).
//!
//! The words of one window of pages at a time are in memory, and the journal is read once for each
//! window, at most [`WINDOWS_MAX`] times (decision 115).
//!
//! Between checkpoints a merge shortens a long journal. Within a checkpoint it is the way out when
//! the journal cannot grow: the changes of the checkpoint go into a base that no superblock names.

use std::collections::{BTreeMap, BTreeSet};

use pando_device::{AnyFile, Device, File, IoBuf, OpenOptions};
use pando_format::cast::usize_of;
use pando_format::mapping::{
    Group, SECTION_BYTES, SECTION_WORDS, decode_section, encode_section, sections,
};
use pando_format::{PageId, TreeId};

use crate::error::{Error, Result};
use crate::files::mapping::{MappingFiles, open, read_groups};
use crate::files::names::{base_name, journal_name};
use crate::files::reserve::{Allocated, MappingReserve, MappingSize, NextMapping};

/// Fewest sections whose words are merged at a time: 1 MiB of memory.
const WINDOW_SECTIONS_MIN: u64 = 256;
/// Most windows of a merge of as many pages as the page table has room for. Its words have 8 bytes
/// each, too, and an eighth of `max_memory`: a window has a 128th of that.
const WINDOWS_MAX: u64 = 16;
/// Bytes of the smallest journal that is worth merging.
const MERGE_MIN_BYTES: u64 = 4 << 20;
/// Bytes by which the journal must grow before a failed merge is tried again.
const MERGE_AGAIN_BYTES: u64 = 1 << 20;

impl MappingFiles {
    /// True if the journal should be merged into its base.
    pub(crate) fn wants_merge(&self) -> bool {
        let base_bytes = sections(self.base_pages) * SECTION_BYTES as u64;
        self.journal_bytes > base_bytes.max(MERGE_MIN_BYTES).max(self.merge_above)
    }

    /// Merges if possible. A merge saves space and time, but nothing is lost without it, and
    /// nothing names its files until it has ended. If the disk is full, every checkpoint tries
    /// again; after another error, the next attempt is made once the journal has grown by
    /// [`MERGE_AGAIN_BYTES`].
    pub(crate) fn merge_if_possible(&mut self, size: MappingSize, reserve: &MappingReserve) {
        match self.merge(size.pages, size.tables, reserve) {
            Ok(()) | Err(Error::Full { .. }) => {}
            Err(error) => {
                tracing::warn!(%error, "the mapping was not merged; it is tried again");
                self.merge_above = self.journal_bytes + MERGE_AGAIN_BYTES;
            }
        }
    }

    /// Merges base and journal into files of the next number, reading from disk one window at a
    /// time. The next superblock names them. `page_count` is one past the largest page id, `tables`
    /// the number of counts that the first group of the new journal has.
    pub(crate) fn merge(
        &mut self,
        page_count: u64,
        tables: u64,
        reserve: &MappingReserve,
    ) -> Result<()> {
        let next = reserve.take(page_count, tables)?;
        assert!(next.number > self.number, "mappings are numbered in order");
        let names = [base_name(next.number), journal_name(next.number)];
        assert!(
            !self.obsolete.iter().any(|name| names.contains(name)),
            "a file to be written is to be removed"
        );
        match self.merge_into(&next, page_count, window_sections(reserve.ids_max())) {
            Ok(()) => {
                reserve.merged(self.follow(next, page_count));
                Ok(())
            }
            Err(error) => {
                reserve.put_back(next);
                Err(error)
            }
        }
    }

    /// Writes the base of `next`, `window` sections at a time, and makes it durable with its names.
    fn merge_into(&self, next: &NextMapping, page_count: u64, window: u64) -> Result<()> {
        let old_base = open(&self.device, &base_name(self.number))?;
        let all = sections(page_count);
        let mut words = vec![0; usize_of(window.min(all)) * SECTION_WORDS];
        let mut first = 0;
        while first < all {
            let count = window.min(all - first);
            let words = &mut words[..usize_of(count) * SECTION_WORDS];
            self.merge_window(&old_base, &next.base.file, first, words)?;
            first += count;
        }
        let syncing = Error::io("syncing the mapping");
        next.base.file.sync().map_err(syncing)?;
        let syncing = Error::io("syncing the journal");
        next.journal.file.sync().map_err(syncing)?;
        self.device
            .sync_directory()
            .map_err(Error::io("syncing the directory"))
    }

    /// Continues with merged files. Returns the base.
    fn follow(&mut self, next: NextMapping, page_count: u64) -> Allocated {
        self.obsolete
            .extend([base_name(self.number), journal_name(self.number)]);
        self.number = next.number;
        self.base_pages = page_count;
        self.journal = next.journal.file;
        self.allocated = next.journal.bytes;
        self.journal_bytes = 0;
        self.merge_above = 0;
        self.is_named = false;
        self.is_base_kept = false;
        self.written_bytes += sections(page_count) * SECTION_BYTES as u64;
        next.base
    }

    /// Merges the words of the sections from `first` on, as many as `words` holds, and writes them
    /// to the new base.
    fn merge_window(
        &self,
        old_base: &AnyFile,
        new_base: &AnyFile,
        first: u64,
        words: &mut [u64],
    ) -> Result<()> {
        let start = first * SECTION_WORDS as u64;
        let mut section = IoBuf::new(SECTION_BYTES);
        for (index, slots) in (first..).zip(words.chunks_mut(SECTION_WORDS)) {
            match index < sections(self.base_pages) {
                true => self.read_section(old_base, index, &mut section, slots)?,
                false => slots.fill(0),
            }
        }
        let name = journal_name(self.number);
        read_groups(&self.journal, &name, self.journal_bytes, |group| {
            for (page, word) in group.pairs {
                let inside = u64::from(page.0).checked_sub(start).map(usize_of);
                if let Some(slot) = inside.and_then(|at| words.get_mut(at)) {
                    *slot = word;
                }
            }
            Ok(())
        })?;
        for (index, part) in words.chunks(SECTION_WORDS).enumerate() {
            write_section(new_base, first + index as u64, part, &mut section)?;
        }
        Ok(())
    }

    /// Reads the words of a section of `base`, which has this number, into `words`.
    fn read_section(
        &self,
        base: &AnyFile,
        index: u64,
        section: &mut IoBuf,
        words: &mut [u64],
    ) -> Result<()> {
        let name = base_name(self.number);
        let read = base.read_at(section, index * SECTION_BYTES as u64);
        read.map_err(|error| Error::corrupt(&name, error))?;
        let decoded = decode_section(index, section)
            .map_err(|damage| Error::corrupt(format!("{name}, section {index}"), damage))?;
        let first = index * SECTION_WORDS as u64;
        for ((number, word), slot) in decoded.enumerate().zip(words) {
            // Words beyond the last page mean nothing.
            let is_page = first + (number as u64) < self.base_pages;
            *slot = if is_page { word } else { 0 };
        }
        Ok(())
    }

    /// Appends a group to a journal that cannot grow: merges it, and writes the changes of the
    /// group to the new base, so that the new journal has the counts only. May be called again with
    /// the same group if it fails.
    pub(crate) fn append_merged(&mut self, group: &Group, reserve: &MappingReserve) -> Result<()> {
        if self.is_named || self.is_base_kept {
            let (pages, counts) = self.known()?;
            self.merge(pages, counts.len() as u64, reserve)?;
            // The group has the counts that have changed since the last one.
            self.carried = Some(counts);
        }
        self.write_into_base(&group.pairs)?;
        let mut counts = self.carried.clone().unwrap_or_default();
        counts.extend(group.counts.iter().copied());
        let rest = Group {
            generation: group.generation,
            pairs: Vec::new(),
            counts: counts.into_iter().collect(),
        };
        self.append_to_journal(&rest)?;
        self.carried = None;
        Ok(())
    }

    /// Returns the number of pages that base and journal have, and the last count of each table.
    fn known(&self) -> Result<(u64, BTreeMap<TreeId, u64>)> {
        let (mut pages, mut counts) = (self.base_pages, BTreeMap::new());
        let name = journal_name(self.number);
        read_groups(&self.journal, &name, self.journal_bytes, |group| {
            counts.extend(group.counts);
            pages = pages.max(pages_of(&group.pairs));
            Ok(())
        })?;
        Ok((pages, counts))
    }

    /// Writes the words of `pairs` to the base in place, and makes it durable. No superblock names
    /// this base.
    fn write_into_base(&mut self, pairs: &[(PageId, u64)]) -> Result<()> {
        assert!(!self.is_named, "a base that is named is never changed");
        assert!(!self.is_base_kept, "a base that is kept is never changed");
        let base = self
            .device
            .open(&base_name(self.number), OpenOptions::write())
            .map_err(Error::io("opening the mapping"))?;
        // The last of several words for one page.
        let latest: BTreeMap<u64, u64> = pairs
            .iter()
            .map(|(page, word)| (u64::from(page.0), *word))
            .collect();
        let before = sections(self.base_pages);
        let pages = self.base_pages.max(pages_of(pairs));
        let changed = latest.keys().map(|page| page / SECTION_WORDS as u64);
        let changed: BTreeSet<u64> = changed
            .filter(|index| *index < before)
            .chain(before..sections(pages))
            .collect();
        let mut section = IoBuf::new(SECTION_BYTES);
        for index in &changed {
            let mut words = [0; SECTION_WORDS];
            if *index < before {
                self.read_section(&base, *index, &mut section, &mut words)?;
            }
            let first = index * SECTION_WORDS as u64;
            for (page, word) in latest.range(first..first + SECTION_WORDS as u64) {
                words[usize_of(page - first)] = *word;
            }
            write_section(&base, *index, &words, &mut section)?;
        }
        base.sync()
            .map_err(Error::io_fatal("syncing the mapping"))?;
        self.written_bytes += (changed.len() * SECTION_BYTES) as u64;
        self.base_pages = pages;
        Ok(())
    }
}

/// Sections whose words a merge has in memory at a time, with a page table of `ids_max` ids: the
/// journal is read at most [`WINDOWS_MAX`] times.
fn window_sections(ids_max: u64) -> u64 {
    let share = sections(ids_max).div_ceil(WINDOWS_MAX);
    share.max(WINDOW_SECTIONS_MIN)
}

/// One past the largest page for which `pairs` has a place.
fn pages_of(pairs: &[(PageId, u64)]) -> u64 {
    let used = pairs.iter().filter(|(_, word)| *word != 0);
    used.map(|(page, _)| u64::from(page.0) + 1)
        .max()
        .unwrap_or(0)
}

fn write_section(base: &AnyFile, index: u64, words: &[u64], section: &mut IoBuf) -> Result<()> {
    encode_section(index, words, section);
    let write = base.write_at(section, index * SECTION_BYTES as u64);
    write.map_err(Error::io("writing the mapping"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::mapping::Mapping;
    use crate::files::mapping::tests::{group, word};
    use crate::files::superblock::tests::superblock;
    use crate::options::Budget;
    use pando_device::AnyDevice;
    use pando_device::faulty::{Fault, FaultPlan, FaultyDevice, Operation};
    use pando_format::PageSize;
    use pando_format::cast::u32_of;
    use pando_format::superblock::Superblock;

    /// Returns empty files of mapping 1 on `device`, and the reserve for mapping 2.
    fn files_on(device: &FaultyDevice) -> (MappingFiles, MappingReserve) {
        let device = AnyDevice::from(device.clone());
        let files = MappingFiles::create(&device, 1).unwrap();
        let reserve = MappingReserve::new(device, 1 << 20);
        reserve.begin(1).unwrap();
        (files, reserve)
    }

    /// Reads the mapping that `files` have at `generation`. Returns the pages in use, and the
    /// counts.
    fn read(device: &FaultyDevice, files: &MappingFiles, generation: u64) -> State {
        let superblock = Superblock {
            mapping: files.number,
            base_pages: files.base_pages,
            journal_bytes: files.journal_bytes,
            ..superblock(generation)
        };
        let device = AnyDevice::from(device.clone());
        let mapping = Mapping::read(&device, &superblock).unwrap();
        let words = (0..).zip(&mapping.words).filter(|(_, word)| **word != 0);
        (
            words.map(|(page, word)| (page, *word)).collect(),
            mapping.counts,
        )
    }

    type State = (BTreeMap<u32, u64>, BTreeMap<TreeId, u64>);

    fn size_of(pages: u64, tables: u64) -> MappingSize {
        MappingSize {
            pages,
            free_pages: 0,
            tables,
        }
    }

    /// Fills the disk up to the last `bytes`.
    fn leave(device: &FaultyDevice, bytes: u64) {
        const ALL: u64 = 1 << 40;
        device.set_capacity(ALL);
        let used = ALL - device.free_bytes().unwrap();
        device.set_capacity(used + bytes);
    }

    #[test]
    fn a_merge_leaves_out_pages_that_were_freed_since_the_checkpoint() {
        let device = FaultyDevice::new(1);
        let (mut files, reserve) = files_on(&device);
        let far = 3 * SECTION_WORDS as u32;
        let first = group(4, &[(3, word(1)), (9, word(2)), (far, word(3))]);
        files.append(&first, &reserve).unwrap();
        // The largest page in use is page 3, but no group says yet that the other two were freed.
        files.merge(4, 0, &reserve).unwrap();
        assert_eq!((files.number, files.base_pages), (2, 4));
        files
            .append(&group(5, &[(9, 0), (far, 0)]), &reserve)
            .unwrap();
        let (words, _) = read(&device, &files, 5);
        assert_eq!(words, BTreeMap::from([(3, word(1))]));
        files.named();
        let names = device.list().unwrap();
        assert!(!names.contains(&base_name(1)) && names.contains(&base_name(2)));
    }

    /// Pages are changed, allocated and freed, and sometimes there is no room for the journal. A
    /// map has the expected state.
    #[test]
    fn checkpoints_end_on_a_full_disk() {
        const PAGES: u32 = 3 * SECTION_WORDS as u32 + 77;
        let device = FaultyDevice::new(1);
        let (mut files, reserve) = files_on(&device);
        let (mut pages, mut counts) = (BTreeMap::new(), BTreeMap::new());
        let size = size_of(PAGES.into(), 10);
        reserve.extend(size).unwrap();
        leave(&device, 0);
        let mut random = fastrand::Rng::with_seed(1);
        let mut merges = 0;
        for generation in 1..400 {
            let mut now = group(generation, &[]);
            // Some groups are longer than any journal that can be made.
            let most = if random.u8(..) < 20 { 9000 } else { 300 };
            let changes = random.u32(..most);
            for _ in 0..changes {
                let page = random.u32(..PAGES);
                let word = match random.u8(..4) {
                    0 => 0,
                    _ => word(random.u32(..)),
                };
                now.pairs.push((PageId(page), word));
                match word {
                    0 => pages.remove(&page),
                    _ => pages.insert(page, word),
                };
            }
            let tree = TreeId(16 + random.u32(..10));
            counts.insert(tree, generation);
            now.counts = match files.is_empty() {
                true => counts.clone().into_iter().collect(),
                false => vec![(tree, generation)],
            };
            let number = files.number;
            if random.bool() {
                // This is an attempt of a checkpoint that finds the disk full at some operation,
                // and waits.
                let operation = [Operation::Write, Operation::Allocate][random.usize(..2)];
                let nth = random.u64(1..4);
                let fault = match operation {
                    Operation::Allocate if random.bool() => Fault::Io,
                    _ => Fault::Full,
                };
                device.fail(FaultPlan::once(operation, "", nth, fault));
                let first = files.append(&now, &reserve);
                device.clear_faults();
                if let Err(error) = first {
                    assert!(error.is_want_of_room(), "{error}");
                    files.append(&now, &reserve).unwrap();
                }
            } else {
                files.append(&now, &reserve).unwrap();
            }
            assert_eq!(
                read(&device, &files, generation),
                (pages.clone(), counts.clone())
            );
            files.named();
            reserve.replaced(size);
            assert!(reserve.ids_without_room() < 1 << 20, "the room is kept");
            merges += u32::from(files.number > number);
        }
        assert!(merges > 20, "{merges}");
    }

    /// Words past the last page have no meaning, also when the base grows within the same section.
    #[test]
    fn words_beyond_the_last_page_are_no_pages_of_a_longer_base() {
        let device = FaultyDevice::new(1);
        let (mut files, reserve) = files_on(&device);
        let first = group(4, &[(3, word(1)), (9, word(2))]);
        files.append(&first, &reserve).unwrap();
        // Page 9 has been freed since.
        files.merge(4, 0, &reserve).unwrap();
        files
            .append_merged(&group(5, &[(20, word(3))]), &reserve)
            .unwrap();
        let (words, _) = read(&device, &files, 5);
        assert_eq!(words, BTreeMap::from([(3, word(1)), (20, word(3))]));
    }

    /// Files that a superblock names are never changed, so that after a crash the last checkpoint
    /// is intact.
    #[test]
    fn a_merge_within_a_checkpoint_changes_nothing_that_is_named() {
        let device = FaultyDevice::new(1);
        let (mut files, reserve) = files_on(&device);
        reserve.extend(size_of(1000, 1)).unwrap();
        leave(&device, 0);
        let mut generation = 0;
        let mut number = 1;
        while number < 5 {
            generation += 1;
            let before = read_bytes(&device, number);
            let changes: Vec<_> = (0..1000).map(|page| (page, word(generation))).collect();
            files
                .append(&group(generation.into(), &changes), &reserve)
                .unwrap();
            if files.number > number {
                assert_eq!(read_bytes(&device, number), before);
                number = files.number;
            }
            files.named();
            reserve.replaced(size_of(1000, 1));
        }
    }

    fn read_bytes(device: &FaultyDevice, number: u64) -> [Vec<u8>; 2] {
        [base_name(number), journal_name(number)].map(|name| device.snapshot_file(&name))
    }

    /// Returns how often a merge of two groups and a base of `PAGES` pages reads the journal, with
    /// a page table of `ids_max` ids. Checks what is merged.
    fn passes(ids_max: u64) -> u64 {
        const PAGES: u32 = 8192 * SECTION_WORDS as u32;
        let device = FaultyDevice::new(1);
        let mut files = MappingFiles::create(&AnyDevice::from(device.clone()), 1).unwrap();
        let reserve = MappingReserve::new(AnyDevice::from(device.clone()), ids_max);
        reserve.begin(1).unwrap();
        let mut expected = BTreeMap::new();
        let mut append = |files: &mut MappingFiles, generation: u64, pages: &[u32]| {
            let pairs: Vec<_> = pages
                .iter()
                .map(|page| (*page, word(u32_of(generation) * PAGES + page)))
                .collect();
            expected.extend(pairs.iter().copied());
            files.append(&group(generation, &pairs), &reserve).unwrap();
        };
        // Also the first and the last page of each window, however long it is.
        let firsts = (0..PAGES).step_by(SECTION_WORDS * 16);
        let of_base: Vec<u32> = firsts.chain((1..PAGES).step_by(9973)).collect();
        append(&mut files, 4, &of_base);
        files.merge(PAGES.into(), 0, &reserve).unwrap();
        files.named();
        let last: Vec<u32> = of_base[1..].iter().map(|page| page - 1).collect();
        append(&mut files, 5, &last);
        append(&mut files, 6, &[0, 77, PAGES / 2, PAGES - 1]);
        let reads = FaultPlan::sticky(
            Operation::Read,
            &journal_name(files.number),
            1,
            Fault::Yield(0),
        );
        device.fail(reads);
        let before = device.faults_struck();
        files.merge(PAGES.into(), 0, &reserve).unwrap();
        let reads = device.faults_struck() - before;
        device.clear_faults();
        append(&mut files, 7, &[5]);
        assert_eq!(read(&device, &files, 7).0, expected);
        // Head and whole of each of the two groups.
        assert_eq!(reads % 4, 0, "{reads}");
        reads / 4
    }

    /// Counted: with windows of 1 MiB it was read 32 times, and once more for each 130,816 pages.
    #[test]
    fn a_merge_reads_the_journal_a_bounded_number_of_times() {
        const PAGES: u64 = 8192 * SECTION_WORDS as u64;
        assert_eq!(passes(PAGES), WINDOWS_MAX);
        // As many pages in a store that has memory for more.
        assert_eq!(passes(4 * PAGES), WINDOWS_MAX / 4);
        // Words take no more than a 128th of the memory, or 1 MiB.
        for memory in [4_u64 << 20, 1 << 30, 16 << 30, 1 << 40] {
            let options = crate::Builder::default().max_memory(memory);
            let budget = Budget::new(&options, PageSize::new(4096).unwrap());
            let ids_max = budget.page_ids_max as u64;
            let window = window_sections(ids_max);
            assert!(sections(ids_max).div_ceil(window) <= WINDOWS_MAX);
            let bytes = window * SECTION_WORDS as u64 * 8;
            assert!(
                bytes <= (memory / 128 + 4096).max(1 << 20),
                "{memory}: {bytes}"
            );
        }
    }
}
