//! Changes after the checkpoint's trees, applied to the new store by key: writes that were put
//! aside, oldest first, then the log, batch by batch, as far as it can be read.

use pando_device::IoBuf;
use pando_format::chunks::{CHUNK_BYTES_MAX, ChunkPart};
use pando_format::log::{BatchReader, ChunkedValue, Operation};
use pando_format::lost::{AsideChange, AsideWrite};
use pando_format::{Extent, Lsn, TreeId};
use pando_tree::Tree;

use crate::changes::blobs::decode_blob_ref;
use crate::changes::logged::{check_operation, check_write};
use crate::error::{Error, Result};
use crate::recovery::open::log_behind;
use crate::salvage::copy::Copier;
use crate::salvage::names::Aside;
use crate::salvage::report::SalvageReport;
use crate::salvage::source::DamagedStore;
use crate::salvage::walk::Walker;
use crate::streams::stream::ValueStream;
use crate::verify::walk::Damage;

/// Applies changes to the new store.
pub(super) struct Changes<'a, 'c, 'w> {
    copier: &'a mut Copier<'c>,
    walker: &'a mut Walker<'w>,
    /// All names of tables are known: a tree without a name was dropped.
    names_are_whole: bool,
}

impl<'a, 'c, 'w> Changes<'a, 'c, 'w> {
    pub(super) fn new(
        copier: &'a mut Copier<'c>,
        walker: &'a mut Walker<'w>,
        names_are_whole: bool,
    ) -> Self {
        Self {
            copier,
            walker,
            names_are_whole,
        }
    }

    /// Applies writes that were put aside; returns their number.
    pub(super) fn aside(&mut self, writes: &[Aside], report: &mut SalvageReport) -> Result<u64> {
        let mut count = 0;
        let page_size = self.copier.db.engine().store.pool.page_size();
        for Aside { lsn, number, bytes } in writes {
            let write = AsideWrite::decode(bytes);
            let checked = write.and_then(|write| {
                let value_bytes = match write.change {
                    AsideChange::Put(value) => value.len(),
                    _ => 0,
                };
                check_write(page_size, write.key, value_bytes).map(|()| write)
            });
            match checked {
                Ok(write) => count += u64::from(self.aside_write(&write)?),
                Err(damage) => report.unbounded.push(Damage {
                    place: format!("write {number} of the batch at {lsn}"),
                    what: damage.what,
                }),
            }
        }
        Ok(count)
    }

    /// Applies one such write; returns false if its table does not exist.
    fn aside_write(&mut self, write: &AsideWrite<'_>) -> Result<bool> {
        let AsideWrite { tree, key, change } = *write;
        if !self.copier.knows(tree) {
            if self.names_are_whole {
                return Ok(false);
            }
            self.copier.begin_nameless(tree)?;
        }
        match change {
            AsideChange::Put(value) => self.copier.put(tree, key, value)?,
            AsideChange::Delete => self.copier.delete(tree, key)?,
            AsideChange::PutChunks(blob) => match decode_blob_ref(blob) {
                Ok(blob) => self.copier.put_blob(tree, key, &blob)?,
                Err(error) => self.copier.lose(tree, key, error.to_string())?,
            },
            AsideChange::PutUnknown => {
                let why = "a write to it was put aside whose chunks are not known".to_owned();
                self.copier.lose(tree, key, why)?;
            }
        }
        Ok(true)
    }

    /// Applies the log after the checkpoint; returns the number of batches.
    pub(super) fn log(&mut self, source: &DamagedStore, report: &mut SalvageReport) -> Result<u64> {
        let how = log_behind(&source.superblock);
        let (mut batches, mut stopped, mut last) = (0, None, how.from);
        let read = pando_wal::replay(&source.store.device, &how, |lsn, payload| {
            assert!(lsn > last, "{lsn} is applied after {last}");
            last = lsn;
            match self.batch(source, lsn, payload) {
                Ok(()) => batches += 1,
                Err(error) => {
                    stopped = Some(error.clone());
                    return Err(error);
                }
            }
            Ok::<(), Error>(())
        });
        match (read, stopped) {
            (Ok(_), _) => {}
            // The new store failed, not the log.
            (Err(error), Some(_)) if !error.is_corruption() => return Err(error),
            (Err(error), _) => report.unbounded.push(Damage {
                place: "log".to_owned(),
                what: format!("{error}; batches from there on are missing"),
            }),
        }
        Ok(batches)
    }

    fn batch(&mut self, source: &DamagedStore, lsn: Lsn, payload: &[u8]) -> Result<()> {
        let damaged =
            |damage: pando_format::Damage| Error::corrupt(format!("log at {lsn}"), damage);
        // Decode the whole batch first: it is applied as a whole or not at all.
        let operations: std::result::Result<Vec<Operation<'_>>, _> =
            BatchReader::new(payload).map_err(damaged)?.collect();
        let operations = operations.map_err(damaged)?;
        let page_size = source.store.pool.page_size();
        operations
            .iter()
            .try_for_each(|operation| check_operation(page_size, operation))
            .map_err(damaged)?;
        for operation in operations {
            self.operation(source, lsn, operation)?;
        }
        Ok(())
    }

