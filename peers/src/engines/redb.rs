//! redb: one write at a time, readers on a snapshot; its own cache over buffered reads.

use ::redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition,
};
use pando_bench::Result;

use super::kind::crate_version;
use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed};

type Definition = TableDefinition<'static, &'static [u8], &'static [u8]>;
type Snapshot = ReadOnlyTable<&'static [u8], &'static [u8]>;

const TABLE: Definition = TableDefinition::new("bench");

struct Redb {
    database: Database,
    cache_bytes: u64,
    durability: Durability,
}

struct RedbWorker<'a> {
    engine: &'a Redb,
    /// A table as of one moment; it keeps its transaction.
    snapshot: Option<Snapshot>,
    value: Vec<u8>,
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let cache_bytes = setup.cache_beside_page_cache();
    let database = Builder::new()
        .set_cache_size(usize::try_from(cache_bytes).unwrap_or(usize::MAX))
        .create(setup.dir.join("bench.redb"))
        .map_err(failed("redb: opening"))?;
    let engine = Redb {
        database,
        cache_bytes,
        durability: match setup.durability {
            Level::Durable => Durability::Immediate,
            Level::Periodic | Level::None => Durability::None,
        },
    };
    // Reads of a table that nobody has made are errors.
    engine.write(Durability::Immediate, |_| Ok(()))?;
    Ok(Box::new(engine))
}

impl Redb {
    fn write(
        &self,
        durability: Durability,
        put: impl FnOnce(&mut ::redb::Table<'_, &'static [u8], &'static [u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self
            .database
            .begin_write()
            .map_err(failed("redb: beginning"))?;
        txn.set_durability(durability)
            .map_err(failed("redb: durability"))?;
        {
            let mut table = txn.open_table(TABLE).map_err(failed("redb: the table"))?;
            put(&mut table)?;
        }
        txn.commit().map_err(failed("redb: commit"))
    }
}

impl Engine for Redb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(RedbWorker {
            engine: self,
            snapshot: None,
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        // A durable commit takes those before it along.
        self.write(Durability::Immediate, |_| Ok(()))
    }

    fn settle(&self) -> Result<()> {
        self.sync()
    }

    fn settings(&self) -> Settings {
        vec![
            ("version", crate_version("redb")),
            ("cache_size", self.cache_bytes.to_string()),
            (
                "transactions",
                "serializable: one that puts at a time; where nothing is put, a read transaction"
                    .to_owned(),
            ),
            ("durability", format!("{:?}", self.durability)),
            (
                "read_transaction",
                "one for each thread, renewed before each read while another thread writes"
                    .to_owned(),
            ),
        ]
    }
}

impl RedbWorker<'_> {
    fn snapshot(&mut self) -> Result<&Snapshot> {
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => {
                let txn = self.engine.database.begin_read();
                let txn = txn.map_err(failed("redb: beginning a read"))?;
                txn.open_table(TABLE).map_err(failed("redb: the table"))?
            }
        };
        Ok(self.snapshot.insert(snapshot))
    }
}

impl Worker for RedbWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.snapshot = None;
        self.engine.write(self.engine.durability, |table| {
            for (key, value) in entries {
                table
                    .insert(&key[..], &value[..])
                    .map_err(failed("redb: insert"))?;
            }
            Ok(())
        })
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.snapshot = None;
        self.engine.write(self.engine.durability, |table| {
            table.insert(key, value).map_err(failed("redb: insert"))?;
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let value = self.snapshot()?.get(key).map_err(failed("redb: get"))?;
        if let Some(value) = &value {
            read(key, value.value());
        }
        Ok(value.is_some())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], read: ReadAt<'_>) -> Result<()> {
        let snapshot = self.snapshot()?;
        for (at, key) in keys.iter().enumerate() {
            let value = snapshot.get(&key[..]).map_err(failed("redb: get"))?;
            read(at, value.as_ref().map(|value| value.value()));
        }
        Ok(())
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        let entries = self.snapshot()?.range(from..);
        for entry in entries.map_err(failed("redb: seek"))?.take(limit) {
            let (key, value) = entry.map_err(failed("redb: next"))?;
            read(key.value(), value.value());
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
        self.engine.write(self.engine.durability, |table| {
            for (at, key) in reads.iter().enumerate() {
                let value = table.get(&key[..]).map_err(failed("redb: get"))?;
                read(at, value.as_ref().map(|value| value.value()));
            }
            for (key, value) in entries {
                table
                    .insert(&key[..], &value[..])
                    .map_err(failed("redb: insert"))?;
            }
            Ok(())
        })?;
        Ok(0)
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        self.snapshot = None;
        let new = &mut self.value;
        self.engine.write(self.engine.durability, |table| {
            {
                let old = table.get(key).map_err(failed("redb: get"))?;
                change(old.as_ref().map(|old| old.value()), new);
            }
            table
                .insert(key, &new[..])
                .map_err(failed("redb: insert"))?;
            Ok(())
        })
    }

    fn renew(&mut self) {
        self.snapshot = None;
    }
}
