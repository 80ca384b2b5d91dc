//! LMDB through heed: one write at a time, readers on a memory map.

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, PutFlags, RoTxn, WithTls};
use pando_bench::Result;
use pando_peers_native::{LmdbConfig, open_lmdb};

use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed};

struct Lmdb {
    env: Env,
    database: Database<'static, Bytes, Bytes>,
    config: LmdbConfig,
}

struct LmdbWorker<'a> {
    engine: &'a Lmdb,
    /// A snapshot that reads have; none while it writes.
    snapshot: Option<RoTxn<'a, WithTls>>,
    value: Vec<u8>,
}

/// Address space that the file may grow to: a map is not memory, so there is plenty.
fn map_bytes(data_bytes: u64) -> usize {
    let bytes = data_bytes.saturating_mul(6).saturating_add(1 << 30);
    usize::try_from(bytes.next_multiple_of(1 << 20)).unwrap_or(1 << 40)
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let config = LmdbConfig {
        map_bytes: map_bytes(setup.data_bytes),
        readers: u32::try_from(setup.threads + 126).unwrap_or(u32::MAX),
        durable: setup.durability == Level::Durable,
        read_ahead: !setup.is_out_of_memory(),
    };
    let env = open_lmdb(&setup.dir, config).map_err(failed("lmdb: opening"))?;
    let txn = env.write_txn().map_err(failed("lmdb: opening"))?;
    let created = env.create_databases_and_commit(txn, |opener, txn| {
        let database = opener.create_database::<Bytes, Bytes>(txn, None)?;
        Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(database))
    });
    let database = created
        .map_err(failed("lmdb: making the database"))?
        .unwrap_commit();
    Ok(Box::new(Lmdb {
        env,
        database,
        config,
    }))
}

impl Engine for Lmdb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(LmdbWorker {
            engine: self,
            snapshot: None,
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.env.force_sync().map_err(failed("lmdb: syncing"))
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn settings(&self) -> Settings {
        let LmdbConfig {
            map_bytes,
            durable,
            read_ahead,
            ..
        } = self.config;
        let is_set = |set: bool| if set { "set" } else { "not set" }.to_owned();
        vec![
            ("version", heed::lmdb_version().string.to_owned()),
            ("map_size", map_bytes.to_string()),
            ("MDB_NOSYNC", is_set(!durable)),
            ("MDB_NORDAHEAD", is_set(!read_ahead)),
            (
                "transactions",
                "serializable: one that puts at a time; where nothing is put, a read transaction"
                    .to_owned(),
            ),
            ("cache", "the page cache".to_owned()),
            (
                "read_transaction",
                "one for each thread, renewed before each read while another thread writes"
                    .to_owned(),
            ),
        ]
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

impl<'a> LmdbWorker<'a> {
    fn snapshot(&mut self) -> Result<(&'a Lmdb, &RoTxn<'a, WithTls>)> {
        let engine = self.engine;
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => engine
                .env
                .read_txn()
                .map_err(failed("lmdb: beginning a read"))?,
        };
        Ok((engine, self.snapshot.insert(snapshot)))
    }
}

impl LmdbWorker<'_> {
    fn put_all(&mut self, entries: &[(Vec<u8>, Vec<u8>)], flags: PutFlags) -> Result<()> {
        self.snapshot = None;
        let Lmdb { env, database, .. } = self.engine;
        let mut txn = env.write_txn().map_err(failed("lmdb: beginning"))?;
        for (key, value) in entries {
            database
                .put_with_flags(&mut txn, flags, key, value)
                .map_err(failed("lmdb: put"))?;
        }
        txn.commit().map_err(failed("lmdb: commit"))
    }
}

impl Worker for LmdbWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.put_all(entries, PutFlags::empty())
    }

    fn append_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.put_all(entries, PutFlags::APPEND)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.snapshot = None;
        let Lmdb { env, database, .. } = self.engine;
        let mut txn = env.write_txn().map_err(failed("lmdb: beginning"))?;
        database
            .put(&mut txn, key, value)
            .map_err(failed("lmdb: put"))?;
        txn.commit().map_err(failed("lmdb: commit"))
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let (engine, snapshot) = self.snapshot()?;
        let value = engine
            .database
            .get(snapshot, key)
            .map_err(failed("lmdb: get"))?;
        if let Some(value) = value {
            read(key, value);
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], read: ReadAt<'_>) -> Result<()> {
        let (engine, snapshot) = self.snapshot()?;
        for (at, key) in keys.iter().enumerate() {
            let value = engine.database.get(snapshot, key);
            read(at, value.map_err(failed("lmdb: get"))?);
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        use std::ops::Bound::{Included, Unbounded};
        let (engine, snapshot) = self.snapshot()?;
        let range = (Included(from), Unbounded);
        let entries = engine
            .database
            .range(snapshot, &range)
            .map_err(failed("lmdb: seek"))?;
        for entry in entries.take(limit) {
            let (key, value) = entry.map_err(failed("lmdb: next"))?;
            read(key, value);
        }
        Ok(())
    }

    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        self.snapshot = None;
        if entries.is_empty() {
            self.multi_get(reads, read)?;
            return Ok(0);
        }
        let Lmdb { env, database, .. } = self.engine;
        let mut txn = env.write_txn().map_err(failed("lmdb: beginning"))?;
        for (at, key) in reads.iter().enumerate() {
            let value = database.get(&txn, key);
            read(at, value.map_err(failed("lmdb: get"))?);
        }
        for (key, value) in entries {
            database
                .put(&mut txn, key, value)
                .map_err(failed("lmdb: put"))?;
        }
        txn.commit().map_err(failed("lmdb: commit"))?;
        Ok(0)
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.snapshot = None;
        let Lmdb { env, database, .. } = self.engine;
        let mut txn = env.write_txn().map_err(failed("lmdb: beginning"))?;
        let old = database.get(&txn, key).map_err(failed("lmdb: get"))?;
        change(old, &mut self.value);
        database
            .put(&mut txn, key, &self.value)
            .map_err(failed("lmdb: put"))?;
        txn.commit().map_err(failed("lmdb: commit"))
    }

    fn renew(&mut self) {
        self.snapshot = None;
    }
}