    fn operation(
        &mut self,
        source: &DamagedStore,
        lsn: Lsn,
        operation: Operation<'_>,
    ) -> Result<()> {
        match operation {
            Operation::Put { tree, key, value } => {
                self.name(tree)?;
                self.copier.put(tree, key, value)
            }
            Operation::Delete { tree, key } => {
                self.name(tree)?;
                self.copier.delete(tree, key)
            }
            Operation::PutChunks { tree, key, value } => {
                self.name(tree)?;
                self.put_chunks(source, tree, key, &value)
            }
            Operation::CreateTable { name, tree } => self.table(lsn, name, None, tree),
            Operation::DropTable { tree, .. } => self.copier.drop_tree(tree),
            Operation::ReplaceTable {
                name,
                old_tree,
                new_tree,
            } => self.table(lsn, name, Some(old_tree), new_tree),
            Operation::TakeTree {
                name,
                old_tree,
                new_tree,
                root,
                ..
            } => {
                self.table(lsn, name, Some(old_tree), new_tree)?;
                let tree = Tree { id: new_tree, root };
                self.copier.tree(self.walker, tree)
            }
            Operation::SwapTables {
                first,
                first_tree,
                second,
                second_tree,
            } => {
                self.name(first_tree)?;
                self.name(second_tree)?;
                let trees = [first_tree, second_tree];
                self.copier.swap(trees, [first, second])
            }
        }
    }

    /// Makes sure that there is a table for rows of `tree`; if there is none, its name is lost.
    fn name(&mut self, tree: TreeId) -> Result<()> {
        match self.copier.knows(tree) {
            true => Ok(()),
            false => self.copier.begin_nameless(tree),
        }
    }

    /// Gives the table called `name` the empty tree `new`, in place of `old`.
    fn table(&mut self, lsn: Lsn, name: &[u8], old: Option<TreeId>, new: TreeId) -> Result<()> {
        let name = str::from_utf8(name).map_err(|_| {
            Error::corrupt(format!("log at {lsn}"), "a table name that is not UTF-8")
        })?;
        if let Some(old) = old {
            self.copier.drop_tree(old)?;
        }
        self.copier.begin(new, name)
    }

    fn put_chunks(
        &mut self,
        source: &DamagedStore,
        tree: TreeId,
        key: &[u8],
        value: &ChunkedValue<'_>,
    ) -> Result<()> {
        let parts: Vec<ChunkPart> = value.parts().collect();
        let mut old = match parts.contains(&ChunkPart::Kept) {
            true => Some(self.old_value(tree, key)?),
            false => None,
        };
        let (shape, block_bytes) = (value.shape, source.store.space.block_bytes());
        let store = &source.store;
        let mut buffer = IoBuf::new(CHUNK_BYTES_MAX as usize);
        self.copier
            .put_chunks(tree, key, value.head, shape, |index, take| {
                let bytes = shape.bytes_of(index);
                match parts[index] {
                    ChunkPart::New(new) => {
                        let extent = Extent {
                            block: new.block,
                            blocks: shape.blocks_of(index, block_bytes),
                        };
                        let read = store.read_extent(extent, bytes, new.checksum, &mut buffer);
                        read.map_err(|what| Error::corrupt(format!("chunk at {extent:?}"), what))?;
                    }
                    ChunkPart::Kept => {
                        buffer.set_len(bytes);
                        let start = index as u64 * u64::from(shape.chunk_bytes);
                        let old = old.as_mut().and_then(Option::as_mut);
                        read_kept(old, start, &mut buffer)?;
                    }
                }
                take(&buffer)
            })
    }

    /// Returns the value of `key` in the new store, if it is stored in chunks.
    fn old_value(&mut self, tree: TreeId, key: &[u8]) -> Result<Option<ValueStream>> {
        let Some(table) = self.copier.table_of(tree)? else {
            return Ok(None);
        };
        let value = table.get_reader(key)?;
        Ok(value.filter(ValueStream::is_chunked))
    }
}

/// Reads bytes that the new value keeps from the old one: from `start` on, counted after its head.
fn read_kept(old: Option<&mut ValueStream>, start: u64, buffer: &mut IoBuf) -> Result<()> {
    let lost = || Error::corrupt("log", "keeps a part of a value that is lost");
    let old = old.ok_or_else(lost)?;
    let (mut done, begin) = (0, old.head().len() as u64 + start);
    while done < buffer.len() {
        match old.read_at(begin + done as u64, &mut buffer[done..])? {
            0 => return Err(lost()),
            count => done += count,
        }
    }
    Ok(())
}
