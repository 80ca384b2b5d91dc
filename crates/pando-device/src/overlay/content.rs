//! The content of one file: that of the file of the inner device, and the blocks that were written
//! since. Blocks of zeros take no memory, so that allocating a file costs nothing.
//!
//! Lock order: `Content::state` is held around no call of the inner device, which has locks of its
//! own.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::ops::Range;

use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, Rank, RwLock};

use crate::cast::usize_of;
use crate::device::File;
use crate::error::{Error, Result};

/// Bytes of the unit in which written bytes are kept.
pub(super) const BLOCK: u64 = 4096;
/// Bytes that a block takes in memory, with its entry in the map.
const BLOCK_MEMORY: u64 = BLOCK + 64;

/// The memory for blocks of all files of one device.
#[derive(Debug)]
pub(super) struct Room {
    /// Largest `used`, in bytes.
    pub(super) limit: u64,
    /// In bytes.
    used: AtomicU64,
    /// A write has been refused.
    ran_out: AtomicBool,
}

impl Room {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: AtomicU64::new(0),
            ran_out: AtomicBool::new(false),
        }
    }

    pub(super) fn used(&self) -> u64 {
        // Relaxed: an estimate, as every answer to this question is.
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn ran_out(&self) -> bool {
        // Relaxed: whoever asks has got the error of the write.
        self.ran_out.load(Ordering::Relaxed)
    }

    /// Takes the memory of a block.
    fn take(&self, name: &str) -> Result<()> {
        // Relaxed: the count alone is shared; nothing is published through it.
        let taken = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                Some(used + BLOCK_MEMORY).filter(|sum| *sum <= self.limit)
            });
        if taken.is_err() {
            self.ran_out.store(true, Ordering::Relaxed);
            return Err(Error::from_kind("keep", name, io::ErrorKind::OutOfMemory));
        }
        Ok(())
    }

    fn give_back(&self, blocks: usize) {
        let bytes = blocks as u64 * BLOCK_MEMORY;
        // Relaxed: as in take.
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more memory is given back than was taken");
    }
}

/// A file of the inner device.
#[derive(Debug)]
pub(super) struct Base<F> {
    /// Its name there, whatever it is called here.
    pub(super) name: String,
    /// Opened for reading, through the page cache: any part of it can be read.
    pub(super) file: F,
}

/// What was written to a block: None if it is all zeros.
type Block = Option<Box<[u8]>>;

#[derive(Debug)]
struct State {
    /// Blocks by number that differ from those of the inner file.
    blocks: BTreeMap<u64, Block>,
    /// Bytes at the beginning that are those of the inner file, but for `blocks`. What lies beyond
    /// is zeros. At most `len`.
    base_len: u64,
    len: u64,
}

/// The content of one file, freed with its name and its last handle.
#[derive(Debug)]
pub(super) struct Content<F> {
    /// As it was made or found.
    pub(super) name: String,
    pub(super) base: Option<Base<F>>,
    state: RwLock<State>,
    room: Arc<Room>,
}

/// Where the bytes of a read are.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All of them in the inner file.
    Below,
    /// In the buffer by now, but for these parts of it, which are in the inner file.
    Here(Vec<Range<usize>>),
}

/// A part of a request that lies in one block.
struct Part {
    /// Number of the block.
    block: u64,
    /// Range in the block.
    within: Range<usize>,
    /// Range in the request.
    of_request: Range<usize>,
}

/// Returns the parts of a request of `len` bytes at `offset`.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let place = offset + done as u64;
        let from = usize_of(place % BLOCK);
        let count = (len - done).min(usize_of(BLOCK) - from);
        let part = Part {
            block: place / BLOCK,
            within: from..from + count,
            of_request: done..done + count,
        };
        done += count;
        Some(part)
    })
}

impl<F: File> Content<F> {
    /// Returns the content of the file `base`, of `len` bytes; None: of a new one.
    pub(super) fn new(name: &str, base: Option<Base<F>>, len: u64, room: Arc<Room>) -> Self {
        let state = State {
            blocks: BTreeMap::new(),
            base_len: len,
            len,
        };
        Self {
            name: name.to_owned(),
            base,
            state: RwLock::new(Rank::Leaf, state),
            room,
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.state.read().len
    }

    /// Returns the end of `offset .. offset + len`, if a file can be that long.
    fn end(&self, operation: &'static str, offset: u64, len: u64) -> Result<u64> {
        offset
            .checked_add(len)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| Error::from_kind(operation, &self.name, io::ErrorKind::FileTooLarge))
    }

    /// Looks for the bytes at `offset`, and copies those that are kept here.
    ///
    /// # Errors
    /// `ShortRead`.
    pub(super) fn find(&self, buffer: &mut [u8], offset: u64) -> Result<Found> {
        let state = self.state.read();
        let there = state.len.saturating_sub(offset);
        if there < buffer.len() as u64 {
            return Err(Error::ShortRead {
                name: self.name.clone(),
                offset,
                wanted: buffer.len(),
                got: usize_of(there),
            });
        }
        let end = offset + buffer.len() as u64;
        let touched = offset / BLOCK..end.div_ceil(BLOCK);
        // A new file has none below, of which nothing could be read.
        let is_below = !buffer.is_empty() && end <= state.base_len;
        if is_below && state.blocks.range(touched).next().is_none() {
            return Ok(Found::Below);
        }
        let mut below = Vec::new();
        for part in parts(offset, buffer.len()) {
            match state.blocks.get(&part.block) {
                Some(Some(bytes)) => buffer[part.of_request].copy_from_slice(&bytes[part.within]),
                Some(None) => buffer[part.of_request].fill(0),
                None => {
                    let from = part.block * BLOCK + part.within.start as u64;
                    let count = state.base_len.saturating_sub(from);
                    let count = count.min(part.of_request.len() as u64);
                    let middle = part.of_request.start + usize_of(count);
                    buffer[middle..part.of_request.end].fill(0);
                    if count > 0 {
                        below.push(part.of_request.start..middle);
                    }
                }
            }
        }
        Ok(Found::Here(below))
    }

