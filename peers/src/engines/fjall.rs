//! fjall: a log-structured tree with its own cache over buffered reads.

use ::fjall::{
    Database, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, PersistMode, Readable,
};
use pando_bench::Result;

use super::kind::crate_version;
use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed, refused};

struct Fjall {
    database: Database,
    keyspace: Keyspace,
    /// The same database, if it was opened for transactions.
    transactions: Option<OptimisticTxDatabase>,
    cache_bytes: u64,
    memtable_bytes: u64,
    durable: bool,
}

struct FjallWorker<'a> {
    engine: &'a Fjall,
    value: Vec<u8>,
}

/// Share of the budget that write buffers have.
const BUFFERS: u64 = 4;
const MEMTABLE_BYTES_MIN: u64 = 1 << 20;
/// Its default.
const MEMTABLE_BYTES: u64 = 64 << 20;

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let bytes = setup.cache_beside_page_cache();
    // One that is written to and one that is being flushed.
    let memtable_bytes = (bytes / BUFFERS / 2).clamp(MEMTABLE_BYTES_MIN, MEMTABLE_BYTES);
    let cache_bytes = bytes - bytes / BUFFERS;
    let path = setup.dir.join("bench");
    let (database, transactions) = match setup.transactions {
        false => {
            let opened = Database::builder(path).cache_size(cache_bytes).open();
            (opened.map_err(failed("fjall: opening"))?, None)
        }
        true => {
            let builder = OptimisticTxDatabase::builder(path);
            let opened = builder.cache_size(cache_bytes).open();
            let opened = opened.map_err(failed("fjall: opening"))?;
            (opened.inner().clone(), Some(opened))
        }
    };
    let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
    let keyspace = database
        .keyspace("bench", options)
        .map_err(failed("fjall: making the keyspace"))?;
    Ok(Box::new(Fjall {
        database,
        keyspace,
        transactions,
        cache_bytes,
        memtable_bytes,
        durable: setup.durability == Level::Durable,
    }))
}

impl Engine for Fjall {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(FjallWorker {
            engine: self,
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        self.database
            .persist(PersistMode::SyncData)
            .map_err(failed("fjall: syncing"))
    }

    fn settle(&self) -> Result<()> {
        self.sync()?;
        self.keyspace
            .rotate_memtable_and_wait()
            .map_err(failed("fjall: flushing"))?;
        while self.database.active_compactions() > 0 || self.database.outstanding_flushes() > 0 {
            pando_sync::thread::sleep(pando_sync::time::Duration::from_millis(20));
        }
        Ok(())
    }

    fn settings(&self) -> Settings {
        let durability = match self.durable {
            true => "PersistMode::SyncData after each commit",
            false => "none after a commit",
        };
        vec![
            ("version", crate_version("fjall")),
            ("cache_size", self.cache_bytes.to_string()),
            ("max_memtable_size", self.memtable_bytes.to_string()),
            ("persist", durability.to_owned()),
            (
                "transactions",
                match self.transactions {
                    Some(_) => "OptimisticTxDatabase: serializable",
                    None => "none",
                }
                .to_owned(),
            ),
            ("update", "get, then insert; not atomic".to_owned()),
        ]
    }
}

impl FjallWorker<'_> {
    fn persist(&self) -> Result<()> {
        match self.engine.durable {
            true => self.engine.sync(),
            false => Ok(()),
        }
    }
}

impl Worker for FjallWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let engine = self.engine;
        let mode = engine.durable.then_some(PersistMode::SyncData);
        let mut batch = engine.database.batch().durability(mode);
        for (key, value) in entries {
            batch.insert(&engine.keyspace, &key[..], &value[..]);
        }
        batch.commit().map_err(failed("fjall: commit"))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.engine
            .keyspace
            .insert(key, value)
            .map_err(failed("fjall: insert"))?;
        self.persist()
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let value = self.engine.keyspace.get(key);
        let value = value.map_err(failed("fjall: get"))?;
        if let Some(value) = &value {
            read(key, value);
        }
        Ok(value.is_some())
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        for guard in self.engine.keyspace.range(from..).take(limit) {
            let (key, value) = guard.into_inner().map_err(failed("fjall: next"))?;
            read(&key, &value);
        }
        Ok(())
    }

    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        let Fjall { keyspace, .. } = self.engine;
        let Some(database) = &self.engine.transactions else {
            let what = "fjall was not opened for transactions";
            return Err(refused("workloads", what));
        };
        let get = |value: ::fjall::Result<Option<_>>| value.map_err(failed("fjall: get"));
        if entries.is_empty() {
            let snapshot = database.read_tx();
            for (at, key) in reads.iter().enumerate() {
                read(at, get(snapshot.get(keyspace, key))?.as_deref());
            }
            return Ok(0);
        }
        let mut repeats = 0;
        loop {
            let transaction = database.write_tx();
            let mut transaction = transaction.map_err(failed("fjall: beginning"))?;
            if self.engine.durable {
                transaction = transaction.durability(Some(PersistMode::SyncData));
            }
            for (at, key) in reads.iter().enumerate() {
                read(at, get(transaction.get(keyspace, key))?.as_deref());
            }
            for (key, value) in entries {
                transaction.insert(keyspace, &key[..], &value[..]);
            }
            match transaction.commit().map_err(failed("fjall: commit"))? {
                Ok(()) => return Ok(repeats),
                Err(_conflict) => repeats += 1,
            }
        }
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let mut new = std::mem::take(&mut self.value);
        let old = self.engine.keyspace.get(key);
        let old = old.map_err(failed("fjall: get"))?;
        change(old.as_deref(), &mut new);
        let put = self.put(key, &new);
        self.value = new;
        put
    }
}
