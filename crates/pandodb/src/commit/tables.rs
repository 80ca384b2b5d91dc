//! Batches that create, drop, empty or swap tables. One engine thread applies each of them as a
//! whole, with the apply gate closed.
//!
//! Readers do not know the gate. So the tables get their trees last, all at once, when all that the
//! batch writes is there: who sees a part of it sees all of it. And no leaf tells a reader that he
//! owes the LSN of a batch which has emptied a table (decision 060): so such a batch is durable
//! before anybody sees it, where reads wait for that, and the gate stays closed for one sync.
//!
//! The trees of dropped tables become rows of the garbage table in the same apply section, and
//! `garbage` frees them later. The log never contains these rows: this step and replay derive them
//! from the catalogue.

use std::task::Waker;

use pando_format::cast::u32_of_len;
use pando_format::catalogue::{FIRST_USER_TREE, garbage_key};
use pando_format::log::{BatchWriter, Operation, RecordKind};
use pando_format::{Lsn, TreeId};
use pando_pool::{ApplyToken, Marks, PagePin};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_sync::{Arc, WakerArc, park, thread_waker};
use pando_tree::{Place, Scratch, Tree};
use pando_versions::VersionScratch;
use pando_wal::LogReservation;

use crate::changes::tables::LoggedTableChange;
use crate::commit::cut_off::CutOff;
use crate::commit::delete_room::DeleteWait;
use crate::commit::key_locks::Met;
use crate::commit::page_id_room::chunks_of;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::locks::{Asked, LockWait};
use crate::space::id_turns::IdWait;
use crate::space::reservations::{BlockReservation, IdReservation};
use crate::tables::kind::TreeKind;
use crate::tables::state::{CATALOGUE, GARBAGE, NewTree, TableBatch};
use crate::wait::reason::WaitReason;
use crate::writes::jobs::{Job, JobEnd, JobWake, JobWork};
use crate::writes::set::{TableChange, Value, WriteSet};

/// Most leaves of the system trees that stay pinned between the check and the change.
const PINNED_MAX: usize = 8;

/// Result of running a job.
enum JobStep {
    Ended(JobEnd),
    /// It waits for a lock of a transaction.
    Waits(Arc<LockWait>),
}

/// Result of one attempt to run a job.
enum Once {
    Ended(JobEnd),
    /// It has to begin again.
    Again,
    /// It has met a lock of a transaction.
    Met(Met),
}

impl Engine {
    /// Body of the engine thread that changes tables.
    pub(crate) fn run_jobs(&self) {
        loop {
            while let Some(job) = self.jobs.pop() {
                self.run_job(&job);
            }
            self.jobs.wanted.register(&thread_waker());
            if self.store.life.is_ended() {
                return;
            }
            if let Some(job) = self.jobs.pop() {
                self.run_job(&job);
                continue;
            }
            park();
        }
    }

    fn run_job(&self, job: &Arc<Job>) {
        // Dropped behind the work: a job ends when it has given back what it held.
        let mut cut_off = CutOff::new(self);
        let Some(mut work) = job.take() else { return };
        cut_off.job = Some(job);
        let changed = self.change_tables(&mut work);
        cut_off.job = None;
        let wait = match changed {
            Ok(JobStep::Ended(end)) => {
                drop(work);
                return job.end(Ok(end));
            }
            Err(error) => {
                self.count_lock_error(&error);
                drop(work);
                return job.end(Err(error));
            }
            Ok(JobStep::Waits(wait)) => wait,
        };
        job.put_back(work);
        // Other jobs go on meanwhile.
        let wake = WakerArc::new(JobWake {
            jobs: self.jobs.clone(),
            job: job.clone(),
        });
        let waker = Waker::from(wake);
        if !matches!(self.register(&WaitReason::Lock(wait), &waker), Ok(false)) {
            waker.wake();
        }
    }

