//! What a user may choose, and how one memory budget is split.

use pando_format::{Compression, PageSize};
use pando_sync::time::Duration;

use crate::error::{Error, Result};
use crate::io_backend::IoBackend;
use crate::recovery_progress::{Listener, RecoveryProgress};

/// What a commit's return reservations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The batch survives a power cut.
    #[default]
    Durable,
    /// The batch will be durable within the periodic interval; a crash may lose the last one.
    Periodic,
    /// The batch becomes durable with the next checkpoint, or with a later durable commit.
    None,
}

/// How a batch is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What the return reservations; None: what the store was opened with.
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// The given durability.
    pub fn durability(durability: Durability) -> Self {
        Self {
            durability: Some(durability),
        }
    }
}

/// Smallest block.
const BLOCK_BYTES_MIN: usize = 512;
/// Largest block: no larger than the smallest page.
const BLOCK_BYTES_MAX: usize = PageSize::MIN;
/// Smallest memory budget.
pub const MAX_MEMORY_MIN: u64 = 2 << 20;
/// Default memory budget of the library.
pub const MAX_MEMORY_DEFAULT: u64 = 256 << 20;
/// Longest value.
pub const VALUE_BYTES_MAX: usize = pando_format::chunks::VALUE_BYTES_MAX as usize;

/// Options of a store; see the methods for defaults. `open` opens or creates.
///
/// ```
/// # fn main() -> Result<(), pandodb::Error> {
/// # let directory = tempfile::tempdir().map_err(|_| pandodb::Error::Closed)?;
/// let db = pandodb::Db::builder().max_memory(32 << 20).open(directory.path())?;
/// db.table("fruit")?.put(b"apple", b"red")?;
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Builder {
    pub(crate) max_memory: u64,
    pub(crate) page_size: usize,
    pub(crate) block_size: usize,
    pub(crate) compression: Compression,
    pub(crate) durability: Durability,
    pub(crate) durable_reads: bool,
    pub(crate) periodic: Duration,
    pub(crate) io_backend: IoBackend,
    pub(crate) queue_depth: usize,
    pub(crate) completion_threads: usize,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) frames: Option<usize>,
    pub(crate) checkpoint_interval: Duration,
    pub(crate) discard: bool,
    pub(crate) chunk_bytes: Option<u64>,
    pub(crate) plain_bytes_max: Option<usize>,
    /// A directory without a store is an error.
    pub(crate) must_exist: bool,
    /// Of a store that is made; None: a random one.
    pub(crate) hash_key: Option<[u64; 2]>,
    pub(crate) on_recovery: Option<Listener>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            max_memory: MAX_MEMORY_DEFAULT,
            page_size: 4096,
            block_size: 4096,
            compression: Compression::None,
            durability: Durability::Durable,
            durable_reads: true,
            periodic: Duration::from_millis(1000),
            io_backend: IoBackend::Auto,
            queue_depth: 128,
            completion_threads: 16,
            log_bytes: None,
            frames: None,
            checkpoint_interval: Duration::from_secs(300),
            discard: false,
            chunk_bytes: None,
            plain_bytes_max: None,
            must_exist: false,
            hash_key: None,
            on_recovery: None,
        }
    }
}

