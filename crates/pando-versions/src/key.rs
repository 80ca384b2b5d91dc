//! Keys of versions: tree, key and LSN, in this order.
//!
//! ```text
//! +--------------+-----------------------------------+--------------+---------------+
//! | tree: 4, BE  | key: groups of 8 bytes + 1 byte   | LSN: 8, BE   | cut: 4, BE    |
//! +--------------+-----------------------------------+--------------+---------------+
//! ```
//!
//! Keys in groups sort as the keys do, and none is the beginning of another one, whatever follows
//! it. A group has 8 bytes of the key, the last one padded with zeros, and then the number of bytes
//! that are the key's; [`MORE`] if another group follows. (A key and an LSN that simply follow each
//! other are not in key order: the versions of "u" would lie among those of "u" and 8 more bytes.)
//!
//! A key that is too long for the pages of versions is cut after a group, whose last byte still
//! says that there is more. The value then has the whole key, and a number that is different for
//! each write of a batch keeps the versions of two keys apart that are equal up to there.

use pando_format::{Lsn, TreeId};

const GROUP: usize = 8;
/// Bytes of a group with its last byte.
const STORED: usize = GROUP + 1;
/// The last byte of a group that another one follows.
const MORE: u8 = 9;
const TREE: usize = 4;
const LSN: usize = 8;
const CUT: usize = 4;

/// Longest key in groups for which the key of a version has at most `bytes` bytes.
pub(crate) fn groups_max(bytes: usize) -> usize {
    (bytes - TREE - LSN - CUT) / STORED
}

/// Appends `key` in groups, at most `groups` of them. Returns true if it was cut.
fn append_groups(key: &[u8], groups: usize, out: &mut Vec<u8>) -> bool {
    let mut rest = key;
    for _ in 0..groups {
        let (group, behind) = rest.split_at(rest.len().min(GROUP));
        out.extend_from_slice(group);
        out.resize(out.len() + GROUP - group.len(), 0);
        if behind.is_empty() {
            out.push(u8::try_from(group.len()).expect("at most 8"));
            return false;
        }
        out.push(MORE);
        rest = behind;
    }
    true
}

/// The beginning that all versions of one key have in common, and whether the key was cut.
#[derive(Debug, Default)]
pub(crate) struct Stem {
    bytes: Vec<u8>,
    pub(crate) is_cut: bool,
    /// Length of the stem; the rest of `bytes` is that of the last whole key.
    len: usize,
}

impl Stem {
    /// Makes it the stem of `key` of `tree`; `groups` is how many fit.
    pub(crate) fn set(&mut self, tree: TreeId, key: &[u8], groups: usize) {
        self.bytes.clear();
        self.bytes.extend_from_slice(&tree.0.to_be_bytes());
        self.is_cut = append_groups(key, groups, &mut self.bytes);
        self.len = self.bytes.len();
    }

    /// Returns the stem.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the key of the version of `lsn`. `number` is the number of the write in its batch.
    pub(crate) fn at(&mut self, lsn: Lsn, number: u32) -> &[u8] {
        self.bytes.truncate(self.len);
        self.bytes.extend_from_slice(&lsn.0.to_be_bytes());
        if self.is_cut {
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
        &self.bytes
    }

    /// Returns the LSN of a version of this stem; None for the key of another one.
    pub(crate) fn lsn_of(&self, version: &[u8]) -> Option<Lsn> {
        let tail = version.strip_prefix(self.bytes())?;
        let lsn = tail.first_chunk::<LSN>()?;
        Some(Lsn(u64::from_be_bytes(*lsn)))
    }
}

/// What the key of a version says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) lsn: Lsn,
    /// The key is in the value.
    pub(crate) is_cut: bool,
}

/// Replaces `key` by the key of a version of `tree`, as far as it is there. Returns None for a
/// version of another tree.
pub(crate) fn decode(tree: TreeId, version: &[u8], key: &mut Vec<u8>) -> Option<Decoded> {
    key.clear();
    let mut rest = version.strip_prefix(&tree.0.to_be_bytes()[..])?;
    let tail_of_cut = LSN + CUT;
    let mut is_cut = false;
    loop {
        if rest.len() == tail_of_cut {
            // If the key went on here, there would be a group, too, and more than this.
            is_cut = true;
            break;
        }
        let (group, behind) = rest.split_at_checked(STORED)?;
        let used = group[GROUP];
        rest = behind;
        if used == MORE {
            key.extend_from_slice(&group[..GROUP]);
            continue;
        }
        key.extend_from_slice(group.get(..usize::from(used))?);
        break;
    }
    let lsn = rest.first_chunk::<LSN>()?;
    Some(Decoded {
        lsn: Lsn(u64::from_be_bytes(*lsn)),
        is_cut,
    })
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;

    const TREE_ID: TreeId = TreeId(17);

    fn version(key: &[u8], lsn: u64, groups: usize) -> Vec<u8> {
        let mut stem = Stem::default();
        stem.set(TREE_ID, key, groups);
        stem.at(Lsn(lsn), 3).to_vec()
    }

    /// Keys that are beginnings of each other, with zeros and with what could pass for an LSN.
    fn keys() -> Vec<Vec<u8>> {
        let mut keys = vec![Vec::new()];
        for len in 1..=26 {
            for byte in [0, 1, 9, b'u', 255] {
                keys.push(vec![byte; len]);
                let mut key = vec![b'u'; len];
                key[len - 1] = byte;
                keys.push(key);
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn versions_sort_by_key_and_then_by_lsn() {
        let keys = keys();
        let mut before: Option<Vec<u8>> = None;
        for key in &keys {
            for lsn in [0, 8, 255, 1 << 40] {
                let now = version(key, lsn, 100);
                assert!(before.is_none_or(|before| before < now), "{key:?} {lsn}");
                before = Some(now);
            }
        }
    }

    #[test]
    fn a_version_says_which_key_and_lsn_it_is_of() {
        let mut found = Vec::new();
        for key in keys() {
            for lsn in [0, 8, 1 << 40] {
                let bytes = version(&key, lsn, 100);
                let decoded = decode(TREE_ID, &bytes, &mut found).expect("a version");
                assert_eq!(
                    decoded,
                    Decoded {
                        lsn: Lsn(lsn),
                        is_cut: false
                    }
                );
                assert_eq!(found, key);
                assert_eq!(decode(TreeId(18), &bytes, &mut found), None);
            }
        }
    }

    #[test]
    fn keys_that_are_too_long_are_cut_and_stay_in_order() {
        let (groups, limit) = (2, 16);
        assert_eq!(groups_max(TREE + groups * STORED + LSN + CUT), groups);
        let mut found = Vec::new();
        for key in keys() {
            let bytes = version(&key, 8, groups);
            let decoded = decode(TREE_ID, &bytes, &mut found).expect("a version");
            assert_eq!(decoded.is_cut, key.len() > limit, "{key:?}");
            assert_eq!(found, key[..key.len().min(limit)]);
            assert_eq!(decoded.lsn, Lsn(8));
            assert!(bytes.len() <= TREE + groups * STORED + LSN + CUT);
        }
    }

    #[test]
    fn the_versions_of_a_stem_are_those_of_its_key() {
        let mut stem = Stem::default();
        stem.set(TREE_ID, b"user", 100);
        assert_eq!(stem.lsn_of(&version(b"user", 80, 100)), Some(Lsn(80)));
        for other in [&b"use"[..], b"user\0", b"user1", b""] {
            assert_eq!(stem.lsn_of(&version(other, 80, 100)), None);
        }
    }
}
