//! What a settled snapshot reads: a kept checkpoint, and what was replaced between the snapshot and
//! the checkpoint (decision 071).
//!
//! A key has at the snapshot what the checkpoint has, unless the run has an entry of it. A leaf
//! that has not changed since the snapshot needs no look at the run.

use std::ops::Bound;

use pando_device::IoBuf;
use pando_format::Lsn;
use pando_format::chunks::BlobRef;
use pando_tree::{LeafCopy, Tree, ValueReader};
use pando_versions::{BeforeImage, VersionRange};

use crate::changes::blobs::decode_blob_ref;
use crate::error::{Error, Result};
use crate::kept::cut::KeptHandle;
use crate::kept::pages::{CutPages, KeptAhead, KeptPosition, ReadTogether};
use crate::kept::run::Run;

/// Most keys that are read at the same time.
const GROUP_MAX: usize = 32;

/// What a key was found to have.
enum KeptValue {
    Nothing,
    Copied,
    Chunks(BlobRef),
}

/// What a key was found to have, for somebody who reads chunks later.
#[derive(Debug, Clone)]
pub(crate) enum KeptFound {
    Nothing,
    /// The value was copied.
    Copied,
    Chunks(KeptBlob),
}

/// A value in chunks of a kept checkpoint, which it keeps.
#[derive(Debug, Clone)]
pub(crate) struct KeptBlob {
    pub(crate) blob: BlobRef,
    cut: KeptHandle,
}

impl KeptBlob {
    /// Reads chunk `index` and checks it; then `buffer` holds its bytes. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn read_chunk(&self, index: usize, buffer: &mut IoBuf) -> Result<()> {
        let Self { blob, cut } = self;
        cut.read(cut.lsn(), |pages, _| pages.read_chunk(blob, index, buffer))
    }
}

/// The state at one LSN, on disk.
#[derive(Debug)]
pub(crate) struct Settled {
    lsn: Lsn,
    cut: KeptHandle,
    /// The checkpoint has a run for it.
    has_run: bool,
}

impl Drop for Settled {
    fn drop(&mut self) {
        if self.has_run {
            self.cut.remove_reader(self.lsn);
        }
    }
}

impl Settled {
    /// Returns the state of a kept checkpoint.
    pub(crate) fn at_checkpoint(cut: KeptHandle) -> Self {
        let (lsn, has_run) = (cut.lsn(), false);
        Self { lsn, cut, has_run }
    }

    /// Returns the state at `lsn`, before the checkpoint, which has counted this reader of the run
    /// for it.
    pub(crate) fn before_checkpoint(lsn: Lsn, cut: KeptHandle) -> Self {
        assert!(lsn <= cut.lsn(), "a checkpoint from before the snapshot");
        let has_run = true;
        Self { lsn, cut, has_run }
    }

    /// The LSN that it shows.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// True if it can be read no longer.
    pub(crate) fn is_ended(&self) -> bool {
        self.cut.is_ended()
    }

    /// Reads `key` of `tree`, which the key's table had at the LSN, into `out`, which is cleared
    /// first. Blocks.
    ///
    /// # Errors
    /// [`Error::SnapshotEnded`]; [`Error::CorruptPage`], [`Error::Corrupt`] for damage.
    pub(crate) fn get(&self, tree: Tree, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.cut.read(self.lsn, |pages, run| {
            Ok(match self.find(pages, run, (tree, key), out)? {
                KeptValue::Nothing => {
                    out.clear();
                    false
                }
                KeptValue::Copied => true,
                KeptValue::Chunks(blob) => {
                    pages.read_blob(&blob, out)?;
                    true
                }
            })
        })
    }

