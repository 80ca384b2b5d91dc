//! Page ids for the new chunks of a commit and for the pages that it may make, and room for a
//! mapping of that many pages (decision 065).
//!
//! Running commits reserve many more ids than they use, and give them back in a moment. So a commit
//! is refused only if too few are left for it alone; otherwise it waits for the end of reservations
//! of others (decision 097). It waits with nothing in hand, as every step does, and outside of the
//! gate, and whoever has reserved ids needs no more of them: so nobody waits in a circle.

use crate::blobs::value::LargeValue;
use crate::commit::scratch::CommitScratch;
use crate::engine::Engine;
use crate::error::Error;
use crate::space::growth::MadeRoom;
use crate::space::id_turns::{IdNeed, IdWait};
use crate::space::reservations::IdReservation;
use crate::space::urgency::{IDS_FOR_DELETES, Urgency};
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::set::WriteSet;

/// Number of new chunks of a batch.
pub(crate) fn chunks_of(set: &WriteSet) -> u64 {
    set.large().map(LargeValue::new_chunks).sum()
}

impl Engine {
    /// Reserves ids for the new chunks of a batch, whose blocks were taken when the chunks were
    /// written. The blocks of `pages` pages are reserved; it may make `spare` more pages. `wait` is
    /// that of the operation.
    ///
    /// # Errors
    /// As [`Engine::reserve_page_ids`].
    #[inline]
    pub(crate) fn reserve_ids(
        &self,
        set: &WriteSet,
        ((pages, spare), urgency): ((u64, u64), Urgency),
        wait: &mut IdWait,
    ) -> Step<IdReservation<'_>> {
        let chunks = chunks_of(set);
        let urgent = urgency.takes_last_ids();
        let mut ids = self.reserve_page_ids((pages, chunks + spare), urgent, wait)?;
        ids.set_spare(spare);
        Ok(ids)
    }

    /// Reserves ids for `chunks`, besides those for `pages`, whose blocks are reserved. An `urgent`
    /// caller, a delete, may take ids for which a merge of the mapping has no room.
    ///
    /// # Errors
    /// [`WaitReason::PageIds`] when others have reserved too many; [`WaitReason::Checkpoint`] when
    /// the next one frees enough; [`Error::Full`] when fewer ids are left than it needs, and when a
    /// merge would have no room on a full disk.
    #[inline]
    pub(crate) fn reserve_page_ids(
        &self,
        (pages, chunks): (u64, u64),
        urgent: bool,
        wait: &mut IdWait,
    ) -> Step<IdReservation<'_>> {
        let need = wait.need(pages + chunks, urgent);
        let available = || self.store.ids_for(&need);
        match self.store.space.try_reserve_ids(&need, chunks, available) {
            Some(reservation) => {
                *wait = IdWait::default();
                Ok(reservation)
            }
            None => self.reserve_scarce_ids(&need, chunks, wait),
        }
    }

    /// As [`Engine::reserve_page_ids`], after an attempt that failed.
    #[cold]
    fn reserve_scarce_ids(
        &self,
        need: &IdNeed,
        chunks: u64,
        wait: &mut IdWait,
    ) -> Step<IdReservation<'_>> {
        loop {
            let are_few = || need.ids > self.store.ids_at_most(need.urgent);
            if are_few() {
                let refused = self.without_ids(need);
                // Some may have come since the first look.
                if are_few() {
                    return Err(refused);
                }
            }
            if !need.urgent {
                // Background work makes room ahead of time; here it was too slow, or too little.
                self.store.keep_mapping_room_for(need);
            }
            let available = || self.store.ids_for(need);
            let space = &self.store.space;
            if let Some(reservation) = space.try_reserve_ids(need, chunks, available) {
                *wait = IdWait::default();
                return Ok(reservation);
            }
            if need.ids <= available() {
                return Err(self.refused_ids(need, wait));
            }
            if need.ids > self.store.ids_at_most(need.urgent) {
                // Others have taken some meanwhile.
                continue;
            }
            if self.may_wait_for_freed_ids(need) {
                return Err(WaitReason::Checkpoint(self.checkpoint.ask()).into());
            }
            if !need.urgent {
                self.make_mapping_room()?;
            }
        }
    }

    /// Makes room for a mapping of more pages on a full disk, or says what it comes from.
    fn make_mapping_room(&self) -> Step<()> {
        // A kept checkpoint has a mapping of its own.
        match self.make_room(true) {
            MadeRoom::Now => Ok(()),
            MadeRoom::Later => Err(WaitReason::Checkpoint(self.checkpoint.ask()).into()),
            MadeRoom::None => Err(self.store.mapping_reserve.error().into()),
        }
    }

    /// Returns why an operation cannot continue for which too few ids are left: it waits for the
    /// checkpoint behind which those of freed pages may be used again, also while garbage is being
    /// freed.
    fn without_ids(&self, need: &IdNeed) -> Unfinished {
        let comes = || self.room_comes() || self.end_keeping_snapshot();
        match self.may_wait_for_freed_ids(need) || comes() {
            true => WaitReason::Checkpoint(self.checkpoint.ask()).into(),
            false => self.page_ids_error(need.ids).into(),
        }
    }

    /// Returns whether there are enough ids for which a merge of the mapping has room, counting
    /// those that were freed since the last checkpoint, and whether there will be another one.
    fn may_wait_for_freed_ids(&self, need: &IdNeed) -> bool {
        let without_room = self.store.mapping_reserve.ids_without_room();
        let most = need.ids + (without_room + IDS_FOR_DELETES) * u64::from(!need.urgent);
        most <= self.store.pool.page_ids().available() && !self.store.life.is_checkpoint_stalled()
    }

    /// Returns why an operation cannot continue that others keep from its ids.
    fn refused_ids(&self, need: &IdNeed, wait: &mut IdWait) -> Unfinished {
        if self.store.life.is_short() {
            // Some of the others wait for room on the disk, perhaps for long.
            return self.page_ids_error(need.ids).into();
        }
        self.store.space.refused_ids(wait);
        WaitReason::PageIds(wait.need(need.ids, need.urgent)).into()
    }

    /// For a commit that was refused ids before: says to wait on, before it reserves anything, if
    /// it would be refused again. What it reserves meanwhile would keep others from theirs, and
    /// giving that back would wake them for nothing.
    pub(crate) fn look_for_ids(&self, set: &WriteSet, scratch: &mut CommitScratch) -> Step<()> {
        let pages = self.pages_of(set, self.garbage_pages(set), None);
        let ids = pages + chunks_of(set);
        self.look_for_page_ids(ids, set.urgency(), &mut scratch.id_wait)
    }

    /// As [`Engine::look_for_ids`], for any operation; `wait` is its own.
    pub(crate) fn look_for_page_ids(
        &self,
        ids: u64,
        urgency: Urgency,
        wait: &mut IdWait,
    ) -> Step<()> {
        let need = wait.need(ids, urgency.takes_last_ids());
        match wait.is_refused() && self.store.awaits_ids(&need) {
            true => Err(self.refused_ids(&need, wait)),
            false => Ok(()),
        }
    }

    /// The error for a store that does not have `needed` page ids.
    pub(crate) fn page_ids_error(&self, needed: u64) -> Error {
        let limit = u64::from(self.store.pool.page_ids().limit());
        let left = self.store.ids_at_most(false);
        let wanted = limit.saturating_sub(left) + needed;
        // The page table is a part of the budget.
        let times = wanted.div_ceil(limit.max(1)).max(2);
        let budget = self.options.max_memory;
        let what = format!(
            "{needed} pages are needed, and {left} are left of the {limit} that the page table of \
             max_memory {budget} holds; raise max_memory to {}",
            budget.saturating_mul(times)
        );
        Error::Full { what }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use pando_device::{AnyDevice, MemoryDevice};
    use pando_sync::thread;

    use super::*;
    use crate::{Batch, Db, Durability, Table, WriteOptions};

    const THREADS: u32 = 1000;
    const CHUNK_BYTES: u64 = 4096;

    /// Returns a store of 16 MiB with a table in which each thread has a key.
    fn store() -> (Db, Table) {
        let device = AnyDevice::from(MemoryDevice::new(1 << 30));
        let options = Db::builder().max_memory(16 << 20).chunk_size(CHUNK_BYTES);
        let db = Db::open_device(options, device).expect("it opens");
        let table = db.table("t").expect("it is made");
        for key in 0..THREADS {
            put(&table, key, 0).expect("there is room");
        }
        (db, table)
    }

    fn put(table: &Table, key: u32, round: u8) -> Result<(), Error> {
        let none = WriteOptions::durability(Durability::None);
        table.put_with(&key.to_be_bytes(), &[round; 400], none)
    }

    /// Takes all page ids but `left`.
    fn leave_ids(db: &Db, left: u64) {
        let pool = &db.engine().store.pool;
        let count = pool.page_ids().available() - left;
        pool.reserve_ids(count as usize, &mut Vec::new());
        db.engine().store.keep_mapping_room();
        assert_eq!(pool.page_ids().available(), left);
    }

    /// How many pages a batch makes is known of its leaves, about; ids for as many as it could make
    /// are reserved all the same, since a page without an id would poison the store.
    #[test]
    fn a_long_batch_has_ids_for_a_split_by_each_write() {
        const WRITES: u32 = 3000;
        let (db, table) = store();
        let batch = || {
            let mut batch = Batch::new();
            for number in 0..WRITES {
                let key = [b"neighbours".as_slice(), &number.to_be_bytes()].concat();
                batch.put(&table, &key, b"");
            }
            batch
        };
        db.write(&mut batch(), WriteOptions::default()).unwrap();
        leave_ids(&db, 3 * u64::from(WRITES));
        let refused = db.write(&mut batch(), WriteOptions::default());
        assert!(
            matches!(&refused, Err(Error::Full { what }) if what.contains("page table")),
            "{refused:?}"
        );
        assert_eq!(db.engine().store.space.reserved_blocks(), 0);
    }

    /// Replay frees the pages of values that are replaced, so no room is kept for them.
    #[test]
    fn pages_that_a_record_frees_are_not_counted() {
        let (db, table) = store();
        db.checkpoint().expect("a sound store");
        let none = WriteOptions::durability(Durability::None);
        for round in 0..100 {
            let put = table.put_with(b"in pages of its own", &[round; 3000], none);
            put.expect("there is room");
        }
        let epochs = db.engine().store.pool.epochs();
        assert_eq!((epochs.freed_total(), epochs.freed_changed_total()), (0, 0));
    }

    /// Runs `work` on each of many threads, of which no call is refused.
    fn crowd(threads: u32, work: impl Fn(u32) -> Result<(), Error> + Sync) {
        let refused: Vec<Error> = thread::scope(|scope| {
            let work = &work;
            let all: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || work(thread)))
                .collect();
            let ends = all
                .into_iter()
                .map(|thread| thread.join().expect("it ends"));
            ends.filter_map(Result::err).collect()
        });
        let first = refused.first();
        assert!(first.is_none(), "{} are refused: {first:?}", refused.len());
    }

    /// Each put may make eleven pages, and most of them make none.
    #[test]
    fn a_thousand_threads_put_with_few_page_ids_left() {
        let (db, table) = store();
        leave_ids(&db, IDS_FOR_DELETES + 50);
        crowd(THREADS, |thread| {
            (0..300).try_for_each(|round| put(&table, thread, round as u8))
        });
    }

    /// The ids of an emptied table can be used at once.
    #[test]
    fn a_table_is_filled_again_with_few_page_ids_left() {
        let (db, table) = store();
        let fill = |keys: u32| (0..keys).try_for_each(|key| put(&table, key, 1));
        leave_ids(&db, IDS_FOR_DELETES + 1000);
        let refused = fill(u32::MAX).unwrap_err();
        assert!(matches!(refused, Error::Full { .. }), "{refused}");
        for _ in 0..5 {
            db.clear_tables(&[&table]).expect("it frees ids");
            fill(5000).expect("there are as many ids as before");
        }
    }

    /// The error says what is needed, what is left, and how much memory would do.
    #[test]
    fn a_value_with_more_chunks_than_there_are_ids_is_refused_by_numbers() {
        let (db, table) = store();
        let limit = u64::from(db.engine().store.pool.page_ids().limit());
        leave_ids(&db, IDS_FOR_DELETES + 1000);
        let put = table.put_streamed(b"large", 100_000 * CHUNK_BYTES, std::io::repeat(7));
        let text = put.unwrap_err().to_string();
        let words = [
            format!(" left of the {limit} that the page table of max_memory 16777216 holds"),
            format!("raise max_memory to {}", 2 << 24),
        ];
        assert!(words.iter().all(|of| text.contains(of)), "{text}");
        table
            .put_streamed(b"large", 500 * CHUNK_BYTES, std::io::repeat(7))
            .expect("that is left");
    }

    /// Where puts find no more ids, many keys can be deleted at once, and many tables dropped.
    #[test]
    fn ids_are_left_for_deletes() {
        let (db, table) = store();
        let others: Vec<Table> = (0..32)
            .map(|number| db.table(&format!("{number}")).expect("there is room"))
            .collect();
        leave_ids(&db, IDS_FOR_DELETES + 1000);
        let fitted = (0_u32..).find(|key| put(&table, *key, 1).is_err());
        let keys = fitted.expect("ids run out");
        let mut batch = Batch::new();
        (0..1000).for_each(|key: u32| batch.delete(&table, &key.to_be_bytes()));
        db.write(&mut batch, WriteOptions::default())
            .expect("some ids are left");
        let others: Vec<&Table> = others.iter().collect();
        db.clear_tables(&others).expect("some ids are left");
        db.clear_tables(&[&table]).expect("some ids are left");
        (0..keys / 2).for_each(|key| put(&table, key, 2).expect("the ids came back"));
    }

    /// More chunks than the pages for which a mapping has room ahead of time.
    #[test]
    fn a_value_of_very_many_chunks_finds_room_for_its_mapping() {
        let (db, table) = store();
        for chunks in [12_000, 30_000, 60_000] {
            let put = table.put_streamed(b"large", chunks * CHUNK_BYTES, std::io::repeat(7));
            put.expect("the disk has room, and so has the page table");
        }
        db.checkpoint().expect("a sound store");
    }

    #[test]
    fn threads_put_new_chunks_with_few_page_ids_left() {
        const THREADS: u32 = 200;
        const CHUNKS: u64 = 6;
        let (db, table) = store();
        // All new chunks find ids, and so do the leaves that they need.
        let new = u64::from(THREADS) * 2 * CHUNKS;
        leave_ids(&db, new + 100 + IDS_FOR_DELETES);
        let none = WriteOptions::durability(Durability::None);
        crowd(THREADS, |thread| {
            (0..2_u8).try_for_each(|round| {
                let key = [b'c', round, (thread >> 8) as u8, thread as u8];
                let bytes = CHUNKS * CHUNK_BYTES;
                table.put_streamed_with(&key, bytes, std::io::repeat(round), none)?;
                put(&table, thread, round)
            })
        });
    }
}
