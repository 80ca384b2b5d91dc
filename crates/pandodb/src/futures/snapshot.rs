//! Reads at a snapshot as futures.

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::futures::drive::{Driven, answer_of, drive, durable};
use crate::read::at::ReadAt;
use crate::state::read_bounds::Debt;

/// Reads `key` of `table`, as it is or as `snapshot` sees it in memory. What it owes is not paid.
/// `missed` is false until a miss of this get was counted.
pub(super) async fn read_in_memory(
    table: &Table,
    snapshot: Option<&Snapshot>,
    key: &[u8],
    missed: &mut bool,
) -> Result<(Option<Vec<u8>>, Debt)> {
    let engine = table.db.engine();
    let then = snapshot.map(Snapshot::registration);
    let (mut work, mut out) = (ReadAt::default(), Vec::new());
    let driven = drive(engine, |wanted| {
        let read = engine.try_read(then, &table.state, key, &mut work, &mut out);
        wanted.append(&mut work.reader.wanted);
        read.inspect_err(|unfinished| engine.count_miss(unfinished, missed))
    });
    if let Driven::Ended((found, debt)) = driven.await? {
        return Ok((found.then_some(out), debt));
    }
    let found = match snapshot {
        Some(snapshot) => read_with_help(snapshot, table, key).await?,
        None => table.get_async(key).await?,
    };
    Ok((found, Debt::NONE))
}

/// Has the helper read `key` at `snapshot`.
async fn read_with_help(snapshot: &Snapshot, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let registration = snapshot.register_again()?.ok_or(Error::SnapshotEnded)?;
    let (state, key) = (table.state.clone(), key.to_vec());
    let answer = table.db.engine().helper.ask(move |engine: &Engine| {
        let (mut work, mut out) = (ReadAt::default(), Vec::new());
        let found = engine.read_at(&registration, &state, &key, &mut work, &mut out)?;
        Ok(found.then_some(out))
    });
    answer_of(answer).await
}

impl Snapshot {
    /// As [`Snapshot::get`]. Never blocks.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub async fn get_async(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let engine = self.engine_of(table)?;
        if self.settled().is_none() {
            match read_in_memory(table, Some(self), key, &mut false).await {
                // It may have been settled meanwhile.
                Err(Error::SnapshotEnded) => {}
                Err(error) => return Err(error),
                Ok((found, debt)) => {
                    if let Some(lsn) = debt.lsn() {
                        durable(engine, lsn).await?;
                    }
                    return Ok(found);
                }
            }
        }
        let settled = self.settled().ok_or(Error::SnapshotEnded)?;
        let (tree, key) = (self.tree_of(table)?, key.to_vec());
        let answer = engine.helper.ask(move |engine: &Engine| {
            let mut out = Vec::new();
            let found = settled.get(tree, &key, &mut out)?;
            engine.count_get();
            Ok(found.then_some(out))
        });
        answer_of(answer).await
    }
}
