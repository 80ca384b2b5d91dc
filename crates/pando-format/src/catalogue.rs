//! Rows of the system trees.
//!
//! * Tree 1, the catalogue: key = name of a table; value = tree id (u32), root page (u32).
//! * Tree 2, the garbage table: keys begin with an LSN (u64, big-endian), values with a kind.
//!     * Dropped tree: key = LSN, index in its batch (u32, big-endian); value = 1, tree id (u32),
//!       root page (u32).
//!     * Chunks of a removed value: key = LSN, 255, id of the first chunk (u32, big-endian); value
//!       = 2, page ids of chunks (u32).
//!     * Overflow pages of a value that was replaced or removed while a snapshot read it: key =
//!       LSN, 255, id of the first page (u32, big-endian); value = 3, page ids (u32).
//!
//! Trees of users start at [`FIRST_USER_TREE`]. The roots of the system trees are pages 0 and 1.

use crate::bytes::Reader;
use crate::lost::{GARBAGE_ASIDE, GARBAGE_LEAKED, decode_leaks};
use crate::{Damage, PageId, TreeId};

/// The tree of the catalogue.
pub const CATALOGUE_TREE: TreeId = TreeId(1);
/// The root of this tree.
pub const CATALOGUE_ROOT: PageId = PageId(0);
/// The tree of the garbage table.
pub const GARBAGE_TREE: TreeId = TreeId(2);
/// The root of this tree.
pub const GARBAGE_ROOT: PageId = PageId(1);
/// First tree id that a user's table gets.
pub const FIRST_USER_TREE: TreeId = TreeId(16);
/// Maximum length of a table's name in bytes.
pub const TABLE_NAME_BYTES_MAX: usize = 255;

const GARBAGE_DROPPED_TREE: u8 = 1;
const GARBAGE_CHUNKS: u8 = 2;
const GARBAGE_PAGES: u8 = 3;
const KEY_OF_CHUNKS: u8 = 0xff;
/// Maximum number of chunks of one garbage row, which one apply section frees.
pub const GARBAGE_CHUNKS_MAX: usize = 128;

/// A tree and its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeRow {
    /// The tree.
    pub tree: TreeId,
    /// Its root, which never changes.
    pub root: PageId,
}

impl TreeRow {
    /// Returns the value of a catalogue row.
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

    /// Returns the value of a garbage row.
    pub fn encode_garbage(self) -> [u8; 9] {
        let mut row = [GARBAGE_DROPPED_TREE; 9];
        row[1..].copy_from_slice(&self.encode());
        row
    }
}

/// A row of the garbage table, which says what is to be freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GarbageRow {
    /// All pages of a tree.
    DroppedTree(TreeRow),
    /// Chunks that no leaf names any longer, 1 to [`GARBAGE_CHUNKS_MAX`].
    Chunks(Vec<PageId>),
    /// Overflow pages that no leaf names any longer, and that a snapshot has kept, 1 to
    /// [`GARBAGE_CHUNKS_MAX`].
    Pages(Vec<PageId>),
    /// Pages or chunks of a tree that nothing readable names: see [`crate::lost`].
    Leaked {
        /// The tree.
        tree: TreeId,
        /// Number of leaks.
        count: u64,
    },
    /// A piece of a write that was put aside: see [`crate::lost`].
    Aside,
}

impl GarbageRow {
    /// Returns the value of a row of chunks.
    pub fn encode_chunks(chunks: &[PageId]) -> Vec<u8> {
        encode_ids(GARBAGE_CHUNKS, chunks)
    }

    /// Returns the value of a row of overflow pages.
    pub fn encode_pages(pages: &[PageId]) -> Vec<u8> {
        encode_ids(GARBAGE_PAGES, pages)
    }

