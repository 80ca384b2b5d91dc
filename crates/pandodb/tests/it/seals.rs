//! Changes of a store's files after which every checksum and tag is right again.

use std::collections::BTreeMap;

use pando_device::faulty::{CrashMode, FaultyDevice};
use pando_format::bytes::put_u32;
use pando_format::checksum::crc32c;
use pando_format::mapping::Group;
use pando_format::superblock::{SLOT_BYTES, Superblock};
use pando_format::{PageId, StoredPage};

/// Bytes of a page, which is one block.
pub(crate) const PAGE: usize = 4096;

pub(crate) fn copy(device: &FaultyDevice) -> FaultyDevice {
    device.after_crash(1, CrashMode::AllSurvive)
}

pub(crate) fn superblock(device: &FaultyDevice) -> Superblock {
    let file = device.snapshot_file("superblock");
    Superblock::decode(&file[..SLOT_BYTES]).unwrap()
}

/// Changes both slots of the superblock.
pub(crate) fn forge_superblock(device: &FaultyDevice, change: impl Fn(&mut [u8])) {
    let mut slot = superblock(device).encode();
    change(&mut slot);
    let checksum = crc32c(&slot[16..]);
    put_u32(&mut slot, 12, checksum);
    for offset in [0, SLOT_BYTES as u64] {
        device.overwrite("superblock", offset, &slot);
    }
}

/// Changes the groups of the journal, which stay as long as they are.
pub(crate) fn forge_journal(device: &FaultyDevice, mut change: impl FnMut(&mut Group)) {
    let superblock = superblock(device);
    let name = format!("journal.{}", superblock.mapping);
    let file = device.snapshot_file(&name);
    let mut offset = 0;
    while offset < superblock.journal_bytes as usize {
        let (mut group, length) = Group::decode(&file[offset..]).unwrap();
        change(&mut group);
        let mut bytes = Vec::new();
        group.encode(&mut bytes);
        assert_eq!(bytes.len(), length);
        device.overwrite(&name, offset as u64, &bytes);
        offset += length;
    }
}

/// Returns all pages and chunks.
pub(crate) fn stored(device: &FaultyDevice) -> BTreeMap<PageId, StoredPage> {
    let mut words = BTreeMap::new();
    forge_journal(device, |group| words.extend(group.pairs.iter().copied()));
    let stored = words.into_iter();
    let stored = stored.filter_map(|(page, word)| Some((page, StoredPage::decode(word)?)));
    stored.collect()
}

pub(crate) fn read_page(device: &FaultyDevice, stored: StoredPage) -> Vec<u8> {
    let offset = stored.extent.block as usize * PAGE;
    device.snapshot_file("data")[offset..offset + PAGE].to_vec()
}

/// Writes a changed page, and its tag to the journal.
pub(crate) fn forge_page(device: &FaultyDevice, id: PageId, change: impl Fn(&mut [u8])) {
    let stored = stored(device)[&id];
    let mut page = read_page(device, stored);
    change(&mut page);
    let checksum = crc32c(&page[4..]);
    put_u32(&mut page, 0, checksum);
    device.overwrite("data", u64::from(stored.extent.block) * PAGE as u64, &page);
    let tag = StoredPage::tag_of(checksum);
    let new = StoredPage { tag, ..stored }.encode();
    forge_journal(device, |group| {
        let pairs = group.pairs.iter_mut();
        let newest = pairs.filter(|(page, word)| *page == id && *word == stored.encode());
        newest.for_each(|(_, word)| *word = new);
    });
}
