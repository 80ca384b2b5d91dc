//! RocksDB: a log-structured tree, past the page cache when memory does not hold the data.
//!
//! One block cache is the whole budget: write buffers are charged to it, and where memory is short
//! so are index and filter blocks.

use std::fs;
use std::path::{Path, PathBuf};

use ::rocksdb::{
    BlockBasedOptions, Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType,
    DEFAULT_COLUMN_FAMILY_NAME, IngestExternalFileOptions, Options, ReadOptions, SstFileWriter,
    WaitForCompactOptions, WriteBatch, WriteBufferManager, WriteOptions,
};
use pando_bench::Result;

use crate::engine::{Change, Engine, ReadAt, ReadEntry, Settings, Setup, Worker};
use crate::options::{Level, failed};

/// Share of the budget that write buffers have at most.
const BUFFERS: u64 = 4;
const WRITE_BUFFER_BYTES: u64 = 64 << 20;
const WRITE_BUFFER_BYTES_MIN: u64 = 1 << 20;
const BLOCK_BYTES: usize = 4096;
const BLOOM_BITS: f64 = 10.0;
const BACKGROUND_JOBS: i32 = 4;
const BYTES_PER_SYNC: u64 = 1 << 20;

struct RocksDb {
    db: DB,
    /// Its options are those of the files that are loaded, too.
    opened: Opened,
    /// A file to be loaded, on the store's file system.
    file: PathBuf,
}

/// What a store is opened with, with transactions or without.
pub(super) struct Opened {
    pub(super) options: Options,
    pub(super) durable: bool,
    version: String,
    max_memory: u64,
    write_buffer_bytes: u64,
    direct: bool,
}

impl Opened {
    pub(super) fn new(setup: &Setup) -> Self {
        let direct = setup.is_out_of_memory();
        let buffers = setup.max_memory / BUFFERS;
        let write_buffer_bytes = WRITE_BUFFER_BYTES
            .min(buffers / 2)
            .max(WRITE_BUFFER_BYTES_MIN);
        Self {
            options: options(setup, write_buffer_bytes, direct),
            durable: setup.durability == Level::Durable,
            version: String::new(),
            max_memory: setup.max_memory,
            write_buffer_bytes,
            direct,
        }
    }

    /// Finds out the version, of the store that was opened in `dir`.
    pub(super) fn look(&mut self, dir: &Path) {
        self.version = version(dir);
    }
}

struct RocksWorker<'a> {
    engine: &'a RocksDb,
    family: &'a ColumnFamily,
    reads: ReadOptions,
    writes: WriteOptions,
    /// Of the file that is going to be ingested.
    file: Option<SstFileWriter<'a>>,
    value: Vec<u8>,
}

fn bytes(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The version of the library, which may be the system's: it is in the file of options that every
/// store has.
fn version(dir: &Path) -> String {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let texts = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("OPTIONS-"))
        .filter_map(|entry| fs::read_to_string(entry.path()).ok());
    let mut lines = texts.filter_map(|text| {
        let line = text
            .lines()
            .find_map(|line| line.trim().strip_prefix("rocksdb_version="));
        line.map(str::to_owned)
    });
    lines.next().unwrap_or_else(|| "unknown".to_owned())
}

fn options(setup: &Setup, write_buffer_bytes: u64, direct: bool) -> Options {
    let cache = Cache::new_hyper_clock_cache(bytes(setup.max_memory), 0);
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&cache);
    table.set_block_size(BLOCK_BYTES);
    table.set_bloom_filter(BLOOM_BITS, false);
    table.set_cache_index_and_filter_blocks(direct);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    let buffers = bytes(setup.max_memory / BUFFERS);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_manager(&WriteBufferManager::new_write_buffer_manager_with_cache(
        buffers, false, cache,
    ));
    options.set_write_buffer_size(bytes(write_buffer_bytes));
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_max_background_jobs(BACKGROUND_JOBS);
    options.set_bytes_per_sync(BYTES_PER_SYNC);
    // Values do not compress.
    options.set_compression_type(DBCompressionType::None);
    options.set_use_direct_reads(direct);
    options.set_use_direct_io_for_flush_and_compaction(direct);
    options
}

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    if setup.transactions {
        return super::rocksdb_transactions::open(setup);
    }
    let mut opened = Opened::new(setup);
    let options = &opened.options;
    // Named, so that there is a handle for the batched MultiGet, which asks for one.
    let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
    let db = DB::open_cf_descriptors(options, &setup.dir, [family])
        .map_err(failed("rocksdb: opening"))?;
    opened.look(&setup.dir);
    Ok(Box::new(RocksDb {
        db,
        opened,
        file: setup.dir.join("load.sst"),
    }))
}

