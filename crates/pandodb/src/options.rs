//! The options of a store, and the split of its memory budget.

use pando_format::cast::usize_of;
use pando_format::{Compression, PageSize};
use pando_pool::pool::FRAMES_MAX;
use pando_sync::time::Duration;

use crate::error::{Error, Result};
use crate::io_backend::IoBackend;
use crate::recovery_progress::{Listener, RecoveryProgress};

/// What is guaranteed when a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The batch survives a power cut.
    #[default]
    Durable,
    /// The batch will be durable within the periodic interval; a crash may lose the commits of the
    /// last interval.
    Periodic,
    /// The batch becomes durable with the next checkpoint, or with a later durable commit.
    None,
}

/// Options of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    /// What is guaranteed when the commit returns; None: the durability of the store.
    pub durability: Option<Durability>,
}

impl WriteOptions {
    /// Returns options with the given durability.
    pub fn durability(durability: Durability) -> Self {
        Self {
            durability: Some(durability),
        }
    }
}

/// Bytes of the smallest block.
const BLOCK_BYTES_MIN: usize = 512;
/// Bytes of the largest block: the smallest page.
const BLOCK_BYTES_MAX: usize = PageSize::MIN;
/// Blocks of a page of a new store with a compression, at least.
const COMPRESSED_BLOCKS_MIN: usize = 4;
/// Bytes of the smallest memory budget.
pub const MAX_MEMORY_MIN: u64 = 2 << 20;
/// Bytes of the largest log: the number of its segments has 32 bits.
pub const LOG_BYTES_MAX: u64 = 1 << 50;
/// Least memory for what recovery would write to a store that is only read.
const OVERLAY_BYTES_MIN: u64 = 1 << 20;
/// Bytes of the library's default memory budget.
pub const MAX_MEMORY_DEFAULT: u64 = 256 << 20;
/// Most threads that read for event loops: no device has use for more, and a process may not have
/// as many.
const COMPLETION_THREADS_MAX: usize = 1024;
/// Bytes of the longest value.
pub const VALUE_BYTES_MAX: usize = usize_of(pando_format::chunks::VALUE_BYTES_MAX);

/// Options of a store; the methods name the defaults. `open` opens or creates a store.
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
    /// In bytes; at least [`MAX_MEMORY_MIN`].
    pub(crate) max_memory: u64,
    /// In bytes. Opening replaces it by the size that the store was created with.
    pub(crate) page_size: Option<usize>,
    /// In bytes. Opening replaces it by the size that the store was created with.
    pub(crate) block_size: Option<usize>,
    /// Of pages that are written; those on disk may have others. None: that of the store, or none
    /// for a new one. Opening replaces it by what is used.
    pub(crate) compression: Option<Compression>,
    /// Of commits that do not choose themselves.
    pub(crate) durability: Durability,
    /// If true, reads wait until what they found is durable (decision 060).
    pub(crate) durable_reads: bool,
    /// If true, writes are refused on a full disk before a snapshot is ended.
    pub(crate) keep_settled_snapshots: bool,
    /// Age at which a snapshot goes on on disk.
    pub(crate) settle_snapshots_after: Duration,
    /// Interval of [`Durability::Periodic`].
    pub(crate) periodic: Duration,
    /// How long a write waits for a lock of a transaction.
    pub(crate) lock_timeout: Duration,
    pub(crate) io_backend: IoBackend,
    /// Most reads in flight of one event loop; at least 1.
    pub(crate) queue_depth: usize,
    /// Threads that read for event loops, if the back end has such threads; at least 1.
    pub(crate) completion_threads: usize,
    /// At most [`LOG_BYTES_MAX`]; None: derived from `max_memory`, and at creation from free space.
    pub(crate) log_bytes: Option<u64>,
    /// None: what `max_memory` leaves for frames.
    pub(crate) frames: Option<usize>,
    /// Longest time between two checkpoints.
    pub(crate) checkpoint_interval: Duration,
    /// How long a store is idle before free space goes back; None: it never does by itself.
    pub(crate) give_back_after: Option<Duration>,
    /// If true, each checkpoint punches holes into the data file where it is free.
    pub(crate) discard: bool,
    /// Bytes of the chunks of new large values; None: a part of `max_memory`.
    pub(crate) chunk_bytes: Option<u64>,
    /// Longest value, in bytes, that is stored in pages; None: 4 MiB, or what the log buffer has
    /// room for.
    pub(crate) plain_bytes_max: Option<usize>,
    /// If true, nothing in the directory changes: what recovery writes stays in memory.
    pub(crate) read_only: bool,
    /// If true, a directory without a store is an error.
    pub(crate) must_exist: bool,
    /// If true, a load of a dump or a salvage makes the store, and has marked the directory.
    pub(crate) is_loading: bool,
    /// For a new store; None: a random one.
    pub(crate) hash_key: Option<[u64; 2]>,
    /// Recovery takes it; None if nobody wants to know of its progress.
    pub(crate) on_recovery: Option<Listener>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            max_memory: MAX_MEMORY_DEFAULT,
            page_size: None,
            block_size: None,
            compression: None,
            durability: Durability::Durable,
            durable_reads: true,
            keep_settled_snapshots: false,
            settle_snapshots_after: Duration::from_secs(60),
            periodic: Duration::from_millis(1000),
            lock_timeout: Duration::from_secs(1),
            io_backend: IoBackend::Auto,
            queue_depth: 128,
            completion_threads: 16,
            log_bytes: None,
            frames: None,
            checkpoint_interval: Duration::from_secs(300),
            give_back_after: Some(Duration::from_secs(5)),
            discard: false,
            chunk_bytes: None,
            plain_bytes_max: None,
            read_only: false,
            must_exist: false,
            is_loading: false,
            hash_key: None,
            on_recovery: None,
        }
    }
}

