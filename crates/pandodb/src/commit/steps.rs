//! Commit: reservations, stripe locks, gate, log, pages, stamps, in this order.
//!
//! 1. Reserve log bytes, blocks and room for dirty frames; find the leaves and pin them, unless
//!    they are few, all in memory, and nothing blocks until they are used.
//! 2. Take exclusive locks on the stripes of the written keys, and shared locks on the stripes of
//!    the keys that were read.
//! 3. Enter the gate; check that nobody has locked the keys (`key_locks`), and that the tables and
//!    all values read are unchanged; append the record.
//!    From then on others may overwrite what was read.
//! 4. Save what registered snapshots still read of what the batch replaces (decision 067), and
//!    apply the record, leaf by leaf.
//! 5. Stamp the stripes, mark the LSN applied, leave the gate, unlock (decision 006).
//!
//! Up to the append the steps do not block: an attempt that cannot continue gives everything back,
//! and the commit starts again once it can get what it lacked. There are two exceptions. For a
//! value that keeps chunks of an old one, step 3 reads the blob reference of the old one, whose
//! overflow pages may have left memory. And a transaction that has read ranges closes the gate,
//! before it takes its stripes, and waits for those inside.
//!
//! Step 4 may wait for a page, a frame or an image buffer, but for nothing that anybody
//! inside the gate holds. Nothing is undone after the append: an error poisons the engine.

use pando_format::cast::{i64_of_len, usize_of};
use pando_format::log::RecordKind;
use pando_format::{Lsn, PageId};
use pando_pool::{ApplyToken, Marks, Restart, StepShare};
use pando_stats::{Measure, Sampled, Ticker};
use pando_sync::Arc;
use pando_sync::gate::Closed;
use pando_sync::held::{Kind, assert_none};
use pando_sync::time::{self, Instant};
use pando_tree::{LeafFill, Place, Run, Scratch, Tree};
use pando_versions::{Registration, VersionScratch};
use pando_wal::LogReservation;

use crate::changes::blobs::NewValue;
use crate::commit::before_images::ReservedVersions;
use crate::commit::check::Check;
use crate::commit::entered::Entered;
use crate::commit::key_locks::CommitLocks;
use crate::commit::leaf_checks::leaves_of;
use crate::commit::leaf_pins::LeafPins;
use crate::commit::outcome::Outcome;
use crate::commit::pages::COUNTED_FROM;
use crate::commit::scratch::CommitScratch;
use crate::commit::second_look::{SecondLook, Seen};
use crate::commit::state_check::StateCheck;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::profile::{CommitStep, Steps};
use crate::space::reservations::{BlockReservation, IdReservation};
use crate::tables::state::TableState;
use crate::wait::reason::{Step, WaitReason};
use crate::writes::set::{Value, WriteSet};
use crate::writes::stripes::{Locked, NotTaken, Wanted};

/// Leaves of at most as many writes are not pinned, if all are in memory: they are used within some
/// hundred microseconds.
const UNPINNED_MAX: usize = 256;
/// Nor are those of more than one of so many frames: in a small pool the clock hand comes sooner.
const UNPINNED_SHARE: usize = 64;

/// Returns true if the write after the one at `at` may go into the same leaf.
fn lie_together(places: &[Place], at: usize) -> bool {
    let page = |place: &Place| place.finger().page();
    places.get(at + 1).is_none_or(|next| {
        page(next) == PageId::NONE || places.get(at).is_some_and(|own| page(own) == page(next))
    })
}

/// Puts in the order of their keys: the table and the entry of the first one, and where those after
/// it are in the set.
type PutRun<'s> = (usize, (&'s [u8], &'s [u8]), &'s [usize]);