    /// Commits one batch that changes tables. Blocks, but not for locks of transactions.
    fn change_tables(&self, work: &mut JobWork) -> Result<JobStep> {
        let mut replaced_bytes = None;
        if let Some(owner) = &mut work.owner
            && let Asked::Waits(wait) = owner.look()?
        {
            return Ok(JobStep::Waits(wait));
        }
        loop {
            let end = match self.change_tables_once(work, &mut replaced_bytes)? {
                Once::Ended(end) => end,
                Once::Again => continue,
                Once::Met(met) => match self.ask_for_job(&mut work.owner, &met)? {
                    Asked::Granted => continue,
                    Asked::Waits(wait) => return Ok(JobStep::Waits(wait)),
                },
            };
            return Ok(JobStep::Ended(end));
        }
    }

    /// Makes one attempt of [`Engine::change_tables`].
    fn change_tables_once(
        &self,
        JobWork { set, owner }: &mut JobWork,
        replaced_bytes: &mut Option<u64>,
    ) -> Result<Once> {
        self.check_writable()?;
        // A tree of another store in the log would be one that this store does not have.
        set.check_store(&self.store.tables)?;
        if set.reads.is_empty() && set.watched.is_empty() {
            set.refresh_trees_of_changes();
        }
        set.check_tables()?;
        let changes = set.table_changes.iter();
        let creates = changes.filter(|(_, how)| matches!(how, TableChange::Create(_)));
        let mut names = creates.map(|(table, _)| &*set.tables[*table].state.name);
        let absent = set.absent.iter().map(|name| &**name);
        // No other thread makes tables.
        if (names.clone().chain(absent)).any(|name| self.store.tables.get(name).is_some()) {
            return Ok(Once::Ended(JobEnd::Conflict { watched: false }));
        }
        self.store.tables.check_room(&mut names)?;
        let new_trees = self.new_trees(set)?;
        let (payload, changes) = self.describe(set, &new_trees)?;
        let limit = self.log.max_batch_bytes();
        if payload.len() > limit {
            return Err(Error::BatchTooLarge {
                bytes: payload.len(),
                limit,
            });
        }
        let needs = self.needs_of_change(set, changes as u64)?;
        let (pages, spare_ids) = self.pages_of_change(set, &needs);
        if self
            .store
            .is_too_short_for(pages, set.urgency().is_urgent())
        {
            return Err(self.store.shortage_error());
        }
        let room = (pages, spare_ids);
        let (log, blocks_reserved, ids) = self.reserve_for_change(set, payload.len(), room)?;
        let versions = self.block(|_| self.reserve_versions(set, *replaced_bytes, None))?;
        let closed = self.store.pool.gate().close();
        let token = self.store.pool.apply_token(&closed);
        // The last checkpoint may have been made, and nobody would write the log; or a commit was
        // cut off since, whose record is not applied.
        self.check_writable()?;
        let saves = self.may_save(set, versions.as_ref(), None, replaced_bytes);
        let now = self.needs_of_change(set, changes as u64)?;
        if saves.is_none() || !needs.are_enough_for(&now) {
            return Ok(Once::Again);
        }
        // Whoever holds a stripe is outside of the gate, and has changed nothing since its last
        // stamp.
        if set.is_flag_set() {
            return Ok(Once::Ended(JobEnd::Conflict { watched: false }));
        }
        if let Some(watched) = set.changed(|stamp| self.stripes.unchanged_held(stamp)) {
            return Ok(Once::Ended(JobEnd::Conflict { watched }));
        }
        if let Some(met) = self.met_by_job(set, owner.as_deref()) {
            return Ok(Once::Met(met));
        }
        self.check_empty(set)?;
        let _pinned = self.pin_for_changes(set)?;
        self.name_chunks(set)?;
        let record = (log, &payload[..]);
        let lsn = self.log_and_apply(&token, set, &new_trees, record, &ids, pages)?;
        drop(closed);
        drop((blocks_reserved, ids, versions));
        self.store.statistics.tick(Ticker::Commits, 1);
        self.garbage_wanted();
        Ok(Once::Ended(JobEnd::Committed(lsn)))
    }

