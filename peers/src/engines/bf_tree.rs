//! Bf-Tree: mini-pages in a circular buffer over pages on disk; no batches, no transactions.
//!
//! Without its log, which knows an interval and no commits: only `--durability none` means
//! something for it.

use ::bf_tree::{
    BfTree, Config, LeafInsertResult, LeafReadResult, ScanReturnField, StorageBackend,
};
use pando_bench::Result;

use super::kind::crate_version;
use crate::engine::{Change, Engine, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed, refused};

/// Keys of readseq have one more byte.
const KEY_MORE: usize = 1;

struct Bf {
    tree: BfTree,
    buffer_bytes: usize,
    record_bytes: usize,
    direct: bool,
}

struct BfWorker<'a> {
    engine: &'a Bf,
    record: Vec<u8>,
    value: Vec<u8>,
}

/// The largest power of two within the budget, which is what it takes.
fn buffer_bytes(max_memory: u64) -> usize {
    let bytes = 1_u64 << max_memory.max(1).ilog2();
    usize::try_from(bytes).unwrap_or(1 << 40)
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    if setup.durability != Level::None {
        let what = "bf-tree has no commit that waits for the disk; only none can be measured";
        return Err(refused("durability", what));
    }
    let buffer_bytes = buffer_bytes(setup.max_memory);
    let direct = setup.is_out_of_memory();
    let record_bytes = setup.key_bytes + KEY_MORE + setup.value_bytes;
    let mut config = Config::new(setup.dir.join("bench.bftree"), buffer_bytes);
    config
        .cb_max_key_len(setup.key_bytes + KEY_MORE)
        .max_fence_len(2 * (setup.key_bytes + KEY_MORE))
        .cb_min_record_size(setup.key_bytes.max(4))
        .cb_max_record_size(record_bytes.max(1024));
    if direct {
        config.storage_backend(StorageBackend::StdDirect);
    }
    let tree = BfTree::with_config(config, None)
        .map_err(|error| failed("bf-tree: opening")(format!("{error:?}")))?;
    Ok(Box::new(Bf {
        tree,
        buffer_bytes,
        record_bytes,
        direct,
    }))
}

impl Engine for Bf {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(BfWorker {
            engine: self,
            record: vec![0; self.record_bytes.max(4096)],
            value: Vec::new(),
        }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn settings(&self) -> Settings {
        let backend = match self.direct {
            true => "StdDirect",
            false => "Std",
        };
        vec![
            ("version", crate_version("bf-tree")),
            ("cb_size_byte", self.buffer_bytes.to_string()),
            ("storage_backend", backend.to_owned()),
            ("write_ahead_log", "none".to_owned()),
            ("batch", "one insert after the other".to_owned()),
            ("update", "read, then insert; not atomic".to_owned()),
        ]
    }
}

impl Worker for BfWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        for (key, value) in entries {
            self.put(key, value)?;
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.engine.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(()),
            LeafInsertResult::InvalidKV(why) => Err(failed("bf-tree: insert")(why)),
        }
    }

    fn get(&mut self, key: &[u8], read: ReadEntry<'_>) -> Result<bool> {
        match self.engine.tree.read(key, &mut self.record) {
            LeafReadResult::Found(bytes) => {
                read(key, &self.record[..bytes as usize]);
                Ok(true)
            }
            LeafReadResult::Deleted | LeafReadResult::NotFound => Ok(false),
            LeafReadResult::InvalidKey => Err(failed("bf-tree: read")("invalid key")),
        }
    }

    fn scan(&mut self, from: &[u8], limit: usize, read: ReadEntry<'_>) -> Result<()> {
        let fields = ScanReturnField::KeyAndValue;
        let mut entries = self
            .engine
            .tree
            .scan_with_count(from, limit, fields)
            .map_err(|error| failed("bf-tree: seek")(format!("{error:?}")))?;
        while let Some((key_bytes, value_bytes)) = entries.next(&mut self.record) {
            let (key, rest) = self.record.split_at(key_bytes);
            read(key, &rest[..value_bytes]);
        }
        Ok(())
    }

    fn update(&mut self, key: &[u8], change: Change<'_>) -> Result<()> {
        let mut new = std::mem::take(&mut self.value);
        let found = match self.engine.tree.read(key, &mut self.record) {
            LeafReadResult::Found(bytes) => Some(bytes as usize),
            _ => None,
        };
        change(found.map(|bytes| &self.record[..bytes]), &mut new);
        let put = self.put(key, &new);
        self.value = new;
        put
    }
}
