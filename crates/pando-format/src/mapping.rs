//! The page mapping on disk: a base, and a journal of the changes since (decision 001).
//!
//! `map.N` (base): sections of 4,096 bytes, each 511 page words (see `extent`) and a checksum:
//!
//! ```text
//! 0..4088     page words of pages 511 i .. 511 i + 511, 0 for a free page
//! 4088..4092  CRC-32C of bytes 0..4088, seeded with the section's number
//! 4092..4096  "PMAP"
//! ```
//!
//! `journal.N`: one group for each checkpoint, padded to 4,096 bytes:
//!
//! ```text
//! 0..4    "PJNL"         4..8    CRC-32C of bytes 8.. of the group (without padding)
//! 8..16   generation    16..20   pairs      20..24  counts
//! 24..    pairs:  u32 page id, u32 zero, u64 page word (0: freed)
//!         counts: u32 tree id, u32 zero, u64 entries of the tree
//! ```
//! Pairs are in the order of the events. Of several pairs for one page, the last one counts.

use crate::bytes::{Reader, put_u32, put_u64, u32_at, u64_at};
use crate::checksum::{crc32c, crc32c_append};
use crate::{Damage, Epoch, PageId, TreeId};

/// Size of a base section in bytes. Journal groups are padded to multiples of it.
pub const SECTION_BYTES: usize = 4096;
/// Number of page words in a base section.
pub const SECTION_WORDS: usize = 511;
const SECTION_MAGIC: u32 = u32::from_le_bytes(*b"PMAP");
const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"PJNL");
const GROUP_HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 16;

/// Returns the number of sections for `pages` words.
pub fn sections(pages: u64) -> u64 {
    pages.div_ceil(SECTION_WORDS as u64)
}

/// Writes section `number` with at most [`SECTION_WORDS`] words.
pub fn encode_section(number: u64, words: &[u64], section: &mut [u8]) {
    assert!(words.len() <= SECTION_WORDS && section.len() == SECTION_BYTES);
    section.fill(0);
    for (index, word) in words.iter().enumerate() {
        put_u64(section, index * 8, *word);
    }
    let crc = crc32c_append(crc32c(&number.to_le_bytes()), &section[..SECTION_WORDS * 8]);
    put_u32(section, SECTION_WORDS * 8, crc);
    put_u32(section, SECTION_WORDS * 8 + 4, SECTION_MAGIC);
}

/// Reads section `number`, all [`SECTION_WORDS`] words.
///
/// # Errors
/// [`Damage`] when magic or checksum are wrong.
pub fn decode_section(
    number: u64,
    section: &[u8],
) -> Result<impl Iterator<Item = u64> + '_, Damage> {
    if section.len() != SECTION_BYTES || u32_at(section, SECTION_WORDS * 8 + 4) != SECTION_MAGIC {
        return Err(Damage::new(format!(
            "mapping base: section {number} is none"
        )));
    }
    let stored = u32_at(section, SECTION_WORDS * 8);
    let actual = crc32c_append(crc32c(&number.to_le_bytes()), &section[..SECTION_WORDS * 8]);
    if stored != actual {
        return Err(Damage::new(format!(
            "mapping base: section {number}: checksum stored {stored:#010x}, actual {actual:#010x}"
        )));
    }
    Ok((0..SECTION_WORDS).map(|index| u64_at(section, index * 8)))
}

/// The changes that one checkpoint adds to the mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Generation of the checkpoint.
    pub generation: Epoch,
    /// Pages and their words (0: freed), in the order of the events.
    pub pairs: Vec<(PageId, u64)>,
    /// Number of entries of each table's tree.
    pub counts: Vec<(TreeId, u64)>,
}

