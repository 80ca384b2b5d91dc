//! Tables by their names: made, found, dropped, emptied.

use crate::api::db::Db;
use crate::api::table::Table;
use crate::error::{Error, Result};
use crate::writes::set::{TableChange, WriteSet};

impl Db {
    /// The table called `name`, created if it does not exist. Blocks.
    ///
    /// # Errors
    /// [`Error::InvalidTableName`], [`Error::Full`] when a 64th of `max_memory` is taken by tables
    /// (half a KiB each, or a whole one on many cores), or why else it cannot be created.
    pub fn table(&self, name: &str) -> Result<Table> {
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
            set.change_table(index, TableChange::Create);
            // A conflict: somebody else has created it meanwhile, and may have dropped it again.
            let _committed = self.run_job(set)?;
        }
    }

    /// The table called `name`, if it exists.
    pub fn existing_table(&self, name: &str) -> Option<Table> {
        let state = self.engine().store.tables.get(name)?;
        Some(Table {
            db: self.clone(),
            state,
        })
    }

    /// Names of all tables, sorted.
    pub fn tables(&self) -> Vec<String> {
        self.engine()
            .store
            .tables
            .all()
            .iter()
            .map(|table| table.name.to_string())
            .collect()
    }

    /// Drops a table with all that it holds, in one small write; its space comes back in the
    /// background. Handles of it answer [`Error::NoSuchTable`] from then on. Blocks.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], or why nothing can be written.
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

    /// Empties tables together, in one small write, whatever they hold. Blocks.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], or why nothing can be written.
    pub fn clear_tables(&self, tables: &[&Table]) -> Result<()> {
        let mut set = WriteSet::default();
        for table in tables {
            let index = set.table(&table.state);
            set.change_table(index, TableChange::Clear);
        }
        let committed = self.run_job(set)?;
        assert!(committed, "an emptying takes tables as they are");
        Ok(())
    }
}
