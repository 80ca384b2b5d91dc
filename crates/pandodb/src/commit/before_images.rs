//! Saves what a batch replaces, as long as registered snapshots read it (decisions 067, 132).
//!
//! Step 1 reserves room: for small batches from the largest size that an old value in a leaf can
//! have, for others from the sizes that step 3 of the attempt before has found. Step 4 looks for
//! snapshots after the record is in the log, and saves before it changes the first leaf. Values
//! outside of leaves are not copied: the version has what describes them, and their pages and
//! chunks become rows of the garbage table, which wait for the snapshots.

use pando_format::Lsn;
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_sync::WaitList;
use pando_tree::{Place, Stored};
use pando_versions::{BeforeImage, Readers, Registration, VersionRoom, VersionScratch};

use crate::changes::aside::READS_MAX;
use crate::engine::Engine;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::set::WriteSet;

/// Bytes that an old value counts as whose leaf is not in memory.
const UNREAD_BYTES: u64 = 256;

/// Returns the bytes of the keys that a batch writes.
fn key_bytes(set: &WriteSet) -> u64 {
    set.writes().map(|(_, key, _)| key.len() as u64).sum()
}

/// Room for the versions of one batch.
#[derive(Debug)]
pub(crate) struct ReservedVersions<'a> {
    /// Bytes in leaves that the batch may replace.
    bytes: u64,
    // Given back before waiters are woken.
    room: Room<'a>,
    _wake: WakeWaiters<'a>,
}

/// Where the versions of a batch go.
#[derive(Debug)]
enum Room<'a> {
    Reserved {
        _frames: VersionRoom<'a>,
    },
    /// Nowhere: nobody but the transaction that commits reads at a snapshot.
    Alone,
    /// Nowhere: a large transaction ends all snapshots, with the gate closed. If it waited for the
    /// end of one, as others do, that might be its own.
    EndsOthers,
}

impl ReservedVersions<'_> {
    /// Returns whether the commit closes the gate, and ends all snapshots once it has checked what
    /// it has read.
    pub(crate) fn ends_others(&self) -> bool {
        matches!(self.room, Room::EndsOthers)
    }
}

/// Wakes commits that wait for room for versions, on drop.
#[derive(Debug)]
struct WakeWaiters<'a>(&'a WaitList);

impl Drop for WakeWaiters<'_> {
    fn drop(&mut self) {
        self.0.notify_all();
    }
}

impl Engine {
    /// Returns the most pages that the garbage rows of a batch dirty.
    pub(crate) fn garbage_pages(&self, set: &WriteSet) -> u64 {
        let keeps_pages = self.old_versions.snapshots.is_on();
        self.store.garbage_pages(set.len() as u64, keeps_pages)
    }

