//! The check of a transaction that has read at a snapshot: nobody may have written since what the
//! transaction depends on (decision 068).
//!
//! A key whose stripe has no later stamp than the snapshot was not written since. Otherwise the
//! versions decide: each commit after the snapshot has saved what it has replaced, as long as the
//! snapshot is registered, before it gave its stripes back. So with the stripe of a key held, the
//! answer is exact. Nothing is saved for a snapshot that goes on on disk, or that the store has
//! ended. Then a later stamp counts as a conflict, and so does every range: some conflicts are
//! none, and none is missed.
//!
//! No stripe stands for a range. A transaction that has read ranges closes the gate: nobody is
//! between the append of a record and the save of what it replaces, and nobody appends, until the
//! transaction has its LSN.

use std::ops::Bound;

use pando_format::{Lsn, TreeId};
use pando_versions::{Found, Registration, VersionScratch};

use crate::engine::Engine;
use crate::error::{ConflictKind, Error};
use crate::kept::young::Young;
use crate::tables::state::TableState;
use crate::wait::reason::Step;
use crate::writes::read_set::{ReadSet, Span};
use crate::writes::set::WriteSet;

/// With more keys than this, closing the gate costs others less than the stripes of all keys.
const SHARES_MAX: usize = 1024;

/// What the commit of one transaction checks.
#[derive(Debug)]
pub(crate) struct StateCheck<'t> {
    snapshot: &'t Young,
    /// None if only what is written counts: level Snapshot.
    reads: Option<&'t ReadSet>,
    /// Number of keys that were read; None if ranges were, too.
    keys: Option<usize>,
    /// All batches up to this LSN were applied before the first check, which has found no conflict.
    checked: Lsn,
    /// None while stamps have said enough.
    scratch: Option<Box<VersionScratch>>,
    /// What was found.
    conflict: Option<Error>,
}

impl<'t> StateCheck<'t> {
    /// Checks the reads of a serializable transaction.
    pub(crate) fn of_reads(snapshot: &'t Young, reads: &'t ReadSet) -> Self {
        Self::new(snapshot, Some(reads))
    }

    /// Checks that nobody has written what the transaction writes.
    pub(crate) fn of_writes(snapshot: &'t Young) -> Self {
        Self::new(snapshot, None)
    }

    fn new(snapshot: &'t Young, reads: Option<&'t ReadSet>) -> Self {
        Self {
            snapshot,
            reads,
            keys: reads.map_or(Some(0), ReadSet::count_of_keys),
            checked: snapshot.lsn(),
            scratch: None,
            conflict: None,
        }
    }

