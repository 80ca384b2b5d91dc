//! Step 4 of a commit for values in chunks, shared with replay: ids for new chunks, the blob
//! reference in the leaf, garbage rows for chunks that nothing names any longer. Also step 0 of
//! recovery: taking the extents that the log names (decision 028).

use pando_format::catalogue::{GARBAGE_CHUNKS_MAX, GarbageRow, chunk_garbage_key};
use pando_format::chunks::{BlobRef, ChunkPart, ChunkRef, ChunkShape};
use pando_format::extent::EXTENT_BLOCKS_MAX;
use pando_format::log::{BatchReader, ChunkedValue, Operation};
use pando_format::lost::AsideChange;
use pando_format::{Extent, Lsn, PageId};
use pando_pool::{ApplyToken, Marks};
use pando_stats::Ticker;
use pando_tree::{LeafFill, Scratch, Tree, ValueReader};

use crate::changes::aside::is_damaged;
use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::space::reservations::IdReservation;
use crate::tables::state::GARBAGE;

/// Most pages that the garbage rows of one value dirty.
const GARBAGE_PAGES_MAX: u64 = 40;
/// Pages for rows that do not fill a page.
const GARBAGE_PAGES_LEAST: u64 = 8;

/// A value in chunks that is being put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewValue<'a> {
    /// Bytes that are stored with the key, before those of the chunks.
    pub(crate) head: &'a [u8],
    /// Bytes in all its chunks together, and in each.
    pub(crate) shape: ChunkShape,
    /// The chunks, in order.
    pub(crate) parts: &'a [ChunkPart],
    /// Reservation from which its new chunks take their ids; None in recovery, which shares ids
    /// with nobody.
    pub(crate) ids: Option<&'a IdReservation<'a>>,
}

impl Store {
    /// Returns the most pages that garbage rows dirty when `writes` values are replaced or removed.
    /// `keeps_pages`: overflow pages may have to be kept for snapshots.
    pub(crate) fn garbage_pages(&self, writes: u64, keeps_pages: bool) -> u64 {
        let chunks = match keeps_pages {
            // Overflow pages get rows, too.
            true => u64::from(self.pool.page_ids().high_water()),
            false => self.pool.chunks(),
        };
        if chunks == 0 {
            return 0;
        }
        // 4 bytes each, in pages that are at least half full.
        let of_all = chunks * 16 / self.pool.page_size().bytes() as u64;
        (writes * GARBAGE_PAGES_MAX).min(of_all + GARBAGE_PAGES_LEAST)
    }

