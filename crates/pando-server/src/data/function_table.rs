//! The table of libraries of functions.

use pando_sync::{Arc, OnceLock};
use pandodb::{Db, Table};

/// Name of the table.
pub(crate) const NAME: &str = "functions";

/// The table `functions`, which is made when the first command asks for it. Stores without
/// functions stay as they are; one without room can be opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct FunctionTable(Arc<OnceLock<Table>>);

impl FunctionTable {
    /// Opens the table, if there is one.
    pub(crate) fn open(db: &Db) -> Self {
        let table = Self::default();
        if let Some(existing) = db.existing_table(NAME) {
            let _first = table.0.set(existing);
        }
        table
    }

    /// Makes the table if there is none. Blocks.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn make(&self, db: &Db) -> pandodb::Result<()> {
        let _others = self.0.set(db.table(NAME)?);
        Ok(())
    }

    /// Returns the table, if there is one.
    pub(crate) fn table(&self) -> Option<&Table> {
        self.0.get()
    }
}