impl Builder {
    /// Bytes of memory for everything: frames, page table, log buffers, images and the rest. At
    /// least [`MAX_MEMORY_MIN`]; default [`MAX_MEMORY_DEFAULT`]. However small it is, there is room
    /// for 64 pages, 16 images of pages and 32 pages of old versions: with pages of 64 KiB a store
    /// takes 8 MiB and more.
    #[must_use]
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.max_memory = bytes;
        self
    }

    /// Bytes of a page, a power of two from 4 KiB to 64 KiB: default 4 KiB, or four blocks if that
    /// is more and a compression was chosen. Only used at creation.
    #[must_use]
    pub fn page_size(mut self, bytes: usize) -> Self {
        self.page_size = Some(bytes);
        self
    }

    /// Bytes of a block, the unit of free space: a power of two from 512 to 4096, and a multiple of
    /// the device's alignment for direct I/O. The default is 4096; if a compression was chosen, the
    /// smallest of these. Block numbers have 32 bits: blocks of 512 bytes allow 2 TiB of data,
    /// blocks of 4096 bytes 16 TiB. Only used at creation.
    #[must_use]
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// Compression of pages that are written: by default that of the store, which remembers the one
    /// that was chosen last, and [`Compression::None`] for a new one. It saves space only if a page
    /// has several blocks, so a new store with a compression has smaller blocks or larger pages,
    /// unless these are given. Each opening may choose another one; pages on disk stay as they are
    /// until they are written again, all of them with [`Db::rewrite`](crate::Db::rewrite).
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// What is guaranteed when a commit returns that does not choose itself: default durable.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Whether reads of a store with [`Durability::Durable`] wait until the data that they found is
    /// durable: default true. Without it, a read may show data that a power cut or the end of the
    /// process takes back, as long as its writer has not been told that it stays. No read waits
    /// longer than for a sync that the writer asked for. After the log has failed, such a read is
    /// an error. Commits that ask for less than the durability of the store are shown at once.
    #[must_use]
    pub fn durable_reads(mut self, wanted: bool) -> Self {
        self.durable_reads = wanted;
        self
    }

    /// How old a snapshot of [`crate::Db::snapshot`] may become before it goes on on disk, as those
    /// of [`crate::Db::snapshot_settled`] do; sooner if commits need the memory: by default one
    /// minute. [`Duration::MAX`]: never, it ends when commits need the memory.
    #[must_use]
    pub fn settle_snapshots_after(mut self, age: Duration) -> Self {
        self.settle_snapshots_after = age;
        self
    }

    /// Whether writes are refused when the disk is full, although the end of a snapshot would make
    /// room, settled ([`crate::Db::snapshot_settled`]) or not: by default the oldest is ended.
    #[must_use]
    pub fn keep_settled_snapshots(mut self, wanted: bool) -> Self {
        self.keep_settled_snapshots = wanted;
        self
    }

    /// Interval of [`Durability::Periodic`]: default one second.
    #[must_use]
    pub fn periodic(mut self, interval: Duration) -> Self {
        self.periodic = interval;
        self
    }

    /// How long a write, or a transaction that does not say itself, waits for a key that another
    /// transaction has locked: default one second. Then it fails with
    /// [`Error::LockTimeout`](crate::Error::LockTimeout). Reads never wait for locks.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Interface for I/O: default [`IoBackend::Auto`]. [`Db::report`](crate::Db::report) says which
    /// one is used, and why no better one is.
    #[must_use]
    pub fn io_backend(mut self, backend: IoBackend) -> Self {
        self.io_backend = backend;
        self
    }

    /// Largest number of reads in flight of one event loop: default 128.
    #[must_use]
    pub fn queue_depth(mut self, reads: usize) -> Self {
        self.queue_depth = reads;
        self
    }

    /// Number of threads that read for event loops, if the back end has such threads, from 1 to
    /// 1024: default 16.
    #[must_use]
    pub fn completion_threads(mut self, threads: usize) -> Self {
        self.completion_threads = threads;
        self
    }

    /// Bytes of log on disk before a checkpoint must have freed some, at most [`LOG_BYTES_MAX`]:
    /// default derived from `max_memory`. The size of a segment follows from it only at creation.
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

    /// How long a store takes no writes before free space of its data file goes back to the file
    /// system, while it stays open: default five seconds. `None` keeps it, until the store is
    /// closed or [`Db::compact`](crate::Db::compact) is called.
    ///
    /// What has been free for twelve times as long beside writers, and is a quarter of the file and
    /// 16 MiB at least, goes back, too. Pages and chunks are moved for that, at most 32 MiB a
    /// second. With [`Builder::discard`] nothing moves.
    #[must_use]
    pub fn give_back_after(mut self, idle: Option<Duration>) -> Self {
        self.give_back_after = idle;
        self
    }

    /// Whether each checkpoint gives free space in the middle of the data file back to the file
    /// system afterwards, by punching holes: default no. Space that is needed again is allocated
    /// again.
    #[must_use]
    pub fn discard(mut self, discard: bool) -> Self {
        self.discard = discard;
        self
    }

    /// Bytes of the chunks of new large values: a power of two from 4 KiB to 1 MiB, at most 256
    /// blocks; other numbers are rounded down. The default is a 256th of `max_memory`, from 64 KiB
    /// to 1 MiB.
    #[must_use]
    pub fn chunk_size(mut self, bytes: u64) -> Self {
        self.chunk_bytes = Some(bytes);
        self
    }

    /// Longest value, in bytes, that is stored in pages; longer ones are stored in chunks. The
    /// default and maximum is 4 MiB, or less if the log buffer is too small for that.
    #[must_use]
    pub fn chunk_values_over(mut self, bytes: usize) -> Self {
        self.plain_bytes_max = Some(bytes);
        self
    }

    /// Sets a function that opening calls about once per MiB of log that it replays, and at the
    /// end; by default there is none. Recovery waits while it runs, and it must not open the same
    /// store.
    #[must_use]
    pub fn on_recovery(mut self, call: impl FnMut(RecoveryProgress) + Send + 'static) -> Self {
        self.on_recovery = Some(Listener::new(call));
        self
    }

    /// Makes these the options of a store that is only read: whatever changes one by itself is off.
    pub(crate) fn only_reading(mut self) -> Self {
        self.read_only = true;
        self.must_exist = true;
        self.compression = None;
        self.discard = false;
        self.give_back_after = None;
        self.checkpoint_interval = Duration::MAX;
        // Old versions take no room, since nothing is replaced.
        self.settle_snapshots_after = Duration::MAX;
        self
    }

    /// Bytes of memory for what recovery would write to a store that is only read. They are missing
    /// from the frames.
    pub(crate) fn overlay_bytes(&self) -> u64 {
        match self.read_only {
            true => (self.max_memory / 4).max(OVERLAY_BYTES_MIN),
            false => 0,
        }
    }

    /// Sets the sizes of page and block of a new store where none are given, for a device whose
    /// direct I/O is aligned to `alignment` bytes. A compression saves whole blocks only
    /// (decision 080).
    pub(crate) fn choose_sizes(&mut self, alignment: usize) {
        let compresses = self.compression.unwrap_or_default() != Compression::None;
        let block = *self.block_size.get_or_insert_with(|| match compresses {
            true => alignment
                .next_power_of_two()
                .clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX),
            false => BLOCK_BYTES_MAX,
        });
        self.page_size.get_or_insert_with(|| match compresses {
            true => PageSize::MIN.max(COMPRESSED_BLOCKS_MIN * block),
            false => PageSize::MIN,
        });
    }

    /// Checks all options; returns the page size.
    pub(crate) fn check(&self) -> Result<PageSize> {
        let invalid = |option, what: String| Err(Error::InvalidOption { option, what });
        let page_bytes = self.page_size.unwrap_or(PageSize::MIN);
        let Some(page_size) = PageSize::new(page_bytes) else {
            return invalid(
                "page_size",
                format!("{page_bytes}: a power of two from 4096 to 65536 is needed"),
            );
        };
        if let Some(bytes) = self.block_size
            && !is_block_size(bytes)
        {
            return invalid(
                "block_size",
                format!(
                    "{bytes}: a power of two from {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX} is needed"
                ),
            );
        }
        if let Some(compression) = self.compression {
            check_compression(compression)?;
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
        if let Some(bytes) = self.log_bytes.filter(|bytes| *bytes > LOG_BYTES_MAX) {
            return invalid(
                "log_bytes",
                format!("{bytes} bytes; at most {LOG_BYTES_MAX} are possible"),
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
        if self.completion_threads > COMPLETION_THREADS_MAX {
            return invalid(
                "completion_threads",
                format!(
                    "{}; at most {COMPLETION_THREADS_MAX} are possible",
                    self.completion_threads
                ),
            );
        }
        Ok(page_size)
    }
}

/// Checks that this program can write pages with `compression`.
pub(crate) fn check_compression(compression: Compression) -> Result<()> {
    let invalid = |what: String| {
        Err(Error::InvalidOption {
            option: "compression",
            what,
        })
    };
    if let Err(level) = compression.check() {
        let levels = Compression::ZSTD_LEVEL_MAX;
        return invalid(format!("zstd:{level}: levels are 1 to {levels}"));
    }
    if !compression.is_built_in() {
        return invalid(format!(
            "{compression}: this program was built without it; another one may be chosen"
        ));
    }
    Ok(())
}

/// True for a block size that a store may have.
pub(crate) fn is_block_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes)
}

