//! The part of `verify` that checks values in chunks. Every chunk has one owner (a blob reference,
//! or a row of the garbage table), is stored where its page word says, and matches its checksum.
//! Extents that the log names belong to nobody else, and match the record.

use pando_device::{File, IoBuf};
use pando_format::cast::usize_of;
use pando_format::checksum::crc32c;
use pando_format::chunks::CHUNK_BYTES_MAX;
use pando_format::log::{ChunkedValue, Operation};
use pando_format::{Extent, Lsn, PageId};
use pando_tree::{NodeSummary, Tree, ValueReader};

use crate::changes::blobs::{decode_blob_ref, new_extents};
use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::verify::stat::TableStat;
use crate::verify::walk::Walk;

impl<P: FnMut(u64, u64)> Walk<'_, P> {
    /// Checks the values of a leaf that are stored in chunks.
    pub(crate) fn chunked(
        &mut self,
        name: &str,
        tree: Tree,
        leaf: &NodeSummary,
        stat: &mut TableStat,
    ) {
        for index in &leaf.chunked {
            let checked = self.chunked_value(name, tree, &leaf.keys[*index], stat);
            if let Err(error) = checked {
                self.damage(leaf.page.to_string(), error.to_string());
            }
        }
    }

    fn chunked_value(
        &mut self,
        name: &str,
        tree: Tree,
        key: &[u8],
        stat: &mut TableStat,
    ) -> Result<()> {
        let store = self.store;
        let mut reader = ValueReader::new();
        let mut bytes = Vec::new();
        store.drive(|| tree.try_get(&store.pool, key, &mut reader, &mut bytes))?;
        let blob = decode_blob_ref(&bytes)?;
        let mut buffer = store.chunk_buffer(blob.shape);
        stat.large_values += 1;
        for (index, chunk) in blob.chunks.iter().enumerate() {
            if !self.own(chunk.page, name) {
                continue;
            }
            stat.chunks += 1;
            let blocks = blob.shape.blocks_of(index, store.space.block_bytes());
            stat.chunk_bytes += u64::from(blocks) * store.space.block_bytes();
            if let Err(error) = store.read_chunk(&blob, index, &mut buffer) {
                self.damage(chunk.page.to_string(), error.to_string());
            }
        }
        Ok(())
    }

    /// Notes the chunks of a row of the garbage table.
    pub(crate) fn dead_chunks(&mut self, chunks: &[PageId]) {
        for chunk in chunks {
            if self.own(*chunk, "garbage table") && self.store.pool.chunk(*chunk).is_none() {
                self.damage(chunk.to_string(), "is to be freed as a chunk, and is none");
            }
        }
    }
}

impl<P: FnMut(u64, u64)> Walk<'_, P> {
    /// Notes the overflow pages of a row of the garbage table.
    pub(crate) fn dead_pages(&mut self, pages: &[PageId]) {
        for page in pages {
            let is_page = self.store.pool.is_used(*page) && self.store.pool.chunk(*page).is_none();
            if self.own(*page, "garbage table") && !is_page {
                self.damage(page.to_string(), "is to be freed as a page, and is none");
            }
        }
    }
}

/// Checks the extents that an operation of the log names, and marks them as allocated.
pub(crate) fn check_extents(store: &Store, lsn: Lsn, operation: &Operation<'_>) -> Result<()> {
    let Operation::PutChunks { value, .. } = operation else {
        return Ok(());
    };
    check_value(store, value).map_err(|what| Error::corrupt(format!("log at {lsn}"), what))
}

fn check_value(store: &Store, value: &ChunkedValue<'_>) -> std::result::Result<(), String> {
    let mut buffer = IoBuf::new(CHUNK_BYTES_MAX as usize);
    for (extent, checksum, bytes) in new_extents(value, store.space.block_bytes()) {
        store.mark_extent(extent)?;
        let actual = checksum_of(store, extent, bytes, &mut buffer)
            .map_err(|error| format!("reading {extent:?}: {error}"))?;
        if actual != checksum {
            return Err(format!(
                "chunk at {extent:?}: checksum: expected {checksum:#010x}, actual {actual:#010x}"
            ));
        }
    }
    Ok(())
}

fn checksum_of(
    store: &Store,
    extent: Extent,
    bytes: usize,
    buffer: &mut IoBuf,
) -> pando_device::Result<u32> {
    let block_bytes = store.space.block_bytes();
    buffer.set_len(usize_of(u64::from(extent.blocks) * block_bytes));
    store
        .data
        .read_at(buffer, u64::from(extent.block) * block_bytes)?;
    Ok(crc32c(&buffer[..bytes]))
}