impl Builder {
    /// The one memory setting: bytes for frames, page table, log buffers, images and all the rest.
    /// At least [`MAX_MEMORY_MIN`]; default [`MAX_MEMORY_DEFAULT`].
    #[must_use]
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Bytes of a page, a power of two from 4 KiB (the default) to 64 KiB. Counts at creation.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_size = bytes;
        self
    }

    /// Bytes of a block, the unit of space: a power of two from 512 to 4096 (the default), and a
    /// multiple of what direct I/O on the device is aligned to. Blocks have 32-bit numbers: of 512
    /// bytes, they are 2 TiB of data, of 4096, 16 TiB. Counts at creation.
    #[must_use]
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = bytes;
        self
    }

    /// How pages are compressed on their way to disk: default [`Compression::None`]. Saves space
    /// only where a page has several blocks: choose larger pages or smaller blocks with it. May be
    /// another one at each opening; what is on disk stays as it is until it is written again.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// What the return of a commit reservations when the commit does not say: default durable.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether reads of a store with [`Durability::Durable`] wait until what they have found is
    /// durable: default true. Without it a read may show what a power cut, or the end of the
    /// process, takes back before its writer was told that it stays. Nobody waits for longer than
    /// a sync that the writer asked for. After the log has failed such a read is an error.
    /// Commits that ask for less than the store has are shown at once.
    #[must_use]
    pub fn durable_reads(mut self, wanted: bool) -> Self {
        self.durable_reads = wanted;
        self
    }

    /// Interval of [`Durability::Periodic`]: default one second.
    #[must_use]
    pub fn periodic(mut self, interval: Duration) -> Self {
        self.periodic = interval;
        self
    }

    /// Way to the disk: default [`IoBackend::Auto`]. What is used, and why nothing better is, is in
    /// [`Db::report`](crate::Db::report).
    #[must_use]
    pub fn io_backend(mut self, backend: IoBackend) -> Self {
        self.io_backend = backend;
        self
    }

    /// Most reads in flight of one event loop: default 128.
    #[must_use]
    pub fn queue_depth(mut self, reads: usize) -> Self {
        self.queue_depth = reads;
        self
    }

    /// Threads that read for event loops where the back end has such: default 16.
    #[must_use]
    pub fn completion_threads(mut self, threads: usize) -> Self {
        self.completion_threads = threads;
        self
    }

    /// Bytes of log on disk before a checkpoint must have freed some: default by `max_memory`.
    /// Counts at creation for the size of a segment.
    #[must_use]
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.log_bytes = Some(bytes);
        self
    }

    /// Number of frames, in place of what `max_memory` leaves for them: for tests of eviction.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = Some(frames);
        self
    }

    /// Longest time between two checkpoints: default five minutes.
    #[must_use]
    pub fn checkpoint_interval(mut self, interval: Duration) -> Self {
        self.checkpoint_interval = interval;
        self
    }

    /// Gives free space in the middle of the data file back to the file system behind each
    /// checkpoint, by holes: default no. What is needed again is allocated again.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }

    /// Bytes of the chunks of new large values, in place of what follows from `max_memory` (a 256th
    /// of it, from 64 KiB to 1 MiB): a power of two from 4 KiB to 1 MiB, at most 256 blocks. Other
    /// numbers are rounded down.
    #[must_use]
    pub fn chunk_size(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Values of more bytes than this lie in chunks; at most, and by default, 4 MiB, or what the
    /// log buffer takes of that.
    #[must_use]
    pub fn chunk_values_over(mut self, bytes: usize) -> Self {
        self.plain_bytes_max = Some(bytes);
        self
    }

    /// Called about every MiB of log that opening replays, and at the end of it; by default nobody
    /// is. It holds up recovery while it runs, and must not open the same store.
    #[must_use]
    pub fn on_recovery(mut self, call: impl FnMut(RecoveryProgress) + Send + 'static) -> Self {
        self.on_recovery = Some(Listener::new(call));
        self
    }

    pub(crate) fn check(&self) -> Result<PageSize> {
        let invalid = |option, what: String| Err(Error::InvalidOption { option, what });
        let Some(page_size) = PageSize::new(self.page_size) else {
            return invalid(
                "page_size",
                format!(
                    "{}: a power of two from 4096 to 65536 is needed",
                    self.page_size
                ),
            );
        };
        if !is_block_size(self.block_size) {
            return invalid(
                "block_size",
                format!(
                    "{}: a power of two from {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX} is needed",
                    self.block_size
                ),
            );
        }
        if let Err(level) = self.compression.check() {
            return invalid(
                "compression",
                format!(
                    "zstd:{level}: levels are 1 to {}",
                    Compression::ZSTD_LEVEL_MAX
                ),
            );
        }
        if !self.compression.is_built_in() {
            return invalid(
                "compression",
                format!("{}: this program was built without it", self.compression),
            );
        }
        if self.max_memory < MAX_MEMORY_MIN {
            return invalid(
                "max_memory",
                format!(
                    "{} bytes; at least {MAX_MEMORY_MIN} are needed",
                    self.max_memory
                ),
            );
        }
        if self.io_backend == IoBackend::Null {
            return invalid(
                "io_backend",
                "null: keeps no bytes, so no store can live there".into(),
            );
        }
        if self.queue_depth == 0 || self.completion_threads == 0 {
            return invalid(
                "queue_depth, completion_threads",
                "0; at least 1 is needed".into(),
            );
        }
        Ok(page_size)
    }
}

/// True for a block size that a store may have.
pub(crate) fn is_block_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes)
}

/// The shares of `max_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) frames: usize,
    pub(crate) page_ids_max: usize,
    pub(crate) images: usize,
    pub(crate) log_buffer_bytes: usize,
    pub(crate) segment_bytes: u64,
    pub(crate) segments: u32,
    /// For what is known of tables.
    pub(crate) tables_bytes: u64,
}

impl Budget {
    pub(crate) fn new(options: &Builder, page_size: PageSize) -> Self {
        let page = page_size.bytes() as u64;
        let memory = options.max_memory;
        // The log: a fourteenth, twice (one buffer fills while the other is written): the longest
        // value fits from 64 MiB on.
        let log_buffer = (memory / 14)
            .clamp(256 << 10, 8 << 20)
            .next_multiple_of(4096);
        let log_buffer = match options.log_bytes {
            Some(bytes) => log_buffer
                .min((bytes / 8).next_multiple_of(4096))
                .max(256 << 10),
            None => log_buffer,
        };
        let images = (memory / 32 / page).clamp(16, 1024);
        // The page table: an eighth, which is enough for 64 times as much data at 4 KiB a page.
        let table = memory / 8;
        let tables_bytes = memory / 64;
        // Free page ids, mapping lists, versions, connections and what nobody has counted.
        let rest = memory / 8;
        let fixed = 2 * log_buffer + images * page + table + tables_bytes + rest;
        let frames = memory.saturating_sub(fixed) / (page + 64);
        let frames = options.frames.unwrap_or(frames as usize).max(64);
        let log_bytes_default = (memory * 2).clamp(16 << 20, 1 << 30);
        let log_bytes = options.log_bytes.unwrap_or(log_bytes_default);
        let segment_bytes = (log_bytes / 8)
            .clamp(4 * log_buffer, 64 << 20)
            .max(64 << 10)
            .next_power_of_two();
        let segments = (log_bytes / segment_bytes).max(2);
        Self {
            frames,
            page_ids_max: (table / 8) as usize,
            images: images as usize,
            log_buffer_bytes: log_buffer as usize,
            segment_bytes,
            segments: segments as u32,
            tables_bytes,
        }
    }
}