    /// Reads the value of a row.
    ///
    /// # Errors
    /// [`Damage`] when it is of another kind or length.
    pub fn decode(value: &[u8]) -> Result<Self, Damage> {
        match value.split_first() {
            Some((&GARBAGE_DROPPED_TREE, row)) => TreeRow::decode(row).map(Self::DroppedTree),
            Some((kind @ (&GARBAGE_CHUNKS | &GARBAGE_PAGES), ids))
                if ids.len().is_multiple_of(4)
                    && (1..=GARBAGE_CHUNKS_MAX).contains(&(ids.len() / 4)) =>
            {
                let ids = ids.as_chunks::<4>().0.iter();
                let ids = ids.map(|id| PageId(u32::from_le_bytes(*id))).collect();
                Ok(match *kind {
                    GARBAGE_CHUNKS => Self::Chunks(ids),
                    _ => Self::Pages(ids),
                })
            }
            Some((&GARBAGE_LEAKED, row)) => match decode_leaks(row) {
                Some((tree, count)) => Ok(Self::Leaked { tree, count }),
                None => Err(Damage::new("leaks that are not counted".to_owned())),
            },
            Some((&GARBAGE_ASIDE, _)) => Ok(Self::Aside),
            _ => Err(Damage::new(format!(
                "garbage row of unknown kind, {} bytes",
                value.len()
            ))),
        }
    }
}

/// Returns the value of a row that lists `ids`.
fn encode_ids(kind: u8, ids: &[PageId]) -> Vec<u8> {
    debug_assert!((1..=GARBAGE_CHUNKS_MAX).contains(&ids.len()));
    let mut row = Vec::with_capacity(1 + 4 * ids.len());
    row.push(kind);
    row.extend(ids.iter().flat_map(|page| page.0.to_le_bytes()));
    row
}

/// Returns the key of a garbage row. Rows of one batch sort after those of older ones.
pub fn garbage_key(lsn: crate::Lsn, index: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&lsn.0.to_be_bytes());
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// Returns the key of the garbage row of a tree that is filled without the log, until a table takes
/// it. The row sorts before those of all batches, whose LSNs are greater.
pub fn filled_garbage_key(tree: TreeId) -> [u8; 12] {
    garbage_key(crate::Lsn(0), tree.0)
}

/// Returns the key of a garbage row of chunks. A chunk is in at most one row, so the first chunk
/// distinguishes rows.
pub fn chunk_garbage_key(lsn: crate::Lsn, first: PageId) -> [u8; 13] {
    let mut key = [KEY_OF_CHUNKS; 13];
    key[..8].copy_from_slice(&lsn.0.to_be_bytes());
    key[9..].copy_from_slice(&first.0.to_be_bytes());
    key
}

/// Returns the LSN with which the key of a garbage row begins, `None` for a key that is too short.
pub fn garbage_lsn(key: &[u8]) -> Option<crate::Lsn> {
    let lsn = key.first_chunk::<8>()?;
    Some(crate::Lsn(u64::from_be_bytes(*lsn)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lsn;

    #[test]
    fn garbage_rows_survive_their_bytes() {
        let row = TreeRow {
            tree: TreeId(77),
            root: PageId(5),
        };
        assert_eq!(
            GarbageRow::decode(&row.encode_garbage()),
            Ok(GarbageRow::DroppedTree(row))
        );
        let chunks: Vec<PageId> = (7..7 + GARBAGE_CHUNKS_MAX as u32).map(PageId).collect();
        let bytes = GarbageRow::encode_chunks(&chunks);
        assert_eq!(GarbageRow::decode(&bytes), Ok(GarbageRow::Chunks(chunks)));
        let pages = vec![PageId(3), PageId(9)];
        let row = GarbageRow::encode_pages(&pages);
        assert_eq!(GarbageRow::decode(&row), Ok(GarbageRow::Pages(pages)));
        for bad in [
            &bytes[..1],
            &bytes[..4],
            &[3, 0, 0, 0][..],
            &[9, 0, 0, 0, 0],
            &[],
        ] {
            assert!(GarbageRow::decode(bad).is_err());
        }
        let long = [&bytes[..], &[0; 4]].concat();
        assert!(GarbageRow::decode(&long).is_err());
    }

    #[test]
    fn keys_of_garbage_sort_by_lsn() {
        let keys = [
            garbage_key(Lsn(8), 1).to_vec(),
            chunk_garbage_key(Lsn(8), PageId(0)).to_vec(),
            garbage_key(Lsn(16), 0).to_vec(),
        ];
        assert!(keys.is_sorted());
        assert_eq!(garbage_lsn(&keys[1]), Some(Lsn(8)));
        assert_eq!(garbage_lsn(&keys[1][..7]), None);
    }
}
