//! Options of a run of `bench alloc`.

use crate::error::{Error, Result};

/// Options of `bench alloc`; the defaults are those of the command line.
#[derive(Debug, Clone)]
pub struct AllocOptions {
    /// Bytes of all blocks.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Allocated shares, in percent of all blocks; each is measured, in this order.
    pub fill_percent: Vec<u64>,
    /// Whether the free blocks are in one piece (false) or in many (true); each is measured, in
    /// this order.
    pub fragmented: Vec<bool>,
    /// Numbers of threads, in this order.
    pub threads: Vec<usize>,
    /// Blocks that all threads together allocate, and free, for each of the two parts.
    pub num: u64,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Default for AllocOptions {
    fn default() -> Self {
        Self {
            size_bytes: 1 << 40,
            block_bytes: 4096,
            fill_percent: vec![10, 50, 90, 99],
            fragmented: vec![false, true],
            threads: vec![1, 2, 16],
            num: 4_000_000,
            seed: 1,
        }
    }
}

impl AllocOptions {
    /// Returns the number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.size_bytes / self.block_bytes.max(1)
    }

    /// Refuses options that no run can use, and names the flag.
    pub(crate) fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool, what: &str| match fine {
            true => Ok(()),
            false => Err(Error::option(flag, what)),
        };
        let one = "at least 1 is needed";
        needed("threads", !self.threads.is_empty(), one)?;
        needed("threads", !self.threads.contains(&0), one)?;
        needed("num", self.num > 0, one)?;
        needed("block-size", self.block_bytes > 0, one)?;
        let fills = &self.fill_percent;
        needed("fill", !fills.is_empty(), one)?;
        let fine = fills.iter().all(|fill| (1..=99).contains(fill));
        needed("fill", fine, "percentages from 1 to 99 are needed")?;
        let blocks = self.blocks();
        // Each thread holds some blocks, and cores keep some in their magazines.
        let least = self.threads.iter().max().map_or(0, |most| *most as u64) * 10_000;
        let fullest = fills.iter().max().map_or(0, |fill| *fill);
        needed(
            "size",
            blocks / 100 * (100 - fullest) >= least,
            "10,000 free blocks for each thread are needed",
        )?;
        needed(
            "size",
            blocks <= 1 << 32,
            "more blocks than 32 bits can name",
        )
    }
}