impl Group {
    /// Appends the encoded group to `out`, padded to [`SECTION_BYTES`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let body = (self.pairs.len() + self.counts.len()) * ENTRY_BYTES;
        out.resize(
            start + (GROUP_HEADER_BYTES + body).next_multiple_of(SECTION_BYTES),
            0,
        );
        let group = &mut out[start..];
        put_u32(group, 0, GROUP_MAGIC);
        put_u64(group, 8, self.generation.0);
        let count = |len: usize| u32::try_from(len).expect("fewer changes than ids");
        put_u32(group, 16, count(self.pairs.len()));
        put_u32(group, 20, count(self.counts.len()));
        let pairs = self.pairs.iter().map(|(page, word)| (page.0, *word));
        let counts = self.counts.iter().map(|(tree, count)| (tree.0, *count));
        for (index, (id, value)) in pairs.chain(counts).enumerate() {
            let offset = GROUP_HEADER_BYTES + index * ENTRY_BYTES;
            put_u32(group, offset, id);
            put_u64(group, offset + 8, value);
        }
        let crc = crc32c(&group[8..GROUP_HEADER_BYTES + body]);
        put_u32(group, 4, crc);
    }

    /// Returns the length in bytes, including padding, of the group whose first section is
    /// `section`. The rest of the group is not checked.
    ///
    /// # Errors
    /// [`Damage`] when no group starts there.
    pub fn encoded_bytes(section: &[u8]) -> Result<u64, Damage> {
        if section.len() < GROUP_HEADER_BYTES || u32_at(section, 0) != GROUP_MAGIC {
            return Err(Damage::new(
                "mapping journal: no group where one should start",
            ));
        }
        let entries = u64::from(u32_at(section, 16)) + u64::from(u32_at(section, 20));
        let bytes = GROUP_HEADER_BYTES as u64 + entries * ENTRY_BYTES as u64;
        Ok(bytes.next_multiple_of(SECTION_BYTES as u64))
    }

    /// Reads the group at the start of `journal`. Also returns its length in bytes.
    ///
    /// # Errors
    /// [`Damage`] when there is no complete, valid group.
    pub fn decode(journal: &[u8]) -> Result<(Self, usize), Damage> {
        let short = || Damage::new("mapping journal: a group is cut off");
        if journal.len() < GROUP_HEADER_BYTES {
            return Err(short());
        }
        if u32_at(journal, 0) != GROUP_MAGIC {
            return Err(Damage::new(
                "mapping journal: no group where one should start",
            ));
        }
        let (pairs, counts) = (u32_at(journal, 16) as usize, u32_at(journal, 20) as usize);
        let body = (pairs + counts) * ENTRY_BYTES;
        let used = journal
            .get(8..GROUP_HEADER_BYTES + body)
            .ok_or_else(short)?;
        let (stored, actual) = (u32_at(journal, 4), crc32c(used));
        if stored != actual {
            return Err(Damage::new(format!(
                "mapping journal: checksum stored {stored:#010x}, actual {actual:#010x}"
            )));
        }
        let mut group = Self {
            generation: Epoch(u64_at(journal, 8)),
            ..Self::default()
        };
        let mut entries = Reader::new(&journal[GROUP_HEADER_BYTES..GROUP_HEADER_BYTES + body]);
        for index in 0..pairs + counts {
            let (Some(id), Some(_), Some(value)) = (entries.u32(), entries.u32(), entries.u64())
            else {
                return Err(short());
            };
            if index < pairs {
                group.pairs.push((PageId(id), value));
            } else {
                group.counts.push((TreeId(id), value));
            }
        }
        let bytes = (GROUP_HEADER_BYTES + body).next_multiple_of(SECTION_BYTES);
        Ok((group, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_survive_and_flips_are_seen() {
        let words: Vec<u64> = (0..SECTION_WORDS as u64).map(|word| word * 3).collect();
        let mut section = vec![0; SECTION_BYTES];
        encode_section(7, &words, &mut section);
        assert_eq!(
            decode_section(7, &section).unwrap().collect::<Vec<_>>(),
            words
        );
        assert!(
            decode_section(8, &section).is_err(),
            "a section of another place"
        );
        section[100] ^= 1;
        assert!(decode_section(7, &section).is_err());
    }

    #[test]
    fn groups_survive_and_every_flipped_bit_is_seen() {
        let group = Group {
            generation: Epoch(5),
            pairs: (0..300)
                .map(|page| (PageId(page), u64::from(page) << 40 | 1))
                .collect(),
            counts: vec![(TreeId(3), 17)],
        };
        let mut journal = Vec::new();
        group.encode(&mut journal);
        assert_eq!(journal.len() % SECTION_BYTES, 0);
        assert_eq!(Group::decode(&journal).unwrap(), (group, journal.len()));
        for bit in (0..(GROUP_HEADER_BYTES + 301 * ENTRY_BYTES) * 8).step_by(7) {
            journal[bit / 8] ^= 1 << (bit % 8);
            assert!(Group::decode(&journal).is_err(), "bit {bit}");
            journal[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(Group::decode(&journal[..4095]).is_err());
    }
}
