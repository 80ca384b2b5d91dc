//! Reading a mapping that is damaged in parts.
//!
//! A page word need not be trusted: the image that it leads to says which page it is, and has a
//! checksum. So pairs of a journal group with a wrong checksum are used: a wrong pair leads to a
//! page that cannot be read. But pairs may be missing from such a group, and then a page is found
//! at an older place, with older contents. The report says so.

use pando_device::{AnyDevice, AnyFile, Device, File, IoBuf, OpenOptions};
use pando_format::bytes::{u32_at, u64_at};
use pando_format::cast::{u32_of, u32_of_len, usize_of};
use pando_format::mapping::{Group, SECTION_BYTES, SECTION_WORDS, decode_section, sections};
use pando_format::superblock::Superblock;
use pando_format::{PageId, StoredKind, StoredPage};

use crate::files::mapping::page_ids_limit;
use crate::files::names::{base_name, journal_name};
use crate::salvage::report::SalvageReport;
use crate::verify::walk::Damage;

/// Bytes before the pairs of a group.
const GROUP_HEADER_BYTES: usize = 24;
/// Bytes of a pair.
const PAIR_BYTES: usize = 16;

/// Page words, as far as they are known.
pub(super) struct Words {
    words: Vec<u64>,
    /// Larger ids in a damaged group are ignored, because they could take all memory.
    ids_max: usize,
    /// As that, in any group.
    limit: usize,
}

/// Reads the undamaged parts of the mapping that `superblock` names.
pub(super) fn read(
    device: &AnyDevice,
    superblock: &Superblock,
    report: &mut SalvageReport,
) -> Words {
    let base_pages = superblock.base_pages.min(u64::from(u32::MAX));
    let limit = page_ids_limit(base_pages, superblock.journal_bytes);
    let mut words = Words {
        limit,
        words: Vec::new(),
        ids_max: usize_of(
            base_pages
                .saturating_add(superblock.data_blocks)
                .min(u64::from(u32::MAX)),
        ),
    };
    words.read_base(device, superblock, base_pages, report);
    words.read_journal(device, superblock, report);
    words
}