/// What step 1 reserves and pins for one attempt, which fills it where it stays: it is too large to
/// be handed from one to the next.
#[derive(Default)]
struct Reserved<'a> {
    /// Pages whose blocks are reserved, including those for garbage rows.
    pages: u64,
    /// Pages for garbage rows among them.
    garbage: u64,
    blocks: Option<BlockReservation<'a>>,
    ids: Option<IdReservation<'a>>,
    /// Room for the versions of what the batch replaces; None if nobody may need them.
    versions: Option<ReservedVersions<'a>>,
    /// None if there are few writes, which do not block, and whose leaves are in memory.
    pins: Option<SharedPins<'a>>,
    /// None once the record is appended. Dropped last, since that wakes whoever waits for room in
    /// the log: if the blocks were still reserved then, those of hundreds of threads that are in
    /// the middle of it would be more than there are (`crowds.rs`).
    log: Option<LogReservation<'a>>,
}

/// Pins of leaves, and the share that allows them.
pub(super) struct SharedPins<'a> {
    // Dropped before the share.
    _pins: LeafPins<'a>,
    _share: StepShare<'a>,
}

impl Reserved<'_> {
    /// Returns whether the commit ends all snapshots.
    fn ends_others(&self) -> bool {
        let versions = self.versions.as_ref();
        versions.is_some_and(ReservedVersions::ends_others)
    }
}

impl Engine {
    /// Makes one attempt to commit `set`, which must not change a table as a whole (see `tables`
    /// for that). After a conflict, `set` may still name trees that its tables no longer have, and
    /// `scratch` what was derived from them: the caller refreshes both.
    ///
    /// `lent` is the number of frames that the operation lends to this step, if it has a pin share.
    /// `check` says how its reads are checked. `locks` are given back after a commit and after
    /// an error.
    ///
    /// Does not block, but for one case: the commit of a transaction that has read ranges, or very
    /// many keys, closes the gate, and waits for those that are inside.
    pub(crate) fn try_commit(
        &self,
        set: &WriteSet,
        (scratch, locks): (&mut CommitScratch, &mut CommitLocks),
        lent: Option<u64>,
        mut check: Check<'_, '_>,
    ) -> Step<Outcome> {
        self.look_at_wait(locks)?;
        loop {
            let step = match set.is_read_only() {
                true => self.validate_reads(set, scratch, check.look()),
                false => self.attempt_commit(set, (scratch, locks), lent, &mut check),
            };
            if !self.after_attempt(&step, locks)? {
                return step;
            }
        }
    }

