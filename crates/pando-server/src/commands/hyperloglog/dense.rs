//! Registers of six bits each, from the lowest bit of the first byte on.

use super::estimate::Histogram;
use super::hash::REGISTERS;

/// Bytes of all registers.
pub(super) const BYTES: usize = REGISTERS * 6 / 8;

/// Returns register `index` of `registers`, which has [`BYTES`] bytes.
pub(super) fn get(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let low = u16::from(registers[byte]);
    let high = registers.get(byte + 1).map_or(0, |high| u16::from(*high));
    u8::try_from((low | high << 8) >> shift & 63).unwrap_or(0)
}

/// Writes register `index`; `value` has six bits.
pub(super) fn set(registers: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let [low_mask, high_mask] = (63_u16 << shift).to_le_bytes();
    let [low, high] = (u16::from(value & 63) << shift).to_le_bytes();
    registers[byte] = registers[byte] & !low_mask | low;
    if high_mask != 0 {
        registers[byte + 1] = registers[byte + 1] & !high_mask | high;
    }
}

/// Returns how many registers have each value. Four registers lie in three bytes, so none is put
/// together from two bytes.
pub(super) fn histogram(registers: &[u8]) -> Histogram {
    let mut histogram = Histogram::default();
    let (threes, _) = registers.as_chunks::<3>();
    for [first, second, third] in threes {
        let four = u32::from_le_bytes([*first, *second, *third, 0]);
        for value in [four & 63, four >> 6 & 63, four >> 12 & 63, four >> 18] {
            histogram.add(u8::try_from(value).unwrap_or(0), 1);
        }
    }
    histogram
}
