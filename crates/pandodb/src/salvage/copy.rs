//! Filling the new store: rows in batches, large values chunk by chunk, and what is lost of each
//! tree.

use std::collections::BTreeMap;

use pando_format::TreeId;
use pando_format::chunks::{BlobRef, ChunkShape};
use pando_tree::Tree;

use crate::api::batch::Batch;
use crate::api::db::Db;
use crate::api::table::Table;
use crate::api::table_options::TableOptions;
use crate::error::Result;
use crate::options::{Durability, WriteOptions};
use crate::pages::store::Store;
use crate::salvage::report::{LostRange, SalvageReport, SalvagedTable};
use crate::salvage::walk::{Gap, RowValue, Walker};

/// A batch is written when it has this many bytes,
const BATCH_BYTES: usize = 128 << 10;
/// or this many rows.
const BATCH_ROWS: usize = 512;
const QUICK: WriteOptions = WriteOptions {
    durability: Some(Durability::None),
};

/// Fills the new store.
pub(super) struct Copier<'a> {
    source: &'a Store,
    pub(super) db: &'a Db,
    /// Tables of the new store, by their trees in the old one.
    tables: BTreeMap<TreeId, Table>,
    batch: Batch,
    batch_bytes: usize,
    /// Bytes copied so far, by name of the table.
    bytes: BTreeMap<String, u64>,
    /// Ranges of keys that pages covered which cannot be read.
    gaps: BTreeMap<TreeId, Vec<Gap>>,
    /// Keys whose values are lost, and why.
    keys: BTreeMap<(TreeId, Vec<u8>), String>,
}

impl<'a> Copier<'a> {
    pub(super) fn new(source: &'a Store, db: &'a Db) -> Self {
        Self {
            source,
            db,
            tables: BTreeMap::new(),
            batch: Batch::new(),
            batch_bytes: 0,
            bytes: BTreeMap::new(),
            gaps: BTreeMap::new(),
            keys: BTreeMap::new(),
        }
    }

    /// Sends the rows of `tree` to the table called `name` from here on.
    pub(super) fn begin(&mut self, tree: TreeId, name: &str) -> Result<()> {
        let table = match self.db.existing_table(name) {
            Some(table) => table,
            None => self.db.table_with(name, TableOptions::of(tree))?,
        };
        self.tables.insert(tree, table);
        Ok(())
    }

    /// Sends the rows of a tree without a name to a table that is named after its number.
    pub(super) fn begin_nameless(&mut self, tree: TreeId) -> Result<()> {
        let mut name = format!("lost/{}", tree.number());
        while self.db.existing_table(&name).is_some() {
            name.push('+');
        }
        self.begin(tree, &name)
    }

    /// True if the rows of `tree` have a table.
    pub(super) fn knows(&self, tree: TreeId) -> bool {
        self.tables.contains_key(&tree)
    }

    /// Copies the rows of `tree` that can be read.
    pub(super) fn tree(&mut self, walker: &mut Walker<'_>, tree: Tree) -> Result<()> {
        let gaps = walker.tree(tree, &mut |key, value| self.row(tree.id, key, value))?;
        self.gaps.entry(tree.id).or_default().extend(gaps);
        Ok(())
    }

    /// Copies the leaves of a tree whose name and root are unknown.
    pub(super) fn nameless(&mut self, walker: &mut Walker<'_>, tree: TreeId) -> Result<()> {
        self.begin_nameless(tree)?;
        let why = "the catalogue's row of this tree cannot be read".to_owned();
        let gap = walker.rootless(tree, why, &mut |key, value| self.row(tree, key, value))?;
        self.gaps.entry(tree).or_default().push(gap);
        Ok(())
    }

    fn row(&mut self, tree: TreeId, key: &[u8], value: RowValue<'_>) -> Result<()> {
        match value {
            RowValue::Bytes(value) => self.put(tree, key, value),
            RowValue::Chunks(blob) => self.put_blob(tree, key, &blob),
            RowValue::Lost(why) => self.lose(tree, key, why),
        }
    }

    /// Puts a value into the table of `tree`, if there is one.
    pub(super) fn put(&mut self, tree: TreeId, key: &[u8], value: &[u8]) -> Result<()> {
        let Some(table) = self.write(tree, key, value.len())? else {
            return Ok(());
        };
        self.batch.put(&table, key, value);
        Ok(())
    }

    /// Deletes `key` from the table of `tree`, if there is one.
    pub(super) fn delete(&mut self, tree: TreeId, key: &[u8]) -> Result<()> {
        if let Some(table) = self.write(tree, key, 0)? {
            self.batch.delete(&table, key);
        }
        Ok(())
    }

    /// Puts the value in the chunks of `blob`.
    pub(super) fn put_blob(&mut self, tree: TreeId, key: &[u8], blob: &BlobRef) -> Result<()> {
        let source = self.source;
        let mut buffer = source.chunk_buffer(blob.shape);
        self.put_chunks(tree, key, &blob.head, blob.shape, |index, take| {
            source.read_chunk(blob, index, &mut buffer)?;
            take(&buffer)
        })
    }