    /// The registration of the snapshot that the transaction has read.
    pub(crate) fn snapshot(&self) -> &'t Registration {
        self.snapshot.registration()
    }

    /// Returns whether nothing is saved for the snapshot any longer.
    fn is_alone(&self) -> bool {
        self.snapshot.registration().is_ended()
    }

    /// Returns whether the snapshot can be read no longer.
    fn is_ended(&self) -> bool {
        self.is_alone() && !self.snapshot.is_settled()
    }

    /// Takes the conflict that a check has found.
    pub(crate) fn take_conflict(&mut self) -> Option<Error> {
        self.conflict.take()
    }

    /// Returns whether stamps alone cannot tell conflicts: once its snapshot goes on on disk, or
    /// was ended, everything counts as one.
    pub(crate) fn needs_versions(&self) -> bool {
        self.reads.is_none() || self.keys.is_none()
    }

    /// Returns whether the commit cannot succeed, since its snapshot was ended.
    pub(crate) fn is_doomed(&mut self) -> bool {
        let is_doomed = self.needs_versions() && self.is_ended();
        if is_doomed {
            self.conflict = Some(Error::SnapshotEnded);
        }
        is_doomed
    }

    /// Returns whether the commit has to close the gate.
    pub(crate) fn closes_gate(&self) -> bool {
        self.keys.is_none_or(|keys| keys > SHARES_MAX)
    }

    /// Notes the stripes that `set` has to share until its record has its LSN.
    pub(crate) fn share_stripes(&self, engine: &Engine, set: &mut WriteSet) {
        set.shares.clear();
        let Some(reads) = self.reads.filter(|_| !self.closes_gate()) else {
            return;
        };
        for table in reads.tables() {
            for span in table.spans() {
                if let Span::Key(key) = span {
                    set.shares.push(engine.stripes.of(table.tree.id, key));
                }
            }
            set.shares.extend_from_slice(table.recent_stripes());
        }
        assert_eq!(
            Some(set.shares.len()),
            self.keys,
            "each key that was read is kept from others"
        );
    }

    /// Returns whether somebody has written what the transaction depends on. What it says may
    /// change until the stripes of all keys are held and, with ranges, the gate is closed; a
    /// conflict stays one.
    pub(crate) fn finds_conflict(&mut self, engine: &Engine, set: &WriteSet) -> Step<bool> {
        // What is applied now has saved what it has replaced, before anything is looked at below.
        let begun = engine.log.applied();
        self.conflict = match self.reads {
            Some(reads) => self.look_at_reads(engine, reads)?,
            None => self.look_at_writes(engine, set)?,
        };
        // The next check need not look at what this one has seen.
        self.checked = self.checked.max(begun);
        assert!(
            self.checked >= self.snapshot.lsn(),
            "what is checked begins at the snapshot"
        );
        Ok(self.conflict.is_some())
    }

    fn look_at_reads(&mut self, engine: &Engine, reads: &ReadSet) -> Step<Option<Error>> {
        for table in reads.tables() {
            let state = &*table.state;
            if state.tree() != Some(table.tree) {
                return Ok(Some(conflict(state, None, ConflictKind::Table)));
            }
            for span in table.spans() {
                let tree = table.tree.id;
                let (found, kind) = match span {
                    Span::Key(key) => (self.look_at_key(engine, (tree, key))?, ConflictKind::Read),
                    Span::Range(low, high) => (
                        self.look_at_range(engine, tree, (low, high))?,
                        ConflictKind::Range,
                    ),
                };
                if let Some(error) = error_of(found, state, kind) {
                    return Ok(Some(error));
                }
            }
            for (key, stripe) in table.recent() {
                if engine.stripes.stamp_held(stripe).lsn() <= self.checked {
                    continue;
                }
                let found = self.look_at_versions(engine, (table.tree.id, key))?;
                if let Some(error) = error_of(found, state, ConflictKind::Read) {
                    return Ok(Some(error));
                }
            }
        }
        Ok(None)
    }

    fn look_at_writes(&mut self, engine: &Engine, set: &WriteSet) -> Step<Option<Error>> {
        for (table, key, _) in set.writes() {
            let state = &*set.tables[table].state;
            let then = engine.store.tables.tree_at(state, self.snapshot.lsn());
            if self.is_ended() {
                return Ok(Some(Error::SnapshotEnded));
            }
            let Some(tree) = then.filter(|_| then == state.tree()) else {
                return Ok(Some(conflict(state, None, ConflictKind::Table)));
            };
            let found = self.look_at_key(engine, (tree.id, key))?;
            if let Some(error) = error_of(found, state, ConflictKind::Written) {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }

    /// Checks that nobody has written a key since. The key is locked, so that nobody else writes
    /// it.
    ///
    /// # Errors
    /// [`Error::Conflict`], [`Error::SnapshotEnded`].
    pub(crate) fn check_key(
        &mut self,
        engine: &Engine,
        state: &TableState,
        (tree, key): (TreeId, &[u8]),
    ) -> Step<()> {
        let then = engine.store.tables.tree_at(state, self.snapshot.lsn());
        if self.is_ended() {
            return Err(Error::SnapshotEnded.into());
        }
        if then.map(|then| then.id) != Some(tree) {
            return Err(conflict(state, None, ConflictKind::Table).into());
        }
        let found = self.look_at_key(engine, (tree, key))?;
        match error_of(found, state, ConflictKind::Written) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    fn look_at_key(&mut self, engine: &Engine, (tree, key): (TreeId, &[u8])) -> Step<Since> {
        let stripe = engine.stripes.of(tree, key);
        match engine.stripes.stamp_held(stripe).lsn() <= self.checked {
            true => Ok(Since::Unchanged),
            false => self.look_at_versions(engine, (tree, key)),
        }
    }

    /// Looks at a key whose stripe has a later stamp.
    fn look_at_versions(&mut self, engine: &Engine, (tree, key): (TreeId, &[u8])) -> Step<Since> {
        let versions = &engine.old_versions.versions;
        let found = versions.find(
            (tree, key),
            self.checked,
            self.scratch.get_or_insert_default(),
        );
        let is_unchanged = found.map(|found| matches!(found, Found::Unchanged));
        if self.is_alone() {
            return Ok(self.unknown(Some(key)));
        }
        Ok(match is_unchanged? {
            true => Since::Unchanged,
            false => Since::Written(Some(key.to_vec())),
        })
    }

    fn look_at_range(
        &mut self,
        engine: &Engine,
        tree: TreeId,
        (low, high): (&[u8], Option<&[u8]>),
    ) -> Step<Since> {
        let bounds = (
            Bound::Included(low),
            high.map_or(Bound::Unbounded, Bound::Excluded),
        );
        let versions = &engine.old_versions.versions;
        let scratch = self.scratch.get_or_insert_default();
        let found = versions.first_since(tree, bounds, self.checked, scratch);
        if self.is_alone() {
            return Ok(self.unknown(None));
        }
        let written = |key| Since::Written(Some(key));
        Ok(found?.map_or(Since::Unchanged, written))
    }

    /// Returns what the check says of a key, or of a range, for which nothing is saved any longer.
    fn unknown(&self, key: Option<&[u8]>) -> Since {
        match self.snapshot.is_settled() {
            true => Since::Written(key.map(<[u8]>::to_vec)),
            false => Since::Ended,
        }
    }
}

/// What has become of a key or a range since the snapshot.
enum Since {
    Unchanged,
    /// This key was written. A snapshot that was settled takes what it cannot know for that; of a
    /// range it names no key.
    Written(Option<Vec<u8>>),
    /// The snapshot was ended, so nobody knows.
    Ended,
}

/// Returns the error that a commit ends with for what was found of a key or a range.
fn error_of(found: Since, table: &TableState, kind: ConflictKind) -> Option<Error> {
    match found {
        Since::Unchanged => None,
        Since::Written(key) => Some(conflict(table, key, kind)),
        Since::Ended => Some(Error::SnapshotEnded),
    }
}

fn conflict(table: &TableState, key: Option<Vec<u8>>, kind: ConflictKind) -> Error {
    Error::Conflict {
        table: table.name.to_string(),
        key,
        kind,
    }
}
