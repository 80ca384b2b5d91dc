//! A put of one short value that meets nothing unusual, which is most commits: the steps of
//! [`crate::commit::steps`], in the same order, without a write set and what only batches need.
//!
//! Each step either succeeds at once, or the put is given up before its record is logged, with
//! nothing in hand and nothing changed. The caller then commits a batch of one write, which waits
//! for whatever was in the way, or says what is wrong. So this never blocks, keeps no place in any
//! queue, and returns no errors but those of a change that was cut off.

use pando_format::Lsn;
use pando_format::log::RecordKind;
use pando_pool::{ApplyToken, Marks};
use pando_stats::Sampled;
use pando_sync::Arc;
use pando_sync::held::{Kind, assert_none};
use pando_sync::time::{self, Instant};
use pando_tree::{Place, Scratch, Tree};
use pando_wal::{Acknowledge, LogReservation};

use crate::commit::buffers::TakenBuffer;
use crate::commit::pages::PAGES_OF_PUT;
use crate::commit::put_scratch::PutScratch;
use crate::engine::Engine;
use crate::error::Result;
use crate::profile::{CommitStep, Steps};
use crate::space::id_turns::IdWait;
use crate::space::reservations::{BlockReservation, IdReservation};
use crate::space::urgency::Urgency;
use crate::tables::state::TableState;
use crate::writes::set::Value;

/// A put that was carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Put {
    /// The LSN of its record.
    pub(crate) lsn: Lsn,
    /// When it began, if it is one of those that are timed.
    pub(crate) begun: Option<Instant>,
}

/// What a put has reserved. Dropped in this order: see `steps::Reserved`.
struct Reserved<'a> {
    /// Pages for garbage rows.
    garbage: u64,
    _blocks: BlockReservation<'a>,
    /// None of them: a short value has no chunks.
    ids: IdReservation<'a>,
    log: Option<LogReservation<'a>>,
}

impl Engine {
    /// Sets `key` of a table to `value`, if nothing is in the way; returns None, and has changed
    /// nothing, if anything is. Does not block. `acknowledge` says whether the caller will wait for
    /// the record.
    ///
    /// # Errors
    /// [`crate::Error::Poisoned`] if the change could not be completed.
    pub(crate) fn try_put(
        &self,
        state: &Arc<TableState>,
        (key, value): (&[u8], &[u8]),
        acknowledge: Acknowledge,
    ) -> Result<Option<Put>> {
        let is_short = value.len() <= self.store.pool.page_size().bytes() / 4;
        let is_usual = is_short
            && !self.old_versions.snapshots.is_on()
            && self.check_key(key).is_ok()
            && self.check_writable().is_ok();
        let noted = state.note();
        let Some(tree) = noted.tree.filter(|_| is_usual) else {
            return Ok(None);
        };
        let begun = Sampled::Writes.is_due().then(time::now);
        let mut steps = Steps::new(begun);
        let mut scratch = TakenBuffer::<PutScratch>::take();
        let PutScratch {
            payload,
            tree: work,
        } = &mut *scratch;
        payload.clear();
        payload.put(tree.id, key, value);
        let Some(mut reserved) = self.reserve_put(payload.payload_bytes()) else {
            return Ok(None);
        };
        let Ok(place) = tree.try_find_place(&self.store.pool, key) else {
            return Ok(None);
        };
        steps.end(CommitStep::Prepare);
        let Some(locked) = self.stripes.try_lock_one(self.stripes.of(tree.id, key)) else {
            return Ok(None);
        };
        let Some(guard) = self.store.pool.gate().try_enter() else {
            return Ok(None);
        };
        let is_locked = locked.is_marked() || self.locks.has_tables();
        let section = self.begin_section();
        steps.end(CommitStep::Lock);
        if is_locked || !state.has_noted(noted) || !self.is_still_usual(&reserved) {
            return Ok(None);
        }
        steps.end(CommitStep::Check);
        section.begin_changes();
        let room = reserved.log.take().expect("it is spent once");
        let lsn = self
            .log
            .append(room, RecordKind::Batch, acknowledge, payload.payload());
        self.checkpoint.assert_behind(lsn);
        debug_assert!(self.log.applied() < lsn, "it is applied already");
        steps.end(CommitStep::Append);
        let token = self.store.pool.apply_token(&guard);
        let put = (&place, (key, value));
        self.apply_put(&token, state, (tree, lsn), put, &reserved.ids, work)
            .map_err(|error| self.poisoned_by(&error))?;
        assert_none(&[Kind::Latch]);
        locked.stamp_with(lsn);
        self.log.mark_applied(lsn);
        section.end_changes(PAGES_OF_PUT + reserved.garbage);
        drop(section);
        drop(guard);
        drop(locked);
        steps.end(CommitStep::Apply);
        self.count_commit(begun);
        Ok(Some(Put { lsn, begun }))
    }

