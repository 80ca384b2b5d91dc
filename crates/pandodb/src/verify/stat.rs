//! Figures of a store on disk.

use pando_format::Codec;

use crate::verify::tree_stat::LevelStat;

/// One table of a store on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableStat {
    /// Name.
    pub name: String,
    /// Entries at the checkpoint.
    pub entries: u64,
    /// Nodes from root to leaf.
    pub levels: u32,
    /// The nodes of each level, leaves first.
    pub tree: Vec<LevelStat>,
    /// Pages of long values.
    pub overflow_pages: u64,
    /// Values in chunks.
    pub large_values: u64,
    /// Their chunks.
    pub chunks: u64,
    /// Bytes of the blocks of these chunks.
    pub chunk_bytes: u64,
}

/// The pages of a store that are stored in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredStat {
    /// How: "none", "lz4", "zstd" or "snappy".
    pub compression: &'static str,
    /// How many there are.
    pub pages: u64,
    /// Bytes of their blocks.
    pub stored_bytes: u64,
    /// Bytes of the same pages in memory.
    pub page_bytes: u64,
}

impl StoredStat {
    pub(crate) fn new(codec: Codec) -> Self {
        Self {
            compression: codec.name(),
            pages: 0,
            stored_bytes: 0,
            page_bytes: 0,
        }
    }
}

/// A store on disk, as of its newest checkpoint.
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
    /// Pages by how they are stored; ways that no page is stored in are left out.
    pub stored: Vec<StoredStat>,
    /// Bytes of the data file.
    pub data_bytes: u64,
    /// Bytes of it that pages use.
    pub used_bytes: u64,
    /// Pieces that the rest lies in.
    pub free_runs: u64,
    /// Bytes of the longest of them.
    pub free_run_bytes_max: u64,
    /// Share of the rest that lies in pieces shorter than the longest extent, in percent.
    pub fragmentation_percent: u64,
    /// Chunks, those of values included that are gone and not yet freed.
    pub chunks: u64,
    /// Bytes of the blocks of these chunks.
    pub chunk_bytes: u64,
    /// Batches in the log behind the checkpoint.
    pub log_batches: u64,
    /// Bytes of their records.
    pub log_bytes: u64,
    /// The tables, by name.
    pub tables: Vec<TableStat>,
}