    /// Reserves room in the log, blocks of `pages` pages, and ids of these and of `spare` more.
    /// Blocks.
    fn reserve_for_change(
        &self,
        set: &WriteSet,
        bytes: usize,
        (pages, spare): (u64, u64),
    ) -> Result<(LogReservation<'_>, BlockReservation<'_>, IdReservation<'_>)> {
        let blocks = pages * u64::from(self.store.page_blocks());
        let urgency = set.urgency();
        let urgent = urgency.is_urgent();
        let mut delete_wait = DeleteWait::default();
        let mut id_wait = IdWait::default();
        self.block(|_| {
            if let Some(reason) = self.awaited_room(&delete_wait) {
                return Err(reason.into());
            }
            let page_ids = pages + spare + chunks_of(set);
            self.look_for_page_ids(page_ids, urgency, &mut id_wait)?;
            let log = self.reserve_log(bytes)?;
            let committed = || self.store.committed_blocks();
            match self.store.space.try_reserve(blocks, committed, urgency) {
                Some(reserved) => {
                    let ids = self.reserve_ids(set, ((pages, spare), urgency), &mut id_wait)?;
                    Ok((log, reserved, ids))
                }
                None if self.is_disk_full() => {
                    Err(self.without_room(urgent.then_some(&mut delete_wait)))
                }
                None => Err(WaitReason::Blocks(blocks).into()),
            }
        })
    }

