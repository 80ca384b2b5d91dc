//! Commit: credits, locks, gate, log, pages, marks, in this order.
//!
//! 1. Take log bytes, blocks and room for dirty frames; find the leaves and hold them.
//! 2. Lock the stripes of the written keys.
//! 3. Enter the gate; check that tables and what was read are unchanged; append the record.
//! 4. Apply it, leaf by leaf.
//! 5. Stamp the stripes, mark the LSN applied, leave the gate, unlock.
//!
//! Steps 1 to 3 wait for nothing: an attempt that cannot go on gives all back, and starts again
//! when what it lacks is there. Step 4 may wait, for a page, a frame or an image buffer, and for
//! nothing that anybody in the gate holds. From the append on nothing is undone: an error poisons
//! the engine.

use pando_format::log::{BatchWriter, RecordKind};
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{Hold, Marks};
use pando_stats::{Measure, Sampled, Ticker};
use pando_sync::atomic::Ordering;
use pando_sync::time;
use pando_tree::{Finger, LeafFill, Scratch};
use pando_wal::LogCredit;

use crate::chunks::LargeValue;
use crate::chunks::apply::NewValue;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::halt::{Step, Stop};
use crate::holds::HoldShare;
use crate::profile::{CommitStep, Steps};
use crate::space_keeper::{IdPromise, Promise};
use crate::stripes::StripeIndex;
use crate::tables::TableState;
use crate::write_set::{Value, WriteSet};

/// Pages that one write may make dirty: its leaf, a new one, and its part of inner nodes.
const PAGES_PER_WRITE: u64 = 3;
/// Pages that a batch may make dirty on top: splits up to the root.
const PAGES_PER_BATCH: u64 = 8;

/// Working memory of commits, reused.
#[derive(Debug, Default)]
pub(crate) struct CommitScratch {
    /// Positions of the writes, by tree and key.
    order: Vec<usize>,
    stripes: Vec<StripeIndex>,
    payload: BatchWriter,
    /// `order`, `stripes` and `payload` are those of the write set.
    ready: bool,
    pub(crate) tree: Scratch,
    /// Where the leaves of the first writes are, by the positions of `order`.
    fingers: Vec<Finger>,
    /// How often there was no share of holds.
    refusals: u32,
    /// After a fault: the other pages that the batch was found to need.
    pub(crate) wanted: Vec<PageId>,
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Committed at this LSN; None when there was nothing to write.
    Committed(Option<Lsn>),
    /// Something that was read or watched has changed since.
    Conflict {
        /// It was watched: running the batch again does not help.
        watched: bool,
    },
}

impl CommitScratch {
    /// Forgets all. False if it has grown beyond `bytes_max`, or a change has been left undone.
    pub(crate) fn empty(&mut self, bytes_max: usize) -> bool {
        self.ready = false;
        self.refusals = 0;
        self.wanted.clear();
        self.tree.forget_leaf();
        let of_writes = self.order.capacity() * size_of::<usize>()
            + self.fingers.capacity() * size_of::<Finger>();
        self.tree.is_finished() && self.payload.capacity_bytes() + of_writes <= bytes_max
    }

    /// The write set has changed.
    pub(crate) fn reset(&mut self) {
        self.ready = false;
    }

    fn prepare(&mut self, engine: &Engine, set: &WriteSet) -> Result<()> {
        if self.ready {
            return Ok(());
        }
        set.check_tables()?;
        let tree_of = |table: usize| set.tables[table].tree.expect("checked above").id;
        let place_of = |at: usize| {
            let (table, key, _) = set.write_at(at);
            (tree_of(table), key)
        };
        self.order.clear();
        self.order.extend(0..set.len());
        self.order
            .sort_unstable_by(|a, b| place_of(*a).cmp(&place_of(*b)));
        self.stripes.clear();
        self.payload.clear();
        if set.len() > 1 {
            self.payload.set_multi_leaf();
        }
        for at in &self.order {
            let (table, key, value) = set.write_at(*at);
            engine.check_key(key)?;
            self.stripes.push(engine.stripes.of(tree_of(table), key));
            match value {
                Some(Value::Bytes(value)) => {
                    let limit = engine.plain_bytes_max();
                    if value.len() > limit {
                        return Err(Error::ValueTooLong {
                            bytes: value.len(),
                            limit,
                        });
                    }
                    self.payload.put(tree_of(table), key, value);
                }
                Some(Value::Chunks(value)) => {
                    put_chunks(&mut self.payload, tree_of(table), key, value);
                }
                None => self.payload.delete(tree_of(table), key),
            }
        }
        self.stripes.sort_unstable();
        self.stripes.dedup();
        self.ready = true;
        Ok(())
    }
}

