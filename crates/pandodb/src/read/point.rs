//! Point reads: a fast path for values in memory, and the slow path that continues from there.

use pando_format::TreeId;
use pando_pool::{Attempt, Marks, Restart};
use pando_stats::{Measure, Sampled, Ticker};
use pando_sync::{Arc, time};
use pando_tree::{Fate, GROUP_MAX, Lookup, Place, Tree, ValueReader};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::profile;
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::keys::Told;
use crate::writes::set::WriteSet;
use crate::writes::stripes::{Stamp, StripeUse};

impl Engine {
    /// Makes one attempt at a point read. The result is linearizable: a value from a leaf that
    /// carries the mark of a batch is returned only once all batches up to the mark are applied
    /// (decision 005). It may be shown once the debt is paid (decision 060). Never blocks.
    #[inline]
    pub(crate) fn try_get(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(bool, Debt)> {
        let copied = self.look_up(table, key, reader, out)?;
        let debt = self.check_copied(copied, key)?;
        self.store.statistics.tick(Ticker::Gets, 1);
        Ok((copied.found, debt))
    }

    /// Copies the value of `key`, and returns what must come before the copy may be shown. Fails
    /// with [`WaitReason::Chunks`] for a value in chunks.
    #[inline]
    pub(crate) fn look_up(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<Copied> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = on_tree(
            table,
            tree,
            tree.try_get(&self.store.pool, key, reader, out),
        )?;
        if lookup.chunked {
            return Err(WaitReason::Chunks.into());
        }
        Ok(Copied::of(tree.id, &lookup))
    }

    /// As [`Engine::look_up`], for no more than the first `bytes_max` bytes of a value that does
    /// not lie in its leaf. Also returns the length of the whole value, and where the key is, or
    /// belongs.
    pub(crate) fn look_up_head(
        &self,
        table: &TableState,
        (key, bytes_max): (&[u8], usize),
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(Copied, usize, Place)> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = tree.try_get_head(&self.store.pool, key, bytes_max, reader, out);
        let (lookup, len, place) = on_tree(table, tree, lookup)?;
        if lookup.chunked {
            return Err(WaitReason::Chunks.into());
        }
        Ok((Copied::of(tree.id, &lookup), len, place))
    }

    /// As [`Engine::try_get_placed`], for the beginning of a value: see [`Engine::look_up_head`].
    /// Returns the length of the whole value, if there is one.
    pub(crate) fn try_get_head(
        &self,
        table: &TableState,
        (key, bytes_max): (&[u8], usize),
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(Option<usize>, Debt, Place)> {
        let (copied, len, place) = self.look_up_head(table, (key, bytes_max), reader, out)?;
        let debt = self.check_copied(copied, key)?;
        self.count_get();
        Ok((copied.found.then_some(len), debt, place))
    }

    /// As [`Engine::try_get`], for a change of `key` that follows: also returns where it is, or
    /// belongs.
    #[inline]
    pub(crate) fn try_get_placed(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<(bool, Debt, Place)> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let lookup = tree.try_get_placed(&self.store.pool, key, reader, out);
        let (lookup, place) = on_tree(table, tree, lookup)?;
        if lookup.chunked {
            return Err(WaitReason::Chunks.into());
        }
        let debt = self.check_copied(Copied::of(tree.id, &lookup), key)?;
        self.store.statistics.tick(Ticker::Gets, 1);
        Ok((lookup.found, debt, place))
    }

    /// As [`Engine::try_get_head`] for a key whose place is `place`. Returns None, and has read
    /// nothing, if its leaf has changed since that was found, if the value is in chunks, or if a
    /// page of it is missing.
    #[inline]
    pub(crate) fn get_at(
        &self,
        table: &TableState,
        (key, bytes_max, place): (&[u8], usize, &Place),
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
    ) -> Step<Option<(Option<usize>, Debt)>> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let read = tree.get_head_at(&self.store.pool, place, (key, bytes_max), reader, out);
        let Some((lookup, len)) = read.filter(|(lookup, _)| !lookup.chunked) else {
            return Ok(None);
        };
        on_tree(table, tree, Ok(()))?;
        let debt = self.check_copied(Copied::of(tree.id, &lookup), key)?;
        self.store.statistics.tick(Ticker::Gets, 1);
        Ok(Some((lookup.found.then_some(len), debt)))
    }

    /// Returns the debt of a copy of the value of `key`, once its mark is applied.
    #[inline]
    pub(crate) fn check_copied(&self, copied: Copied, key: &[u8]) -> Step<Debt> {
        self.check_marks(copied.marks, Some((copied.tree, key)))
    }

    /// As [`Engine::look_up`], for up to [`GROUP_MAX`] keys of one tree at once: values are
    /// appended to `values`, and `fates` says what became of each key.
    pub(crate) fn look_up_group(
        &self,
        table: &TableState,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
        fates: &mut [Fate; GROUP_MAX],
    ) -> Step<TreeId> {
        let Some(tree) = table.tree() else {
            return Err(no_such_table(table));
        };
        let start = values.len();
        tree.get_group(&self.store.pool, keys, values, fates);
        match on_tree(table, tree, Ok(tree.id)) {
            Ok(tree) => Ok(tree),
            Err(restart) => {
                values.truncate(start);
                Err(restart.into())
            }
        }
    }

    /// Counts a get that has ended.
    pub(crate) fn count_get(&self) {
        self.store.statistics.tick(Ticker::Gets, 1);
    }

    /// Counts the miss of a get at its first fault; `missed` belongs to the get.
    pub(crate) fn count_miss(&self, unfinished: &Unfinished, missed: &mut bool) {
        if !*missed
            && matches!(
                unfinished,
                Unfinished::Wait(WaitReason::Restart(Restart::Fault(_)))
            )
        {
            *missed = true;
            self.store.statistics.tick(Ticker::GetsMissed, 1);
        }
    }

    /// Reads `key` into `out`, if all of it is in memory and nothing is in the way. This is the
    /// path of most gets, without anything that only the others need.
    ///
    /// # Errors
    /// What it met, if that is worth handing to [`Engine::read_on`]; otherwise None.
    #[inline]
    pub(crate) fn read_cached(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<bool, Option<Restart>> {
        let tree = table.tree().ok_or(None)?;
        let looked_up = tree.try_get_short(&self.store.pool, key, out);
        if table.tree() != Some(tree) {
            // Pages of a dropped tree mean nothing.
            return Err(None);
        }
        let lookup = looked_up.map_err(Some)?.ok_or(None)?;
        let copied = Copied::of(tree.id, &lookup);
        if !matches!(self.check_copied(copied, key), Ok(Debt::NONE)) {
            return Err(None);
        }
        self.store.statistics.tick(Ticker::Gets, 1);
        Ok(lookup.found)
    }

    /// Reads `key` into `out`; returns true if it exists. Blocks. `lend` lends the thread's reader.
    #[inline]
    pub(crate) fn read(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
        lend: impl LendReader,
    ) -> Result<bool> {
        if Sampled::Gets.is_due() {
            return self.read_timed(table, key, out, lend);
        }
        match self.read_cached(table, key, out) {
            Ok(found) => Ok(found),
            Err(met) => lend.lend(|reader| self.read_on(table, key, reader, out, SoFar::met(met))),
        }
    }

    /// As [`Engine::read`], with its time measured.
    #[cold]
    fn read_timed(
        &self,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
        lend: impl LendReader,
    ) -> Result<bool> {
        let begun = time::now();
        let found = match self.read_cached(table, key, out) {
            Ok(found) => found,
            Err(met) => {
                lend.lend(|reader| self.read_on(table, key, reader, out, SoFar::met(met)))?
            }
        };
        self.store
            .statistics
            .record_since(Measure::GetSampled, begun);
        self.profile_get(table);
        if found {
            let bytes = out.len() as u64;
            self.store.statistics.record(Measure::ValueSampled, bytes);
        }
        Ok(found)
    }

    /// As [`Engine::read`], for a read that has begun: `so_far` is what is known of it.
    #[cold]
    pub(crate) fn read_on(
        &self,
        table: &TableState,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
        so_far: SoFar,
    ) -> Result<bool> {
        let SoFar {
            mut missed,
            mut met,
        } = so_far;
        let mut copied = None;
        let found = self.block(|blocked| {
            // A copy is shown once its mark is applied, without reading again: otherwise a steady
            // stream of batches could keep a reader waiting forever.
            let looked_up = match (copied, met.take()) {
                (Some(copied), _) => Ok(copied),
                (None, Some(restart)) => Err(restart.into()),
                (None, None) => self.look_up(table, key, reader, out),
            };
            let now = match looked_up {
                Ok(copied) => copied,
                Err(Unfinished::Wait(WaitReason::Chunks)) => return Ok(None),
                Err(unfinished) => {
                    self.count_miss(&unfinished, &mut missed);
                    blocked.wanted.append(&mut reader.wanted);
                    return Err(unfinished);
                }
            };
            copied = Some(now);
            let debt = self.check_copied(now, key)?;
            self.store.statistics.tick(Ticker::Gets, 1);
            Ok(Some((now.found, debt)))
        })?;
        let Some((found, debt)) = found else {
            let found = self.read_whole(table, key, out)?;
            self.count_get();
            return Ok(found);
        };
        self.pay(debt)?;
        Ok(found)
    }

    /// Returns the tree of `key`, and the stamp of its stripe from before it is read: the commit
    /// notices whatever changes after that.
    #[inline]
    pub(crate) fn stamp_of(&self, state: &TableState, key: &[u8]) -> Step<(Tree, Stamp)> {
        let Some(tree) = state.tree() else {
            return Err(no_such_table(state));
        };
        let stripe = self.stripes.of(tree.id, key);
        match self.stripes.stamp(stripe) {
            Some(stamp) => Ok((tree, stamp)),
            None => Err(WaitReason::Stripe(stripe, StripeUse::Read).into()),
        }
    }

    /// Reads `key` for a change that depends on its value. Afterwards `set` has the stamp and the
    /// place, and nothing else, so that its commit notices changes in between, and need not look
    /// for the key again.
    pub(crate) fn try_read_stamped(
        &self,
        state: &Arc<TableState>,
        key: &[u8],
        reader: &mut ValueReader,
        out: &mut Vec<u8>,
        set: &mut WriteSet,
    ) -> Step<bool> {
        set.clear();
        let table = set.table(state);
        let (_, unwritten) = set.own_noted(table, key);
        let (tree, stamp) = self.stamp_of(state, key)?;
        let (found, debt, place) = self.try_get_placed(state, key, reader, out)?;
        set.reads.push(stamp);
        let stripe = Some((tree.id, stamp.stripe));
        set.note_read(table, key, (Told { place, stripe }, unwritten));
        set.debt.add(debt);
        Ok(found)
    }

    /// Checks whether `key` exists, for a delete that depends on it; `set` as in
    /// [`Engine::try_read_stamped`].
    pub(crate) fn try_contains_stamped(
        &self,
        state: &Arc<TableState>,
        key: &[u8],
        set: &mut WriteSet,
    ) -> Step<bool> {
        set.clear();
        let table = set.table(state);
        let (_, unwritten) = set.own_noted(table, key);
        let (tree, stamp) = self.stamp_of(state, key)?;
        let looked_up = tree.try_contains_placed(&self.store.pool, key);
        let (lookup, place) = on_tree(state, tree, looked_up)?;
        let debt = self.check_copied(Copied::of(tree.id, &lookup), key)?;
        self.store.statistics.tick(Ticker::Gets, 1);
        set.reads.push(stamp);
        let stripe = Some((tree.id, stamp.stripe));
        set.note_read(table, key, (Told { place, stripe }, unwritten));
        set.debt.add(debt);
        Ok(lookup.found)
    }

    /// Adds a get that has ended to the profile of this thread, if one is open.
    fn profile_get(&self, table: &TableState) {
        if !profile::is_open() {
            return;
        }
        let height = |tree: Tree| tree.try_height(&self.store.pool).ok();
        let levels = table.tree().and_then(height).unwrap_or(0);
        profile::note(|profile| {
            profile.add_get(levels);
        });
    }
}

/// Result of copying a value, if there is one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    /// If true, the value is in the caller's buffer.
    pub(crate) found: bool,
    /// The tree that was searched.
    pub(crate) tree: TreeId,
    /// Marks of its leaf.
    pub(crate) marks: Marks,
}

impl Copied {
    /// Describes a lookup in `tree` that has copied the value, if it found one.
    #[inline]
    pub(crate) fn of(tree: TreeId, lookup: &Lookup) -> Self {
        Self {
            found: lookup.found,
            tree,
            marks: Marks {
                lsn: lookup.lsn_max,
                multi_lsn: lookup.multi_lsn,
            },
        }
    }
}

/// State of a read that has begun.
#[derive(Debug)]
pub(crate) struct SoFar {
    /// True if its miss was counted.
    missed: bool,
    /// What it met last, not handled yet.
    met: Option<Restart>,
}

impl SoFar {
    /// Knows only whether the miss was counted.
    pub(crate) fn with_miss(missed: bool) -> Self {
        Self { missed, met: None }
    }

    fn met(met: Option<Restart>) -> Self {
        Self { missed: false, met }
    }
}

/// Lends the thread's reader to reads that turn out to need one.
pub(crate) trait LendReader {
    fn lend<R>(self, f: impl FnOnce(&mut ValueReader) -> R) -> R;
}

impl LendReader for &mut ValueReader {
    fn lend<R>(self, f: impl FnOnce(&mut ValueReader) -> R) -> R {
        f(self)
    }
}

/// Returns the result of a step on the tree that `table` had, if it still has it; otherwise a
/// conflict, since pages of a dropped tree may be freed or reused by now.
pub(crate) fn on_tree<T>(table: &TableState, tree: Tree, result: Attempt<T>) -> Attempt<T> {
    if table.tree() == Some(tree) {
        result
    } else {
        Err(Restart::Conflict)
    }
}

/// The error for a table without a tree.
pub(crate) fn no_such_table(table: &TableState) -> Unfinished {
    Error::NoSuchTable {
        name: table.name.to_string(),
    }
    .into()
}
