//! What Berkeley DB and WiredTiger have in common: the interface of `pando-peers-native`.

use pando_bench::Result;
use pando_peers_native::{Config, Store, Worker as NativeWorker};

use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed};

/// An engine behind a table of C functions.
pub(super) struct Native {
    name: &'static str,
    store: Store,
    settings: Settings,
}

struct Work<'a> {
    name: &'static str,
    worker: NativeWorker<'a>,
}

/// What both are opened with.
pub(super) fn config(setup: &Setup) -> Config {
    Config {
        cache_bytes: setup.max_memory,
        direct: setup.is_out_of_memory(),
        durable: setup.durability == Level::Durable,
        threads: u32::try_from(setup.threads).unwrap_or(u32::MAX),
    }
}

impl Native {
    /// An open engine, and what it was set to beside its version.
    pub(super) fn new(name: &'static str, store: Store, settings: Settings) -> Self {
        Self {
            name,
            store,
            settings,
        }
    }

    fn during(&self, what: &str) -> String {
        format!("{}: {what}", self.name)
    }
}

impl Engine for Native {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        let worker = self.store.worker();
        Ok(Box::new(Work {
            name: self.name,
            worker: worker.map_err(failed(self.during("making a session")))?,
        }))
    }

    fn sync(&self) -> Result<()> {
        let synced = self.store.sync();
        synced.map_err(failed(self.during("syncing")))
    }

    fn settle(&self) -> Result<()> {
        let written = self.store.checkpoint();
        written.map_err(failed(self.during("checkpoint")))
    }

    fn settings(&self) -> Settings {
        let mut settings = vec![("version", self.store.version())];
        settings.extend(self.settings.iter().cloned());
        settings
    }

    fn close(self: Box<Self>) -> Result<()> {
        let during = self.during("closing");
        self.store.close().map_err(failed(during))
    }
}

impl Work<'_> {
    fn during(&self, what: &str) -> String {
        format!("{}: {what}", self.name)
    }
}

impl Worker for Work<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let entries = entries.iter().map(|(key, value)| (&key[..], &value[..]));
        let put = self.worker.put(entries);
        put.map_err(|error| failed(self.during("put"))(error))
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let put = self.worker.put(std::iter::once((key, value)));
        put.map_err(|error| failed(self.during("put"))(error))
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        let found = self.worker.get(key, read);
        found.map_err(|error| failed(self.during("get"))(error))
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        let count = self.worker.scan(from, limit, read);
        count
            .map(|_| ())
            .map_err(|error| failed(self.during("scan"))(error))
    }

    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        let reads = reads.iter().map(|key| &key[..]);
        let entries = entries.iter().map(|(key, value)| (&key[..], &value[..]));
        let repeats = self.worker.transact(reads, entries, read);
        repeats.map_err(|error| failed(self.during("transaction"))(error))
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let updated = self.worker.update(key, change);
        updated.map_err(|error| failed(self.during("update"))(error))
    }
}
