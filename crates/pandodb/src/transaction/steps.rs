//! The calls of a transaction as steps, for callers that must not block: a step that has to wait
//! holds nothing but the transaction's snapshot and locks, says why, and is made again.

use std::collections::VecDeque;
use std::ops::Bound;

use pando_format::Lsn;
use pando_tree::ScanValue;

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::commit::scratch::CommitScratch;
use crate::error::{Error, Result};
use crate::read::at::ReadAt;
use crate::state::read_bounds::Debt;
use crate::transaction::commit::try_commit;
use crate::transaction::handle::Transaction;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::set::Value;

impl Transaction {
    /// Takes the snapshot, if this is the first read.
    pub(crate) fn try_take_snapshot(&mut self) -> Step<()> {
        if self.may_read {
            return Ok(());
        }
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => self.db.begin_snapshot()?,
        };
        let snapshot = self.snapshot.insert(snapshot);
        self.db.engine().check_applied(snapshot.lsn())?;
        self.may_read = true;
        Ok(())
    }

    /// Makes one attempt to read `key` of `table` into `out`; true if it exists. `work` is of this
    /// transaction alone.
    ///
    /// # Errors
    /// [`WaitReason::Chunks`] for a value in chunks that is stored; [`WaitReason::Settled`] if the
    /// snapshot has gone on on disk. As [`Transaction::get_into`].
    pub(crate) fn try_get(
        &mut self,
        table: &Table,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<(bool, Debt)> {
        if let Some(found) = self.get_own(table, key, out)? {
            return Ok((found, Debt::NONE));
        }
        self.try_take_snapshot()?;
        let engine = self.db.engine();
        let then = self.snapshot.as_ref().map(Snapshot::registration);
        let read = engine.try_read(then, &table.state, key, work, out);
        let (found, debt) = match self.snapshot {
            Some(_) => read.map_err(|stopped| self.why_not_read(table, stopped))?,
            None => return read,
        };
        self.note_read(table, key)?;
        Ok((found, debt))
    }

    /// Says why a read of `table` at the snapshot has stopped: as
    /// [`Transaction::of_failed_read`]; or the snapshot was settled meanwhile.
    pub(crate) fn why_not_read(&self, table: &Table, stopped: Unfinished) -> Unfinished {
        match stopped {
            Unfinished::Error(Error::SnapshotEnded) if self.is_settled() => {
                WaitReason::Settled.into()
            }
            Unfinished::Error(error) => self.of_failed_read(table, error).into(),
            Unfinished::Wait(reason) => reason.into(),
        }
    }

    /// Notes that `key` was read at the snapshot, if the transaction remembers what it reads.
    pub(crate) fn note_read(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        if let Some(snapshot) = self.snapshot.as_ref().filter(|_| self.remembers_reads()) {
            let known = match self.reads.position(&table.state) {
                Some(known) => known,
                None => {
                    let tree = snapshot.tree_of(table);
                    let tree = tree.map_err(|error| self.of_failed_read(table, error))?;
                    self.reads.table(&table.state, tree)
                }
            };
            let stripes = &self.db.engine().stripes;
            self.reads.add_key(known, key, stripes);
            self.count_reads();
        }
        Ok(())
    }

    /// Notes that all keys of `table` between two bounds were read at the snapshot, if the
    /// transaction remembers what it reads.
    pub(crate) fn note_range(
        &mut self,
        table: &Table,
        (low, high): (Bound<Vec<u8>>, Bound<Vec<u8>>),
    ) -> Result<()> {
        if let Some(snapshot) = self.snapshot.as_ref().filter(|_| self.remembers_reads()) {
            let tree = snapshot.tree_of(table);
            let tree = tree.map_err(|error| self.of_failed_read(table, error))?;
            self.reads.begin_range((&table.state, tree), low, high);
            self.reads.pass_all();
            self.reads.settle();
            self.count_reads();
        }
        Ok(())
    }

    /// Counts what it has read. If others take too much memory, it remembers it less exactly.
    pub(crate) fn count_reads(&mut self) {
        if self.count_memory(0).is_err() {
            self.reads.halve();
        }
    }

    /// Returns the transaction's own writes at `positions`, in their order: None for a key that it
    /// deletes.
    pub(crate) fn own_at(
        &self,
        positions: &VecDeque<usize>,
    ) -> impl Iterator<Item = (&[u8], Option<ScanValue<'_>>)> {
        positions.iter().map(|at| {
            let (_, key, value) = self.set.write_at(*at);
            let value = value.map(|value| match value {
                Value::Bytes(bytes) => ScanValue::Inline(bytes),
                Value::Chunks(_) => ScanValue::Long,
            });
            (key, value)
        })
    }

    /// Makes one attempt to commit. The values of its writes are short enough for pages, or in
    /// chunks. `scratch` is that of the attempts before, or was reset since the last write. Closes
    /// the gate, and waits for those inside, if it has read ranges or very many keys.
    pub(crate) fn try_commit(&mut self, scratch: &mut CommitScratch) -> Step<Option<Lsn>> {
        self.check_usable()?;
        if self.set.is_read_only() {
            return Ok(None);
        }
        self.end_reads();
        self.set.durability = self.options.write.durability;
        let parts = self.parts_of_commit();
        try_commit(parts, scratch, None)
    }
}