    /// Puts a value whose chunks come from `read`. If a chunk cannot be read, the value is lost.
    pub(super) fn put_chunks(
        &mut self,
        tree: TreeId,
        key: &[u8],
        head: &[u8],
        shape: ChunkShape,
        mut read: impl FnMut(usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut writer = self.db.value_writer(shape.bytes)?;
        for index in 0..shape.count() {
            match read(index, &mut |bytes| writer.write(bytes)) {
                Ok(()) => {}
                Err(error) if error.is_corruption() => {
                    return self.lose(tree, key, error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
        let value = writer.finish_with_head(head.to_vec())?;
        let bytes = usize::try_from(value.len()).unwrap_or(usize::MAX);
        if let Some(table) = self.write(tree, key, bytes)? {
            self.batch.put_large(&table, key, value);
        }
        Ok(())
    }

    /// Notes that the value of `key` is lost, and deletes an older one, which must not take its
    /// place.
    pub(super) fn lose(&mut self, tree: TreeId, key: &[u8], why: String) -> Result<()> {
        self.delete(tree, key)?;
        self.keys.insert((tree, key.to_vec()), why);
        Ok(())
    }

    /// Prepares a write to `key` in the table of `tree`, and returns the table if there is one. An
    /// earlier loss of the key does not matter any longer.
    fn write(&mut self, tree: TreeId, key: &[u8], bytes: usize) -> Result<Option<Table>> {
        let Some(table) = self.tables.get(&tree).cloned() else {
            return Ok(None);
        };
        if !self.keys.is_empty() {
            self.keys.remove(&(tree, key.to_vec()));
        }
        // A long value gets a batch of its own: the record of a batch has a maximum length.
        let added = key.len().saturating_add(bytes);
        if self.batch_bytes.saturating_add(added) > BATCH_BYTES || self.batch.len() >= BATCH_ROWS {
            self.flush()?;
        }
        assert!(
            self.batch.len() < BATCH_ROWS,
            "a batch is written when it is full"
        );
        self.batch_bytes = self.batch_bytes.saturating_add(added);
        let sum = self.bytes.entry(table.name().to_owned()).or_default();
        *sum = sum.saturating_add(added as u64);
        Ok(Some(table))
    }

    /// Writes the batch.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.db.write(&mut self.batch, QUICK)?;
            self.batch.clear();
        }
        self.batch_bytes = 0;
        Ok(())
    }

    /// Returns the table of `tree` in the new store, after all writes so far.
    pub(super) fn table_of(&mut self, tree: TreeId) -> Result<Option<Table>> {
        self.flush()?;
        Ok(self.tables.get(&tree).cloned())
    }

    /// Drops the table of `tree`.
    pub(super) fn drop_tree(&mut self, tree: TreeId) -> Result<()> {
        if let Some(table) = self.table_of(tree)? {
            self.tables.remove(&tree);
            self.bytes.remove(table.name());
            self.db.drop_table(table.name())?;
        }
        Ok(())
    }

    /// Swaps the tables of two trees. Trees whose names are both lost stay where they are: the
    /// tables are named after them.
    pub(super) fn swap(&mut self, trees: [TreeId; 2], names: [&[u8]; 2]) -> Result<()> {
        let (Some(first), Some(second)) = (self.table_of(trees[0])?, self.table_of(trees[1])?)
        else {
            return Ok(());
        };
        if first.name().as_bytes() != names[0] && second.name().as_bytes() != names[1] {
            return Ok(());
        }
        self.db.swap_tables(&[(&first, &second)])?;
        let of = [&first, &second].map(|table| self.bytes.remove(table.name()));
        for (table, bytes) in [(&second, of[0]), (&first, of[1])] {
            if let Some(bytes) = bytes {
                self.bytes.insert(table.name().to_owned(), bytes);
            }
        }
        self.tables.insert(trees[0], second);
        self.tables.insert(trees[1], first);
        Ok(())
    }

    /// Reports what was copied and what is lost.
    pub(super) fn finish(mut self, report: &mut SalvageReport) -> Result<()> {
        self.flush()?;
        for (tree, table) in &self.tables {
            let name = table.name();
            report.tables.push(SalvagedTable {
                name: name.to_owned(),
                rows: table.len(),
                bytes: self.bytes.get(name).copied().unwrap_or(0),
            });
            for gap in self.gaps.remove(tree).unwrap_or_default() {
                report.lost.push(LostRange {
                    table: name.to_owned(),
                    from: gap.range.from,
                    to: gap.range.to,
                    found: gap.found,
                    why: gap.why,
                });
            }
        }
        assert!(self.batch.is_empty(), "rows that were not written");
        for ((tree, key), why) in self.keys {
            let Some(table) = self.tables.get(&tree) else {
                continue;
            };
            report.lost.push(LostRange {
                table: table.name().to_owned(),
                to: Some([&key[..], &[0]].concat()),
                from: key,
                found: 0,
                why,
            });
        }
        report
            .tables
            .sort_by(|one, other| one.name.cmp(&other.name));
        let place = |lost: &LostRange| (lost.table.clone(), lost.from.clone());
        report.lost.sort_by_key(place);
        Ok(())
    }
}
