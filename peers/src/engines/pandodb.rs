//! PandoDB itself, through its public interface.

use pando_bench::Result;
use pandodb::statistics::Ticker;
use pandodb::{Batch, Db, Durability, Isolation, Loader, Table, TransactionOptions, WriteOptions};

use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::Level;

/// Bytes by where they go, and pages by why they are written.
const WRITES: [Ticker; 11] = [
    Ticker::DeviceWriteBytes,
    Ticker::LogBytes,
    Ticker::LogWriteBytes,
    Ticker::PageWriteBytes,
    Ticker::MappingWriteBytes,
    Ticker::PageWrites,
    Ticker::CheckpointPages,
    Ticker::Checkpoints,
    Ticker::EvictionsDirty,
    Ticker::EvictionsClean,
    Ticker::Splits,
];

struct PandoDb {
    db: Db,
    table: Table,
}

struct PandoWorker<'a> {
    engine: &'a PandoDb,
    batch: Batch,
    loader: Option<Loader<'a>>,
    value: Vec<u8>,
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let durability = match setup.durability {
        Level::Durable => Durability::Durable,
        Level::Periodic => Durability::Periodic,
        Level::None => Durability::None,
    };
    let db = Db::builder()
        .max_memory(setup.max_memory)
        .durability(durability)
        .open(&setup.dir)?;
    let table = db.table("bench")?;
    Ok(Box::new(PandoDb { db, table }))
}

impl Engine for PandoDb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(PandoWorker {
            engine: self,
            batch: Batch::new(),
            loader: None,
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn sync_periodically(&self) -> Result<()> {
        // It does so itself.
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.checkpoint()?)
    }

    fn settings(&self) -> Settings {
        let report = self.db.report();
        vec![
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
            ("max_memory", report.max_memory.to_string()),
            ("transactions", "serializable".to_owned()),
            ("io_backend", report.io_backend.to_owned()),
            ("direct_io", report.direct_io.to_string()),
            ("queue_depth", report.queue_depth.to_string()),
            ("page_size", report.page_size.to_string()),
        ]
    }

    fn page_reads(&self) -> Option<u64> {
        Some(self.db.statistics().get(Ticker::PageReads))
    }

    fn write_counts(&self) -> Vec<(&'static str, u64)> {
        let statistics = self.db.statistics();
        WRITES
            .iter()
            .map(|ticker| (ticker.name(), statistics.get(*ticker)))
            .collect()
    }

    fn close(self: Box<Self>) -> Result<()> {
        drop(self.table);
        Ok(self.db.close()?)
    }
}

impl Worker for PandoWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.batch.clear();
        for (key, value) in entries {
            self.batch.put(&self.engine.table, key, value);
        }
        Ok(self
            .engine
            .db
            .write(&mut self.batch, WriteOptions::default())?)
    }

    fn load(&mut self, entries: &[(Vec<u8>, Vec<u8>)], is_last: bool) -> Result<()> {
        let mut loader = match self.loader.take() {
            Some(loader) => loader,
            None => self.engine.table.loader()?,
        };
        for (key, value) in entries {
            loader.put(key, value)?;
        }
        match is_last {
            true => {
                loader.finish()?;
            }
            false => self.loader = Some(loader),
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.engine.table.put(key, value)?)
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let found = self.engine.table.get_into(key, &mut self.value)?;
        if found {
            read(key, &self.value);
        }
        Ok(found)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], read: ReadAt<'_>) -> Result<()> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        Ok(self.engine.table.get_many_with(&keys, read)?)
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        let mut iter = self.engine.table.range(from..);
        for _ in 0..limit {
            match iter.next_with(&mut *read) {
                Some(shown) => shown?,
                None => break,
            }
        }
        Ok(())
    }

    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        let PandoDb { db, table } = self.engine;
        let (value, mut runs) = (&mut self.value, 0);
        let options = TransactionOptions::default().isolation(Isolation::Serializable);
        db.transact_with(options, |transaction| {
            runs += 1;
            for (at, key) in reads.iter().enumerate() {
                let found = transaction.get_into(table, key, value)?;
                read(at, found.then_some(&value[..]));
            }
            for (key, value) in entries {
                transaction.put(table, key, value)?;
            }
            Ok(())
        })?;
        Ok(runs - 1)
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let value = &mut self.value;
        self.engine.table.update(key, |old| {
            change(old, value);
            Some(value.clone())
        })?;
        Ok(())
    }
}
