//! Rows of the system trees.
//!
//! Tree 1, the catalogue: key = name of a table, value = tree id (u32), root page (u32).
//! Tree 2, the garbage table: key = LSN (u64, big-endian) and index in its batch (u32,
//! big-endian), value = kind (1: dropped tree), tree id (u32), root page (u32).
//! Trees of users start at [`FIRST_USER_TREE`]. The roots of the system trees are pages 0 and 1.

use crate::bytes::Reader;
use crate::{Damage, PageId, TreeId};

/// The catalogue's tree.
pub const CATALOGUE_TREE: TreeId = TreeId(1);
/// Its root.
pub const CATALOGUE_ROOT: PageId = PageId(0);
/// The garbage table's tree.
pub const GARBAGE_TREE: TreeId = TreeId(2);
/// Its root.
pub const GARBAGE_ROOT: PageId = PageId(1);
/// First tree id that a user's table gets.
pub const FIRST_USER_TREE: TreeId = TreeId(16);
/// Longest name of a table, in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

const GARBAGE_DROPPED_TREE: u8 = 1;

/// A tree and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRow {
    /// The tree.
    pub tree: TreeId,
    /// Its root, for life.
    pub root: PageId,
}

impl TreeRow {
    /// Value of a catalogue row.
    pub fn encode(self) -> [u8; 8] {
        (u64::from(self.root.0) << 32 | u64::from(self.tree.0)).to_le_bytes()
    }

    /// Reads the value of a catalogue row.
    ///
    /// # Errors
    /// [`Damage`] when it has another length.
    pub fn decode(value: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(value);
        match (reader.u32(), reader.u32(), reader.remaining()) {
            (Some(tree), Some(root), 0) => Ok(Self {
                tree: TreeId(tree),
                root: PageId(root),
            }),
            _ => Err(Damage::new(format!(
                "catalogue row of {} bytes",
                value.len()
            ))),
        }
    }

    /// Value of a garbage row.
    pub fn encode_garbage(self) -> [u8; 9] {
        let mut row = [GARBAGE_DROPPED_TREE; 9];
        row[1..].copy_from_slice(&self.encode());
        row
    }

    /// Reads the value of a garbage row.
    ///
    /// # Errors
    /// [`Damage`] when it is of another kind or length.
    pub fn decode_garbage(value: &[u8]) -> Result<Self, Damage> {
        match value.split_first() {
            Some((&GARBAGE_DROPPED_TREE, row)) => Self::decode(row),
            _ => Err(Damage::new(format!(
                "garbage row of unknown kind, {} bytes",
                value.len()
            ))),
        }
    }
}

/// Key of a garbage row: rows of one batch sort behind those of older ones.
pub fn garbage_key(lsn: crate::Lsn, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&lsn.0.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}
