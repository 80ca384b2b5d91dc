//! Figures of a store on disk.

use pando_format::{Codec, Compression};

use crate::verify::tree_stat::LevelStat;

/// Figures of one table of a store on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStat {
    /// Name of the table.
    pub name: String,
    /// Number of entries at the checkpoint.
    pub entries: u64,
    /// Number of nodes from root to leaf.
    pub levels: u32,
    /// Figures of each level, leaves first.
    pub tree: Vec<LevelStat>,
    /// Number of overflow pages of long values.
    pub overflow_pages: u64,
    /// Number of values in chunks.
    pub large_values: u64,
    /// Number of their chunks.
    pub chunks: u64,
    /// Bytes of the blocks of these chunks.
    pub chunk_bytes: u64,
}

/// Figures of the pages of a store that are stored in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredStat {
    /// The way: "none", "lz4", "zstd" or "snappy".
    pub compression: &'static str,
    /// Number of these pages.
    pub pages: u64,
    /// Bytes of their blocks.
    pub stored_bytes: u64,
    /// Bytes of the same pages in memory.
    pub page_bytes: u64,
}

impl StoredStat {
    /// Returns the figures of no pages, with the name of `codec`.
    pub(crate) fn new(codec: Codec) -> Self {
        Self {
            compression: codec.name(),
            pages: 0,
            stored_bytes: 0,
            page_bytes: 0,
        }
    }
}

/// Figures of a store on disk, as of its newest checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStat {
    /// Generation of the checkpoint.
    pub generation: u64,
    /// LSN of the checkpoint.
    pub checkpoint_lsn: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Compression of new pages; None: written by a program that did not record it.
    pub compression: Option<Compression>,
    /// Pages by the way they are stored; ways without a page are left out.
    pub stored: Vec<StoredStat>,
    /// Bytes of the data file.
    pub data_bytes: u64,
    /// Bytes of the data file that are in use.
    pub used_bytes: u64,
    /// Number of free runs.
    pub free_runs: u64,
    /// Bytes of the longest free run.
    pub free_run_bytes_max: u64,
    /// Percentage of the data file that is free in runs shorter than the longest extent, without
    /// the run at its end: what a compaction can win by moving pages together.
    pub fragmentation_percent: u64,
    /// Number of chunks, including those of deleted values that have not been freed.
    pub chunks: u64,
    /// Bytes of the blocks of these chunks.
    pub chunk_bytes: u64,
    /// Number of batches in the log after the checkpoint.
    pub log_batches: u64,
    /// Bytes of their records.
    pub log_bytes: u64,
    /// Figures of the tables, by name.
    pub tables: Vec<TableStat>,
}
