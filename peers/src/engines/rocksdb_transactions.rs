//! RocksDB with transactions: an `OptimisticTransactionDB` in the place of the plain one, which
//! keeps write buffers longer, to look for conflicts in them.

use ::rocksdb::{
    ErrorKind, OptimisticTransactionDB, OptimisticTransactionOptions, ReadOptions,
    WaitForCompactOptions, WriteBatchWithTransaction, WriteOptions,
};
use pando_bench::Result;

use super::rocksdb::{Opened, common_settings};
use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::failed;

struct RocksDb {
    db: OptimisticTransactionDB,
    opened: Opened,
}

struct RocksWorker<'a> {
    engine: &'a RocksDb,
    reads: ReadOptions,
    writes: WriteOptions,
    value: Vec<u8>,
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let mut opened = Opened::new(setup);
    let db = OptimisticTransactionDB::open(&opened.options, &setup.dir)
        .map_err(failed("rocksdb: opening"))?;
    opened.look(&setup.dir);
    Ok(Box::new(RocksDb { db, opened }))
}

impl Engine for RocksDb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        let mut writes = WriteOptions::default();
        writes.set_sync(self.opened.durable);
        Ok(Box::new(RocksWorker {
            engine: self,
            reads: ReadOptions::default(),
            writes,
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.db.flush_wal(true).map_err(failed("rocksdb: syncing"))
    }

    fn settle(&self) -> Result<()> {
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        self.db
            .wait_for_compact(&options)
            .map_err(failed("rocksdb: waiting for compaction"))
    }

    fn settings(&self) -> Settings {
        let mut settings = common_settings(&self.opened);
        settings.extend([
            (
                "transactions",
                "OptimisticTransactionDB, GetForUpdate of each key that is read: serializable for \
                 these keys"
                    .to_owned(),
            ),
            ("multi_get", "one after the other".to_owned()),
            ("update", "a transaction".to_owned()),
        ]);
        settings
    }
}

impl RocksWorker<'_> {
    /// Runs a transaction until no other has changed what it reads; returns how often it was
    /// repeated.
    fn until_committed(
        &mut self,
        mut run: impl FnMut(
            &::rocksdb::Transaction<'_, OptimisticTransactionDB>,
            &mut Vec<u8>,
        ) -> std::result::Result<(), ::rocksdb::Error>,
    ) -> Result<u64> {
        let options = OptimisticTransactionOptions::default();
        let mut repeats = 0;
        loop {
            let transaction = self.engine.db.transaction_opt(&self.writes, &options);
            let ran = run(&transaction, &mut self.value);
            match ran.and_then(|()| transaction.commit()) {
                Ok(()) => return Ok(repeats),
                Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::TryAgain) => {
                    repeats += 1;
                }
                Err(error) => return Err(failed("rocksdb: transaction")(error)),
            }
        }
    }
}

impl Worker for RocksWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatchWithTransaction::<true>::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        self.engine
            .db
            .write_opt(batch, &self.writes)
            .map_err(failed("rocksdb: write"))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine
            .db
            .put_opt(key, value, &self.writes)
            .map_err(failed("rocksdb: put"))
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let value = self.engine.db.get_pinned_opt(key, &self.reads);
        let value = value.map_err(failed("rocksdb: get"))?;
        if let Some(value) = &value {
            read(key, value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        let mut entries = self.engine.db.raw_iterator();
        entries.seek(from);
        for _ in 0..limit {
            let Some((key, value)) = entries.item() else {
                break;
            };
            read(key, value);
            entries.next();
        }
        entries.status().map_err(failed("rocksdb: next"))
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.until_committed(|transaction, value| {
            let old = transaction.get_pinned_for_update(key, true)?;
            change(old.as_deref(), value);
            drop(old);
            transaction.put(key, &value[..])
        })?;
        Ok(())
    }

    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        self.until_committed(|transaction, _| {
            for (at, key) in reads.iter().enumerate() {
                let value = transaction.get_pinned_for_update(key, false)?;
                read(at, value.as_deref());
            }
            for (key, value) in entries {
                transaction.put(key, value)?;
            }
            Ok(())
        })
    }
}
