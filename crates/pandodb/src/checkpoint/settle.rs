//! Settling: snapshots that read old versions in memory go on on disk (decision 071).
//!
//! A snapshot of LSN S is registered from before the cut of a checkpoint that is kept until after
//! this. So what it reads is in the pages of the checkpoint, pages of replaced values and of
//! dropped trees too, but for what batches from S to the checkpoint have replaced in leaves. That
//! is in the old versions, all of it since the cut. It is written to disk as a sorted run. Then the
//! snapshot reads checkpoint and run, and its registration ends.

use std::ops::ControlFlow;

use pando_format::Extent;
use pando_sync::time::Duration;
use pando_sync::{Arc, thread};
use pando_versions::NotExported;

use crate::engine::Engine;
use crate::error::Result;
use crate::kept::cut::KeptHandle;
use crate::kept::cuts::SettleFor;
use crate::kept::run::{Run, RunWriter};
use crate::kept::settled::Settled;
use crate::kept::young::Young;

/// Snapshots that are younger than this may end by themselves soon.
const AGE_MIN: Duration = Duration::from_secs(1);

impl Engine {
    /// How old a snapshot is that will hardly end by itself soon.
    pub(crate) fn settling_age(&self) -> Duration {
        self.options.settle_snapshots_after.min(AGE_MIN)
    }
}
/// How long nobody tries to settle a snapshot after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// How long nobody tries after keys were too long: others may be replaced by then.
const RETRY_LONG_KEYS: Duration = Duration::from_secs(600);
/// Pause of a run that waits for the data file to grow.
const PAUSE: Duration = Duration::from_millis(1);

impl Engine {
    /// Settles snapshots that are not newer than `cut`: the oldest, and those that are not very
    /// young. One that cannot be settled stays as it is.
    pub(super) fn settle_snapshots(&self, cut: &KeptHandle, settle_for: SettleFor) {
        let age = self.settling_age();
        let mut last: Option<Arc<Settled>> = None;
        for young in self.kept.young_until(cut.lsn(), age, settle_for) {
            let lsn = young.lsn();
            // Those of one LSN share a run.
            let settled = match last.filter(|last| last.lsn() == lsn) {
                Some(settled) => Ok(Some(settled)),
                None => self.settle(&young, cut),
            };
            last = match settled {
                Ok(Some(settled)) => {
                    young.settle(&settled);
                    tracing::info!(%lsn, "a snapshot goes on on disk");
                    Some(settled)
                }
                Ok(None) => None,
                Err(error) => {
                    tracing::warn!(%lsn, %error, "a snapshot stays in memory");
                    self.kept.note_failure(RETRY_AFTER);
                    None
                }
            };
        }
        // Old versions and garbage that nobody needs any longer.
        self.store.registry.want();
        self.store.space.growth.notify_all();
    }

    /// Notes that the checkpoint on which snapshots were to be settled is not kept.
    pub(super) fn settling_failed(&self) {
        self.kept.note_failure(RETRY_AFTER);
    }

    /// Returns what `young` reads on disk, with a run that is written for it. None if it has ended.
    fn settle(&self, young: &Young, cut: &KeptHandle) -> Result<Option<Arc<Settled>>> {
        let (lsn, registration) = (young.lsn(), young.registration());
        if !cut.share_run(lsn) {
            let Some(run) = self.write_run(young)? else {
                return Ok(None);
            };
            self.kept.check_run(run.memory_bytes())?;
            if !cut.add_run(lsn, run) {
                return Ok(None);
            }
        }
        let settled = Settled::before_checkpoint(lsn, cut.clone());
        // From here on the trees that tables had are kept for the run. If the registration has not
        // ended before, neither they nor anything that was exported is missing.
        Ok((!registration.is_ended()).then(|| Arc::new(settled)))
    }

    /// Takes `blocks` blocks of the data file, which may have to grow. Blocks, but not for room
    /// that the next checkpoint makes: that begins when this one has ended.
    ///
    /// # Errors
    /// [`Error::Full`]; [`Error::Closed`], [`Error::Poisoned`].
    fn blocks_for_run(&self, blocks: u32) -> Result<Extent> {
        let space = &self.store.space;
        loop {
            match space.try_take_run(blocks, || self.store.committed_blocks()) {
                Some(Some(extent)) => return Ok(extent),
                Some(None) => space.want_run(blocks),
                None => space.want(blocks.into()),
            }
            if space.is_full() || self.awaits_checkpoint_for_room() {
                return Err(space.full_error());
            }
            self.check_writable()?;
            thread::park_timeout(PAUSE);
        }
    }