    /// Appends the record of a batch and applies it. The caller has closed the gate, and has
    /// reserved blocks for `pages` pages.
    fn log_and_apply(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        new_trees: &[Option<TreeId>],
        (reservation, payload): (LogReservation<'_>, &[u8]),
        ids: &IdReservation<'_>,
        pages: u64,
    ) -> Result<Lsn> {
        let before = self.log.reserved_end();
        assert_eq!(self.log.applied(), before, "a job is applied alone");
        let section = self.begin_section();
        section.begin_changes();
        let lsn = self.log.append(
            reservation,
            RecordKind::Batch,
            self.acknowledge(None),
            payload,
        );
        assert!(lsn > before, "its LSN is the newest");
        self.checkpoint.assert_behind(lsn);
        self.settle_change(set, lsn)?;
        self.apply_structure(token, set, new_trees, lsn, ids, &mut Scratch::new())
            .map_err(|error| self.poisoned_by(&error))?;
        section.check_ids(ids);
        self.log.mark_applied(lsn);
        assert_eq!(self.log.applied(), lsn, "nothing else was logged meanwhile");
        section.end_changes(pages);
        Ok(lsn)
    }

    /// Blocks until the record of a batch is durable that shows something else than a new table,
    /// where reads wait for what they see. The caller has closed the gate.
    fn settle_change(&self, set: &WriteSet, lsn: Lsn) -> Result<()> {
        let creates = |(_, change): &(usize, TableChange)| matches!(change, TableChange::Create(_));
        if !set.table_changes.iter().all(creates) && self.read_bounds.waits_for_commits() {
            // Nothing that the sync waits for waits for the gate: the files of the log that it
            // needs were there when its room was reserved.
            self.wait_durable(lsn)?;
        }
        Ok(())
    }

    /// Returns a new tree id for each table change that needs one.
    fn new_trees(&self, set: &WriteSet) -> Result<Vec<Option<TreeId>>> {
        let mut trees = Vec::new();
        for (table, change) in &set.table_changes {
            trees.push(match change {
                TableChange::Drop => None,
                TableChange::Create(kind) => Some(self.new_tree(*kind)?),
                TableChange::Clear => {
                    let tree = set.tables[*table].tree();
                    let kind = tree.map_or(TreeKind::Plain, |tree| TreeKind::of(tree.id));
                    Some(self.new_tree(kind)?)
                }
                TableChange::Take(filled) => Some(filled.tree.id),
                TableChange::Swap(other) => set.tables[*other].tree().map(|tree| tree.id),
            });
        }
        Ok(trees)
    }

    /// Returns a tree id whose number was never used.
    pub(crate) fn new_tree(&self, kind: TreeKind) -> Result<TreeId> {
        let next = self.store.next_tree.fetch_add(1, Ordering::Relaxed);
        assert!(
            next >= u64::from(FIRST_USER_TREE.0),
            "the id of a system tree"
        );
        let number = u32::try_from(next).ok();
        let Some(number) = number.filter(|number| *number <= TreeId::NUMBER_MAX) else {
            return Err(Error::Full {
                what: "all tree ids were used".into(),
            });
        };
        Ok(kind.id(number))
    }

    /// Reads the leaves that the batch changes, and pins those of the system trees, so that damage
    /// is found before the batch is logged. The gate is closed.
    fn pin_for_changes(&self, set: &WriteSet) -> Result<Vec<PagePin<'_>>> {
        let mut pinned = Vec::new();
        for (table, change) in &set.table_changes {
            let name = set.tables[*table].state.name.as_bytes();
            pinned.push(self.pin_leaf(CATALOGUE, name)?);
            pinned.truncate(PINNED_MAX);
            if matches!(change, TableChange::Take(_)) {
                pinned.push(self.pin_leaf(GARBAGE, &garbage_key(Lsn(0), u32::MAX))?);
            }
        }
        let drops_none = |(_, change): &(usize, TableChange)| {
            matches!(change, TableChange::Create(_) | TableChange::Swap(_))
        };
        if !set.table_changes.iter().all(drops_none) || set.len() > 0 {
            // The place for the rows of trees and chunks that nothing names any longer: after all
            // other rows.
            pinned.push(self.pin_leaf(GARBAGE, &garbage_key(Lsn(u64::MAX), 0))?);
        }
        for (table, key, _) in set.writes() {
            if let Some(tree) = set.tables[table].state.tree()
                && !set.changes_table(table)
            {
                self.store
                    .drive(|| tree.try_locate(&self.store.pool, key))?;
            }
        }
        Ok(pinned)
    }

