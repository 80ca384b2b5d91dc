//! The report of an open store.

use pando_format::{Compression, Lsn};

use pando_sync::atomic::Ordering;

use crate::api::db::Db;
use crate::figures::snapshots::SnapshotStat;
use crate::state::checkpoint_progress::CheckpointProgress;

/// State and figures of a store, for start-up messages, INFO and benchmarks.
#[derive(Debug, Clone)]
pub struct Report {
    /// The device back end in use.
    pub io_backend: &'static str,
    /// What makes I/O slower than it could be, and why: back ends that were passed over, buffers
    /// that are not registered.
    pub io_notes: Vec<String>,
    /// Alignment in bytes of reads and writes of pages; 1 if they use the page cache.
    pub io_alignment: usize,
    /// Reads and writes of pages bypass the page cache.
    pub direct_io: bool,
    /// Flushes of the log bypass the page cache.
    pub direct_log: bool,
    /// Bytes of a page.
    pub page_size: usize,
    /// Bytes of a block.
    pub block_size: usize,
    /// Compression of pages that are written from now on.
    pub compression: Compression,
    /// The memory budget, in bytes.
    pub max_memory: u64,
    /// Bytes of the budget in use: see
    /// [`MemoryReport::used_bytes`](crate::MemoryReport::used_bytes).
    pub memory_used: u64,
    /// Largest number of reads in flight of one event loop.
    pub queue_depth: usize,
    /// Frames of the pool.
    pub frames: u64,
    /// Frames with a page that has changed since it was written.
    pub dirty_frames: u64,
    /// Frames with the root of a table, which are never evicted: at most a quarter of the pool.
    pub wired_frames: u64,
    /// Frames that operations have pin shares of, so that fetched pages stay in memory.
    pub pin_frames: u64,
    /// Largest number of such frames: a quarter of the pool.
    pub pin_frames_max: u64,
    /// One past the largest page id.
    pub pages: u64,
    /// Bytes of the data file.
    pub data_bytes: u64,
    /// Bytes of the data file that nothing uses, including discarded ones.
    pub data_free_bytes: u64,
    /// Bytes of the data file that were given back to the file system.
    pub data_discarded_bytes: u64,
    /// Bytes of the data file that are reserved for running commits, dirty pages and images in
    /// flight.
    pub data_reserved_bytes: u64,
    /// Bytes of the longest free run as of the last checkpoint.
    pub free_run_bytes_max: u64,
    /// Percentage of the data file that was free at that time in runs shorter than the longest
    /// extent, without the run at its end.
    pub fragmentation_percent: u64,
    /// Whether a checkpoint is running, and how far it is.
    pub checkpoint: CheckpointProgress,
    /// Bytes of the log that the next checkpoint will free.
    pub log_bytes: u64,
    /// Time that opening took, in milliseconds.
    pub recovery_ms: u64,
    /// Number of batches that recovery replayed.
    pub recovery_batches: u64,
    /// Bytes of log that recovery replayed.
    pub recovery_log_bytes: u64,
    /// LSN of the newest commit.
    pub newest_lsn: Lsn,
    /// LSN of the newest durable commit.
    pub durable_lsn: Lsn,
    /// What open snapshots take.
    pub snapshots: SnapshotStat,
    /// Why writes are refused; None if they are not.
    pub poisoned: Option<String>,
}

impl Db {
    /// Returns the current figures.
    pub fn report(&self) -> Report {
        let engine = self.engine();
        let pool = &engine.store.pool;
        let pages = u64::from(pool.page_ids().high_water());
        let (space, block_bytes) = (engine.store.space.space(), engine.store.space.block_bytes());
        let discarded = engine.store.space.discards.blocks();
        let reserved = engine.store.space.reserved_blocks() + engine.store.committed_blocks();
        let pieces = engine.store.space.pieces();
        Report {
            io_backend: pando_device::Device::backend(&engine.store.device),
            io_notes: io_notes(&engine.store.device, engine.store.space.discards.failure()),
            io_alignment: pando_device::File::alignment(&engine.store.data),
            direct_io: pando_device::File::is_direct(&engine.store.data),
            direct_log: engine.log.is_direct(),
            page_size: pool.page_size().bytes(),
            block_size: pool.options().block_bytes,
            compression: pool.options().compression,
            max_memory: engine.max_memory.load(Ordering::Relaxed),
            memory_used: self.memory().used_bytes(),
            queue_depth: engine.options.queue_depth,
            frames: pool.frames() as u64,
            dirty_frames: pool.epochs().dirty_total(),
            wired_frames: pool.wired(),
            pin_frames: engine.pin_budget.taken(),
            pin_frames_max: engine.pin_budget.limit(),
            pages,
            data_bytes: engine.store.space.blocks() * engine.store.space.block_bytes(),
            data_free_bytes: (space.free_blocks() + discarded) * block_bytes,
            data_discarded_bytes: discarded * block_bytes,
            data_reserved_bytes: reserved * block_bytes,
            free_run_bytes_max: pieces.largest_run * block_bytes,
            fragmentation_percent: pieces.fragmentation_percent(),
            checkpoint: self.checkpoint_progress(),
            log_bytes: engine.log.used_bytes(),
            recovery_ms: u64::try_from(engine.recovered.took.as_millis()).unwrap_or(u64::MAX),
            recovery_batches: engine.recovered.batches,
            recovery_log_bytes: engine.recovered.bytes,
            newest_lsn: engine.log.reserved_end(),
            durable_lsn: engine.log.durable(),
            snapshots: self.snapshot_stat(),
            poisoned: engine
                .store
                .check_poison()
                .err()
                .map(|error| error.to_string()),
        }
    }
}

fn io_notes(device: &pando_device::AnyDevice, failure: Option<String>) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(choice) = device.choice() {
        let passed_over = choice.passed_over.iter().map(ToString::to_string);
        notes.extend(passed_over.chain(choice.notes));
    }
    notes.extend(failure);
    notes
}
