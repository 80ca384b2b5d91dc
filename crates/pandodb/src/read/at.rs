//! Point reads at a snapshot (decision 067).
//!
//! A leaf that was last changed at or before the LSN of the snapshot is as the snapshot sees it. If
//! it has changed since, the key's stripe may still say that this key has not: it is not locked,
//! and its stamp is not after the LSN. (Whoever changes the key has locked the stripe before, and
//! unlocks it with a later stamp. A batch that changes tables holds no stripe, but leaves its mark
//! on the leaf.) Otherwise the versions decide. Nothing is written that another core reads.

use pando_format::chunks::BlobRef;
use pando_format::{Lsn, TreeId};
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Fate, GROUP_MAX, Lookup, Tree, ValueReader};
use pando_versions::{BeforeImage, Found, Registration, VersionScratch};

use crate::changes::blobs::decode_blob_ref;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::read::point::no_such_table;
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// What a key has at a snapshot.
#[derive(Debug)]
pub(crate) enum FoundAt {
    Nothing,
    /// The value was copied.
    Value,
    /// The blob reference of a value in chunks.
    Chunks(BlobRef),
}

/// Working memory of one read at a snapshot, over all of its attempts.
#[derive(Debug, Default)]
pub(crate) struct ReadAt {
    /// Of values that the tree has; after a fault it names further pages that the read needs.
    pub(crate) reader: ValueReader,
    versions: VersionScratch,
    /// What describes a value that a version has.
    header: Vec<u8>,
    /// Reads a value that only a version names. Its pages are kept for the snapshot, and what was
    /// copied of them counts for no other one.
    kept: Option<ValueReader>,
}

impl ReadAt {
    /// Gives back buffers that are longer than `kept_bytes`.
    #[inline]
    pub(crate) fn shorten(&mut self, kept_bytes: usize) {
        self.reader.shorten(kept_bytes);
        if let Some(kept) = &mut self.kept {
            kept.shorten(kept_bytes);
        }
    }

    /// Prepares it for another snapshot.
    pub(crate) fn forget_kept(&mut self) {
        self.kept = None;
    }
}

/// What a version says of a value that it does not have itself.
enum Elsewhere {
    Overflow,
    ChunksInOverflow,
}

impl Engine {
    /// Returns whether what was copied from the leaf of `key` is what a snapshot of `lsn` sees, as
    /// far as marks and stamps can tell.
    #[inline]
    fn is_as_of(&self, lsn: Lsn, tree: TreeId, key: &[u8], lookup: &Lookup) -> bool {
        debug_assert!(
            lookup.multi_lsn <= lookup.lsn_max,
            "a leaf that is older than a batch has a part of it"
        );
        if lookup.lsn_max <= lsn {
            return true;
        }
        let stamp = self.stripes.stamp(self.stripes.of(tree, key));
        lookup.multi_lsn <= lsn && stamp.is_some_and(|stamp| stamp.lsn() <= lsn)
    }

    /// Reads `key` at `snapshot` into `out`, if its leaf and nothing else has to be read. Returns
    /// None if there is more to do.
    #[inline]
    pub(crate) fn read_cached_at(
        &self,
        snapshot: &Registration,
        table: &TableState,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        let lsn = snapshot.lsn();
        let tree = self.store.tables.tree_at(table, lsn)?;
        let lookup = tree.try_get_short(&self.store.pool, key, out);
        let lookup = lookup.ok().flatten()?;
        let is_shown = self.is_as_of(lsn, tree.id, key, &lookup)
            && self.debt_at(lsn, tree.id, key, &lookup) == Debt::NONE;
        if !is_shown || snapshot.is_ended() {
            return None;
        }
        self.store.statistics.tick(Ticker::Gets, 1);
        Some(lookup.found)
    }

    /// As [`Engine::look_up_group`], of the tree that the table had at `snapshot`. What is copied
    /// counts if [`Engine::check_copied_at`] says so.
    pub(crate) fn look_up_group_at(
        &self,
        snapshot: &Registration,
        table: &TableState,
        keys: &[&[u8]],
        values: &mut Vec<u8>,
        fates: &mut [Fate; GROUP_MAX],
    ) -> Step<TreeId> {
        let Some(tree) = self.store.tables.tree_at(table, snapshot.lsn()) else {
            let missing = match snapshot.is_ended() {
                true => Error::SnapshotEnded.into(),
                false => no_such_table(table),
            };
            return Err(missing);
        };
        tree.get_group(&self.store.pool, keys, values, fates);
        unless_ended(snapshot, Ok(tree.id))
    }

    /// Returns the debt of the value of `key` that was copied from its leaf; None if it is not what
    /// `snapshot` sees.
    pub(crate) fn check_copied_at(
        &self,
        snapshot: &Registration,
        (tree, key): (TreeId, &[u8]),
        lookup: &Lookup,
    ) -> Step<Option<Debt>> {
        let lsn = snapshot.lsn();
        let debt = self
            .is_as_of(lsn, tree, key, lookup)
            .then(|| self.debt_at(lsn, tree, key, lookup));
        // After the stamp was read.
        unless_ended(snapshot, Ok(debt))
    }

    /// Returns the debt of a value at `lsn`: that of the leaf, but not beyond the snapshot.
    #[inline]
    fn debt_at(&self, lsn: Lsn, tree: TreeId, key: &[u8], lookup: &Lookup) -> Debt {
        self.debt_until(lsn, self.debt(lookup.lsn_max, Some((tree, key))))
    }

    /// Returns what of `debt` is owed for reads at `lsn`.
    #[inline]
    pub(crate) fn debt_until(&self, lsn: Lsn, debt: Debt) -> Debt {
        let owed = debt.lsn().map(|owed| owed.min(lsn));
        Debt(owed.filter(|owed| *owed > self.log.durable()))
    }

