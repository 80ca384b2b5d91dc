//! Checks of values in chunks, which a commit makes before its record names them.

use pando_sync::Arc;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::writes::set::{Value, WriteSet};

impl Engine {
    /// Marks the chunks of `set` as named by a log record, which is about to be written. Nobody
    /// else can change the keys of `set` meanwhile: what the record says must be true when it is
    /// applied, now and in recovery.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for a value of another store, for one that was put before, and for
    /// one that keeps chunks which its key does not have.
    #[inline]
    pub(crate) fn name_chunks(&self, set: &WriteSet) -> Result<()> {
        match set.large().next() {
            None => Ok(()),
            Some(_) => self.name_some(set),
        }
    }

    /// As [`Engine::name_chunks`], of a set that has chunks.
    fn name_some(&self, set: &WriteSet) -> Result<()> {
        let wrong = |what: &str| Error::InvalidValue { what: what.into() };
        for (table, key, value) in set.writes() {
            let Some(Value::Chunks(value)) = value else {
                continue;
            };
            if !Arc::ptr_eq(value.staged.space(), &self.store.space) {
                return Err(wrong("was handed over to another store"));
            }
            if value.staged.is_new() {
                continue;
            }
            let tree = set.tables[table]
                .tree()
                .filter(|_| !set.changes_table(table));
            let blob = match tree {
                Some(tree) => self.store.blob_ref_of(tree, key)?,
                None => None,
            };
            if !blob.is_some_and(|blob| value.staged.fits(&blob)) {
                return Err(wrong("it keeps chunks that its key does not have"));
            }
        }
        set.name_chunks()
    }
}