    /// Puts a value in chunks. Returns the same as [`Store::apply`].
    pub(crate) fn apply_chunks(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        marks: Marks,
        key: &[u8],
        value: NewValue<'_>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let old = match value.parts.contains(&ChunkPart::Kept) {
            true => match self.old_blob(token, tree, key)? {
                Ok(old) => old,
                Err(error) => {
                    let change = (key, AsideChange::PutUnknown);
                    self.put_aside(token, tree, marks.lsn, change, &error, scratch)?;
                    return Ok((0, LeafFill::Enough));
                }
            },
            false => None,
        };
        let mut blob = BlobRef {
            shape: value.shape,
            chunks: Vec::with_capacity(value.parts.len()),
            head: value.head.to_vec(),
        };
        for (index, part) in value.parts.iter().enumerate() {
            let chunk = match part {
                ChunkPart::Kept => kept(old.as_ref(), value.shape, index)?,
                ChunkPart::New(new) => {
                    let stored = new.stored(value.shape, index, self.space.block_bytes());
                    let page = self.drive(|| self.pool.adopt_chunk(token, stored))?;
                    if let Some(ids) = value.ids {
                        ids.taken();
                    }
                    ChunkRef {
                        page,
                        checksum: new.checksum,
                    }
                }
            };
            blob.chunks.push(chunk);
        }
        assert_eq!(
            blob.chunks.len(),
            value.shape.count(),
            "the blob reference has all chunks of the value"
        );
        let mut bytes = Vec::new();
        blob.encode(&mut bytes);
        self.statistics.tick(Ticker::Puts, 1);
        let inserted = loop {
            let inserted = self.change(scratch, |scratch| {
                tree.try_insert_chunked(&self.pool, token, marks, key, &bytes, scratch)
            });
            let error = match inserted {
                Ok(inserted) => break inserted,
                Err(error) => error,
            };
            if self.give_page_up(token, tree, &error)? {
                let change = (key, AsideChange::PutChunks(&bytes));
                self.put_aside(token, tree, marks.lsn, change, &error, scratch)?;
                return Ok((0, LeafFill::Enough));
            }
        };
        self.end_change(token, tree, marks.lsn, Some(&blob), scratch)?;
        Ok((i64::from(!inserted.replaced), LeafFill::Enough))
    }

    /// Returns the blob reference of the current value of `key`, some of whose chunks are kept; the
    /// inner error is the damage for which it can never be read.
    fn old_blob(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        key: &[u8],
    ) -> Result<std::result::Result<Option<BlobRef>, Error>> {
        loop {
            let error = match self.blob_ref_of(tree, key) {
                Ok(blob) => return Ok(Ok(blob)),
                Err(error) => error,
            };
            if self.give_page_up(token, tree, &error)? {
                return Ok(Err(error));
            }
        }
    }

    /// Returns the blob reference of the value that `key` has in `tree`, if it is in chunks.
    /// Blocks.
    pub(crate) fn blob_ref_of(&self, tree: Tree, key: &[u8]) -> Result<Option<BlobRef>> {
        let mut reader = ValueReader::new();
        let mut bytes = Vec::new();
        let found = self.drive(|| tree.try_get(&self.pool, key, &mut reader, &mut bytes))?;
        found.chunked.then(|| decode_blob_ref(&bytes)).transpose()
    }

    /// Makes garbage rows for the chunks of the value that the last change of `scratch` has
    /// replaced or removed, except those that `new` still names. The leaf no longer names them.
    /// Returns the number of leaks: of rows that could not be made.
    pub(crate) fn enqueue_garbage(
        &self,
        token: &ApplyToken<'_>,
        lsn: Lsn,
        new: Option<&BlobRef>,
        scratch: &mut Scratch,
    ) -> Result<u64> {
        let mut leaks = 0;
        if scratch.has_kept() {
            leaks += u64::from(self.enqueue_pages(token, lsn, scratch)?);
        }
        let bytes = scratch.take_blob_ref();
        if bytes.is_empty() {
            return Ok(leaks);
        }
        let enqueued = self.enqueue_blob(token, lsn, &bytes, new, scratch);
        let leaked = is_damaged(enqueued, "chunks of a value that is gone are leaked")?;
        Ok(leaks + u64::from(leaked))
    }

    /// Makes garbage rows for the overflow pages that the last change of `scratch` has kept for
    /// snapshots. Returns true if some were leaked, since a row could not be made.
    fn enqueue_pages(
        &self,
        token: &ApplyToken<'_>,
        lsn: Lsn,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let pages = scratch.take_kept();
        // The rows are changes of their own, which leave no blob reference.
        let blob = scratch.take_blob_ref();
        let rows = pages.chunks(GARBAGE_CHUNKS_MAX);
        let enqueued = rows.map(|row| {
            let marks = Marks {
                lsn,
                multi_lsn: Lsn(0),
            };
            let key = chunk_garbage_key(lsn, row[0]);
            let value = GarbageRow::encode_pages(row);
            let done = self.apply(token, GARBAGE, marks, &key, Some(&value), scratch);
            done.map(drop)
        });
        let enqueued = enqueued.collect::<Result<()>>();
        scratch.put_back_blob_ref(blob);
        self.registry.note_garbage();
        is_damaged(
            enqueued,
            "overflow pages of a value that is gone are leaked",
        )
    }

    fn enqueue_blob(
        &self,
        token: &ApplyToken<'_>,
        lsn: Lsn,
        bytes: &[u8],
        new: Option<&BlobRef>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let old = decode_blob_ref(bytes)?;
        let is_kept = |index: usize, chunk: &ChunkRef| {
            new.is_some_and(|new| new.chunks.get(index).is_some_and(|new| new == chunk))
        };
        let dead: Vec<PageId> = old
            .chunks
            .iter()
            .enumerate()
            .filter(|(index, chunk)| !is_kept(*index, chunk))
            .map(|(_, chunk)| chunk.page)
            .collect();
        debug_assert!(
            new.is_none_or(|new| !new.chunks.iter().any(|chunk| dead.contains(&chunk.page))),
            "a chunk that is named is to be freed"
        );
        let marks = Marks {
            lsn,
            multi_lsn: Lsn(0),
        };
        for row in dead.chunks(GARBAGE_CHUNKS_MAX) {
            let key = chunk_garbage_key(lsn, row[0]);
            let value = GarbageRow::encode_chunks(row);
            self.apply(token, GARBAGE, marks, &key, Some(&value), scratch)?;
        }
        self.registry.note_garbage();
        Ok(())
    }

    /// Takes the extents that a batch of the log names. Recovery does this before anything is
    /// allocated.
    pub(crate) fn mark_extents(&self, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let damaged = |what: String| Error::corrupt(format!("log at {lsn}"), what);
        let batch = BatchReader::new(payload).map_err(|damage| damaged(damage.what))?;
        if !batch.names_extents() {
            return Ok(());
        }
        for operation in batch {
            let Operation::PutChunks { value, .. } =
                operation.map_err(|damage| damaged(damage.what))?
            else {
                continue;
            };
            for (extent, _, _) in new_extents(&value, self.space.block_bytes()) {
                self.mark_extent(extent).map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// Takes an extent that a record names, if it can be that of a chunk.
    pub(crate) fn mark_extent(&self, extent: Extent) -> std::result::Result<(), String> {
        if extent.blocks > EXTENT_BLOCKS_MAX {
            return Err(format!("names {extent:?}: longer than any chunk"));
        }
        let marked = self.space.space().mark_allocated(extent);
        marked.map_err(|overlap| format!("names {extent:?}: {overlap}"))
    }
}

/// Returns the extents that a value in a log record names, with the checksum and the number of
/// bytes of each.
pub(crate) fn new_extents(
    value: &ChunkedValue<'_>,
    block_bytes: u64,
) -> impl Iterator<Item = (Extent, u32, usize)> {
    let shape = value.shape;
    value
        .parts()
        .enumerate()
        .filter_map(move |(index, part)| match part {
            ChunkPart::Kept => None,
            ChunkPart::New(new) => {
                let extent = Extent {
                    block: new.block,
                    blocks: shape.blocks_of(index, block_bytes),
                };
                Some((extent, new.checksum, shape.bytes_of(index)))
            }
        })
}

/// Returns the old chunk that stays at `index`.
fn kept(old: Option<&BlobRef>, shape: ChunkShape, index: usize) -> Result<ChunkRef> {
    let known = old.filter(|old| {
        old.shape.chunk_bytes == shape.chunk_bytes
            && old.shape.bytes_of(index) == shape.bytes_of(index)
    });
    let chunk = known.and_then(|old| old.chunks.get(index).copied());
    chunk.ok_or_else(|| {
        Error::corrupt(
            "log",
            format!("chunk {index} of a value is to stay, and is not there"),
        )
    })
}

/// Decodes a blob reference from a leaf.
pub(crate) fn decode_blob_ref(bytes: &[u8]) -> Result<BlobRef> {
    BlobRef::decode(bytes).map_err(|damage| Error::corrupt("a leaf", damage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Db;
    use crate::space::id_turns::IdWait;
    use pando_device::{AnyDevice, MemoryDevice};
    use pando_format::chunks::NewChunk;
    use pando_format::log::BatchWriter;

    #[test]
    fn chunks_take_the_ids_that_they_were_reserved() {
        let device = AnyDevice::from(MemoryDevice::new(1 << 28));
        let options = Db::builder().max_memory(8 << 20).chunk_size(4096);
        let db = Db::open_device(options, device).unwrap();
        let table = db.table("t").unwrap();
        let engine = db.engine();
        let part = |_| {
            let run = engine.store.space.try_take_run(1, || 0).unwrap().unwrap();
            ChunkPart::New(NewChunk {
                block: run.block,
                checksum: 7,
            })
        };
        let parts: Vec<ChunkPart> = (0..3).map(part).collect();
        let try_reserve = |chunks, available: fn() -> u64| {
            let need = IdWait::default().need(chunks, false);
            engine.store.space.try_reserve_ids(&need, chunks, available)
        };
        let ids = try_reserve(3, || 3).unwrap();
        assert!(try_reserve(1, || 3).is_none());
        let value = NewValue {
            head: b"",
            shape: ChunkShape::new(3 * 4096, 4096).unwrap(),
            parts: &parts,
            ids: Some(&ids),
        };
        let marks = Marks {
            lsn: db.newest_lsn(),
            multi_lsn: Lsn(0),
        };
        let tree = table.state.tree().unwrap();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        let token = &engine.store.pool.apply_token(&guard);
        let applied =
            engine
                .store
                .apply_chunks(token, tree, marks, b"k", value, &mut Scratch::new());
        assert_eq!(applied.unwrap().0, 1);
        // The ids are no longer reserved, even before the batch has ended.
        assert!(try_reserve(3, || 3).is_some());
        drop((guard, ids));
    }

    #[test]
    fn a_record_that_names_extents_which_cannot_be_is_damage() {
        let device = AnyDevice::from(MemoryDevice::new(1 << 28));
        let options = Db::builder().max_memory(8 << 20).block_size(512);
        let db = Db::open_device(options, device).unwrap();
        let free = || db.engine().store.space.space().free_blocks();
        let before = free();
        let pages = 0..db.engine().store.pool.page_ids().high_water();
        let stored = |page| db.engine().store.pool.stored_extent(PageId(page));
        let taken = pages.filter_map(stored).next().unwrap().block;
        let mark = |bytes: u64, chunk_bytes: u32, blocks: &[u32]| {
            let part = |block: &u32| {
                ChunkPart::New(NewChunk {
                    block: *block,
                    checksum: 7,
                })
            };
            let parts: Vec<ChunkPart> = blocks.iter().map(part).collect();
            let shape = ChunkShape::new(bytes, chunk_bytes).unwrap();
            let mut record = BatchWriter::new();
            record.put_chunks(pando_format::TreeId(16), b"k", b"", shape, &parts);
            let marked = db.engine().store.mark_extents(Lsn(8), record.payload());
            marked.map_err(|error| error.to_string())
        };
        let last = db.engine().store.space.space().blocks() as u32;
        // These are the longest extent that a page word can express, and a longer one.
        let longest = 512 * EXTENT_BLOCKS_MAX;
        for (bytes, chunk_bytes, blocks, what) in [
            (
                1 << 20,
                1 << 20,
                &[last - 4096][..],
                "longer than any chunk",
            ),
            (
                u64::from(longest),
                longest,
                &[last - 255],
                "does not lie within",
            ),
            (4096, 4096, &[u32::MAX], "does not lie within"),
            (4096, 4096, &[taken], "allocated"),
        ] {
            let error = mark(bytes, chunk_bytes, blocks).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
        assert_eq!(free(), before);
        mark(u64::from(longest), longest, &[last - 256]).unwrap();
        let twice = mark(4096, 4096, &[last - 8]).unwrap_err();
        assert!(twice.contains("allocated"), "{twice}");
    }
}