    /// As [`Engine::try_commit`], until it meets a lock: then `locks` says which. Not inlined into
    /// the loop: then all that it reads of the batch would be read in front of it, and kept.
    #[inline(never)]
    fn attempt_commit(
        &self,
        set: &WriteSet,
        (scratch, locks): (&mut CommitScratch, &mut CommitLocks),
        lent: Option<u64>,
        check: &mut Check<'_, '_>,
    ) -> Step<Outcome> {
        let begun = Sampled::Writes.is_due().then(time::now);
        let mut steps = Steps::new(begun);
        self.check_writable()?;
        scratch.prepare(self, set)?;
        let state = check.state().map(|check| &*check);
        let own = state.map(StateCheck::snapshot);
        let reads = state.map(|check| (check.snapshot(), check.needs_versions()));
        let closes = state.is_some_and(StateCheck::closes_gate);
        let mut reserved = Reserved::default();
        let taken = self.reserve_all(set, scratch, (lent, closes), reads, &mut reserved);
        steps.end(CommitStep::Prepare);
        taken?;
        // Before the stripes: nobody waits for the gate with stripes in hand.
        let ends_others = reserved.ends_others();
        let closed = (ends_others || closes).then(|| self.store.close_gate());
        let refusals = &mut scratch.stripe_refusals;
        let mut locked = self.try_stripes(&scratch.stripes, refusals)?;
        let replaced = &mut scratch.replaced_bytes;
        let (entered, saves) = self.enter(set, &reserved, closed, own, replaced)?;
        self.stop_at_locks(set, &locked, locks)?;
        // In front of the section: a panic poisons the store, and then leaves the gate.
        let guard;
        let section = self.begin_section();
        steps.end(CommitStep::Lock);
        // Inside the gate: a batch that changes tables is either visible here, or comes after this
        // one.
        if let Some(watched) = self.find_conflict(set, &locked, check)? {
            self.store.statistics.tick(Ticker::CommitConflicts, 1);
            return Ok(Outcome::Conflict { watched });
        }
        if self.store.life.is_closing() {
            return Err(Error::Closed.into());
        }
        steps.end(CommitStep::Check);
        // With the stripes held, nobody else can change these keys before the record names their
        // chunks.
        self.name_chunks(set)?;
        debug_assert!(self.holds_stripes(set, &locked), "its stripes are held");
        debug_assert!(set.trees_unchanged(), "the record names other trees");
        self.end_snapshots(own, ends_others);
        section.begin_changes();
        let payload = scratch.payload.payload();
        let acknowledge = self.acknowledge(set.durability);
        let room = reserved.log.take().expect("it is spent once");
        let lsn = self
            .log
            .append(room, RecordKind::Batch, acknowledge, payload);
        self.checkpoint.assert_behind(lsn);
        debug_assert!(self.log.applied() < lsn, "it is applied already");
        locked.end_shares();
        guard = entered.open();
        steps.end(CommitStep::Append);
        let token = self.store.pool.apply_token(&guard);
        let places = (scratch.order.positions(), &scratch.places[..]);
        let (tree, ids) = (&mut scratch.tree, reserved.ids.as_ref().expect("taken"));
        if saves {
            self.save_replaced(set, places, lsn, (&mut scratch.versions, tree));
        }
        self.apply_batch(&token, set, places, lsn, ids, tree)
            .map_err(|error| self.poisoned_by(&error))?;
        assert_none(&[Kind::Latch]);
        section.check_ids(ids);
        debug_assert!(
            self.holds_stripes(set, &locked),
            "its stripes are still held"
        );
        locked.stamp_with(lsn);
        self.log.mark_applied(lsn);
        section.end_changes(reserved.pages);
        drop(section);
        drop(guard);
        drop(locked);
        steps.end(CommitStep::Apply);
        self.count_commit(begun);
        Ok(Outcome::Committed(Some(lsn)))
    }

    /// Counts a commit that began at `begun`, if it is timed, and looks whether the log has become
    /// so long that a checkpoint is due.
    #[inline]
    pub(crate) fn count_commit(&self, begun: Option<Instant>) {
        let statistics = &self.store.statistics;
        statistics.tick(Ticker::Commits, 1);
        begun.map(|begun| statistics.record_since(Measure::CommitSampled, begun));
        self.look_for_checkpoint();
    }