    /// Writes what batches have replaced since `young`. Returns None if that has ended.
    fn write_run(&self, young: &Young) -> Result<Option<Run>> {
        let store = &self.store;
        let mut writer = RunWriter::new(&store.device, &store.data, &store.space);
        let mut failed = None;
        let exported = self
            .old_versions
            .versions
            .export(young.lsn(), |tree, key, record| {
                match writer.push((tree, key), record, |blocks| self.blocks_for_run(blocks)) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                }
            });
        match (exported, failed) {
            (_, Some(error)) => Err(error),
            (Err(NotExported::LongKey), None) => {
                let lsn = young.lsn();
                tracing::warn!(%lsn, "keys are too long for a snapshot to go on on disk");
                self.kept.note_failure(RETRY_LONG_KEYS);
                Ok(None)
            }
            (Err(NotExported::Ended | NotExported::Stopped), None) => Ok(None),
            (Ok(()), None) => {
                let run = writer.finish(|blocks| self.blocks_for_run(blocks))?;
                Ok(Some(run))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_device::FaultyDevice;
    use pando_sync::thread;
    use pando_sync::time::{Duration, now};

    use crate::engine::Engine;
    use crate::error::{Error, Result};
    use crate::kept::cut::KeptHandle;
    use crate::kept::cuts::SettleFor;
    use crate::{Db, Durability, Snapshot};

    fn open() -> Db {
        let options = Db::builder().durability(Durability::None);
        options.max_memory(64 << 20).open_in_memory().unwrap()
    }

    /// Makes a checkpoint that is kept, and calls `meanwhile` before it is.
    fn keep(db: &Db, meanwhile: impl FnOnce()) -> Result<KeptHandle> {
        let engine = db.engine();
        let mut files = engine.checkpoint.lock_files();
        let cut = engine.cut(files.mapping.is_empty(), true).unwrap();
        let lsn = cut.lsn;
        let written = engine.write_cut(&mut files, cut, |lsn| engine.wait_durable(lsn));
        written.unwrap();
        meanwhile();
        let kept = engine.keep_checkpoint(&mut files, lsn);
        engine.kept.add(kept)
    }

    /// Settles `snapshot`, and calls `meanwhile` before the checkpoint ends.
    fn settle(db: &Db, snapshot: &Snapshot, meanwhile: impl FnOnce()) {
        let engine = db.engine();
        let kept = keep(db, || ());
        engine.settle_snapshots(kept.as_ref().unwrap(), SettleFor::Age);
        assert!(snapshot.is_settled());
        meanwhile();
        engine.kept.finish(&[], &kept);
    }

    /// The trees that tables had between snapshot and checkpoint are kept all the time.
    #[test]
    fn a_table_that_changes_while_others_are_settled_is_read() {
        let db = open();
        let table = db.table("t").unwrap();
        table.put(b"key", b"old").unwrap();
        let snapshot = db.snapshot().unwrap();
        db.clear_tables(&[&table]).unwrap();
        table.put(b"key", b"new").unwrap();
        settle(&db, &snapshot, || {
            let another = db.table("another").unwrap();
            db.clear_tables(&[&another]).unwrap();
        });
        let value = snapshot.get(&table, b"key").unwrap();
        assert_eq!(value.as_deref(), Some(&b"old"[..]));
    }

    /// Another registration of its moment keeps nothing: versions may have gone.
    #[test]
    fn a_snapshot_that_was_settled_cannot_be_registered_again() {
        let db = open();
        let table = db.table("t").unwrap();
        table.put(b"key", b"old").unwrap();
        let snapshot = db.snapshot().unwrap();
        assert!(snapshot.register_again().unwrap().is_some());
        settle(&db, &snapshot, || ());
        let again = snapshot.register_again();
        assert!(matches!(again, Ok(None)), "{again:?}");
    }

    /// A checkpoint that ends after the store was closed settles nothing.
    #[test]
    fn a_closed_store_keeps_no_checkpoint() {
        let db = open();
        db.table("t").unwrap().put(b"key", b"value").unwrap();
        let kept = keep(&db, || db.engine().kept.end_all());
        assert!(matches!(kept, Err(Error::Closed)), "{kept:?}");
        assert_eq!(db.snapshot_stat(), crate::SnapshotStat::default());
    }

    /// The disk is full, and ends the checkpoint that was to be kept: its blocks are free only with
    /// the next one, for which the thread that settles must not wait.
    #[test]
    fn a_run_does_not_wait_for_the_next_checkpoint() {
        settle_on_full_disk(|_| ());
    }

    /// The same if keys were deleted, which makes room with the next checkpoint, too.
    #[test]
    fn a_run_does_not_wait_for_the_room_of_deletes() {
        settle_on_full_disk(|engine| engine.store.freed_room.note());
    }

    /// Settles a snapshot on a full disk, after `before`, as the thread that makes checkpoints.
    fn settle_on_full_disk(before: fn(&Engine)) {
        let device = FaultyDevice::new(1);
        let options = Db::builder()
            .durability(Durability::None)
            .settle_snapshots_after(Duration::from_secs(3600))
            .max_memory(64 << 20);
        let db = Db::open_device(options, device.clone().into()).unwrap();
        let table = db.table("t").unwrap();
        let put = |number: u32| table.put(&number.to_be_bytes(), &[1; 800]);
        (0..600).for_each(|number| put(number).unwrap());
        let snapshot = db.snapshot().unwrap();
        (0..600).for_each(|number| put(number).unwrap());
        device.set_capacity(1 << 20);
        let mut number = 600;
        // A checkpoint may make room for some more.
        let mut fills = || {
            let before = number;
            while put(number).is_ok() {
                number += 1;
            }
            db.checkpoint().unwrap();
            number > before
        };
        while fills() {}
        let of_thread = db.clone();
        let settles = thread::spawn(move || {
            let engine = of_thread.engine();
            // The thread that makes checkpoints holds them.
            let mut files = engine.checkpoint.lock_files();
            let cut = engine.cut(files.mapping.is_empty(), true).unwrap();
            let lsn = cut.lsn;
            let written = engine.write_cut(&mut files, cut, |lsn| engine.wait_durable(lsn));
            written.unwrap();
            let kept = engine.keep_checkpoint(&mut files, lsn);
            let kept = engine.kept.add(kept);
            before(engine);
            engine.settle_snapshots(kept.as_ref().unwrap(), SettleFor::Room);
            engine.kept.finish(&[], &kept);
        });
        let begun = now();
        while !settles.is_finished() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it waits for itself"
            );
            thread::sleep(Duration::from_millis(10));
        }
        settles.join().unwrap();
        assert!(!snapshot.is_settled());
        assert_eq!(
            snapshot.get(&table, &7_u32.to_be_bytes()).unwrap().unwrap(),
            [1; 800]
        );
        device.set_capacity(1 << 40);
        db.checkpoint().unwrap();
    }