    /// Applies a put whose record has `lsn` to the tree that the table has.
    #[inline]
    fn apply_put(
        &self,
        token: &ApplyToken<'_>,
        state: &Arc<TableState>,
        (tree, lsn): (Tree, Lsn),
        (place, (key, value)): (&Place, (&[u8], &[u8])),
        ids: &IdReservation<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let multi_lsn = Lsn(0);
        let marks = Marks { lsn, multi_lsn };
        let entries = (place, (key, value), std::iter::empty());
        let run = tree.put_run(&self.store.pool, token, marks, entries, scratch);
        self.count_run(state, &run);
        if run.records > 0 {
            return Ok(());
        }
        let write = (key, place, Some(Value::Bytes(value)));
        self.apply_one(token, state, marks, write, ids, scratch)
    }

    /// Returns false if what was found before the gate holds no longer inside: a snapshot may need
    /// what the put replaces, or that may lie in chunks, or the store closes.
    #[inline]
    fn is_still_usual(&self, reserved: &Reserved<'_>) -> bool {
        !self.old_versions.snapshots.is_on()
            && self.store.garbage_pages(1, false) <= reserved.garbage
            && !self.store.life.is_closing()
    }

    /// Takes all that a put reserves, if it can be had at once, and nobody waits for the end of a
    /// reservation: then the batch takes its turn, and nothing is reserved to be given back.
    #[inline]
    fn reserve_put(&self, bytes: usize) -> Option<Reserved<'_>> {
        let is_usual = self.underfull_leaves.has_room()
            && bytes <= self.log.max_batch_bytes()
            && !self.store.space.is_awaited();
        if !is_usual {
            return None;
        }
        let log = self.log.try_reserve(bytes).ok()??;
        let garbage = self.store.garbage_pages(1, false);
        let pages = PAGES_OF_PUT + garbage;
        if self.store.is_too_short_for(pages, false) {
            return None;
        }
        let space = &self.store.space;
        let committed = || self.store.committed_blocks();
        let blocks = pages * u64::from(self.store.page_blocks());
        let blocks = space.try_reserve(blocks, committed, Urgency::No)?;
        if !self.store.dirty_room(pages) {
            return None;
        }
        let need = IdWait::default().need(pages, false);
        let ids = space.try_reserve_ids(&need, 0, || self.store.ids_for(&need))?;
        Some(Reserved {
            garbage,
            _blocks: blocks,
            ids,
            log: Some(log),
        })
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use super::*;
    use crate::{Db, Isolation, Table, TransactionOptions};

    const KEY: &[u8] = b"key";

    /// A store, and a table in which the key is.
    fn store() -> (Db, Table) {
        let options = Db::builder().max_memory(16 << 20).page_size(4096);
        let db = options.open_in_memory().expect("it opens");
        let table = db.table("t").expect("it is made");
        table.put(KEY, b"0").expect("there is room");
        (db, table)
    }

