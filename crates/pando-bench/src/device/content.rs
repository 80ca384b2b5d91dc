//! The contents of the file: random bytes, and at the start of each sector a number that is derived
//! from its offset.
//!
//! So two loads suffice to check a read, which keeps the comparison with a program that checks
//! nothing fair; and a file from an earlier run can be told from one that was not filled
//! completely.

use crate::random::{Random, mix};

/// Size of a sector; block sizes are multiples of it.
pub(super) const SECTOR_BYTES: usize = 512;

const SALT: u64 = 0x7061_6e64_6f64_6576;

/// Returns the number at the start of the sector at `offset`.
fn stamp(offset: u64) -> [u8; 8] {
    mix((offset / SECTOR_BYTES as u64) ^ SALT).to_le_bytes()
}

/// Fills `block` with random bytes.
pub(super) fn scramble(block: &mut [u8], random: &mut Random) {
    for chunk in block.chunks_mut(8) {
        chunk.copy_from_slice(&random.next().to_le_bytes()[..chunk.len()]);
    }
}

/// Stamps the sectors of `block` for `offset`.
pub(super) fn place(block: &mut [u8], offset: u64) {
    let sectors = block.chunks_exact_mut(SECTOR_BYTES);
    for (sector, at) in sectors.zip((offset..).step_by(SECTOR_BYTES)) {
        sector[..8].copy_from_slice(&stamp(at));
    }
}

/// Returns true if the first and the last sector of `block` belong at `offset`.
pub(crate) fn is_at(block: &[u8], offset: u64) -> bool {
    let last = block.len() - SECTOR_BYTES;
    block[..8] == stamp(offset) && block[last..last + 8] == stamp(offset + last as u64)
}

#[cfg(test)]
mod tests {
    use super::{SECTOR_BYTES, is_at, place, scramble};
    use crate::random::Random;

    #[test]
    fn a_block_is_told_from_its_neighbours() {
        let mut block = vec![0; 4096];
        scramble(&mut block, &mut Random::new(1, 0));
        place(&mut block, 8192);
        assert!(is_at(&block, 8192));
        assert!(!is_at(&block, 4096) && !is_at(&block, 12288));
        // Each sector is checked separately, for devices with other block sizes.
        assert!(is_at(&block[SECTOR_BYTES..], 8192 + 512));
        block[4096 - SECTOR_BYTES] ^= 1;
        assert!(!is_at(&block, 8192), "a torn read");
    }
}