    /// Makes one attempt to read `key` at `snapshot`. Never blocks. `work` has read at no other
    /// snapshot before, or nothing of it is kept.
    pub(crate) fn try_read_at(
        &self,
        snapshot: &Registration,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<(FoundAt, Debt)> {
        let read = self.try_look_at(snapshot, table, key, work, out);
        if snapshot.is_ended() {
            // Whatever was found, or damaged: its pages may have been freed.
            return Err(Error::SnapshotEnded.into());
        }
        read
    }

    fn try_look_at(
        &self,
        snapshot: &Registration,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<(FoundAt, Debt)> {
        let lsn = snapshot.lsn();
        let Some(tree) = self.store.tables.tree_at(table, lsn) else {
            return Err(no_such_table(table));
        };
        let lookup = tree.try_get(&self.store.pool, key, &mut work.reader, out)?;
        let debt = self.debt_at(lsn, tree.id, key, &lookup);
        let replaced = match self.is_as_of(lsn, tree.id, key, &lookup) {
            true => None,
            false => self.find_version(lsn, tree, key, work, out)?,
        };
        let found = match replaced {
            Some(found) => found,
            None if !lookup.found => FoundAt::Nothing,
            None if lookup.chunked => FoundAt::Chunks(decode_blob_ref(out)?),
            None => FoundAt::Value,
        };
        Ok((found, debt))
    }

    /// Returns what a version says of `key`; None if what the leaf has counts.
    fn find_version(
        &self,
        lsn: Lsn,
        tree: Tree,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<Option<FoundAt>> {
        let versions = &self.old_versions.versions;
        let found = versions.find((tree.id, key), lsn, &mut work.versions)?;
        let elsewhere = match found {
            Found::Unchanged => return Ok(None),
            Found::Replaced(BeforeImage::Absent) => return Ok(Some(FoundAt::Nothing)),
            Found::Replaced(BeforeImage::Bytes(bytes)) => {
                bytes.clone_into(out);
                return Ok(Some(FoundAt::Value));
            }
            Found::Replaced(BeforeImage::Chunks(bytes)) => {
                return Ok(Some(FoundAt::Chunks(decode_blob_ref(bytes)?)));
            }
            Found::Replaced(BeforeImage::Overflow(header)) => {
                header.clone_into(&mut work.header);
                Elsewhere::Overflow
            }
            Found::Replaced(BeforeImage::ChunksInOverflow(header)) => {
                header.clone_into(&mut work.header);
                Elsewhere::ChunksInOverflow
            }
        };
        let kept = work.kept.get_or_insert_default();
        let read = tree.try_get_kept(&self.store.pool, &work.header, kept, out);
        read.inspect_err(|_| work.reader.wanted.append(&mut kept.wanted))?;
        Ok(Some(match elsewhere {
            Elsewhere::Overflow => FoundAt::Value,
            Elsewhere::ChunksInOverflow => FoundAt::Chunks(decode_blob_ref(out)?),
        }))
    }

    /// Makes one attempt to read `key` into `out`, as it was `then` or as it is; true if it exists.
    /// Never blocks; `work` as for [`Engine::try_read_at`].
    ///
    /// # Errors
    /// [`WaitReason::Chunks`] for a value in chunks.
    pub(crate) fn try_read(
        &self,
        then: Option<&Registration>,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Step<(bool, Debt)> {
        let Some(then) = then else {
            return self.try_get(table, key, &mut work.reader, out);
        };
        let (found, debt) = self.try_read_at(then, table, key, work, out)?;
        let found = match found {
            FoundAt::Nothing => {
                out.clear();
                false
            }
            FoundAt::Value => true,
            FoundAt::Chunks(_) => return Err(WaitReason::Chunks.into()),
        };
        self.count_get();
        Ok((found, debt))
    }

    /// Reads `key` at `snapshot` into `out`, which is cleared first; returns true if it exists.
    /// Blocks.
    pub(crate) fn read_at(
        &self,
        snapshot: &Registration,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.look_at_snapshot(snapshot, table, key, work, out)?;
        match found {
            FoundAt::Nothing => out.clear(),
            FoundAt::Value => return Ok(true),
            FoundAt::Chunks(blob) => {
                let read = self.store.read_blob(&blob, out);
                return match snapshot.is_ended() {
                    true => Err(Error::SnapshotEnded),
                    false => read.map(|()| true),
                };
            }
        }
        Ok(false)
    }

    /// Finds `key` at `snapshot`, and pays what it owes. Blocks.
    fn look_at_snapshot(
        &self,
        snapshot: &Registration,
        table: &TableState,
        key: &[u8],
        work: &mut ReadAt,
        out: &mut Vec<u8>,
    ) -> Result<FoundAt> {
        work.forget_kept();
        let mut missed = false;
        let (found, debt) = self.block(|blocked| {
            let read = self.try_read_at(snapshot, table, key, work, out);
            if let Err(unfinished @ Unfinished::Wait(_)) = &read {
                self.count_miss(unfinished, &mut missed);
                blocked.wanted.append(&mut work.reader.wanted);
            }
            read
        })?;
        self.count_get();
        self.pay(debt)?;
        Ok(found)
    }
}

/// What a step on pages of a tree means at a snapshot that may have ended meanwhile.
pub(crate) fn unless_ended<T>(
    snapshot: &Registration,
    step: std::result::Result<T, Restart>,
) -> Step<T> {
    match step {
        Ok(done) if !snapshot.is_ended() => Ok(done),
        Err(restart) if !snapshot.is_ended() => Err(restart.into()),
        _ => Err(Error::SnapshotEnded.into()),
    }
}
