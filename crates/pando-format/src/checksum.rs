//! CRC-32C (Castagnoli): hardware on x86-64 and aarch64.

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// Goes on from `crc`, the checksum of what came before.
#[inline]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}
