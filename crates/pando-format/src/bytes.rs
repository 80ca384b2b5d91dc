//! Little-endian fields at fixed offsets of a byte slice.

/// Reads a `u32` at `offset`.
///
/// # Panics
/// When the slice is too short: callers check lengths first.
#[inline]
pub fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

/// Reads a `u64` at `offset`. Panics as [`u32_at`].
#[inline]
pub fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}

/// Writes a `u32` at `offset`. Panics as [`u32_at`].
#[inline]
pub fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Writes a `u64` at `offset`. Panics as [`u32_at`].
#[inline]
pub fn put_u64(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// Takes bytes from the front of a slice. Its methods return `None` when the slice is too short.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Makes a reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of bytes that were not taken yet.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes the next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    /// Takes the next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.take(2)
            .map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    /// Takes the next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.take(4).map(|bytes| u32_at(bytes, 0))
    }

    /// Takes the next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.take(8).map(|bytes| u64_at(bytes, 0))
    }
}