    mod steps {
        use std::ops::Bound;

        use pando_sync::thread;
        use pando_sync::time::Duration;

        use crate::kept::cuts::SettleFor;
        use crate::nonblocking::{Opened, Polled, Reactor, ScanPage, Transaction, ValidatedBatch};
        use crate::{Db, Durability, Error, Isolation, Table, TransactionOptions};

        fn open() -> Db {
            let options = Db::builder()
                .durability(Durability::None)
                .chunk_values_over(16 << 10)
                .settle_snapshots_after(Duration::from_nanos(1));
            options.max_memory(64 << 20).open_in_memory().unwrap()
        }

        fn settle_all(db: &Db) {
            let kept = super::keep(db, || ());
            db.engine()
                .settle_snapshots(kept.as_ref().unwrap(), SettleFor::Room);
            db.engine().kept.finish(&[], &kept);
        }

        /// None if it has not ended after 200 attempts.
        fn ended<T>(
            reactor: &mut Reactor,
            mut call: impl FnMut() -> crate::Result<Polled<T>>,
        ) -> Option<crate::Result<T>> {
            let waker = pando_sync::thread_waker();
            for _ in 0..200 {
                match call() {
                    Ok(Polled::Ready(value)) => return Some(Ok(value)),
                    Ok(Polled::Pending(pending)) => {
                        reactor.park(pending, &waker).unwrap();
                        reactor.flush();
                        thread::park_timeout(Duration::from_millis(5));
                        reactor.poll().unwrap();
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            None
        }

        fn begun() -> (Db, Table, Reactor, Transaction) {
            let db = open();
            let table = db.table("t").unwrap();
            table.put(b"large", &vec![1; 100_000]).unwrap();
            table.put(b"overflow", &vec![2; 6_000]).unwrap();
            table.put(b"small", b"x").unwrap();
            let mut reactor = Reactor::new(&db, pando_sync::thread_waker()).unwrap();
            let options = TransactionOptions::default().isolation(Isolation::Snapshot);
            let mut transaction = Transaction::begin(&db, options, &reactor).unwrap();
            let mut out = Vec::new();
            let read = ended(&mut reactor, || transaction.get(&table, b"small", &mut out));
            assert!(read.unwrap().unwrap());
            settle_all(&db);
            assert!(transaction.inner.is_settled());
            (db, table, reactor, transaction)
        }

        /// As `Context::find_bytes` of the server does.
        #[test]
        fn a_step_reads_one_large_value() {
            let (db, table, mut reactor, transaction) = begun();
            let mut batch = ValidatedBatch::new(&db);
            batch.enter(Box::new(transaction));
            let mut out = Vec::new();
            let read = ended(&mut reactor, || {
                batch.rewind();
                match batch.get(&table, b"large", &mut out) {
                    Err(Error::InChunks) => Ok(batch
                        .open(&table, b"large", &mut out)?
                        .map(|opened| matches!(opened, Opened::Large(_)))),
                    other => other,
                }
            });
            assert!(matches!(read, Some(Ok(true))), "{read:?}");
        }

        /// As MGET of a large value and a small one, even if each is opened at once.
        #[test]
        fn a_step_reads_a_large_value_and_another() {
            let (db, table, mut reactor, transaction) = begun();
            let mut batch = ValidatedBatch::new(&db);
            batch.enter(Box::new(transaction));
            let mut out = Vec::new();
            let read = ended(&mut reactor, || {
                batch.rewind();
                if let Polled::Pending(pending) = batch.open(&table, b"large", &mut out)? {
                    return Ok(Polled::Pending(pending));
                }
                batch.get(&table, b"small", &mut out)
            });
            assert!(matches!(read, Some(Ok(true))), "{read:?}");
        }

        /// As `leaf` of KEYS, SCAN and DBSIZE in the server.
        #[test]
        fn a_walk_meets_a_long_value() {
            let (_db, table, mut reactor, mut transaction) = begun();
            let (mut page, mut out, mut from) = (ScanPage::default(), Vec::new(), Vec::new());
            let read = ended(&mut reactor, || {
                let bound = Bound::Excluded(&from[..]);
                let mut behind = from.clone();
                if let Polled::Pending(pending) = transaction.scan(&table, bound, &mut page)? {
                    return Ok(Polled::Pending(pending));
                }
                for index in 0..page.len() {
                    let (key, value) = page.entry(index);
                    if value.is_none()
                        && let Polled::Pending(pending) = transaction.open(&table, key, &mut out)?
                    {
                        from = behind;
                        return Ok(Polled::Pending(pending));
                    }
                    behind = key.to_vec();
                }
                Ok(Polled::Ready(page.next.is_none()))
            });
            assert!(matches!(read, Some(Ok(true))), "{read:?}");
        }

        /// The disk is full, so the checkpoint of the transaction is ended; then its table is
        /// emptied. Whatever it does next says that it has ended.
        #[test]
        fn a_transaction_whose_checkpoint_has_ended_has_ended() {
            let refused: [fn(&mut crate::Transaction, &Table) -> crate::Result<()>; 3] = [
                |transaction, table| transaction.lock(table, &[b"key"]),
                |transaction, table| transaction.get(table, b"key").map(drop),
                |transaction, table| {
                    transaction.put(table, b"key", b"mine")?;
                    transaction.commit_in_place().map(drop)
                },
            ];
            for call in refused {
                let db = open();
                let table = db.table("t").unwrap();
                table.put(b"key", b"old").unwrap();
                let options = TransactionOptions::default().isolation(Isolation::Snapshot);
                let mut transaction = db.begin(options).unwrap();
                assert!(transaction.contains(&table, b"key").unwrap());
                settle_all(&db);
                assert!(transaction.is_settled());
                db.engine().kept.end_oldest().unwrap();
                db.clear_tables(&[&table]).unwrap();
                let called = call(&mut transaction, &table);
                assert!(matches!(called, Err(Error::SnapshotEnded)), "{called:?}");
            }
        }

        /// Its chunks are known by name in the checkpoint only.
        #[test]
        fn the_head_of_a_large_value_on_disk_cannot_be_changed() {
            let (_db, table, mut reactor, mut transaction) = begun();
            let mut out = Vec::new();
            let read = ended(&mut reactor, || {
                transaction.open(&table, b"large", &mut out)
            });
            let Some(Ok(Opened::Large(stream))) = read else {
                panic!("{read:?}");
            };
            let value = stream.with_head(vec![7; 8]);
            assert!(matches!(value, Err(Error::SnapshotEnded)), "{value:?}");
        }
    }
}
