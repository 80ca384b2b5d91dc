//! Ranks of counted tables as futures.

use std::ops::RangeBounds;

use pando_tree::Ranked;

use crate::api::counted::ends;
use crate::api::table::Table;
use crate::error::Result;
use crate::futures::drive::drive_alone;

impl Table {
    /// As [`Table::rank`], as a future.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub async fn rank_async(&self, key: &[u8]) -> Result<u64> {
        let engine = self.db.engine();
        drive_alone(engine, || engine.try_rank(&self.state, Ranked::Below(key))).await
    }

    /// As [`Table::count`], as a future.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub async fn count_async<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Result<u64> {
        let engine = self.db.engine();
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        let (from, to) = ends(start, end).unwrap_or((None, Ranked::Below(&[])));
        drive_alone(engine, || engine.try_count(&self.state, from, to)).await
    }

    /// As [`Table::key_at`], as a future.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub async fn key_at_async(&self, rank: u64) -> Result<Option<Vec<u8>>> {
        let engine = self.db.engine();
        let mut key = Vec::new();
        let found = drive_alone(engine, || engine.try_key_at(&self.state, rank, &mut key)).await?;
        Ok(found.map(|_| key))
    }

    /// As [`Table::key_from`], as a future.
    ///
    /// # Errors
    /// As [`Table::rank`].
    pub async fn key_from_async(&self, from: &[u8], number: u64) -> Result<Option<Vec<u8>>> {
        let engine = self.db.engine();
        let mut key = Vec::new();
        let attempt = || engine.try_key_from(&self.state, (from, number), &mut key);
        let found = drive_alone(engine, attempt).await?;
        Ok(found.map(|_| key))
    }
}