    /// Pins the leaf of `key`. Blocks.
    fn pin_leaf(&self, tree: Tree, key: &[u8]) -> Result<PagePin<'_>> {
        self.store.drive(|| {
            let finger = tree.try_locate(&self.store.pool, key)?.place.finger();
            self.store.pool.pin(finger.page(), finger.hint())
        })
    }

    /// Checks that tables which take a filled tree have no entries. The gate is closed.
    fn check_empty(&self, set: &WriteSet) -> Result<()> {
        for (table, change) in &set.table_changes {
            let state = &set.tables[*table].state;
            if matches!(change, TableChange::Take(_)) && state.count() > 0 {
                return Err(Error::NotEmpty {
                    name: state.name.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Returns the record of the batch, and the number of tables that it changes.
    fn describe(&self, set: &WriteSet, new_trees: &[Option<TreeId>]) -> Result<(Vec<u8>, usize)> {
        if set.swaps_tables() {
            return self.describe_swaps(set);
        }
        let mut record = BatchWriter::new();
        record.set_multi_leaf();
        let mut tree_of: Vec<Option<TreeId>> = set
            .tables
            .iter()
            .map(|table| table.tree().map(|tree| tree.id))
            .collect();
        for ((table, change), new) in set.table_changes.iter().zip(new_trees) {
            let name = set.tables[*table].state.name.as_bytes();
            match (change, tree_of[*table], new) {
                (TableChange::Create(_), None, Some(tree)) => {
                    record.push(Operation::CreateTable { name, tree: *tree });
                }
                (TableChange::Drop, Some(tree), _) => {
                    record.push(Operation::DropTable { name, tree });
                }
                (TableChange::Clear, Some(old_tree), Some(new_tree)) => {
                    record.push(Operation::ReplaceTable {
                        name,
                        old_tree,
                        new_tree: *new_tree,
                    });
                }
                (TableChange::Take(filled), Some(old_tree), _)
                    if TreeKind::of(filled.tree.id) == TreeKind::of(old_tree) =>
                {
                    record.push(Operation::TakeTree {
                        name,
                        old_tree,
                        new_tree: filled.tree.id,
                        root: filled.tree.root,
                        entries: filled.entries,
                    });
                }
                _ => {
                    return Err(Error::NoSuchTable {
                        name: set.tables[*table].state.name.to_string(),
                    });
                }
            }
            tree_of[*table] = *new;
        }
        for (table, key, value) in set.writes() {
            self.check_key(key)?;
            let state = &set.tables[table].state;
            let missing = || Error::NoSuchTable {
                name: state.name.to_string(),
            };
            let tree = tree_of[table].ok_or_else(missing)?;
            match value {
                Some(Value::Bytes(value)) => record.put(tree, key, value),
                Some(Value::Chunks(value)) => value.append_to(&mut record, tree, key),
                None => record.delete(tree, key),
            }
        }
        assert_eq!(
            record.operations() as usize,
            set.table_changes.len() + set.len(),
            "the record has each change once"
        );
        Ok((record.into_payload(), set.table_changes.len()))
    }

    /// Returns the batch of `lsn`, and which snapshots may read what its tables were.
    fn table_batch(&self, lsn: Lsn) -> TableBatch {
        let snapshots = &self.old_versions.snapshots;
        let young = snapshots.is_on().then(|| snapshots.horizon(|| lsn));
        let newest_young = snapshots.is_on().then(|| snapshots.look(lsn).newest());
        let (oldest_kept, newest_kept) = self.kept.bounds().unzip();
        let horizon = young.into_iter().chain(oldest_kept).min();
        let newest = newest_young.flatten().into_iter().chain(newest_kept).max();
        let unseen = TableBatch::unseen(lsn);
        horizon.map_or(unseen, |horizon| TableBatch {
            lsn,
            horizon,
            newest: newest.unwrap_or_default(),
        })
    }

    /// Applies the batch, with the gate closed.
    fn apply_structure(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        new_trees: &[Option<TreeId>],
        lsn: Lsn,
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        assert_eq!(
            new_trees.len(),
            set.table_changes.len(),
            "each change has its tree, or none"
        );
        let batch = self.table_batch(lsn);
        if set.swaps_tables() {
            return self.apply_swaps(token, set, batch, scratch);
        }
        if self.old_versions.snapshots.is_on() {
            let writes = set
                .writes()
                .filter(|(table, ..)| !set.changes_table(*table));
            let writes = writes.map(|(table, key, _)| {
                let state = &*set.tables[table].state;
                (state, key, Place::default())
            });
            let keep = self.save_versions(lsn, writes, &mut VersionScratch::default());
            scratch.keep_old_pages(keep);
        }
        let mut new = self.change_catalogue(token, set, new_trees, lsn, scratch)?;
        self.write_to_tables(token, (set, &mut new), lsn, ids, scratch)?;
        self.store.tables.replace(&new, batch);
        Ok(())
    }

    /// Applies the changes of tables, and returns the trees that these get, in the same order.
    fn change_catalogue(
        &self,
        token: &ApplyToken<'_>,
        set: &WriteSet,
        new_trees: &[Option<TreeId>],
        lsn: Lsn,
        scratch: &mut Scratch,
    ) -> Result<Vec<NewTree>> {
        let mut all = Vec::with_capacity(new_trees.len());
        for (index, ((table, change), new)) in set.table_changes.iter().zip(new_trees).enumerate() {
            let table = &set.tables[*table];
            let old = match change {
                TableChange::Create(_) => None,
                TableChange::Drop | TableChange::Clear | TableChange::Take(_) => {
                    table.tree().map(|tree| tree.id)
                }
                TableChange::Swap(_) => unreachable!("a batch that swaps tables does nothing else"),
            };
            let filled = match change {
                TableChange::Take(filled) => Some(*filled),
                _ => None,
            };
            let change = LoggedTableChange {
                name: &table.state.name,
                old,
                new: *new,
                filled,
            };
            let (state, index) = (Some(&table.state), u32_of_len(index));
            let new = self
                .store
                .apply_change(token, change, state, lsn, index, scratch)?;
            all.push(new.expect("a table that is changed is known"));
        }
        Ok(all)
    }

    /// Applies the writes, those to changed tables to the trees that these will get.
    fn write_to_tables(
        &self,
        token: &ApplyToken<'_>,
        (set, new): (&WriteSet, &mut [NewTree]),
        lsn: Lsn,
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let marks = Marks {
            lsn,
            multi_lsn: lsn,
        };
        let mut new_of = vec![None; set.tables.len()];
        for (index, (table, _)) in set.table_changes.iter().enumerate() {
            new_of[*table] = Some(index);
        }
        for (table, key, value) in set.writes() {
            let state = &set.tables[table].state;
            let place = Place::default();
            let at = (key, &place, value);
            let tree = match new_of[table].map(|index| &mut new[index]) {
                None => {
                    self.apply_one(token, state, marks, at, ids, scratch)?;
                    state.tree()
                }
                Some(new) => {
                    let tree = new.tree();
                    if let Some(tree) = tree {
                        new.entries += self.apply_to(token, tree, marks, at, ids, scratch)?;
                    }
                    tree
                }
            };
            let tree = tree.ok_or_else(|| Error::NoSuchTable {
                name: state.name.to_string(),
            })?;
            self.stripes.stamp_with(self.stripes.of(tree.id, key), lsn);
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_sync::thread;

    use crate::{Db, Error};

    /// Behind the last checkpoint nobody would write its record.
    #[test]
    fn a_job_that_has_not_entered_the_gate_when_the_store_closes_changes_nothing() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let engine = db.engine().clone();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        thread::scope(|scope| {
            let emptying = scope.spawn(|| db.clear_tables(&[&table]));
            while !engine.store.pool.gate().is_closed() {
                thread::yield_now();
            }
            let closing = scope.spawn(|| db.clone().close());
            while !engine.store.life.is_closing() {
                thread::yield_now();
            }
            drop(guard);
            let emptied = emptying.join().unwrap();
            assert!(matches!(emptied, Err(Error::Closed)), "{emptied:?}");
            closing.join().unwrap().unwrap();
        });
    }

    /// A commit is cut off between its record and its pages while the job waits for the gate.
    #[test]
    fn a_change_that_is_cut_off_ends_a_job_that_has_begun() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let table = db.table("t").unwrap();
        let engine = db.engine().clone();
        let guard = engine.store.pool.gate().try_enter().unwrap();
        thread::scope(|scope| {
            let emptying = scope.spawn(|| db.clear_tables(&[&table]));
            while !engine.store.pool.gate().is_closed() {
                thread::yield_now();
            }
            engine.append_only(b"a record that nobody applies");
            engine.poison("a test");
            drop(guard);
            let emptied = emptying.join().unwrap();
            assert!(
                matches!(emptied, Err(Error::Poisoned { .. })),
                "{emptied:?}"
            );
        });
        // The thread of jobs goes on: it has not panicked.
        let again = db.clear_tables(&[&table]);
        assert!(matches!(again, Err(Error::Poisoned { .. })), "{again:?}");
        assert!(!engine.jobs.is_closed(), "its thread has ended");
    }
}
