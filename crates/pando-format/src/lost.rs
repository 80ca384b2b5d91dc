//! Records of damage with which a store has continued, as rows of the garbage table (decision 061).
//!
//! *Leaked*: pages of a tree, or chunks that it named, which nothing readable names any longer. Key
//! = all ones (u64), tree id (u32, big-endian); value = 4, tree id (u32), number of leaks (u64).
//!
//! *Aside*: a write that is in the log and could not be applied, because the page of its key is
//! unreadable. It is stored in pieces. Key = LSN (u64, big-endian), 254, number of the write (u32,
//! big-endian), number of the piece (u16, big-endian); value = 5, and bytes. All pieces but the
//! last have [`ASIDE_PIECE_BYTES`], the last has fewer, perhaps none. All pieces together: kind (1
//! put, 2 delete, 3 put in chunks, 4 put in chunks of which some are not known), tree id (u32),
//! bytes of the key (u16), key; then the value, or its blob reference.

use std::collections::BTreeMap;

use crate::bytes::Reader;
use crate::{Damage, Lsn, TreeId};

/// First byte of the value of a garbage row that counts the leaks of a tree.
pub(crate) const GARBAGE_LEAKED: u8 = 4;
/// First byte of the value of a garbage row with a piece of a write that was put aside.
pub(crate) const GARBAGE_ASIDE: u8 = 5;
const KEY_OF_ASIDE: u8 = 0xfe;
/// Maximum number of bytes of a write in one row.
pub const ASIDE_PIECE_BYTES: usize = 32 << 10;

const PUT: u8 = 1;
const DELETE: u8 = 2;
const PUT_CHUNKS: u8 = 3;
const PUT_UNKNOWN: u8 = 4;

/// Returns the key of the row that counts the leaks of a tree. It sorts after the rows of all
/// batches.
pub fn leak_key(tree: TreeId) -> [u8; 12] {
    let mut key = [0xff; 12];
    key[8..].copy_from_slice(&tree.0.to_be_bytes());
    key
}

/// Returns the value of that row.
pub fn encode_leaks(tree: TreeId, count: u64) -> [u8; 13] {
    let mut row = [GARBAGE_LEAKED; 13];
    row[1..5].copy_from_slice(&tree.0.to_le_bytes());
    row[5..].copy_from_slice(&count.to_le_bytes());
    row
}

/// Reads what [`encode_leaks`] has written, without its first byte; None for any other length.
pub(crate) fn decode_leaks(row: &[u8]) -> Option<(TreeId, u64)> {
    let mut reader = Reader::new(row);
    let (tree, low, high) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let count = u64::from(high) << 32 | u64::from(low);
    (reader.remaining() == 0).then_some((TreeId(tree), count))
}

/// Returns the key of a piece of a write that was put aside. `number` distinguishes the writes of
/// one batch.
pub fn aside_key(lsn: Lsn, number: u32, piece: u16) -> [u8; 15] {
    let mut key = [KEY_OF_ASIDE; 15];
    key[..8].copy_from_slice(&lsn.0.to_be_bytes());
    key[9..13].copy_from_slice(&number.to_be_bytes());
    key[13..].copy_from_slice(&piece.to_be_bytes());
    key
}

/// Returns LSN, number and piece of such a key, None for the key of another row.
pub fn decode_aside_key(key: &[u8]) -> Option<(Lsn, u32, u16)> {
    let key: &[u8; 15] = key.try_into().ok()?;
    let (lsn, rest) = key.split_first_chunk::<8>()?;
    let (mark, rest) = rest.split_first()?;
    let (number, rest) = rest.split_first_chunk::<4>()?;
    let piece = rest.first_chunk::<2>()?;
    (*mark == KEY_OF_ASIDE).then_some((
        Lsn(u64::from_be_bytes(*lsn)),
        u32::from_be_bytes(*number),
        u16::from_be_bytes(*piece),
    ))
}

/// What a write that was put aside does to its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsideChange<'a> {
    /// Sets it to this value.
    Put(&'a [u8]),
    /// Removes it.
    Delete,
    /// Sets it to the value in chunks with this blob reference.
    PutChunks(&'a [u8]),
    /// Sets it to a value whose chunks are not all known: some were to be kept from a value that is
    /// unreadable.
    PutUnknown,
}

/// A write that was put aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsideWrite<'a> {
    /// The tree of its table.
    pub tree: TreeId,
    /// Its key.
    pub key: &'a [u8],
    /// What it does.
    pub change: AsideChange<'a>,
}

