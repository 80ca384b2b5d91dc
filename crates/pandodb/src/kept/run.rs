//! What commits have replaced between a snapshot and the checkpoint that is kept for it, in a
//! sorted run on disk (decision 071).
//!
//! ```text
//! page:   entries, padded to whole blocks      one extent of the data file
//! entry:  tree: 4 | key: 4 | record: 4 bytes, all LE | key | record
//! ```
//! Nothing durable names the extents: after a crash they are free. In memory are the first key, the
//! place and the checksum of each page.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

use pando_device::{AnyDevice, AnyFile, Device, File, IoBuf};
use pando_format::bytes::u32_at;
use pando_format::cast::{u32_of, u32_of_len, usize_of};
use pando_format::checksum::crc32c;
use pando_format::{Extent, TreeId};
use pando_sync::{Arc, Mutex, Rank};
use pando_versions::VersionRange;

use crate::error::{Error, Result};
use crate::space::keeper::SpaceKeeper;

/// Bytes of a page, unless one entry needs more.
const PAGE_BYTES: usize = 16 << 10;
/// Bytes before key and record of an entry.
const HEAD_BYTES: usize = 12;

/// A page on disk.
#[derive(Debug)]
struct RunPage {
    /// Tree and key of the first entry.
    tree: TreeId,
    key: Box<[u8]>,
    extent: Extent,
    /// Bytes of the entries.
    bytes: u32,
    checksum: u32,
}

/// Where a run is stored; its blocks are free when this is dropped.
#[derive(Debug)]
struct RunFile {
    device: AnyDevice,
    data: AnyFile,
    space: Arc<SpaceKeeper>,
    pages: Vec<RunPage>,
}

impl Drop for RunFile {
    fn drop(&mut self) {
        if self.device.check_process().is_ok() {
            let extents = self.pages.iter().map(|page| page.extent);
            self.space.free_all(extents);
        }
    }
}

/// Writes a run, entry by entry in ascending order.
#[derive(Debug)]
pub(crate) struct RunWriter {
    file: RunFile,
    buffer: IoBuf,
    /// Bytes of `buffer` that have entries, and the first of them.
    filled: usize,
    first: (TreeId, Box<[u8]>),
}

impl RunWriter {
    /// Returns a writer of a run in the data file of `space`.
    pub(crate) fn new(device: &AnyDevice, data: &AnyFile, space: &Arc<SpaceKeeper>) -> Self {
        Self {
            file: RunFile {
                device: device.clone(),
                data: data.clone(),
                space: space.clone(),
                pages: Vec::new(),
            },
            buffer: IoBuf::new(PAGE_BYTES),
            filled: 0,
            first: (TreeId(0), Box::default()),
        }
    }

    /// Appends an entry. `allocate` returns a run of that many blocks, which the run frees. Blocks
    /// for writes.
    ///
    /// # Errors
    /// [`Error::Io`]; those of `allocate`.
    pub(crate) fn push(
        &mut self,
        (tree, key): (TreeId, &[u8]),
        record: &[u8],
        allocate: impl FnOnce(u32) -> Result<Extent>,
    ) -> Result<()> {
        let bytes = HEAD_BYTES + key.len() + record.len();
        if self.filled > 0 && self.filled + bytes > PAGE_BYTES {
            self.write_page(allocate)?;
        }
        if self.filled == 0 {
            self.first = (tree, key.into());
        }
        let end = self.filled + bytes;
        if end > self.buffer.len() {
            let block = usize_of(self.file.space.block_bytes());
            let mut larger = IoBuf::new(end.next_multiple_of(block));
            larger[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
            self.buffer = larger;
        }
        let entry = &mut self.buffer[self.filled..end];
        entry[..4].copy_from_slice(&tree.0.to_le_bytes());
        entry[4..8].copy_from_slice(&u32_of_len(key.len()).to_le_bytes());
        entry[8..12].copy_from_slice(&u32_of_len(record.len()).to_le_bytes());
        entry[HEAD_BYTES..][..key.len()].copy_from_slice(key);
        entry[HEAD_BYTES + key.len()..].copy_from_slice(record);
        self.filled = end;
        Ok(())
    }

    /// Writes the entries of the buffer.
    fn write_page(&mut self, allocate: impl FnOnce(u32) -> Result<Extent>) -> Result<()> {
        let RunFile {
            data, space, pages, ..
        } = &mut self.file;
        let block_bytes = space.block_bytes();
        let stored = (self.filled as u64).next_multiple_of(block_bytes);
        let blocks = u32_of(stored / block_bytes);
        let extent = allocate(blocks)?;
        let (tree, key) = std::mem::replace(&mut self.first, (TreeId(0), Box::default()));
        pages.push(RunPage {
            tree,
            key,
            extent,
            bytes: u32_of_len(self.filled),
            checksum: crc32c(&self.buffer[..self.filled]),
        });
        self.buffer[self.filled..usize_of(stored)].fill(0);
        let offset = u64::from(extent.block) * block_bytes;
        self.filled = 0;
        data.write_at(&self.buffer[..usize_of(stored)], offset)
            .map_err(Error::io("writing what a snapshot still reads"))
    }

    /// Ends the run.
    ///
    /// # Errors
    /// As [`RunWriter::push`].
    pub(crate) fn finish(mut self, allocate: impl FnOnce(u32) -> Result<Extent>) -> Result<Run> {
        if self.filled > 0 {
            self.write_page(allocate)?;
        }
        Ok(Run {
            file: self.file,
            last: Mutex::new(Rank::Leaf, None),
        })
    }
}

/// A sorted run on disk: what keys had at a snapshot that have changed since.
#[derive(Debug)]
pub(crate) struct Run {
    file: RunFile,
    /// The page that was read last: a scan needs the same one for several leaves.
    last: Mutex<Option<(usize, Arc<IoBuf>)>>,
}

/// An entry of a page.
struct Entry<'p> {
    tree: TreeId,
    key: &'p [u8],
    record: &'p [u8],
}

