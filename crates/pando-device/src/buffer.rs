//! Owned byte buffers, aligned so that direct files accept them.
//!
//! A buffer is always initialised memory: fresh ones are zeros.

#![expect(unsafe_code, reason = "aligned memory has no safe constructor in std")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every [`IoBuf`], and the largest that a direct file may ask for.
pub const IO_ALIGNMENT: usize = 4096;

/// An owned byte buffer that begins at a multiple of [`IO_ALIGNMENT`].
pub struct IoBuf {
    /// `capacity` initialised bytes of the global allocator, owned; dangling if it is 0.
    start: NonNull<u8>,
    /// At most `capacity`.
    len: usize,
    /// A multiple of [`IO_ALIGNMENT`].
    capacity: usize,
}

// SAFETY: the memory is owned by this value alone and plain bytes, so that another thread may have
// it.
unsafe impl Send for IoBuf {}
// SAFETY: shared references allow reads only.
unsafe impl Sync for IoBuf {}

impl IoBuf {
    /// `len` zeros.
    pub fn new(len: usize) -> Self {
        let capacity = len.next_multiple_of(IO_ALIGNMENT);
        if capacity == 0 {
            return Self {
                start: NonNull::dangling(),
                len: 0,
                capacity: 0,
            };
        }
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout);
        };
        debug_assert_eq!(start.addr().get() % IO_ALIGNMENT, 0);
        Self {
            start,
            len,
            capacity,
        }
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Bytes that [`IoBuf::set_len`] can reach; `len` rounded up.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length; bytes that come into view are what they last were.
    ///
    /// # Panics
    /// When `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity,
            "{len} bytes do not fit in a buffer of {}",
            self.capacity
        );
        self.len = len;
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, IO_ALIGNMENT)
            .expect("the alignment is a power of two; the size of a buffer is far below isize::MAX")
    }
}

impl Drop for IoBuf {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        // SAFETY: `start` came from alloc_zeroed with this same layout and is freed once, here.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` <= `capacity` initialised bytes that this value owns; a dangling start goes
        // with length 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref, and `&mut self` excludes every other reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoBuf")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zero_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 1 << 20] {
            let mut buffer = IoBuf::new(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            if len > 0 {
                assert_eq!(buffer.as_ptr().addr() % IO_ALIGNMENT, 0);
            }
        }
        assert_eq!(&*IoBuf::copy_of(b"abc"), b"abc");
    }

    #[test]
    fn the_length_moves_within_the_capacity() {
        let mut buffer = IoBuf::new(100);
        assert_eq!(buffer.capacity(), 4096);
        buffer.set_len(4096);
        assert_eq!(buffer.len(), 4096);
        buffer.set_len(3);
        assert_eq!(buffer.len(), 3);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn the_length_does_not_pass_the_capacity() {
        IoBuf::new(100).set_len(4097);
    }
}