    /// Reserves room for the versions of what a batch replaces; None if the mode is off. `measured`
    /// is what the batch was found to replace, in bytes; None if that was not found out yet. `own`
    /// is the snapshot of the transaction that commits, and whether its check needs versions. A
    /// large transaction waits for room only if that comes without the end of a snapshot, and if
    /// its own may go on on disk meanwhile.
    pub(crate) fn reserve_versions(
        &self,
        set: &WriteSet,
        measured: Option<u64>,
        own: Option<(&Registration, bool)>,
    ) -> Step<Option<ReservedVersions<'_>>> {
        let old = &self.old_versions;
        if !old.snapshots.is_on() || self.is_unread(set) {
            return Ok(None);
        }
        let most = self.most_replaced(set);
        let frames = self.version_frames(set, most);
        let is_little = old.is_little(frames);
        let (bytes, frames) = match (is_little, measured.unwrap_or(0)) {
            (true, _) => (most, frames),
            (false, measured) => (measured, self.version_frames(set, measured)),
        };
        let own = own.filter(|_| !is_little);
        let room = match old.versions.try_reserve(frames) {
            Some(_frames) => Room::Reserved { _frames },
            None if own.is_some_and(|(own, _)| !old.snapshots.is_needed_besides(own)) => {
                Room::Alone
            }
            None if own.is_some_and(|(_, needs_versions)| {
                needs_versions || !self.awaits_settling(set, bytes)
            }) =>
            {
                Room::EndsOthers
            }
            None => return Err(WaitReason::Versions(frames).into()),
        };
        Ok(Some(ReservedVersions {
            bytes,
            room,
            _wake: WakeWaiters(&old.waiters),
        }))
    }

    /// Returns whether nobody reads what the batch replaces, though there may be snapshots: all of
    /// them, and those that begin from here on, are of a moment at which it was unreachable. Once
    /// this is so, it stays so, since the horizon never goes back.
    fn is_unread(&self, set: &WriteSet) -> bool {
        set.unread_since
            .is_some_and(|since| self.horizon() >= since)
    }

    /// Returns whether the versions of a batch, which replaces `bytes` bytes in leaves, may have
    /// room once the oldest snapshot goes on on disk, which is not that of a transaction that has
    /// just begun.
    fn awaits_settling(&self, set: &WriteSet, bytes: u64) -> bool {
        let fit = self
            .old_versions
            .fit_alone(set.len() as u64, key_bytes(set), bytes);
        fit && self.may_settle(self.horizon())
    }

    /// Returns the frames for a batch that replaces `bytes` bytes in leaves.
    fn version_frames(&self, set: &WriteSet, bytes: u64) -> u64 {
        let old = &self.old_versions;
        old.frames_for(set.len() as u64, key_bytes(set), bytes)
    }

    /// Returns the most bytes that a batch can replace in leaves.
    fn most_replaced(&self, set: &WriteSet) -> u64 {
        set.len() as u64 * self.old_versions.inline_bytes_max()
    }

    /// Returns whether the batch has to save what it replaces, as far as somebody reads it; None if
    /// it has to reserve anew, since what it has reserved is too little: `measured` says how much
    /// it replaces. The caller holds the stripes of the batch and is inside the gate, or has closed
    /// it. `own` as for [`Engine::reserve_versions`].
    #[inline]
    pub(crate) fn may_save(
        &self,
        set: &WriteSet,
        reserved: Option<&ReservedVersions<'_>>,
        own: Option<&Registration>,
        measured: &mut Option<u64>,
    ) -> Option<bool> {
        let snapshots = &self.old_versions.snapshots;
        if !snapshots.is_on() || self.is_unread(set) {
            return Some(false);
        }
        // Nothing is reserved if the first snapshot has begun since then.
        let reserved = reserved?;
        let has_room = match &reserved.room {
            // If another one begins from here on, and before the record has its LSN, what it reads
            // is saved if there is room, and else it is ended.
            Room::Alone => own.is_some_and(|own| !snapshots.is_needed_besides(own)),
            Room::EndsOthers => true,
            Room::Reserved { .. } => self.has_version_room(set, reserved, measured),
        };
        has_room.then_some(true)
    }

    /// Returns whether what is reserved suffices.
    fn has_version_room(
        &self,
        set: &WriteSet,
        reserved: &ReservedVersions<'_>,
        measured: &mut Option<u64>,
    ) -> bool {
        if reserved.bytes >= self.most_replaced(set) {
            return true;
        }
        let (mut bytes, mut old) = (0, Vec::new());
        for (table, key, _) in set.writes() {
            let Some(tree) = set.tables[table].state.tree() else {
                continue;
            };
            bytes += match tree.try_get_stored(&self.store.pool, key, &mut old) {
                Ok(_) => old.len() as u64,
                // It is read when it is saved, and counted as what values often are.
                Err(_) => UNREAD_BYTES,
            };
        }
        // At least what it was before: a page may be in memory at one attempt and not at the next.
        let bytes = bytes.max(measured.unwrap_or(0));
        *measured = Some(bytes);
        reserved.bytes >= bytes
    }

    /// Saves what the batch of `lsn`, which has been appended, is about to replace, in the order of
    /// `writes`, which say where they were found last. Returns true if somebody reads below
    /// `lsn`: then old values outside of leaves have to stay, too. The caller is inside the gate
    /// and has reserved room. Blocks for pages.
    pub(crate) fn save_versions<'w>(
        &self,
        lsn: Lsn,
        writes: impl Iterator<Item = (&'w TableState, &'w [u8], Place)>,
        scratch: &mut VersionScratch,
    ) -> bool {
        let readers = self.old_versions.snapshots.look(lsn);
        if readers.is_empty() {
            return false;
        }
        assert!(
            self.log.applied() < lsn,
            "the batch is applied, and what it replaces is gone"
        );
        let mut old = Vec::new();
        for (number, write) in (0_u32..).zip(writes) {
            if !self.save_version(&readers, number, write, &mut old, scratch) {
                tracing::warn!(%lsn, "snapshots were ended: what they read could not be saved");
                self.store.statistics.tick(Ticker::SnapshotsEnded, 1);
                self.old_versions.snapshots.end_below(lsn);
                break;
            }
        }
        true
    }

    /// Saves one value. Returns false if it cannot be read, or if there is no room: what was
    /// reserved suffices unless very many others split the leaves of versions at the same time.
    fn save_version(
        &self,
        readers: &Readers,
        number: u32,
        (table, key, place): (&TableState, &[u8], Place),
        old: &mut Vec<u8>,
        scratch: &mut VersionScratch,
    ) -> bool {
        let Some(tree) = table.tree() else {
            return true;
        };
        let pool = &self.store.pool;
        let mut read = || {
            self.store
                .drive(|| tree.try_get_stored_at(pool, &place, key, old))
        };
        // Some errors are transient, and the change tries as often.
        let tries = (1..READS_MAX).find_map(|_| read().ok());
        let image = match tries.map_or_else(read, Ok) {
            Ok(Stored::Absent) => BeforeImage::Absent,
            Ok(Stored::Value) => BeforeImage::Bytes(old),
            Ok(Stored::Overflow) => BeforeImage::Overflow(old),
            Ok(Stored::Chunks) => BeforeImage::Chunks(old),
            Ok(Stored::ChunksInOverflow) => BeforeImage::ChunksInOverflow(old),
            Err(_) => return false,
        };
        let versions = &self.old_versions.versions;
        let saved = versions.save(readers, (tree.id, key), number, image, scratch);
        debug_assert!(
            !matches!(saved, Err(Restart::Damaged(..) | Restart::Fault(_))),
            "versions are in memory"
        );
        saved.is_ok()
    }
}
