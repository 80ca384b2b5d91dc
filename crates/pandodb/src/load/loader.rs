//! Filling an empty table with entries in the order of their keys.

use std::collections::VecDeque;

use pando_format::PageId;
use pando_format::chunks::{BlobRef, ChunkPart, ChunkRef, blob_ref_bytes};
use pando_stats::Ticker;
use pando_tree::overflow::{fill_page, lay_out, overflow_header_bytes};
use pando_tree::{Filling, LeafFiller};

use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::load::stream::PageStream;
use crate::load::tree::{HiddenTree, Leaf, NewChunks};
use crate::streams::writer::ValueWriter;
use crate::tables::kind::TreeKind;

/// Pages and chunks that a leaf may name before it counts as full: this limits how much one apply
/// section attaches.
const NAMED_MAX: usize = 2048;

/// Fills an empty table with entries in the order of their keys; made by [`Table::loader`].
///
/// No entry is visible before [`Loader::finish`], and all of them are visible after it, even after
/// a crash. Without it, or after an error or a crash before it, the table is unchanged. Each page
/// is written once, without the log. Afterwards the pages of the table are not in memory.
///
/// ```
/// # fn main() -> pandodb::Result<()> {
/// let db = pandodb::Db::builder().open_in_memory()?;
/// let table = db.table("numbers")?;
/// let mut loader = table.loader()?;
/// for number in 0..1000_u32 {
///     loader.put(&number.to_be_bytes(), b"a value")?;
/// }
/// assert_eq!(table.len(), 0);
/// assert_eq!(loader.finish()?, 1000);
/// assert_eq!(table.len(), 1000);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing was put before `finish`"]
pub struct Loader<'a> {
    table: &'a Table,
    filler: LeafFiller,
    // Dropped before the tree: pages of the tree may have belonged to the stream.
    stream: PageStream,
    /// Leaves that are not attached to the tree yet, in order.
    leaves: VecDeque<Leaf>,
    /// None before the first page.
    tree: Option<HiddenTree>,
    /// Pages of the stream since the last leaf: those that the leaf that is being filled will name.
    pages: usize,
    /// Some of these pages that the leaf will not name: of values that failed halfway.
    lost: Vec<PageId>,
    /// Values in chunks of that leaf.
    chunks: Vec<NewChunks>,
    /// Number of pages and chunks that it names.
    named: usize,
    /// The overflow header of a long value. Reused.
    header: Vec<u8>,
    /// The blob reference of a value in chunks. Reused.
    blob: Vec<u8>,
    /// Number of entries in the leaf that is being filled.
    leaf_entries: u64,
    /// Bytes of keys and values in it.
    leaf_bytes: u64,
    /// Number of entries put so far.
    count: u64,
    /// The last key.
    last: Vec<u8>,
    /// Bytes of the longest value that is stored in pages.
    plain_bytes_max: usize,
    /// Error of every further call: all entries are lost, or all are in the table.
    failed: Option<Error>,
}

