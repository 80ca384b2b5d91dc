//! Entries at random.

use crate::api::table::Table;
use crate::error::Result;

impl Table {
    /// The key of an entry at random; None if it came to a page without entries, which says
    /// nothing about the others ([`Table::is_empty`] does). `draw` returns a number below its
    /// argument, each with the same chance. One descent, however many entries there are. The
    /// chances of two entries differ as the fillings of their pages do, by some factors of two.
    /// Blocks for pages that are not in memory.
    ///
    /// It sees what commits have applied so far, as [`Table::len`] does, so the entry may not be
    /// durable yet.
    ///
    /// ```
    /// # fn main() -> pandodb::Result<()> {
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// let table = db.table("t")?;
    /// table.put(b"only", b"")?;
    /// let mut random = fastrand::Rng::new();
    /// let key = table.sample_key(&mut |count| random.usize(..count))?;
    /// assert_eq!(key.as_deref(), Some(&b"only"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn sample_key(&self, draw: &mut dyn FnMut(usize) -> usize) -> Result<Option<Vec<u8>>> {
        let engine = self.db.engine();
        let mut key = Vec::new();
        let found = engine.block(|_| engine.try_sample(&self.state, draw, &mut key))?;
        Ok(found.then_some(key))
    }
}