    /// Reads the parts `below` of a request at `offset` from the inner file.
    pub(super) fn read_below(
        &self,
        buffer: &mut [u8],
        offset: u64,
        below: Vec<Range<usize>>,
    ) -> Result<()> {
        for part in below {
            let place = offset + part.start as u64;
            self.inner().read_at(&mut buffer[part], place)?;
        }
        Ok(())
    }

    /// Returns the inner file, of which something is read.
    pub(super) fn inner(&self) -> &F {
        &self.base.as_ref().expect("a file with a base").file
    }

    /// Returns block `number` as it is in the inner file, unless it is kept here: then the result
    /// is not used.
    fn below(&self, number: u64) -> Result<Box<[u8]>> {
        let mut bytes = vec![0; usize_of(BLOCK)].into_boxed_slice();
        let from = number * BLOCK;
        let count = {
            let state = self.state.read();
            match state.blocks.contains_key(&number) {
                true => 0,
                false => state.base_len.saturating_sub(from).min(BLOCK),
            }
        };
        if count > 0 {
            self.inner().read_at(&mut bytes[..usize_of(count)], from)?;
        }
        Ok(bytes)
    }

    /// Writes `bytes` at `offset`. If the memory ends, only a first part of them is written.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.end("write", offset, bytes.len() as u64)?;
        for part in parts(offset, bytes.len()) {
            self.write_part(&part, &bytes[part.of_request.clone()])?;
        }
        Ok(())
    }

    fn write_part(&self, part: &Part, bytes: &[u8]) -> Result<()> {
        let is_whole = bytes.len() as u64 == BLOCK;
        let below = match is_whole {
            true => None,
            false => Some(self.below(part.block)?),
        };
        let mut state = self.state.write();
        let from = part.block * BLOCK;
        let base_len = state.base_len;
        match state.blocks.entry(part.block) {
            Entry::Occupied(mut entry) => match entry.get_mut() {
                Some(old) => old[part.within.clone()].copy_from_slice(bytes),
                None if is_zeros(bytes) => {}
                none => {
                    self.room.take(&self.name)?;
                    let mut block = vec![0; usize_of(BLOCK)].into_boxed_slice();
                    block[part.within.clone()].copy_from_slice(bytes);
                    *none = Some(block);
                }
            },
            Entry::Vacant(entry) => {
                let mut block = below.unwrap_or_else(|| vec![0; usize_of(BLOCK)].into());
                // The file may have been truncated since the block was read.
                let valid = base_len.saturating_sub(from).min(BLOCK);
                block[usize_of(valid)..].fill(0);
                block[part.within.clone()].copy_from_slice(bytes);
                let block = match is_zeros(&block) {
                    true => None,
                    false => {
                        self.room.take(&self.name)?;
                        Some(block)
                    }
                };
                entry.insert(block);
            }
        }
        state.len = state.len.max(from + part.within.end as u64);
        Ok(())
    }

    /// Truncates the file, or extends it by zeros.
    pub(super) fn set_len(&self, len: u64) -> Result<()> {
        let len = self.end("set the length of", 0, len)?;
        let mut state = self.state.write();
        if len < state.len {
            let cut = state.blocks.split_off(&len.div_ceil(BLOCK));
            self.room.give_back(cut.values().flatten().count());
            if let Some(Some(last)) = state.blocks.get_mut(&(len / BLOCK)) {
                last[usize_of(len % BLOCK)..].fill(0);
            }
            state.base_len = state.base_len.min(len);
        }
        state.len = len;
        Ok(())
    }

    /// Extends the file to the end of `offset .. offset + len`.
    pub(super) fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len > 0 {
            let end = self.end("allocate", offset, len)?;
            let mut state = self.state.write();
            state.len = state.len.max(end);
        }
        Ok(())
    }

    /// Makes `offset .. offset + len` zeros, as far as the file goes.
    pub(super) fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let end = self.end("punch", offset, len)?.min(self.len());
        let len = usize_of(end.saturating_sub(offset));
        for part in parts(offset, len) {
            if part.within.len() as u64 != BLOCK {
                let zeros = vec![0; part.within.len()];
                self.write_part(&part, &zeros)?;
                continue;
            }
            let mut state = self.state.write();
            if let Some(Some(_)) = state.blocks.insert(part.block, None) {
                self.room.give_back(1);
            }
        }
        Ok(())
    }
}

impl<F> Drop for Content<F> {
    fn drop(&mut self) {
        let kept = self.state.read().blocks.values().flatten().count();
        self.room.give_back(kept);
    }
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