impl Loader<'_> {
    /// Puts an entry, whose key must be greater than all before it. Blocks for space, and sometimes
    /// for the device.
    ///
    /// # Errors
    /// [`Error::NotAscending`], [`Error::KeyTooLong`], [`Error::ValueTooLong`]: the load may
    /// continue without the entry. [`Error::Full`]: the call may be repeated when the disk has
    /// room. [`Error::Io`], [`Error::Poisoned`], [`Error::Closed`]: the load is lost, and every
    /// later call returns the same error.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_failed()?;
        if self.count > 0 && &self.last[..] >= key {
            return Err(Error::NotAscending { entry: self.count });
        }
        let engine = self.table.db().engine();
        engine.check_key(key)?;
        if value.len() > crate::options::VALUE_BYTES_MAX {
            return Err(Error::ValueTooLong {
                bytes: value.len(),
                limit: crate::options::VALUE_BYTES_MAX,
            });
        }
        let put = match self.filler.takes(key.len(), value.len()) {
            true if self.filler.try_push(key, Filling::Value(value)) => Ok(()),
            true => self.put_in_next(key, value),
            false if value.len() <= self.plain_bytes_max => self.put_long(key, value),
            false => self.put_large(key, value),
        };
        if let Err(error) = put {
            return Err(self.fail(error));
        }
        self.last.clear();
        self.last.extend_from_slice(key);
        self.count += 1;
        self.leaf_entries += 1;
        self.leaf_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    fn check_failed(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        if !error.is_retryable() {
            self.failed = Some(error.clone());
        }
        error
    }

    /// Puts a value that fits into a leaf, but not into the current one.
    fn put_in_next(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.end_leaf()?;
        self.push(key, Filling::Value(value));
        Ok(())
    }

    fn push(&mut self, key: &[u8], filling: Filling<'_>) {
        let pushed = self.filler.try_push(key, filling);
        assert!(pushed, "a leaf has room for what it was asked for");
    }

    /// Makes sure that the leaf has room for an entry that takes `bytes` in it and names `pages`
    /// pages or chunks. Call it before pages of the entry are written: pages in the stream belong
    /// to the leaf that ends next.
    fn make_room(&mut self, key: &[u8], bytes: usize, pages: usize) -> Result<()> {
        let is_many = self.named > 0 && self.named + pages > NAMED_MAX;
        if is_many || !self.filler.has_room(key, bytes) {
            self.end_leaf()?;
        }
        self.named += pages;
        Ok(())
    }

    /// Puts a value in overflow pages.
    fn put_long(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let page_size = self.table.db().engine().store.pool.page_size();
        let bytes = overflow_header_bytes(page_size, value.len());
        self.make_room(key, bytes, value.len() / page_size.bytes() + 1)?;
        self.write_long(value)?;
        let header = std::mem::take(&mut self.header);
        self.push(key, Filling::Overflow(&header));
        self.header = header;
        Ok(())
    }

    /// Writes the overflow pages of `value`, and its overflow header into `header`.
    fn write_long(&mut self, value: &[u8]) -> Result<()> {
        let tree = self.tree()?.id();
        let page_size = self.table.db().engine().store.pool.page_size();
        let (stream, mut ids) = (&mut self.stream, Vec::new());
        let written = lay_out(page_size, value, &mut self.header, |kind, payload| {
            let lay_out = |page: &mut [_], id| fill_page(page, id, tree, kind, payload);
            let id = stream.push(lay_out)?;
            ids.push(id);
            Ok(id)
        });
        self.pages += ids.len();
        if written.is_err() {
            // They are in the stream, and nothing will name them.
            self.lost.append(&mut ids);
        }
        written
    }

    /// Puts a value in chunks.
    fn put_large(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let engine = self.table.db().engine().clone();
        let page_size = engine.store.pool.page_size();
        let mut writer = ValueWriter::new(&engine, value.len() as u64)?;
        writer.write(value)?;
        let staged = writer.into_staged()?;
        let count = staged.shape.count();
        let blob_ref_bytes = blob_ref_bytes(staged.shape, 0);
        let is_inline = self.filler.takes(key.len(), blob_ref_bytes);
        let bytes = match is_inline {
            true => blob_ref_bytes,
            false => overflow_header_bytes(page_size, blob_ref_bytes),
        };
        self.make_room(key, bytes, count + blob_ref_bytes / page_size.bytes() + 1)?;
        let mut new = NewChunks {
            engine: self.table.db().engine().clone(),
            staged,
            ids: Vec::with_capacity(count),
        };
        for _ in 0..count {
            let id = self.stream.reserve_id()?;
            new.ids.push(id);
        }
        self.blob.clear();
        new.blob_ref().encode(&mut self.blob);
        assert_eq!(
            self.blob.len(),
            blob_ref_bytes,
            "the leaf has room for these bytes"
        );
        let blob = std::mem::take(&mut self.blob);
        if is_inline {
            self.push(key, Filling::Chunks(&blob));
        } else {
            self.write_long(&blob)?;
            let header = std::mem::take(&mut self.header);
            self.push(key, Filling::OverflowChunks(&header));
            self.header = header;
        }
        self.chunks.push(new);
        self.blob = blob;
        Ok(())
    }

    /// Returns the tree, which begins with its first page.
    fn tree(&mut self) -> Result<&mut HiddenTree> {
        let tree = match self.tree.take() {
            Some(tree) => tree,
            None => {
                let tree = self.table.state.tree();
                let kind = tree.map_or(TreeKind::Plain, |tree| TreeKind::of(tree.id));
                HiddenTree::begin(self.table.db().engine(), kind)?
            }
        };
        Ok(self.tree.insert(tree))
    }

    /// Writes the leaf that is being filled, if it has entries.
    fn end_leaf(&mut self) -> Result<()> {
        if self.filler.is_empty() {
            return Ok(());
        }
        let tree = self.tree()?.id();
        let mut separator = Vec::new();
        let filler = &mut self.filler;
        let mut records = 0;
        let page = self.stream.push(|page, id| {
            records = filler.finish(page, id, tree, &mut separator);
        })?;
        let last = self.leaves.back().map(|leaf| &leaf.separator[..]);
        assert!(
            last.is_none_or(|last| last < &separator[..]),
            "leaves ascend"
        );
        self.leaves.push_back(Leaf {
            separator,
            page,
            records,
            pages: std::mem::take(&mut self.pages) + 1,
            lost: std::mem::take(&mut self.lost),
            chunks: std::mem::take(&mut self.chunks),
        });
        self.named = 0;
        let statistics = &self.table.db().engine().store.statistics;
        statistics.tick(Ticker::Puts, std::mem::take(&mut self.leaf_entries));
        statistics.tick(Ticker::WriteBytes, std::mem::take(&mut self.leaf_bytes));
        self.attach()
    }

    /// Attaches the leaves whose pages have been written; those of a run are written together.
    fn attach(&mut self) -> Result<()> {
        let written = self.stream.written()?;
        let mut pages = written.len();
        let whole = |leaf: &&Leaf| {
            let left = pages.checked_sub(leaf.pages);
            left.map(|left| pages = left).is_some()
        };
        let count = self.leaves.iter().take_while(whole).count();
        if count == 0 {
            return Ok(());
        }
        let tree = self.tree.as_mut().expect("it begins with its first page");
        tree.attach(&mut self.leaves, written, count)
    }

    /// Makes all entries visible and durable in the table; returns their number. Blocks, for a
    /// checkpoint among others. [`Loader::try_finish`] is for those who would rather wait for room
    /// than begin anew.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if somebody else has put something into the table,
    /// [`Error::NoSuchTable`] if it was dropped; [`Error::Full`], [`Error::Io`], [`Error::Closed`]:
    /// nothing was put. [`Error::Poisoned`]: whether all or no entries were put is unknown until
    /// the store is opened again.
    pub fn finish(mut self) -> Result<u64> {
        self.try_finish()
    }

    /// As [`Loader::finish`], but keeps the load when the disk is full. Whether it is full is
    /// learned in the background: for some tenths of a second after room was made, this may still
    /// fail. A load that has finished takes nothing more.
    ///
    /// # Errors
    /// Those of [`Loader::finish`]. After [`Error::Full`] the call may be repeated, and more
    /// entries may be put before. [`Error::NotEmpty`] also if the load has finished.
    pub fn try_finish(&mut self) -> Result<u64> {
        self.check_failed()?;
        if self.count == 0 {
            return Ok(0);
        }
        if let Err(error) = self.take() {
            return Err(self.fail(error));
        }
        Ok(self.count)
    }

    /// Writes and attaches what is left, and makes the tree that of the table.
    fn take(&mut self) -> Result<()> {
        self.end_leaf()?;
        self.stream.drain()?;
        self.attach()?;
        assert!(self.leaves.is_empty(), "all pages were written");
        assert_eq!(self.leaf_entries, 0, "entries of a leaf that was not ended");
        let tree = self.tree.as_mut().expect("it begins with its first page");
        let lsn = tree.become_table(self.table.db(), &self.table.state, self.count)?;
        self.tree = None;
        self.failed = Some(Error::NotEmpty {
            name: self.table.name().to_owned(),
        });
        self.table.db().engine().wait_durable(lsn)
    }
}