    /// Whether a put of `value` goes the short way. If not, it must have left nothing behind.
    fn is_put(db: &Db, table: &Table, value: &[u8]) -> bool {
        let engine = db.engine();
        let reserved_end = engine.log.reserved_end();
        let put = engine.try_put(&table.state, (KEY, value), Acknowledge::AtOnce);
        let is_put = put.expect("nothing is broken").is_some();
        if !is_put {
            assert_eq!(engine.log.reserved_end(), reserved_end, "nothing is logged");
        }
        assert_eq!(engine.store.space.reserved_blocks(), 0, "all is given back");
        let stripe = engine
            .stripes
            .of(table.state.tree().expect("it is there").id, KEY);
        assert!(engine.stripes.has_no_writer(stripe), "its stripe is free");
        is_put
    }

    #[test]
    fn a_put_goes_the_short_way_unless_something_is_in_its_way() {
        let (db, table) = store();
        let engine = db.engine();
        let put = |value: &[u8]| is_put(&db, &table, value);
        assert!(put(b"1"));
        assert!(put(&[1; 1024]) && !put(&[1; 1025]), "a quarter of a page");

        let stripe = engine.stripes.of(table.state.tree().unwrap().id, KEY);
        let locked = engine.stripes.try_lock_one(stripe).unwrap();
        let put_beside = engine.try_put(&table.state, (KEY, b"4"), Acknowledge::AtOnce);
        assert!(
            put_beside.unwrap().is_none(),
            "another commit has its stripe"
        );
        drop(locked);

        let closed = engine.store.close_gate();
        assert!(!put(b"5"), "the gate is closed");
        drop(closed);
        assert!(put(b"6"));
        assert_eq!(table.get(KEY).unwrap().unwrap(), b"6");

        let _snapshot = db.snapshot().unwrap();
        assert!(!put(b"7"), "a snapshot needs what it replaces");
    }

    /// The key of a lock may only be written by who has it.
    #[test]
    fn a_put_does_not_pass_a_lock() {
        let (db, table) = store();
        let options = TransactionOptions::default().isolation(Isolation::ReadCommitted);
        let mut transaction = db.begin(options).unwrap();
        transaction.lock(&table, &[KEY]).unwrap();
        assert!(!is_put(&db, &table, b"1"));
        transaction.rollback();
        table.put(KEY, b"2").unwrap();
        assert!(is_put(&db, &table, b"3"));
    }

    /// Who has read the key sees by its stamp that it was put.
    #[test]
    fn a_put_is_a_conflict_for_who_has_read_its_key() {
        let (db, table) = store();
        let mut new = 0;
        let value = table.update(KEY, |old| {
            new += 1;
            if new == 1 {
                assert!(is_put(&db, &table, b"7"));
            }
            old.map(|old| [old, b"+"].concat())
        });
        assert_eq!(value.unwrap().unwrap(), b"7+");
        assert_eq!(new, 2, "it ran again");
    }

    /// A put behind the drop of its table is refused, though its handle is older.
    #[test]
    fn a_dropped_table_takes_no_put() {
        let (db, table) = store();
        db.drop_table("t").unwrap();
        let put = db
            .engine()
            .try_put(&table.state, (KEY, b"1"), Acknowledge::AtOnce);
        assert!(put.unwrap().is_none());
        table.put(KEY, b"1").unwrap_err();
    }

    #[test]
    fn a_leaf_that_left_memory_is_not_read_here() {
        let (db, table) = store();
        for number in 0..300_u32 {
            let key = [KEY, &number.to_be_bytes()[..]].concat();
            table.put(&key, &[7; 1000]).unwrap();
        }
        db.checkpoint().unwrap();
        let pool = &db.engine().store.pool;
        for _ in 0..10 {
            pool.sweep(pool.frames(), pool.frames(), &mut Vec::new());
        }
        assert!(!is_put(&db, &table, b"1"));
        table.put(KEY, b"2").unwrap();
        assert!(is_put(&db, &table, b"3"));
    }
}
