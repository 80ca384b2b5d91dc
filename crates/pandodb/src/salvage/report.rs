//! What a salvage has copied, and what it could not.

use crate::verify::walk::Damage;

/// A table that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SalvagedTable {
    /// Its name: `lost/` and the number of its tree if the name is lost.
    pub name: String,
    /// Number of its entries in the new store.
    pub rows: u64,
    /// Bytes of keys and values that were copied.
    pub bytes: u64,
}

/// A range of keys, some or all of which are missing from the new store, or older there than they
/// should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostRange {
    /// The table.
    pub table: String,
    /// The first key.
    pub from: Vec<u8>,
    /// The first key after the range; None: the range extends to the end of the table.
    pub to: Option<Vec<u8>>,
    /// Rows of the range that were found although the node above them could not be read.
    pub found: u64,
    /// What could not be read.
    pub why: String,
}

impl LostRange {
    /// True if `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *self.from <= *key && self.to.as_ref().is_none_or(|to| *key < **to)
    }
}

/// Result of [`salvage`](crate::salvage()).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// The tables of the new store.
    pub tables: Vec<SalvagedTable>,
    /// Number of batches of the log that were applied.
    pub batches: u64,
    /// Number of writes that had been put aside and are in their tables now.
    pub writes_aside: u64,
    /// Keys that are lost, ordered by table and key.
    pub lost: Vec<LostRange>,
    /// Damage without known keys, which may have cost more than `lost` says.
    /// Where the newest changes of the mapping are lost, pages are as they were before, and a table
    /// that was swapped with another one since then may be found under the other one's name.
    pub unbounded: Vec<Damage>,
    /// Damage that cost nothing beyond what `lost` says.
    pub harmless: Vec<Damage>,
}

impl SalvageReport {
    /// True if the new store contains everything that the old one did.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.unbounded.is_empty()
    }
}