/// Takes the first entry off `rest`; None at the end.
fn take_entry<'p>(rest: &mut &'p [u8]) -> Option<Entry<'p>> {
    if rest.len() < HEAD_BYTES {
        return None;
    }
    let (head, behind) = rest.split_at(HEAD_BYTES);
    let (key, behind) = behind.split_at_checked(u32_at(head, 4) as usize)?;
    let (record, behind) = behind.split_at_checked(u32_at(head, 8) as usize)?;
    *rest = behind;
    Some(Entry {
        tree: TreeId(u32_at(head, 0)),
        key,
        record,
    })
}

impl Run {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let pages = self.file.pages.iter();
        let bytes = pages.map(|page| size_of::<RunPage>() + page.key.len());
        (bytes.sum::<usize>() + PAGE_BYTES) as u64
    }

    /// Replaces `out` by the record of `key` of `tree`; returns false if it has none. Blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn find(&self, tree: TreeId, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut found = false;
        self.walk((tree, key), |entry| {
            let order = (entry.tree, entry.key).cmp(&(tree, key));
            if order == Ordering::Equal {
                found = true;
                entry.record.clone_into(out);
            }
            order == Ordering::Less
        })?;
        Ok(found)
    }

    /// Replaces `range` by the entries of `tree` within `bounds`. Blocks.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub(crate) fn collect(
        &self,
        tree: TreeId,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        range: &mut VersionRange,
    ) -> Result<()> {
        range.clear();
        let first = match bounds.0 {
            Bound::Included(key) | Bound::Excluded(key) => (tree, key),
            Bound::Unbounded => (tree, &[][..]),
        };
        self.walk(first, |entry| {
            let is_inside = entry.tree == tree && bounds.contains(entry.key);
            if is_inside {
                range.push(entry.key, entry.record);
            }
            // What is outside comes before the range, or ends it.
            is_inside || (entry.tree, entry.key) <= first
        })
    }

    /// Calls `f` with the entries in order, from the page of `first` on, until it returns false.
    fn walk(&self, first: (TreeId, &[u8]), mut f: impl FnMut(Entry<'_>) -> bool) -> Result<()> {
        let pages = &self.file.pages;
        let after = pages.partition_point(|page| (page.tree, &*page.key) <= first);
        for index in after.saturating_sub(1)..pages.len() {
            let page = self.page(index)?;
            let mut rest = &page[..pages[index].bytes as usize];
            while let Some(entry) = take_entry(&mut rest) {
                if !f(entry) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads a page, unless it is the one that was read last.
    fn page(&self, index: usize) -> Result<Arc<IoBuf>> {
        let last = self.last.lock().clone();
        if let Some((last, page)) = last
            && last == index
        {
            return Ok(page);
        }
        let RunPage {
            extent,
            bytes,
            checksum,
            ..
        } = &self.file.pages[index];
        let block_bytes = self.file.space.block_bytes();
        let mut page = IoBuf::new(usize_of(u64::from(extent.blocks) * block_bytes));
        let offset = u64::from(extent.block) * block_bytes;
        let place = || format!("what a snapshot still reads, at byte {offset}");
        let read = self.file.data.read_at(&mut page, offset);
        read.map_err(|error| Error::corrupt(place(), error))?;
        if crc32c(&page[..*bytes as usize]) != *checksum {
            return Err(Error::corrupt(place(), "its checksum is wrong"));
        }
        let page = Arc::new(page);
        *self.last.lock() = Some((index, page.clone()));
        Ok(page)
    }
}