/// Appends the put of a value in chunks to a record.
pub(crate) fn put_chunks(record: &mut BatchWriter, tree: TreeId, key: &[u8], value: &LargeValue) {
    let draft = &value.draft;
    record.put_chunks(tree, key, &value.head, draft.shape, &draft.parts);
}

/// True if the write behind the one at `at` may go into the same leaf.
fn lie_together(fingers: &[Finger], at: usize) -> bool {
    fingers.get(at + 1).is_none_or(|next| {
        next.page() == PageId::NONE || fingers.get(at).is_some_and(|own| own.page() == next.page())
    })
}

/// What step 1 takes.
struct Credits<'a> {
    log: LogCredit<'a>,
    /// Pages for garbage rows that blocks were promised for.
    garbage: u64,
    _blocks: Promise<'a>,
    ids: IdPromise<'a>,
    // Dropped before the share that allows them.
    _holds: Vec<Hold<'a>>,
    _share: HoldShare<'a>,
}

impl Engine {
    /// One attempt to commit `set`, which changes no table as a whole. After a conflict `set` may
    /// name trees that its tables have no more, and `scratch` what follows from them.
    pub(crate) fn try_commit(&self, set: &WriteSet, scratch: &mut CommitScratch) -> Step<Outcome> {
        if set.is_read_only() {
            return Ok(self.validate_reads(set));
        }
        let begun = Sampled::Writes.is_due().then(time::now);
        let mut steps = Steps::new(begun);
        self.check_writable()?;
        scratch.prepare(self, set)?;
        let credits = self.take_credits(set, scratch);
        steps.end(CommitStep::Prepare);
        let credits = credits?;
        let locked = match self.stripes.try_lock_all(&scratch.stripes) {
            Ok(locked) => locked,
            Err(taken) => return Err(Stop::Stripe(taken).into()),
        };
        if credits.garbage < self.burial_pages(set.len() as u64) {
            // Values in chunks came since the promise. What the keys have now cannot change any
            // more, so a promise that is made now holds.
            return Err(Stop::Gate.into());
        }
        let Some(pass) = self.gate.try_enter() else {
            return Err(Stop::Gate.into());
        };
        steps.end(CommitStep::Lock);
        // Inside the gate: a batch that changes tables is either seen, or comes later.
        if let Some(watched) = self.changed(set, |stripe| locked.holds(stripe)) {
            self.statistics.tick(Ticker::CommitConflicts, 1);
            return Ok(Outcome::Conflict { watched });
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed.into());
        }
        steps.end(CommitStep::Check);
        // Inside the gate, where nobody else can name them any more.
        self.name_chunks(set)?;
        let payload = scratch.payload.payload();
        let lsn = self.log.append(credits.log, RecordKind::Batch, 0, payload);
        steps.end(CommitStep::Append);
        let places = (&scratch.order[..], &scratch.fingers[..]);
        self.apply_batch(set, places, lsn, &credits.ids, &mut scratch.tree)
            .map_err(|error| self.poisoned_by(&error))?;
        for stripe in &scratch.stripes {
            self.stripes.stamp_with(*stripe, lsn);
        }
        self.log.mark_applied(lsn);
        drop(pass);
        drop(locked);
        steps.end(CommitStep::Apply);
        self.statistics.tick(Ticker::Commits, 1);
        begun.map(|begun| self.statistics.record_since(Measure::CommitSampled, begun));
        self.look_for_checkpoint();
        Ok(Outcome::Committed(Some(lsn)))
    }

    /// Step 1.
    fn take_credits(&self, set: &WriteSet, scratch: &mut CommitScratch) -> Step<Credits<'_>> {
        self.sparse_leaves.check_room(self)?;
        let bytes = scratch.payload.payload_bytes();
        let limit = self.log.max_batch_bytes();
        if bytes > limit {
            return Err(Error::BatchTooLarge { bytes, limit }.into());
        }
        let log = match self.log.try_reserve(bytes) {
            Ok(Some(credit)) => credit,
            Ok(None) => return Err(Stop::LogSpace(bytes).into()),
            Err(error) => return Err(self.log_failed(error).into()),
        };
        let garbage = self.burial_pages(set.len() as u64);
        let pages = self.pages_of(set, garbage);
        let blocks = pages * u64::from(self.page_blocks());
        let urgent = set.only_deletes();
        if self.is_stuck() && !(urgent && self.dirty_room(pages)) {
            return Err(self.stuck_error().into());
        }
        let Some(promise) = self
            .space
            .try_promise(blocks, || self.committed_blocks(), urgent)
        else {
            if self.space.is_full() {
                self.checkpoint_wanted();
                return Err(self.space.full_error().into());
            }
            return Err(Stop::Blocks(blocks).into());
        };
        if !self.dirty_room(pages) {
            return Err(Stop::Dirty.into());
        }
        let ids = self.promise_ids(set)?;
        let frames = scratch.order.len() as u64;
        let Some(share) = self.holds.try_take(frames, &mut scratch.refusals) else {
            return Err(Stop::Holds(frames).into());
        };
        let CommitScratch {
            order,
            fingers,
            wanted,
            ..
        } = scratch;
        let holds = self.hold_leaves(set, order, share.frames(), fingers, wanted)?;
        Ok(Credits {
            log,
            garbage,
            _blocks: promise,
            ids,
            _holds: holds,
            _share: share,
        })
    }

    /// Ids for the new chunks of a batch, whose blocks were promised before.
    ///
    /// # Errors
    /// [`Error::Full`] when the ids of all that is promised are not there.
    pub(crate) fn promise_ids(&self, set: &WriteSet) -> Result<IdPromise<'_>> {
        self.promise_page_ids(set.large().map(LargeValue::new_chunks).sum())
    }

    /// So many page ids, beside those of pages whose blocks were promised.
    ///
    /// # Errors
    /// As [`Engine::promise_ids`].
    pub(crate) fn promise_page_ids(&self, count: u64) -> Result<IdPromise<'_>> {
        let available = || self.pool.page_ids().available();
        let ids = self.space.try_promise_ids(count, available);
        ids.ok_or_else(|| self.page_ids_error())
    }

    /// What is said when there is no page id.
    pub(crate) fn page_ids_error(&self) -> Error {
        let what = format!(
            "{} pages are as many as the page table of max_memory {} holds; raise max_memory to {}",
            self.pool.page_ids().high_water(),
            self.options.max_memory,
            self.options.max_memory * 2
        );
        Error::Full { what }
    }

    /// Pages that the batch makes dirty at worst, `garbage` of them for garbage rows.
    pub(crate) fn pages_of(&self, set: &WriteSet, garbage: u64) -> u64 {
        let page = self.pool.page_size().bytes();
        let piece = pando_tree::overflow::payload_bytes_max(self.pool.page_size());
        let overflow: usize = set
            .values_beyond(page / 4)
            .map(|bytes| bytes.div_ceil(piece) + 4)
            .sum();
        let writes = set.len() as u64;
        PAGES_PER_WRITE * writes + PAGES_PER_BATCH + overflow as u64 + garbage
    }

    /// Step 4. The caller is in the gate.
    fn apply_batch(
        &self,
        set: &WriteSet,
        (order, fingers): (&[usize], &[Finger]),
        lsn: Lsn,
        ids: &IdPromise<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let multi_lsn = if order.len() > 1 { lsn } else { Lsn(0) };
        let marks = Marks { lsn, multi_lsn };
        let mut at = 0;
        while at < order.len() {
            if let Some(finger) = fingers.get(at) {
                scratch.expect(&self.pool, finger);
            }
            if at + 1 < order.len() && lie_together(fingers, at) {
                let done = self.apply_run(set, &order[at..], marks, scratch);
                if done > 0 {
                    at += done;
                    continue;
                }
            }
            let (table, key, value) = set.write_at(order[at]);
            let state = &set.tables[table].state;
            self.apply_one(state, marks, key, value, ids, scratch)?;
            at += 1;
        }
        Ok(())
    }

    /// Applies the first writes of `order` as far as they are puts into the leaf of the write
    /// before; how many they were.
    fn apply_run(
        &self,
        set: &WriteSet,
        order: &[usize],
        marks: Marks,
        scratch: &mut Scratch,
    ) -> usize {
        let (table, ..) = set.write_at(order[0]);
        let state = &set.tables[table].state;
        let Some(tree) = state.tree() else {
            return 0;
        };
        let mut bytes = 0;
        let entries = order.iter().map_while(|at| match set.write_at(*at) {
            (of, key, Some(Value::Bytes(value))) if of == table => Some((key, value)),
            _ => None,
        });
        let stay = self.stay();
        let run = tree.put_run(&self.pool, &stay, marks, entries.clone(), scratch);
        if run.records > 0 {
            for (key, value) in entries.take(run.records) {
                bytes += key.len() + value.len();
            }
            self.statistics.tick(Ticker::Puts, run.records as u64);
            self.statistics.tick(Ticker::WriteBytes, bytes as u64);
            if run.new > 0 {
                state.add(run.new as i64);
            }
        }
        run.records
    }

    /// Applies one write to the tree that `state` has now; the caller is in the gate.
    pub(crate) fn apply_one(
        &self,
        state: &TableState,
        marks: Marks,
        key: &[u8],
        value: Option<Value<'_>>,
        ids: &IdPromise<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some(tree) = state.tree() else {
            return Err(Error::NoSuchTable {
                name: state.name.clone(),
            });
        };
        let (entries, fill) = match value {
            Some(Value::Chunks(value)) => {
                let value = NewValue {
                    head: &value.head,
                    shape: value.draft.shape,
                    parts: &value.draft.parts,
                    ids: Some(ids),
                };
                self.apply_chunks(tree, marks, key, value, scratch)?
            }
            Some(Value::Bytes(value)) => self.apply(tree, marks, key, Some(value), scratch)?,
            None => self.apply(tree, marks, key, None, scratch)?,
        };
        if entries != 0 {
            state.add(entries);
        }
        if fill != LeafFill::Enough && self.sparse_leaves.push(tree, key, fill) {
            self.space.growth.notify_all();
        }
        Ok(())
    }

    /// A batch that writes nothing commits if all it read was of one moment.
    fn validate_reads(&self, set: &WriteSet) -> Outcome {
        match self.changed(set, |_| false) {
            Some(watched) => {
                self.statistics.tick(Ticker::CommitConflicts, 1);
                Outcome::Conflict { watched }
            }
            None => Outcome::Committed(None),
        }
    }

    /// Whether something that was read, or which tree a table has (Some(false)), or something that
    /// was watched (Some(true)) has changed.
    pub(crate) fn changed(
        &self,
        set: &WriteSet,
        holds: impl Fn(StripeIndex) -> bool,
    ) -> Option<bool> {
        let unchanged = |stamp| {
            let stamp: crate::stripes::Stamp = stamp;
            if holds(stamp.stripe) {
                self.stripes.unchanged_locked(stamp)
            } else {
                self.stripes.unchanged(stamp)
            }
        };
        let tables = set
            .watched
            .iter()
            .all(|(state, tree, _)| state.tree() == *tree);
        if !tables || !set.watched.iter().all(|(_, _, stamp)| unchanged(*stamp)) {
            return Some(true);
        }
        if !set.reads.iter().all(|stamp| unchanged(*stamp)) || !set.trees_unchanged() {
            return Some(false);
        }
        None
    }
}