impl NewChunks {
    /// Returns the blob reference of the chunks, with their ids.
    fn blob_ref(&self) -> BlobRef {
        assert!(self.staged.is_new(), "a load keeps chunks of nothing");
        assert_eq!(
            self.ids.len(),
            self.staged.parts.len(),
            "an id for each chunk"
        );
        let new = self.staged.parts.iter().filter_map(|part| match part {
            ChunkPart::New(chunk) => Some(chunk.checksum),
            ChunkPart::Kept => None,
        });
        let named = |(page, checksum): (&PageId, u32)| ChunkRef {
            page: *page,
            checksum,
        };
        BlobRef {
            shape: self.staged.shape,
            chunks: self.ids.iter().zip(new).map(named).collect(),
            head: Vec::new(),
        }
    }
}

impl Table {
    /// Begins to fill this table, which must be empty, with entries in the order of their keys. Its
    /// leaves will be full. If somebody else puts something into the table meanwhile,
    /// [`Loader::finish`] fails.
    ///
    /// # Errors
    /// [`Error::NotEmpty`].
    pub fn loader(&self) -> Result<Loader<'_>> {
        if !self.is_empty() {
            return Err(Error::NotEmpty {
                name: self.name().to_owned(),
            });
        }
        let engine = self.db().engine();
        Ok(Loader {
            table: self,
            filler: LeafFiller::new(engine.store.pool.page_size()),
            stream: PageStream::new(engine),
            leaves: VecDeque::new(),
            tree: None,
            pages: 0,
            lost: Vec::new(),
            chunks: Vec::new(),
            named: 0,
            header: Vec::new(),
            blob: Vec::new(),
            leaf_entries: 0,
            leaf_bytes: 0,
            count: 0,
            last: Vec::new(),
            plain_bytes_max: engine.plain_bytes_max(),
            failed: None,
        })
    }

    /// Puts `entries`, whose keys must ascend, into this table, which must be empty; returns their
    /// number. The form of [`Table::loader`] for an iterator. Blocks.
    ///
    /// # Errors
    /// As [`Table::loader`], [`Loader::put`] and [`Loader::finish`].
    pub fn load_sorted<K, V>(&self, entries: impl IntoIterator<Item = (K, V)>) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let mut loader = self.loader()?;
        for (key, value) in entries {
            loader.put(key.as_ref(), value.as_ref())?;
        }
        loader.finish()
    }
}
