//! Tables by name: creating, finding, dropping, emptying and swapping them.

use pando_sync::Arc;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::api::table_options::TableOptions;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::read::counted::not_of_kind;
use crate::tables::kind::TreeKind;
use crate::writes::set::{TableChange, WriteSet};

impl Engine {
    /// Makes sure that the store is of this version of the format, so that what the version has may
    /// be used. Blocks for a checkpoint the first time.
    fn use_version(&self, version: u32) -> Result<()> {
        if self.store.format.has(version) {
            return Ok(());
        }
        self.check_writable()?;
        self.store.format.want(version);
        if !self.checkpoint_if_room()? {
            return Err(self.store.shortage_error());
        }
        assert!(
            self.store.format.has(version),
            "the checkpoint has written it"
        );
        Ok(())
    }
}

impl Db {
    /// Returns the table called `name`, and creates it if it does not exist. Blocks.
    ///
    /// # Errors
    /// [`Error::InvalidTableName`]; [`Error::Full`] if tables take a 64th of `max_memory` already
    /// (half a KiB each, or a whole one on many cores); or the reason why it cannot be created.
    pub fn table(&self, name: &str) -> Result<Table> {
        if let Some(table) = self.existing_table(name) {
            return Ok(table);
        }
        self.create_table(name, TableOptions::new())
    }

    /// As [`Db::table`], and creates the table as `options` say. The first counted table of a store
    /// waits for a checkpoint, and so does the first weighted one. Blocks.
    ///
    /// # Errors
    /// As [`Db::table`]; [`Error::NotCounted`] or [`Error::NotWeighted`] if the table exists and is
    /// none that `options` want, [`Error::Full`] if the disk has no room for the checkpoint.
    pub fn table_with(&self, name: &str, options: TableOptions) -> Result<Table> {
        let table = match self.existing_table(name) {
            Some(table) => table,
            None => self.create_table(name, options)?,
        };
        let is_it = match options.kind() {
            TreeKind::Plain => true,
            TreeKind::Counted => table.is_counted(),
            TreeKind::Weighted => table.is_weighted(),
        };
        match is_it {
            true => Ok(table),
            false => Err(not_of_kind(&table.state, options.kind())),
        }
    }

    fn create_table(&self, name: &str, options: TableOptions) -> Result<Table> {
        let kind = options.kind();
        let version = kind.id(0).version();
        self.engine()
            .use_version(version.expect("a version has each kind"))?;
        loop {
            if let Some(table) = self.existing_table(name) {
                return Ok(table);
            }
            if name.is_empty() || name.len() > pando_format::catalogue::TABLE_NAME_BYTES_MAX {
                return Err(Error::InvalidTableName {
                    name: name.to_owned(),
                });
            }
            let mut set = WriteSet::default();
            let state = self.engine().store.tables.absent(name);
            let index = set.table(&state);
            set.change_table(index, TableChange::Create(kind));
            // A conflict means that somebody else has created the table, and may have dropped it
            // again.
            let _committed = self.run_job(set)?;
        }
    }

    /// Returns the table called `name`, if it exists.
    pub fn existing_table(&self, name: &str) -> Option<Table> {
        let state = self.engine().store.tables.get(name)?;
        Some(Table {
            db: self.clone(),
            state,
        })
    }

    /// Checks that `table` is of this store.
    ///
    /// # Errors
    /// [`Error::OtherStore`].
    pub(crate) fn check_store(&self, table: &Table) -> Result<()> {
        match Arc::ptr_eq(table.db.engine(), self.engine()) {
            true => Ok(()),
            false => Err(Error::OtherStore),
        }
    }

    /// Returns the names of all tables, sorted.
    pub fn tables(&self) -> Vec<String> {
        self.engine()
            .store
            .tables
            .all()
            .iter()
            .map(|table| table.name.to_string())
            .collect()
    }

    /// Drops a table with all its entries, in one small write; its space is freed in the
    /// background. From then on its handles return [`Error::NoSuchTable`]. Blocks.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], or the reason why nothing can be written.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let missing = || Error::NoSuchTable {
            name: name.to_owned(),
        };
        let table = self.existing_table(name).ok_or_else(missing)?;
        let mut set = WriteSet::default();
        let index = set.table(&table.state);
        set.change_table(index, TableChange::Drop);
        let committed = self.run_job(set)?;
        assert!(committed, "a drop takes the table as it is");
        Ok(())
    }

    /// Empties all of `tables` together, in one small write, however many entries they have.
    /// Blocks.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::OtherStore`], or the reason why nothing can be written.
    pub fn clear_tables(&self, tables: &[&Table]) -> Result<()> {
        let mut set = WriteSet::default();
        for table in tables {
            self.check_store(table)?;
            let index = set.table(&table.state);
            set.change_table(index, TableChange::Clear);
        }
        let committed = self.run_job(set)?;
        assert!(committed, "an emptying takes tables as they are");
        Ok(())
    }
    /// Swaps the contents of the two tables of each pair, all pairs together, in one small write,
    /// however many entries they have. Nobody sees it in part, and it is durable before anybody
    /// sees it, unless the store's reads do not wait for that. Blocks, and keeps writers waiting
    /// for that long.
    ///
    /// Handles are handles of names: what is read or written through one from then on is what its
    /// table has got. Snapshots that are open see what was before. A transaction that has read or
    /// written one of the tables conflicts, unless it only reads; scans without a snapshot go on
    /// in the new content.
    ///
    /// ```
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// let (live, built) = (db.table("live")?, db.table("built")?);
    /// live.put(b"version", b"1")?;
    /// built.put(b"version", b"2")?;
    /// db.swap_tables(&[(&live, &built)])?;
    /// assert_eq!(live.get(b"version")?.as_deref(), Some(&b"2"[..]));
    /// # Ok::<(), pandodb::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; [`Error::OtherStore`]; [`Error::NotCounted`] or
    /// [`Error::NotWeighted`] if one table of a pair is that, and the other is not; or the reason
    /// why nothing can be written.
    ///
    /// # Panics
    /// If a table is there twice.
    pub fn swap_tables(&self, pairs: &[(&Table, &Table)]) -> Result<()> {
        let mut set = WriteSet::default();
        for (first, second) in pairs {
            self.check_store(first)?;
            self.check_store(second)?;
            let (first, second) = (set.table(&first.state), set.table(&second.state));
            set.swap_tables(first, second);
        }
        if pairs.is_empty() {
            return Ok(());
        }
        let committed = self.run_job(set)?;
        assert!(committed, "a swap takes tables as they are");
        Ok(())
    }
}
