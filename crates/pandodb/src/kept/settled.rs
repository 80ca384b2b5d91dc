//! What a settled snapshot reads: a kept checkpoint, and what was replaced between the snapshot and
//! the checkpoint (decision 071).
//!
//! A key has at the snapshot what the checkpoint has, unless the run has an entry of it. A leaf
//! that has not changed since the snapshot needs no look at the run.

use std::ops::Bound;

use pando_format::Lsn;
use pando_format::chunks::BlobRef;
use pando_tree::{Direction, LeafCopy, Tree, ValueReader};
use pando_versions::{BeforeImage, VersionRange};

use crate::changes::blobs::decode_blob_ref;
use crate::error::{Error, Result};
use crate::kept::cut::KeptHandle;
use crate::kept::pages::CutPages;

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
            let mut reader = ValueReader::default();
            let lookup = pages.drive(|store| tree.try_get(&store.pool, key, &mut reader, out))?;
            let mut record = Vec::new();
            if lookup.lsn_max > self.lsn
                && let Some(run) = run
                && run.find(tree.id, key, &mut record)?
            {
                return replaced(pages, tree, &record, out);
            }
            if lookup.found && lookup.chunked {
                pages.read_blob(&decode_blob_ref(out)?, out)?;
            }
            Ok(lookup.found)
        })
    }

    /// Copies the leaf of `tree` where a scan continues at `from`. Returns whether some of its keys
    /// may have had something else at the LSN: see [`Settled::collect`]. Blocks.
    ///
    /// # Errors
    /// As [`Settled::get`].
    pub(crate) fn scan_leaf(
        &self,
        tree: Tree,
        from: Bound<&[u8]>,
        direction: Direction,
        leaf: &mut LeafCopy,
    ) -> Result<bool> {
        self.cut.read(self.lsn, |pages, run| {
            pages.drive(|store| tree.try_scan_leaf(&store.pool, from, direction, leaf))?;
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

/// Reads into `out` the value that `record` says a key of `tree` had. Returns false for none.
fn replaced(pages: &CutPages, tree: Tree, record: &[u8], out: &mut Vec<u8>) -> Result<bool> {
    out.clear();
    let overflow = |header: &[u8], out: &mut Vec<u8>| {
        let mut reader = ValueReader::default();
        pages.drive(|store| tree.try_get_kept(&store.pool, header, &mut reader, out))
    };
    let blob: BlobRef = match BeforeImage::of_record(record) {
        Some(BeforeImage::Absent) => return Ok(false),
        Some(BeforeImage::Bytes(bytes)) => {
            bytes.clone_into(out);
            return Ok(true);
        }
        Some(BeforeImage::Overflow(header)) => {
            overflow(header, out)?;
            return Ok(true);
        }
        Some(BeforeImage::Chunks(bytes)) => decode_blob_ref(bytes)?,
        Some(BeforeImage::ChunksInOverflow(header)) => {
            overflow(header, out)?;
            decode_blob_ref(out)?
        }
        None => {
            let what = "a record of no known kind";
            return Err(Error::corrupt("what a snapshot still reads", what));
        }
    };
    pages.read_blob(&blob, out)?;
    Ok(true)
}
