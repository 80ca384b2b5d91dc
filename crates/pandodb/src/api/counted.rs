//! Counted tables: the number of entries below a key, and the key at a number; in weighted tables,
//! of units.

use std::ops::{Bound, RangeBounds};

use pando_tree::Ranked;

use crate::api::table::Table;
use crate::error::Result;

/// Returns what is counted up to the end of a range, and what of that lies before its start.
/// Returns None for a range without entries.
pub(crate) fn ends<'k>(
    start: Bound<&'k [u8]>,
    end: Bound<&'k [u8]>,
) -> Option<(Option<Ranked<'k>>, Ranked<'k>)> {
    if let (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end)) = (start, end)
        && start > end
    {
        return None;
    }
    if let (Bound::Included(start) | Bound::Excluded(start), Bound::Excluded(end)) = (start, end)
        && start >= end
    {
        return None;
    }
    let from = match start {
        Bound::Included(key) => Some(Ranked::Below(key)),
        Bound::Excluded(key) => Some(Ranked::UpTo(key)),
        Bound::Unbounded => None,
    };
    let to = match end {
        Bound::Included(key) => Ranked::UpTo(key),
        Bound::Excluded(key) => Ranked::Below(key),
        Bound::Unbounded => Ranked::All,
    };
    Some((from, to))
}

impl Table {
    /// True if the table was created as a counted one: see [`crate::TableOptions::counted`].
    pub fn is_counted(&self) -> bool {
        self.state.tree().is_some_and(|tree| tree.id.is_counted())
    }

    /// True if the table was created as a weighted one: see [`crate::TableOptions::weighted`].
    pub fn is_weighted(&self) -> bool {
        self.state.tree().is_some_and(|tree| tree.id.is_weighted())
    }

    /// Number of entries whose keys are smaller than `key`, which need not exist; in a weighted
    /// table, the sum of their weights. One descent, however many there are. Blocks for pages that
    /// are not in memory.
    ///
    /// This and the following calls count, as [`Table::len`] does, what commits have applied so
    /// far: each entry of a batch once it is applied, and before it is durable.
    ///
    /// ```
    /// # fn main() -> pandodb::Result<()> {
    /// use pandodb::TableOptions;
    /// let db = pandodb::Db::builder().open_in_memory()?;
    /// let scores = db.table_with("scores", TableOptions::new().counted(true))?;
    /// for (score, player) in [(310_u32, "ann"), (95, "bo"), (420, "cy")] {
    ///     scores.put(&[&score.to_be_bytes()[..], player.as_bytes()].concat(), b"")?;
    /// }
    /// assert_eq!(scores.rank(&310_u32.to_be_bytes())?, 1);
    /// assert_eq!(scores.count(&100_u32.to_be_bytes()[..]..)?, 2);
    /// let middle = scores.key_at(1)?;
    /// assert_eq!(middle.as_deref().map(|key| &key[4..]), Some(&b"ann"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NotCounted`]; and as [`Table::get_into`].
    pub fn rank(&self, key: &[u8]) -> Result<u64> {
        let engine = self.db.engine();
        engine.block(|_| engine.try_rank(&self.state, Ranked::Below(key)))
    }

    /// Number of entries in `range`, or the sum of their weights, as of one moment. Two descents,
    /// however many there are. Blocks for pages that are not in memory.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn count<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Result<u64> {
        let engine = self.db.engine();
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        let (from, to) = ends(start, end).unwrap_or((None, Ranked::Below(&[])));
        engine.block(|_| engine.try_count(&self.state, from, to))
    }

    /// The key that `rank` smaller ones precede: 0 is the first; in a weighted table, the key that
    /// has the unit of this number. None if there are not so many. One descent. Entries from there
    /// on are those of [`Table::range`]. Blocks for pages that are not in memory.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn key_at(&self, rank: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.unit_at(rank)?.map(|(key, _)| key))
    }

    /// As [`Table::key_at`], with how many units of that entry lie before the one of this number: 0
    /// in tables without weights.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn unit_at(&self, number: u64) -> Result<Option<(Vec<u8>, u64)>> {
        let engine = self.db.engine();
        let mut key = Vec::new();
        let found = engine.block(|_| engine.try_key_at(&self.state, number, &mut key))?;
        Ok(found.map(|offset| (key, offset)))
    }

    /// The key that `number` keys, or units, precede that are not below `from`: 0 is the first one
    /// from there on. None if there are not so many. As of one moment, also while others write
    /// before `from`. Two descents. Blocks for pages that are not in memory.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn key_from(&self, from: &[u8], number: u64) -> Result<Option<Vec<u8>>> {
        Ok(self.unit_from(from, number)?.map(|(key, _)| key))
    }

    /// As [`Table::key_from`], with how many units of that entry lie before the one that was looked
    /// for: 0 in tables without weights.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub fn unit_from(&self, from: &[u8], number: u64) -> Result<Option<(Vec<u8>, u64)>> {
        let engine = self.db.engine();
        let mut key = Vec::new();
        let found = engine.block(|_| engine.try_key_from(&self.state, (from, number), &mut key))?;
        Ok(found.map(|offset| (key, offset)))
    }
}