/// What both kinds of stores are set to.
pub(super) fn common_settings(opened: &Opened) -> Settings {
    let say = |value: bool| value.to_string();
    vec![
        ("version", opened.version.clone()),
        (
            "block_cache",
            format!("hyper clock, {} bytes", opened.max_memory),
        ),
        (
            "write_buffer_manager",
            format!(
                "{} bytes, charged to the cache",
                opened.max_memory / BUFFERS
            ),
        ),
        ("write_buffer_size", opened.write_buffer_bytes.to_string()),
        ("use_direct_reads", say(opened.direct)),
        ("use_direct_io_for_flush_and_compaction", say(opened.direct)),
        ("cache_index_and_filter_blocks", say(opened.direct)),
        ("pin_l0_filter_and_index_blocks_in_cache", say(true)),
        ("block_size", BLOCK_BYTES.to_string()),
        ("bloom_bits_per_key", BLOOM_BITS.to_string()),
        ("compression", "none".to_owned()),
        ("level_compaction_dynamic_level_bytes", say(true)),
        ("max_background_jobs", BACKGROUND_JOBS.to_string()),
        ("bytes_per_sync", BYTES_PER_SYNC.to_string()),
        ("sync", say(opened.durable)),
    ]
}

impl Engine for RocksDb {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        let mut writes = WriteOptions::default();
        writes.set_sync(self.opened.durable);
        let mut reads = ReadOptions::default();
        // MultiGet reads several levels and files at once.
        reads.set_async_io(true);
        let family = self.db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME);
        Ok(Box::new(RocksWorker {
            engine: self,
            family: family.expect("it was opened by this name"),
            reads,
            writes,
            file: None,
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
            ("multi_get", "batched, async_io".to_owned()),
            ("update", "get, then put; not atomic".to_owned()),
        ]);
        settings
    }
}

impl Worker for RocksWorker<'_> {
    fn put_batch(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for (key, value) in entries {
            batch.put(key, value);
        }
        self.engine
            .db
            .write_opt(batch, &self.writes)
            .map_err(failed("rocksdb: write"))
    }

    fn load(&mut self, entries: &[(Vec<u8>, Vec<u8>)], is_last: bool) -> Result<()> {
        let RocksDb { db, opened, file } = self.engine;
        let mut writer = match self.file.take() {
            Some(writer) => writer,
            None => {
                let writer = SstFileWriter::create(&opened.options);
                writer
                    .open(file)
                    .map_err(failed("rocksdb: opening a file to load"))?;
                writer
            }
        };
        for (key, value) in entries {
            writer.put(key, value).map_err(failed("rocksdb: put"))?;
        }
        if !is_last {
            self.file = Some(writer);
            return Ok(());
        }
        // Which syncs it.
        writer.finish().map_err(failed("rocksdb: finishing"))?;
        let mut how = IngestExternalFileOptions::default();
        how.set_move_files(true);
        db.ingest_external_file_opts(&how, vec![file])
            .map_err(failed("rocksdb: ingesting"))
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

    fn multi_get(&mut self, keys: &[Vec<u8>], read: ReadAt<'_>) -> Result<()> {
        let values = self
            .engine
            .db
            .batched_multi_get_cf_opt(self.family, keys, false, &self.reads);
        for (at, value) in values.into_iter().enumerate() {
            let value = value.map_err(failed("rocksdb: multi_get"))?;
            read(at, value.as_deref());
        }
        Ok(())
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
        let db = &self.engine.db;
        let old = db.get_pinned_opt(key, &self.reads);
        let old = old.map_err(failed("rocksdb: get"))?;
        change(old.as_deref(), &mut self.value);
        db.put_opt(key, &self.value, &self.writes)
            .map_err(failed("rocksdb: put"))
    }
}
