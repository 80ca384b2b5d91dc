//! The superblock, which describes the newest checkpoint. It has two slots of 4 KiB in a file of
//! its own, written one after the other, so that a damaged slot has a copy.
//!
//! ```text
//! bytes
//!   0..8    magic "PANDODB\0"
//!   8..12   version of the format
//!  12..16   CRC-32C of bytes 16..4096
//!  16..24   generation: the epoch that this checkpoint closed
//!  24..32   incarnation of the log
//!  32..40   checkpoint LSN C: replay starts here
//!  40..44   page size          44..48   block size
//!  48..52   log segment bytes  52..56   next tree id
//!  56..64   mapping number: files map.N and journal.N
//!  64..72   pages in the mapping base
//!  72..80   journal bytes that belong to this checkpoint
//!  80..88   blocks of the data file at this checkpoint
//!  88..104  identity of the store, random
//! 104..112  key of folded long keys, random  112..120 second half
//! 120       compression of new images: 0 not recorded, else 1 + codec
//! 121       level of that compression, 0 if it has none
//! 122..4096 zero
//! ```

use crate::bytes::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::crc32c;
use crate::compression::{Codec, Compression};
use crate::{Damage, Epoch, Lsn, VERSION, VERSION_BASE};

/// Size in bytes of one slot, and distance of the two.
pub const SLOT_BYTES: usize = 4096;
/// First bytes of a slot.
pub const MAGIC: [u8; 8] = *b"PANDODB\0";

/// Content of a superblock slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Version of the format: the least one that has all that the store uses.
    pub version: u32,
    /// The epoch that this checkpoint closed.
    pub generation: Epoch,
    /// Generation of the checkpoint that ended the last recovery. Log records carry it.
    pub incarnation: u64,
    /// Every batch up to this LSN is in the checkpoint, and no later one.
    pub checkpoint_lsn: Lsn,
    /// Size of a page in bytes.
    pub page_bytes: u32,
    /// Size of a block in bytes.
    pub block_bytes: u32,
    /// Size of a log segment in bytes.
    pub segment_bytes: u32,
    /// The first tree id that was never assigned.
    pub next_tree: u32,
    /// Number of the mapping base and journal files.
    pub mapping: u64,
    /// Number of words in the mapping base.
    pub base_pages: u64,
    /// Number of bytes of the journal that belong to this checkpoint.
    pub journal_bytes: u64,
    /// Number of blocks of the data file.
    pub data_blocks: u64,
    /// Random identity of the store.
    pub identity: [u8; 16],
    /// Random key for stored hashes.
    pub hash_key: [u64; 2],
    /// How new images are stored.
    pub compression: StoredCompression,
}

/// The compression of new images as a slot names it. A code that this program does not know leaves
/// the slot valid: otherwise an older checkpoint would be taken for the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredCompression {
    code: u8,
    level: u8,
}

impl StoredCompression {
    /// Returns the code of `compression`.
    pub fn of(compression: Compression) -> Self {
        Self {
            code: 1 + compression.codec().encode(),
            level: match compression {
                Compression::Zstd(level) => level,
                _ => 0,
            },
        }
    }

    /// Returns the compression; `None` if an older program wrote the slot, which records none.
    ///
    /// # Errors
    /// [`Damage`] for a codec or level that this program does not know.
    pub fn get(self) -> Result<Option<Compression>, Damage> {
        let Self { code, level } = self;
        let codec = code.checked_sub(1).map(Codec::decode);
        let known = match (codec, level) {
            (None, 0) => return Ok(None),
            (Some(Some(Codec::Plain)), 0) => Compression::None,
            (Some(Some(Codec::Lz4)), 0) => Compression::Lz4,
            (Some(Some(Codec::Snappy)), 0) => Compression::Snappy,
            (Some(Some(Codec::Zstd)), 1..=Compression::ZSTD_LEVEL_MAX) => Compression::Zstd(level),
            _ => {
                let what = format!("compression {code} of level {level} is unknown");
                return Err(Damage::new(what));
            }
        };
        Ok(Some(known))
    }
}

