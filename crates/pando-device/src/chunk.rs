//! Chunks: pieces of a file in memory, initially zeros, each mapped as a whole, by a huge page if
//! wanted.
//!
//! Only touched parts cost memory: 4 KiB at a time, or the whole chunk at once with a huge page,
//! which saves a read of a large file most of its address translation.

#![expect(unsafe_code, reason = "huge pages need a mapping of their own")]

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// [`Chunk::BYTES`] bytes.
pub(crate) struct Chunk {
    /// Begins at a multiple of its length, and belongs only to this value.
    start: NonNull<u8>,
}

// SAFETY: the bytes are of this value alone and plain, so that another thread may have them.
unsafe impl Send for Chunk {}
// SAFETY: shared references allow reads only.
unsafe impl Sync for Chunk {}

impl Chunk {
    /// Length in bytes: that of a huge page.
    pub(crate) const BYTES: usize = 2 << 20;

    /// Makes a chunk of zeros.
    pub(crate) fn new(huge: bool) -> Self {
        let bytes = 2 * Self::BYTES;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // memory that exists.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            handle_alloc_error(Layout::new::<[u8; Self::BYTES]>());
        }
        let before = mapped.align_offset(Self::BYTES);
        // SAFETY: the mapping has room for an aligned chunk after any start.
        let start = unsafe { mapped.byte_add(before) };
        // SAFETY: the chunk ends where the mapping does, or before.
        let end = unsafe { start.byte_add(Self::BYTES) };
        unmap(mapped, before);
        unmap(end, bytes - before - Self::BYTES);
        let advice = match huge {
            true => libc::MADV_HUGEPAGE,
            false => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: the range is mapped and belongs to nobody else; advice changes no contents. A
        // refusal costs speed only.
        unsafe { libc::madvise(start, Self::BYTES, advice) };
        Self {
            start: NonNull::new(start.cast::<u8>()).expect("nothing is mapped at address 0"),
        }
    }
}

/// Unmaps a part of a mapping to which nothing refers. Does nothing for 0 bytes.
fn unmap(start: *mut libc::c_void, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the callers made the mapping, give each part once, and do not use it afterwards.
        unsafe { libc::munmap(start, bytes) };
    }
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this many bytes are mapped from there, initialised (as zeros), for the life of
        // this value; only `deref_mut` gives write access, for which it is borrowed as a whole.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), Self::BYTES) }
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the exclusive borrow makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), Self::BYTES) }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        unmap(self.start.as_ptr().cast(), Self::BYTES);
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Chunk").field(&self.start).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::Chunk;

    #[test]
    fn a_chunk_is_zero_and_keeps_what_is_written() {
        for huge in [false, true] {
            let mut one = Chunk::new(huge);
            let other = Chunk::new(huge);
            assert_eq!(one.as_ptr().addr() % Chunk::BYTES, 0);
            assert!(one.iter().step_by(509).all(|byte| *byte == 0));
            one.fill(7);
            assert!(one.iter().all(|byte| *byte == 7));
            assert!(other.iter().step_by(509).all(|byte| *byte == 0));
        }
    }
}