impl Words {
    /// Returns the pages that exist. Pages marked out of reach are tried: they may be readable now,
    /// and writes that they miss were put aside.
    pub(super) fn pages(&self) -> impl Iterator<Item = (PageId, StoredPage)> + '_ {
        let words = self.words.iter().enumerate();
        words.filter_map(|(index, word)| {
            let mut stored = StoredPage::decode(*word)?;
            if stored.kind == StoredKind::OutOfReach {
                stored.kind = StoredKind::Page;
            }
            Some((PageId(u32_of_len(index)), stored))
        })
    }

    fn set(&mut self, page: PageId, word: u64) {
        let is_place = word == 0 || StoredPage::decode(word).is_some();
        if !is_place || page.index() >= self.limit {
            return;
        }
        if page.index() >= self.words.len() {
            self.words.resize(page.index() + 1, 0);
        }
        self.words[page.index()] = word;
    }

    fn read_base(
        &mut self,
        device: &AnyDevice,
        superblock: &Superblock,
        base_pages: u64,
        report: &mut SalvageReport,
    ) {
        let name = base_name(superblock.mapping);
        let base = match device.open(&name, OpenOptions::read()) {
            Ok(base) => base,
            // An empty base contains nothing.
            Err(_) if base_pages == 0 => return,
            Err(error) => return report.harmless.push(damage(name, error)),
        };
        let mut bytes = IoBuf::new(SECTION_BYTES);
        let stored = base.len().unwrap_or(0) / SECTION_BYTES as u64;
        if stored < sections(base_pages) {
            // Places of these are unknown, too.
            let what = format!("{stored} sections long; the checkpoint has {base_pages} pages");
            report.harmless.push(damage(name.clone(), what));
        }
        for section in 0..sections(base_pages).min(stored) {
            let offset = section * SECTION_BYTES as u64;
            let place = || format!("{name} at byte {offset}");
            if let Err(error) = base.read_at(&mut bytes, offset) {
                // Places that only this section has are unknown: those pages cannot be read.
                report.harmless.push(damage(place(), error));
                continue;
            }
            match decode_section(section, &bytes) {
                Ok(words) => {
                    for (index, word) in words.enumerate() {
                        let page = section * SECTION_WORDS as u64 + index as u64;
                        if page < base_pages && word != 0 {
                            self.set(PageId(u32_of(page)), word);
                        }
                    }
                }
                Err(error) => report.harmless.push(damage(place(), error)),
            }
        }
    }

    fn read_journal(
        &mut self,
        device: &AnyDevice,
        superblock: &Superblock,
        report: &mut SalvageReport,
    ) {
        let name = journal_name(superblock.mapping);
        let bytes = superblock.journal_bytes;
        let journal = match device.open(&name, OpenOptions::read()) {
            Ok(journal) => journal,
            Err(_) if bytes == 0 => return,
            Err(error) => return report.unbounded.push(damage(name, error)),
        };
        let stored = journal.len().unwrap_or(0);
        if stored < bytes {
            let what = format!("{stored} bytes long; the checkpoint has {bytes}");
            report.unbounded.push(damage(name.clone(), what));
        }
        let bytes = bytes.min(stored);
        let (mut offset, mut is_lost) = (0, false);
        while offset < bytes {
            match read_group(&journal, offset, bytes) {
                Ok((group, length)) => {
                    for (page, word) in group.pairs {
                        self.set(page, word);
                    }
                    offset += length;
                    is_lost = false;
                }
                Err(what) => {
                    if !is_lost {
                        let what = format!(
                            "{what}; pages that changed in this checkpoint may be missing, or older"
                        );
                        let place = format!("{name} at byte {offset}");
                        report.unbounded.push(Damage { place, what });
                    }
                    is_lost = true;
                    offset += match self.read_unsound(&journal, offset, bytes) {
                        Some(length) => length,
                        None => SECTION_BYTES as u64,
                    };
                }
            }
        }
    }

    /// Uses the pairs of a group with a wrong checksum, if the next group begins where it should.
    /// Returns the length of the group.
    fn read_unsound(&mut self, journal: &AnyFile, offset: u64, end: u64) -> Option<u64> {
        let mut section = IoBuf::new(SECTION_BYTES);
        journal.read_at(&mut section, offset).ok()?;
        let length = Group::encoded_bytes(&section).ok()?;
        let pairs = u32_at(&section, 16) as usize;
        let next = offset.checked_add(length).filter(|next| *next <= end)?;
        if next < end {
            journal.read_at(&mut section, next).ok()?;
            Group::encoded_bytes(&section).ok()?;
        }
        let mut whole = IoBuf::new(usize_of(length));
        journal.read_at(&mut whole, offset).ok()?;
        let body = whole.get(GROUP_HEADER_BYTES..)?;
        let ids_max = self.ids_max.max(self.words.len());
        for pair in body.chunks_exact(PAIR_BYTES).take(pairs) {
            let page = PageId(u32_at(pair, 0));
            if page.index() < ids_max {
                self.set(page, u64_at(pair, 8));
            }
        }
        Some(length)
    }
}

fn read_group(journal: &AnyFile, offset: u64, end: u64) -> Result<(Group, u64), String> {
    let mut head = IoBuf::new(SECTION_BYTES);
    let read = journal.read_at(&mut head, offset);
    read.map_err(|error| error.to_string())?;
    let length = Group::encoded_bytes(&head).map_err(|damage| damage.what)?;
    if length > end - offset {
        return Err("a group reaches past the end of the journal".to_owned());
    }
    let mut whole = IoBuf::new(usize_of(length));
    let read = journal.read_at(&mut whole, offset);
    read.map_err(|error| error.to_string())?;
    let (group, _) = Group::decode(&whole).map_err(|damage| damage.what)?;
    Ok((group, length))
}

fn damage(place: String, what: impl std::fmt::Display) -> Damage {
    let what = what.to_string();
    Damage { place, what }
}
