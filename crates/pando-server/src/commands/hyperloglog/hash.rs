//! MurmurHash64A (Austin Appleby, public domain), and what a HyperLogLog takes from a hash.

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;
/// Bits of a hash that choose a register.
const INDEX_BITS: u32 = 14;
/// Number of registers.
pub(super) const REGISTERS: usize = 1 << INDEX_BITS;
/// Bits of a hash of which the zeros at the end are counted.
pub(super) const RANK_BITS: u32 = 64 - INDEX_BITS;

fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        hash ^= (word ^ (word >> SHIFT)).wrapping_mul(FACTOR);
        hash = hash.wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(FACTOR);
    hash ^ (hash >> SHIFT)
}

/// Returns the register of an element, and the value that it has at least then: 1 to 51.
pub(super) fn place(element: &[u8]) -> (usize, u8) {
    let hash = hash(element);
    let index = usize::try_from(hash % REGISTERS as u64).expect("it is less than the modulus");
    let rank = ((hash >> INDEX_BITS) | (1 << RANK_BITS)).trailing_zeros() + 1;
    (index, u8::try_from(rank).expect("a bit is set"))
}