/// The split of `max_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    /// Frames of the pool: from 64 to [`FRAMES_MAX`].
    pub(crate) frames: usize,
    /// Largest number of pages; each has 8 bytes in the page table.
    pub(crate) page_ids_max: usize,
    /// Number of buffers for images of pages, each as large as a page.
    pub(crate) images: usize,
    /// Bytes of each of the two log buffers; a multiple of 4096.
    pub(crate) log_buffer_bytes: usize,
    /// Bytes of a log segment: a power of two; that of a store that exists is in its superblock.
    pub(crate) segment_bytes: u64,
    /// Most log segments on disk before a checkpoint must have freed some; at least 2.
    pub(crate) segments: u32,
    /// Bytes for what is kept in memory about tables.
    pub(crate) tables_bytes: u64,
    /// Bytes for old versions that snapshots read; a part of the rest.
    pub(crate) versions_bytes: u64,
    /// Bytes for reading kept checkpoints; a part of the rest.
    pub(crate) kept_bytes: u64,
    /// Bytes that a transaction leaves to the other open ones: all of the rest, at worst.
    pub(crate) transactions_bytes: u64,
}

impl Budget {
    /// Splits the memory of `options` for pages of `page_size`.
    pub(crate) fn new(options: &Builder, page_size: PageSize) -> Self {
        let page = page_size.bytes() as u64;
        let memory = options.max_memory;
        // The log takes a fourteenth twice: one buffer fills while the other is written. From 64
        // MiB on the longest value in pages fits. A batch is as long as a buffer at most, so with
        // much memory they go on growing.
        let most = (memory / 64).clamp(8 << 20, 32 << 20);
        let log_buffer = (memory / 14).clamp(256 << 10, most).next_multiple_of(4096);
        let log_buffer = match options.log_bytes {
            Some(bytes) => log_buffer
                .min((bytes / 8).next_multiple_of(4096))
                .max(256 << 10),
            None => log_buffer,
        };
        let images = (memory / 32 / page).clamp(16, 1024);
        // The page table takes an eighth, enough for 64 times as much data with pages of 4 KiB.
        let table = memory / 8;
        let tables_bytes = memory / 64;
        // For free page ids, mapping lists and merges, versions, kept checkpoints, connections and
        // everything that is not counted.
        let rest = memory / 8;
        let overlay = options.overlay_bytes();
        let fixed = 2 * log_buffer + images * page + table + tables_bytes + rest + overlay;
        let frames = memory.saturating_sub(fixed) / (page + 64);
        let frames = options.frames.unwrap_or_else(|| usize_of(frames));
        let frames = frames.clamp(64, FRAMES_MAX);
        let log_bytes_default = memory.saturating_mul(2).clamp(16 << 20, 1 << 30);
        let log_bytes = options.log_bytes.unwrap_or(log_bytes_default);
        let segment_bytes = (log_bytes / 8)
            .clamp((4 * log_buffer).min(64 << 20), 64 << 20)
            .max(64 << 10)
            .next_power_of_two();
        let segments = (log_bytes / segment_bytes).max(2);
        Self {
            frames,
            page_ids_max: usize_of(table / 8),
            images: usize_of(images),
            log_buffer_bytes: usize_of(log_buffer),
            segment_bytes,
            segments: u32::try_from(segments).expect("LOG_BYTES_MAX bounds them"),
            tables_bytes,
            versions_bytes: memory / 32,
            kept_bytes: memory / 64,
            transactions_bytes: rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(options: &Builder) -> Budget {
        Budget::new(options, options.check().unwrap())
    }

    /// Indices of frames and segments have 32 bits, however much memory there is.
    #[test]
    fn the_largest_budget_has_parts_of_32_bits() {
        let options = Builder::default().max_memory(u64::MAX);
        let whole = budget(&options);
        assert_eq!(whole.frames, FRAMES_MAX);
        let whole = budget(&options.log_bytes(LOG_BYTES_MAX));
        assert_eq!(
            u64::from(whole.segments) * whole.segment_bytes,
            LOG_BYTES_MAX
        );
        // With the least memory, segments are small.
        let options = Builder::default().max_memory(MAX_MEMORY_MIN);
        let small = budget(&options.log_bytes(LOG_BYTES_MAX));
        assert_eq!(
            u64::from(small.segments) * small.segment_bytes,
            LOG_BYTES_MAX
        );
    }

    /// A batch is as long as a buffer of the log, and as half of a segment.
    #[test]
    fn more_memory_makes_longer_batches_possible() {
        for (memory, batch) in [(16, 1), (64, 4), (112, 8), (512, 8), (1024, 16)] {
            let of = budget(&Builder::default().max_memory(memory << 20));
            let buffer = of.log_buffer_bytes >> 20;
            assert_eq!(buffer, batch, "{memory} MiB");
            assert!(of.segment_bytes >= 2 * of.log_buffer_bytes as u64);
        }
        for memory in [2, 64, 1 << 20] {
            let of = budget(&Builder::default().max_memory(memory << 30));
            let (buffer, segment) = (of.log_buffer_bytes, of.segment_bytes);
            assert_eq!((buffer, segment), (32 << 20, 64 << 20), "{memory} GiB");
        }
        let small = Builder::default().max_memory(4 << 30).log_bytes(64 << 20);
        assert_eq!(budget(&small).log_buffer_bytes, 8 << 20);
    }

    /// A number of segments whose low 32 bits are 0 is refused and not truncated.
    #[test]
    fn a_log_of_too_many_segments_is_refused() {
        let error = Builder::default().log_bytes(1 << 58).check().unwrap_err();
        let Error::InvalidOption { option, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(option, "log_bytes");
    }
}
