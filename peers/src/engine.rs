//! What an engine must do to be measured.
//!
//! Bytes are lent to closures, so that an engine that need not copy a value does not.

use std::path::PathBuf;

use pando_bench::Result;

use crate::options::{Level, refused};

/// What an engine was set to: names and values, for people and records.
pub type Settings = Vec<(&'static str, String)>;

/// Called with a key and its value.
pub type ReadEntry<'f> = &'f mut dyn FnMut(&[u8], &[u8]);
/// Called with the position of a key and its value, if there is one.
pub type ReadAt<'f> = &'f mut dyn FnMut(usize, Option<&[u8]>);
/// Called with the old value; replaces the vector by the new one.
pub type Change<'f> = &'f mut dyn FnMut(Option<&[u8]>, &mut Vec<u8>);

/// What an engine is opened with.
#[derive(Debug, Clone)]
pub struct Setup {
    /// An empty directory.
    pub dir: PathBuf,
    /// Its memory budget, in bytes.
    pub max_memory: u64,
    /// What a write waits for.
    pub durability: Level,
    /// Bytes of all keys and values that will be written.
    pub data_bytes: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Most threads that will work at once.
    pub threads: usize,
    /// There will be transactions.
    pub transactions: bool,
}

impl Setup {
    /// True if memory does not hold the data.
    pub fn is_out_of_memory(&self) -> bool {
        self.data_bytes > self.max_memory
    }

    /// Cache of an engine that reads through the page cache: where memory is short both are part
    /// of the budget, half of it each.
    pub fn cache_beside_page_cache(&self) -> u64 {
        match self.is_out_of_memory() {
            true => self.max_memory / 2,
            false => self.max_memory,
        }
    }
}

/// An open engine, shared by all threads.
pub trait Engine: Send + Sync {
    /// What one thread works with.
    ///
    /// # Errors
    /// Those of the engine.
    fn worker(&self) -> Result<Box<dyn Worker + '_>>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Those of the engine.
    fn sync(&self) -> Result<()>;

    /// Called once a second where writes are `periodic`.
    ///
    /// # Errors
    /// Those of the engine.
    fn sync_periodically(&self) -> Result<()> {
        self.sync()
    }

    /// Finishes what writes left to be done later, so that it is in no figure of the reads that
    /// follow.
    ///
    /// # Errors
    /// Those of the engine.
    fn settle(&self) -> Result<()>;

    /// What it was set to.
    fn settings(&self) -> Settings;

    /// Pages that it has read from disk since it was opened, if it counts them.
    fn page_reads(&self) -> Option<u64> {
        None
    }

    /// What it counts itself of what it writes, since it was opened: always the same names.
    fn write_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Closes it.
    ///
    /// # Errors
    /// Those of the engine.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// What one thread has of an engine.
pub trait Worker {
    /// Puts all entries: in one commit, if the engine can.
    ///
    /// # Errors
    /// Those of the engine.
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;

    /// As [`Worker::put_batch`], of entries whose keys ascend and lie behind all others.
    ///
    /// # Errors
    /// Those of the engine.
    fn append_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.put_batch(entries)
    }

    /// Loads entries whose keys ascend into a store that has none, the way the engine does that
    /// best. `is_last`: nothing follows but [`Engine::sync`].
    ///
    /// # Errors
    /// Those of the engine.
    fn load(&mut self, entries: &[(Vec<u8>, Vec<u8>)], is_last: bool) -> Result<()> {
        // Here nothing is to be ended.
        let _ = is_last;
        self.append_batch(entries)
    }

    /// Puts one entry.
    ///
    /// # Errors
    /// Those of the engine.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Calls `read` if `key` exists; true then.
    ///
    /// # Errors
    /// Those of the engine.
    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool>;

    /// Calls `read` once for each of `keys`, in any order.
    ///
    /// # Errors
    /// Those of the engine.
    fn multi_get(&mut self, keys: &[Vec<u8>], read: ReadAt<'_>) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            if !self.get(key, &mut |_, value| read(at, Some(value)))? {
                read(at, None);
            }
        }
        Ok(())
    }

    /// Calls `read` with at most `limit` entries from `from` on, ascending.
    ///
    /// # Errors
    /// Those of the engine.
    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()>;

    /// Replaces the value of `key` by what `change` makes of the old one; `change` may be called
    /// again when a transaction has to be repeated.
    ///
    /// # Errors
    /// Those of the engine.
    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()>;

    /// Calls `read` with the position and the value of each of `reads`, and puts `entries`, in one
    /// transaction at the engine's strongest level of isolation. It is repeated, calls included,
    /// until it is committed; returns how often.
    ///
    /// # Errors
    /// Those of the engine, and where it has no such transactions.
    fn transact(
        &mut self,
        reads: &[Vec<u8>],
        entries: &[(Vec<u8>, Vec<u8>)],
        read: ReadAt<'_>,
    ) -> Result<u64> {
        // Named for engines that have them.
        let _ = (reads, entries, read);
        Err(refused("workloads", "the engine has no transactions here"))
    }

    /// Reads that follow see what is committed now. Called before each read while another thread
    /// writes; without writers a snapshot may be kept.
    fn renew(&mut self) {}
}