    /// As [`Settled::get`], without the chunks of a value that lies in chunks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn open(&self, tree: Tree, key: &[u8], out: &mut Vec<u8>) -> Result<KeptFound> {
        let found = self.cut.read(self.lsn, |pages, run| {
            self.find(pages, run, (tree, key), out)
        })?;
        Ok(match found {
            KeptValue::Nothing => KeptFound::Nothing,
            KeptValue::Copied => KeptFound::Copied,
            KeptValue::Chunks(blob) => KeptFound::Chunks(KeptBlob {
                blob,
                cut: self.cut.clone(),
            }),
        })
    }

    /// Finds the value of a key. `out` has it if it is copied.
    fn find(
        &self,
        pages: &CutPages,
        run: Option<&Run>,
        (tree, key): (Tree, &[u8]),
        out: &mut Vec<u8>,
    ) -> Result<KeptValue> {
        let mut reader = ValueReader::default();
        let lookup = pages.drive(|store| tree.try_get(&store.pool, key, &mut reader, out))?;
        let mut record = Vec::new();
        if lookup.lsn_max > self.lsn
            && let Some(run) = run
            && run.find(tree.id, key, &mut record)?
        {
            return replaced(pages, tree, &record, out);
        }
        Ok(match lookup.found {
            false => KeptValue::Nothing,
            true if lookup.chunked => KeptValue::Chunks(decode_blob_ref(out)?),
            true => KeptValue::Copied,
        })
    }

    /// Calls `each` once for each of the keys, with its value if it has one, and with the same
    /// number. Pages that are not in memory are read at the same time. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`]; `each` may have been called for some keys then.
    pub(crate) fn get_many(
        &self,
        together: ReadTogether<'_>,
        tree: Tree,
        keys: &[(usize, &[u8])],
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let mut value = Vec::new();
        let mut left = keys;
        while !left.is_empty() {
            let texts: Vec<_> = left.iter().take(GROUP_MAX).map(|(_, key)| *key).collect();
            let group;
            (group, left) = left.split_at(self.prefetch(together, tree, &texts)?);
            for (number, key) in group {
                let found = self.get(tree, key, &mut value)?;
                each(*number, found.then_some(&value[..]));
            }
        }
        Ok(())
    }

    /// Reads the leaves of the first of `keys`, at the same time; returns how many keys these are.
    /// Some leaves may be missing all the same. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn prefetch(
        &self,
        together: ReadTogether<'_>,
        tree: Tree,
        keys: &[&[u8]],
    ) -> Result<usize> {
        self.cut.read(self.lsn, |pages, _| {
            let count = keys.len().min(pages.together_max().clamp(1, GROUP_MAX));
            pages.fetch_leaves(together, tree, &keys[..count])?;
            Ok(count)
        })
    }

    /// Copies the leaf of `tree` where a scan continues. Returns whether some of its keys may have
    /// had something else at the LSN: see [`Settled::collect`]. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn scan_leaf(
        &self,
        together: ReadTogether<'_>,
        tree: Tree,
        at: KeptPosition<'_>,
        leaf: &mut LeafCopy,
        ahead: &mut KeptAhead,
    ) -> Result<bool> {
        self.cut.read(self.lsn, |pages, run| {
            pages.scan_leaf(together, tree, at, leaf, ahead)?;
            Ok(run.is_some() && leaf.lsn_max() > self.lsn)
        })
    }

    /// Replaces `range` by what keys of `tree` within `bounds` had at the LSN, as far as the
    /// checkpoint may have something else. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn collect(
        &self,
        tree: Tree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        range: &mut VersionRange,
    ) -> Result<()> {
        self.cut.read(self.lsn, |_, run| match run {
            Some(run) => run.collect(tree.id, bounds, range),
            None => {
                range.clear();
                Ok(())
            }
        })
    }
}

/// Returns what `record` says a key of `tree` had; `out` has it if it is copied.
fn replaced(pages: &CutPages, tree: Tree, record: &[u8], out: &mut Vec<u8>) -> Result<KeptValue> {
    out.clear();
    let overflow = |header: &[u8], out: &mut Vec<u8>| {
        let mut reader = ValueReader::default();
        pages.drive(|store| tree.try_get_kept(&store.pool, header, &mut reader, out))
    };
    Ok(match BeforeImage::of_record(record) {
        Some(BeforeImage::Absent) => KeptValue::Nothing,
        Some(BeforeImage::Bytes(bytes)) => {
            bytes.clone_into(out);
            KeptValue::Copied
        }
        Some(BeforeImage::Overflow(header)) => {
            overflow(header, out)?;
            KeptValue::Copied
        }
        Some(BeforeImage::Chunks(bytes)) => KeptValue::Chunks(decode_blob_ref(bytes)?),
        Some(BeforeImage::ChunksInOverflow(header)) => {
            overflow(header, out)?;
            KeptValue::Chunks(decode_blob_ref(out)?)
        }
        None => {
            let what = "a record of no known kind";
            return Err(Error::corrupt("what a snapshot still reads", what));
        }
    })
}
