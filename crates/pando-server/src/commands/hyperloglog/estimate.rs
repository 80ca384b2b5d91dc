//! The number of elements that registers tell of: algorithm 6 of Otmar Ertl, "New cardinality
//! estimation algorithms for HyperLogLog sketches" (arXiv 1702.01284).

use super::hash::{RANK_BITS, REGISTERS};

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        y *= 0.5;
        let before = z;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z.to_bits() == before.to_bits() {
            return z / 3.0;
        }
    }
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z.to_bits() == before.to_bits() {
            return z;
        }
    }
}

/// How many registers have each value, of which there are as many as six bits have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Histogram {
    /// Counts `registers`.
    pub(super) fn of(registers: &[u8; REGISTERS]) -> Self {
        let mut histogram = Self::default();
        for value in registers {
            histogram.add(*value, 1);
        }
        histogram
    }

    /// Counts `registers` more that have `value`; together they are [`REGISTERS`] at most.
    #[inline]
    pub(super) fn add(&mut self, value: u8, registers: usize) {
        self.0[usize::from(value) % 64] += u32::try_from(registers).unwrap_or(u32::MAX);
    }
}

/// Returns the number of elements. Registers that no elements make may tell of infinitely many:
/// that is the greatest number with a sign.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a conversion is cut at the greatest number"
)]
pub(super) fn estimate(Histogram(counts): &Histogram) -> u64 {
    let all = REGISTERS as f64;
    let last = RANK_BITS as usize + 1;
    let mut z = all * tau((all - f64::from(counts[last])) / all);
    for count in counts[1..last].iter().rev() {
        z = (z + f64::from(*count)) * 0.5;
    }
    z += all * sigma(f64::from(counts[0]) / all);
    let elements = (ALPHA * all * all / z).round() as i64;
    elements.cast_unsigned()
}