    /// Enters the gate, if the reservations still suffice: with the stripes held, what the keys of
    /// the batch hold cannot change from here on. `replaced_bytes` is what it replaces in leaves,
    /// if that had to be found out. `closed` if the caller has closed the gate; `own` is the
    /// snapshot of the transaction that commits. Returns whether what the batch replaces has to be
    /// saved for snapshots.
    #[inline]
    fn enter<'a>(
        &'a self,
        set: &WriteSet,
        reserved: &Reserved<'_>,
        closed: Option<Closed<'a>>,
        own: Option<&Registration>,
        replaced_bytes: &mut Option<u64>,
    ) -> Step<(Entered<'a>, bool)> {
        if reserved.garbage < self.garbage_pages(set) {
            // Values in chunks were written since the reservation, or the first snapshot has begun.
            return Err(WaitReason::Gate.into());
        }
        let entered = match closed {
            Some(closed) => Entered::Closed(closed),
            None => match self.store.pool.gate().try_enter() {
                Some(guard) => Entered::Open(guard),
                None => return Err(WaitReason::Gate.into()),
            },
        };
        match self.may_save(set, reserved.versions.as_ref(), own, replaced_bytes) {
            Some(saves) => Ok((entered, saves)),
            None => Err(Restart::Conflict.into()),
        }
    }

    /// Step 1: takes all reservations, and finds and pins leaves, or says what to wait for. Fills
    /// `reserved`, which is empty. `closes`: the caller will close the gate.
    fn reserve_all<'a>(
        &'a self,
        set: &WriteSet,
        scratch: &mut CommitScratch,
        (lent, closes): (Option<u64>, bool),
        own: Option<(&Registration, bool)>,
        reserved: &mut Reserved<'a>,
    ) -> Step<()> {
        if !self.underfull_leaves.has_room() {
            self.store.space.growth.notify_all();
            return Err(Restart::Conflict.into());
        }
        let bytes = scratch.payload.payload_bytes();
        let limit = self.log.max_batch_bytes();
        if bytes > limit {
            return Err(Error::BatchTooLarge { bytes, limit }.into());
        }
        if scratch.id_wait.is_refused() {
            self.look_for_ids(set, scratch)?;
        }
        let leaves = match set.len() < COUNTED_FROM {
            true => None,
            false => {
                reserved.pins = Some(self.pin_shared(set, scratch, lent)?);
                Some(scratch.leaves())
            }
        };
        reserved.log = Some(self.reserve_log(bytes)?);
        let garbage = self.garbage_pages(set);
        let most = self.pages_of(set, garbage, None);
        let counted = leaves.map(|leaves| self.pages_of(set, garbage, Some(leaves)));
        let pages = counted.map_or(most, |counted| counted.min(most));
        (reserved.garbage, reserved.pages) = (garbage, pages);
        let blocks = pages * u64::from(self.store.page_blocks());
        let urgency = set.urgency();
        let urgent = urgency.is_urgent();
        if self.store.is_too_short_for(pages, urgent) {
            return Err(self.store.shortage_error().into());
        }
        if let Some(reason) = self.awaited_room(&scratch.delete_wait) {
            return Err(reason.into());
        }
        let committed = || self.store.committed_blocks();
        reserved.blocks = self.store.space.try_reserve(blocks, committed, urgency);
        if reserved.blocks.is_none() {
            if self.is_disk_full() {
                return Err(self.without_room(urgent.then_some(&mut scratch.delete_wait)));
            }
            return Err(WaitReason::Blocks(blocks).into());
        };
        if !self.store.dirty_room(pages) {
            return Err(WaitReason::Dirty.into());
        }
        let ids = (pages, most - pages);
        reserved.ids = Some(self.reserve_ids(set, (ids, urgency), &mut scratch.id_wait)?);
        if self.old_versions.snapshots.is_on() {
            reserved.versions = self.reserve_versions(set, scratch.replaced_bytes, own)?;
        }
        if reserved.pins.is_some() {
            return Ok(());
        }
        // It may wait for those inside the gate, or for the disk, until the leaves are used.
        let blocks = closes || reserved.ends_others() || set.has_large();
        if blocks || scratch.needs_pins || self.are_pinned(set.len(), reserved) {
            reserved.pins = Some(self.pin_shared(set, scratch, lent)?);
            return Ok(());
        }
        let CommitScratch { places, wanted, .. } = scratch;
        match scratch.order.positions() {
            [at] => self.find_only_leaf(set, *at, places, wanted),
            order => {
                let found = self.find_leaves(set, order, (places, wanted));
                // If one was missing: without a share, those that wait for the pages of many leaves
                // could take them from each other again and again.
                scratch.needs_pins = found.is_err();
                found
            }
        }
    }

    /// Returns whether the leaves of `writes` writes are pinned though nothing blocks before they
    /// are used. One leaf is used at once; others wait while those before them are changed, which
    /// takes longer if snapshots need what is there, or if there is no room to write pages back.
    #[inline]
    fn are_pinned(&self, writes: usize, reserved: &Reserved<'_>) -> bool {
        let frames = self.store.pool.frames_in_use_max();
        let most = UNPINNED_MAX.min(frames / UNPINNED_SHARE);
        writes > 1 && (writes > most || reserved.versions.is_some() || self.store.life.is_short())
    }

    /// Takes a share of the frames for the leaves of a batch, and finds and pins as many of them as
    /// it allows. The others have been in memory once.
    pub(super) fn pin_shared<'a>(
        &'a self,
        set: &WriteSet,
        scratch: &mut CommitScratch,
        lent: Option<u64>,
    ) -> Step<SharedPins<'a>> {
        let frames = scratch.order.positions().len() as u64;
        let share = self
            .pin_budget
            .try_for_step(lent, frames, &mut scratch.refusals);
        let Some(share) = share else {
            return Err(WaitReason::Pins(frames).into());
        };
        let CommitScratch {
            order,
            places,
            checked,
            wanted,
            ..
        } = scratch;
        let order = order.positions();
        let most = usize_of(share.frames());
        let pinned = &order[..most.min(order.len())];
        let pins = self.pin_leaves(set, pinned, (places, wanted))?;
        assert!(pins.len() <= most, "more is pinned than the share allows");
        checked.begin(pinned.len(), leaves_of(places));
        if order.len() > most {
            self.check_leaves(set, order, checked, wanted)?;
            assert!(checked.writes <= order.len(), "more than it has");
        }
        Ok(SharedPins {
            _pins: pins,
            _share: share,
        })
    }

    /// Saves what snapshots still read of what the writes in `order` replace. If there is such a
    /// snapshot, `tree` keeps what lies outside of leaves until [`Scratch::keep_old_pages`].
    #[cold]
    fn save_replaced(
        &self,
        set: &WriteSet,
        (order, places): (&[usize], &[Place]),
        lsn: Lsn,
        (versions, tree): (&mut VersionScratch, &mut Scratch),
    ) {
        let mut last = Place::default();
        let writes = order.iter().enumerate().map(|(number, at)| {
            let (table, key, _) = set.write_at(*at);
            last = match places.get(number).filter(|place| place.is_known()) {
                Some(place) => *place,
                // It may be in the leaf of its predecessor, and is at another spot there.
                None => last.finger().into(),
            };
            (&*set.tables[table].state, key, last)
        });
        tree.keep_old_pages(self.save_versions(lsn, writes, versions));
    }

    /// Step 4: applies the writes in `order`. `ids` are those of the new chunks.
    fn apply_batch(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        (order, places): (&[usize], &[Place]),
        lsn: Lsn,
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let multi_lsn = if order.len() > 1 { lsn } else { Lsn(0) };
        let marks = Marks { lsn, multi_lsn };
        assert_eq!(order.len(), set.len(), "the order of another batch");
        assert!(places.len() <= order.len(), "places of another batch");
        let mut at = 0;
        // Leaves behind those that were found may have left memory again.
        let mut read = places.len();
        // What runs have put into the table of the last one, and is not counted yet.
        let (mut put, mut of) = (Run::default(), 0);
        let count = |table: usize, put: &mut Run| {
            self.count_run(&set.tables[table].state, &std::mem::take(put));
        };
        while at < order.len() {
            if at >= read {
                read = at + self.read_ahead(set, &order[at..]);
            }
            let place = places.get(at).unwrap_or(&Place::NONE);
            let (table, key, value) = set.write_at(order[at]);
            if let Some(Value::Bytes(value)) = value {
                let rest = match lie_together(places, at) {
                    true => &order[at + 1..],
                    false => &[],
                };
                let run = (table, (key, value), rest);
                let run = self.apply_run(token, set, (run, place), marks, scratch);
                if run.records > 0 {
                    if table != of {
                        count(of, &mut put);
                        of = table;
                    }
                    put.add(&run);
                    at += run.records;
                    continue;
                }
            }
            count(of, &mut put);
            let state = &set.tables[table].state;
            if value.is_none() {
                let rest = match lie_together(places, at) {
                    true => &order[at + 1..],
                    false => &[],
                };
                let removed = self.remove_run(token, set, (table, (key, place), rest), marks);
                if removed > 0 {
                    at += removed;
                    continue;
                }
            }
            self.apply_one(token, state, marks, (key, place, value), ids, scratch)?;
            at += 1;
        }
        count(of, &mut put);
        scratch.keep_old_pages(false);
        Ok(())
    }

    /// Applies a put to a table, which was found at `place`, and those of `rest` for as long as
    /// they are puts that go into the same leaf without a split. Returns those that it applied,
    /// which are not counted yet.
    fn apply_run(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        ((table, first, rest), place): (PutRun<'_>, &Place),
        marks: Marks,
        scratch: &mut Scratch,
    ) -> Run {
        let Some(tree) = set.tables[table].state.tree() else {
            return Run::default();
        };
        let others = rest.iter().map_while(|at| match set.write_at(*at) {
            (of, key, Some(Value::Bytes(value))) if of == table => Some((key, value)),
            _ => None,
        });
        let entries = (place, first, others);
        let run = tree.put_run(&self.store.pool, token, marks, entries, scratch);
        assert!(run.records <= 1 + rest.len(), "more was put than there is");
        run
    }

    /// Deletes `key`, which was found at a place, from a counted table, and those of `rest` for as
    /// long as they are deletes of records of the same leaf. Returns the number of records, which
    /// are counted; 0 if nothing was deleted.
    fn remove_run(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        (table, (key, place), rest): (usize, (&[u8], &Place), &[usize]),
        marks: Marks,
    ) -> usize {
        let state = &set.tables[table].state;
        let Some(tree) = state.tree().filter(|tree| tree.id.is_counted()) else {
            return 0;
        };
        let others = rest.iter().map_while(|at| match set.write_at(*at) {
            (of, key, None) if of == table => Some(key),
            _ => None,
        });
        let run = tree.remove_run(&self.store.pool, token, marks, (place, key, others));
        assert!(
            run.records <= 1 + rest.len(),
            "more was removed than there is"
        );
        if run.records > 0 {
            let statistics = &self.store.statistics;
            statistics.tick(Ticker::Deletes, run.records as u64);
            statistics.tick(Ticker::WriteBytes, run.bytes as u64);
            self.store.tables.add(state, -i64_of_len(run.records));
            self.note_fill(tree, key, run.leaf_fill);
        }
        run.records
    }

    /// Notes how full a removal of `key` has left its leaf.
    #[inline]
    fn note_fill(&self, tree: Tree, key: &[u8], fill: LeafFill) {
        if fill != LeafFill::Enough && self.underfull_leaves.push(tree, key, fill) {
            self.store.space.growth.notify_all();
        }
    }

    /// Counts the records that were put into a table.
    #[inline]
    pub(crate) fn count_run(&self, state: &Arc<TableState>, run: &Run) {
        assert!(run.new <= run.records, "more new keys than keys");
        if run.records > 0 {
            let statistics = &self.store.statistics;
            statistics.tick(Ticker::Puts, run.records as u64);
            statistics.tick(Ticker::WriteBytes, run.bytes as u64);
            if run.new > 0 {
                self.store.tables.add(state, i64_of_len(run.new));
            }
        }
    }

    /// Applies one write, of the key of a place, to the tree that `state` has now. `ids` are those
    /// of the new chunks.
    pub(crate) fn apply_one(
        &self,
        token: &ApplyToken<'_>,
        state: &Arc<TableState>,
        marks: Marks,
        at: (&[u8], &Place, Option<Value<'_>>),
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some(tree) = state.tree() else {
            return Err(Error::NoSuchTable {
                name: state.name.to_string(),
            });
        };
        let entries = self.apply_to(token, tree, marks, at, ids, scratch)?;
        if entries != 0 {
            self.store.tables.add(state, entries);
        }
        Ok(())
    }

    /// As [`Engine::apply_one`], to `tree`. Returns the number of entries that this adds.
    #[inline]
    pub(crate) fn apply_to(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        marks: Marks,
        (key, place, value): (&[u8], &Place, Option<Value<'_>>),
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<i64> {
        let (entries, fill) = match value {
            Some(Value::Chunks(value)) => {
                scratch.expect(&self.store.pool, &place.finger());
                let value = NewValue {
                    head: &value.head,
                    shape: value.staged.shape,
                    parts: &value.staged.parts,
                    ids: Some(ids),
                };
                self.store
                    .apply_chunks(token, tree, marks, key, value, scratch)?
            }
            Some(Value::Bytes(value)) => {
                self.store
                    .apply_at(token, tree, marks, (key, place), Some(value), scratch)?
            }
            None => self
                .store
                .apply_at(token, tree, marks, (key, place), None, scratch)?,
        };
        self.note_fill(tree, key, fill);
        Ok(entries)
    }

    /// Commits a batch that writes nothing: it succeeds if all its reads are of one moment. Not
    /// inlined into the loop, as [`Engine::attempt_commit`] is not.
    #[inline(never)]
    fn validate_reads(
        &self,
        set: &WriteSet,
        scratch: &mut CommitScratch,
        look: Option<&mut SecondLook<'_>>,
    ) -> Step<Outcome> {
        let Some(watched) = set.changed(|stamp| self.stripes.unchanged(stamp)) else {
            return Ok(Outcome::Committed(None));
        };
        if !watched && look.is_some() && set.watched.is_empty() {
            // Batches that change tables take no stripes: they close the gate, and would write
            // between two of these reads.
            let Some(_guard) = self.store.pool.gate().try_enter() else {
                return Err(WaitReason::Gate.into());
            };
            scratch.reset();
            Wanted::shares(&set.reads, &mut scratch.stripes);
            let locked = self.try_stripes(&scratch.stripes, &mut scratch.stripe_refusals)?;
            if self.look_again(set, &locked, look)? == Seen::Same {
                return Ok(Outcome::Committed(None));
            }
        }
        self.store.statistics.tick(Ticker::CommitConflicts, 1);
        Ok(Outcome::Conflict { watched })
    }

    /// Returns true if the batch holds the stripes of all its keys exclusively.
    fn holds_stripes(&self, set: &WriteSet, locked: &Locked<'_>) -> bool {
        set.writes().all(|(table, key, _)| {
            let tree = set.tables[table].tree();
            tree.is_some_and(|tree| locked.writes(self.stripes.of(tree.id, key)))
        })
    }

    /// Takes the stripes of a commit, or returns what to wait for.
    fn try_stripes<'a>(&'a self, wanted: &'a [Wanted], refusals: &mut u32) -> Step<Locked<'a>> {
        self.stripes
            .try_lock_all(wanted, refusals)
            .map_err(|refused| match refused {
                NotTaken::Held(stripe, how) => WaitReason::Stripe(stripe, how).into(),
                NotTaken::WriterWaits => Restart::Conflict.into(),
            })
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use super::*;
    use crate::wait::reason::Unfinished;
    use crate::{Batch, Db};

    /// A commit of one write pins its leaf if it may block before that is used, and only then
    /// (decision 093).
    #[test]
    fn one_write_pins_its_leaf_if_it_may_block() {
        const CHUNK_BYTES: u64 = 4096;
        let options = Db::builder().max_memory(16 << 20).chunk_size(CHUNK_BYTES);
        let db = options.open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        // The leaf is not the root, which stays in memory anyway.
        for number in 0..300_u32 {
            let key = [b"key", &number.to_be_bytes()[..]].concat();
            table.put(&key, &[7; 1000]).unwrap();
        }
        table.put(b"key", b"old").unwrap();
        db.checkpoint().unwrap();
        let mut plain = Batch::new();
        plain.put(&table, b"key", b"new");
        let mut chunks = Batch::new();
        let mut writer = db.value_writer(3 * CHUNK_BYTES).unwrap();
        writer.write(&[7; 3 * CHUNK_BYTES as usize]).unwrap();
        chunks.put_large(&table, b"key", writer.finish().unwrap());
        let engine = db.engine();
        let pool = &engine.store.pool;
        // Whether the leaf stays in memory while others need all frames.
        let stays = |batch: &Batch, closes: bool| {
            assert!(table.contains(b"key").unwrap());
            let mut scratch = CommitScratch::default();
            scratch.prepare(engine, &batch.set).unwrap();
            let mut reserved = Reserved::default();
            let kind = (None, closes);
            engine
                .reserve_all(&batch.set, &mut scratch, kind, None, &mut reserved)
                .unwrap();
            let leaf = scratch.places[0].finger().page();
            assert!(leaf != PageId::NONE, "the leaf was found");
            for _ in 0..10 {
                pool.sweep(pool.frames(), pool.frames(), &mut Vec::new());
            }
            (engine.pin_budget.taken(), pool.pin(leaf, 0).is_ok())
        };
        assert_eq!(stays(&plain, false), (0, false), "it does not block");
        assert_eq!(stays(&plain, true), (1, true), "it waits for others");
        assert_eq!(stays(&chunks, false), (1, true), "it may read from disk");
        assert_eq!(engine.pin_budget.taken(), 0, "all is given back");
        db.write(&mut chunks, crate::WriteOptions::default())
            .unwrap();
        assert_eq!(table.len(), 301);
    }

    /// A commit of few writes pins its leaves once one of them was not in memory, and only then
    /// (decision 104).
    #[test]
    fn few_writes_pin_their_leaves_if_one_was_missing() {
        let options = Db::builder().max_memory(16 << 20);
        let db = options.open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let key = |number: u32| number.to_be_bytes();
        for number in 0..300 {
            table.put(&key(number), &[7; 1000]).unwrap();
        }
        db.checkpoint().unwrap();
        let mut batch = Batch::new();
        for number in [7, 100, 200] {
            batch.put(&table, &key(number), b"new");
        }
        let engine = db.engine();
        let pool = &engine.store.pool;
        let mut scratch = CommitScratch::default();
        scratch.prepare(engine, &batch.set).unwrap();
        // The leaves that it pins, or None if a page is missing.
        let pinned = |scratch: &mut CommitScratch| {
            let mut reserved = Reserved::default();
            let attempt =
                engine.reserve_all(&batch.set, scratch, (None, false), None, &mut reserved);
            match attempt {
                Ok(()) => Some(engine.pin_budget.taken()),
                Err(Unfinished::Wait(WaitReason::Restart(Restart::Fault(_)))) => None,
                Err(other) => panic!("{other:?}"),
            }
        };
        let read = || (0..300).for_each(|at| drop(table.get(&key(at)).unwrap().unwrap()));
        read();
        assert_eq!(pinned(&mut scratch), Some(0), "all are in memory");
        assert_eq!(scratch.places.len(), 3);
        for _ in 0..10 {
            pool.sweep(pool.frames(), pool.frames(), &mut Vec::new());
        }
        assert_eq!(pinned(&mut scratch), None, "they left");
        read();
        assert_eq!(pinned(&mut scratch), Some(3));
        scratch.begin_anew();
        scratch.prepare(engine, &batch.set).unwrap();
        assert_eq!(pinned(&mut scratch), Some(0), "the next batch");
        assert_eq!(engine.pin_budget.taken(), 0, "all is given back");
        db.write(&mut batch, crate::WriteOptions::default())
            .unwrap();
        assert_eq!(table.get(&key(200)).unwrap().unwrap(), b"new");
    }
}