impl Superblock {
    /// Returns the bytes of one slot.
    pub fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        slot[..8].copy_from_slice(&MAGIC);
        put_u32(&mut slot, 8, self.version);
        put_u64(&mut slot, 16, self.generation.0);
        put_u64(&mut slot, 24, self.incarnation);
        put_u64(&mut slot, 32, self.checkpoint_lsn.0);
        put_u32(&mut slot, 40, self.page_bytes);
        put_u32(&mut slot, 44, self.block_bytes);
        put_u32(&mut slot, 48, self.segment_bytes);
        put_u32(&mut slot, 52, self.next_tree);
        put_u64(&mut slot, 56, self.mapping);
        put_u64(&mut slot, 64, self.base_pages);
        put_u64(&mut slot, 72, self.journal_bytes);
        put_u64(&mut slot, 80, self.data_blocks);
        slot[88..104].copy_from_slice(&self.identity);
        put_u64(&mut slot, 104, self.hash_key[0]);
        put_u64(&mut slot, 112, self.hash_key[1]);
        slot[120] = self.compression.code;
        slot[121] = self.compression.level;
        let crc = crc32c(&slot[16..]);
        put_u32(&mut slot, 12, crc);
        slot
    }

    /// Returns the format version in which a slot was written, `None` if it is not a complete slot.
    /// The fields that this reads are at the same place in every version.
    pub fn version_of(slot: &[u8]) -> Option<u32> {
        let is_whole = slot.len() >= SLOT_BYTES
            && slot[..8] == MAGIC
            && u32_at(slot, 12) == crc32c(&slot[16..SLOT_BYTES]);
        is_whole.then(|| u32_at(slot, 8))
    }

    /// Returns whether this program reads and writes this version.
    pub fn is_known(version: u32) -> bool {
        (VERSION_BASE..=VERSION).contains(&version)
    }

    /// Reads one slot.
    ///
    /// # Errors
    /// [`Damage`] when it is not a superblock, of another version, or does not match its checksum.
    pub fn decode(slot: &[u8]) -> Result<Self, Damage> {
        if slot.len() < SLOT_BYTES {
            return Err(Damage::new(format!(
                "superblock slot of {} bytes",
                slot.len()
            )));
        }
        if slot[..8] != MAGIC {
            return Err(Damage::new("no superblock: the magic number is missing"));
        }
        let (stored, actual) = (u32_at(slot, 12), crc32c(&slot[16..SLOT_BYTES]));
        if stored != actual {
            return Err(Damage::new(format!(
                "superblock checksum: stored {stored:#010x}, actual {actual:#010x}"
            )));
        }
        let version = u32_at(slot, 8);
        if !Self::is_known(version) {
            return Err(Damage::new(format!(
                "format version {version}; this program reads up to version {VERSION}"
            )));
        }
        let mut identity = [0; 16];
        identity.copy_from_slice(&slot[88..104]);
        Ok(Self {
            version,
            generation: Epoch(u64_at(slot, 16)),
            incarnation: u64_at(slot, 24),
            checkpoint_lsn: Lsn(u64_at(slot, 32)),
            page_bytes: u32_at(slot, 40),
            block_bytes: u32_at(slot, 44),
            segment_bytes: u32_at(slot, 48),
            next_tree: u32_at(slot, 52),
            mapping: u64_at(slot, 56),
            base_pages: u64_at(slot, 64),
            journal_bytes: u64_at(slot, 72),
            data_blocks: u64_at(slot, 80),
            identity,
            hash_key: [u64_at(slot, 104), u64_at(slot, 112)],
            compression: StoredCompression {
                code: slot[120],
                level: slot[121],
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: Superblock = Superblock {
        version: VERSION_BASE,
        generation: Epoch(7),
        incarnation: 3,
        checkpoint_lsn: Lsn(99),
        page_bytes: 8192,
        block_bytes: 512,
        segment_bytes: 1 << 16,
        next_tree: 16,
        mapping: 4,
        base_pages: 5,
        journal_bytes: 6,
        data_blocks: 8,
        identity: [9; 16],
        hash_key: [10, 11],
        compression: StoredCompression { code: 0, level: 0 },
    };

    #[test]
    fn the_compression_comes_back() {
        for how in [
            Compression::None,
            Compression::Lz4,
            Compression::Snappy,
            Compression::Zstd(1),
            Compression::Zstd(Compression::ZSTD_LEVEL_MAX),
        ] {
            let written = Superblock {
                compression: StoredCompression::of(how),
                ..NEW
            };
            let read = Superblock::decode(&written.encode()).unwrap();
            assert_eq!(read, written);
            assert_eq!(read.compression.get(), Ok(Some(how)));
        }
    }

    /// Earlier programs leave zeros there.
    #[test]
    fn a_slot_without_a_compression_is_one_of_an_earlier_program() {
        let read = Superblock::decode(&NEW.encode()).unwrap();
        assert_eq!(read.compression.get(), Ok(None));
    }

    /// The slot counts: it may be the newest one.
    #[test]
    fn an_unknown_compression_leaves_the_slot_valid_and_is_named() {
        for (code, level) in [
            (5, 0),
            (255, 0),
            (0, 1),
            (1, 1),
            (2, 3),
            (3, 0),
            (3, 23),
            (4, 1),
        ] {
            let written = Superblock {
                compression: StoredCompression { code, level },
                ..NEW
            };
            let read = Superblock::decode(&written.encode()).unwrap();
            let error = read.compression.get().unwrap_err().to_string();
            assert!(
                error.contains(&format!("compression {code} of level {level}")),
                "{error}"
            );
        }
    }
}