impl<'a> AsideWrite<'a> {
    /// Returns its bytes, for [`aside_pieces`].
    ///
    /// # Panics
    /// When the key has more than 65,535 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, value): (u8, &[u8]) = match self.change {
            AsideChange::Put(value) => (PUT, value),
            AsideChange::Delete => (DELETE, b""),
            AsideChange::PutChunks(list) => (PUT_CHUNKS, list),
            AsideChange::PutUnknown => (PUT_UNKNOWN, b""),
        };
        let key_bytes = u16::try_from(self.key.len()).expect("keys are a quarter of a page");
        let mut bytes = vec![kind];
        bytes.extend(self.tree.0.to_le_bytes());
        bytes.extend(key_bytes.to_le_bytes());
        bytes.extend(self.key);
        bytes.extend(value);
        bytes
    }

    /// Reads the bytes of all pieces together.
    ///
    /// # Errors
    /// [`Damage`] when they are not a write.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Damage> {
        let wrong = || Damage::new(format!("a write of {} bytes put aside", bytes.len()));
        let (kind, rest) = bytes.split_first().ok_or_else(wrong)?;
        let (tree, rest) = rest.split_first_chunk::<4>().ok_or_else(wrong)?;
        let (key_bytes, rest) = rest.split_first_chunk::<2>().ok_or_else(wrong)?;
        let key_bytes = usize::from(u16::from_le_bytes(*key_bytes));
        let (key, value) = rest.split_at_checked(key_bytes).ok_or_else(wrong)?;
        let change = match (*kind, value.is_empty()) {
            (PUT, _) => AsideChange::Put(value),
            (DELETE, true) => AsideChange::Delete,
            (PUT_CHUNKS, false) => AsideChange::PutChunks(value),
            (PUT_UNKNOWN, true) => AsideChange::PutUnknown,
            _ => return Err(wrong()),
        };
        Ok(Self {
            tree: TreeId(u32::from_le_bytes(*tree)),
            key,
            change,
        })
    }
}

/// Cuts the bytes of a write into pieces, of which the last is shorter than the others: where it is
/// missing, a full one is the last.
pub fn aside_pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (full, rest) = bytes.as_chunks::<ASIDE_PIECE_BYTES>();
    full.iter().map(|piece| &piece[..]).chain([rest])
}

/// Puts the pieces of a write together, which have their numbers. None if one is missing.
pub fn join_aside_pieces(pieces: &BTreeMap<u16, Vec<u8>>) -> Option<Vec<u8>> {
    let (last, end) = pieces.last_key_value()?;
    let is_whole = pieces.len() == usize::from(*last) + 1 && end.len() < ASIDE_PIECE_BYTES;
    is_whole.then(|| pieces.values().flatten().copied().collect())
}

/// Returns the value of the row of one piece.
pub fn encode_piece(piece: &[u8]) -> Vec<u8> {
    [&[GARBAGE_ASIDE], piece].concat()
}

/// Returns the piece in a row.
///
/// # Errors
/// [`Damage`] when the row is of another kind.
pub fn decode_piece(row: &[u8]) -> Result<&[u8], Damage> {
    match row.split_first() {
        Some((&GARBAGE_ASIDE, piece)) => Ok(piece),
        _ => Err(Damage::new("no piece of a write put aside".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{GarbageRow, chunk_garbage_key, garbage_key};
    use crate::{Lsn, PageId};

    #[test]
    fn writes_put_aside_survive_their_bytes() {
        let changes = [
            AsideChange::Put(b"value"),
            AsideChange::Put(b""),
            AsideChange::Delete,
            AsideChange::PutChunks(b"list"),
            AsideChange::PutUnknown,
        ];
        for change in changes {
            let write = AsideWrite {
                tree: TreeId(17),
                key: b"key",
                change,
            };
            let bytes = write.encode();
            assert_eq!(AsideWrite::decode(&bytes), Ok(write));
            for cut in 0..7 + 3 {
                assert!(AsideWrite::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            let row = encode_piece(&bytes);
            assert_eq!(decode_piece(&row), Ok(&bytes[..]));
            assert_eq!(GarbageRow::decode(&row), Ok(GarbageRow::Aside));
        }
        assert!(AsideWrite::decode(&[9; 40]).is_err());
        assert!(decode_piece(&[1, 2]).is_err());
    }

    #[test]
    fn a_write_is_put_together_from_all_of_its_pieces_or_not_at_all() {
        for bytes in [
            0,
            1,
            ASIDE_PIECE_BYTES - 1,
            ASIDE_PIECE_BYTES,
            3 * ASIDE_PIECE_BYTES,
        ] {
            let bytes: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let pieces: BTreeMap<u16, Vec<u8>> = (0..)
                .zip(aside_pieces(&bytes).map(<[u8]>::to_vec))
                .collect();
            assert_eq!(pieces.len(), bytes.len() / ASIDE_PIECE_BYTES + 1);
            assert_eq!(join_aside_pieces(&pieces), Some(bytes));
            for piece in pieces.keys() {
                let mut some = pieces.clone();
                some.remove(piece);
                assert_eq!(
                    join_aside_pieces(&some),
                    None,
                    "{piece} of {}",
                    pieces.len()
                );
            }
        }
    }

    #[test]
    fn keys_sort_by_lsn_and_tell_what_they_are() {
        let keys = [
            garbage_key(Lsn(8), 3).to_vec(),
            aside_key(Lsn(8), 0, 7).to_vec(),
            aside_key(Lsn(8), 1, 0).to_vec(),
            chunk_garbage_key(Lsn(8), PageId(0)).to_vec(),
            leak_key(TreeId(16)).to_vec(),
        ];
        assert!(keys.is_sorted());
        assert_eq!(decode_aside_key(&keys[1]), Some((Lsn(8), 0, 7)));
        let others = [&keys[0], &keys[3], &keys[4]];
        assert!(others.iter().all(|key| decode_aside_key(key).is_none()));
    }

    #[test]
    fn leaks_survive_their_bytes() {
        assert_eq!(leak_key(TreeId(17)), garbage_key(Lsn(u64::MAX), 17));
        let row = encode_leaks(TreeId(17), 1 << 40);
        let leaked = GarbageRow::Leaked {
            tree: TreeId(17),
            count: 1 << 40,
        };
        assert_eq!(GarbageRow::decode(&row), Ok(leaked));
        assert!(GarbageRow::decode(&row[..12]).is_err());
    }
}
