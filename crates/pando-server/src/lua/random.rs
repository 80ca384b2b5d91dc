//! A generator of random numbers: those of `lrand48`, as in Redis.

use std::cell::Cell;

/// The 48 bits of a generator of `lrand48`.
pub(super) struct Random(Cell<u64>);

impl Random {
    /// Returns the state after a seed.
    pub(super) fn new(seed: u32) -> Self {
        Self(Cell::new(Self::seeded(seed)))
    }

    fn seeded(seed: u32) -> u64 {
        u64::from(seed) << 16 | 0x330e
    }

    /// Begins again with this seed.
    pub(super) fn seed(&self, seed: u32) {
        self.0.set(Self::seeded(seed));
    }

    /// Returns the next 31 bits.
    pub(super) fn next(&self) -> u32 {
        let next = self.0.get().wrapping_mul(0x5_deec_e66d).wrapping_add(11) & 0xffff_ffff_ffff;
        self.0.set(next);
        u32::try_from(next >> 17).expect("31 of 48 bits are left")
    }
}
